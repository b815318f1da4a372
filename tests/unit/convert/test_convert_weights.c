/* A matrix in blocks of rows is what the encoder makes of all rows at once,
 * with what calibration knows of its inputs. */
#include <unistd.h>

#include "base/crew.h"
#include "base/file.h"
#include "convert/quant/feedback.h"
#include "convert/weights.h"
#include "mkgguf.h"

enum { ROWS = 200, COLS = 1500, TOKENS = 64 };

struct calibration {
    const char *name; /* of the tensor that it was asked for */
    struct weights_inputs inputs;
};

static void on_inputs(void *ctx, const struct gguf_tensor *t,
                      struct weights_inputs *ret)
{
    struct calibration *c = ctx;
    c->name = t->name;
    *ret = c->inputs;
}

static float *drawn(size_t n, uint64_t seed)
{
    float *x = malloc(n * sizeof(*x));
    assert_non_null(x);
    for (size_t i = 0; i < n; i++) {
        x[i] = (float)mk_random(&seed) / 1073741824.0f - 1.0f;
    }
    return x;
}

/* weight.bin's first blob: the codes. */
static struct file_map write_matrix(const struct weights *x,
                                    const struct gguf_tensor *t,
                                    const char *dir, double *ret_error)
{
    struct mil_writer *w = NULL;
    struct weight r = {0};
    struct file_map m;
    struct err e = {0};
    char path[256];
    unit_ok(mil_writer_open(dir, &w, &e), &e);
    const struct part part = {.t = t, .rows = ROWS, .cols = COLS};
    unit_ok(weights_matrix(x, w, &part, 0, ROWS, NULL, &r, &e), &e);
    assert_non_null(r.params);
    assert_true(r.palette);
    *ret_error = r.error;
    struct mil_program *p = mil_writer_program(w);
    struct mil_function *f = mil_add_function(p, "main");
    const int64_t dims[4] = {1, COLS, 1, 1};
    struct mil_value *in = mil_add_input(p, f, "x", MIL_FP16, 4, dims, 1, 1);
    struct mil_value *v = weights_value(p, f, "w", &r);
    mil_add_output(p, f, mil_conv1x1(p, f, "y", in, v, NULL));
    unit_ok(mil_writer_finish(w, &e), &e);
    (void)snprintf(path, sizeof(path), "%s/%s", dir,
                   "Data/com.apple.CoreML/weights/weight.bin");
    unit_ok(file_map(path, &m, &e), &e);
    return m;
}

static void blocks_are_the_whole(void **state)
{
    (void)state;
    float *rows = drawn((size_t)ROWS * COLS, 1);
    float *panel = drawn((size_t)COLS * TOKENS, 2);
    float *importance = malloc(COLS * sizeof(*importance));
    const struct gguf_tensor t = {
        .name = "blk.0.ffn_down.weight",
        .n_dims = 2,
        .dims = {COLS, ROWS},
        .rows = ROWS,
        .cols = COLS,
        .data = (const uint8_t *)rows,
        .bytes = (uint64_t)ROWS * COLS * 4,
        .row_bytes = (uint64_t)COLS * 4,
    };
    struct hessian *h = NULL;
    struct feedback *f = NULL;
    struct quant_choice choice;
    struct err e = {0};
    char room[] = "/tmp/aned-weights-XXXXXX";
    assert_non_null(mkdtemp(room));
    unit_ok(hessian_open(COLS, &h, &e), &e);
    unit_ok(hessian_add(h, 1, panel, TOKENS, TOKENS, &e), &e);
    unit_ok(feedback_open(h, NULL, 0, 1, &f, &e), &e);
    hessian_importance(h, importance);
    struct calibration c = {
        .inputs = {importance, f}
    };
    unit_ok(quant_choice_init(&choice, "lut6:8", NULL, &e), &e);

    uint8_t *codes = malloc((size_t)ROWS * COLS);
    uint16_t *params = malloc(ROWS / 8 * 64 * sizeof(*params));
    struct quant_form want = {.codes = codes, .params = params};
    struct quant_input in = {.spec = choice.spec,
                             .rows = rows,
                             .n_rows = ROWS,
                             .cols = COLS,
                             .importance = importance,
                             .feedback = f};
    unit_ok(quant_encode(&in, &want, &e), &e);
    crew_ref();
    double error[3];
    for (unsigned k = 0; k < 3; k++) { /* one thread, three, no feedback */
        struct weights x = {.threads = k == 1 ? 3 : 1,
                            .choice = &choice,
                            .inputs = on_inputs,
                            .ctx = &c};
        char dir[64];
        (void)snprintf(dir, sizeof(dir), "%s/%u.mlpackage", room, k);
        c.name = "";
        c.inputs.feedback = k < 2 ? f : NULL;
        struct file_map m = write_matrix(&x, &t, dir, &error[k]);
        size_t n = (size_t)ROWS * COLS * 6 / 8;
        assert_true(m.n > 128 + n); /* the file's and the record's header */
        bool same = memcmp(m.p + 128, codes, n) == 0;
        assert_true(same == (k < 2));
        assert_string_equal(c.name, t.name);
        file_unmap(&m);
    }
    crew_unref();
    assert_true(error[0] == error[1]);
    assert_true(fabs(error[0] - want.error) <= 1e-9 * want.error);
    assert_true(error[2] < error[0]); /* nearest: feedback costs other things */
    unit_ok(file_rmtree(room, &e), &e);
    feedback_close(f);
    hessian_close(h);
    free(codes);
    free(params);
    free(importance);
    free(panel);
    free(rows);
}

int main(void)
{
    const struct CMUnitTest t[] = {
        cmocka_unit_test(blocks_are_the_whole),
    };
    return cmocka_run_group_tests(t, NULL, NULL);
}
