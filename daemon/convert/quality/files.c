/* files.c - the rungs that run no program: the constants of the packages, and
 * the text. */
#include <math.h>
#include <string.h>

#include "base/file.h"
#include "convert/quality/impl.h"
#include "mil/mil.h"
#include "model/chat.h"
#include "model/tokenizer.h"

/* --- weights --- */

static bool is_finite(const struct mil_const *c)
{
    uint64_t n = 0;
    if (c->data == NULL || !mil_type_count(&c->type, &n)) {
        return true;
    }
    if (c->type.dtype == MIL_FP16) {
        const uint16_t *h = c->data;
        for (uint64_t i = 0; i < n; i++) {
            if ((h[i] & 0x7c00u) == 0x7c00u) {
                return false;
            }
        }
    } else if (c->type.dtype == MIL_FP32) {
        const float *f = c->data;
        for (uint64_t i = 0; i < n; i++) {
            if (!(fabsf(f[i]) < INFINITY)) {
                return false;
            }
        }
    }
    return true;
}

static bool op_is_finite(const struct mil_op *op)
{
    for (size_t i = 0; i < op->n_attrs; i++) {
        if (op->attrs[i].val != NULL && !is_finite(op->attrs[i].val)) {
            return false;
        }
    }
    return true;
}

static int check_package(struct ladder *r, const char *package, struct err *e)
{
    struct quality_result *w = &r->q->rungs[RUNG_WEIGHTS];
    char path[2048];
    struct mil_program *p = NULL;
    int rc = 0;
    if (!file_join(path, sizeof(path), r->dir, package)) {
        return err_set(e, ERR_INVALID, "%s: the path is too long", package);
    }
    CHECK(mil_read(path, &p, e));
    for (size_t f = 0; f < p->n_functions && w->verdict == NULL; f++) {
        const struct mil_block *b = p->functions[f]->body;
        for (size_t i = 0; i < b->n_ops && w->verdict == NULL; i++) {
            if (!op_is_finite(b->ops[i])) {
                quality_fail(w, "%s: %s holds what is not a number", package,
                             b->ops[i]->n_outputs > 0
                                 ? b->ops[i]->outputs[0]->name
                                 : b->ops[i]->type);
            }
        }
    }
out:
    mil_free(p);
    return rc;
}

int rung_weights(struct ladder *r, struct err *e)
{
    const struct bundle *b = r->b;
    struct quality_result *w = &r->q->rungs[RUNG_WEIGHTS];
    size_t n = bundle_n_packages(b);
    for (size_t i = 0; i < n && w->verdict == NULL; i++) {
        RETERR(check_package(r, bundle_package(b, i), e));
    }
    if (w->verdict == NULL) {
        quality_pass(w, "%zu packages", n);
    }
    return 0;
}

/* --- prompt --- */

/* Text to ids and back. False: *w has the reason. */
static bool text_returns(const struct tokenizer *t, struct quality_result *w)
{
    int32_t *ids = NULL;
    size_t n = 0;
    struct buf b;
    struct err e = {0};
    buf_init(&b, MIB(1));
    bool ok = tokenizer_encode(t, quality_text, strlen(quality_text), false,
                               &ids, &n, &e) == 0;
    if (ok) {
        tokenizer_decode(t, ids, n, false, &b);
        ok = buf_ok(&b) && b.n == strlen(quality_text) &&
             memcmp(b.p, quality_text, b.n) == 0;
    }
    if (!ok) {
        quality_fail(w, "text of %zu bytes comes back from %zu ids as another",
                     strlen(quality_text), n);
    }
    free(ids);
    buf_fini(&b);
    return ok;
}

/* A template makes a prompt; having none is fine. */
static bool template_renders(const struct tokenizer *t,
                             struct quality_result *w)
{
    static const struct chat_message one = {
        .role = "user", .content = "Hello", .content_n = 5};
    static const struct chat_request q = {.messages = &one,
                                          .n_messages = 1,
                                          .add_generation = true,
                                          .bos = "<bos>",
                                          .eos = "<eos>"};
    struct chat_template *compiled = NULL;
    const char *tmpl = tokenizer_template(t);
    struct err e = {0};
    struct buf b;
    if (tmpl == NULL) {
        quality_pass(w, "text comes back; there is no chat template");
        return true;
    }
    buf_init(&b, MIB(1));
    int rc = chat_compile(tmpl, &compiled, &e);
    if (rc == 0) {
        rc = chat_render(compiled, &q, &b, &e);
    }
    chat_free(compiled);
    bool ok = rc == 0 && b.n > 0 && memmem(b.p, b.n, "Hello", 5) != NULL;
    if (ok) {
        quality_pass(w, "text comes back; the chat template gives a prompt");
    } else {
        quality_fail(w, "the chat template gives no prompt: %s",
                     rc < 0 ? e.msg : "the message is not in it");
    }
    buf_fini(&b);
    return ok;
}

void rung_prompt(struct ladder *r)
{
    struct quality_result *w = &r->q->rungs[RUNG_PROMPT];
    struct tokenizer *t = NULL;
    char path[2048];
    struct err e = {0};
    if (bundle_kind(r->b) == BUNDLE_EMBEDDER) { /* and WordPiece drops capitals */
        w->verdict = "not run";
        (void)snprintf(w->detail, sizeof(w->detail), "it writes no text");
        return;
    }
    if (!file_join(path, sizeof(path), r->dir, r->b->tokenizer_file) ||
        tokenizer_open(path, &t, &e) < 0) {
        w->verdict = "not run";
        (void)snprintf(w->detail, sizeof(w->detail), "no text: %.300s", e.msg);
        return;
    }
    if (text_returns(t, w)) {
        (void)template_renders(t, w);
    }
    tokenizer_close(t);
}
