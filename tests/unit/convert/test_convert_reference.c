/* The fp32 reference pass against an independent one (another program's
 * logits over a real model), and its invariance. */
#include "base/crew.h"
#include "base/file.h"
#include "convert/reference/reference.h"
#include "mkgguf.h"

static float cosine(const float *a, const float *b, size_t n)
{
    double ab = 0;
    double aa = 0;
    double bb = 0;
    for (size_t i = 0; i < n; i++) {
        ab += (double)a[i] * (double)b[i];
        aa += (double)a[i] * (double)a[i];
        bb += (double)b[i] * (double)b[i];
    }
    return (float)(ab / sqrt(aa * bb));
}

static int32_t argmax(const float *x, size_t n)
{
    size_t m = 0;
    for (size_t i = 1; i < n; i++) {
        m = x[i] > x[m] ? i : m;
    }
    return (int32_t)m;
}

static void stories_logits(void **state)
{
    (void)state;
    char path[1024];
    struct err e = {0};
    if (unit_shared() == NULL) {
        skip();
    }
    (void)snprintf(path, sizeof(path), "%s/data/models/derived/%s",
                   unit_shared(), "stories260K.logits.f32");
    struct file_map want;
    unit_ok(file_map(path, &want, &e), &e);
    (void)snprintf(path, sizeof(path), "%s/data/models/derived/%s",
                   unit_shared(), "stories260K.F32.gguf");
    struct gguf *g = NULL;
    unit_ok(gguf_open(path, &g, &e), &e);
    struct decoder d;
    unit_ok(arch_read(g, &d, &e), &e);
    assert_int_equal(want.n, 32 * 512 * 4);
    const float *w = (const float *)(const void *)want.p;
    /* BOS and "Once upon a time", then the greedy continuation */
    int32_t tokens[32] = {1, 403, 407, 261, 378};
    for (size_t i = 5; i < 32; i++) {
        tokens[i] = argmax(w + (i - 1) * 512, 512);
    }
    crew_ref();
    float *got = malloc(32 * 512 * sizeof(float));
    struct range r = {0};
    struct reference_conf conf = {.threads = 2, .range = &r};
    unit_ok(reference_run(&d, &conf, tokens, 32, got, &e), &e);
    float worst = 0;
    for (size_t i = 0; i < 32 * 512; i++) {
        float err = fabsf(got[i] - w[i]);
        worst = err > worst ? err : worst;
    }
    printf("# worst logit error %g, cosine %.8f\n", (double)worst,
           (double)cosine(got, w, 32 * 512));
    assert_true(worst < 2e-3f);
    /* the same bits with one thread */
    float *again = malloc(32 * 512 * sizeof(float));
    conf = (struct reference_conf){.threads = 1};
    unit_ok(reference_run(&d, &conf, tokens, 32, again, &e), &e);
    assert_memory_equal(got, again, 32 * 512 * sizeof(float));
    range_fini(&r);
    free(got);
    free(again);
    crew_unref();
    arch_fini(&d);
    gguf_close(g);
    file_unmap(&want);
}

int main(void)
{
    const struct CMUnitTest t[] = {
        cmocka_unit_test(stories_logits),
    };
    return cmocka_run_group_tests(t, NULL, NULL);
}
