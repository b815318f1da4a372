/* verify_result.c - what a check of a model comes to: SOUND when its files are
 * those of its manifest, and the manifest's those of the store's rows; else
 * DAMAGED, with a reason that says how to convert it again.
 */
#include <string.h>

#include "base/log.h"
#include "proto/json.h"
#include "serve/engines/verify_impl.h"
#include "serve/jobs/jobs.h"

struct rows { /* the model may go before they come */
    struct verifier *v;
    struct model *m; /* NULL: gone */
    char stamp[SHA256_HEX];
};

/* --- damaged --- */

/* A word for a shell. */
static void put_word(struct buf *b, const char *s)
{
    static const char plain[] = "abcdefghijklmnopqrstuvwxyz"
                                "ABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-/";
    if (s[0] != '\0' && s[strspn(s, plain)] == '\0') {
        buf_puts(b, s);
        return;
    }
    buf_puts(b, "'");
    for (; *s != '\0'; s++) {
        if (*s == '\'') {
            buf_puts(b, "'\\''");
        } else {
            buf_u8(b, (uint8_t)*s);
        }
    }
    buf_puts(b, "'");
}

static void put_option(struct buf *b, const char *name, const struct json *v)
{
    char number[32];
    if (json_type(v) == JSON_NUMBER) {
        double n = json_num(v);
        bool whole = n > -1e15 && n < 1e15 && !(n - (double)(int64_t)n > 0) &&
                     !(n - (double)(int64_t)n < 0);
        (void)snprintf(number, sizeof(number), whole ? "%.0f" : "%.9g", n);
    } else if (json_str(v) == NULL) {
        return;
    }
    buf_printf(b, " --%s ", name);
    put_word(b, json_str(v) != NULL ? json_str(v) : number);
}

static void put_forms(struct buf *b, const struct bundle *m)
{
    if (m->target.bytes > 0) {
        buf_printf(b, " --target-bytes %llu",
                   (unsigned long long)m->target.bytes);
    } else if (m->target.kl > 0) {
        buf_printf(b, " --target-kl %g", m->target.kl);
    } else {
        buf_puts(b, " --quant ");
        put_word(b, m->quant);
    }
}

/* How to make the model again: as its job was asked to, or, without a job's
 * record, from what the manifest tells of its source. */
static void put_repair(struct buf *b, const struct model *m)
{
    static const struct {
        const char *option, *key;
    } options[] = {
        {"quant",          "quant"         },
        {"head-quant",     "head_quant"    },
        {"target-bytes",   "target_bytes"  },
        {"target-kl",      "target_kl"     },
        {"context",        "context"       },
        {"shape",          "shape"         },
        {"kv",             "kv"            },
        {"experts",        "experts"       },
        {"profile",        "profile"       },
        {"norm",           "norm"          },
        {"residual-scale", "residual_scale"},
    };
    struct jobs *js = m->of->srv->jobs;
    struct job *j = js != NULL ? jobs_find(js, m->job) : NULL;
    struct json *spec = NULL;
    if (j != NULL && job_row(j)->spec != NULL &&
        json_parse(job_row(j)->spec, strlen(job_row(j)->spec), &spec, NULL) !=
            0) {
        spec = NULL;
    }
    const char *source = json_str(json_get(spec, "source"));
    buf_puts(b, "; convert it again: anectl rm ");
    put_word(b, m->name);
    buf_puts(b, " && anectl convert ");
    put_word(b, source != NULL ? source : m->bundle->source_name);
    buf_puts(b, " --name ");
    put_word(b, m->name);
    for (size_t i = 0; source != NULL && i < countof(options); i++) {
        put_option(b, options[i].option, json_get(spec, options[i].key));
    }
    const struct json *rules = json_get(spec, "quant_for");
    for (const struct json *r = json_first(rules); r != NULL;
         r = json_next(r)) {
        put_option(b, "quant-for", r);
    }
    if (source == NULL) {
        put_forms(b, m->bundle);
        buf_printf(b, " --context %u", m->bundle->context);
    }
    json_free(spec);
}

void verify_damaged(struct model *m, const char *what)
{
    struct buf b;
    struct err why = {0};
    m->verify.state = VERIFY_DAMAGED;
    m->verify.stamp[0] = '\0';
    buf_init(&b, KIB(16));
    buf_printf(&b, "damaged: %s", what);
    put_repair(&b, m);
    log_error("model_damaged", "model=%s %s", m->name, what);
    (void)err_set(&why, ERR_MODEL_FAILED, "damaged: %s", what);
    model_condemn(m, &why, buf_ok(&b) ? b.p : why.msg);
    buf_fini(&b);
}

/* --- sound, if the store knows the same files --- */

static void sound(struct model *m, const char *stamp)
{
    m->verify.state = VERIFY_SOUND;
    m->verify.first = false;
    m->verify.lost = 0;
    m->verify.checked_ms = server_unix_ms();
    (void)snprintf(m->verify.stamp, sizeof(m->verify.stamp), "%s", stamp);
    log_info("model_verified", "model=%s bytes=%llu", m->name,
             (unsigned long long)m->bundle->total_bytes);
    model_checked(m, NULL);
}

/* Rows come by path, of which they keep so many bytes. */
static int by_path(const void *path, const void *row)
{
    const struct store_artifact *a = row;
    return strncmp(path, a->path, sizeof(a->path) - 1);
}

/* The rows that were written when it was published. */
static bool same_rows(const struct bundle *b, const struct store_artifact *v,
                      size_t n)
{
    for (size_t i = 0; n == b->n_files && i < n; i++) {
        const struct bundle_file *f = &b->files[i];
        const struct store_artifact *a =
            bsearch(f->path, v, n, sizeof(*v), by_path);
        if (a == NULL || a->bytes != f->bytes ||
            strcmp(a->sha256, f->sha256) != 0) {
            return false;
        }
    }
    return n == b->n_files;
}

static void on_rows(void *ctx, int status, const struct store_artifact *a,
                    size_t n)
{
    struct rows *r = ctx;
    struct verifier *v = r->v;
    struct model *m = r->m;
    if (m != NULL) {
        v->rows = NULL;
        v->current = NULL;
    }
    if (m != NULL && !v->stopping) {
        m->verify.asked = false; /* also when it was asked meanwhile */
        /* n 0: adopted after a crash, when its rows had not been written */
        if (status == 0 && n > 0 && !same_rows(m->bundle, a, n)) {
            verify_damaged(m,
                           "bundle.json does not name the files that the store "
                           "knows");
        } else {
            sound(m, r->stamp);
        }
    }
    free(r);
    verify_next(v);
}

void verify_rows(struct verifier *v, const char *stamp)
{
    struct rows *r = calloc(1, sizeof(*r));
    must(r != NULL);
    r->v = v;
    r->m = v->current;
    v->rows = r;
    (void)snprintf(r->stamp, sizeof(r->stamp), "%s", stamp);
    if (store_artifacts(v->ms->srv->store, r->m->name, on_rows, r) != 0) {
        on_rows(r, ERR_BUSY, NULL, 0);
    }
}

void verify_rows_leave(struct verifier *v)
{
    if (v->rows != NULL) {
        v->rows->m = NULL;
        v->rows = NULL;
    }
}
