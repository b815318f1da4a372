/* The forms of weights in a converted model. */
#include "base/half.h"
#include "convert/arch/arch.h"
#include "model/bundle.h"
#include "room.h"

/* Element i of a stream of codes (facts 4.3). */
static unsigned code_at(const struct mil_const *c, size_t i)
{
    unsigned bits = mil_dtype_bits(c->type.dtype);
    const uint8_t *p = c->data;
    unsigned v = 0;
    for (size_t b = 0; b < bits; b++) {
        size_t at = i * bits + b;
        v |= (unsigned)(p[at / 8] >> at % 8 & 1) << b;
    }
    return v;
}

/* Every q weight of layer 0 is the nearest entry of its own rows' palette,
 * rows in rotate-half order: `group` of them share one. */
static void check_palettes(const struct mil_function *f, const struct mk *m,
                           const char *path, unsigned entries, uint32_t group)
{
    struct err e = {0};
    struct gguf *g = NULL;
    struct decoder d;
    unit_ok(gguf_open(path, &g, &e), &e);
    unit_ok(arch_read(g, &d, &e), &e);
    const struct mil_op *op =
        find_op(f, "constexpr_lut_to_dense", "layers_0_q_weight");
    assert_non_null(op);
    const struct mil_const *codes = mil_op_const(op, "indices");
    const struct mil_const *lut = mil_op_const(op, "lut");
    uint32_t rows = m->heads * m->d_head;
    assert_int_equal(codes->type.dims[0], rows);
    assert_int_equal(lut->type.rank, 6);
    assert_int_equal(lut->type.dims[0], rows / group);
    assert_int_equal(lut->type.dims[4], entries);
    float *row = malloc(m->d * sizeof(float));
    for (uint32_t r = 0; r < rows; r++) {
        struct head_rows perm;
        uint32_t in = r % m->d_head;
        bool permutes = arch_permutes(&d, 0, &perm);
        uint32_t from = r - in + (permutes ? head_row(&perm, in) : in);
        const uint16_t *entry = lut->data;
        entry += r / group * entries;
        unit_ok(gguf_rows(arch_part(&d, 0, SLOT_Q)->t, from, 1, row, &e), &e);
        for (uint32_t i = 0; i < m->d; i++) {
            unsigned c = code_at(codes, (size_t)r * m->d + i);
            float off = fabsf(half_to_float(entry[c]) - row[i]);
            for (unsigned k = 0; k < entries; k++) {
                float other = fabsf(half_to_float(entry[k]) - row[i]);
                assert_true(off <= other + 1e-7f);
            }
        }
    }
    free(row);
    arch_fini(&d);
    gguf_close(g);
}

static void palettes_of_every_family(void **state)
{
    (void)state;
    static const struct {
        const char *quant, *shape;
        unsigned entries;
        uint32_t group;
    } t[] = {
        {"lut4",   NULL,        16, 1},
        {"lut6:8", "functions", 64, 8},
    };
    const struct mk *models[] = {&mk_llama, &mk_qwen2, &mk_gemma3};
    for (size_t i = 0; i < countof(models) * countof(t); i++) {
        const struct mk *m = models[i / countof(t)];
        const char *source = write_model(m, "m.gguf");
        struct convert_options o = options(source, at("bundle"));
        struct convert_result r = {0};
        struct bundle *b = NULL;
        struct mil_program *p = NULL;
        struct err e = {0};
        char path[512];
        o.quant = t[i % countof(t)].quant;
        o.shape = t[i % countof(t)].shape;
        o.calibrate = "off"; /* codes are of the nearest entries */
        unit_ok(convert_run(&o, &r, &e), &e);
        unit_ok(bundle_open(o.out, &b, &e), &e);
        assert_true(file_join(path, sizeof(path), o.out, b->shards[0].path));
        unit_ok(mil_read(path, &p, &e), &e);
        unit_ok(mil_validate(p, &e), &e);
        check_palettes(mil_function_find(p, NULL), m, source,
                       t[i % countof(t)].entries, t[i % countof(t)].group);
        mil_free(p);
        unit_ok(file_rmtree(b->dir, &e), &e);
        bundle_close(b);
        (void)unlink(source);
    }
}

/* A layer's matrix as stored. */
static void check_form(const struct mil_function *f, const char *name,
                       enum mil_dtype codes, int64_t groups)
{
    bool palette = codes == MIL_UINT4 || codes == MIL_UINT6;
    const struct mil_op *op = find_op(
        f,
        palette ? "constexpr_lut_to_dense" : "constexpr_blockwise_shift_scale",
        name);
    assert_non_null(op);
    const struct mil_const *c = mil_op_const(op, palette ? "indices" : "data");
    const struct mil_const *p = mil_op_const(op, palette ? "lut" : "scale");
    assert_int_equal(c->type.dtype, codes);
    assert_int_equal(p->type.dims[0], groups);
}

static void patterns_choose_forms(void **state)
{
    (void)state;
    const struct mk *m = &mk_qwen2;
    const char *source = write_model(m, "m.gguf");
    struct convert_options o = options(source, at("bundle"));
    struct convert_result r = {0};
    struct bundle *b = NULL;
    struct mil_program *p = NULL;
    struct err e = {0};
    char path[512];
    o.quant = "lut4";
    o.head_quant = "lut6";
    o.quant_for[0] = "*.ffn_down.weight=lut6:8";
    o.quant_for[1] = "blk.1.*=int8-tensor";
    o.n_quant_for = 2;
    unit_ok(convert_run(&o, &r, &e), &e);
    unit_ok(bundle_open(o.out, &b, &e), &e);
    assert_string_equal(b->quant, "lut4");
    assert_true(file_join(path, sizeof(path), o.out, b->shards[0].path));
    unit_ok(mil_read(path, &p, &e), &e);
    const struct mil_function *f = mil_function_find(p, NULL);
    check_form(f, "layers_0_gate_weight", MIL_UINT4, m->ff);
    check_form(f, "layers_0_down_weight", MIL_UINT6, m->d / 8);
    check_form(f, "layers_1_gate_weight", MIL_INT8, 1);
    check_form(f, "layers_1_down_weight", MIL_INT8, 1);
    mil_free(p);
    assert_true(file_join(path, sizeof(path), o.out, b->heads[0].path));
    unit_ok(mil_read(path, &p, &e), &e);
    /* 300 rows are no whole groups of 16: 15 share a palette */
    check_form(mil_function_find(p, NULL), "head_weight", MIL_UINT6, 20);
    mil_free(p);
    unit_ok(file_rmtree(b->dir, &e), &e);
    bundle_close(b);
    (void)unlink(source);
}

int main(void)
{
    const struct CMUnitTest t[] = {
        cmocka_unit_test(palettes_of_every_family),
        cmocka_unit_test(patterns_choose_forms),
    };
    return cmocka_run_group_tests(t, setup, teardown);
}
