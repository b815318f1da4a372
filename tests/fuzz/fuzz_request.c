/* The fields of all dialects: whatever is taken is in its range, whatever is
 * refused names a field. */

#include "api/doc.h"
#include "api/params.h"

static void check(const struct params *p)
{
    const struct msg_sampling *s = &p->req.sampling;
    struct buf b;
    struct err e = {0};
    struct msg_row row = {
        .n_tokens = 1, .tokens = &(int32_t){1}, .sample = true};
    struct msg_step step = {.n_rows = 1, .rows = &row}, back = {0};
    must(s->temperature >= 0 && s->temperature <= 2);
    must(s->top_p >= 0 && s->top_p <= 1 && s->min_p >= 0 && s->min_p <= 1);
    must(s->n_chain <= SAMPLERS_MAX && s->mirostat <= 2 && s->dry_base >= 1);
    must(p->req.n_dry_texts <= DRY_TEXTS_MAX);
    must(s->n_bias <= ENGINE_BIAS_MAX && s->logprobs <= ENGINE_LOGPROBS_MAX);
    must(p->req.n >= 1 && p->req.n <= CHOICES_MAX);
    must(p->req.n_stops <= STOP_STRINGS_MAX);
    /* The engine's own check takes all that we let through. */
    row.sampling = *s;
    buf_init(&b, FRAME_ENGINE_MAX);
    msg_step_put(&b, &step);
    must(buf_ok(&b) && msg_step_get(b.p, b.n, &back, &e) == 0);
    msg_step_fini(&back);
    buf_fini(&b);
}

int LLVMFuzzerTestOneInput(const uint8_t *p, size_t n);
int LLVMFuzzerTestOneInput(const uint8_t *p, size_t n)
{
    struct json *j = NULL;
    static struct params q;
    struct err e = {0};
    if (json_parse((const char *)p, n, &j, NULL) < 0) {
        return 0;
    }
    const struct fields *f = NULL;
    for (size_t i = 0; (f = doc_fields(i)) != NULL; i++) {
        struct arena a;
        arena_init(&a, GEN_ARENA_MAX);
        int rc = json_type(j) == JSON_OBJECT ? params_read(j, f, &a, &q, &e)
                                             : ERR_INVALID;
        if (rc == 0) {
            check(&q);
        } else {
            must(rc == ERR_INVALID || rc == ERR_UNSUPPORTED);
            must(json_type(j) != JSON_OBJECT || q.param[0] != '\0' ||
                 json_get(j, "") != NULL);
        }
        arena_fini(&a);
    }
    json_free(j);
    return 0;
}
