/* Calibration of experts: each one's codes are made with the tokens that chose
 * it, those of one that nobody chose by the rule that experts.c states; bytes
 * depend neither on threads nor on where a run was cut off; a package of a single
 * expert has the same codes; and they are better than the nearest ones. */
#include "calibrated.h"
#include "mkmixtures.h"

static const enum arch_slot slots[] = {SLOT_EXPERT_GATE, SLOT_EXPERT_UP,
                                       SLOT_EXPERT_DOWN};
static const struct mk *const mixtures[] = {&fused, &split, &models[ZAYA]};

static struct mk calm(const struct mk *of)
{
    struct mk m = *of;
    m.gain = 1;
    return m;
}

static void every_expert(void **state)
{
    (void)state;
    for (size_t f = 0; f < countof(mixtures); f++) {
        struct model m;
        struct calibration *c = NULL;
        struct err e = {0};
        const struct mk of = calm(mixtures[f]);
        open_model(&m, &of, "lut4", NULL);
        const struct calibrate_conf conf = conf_of(&m, at("codes"));
        unit_ok(calibrate_run(&m.d, &conf, &c, &e), &e);
        for (uint32_t l = 0; l < m.d.n_layers; l++) {
            for (size_t s = 0; s < countof(slots); s++) {
                assert_int_equal(has_codes(c, arch_part(&m.d, l, slots[s])), 1);
            }
            assert_int_equal(has_codes(c, arch_part(&m.d, l, SLOT_ROUTER)), 0);
        }
        calibration_close(c);
        clear(at("codes"));
        close_model(&m);
    }
}

static void the_same_bytes(void **state)
{
    (void)state;
    for (size_t f = 0; f < countof(mixtures); f++) {
        if (unit_passed_over(f, 2)) {
            continue;
        }
        struct model m;
        const struct mk of = calm(mixtures[f]);
        open_model(&m, &of, "lut4", "lut6");
        struct calibrate_conf conf = conf_of(&m, at("one"));
        calibrate(&m, &conf);
        for (uint32_t n = 0; n <= m.d.n_layers + 1; n++) {
            if (unit_passed_over(n, 3)) {
                continue;
            }
            struct err e = {0};
            conf.dir = at("five");
            conf.threads = 5;
            unit_ok(file_mkdirs(conf.dir, 0755, &e), &e);
            for (uint32_t l = 0; l < n; l++) { /* left by an earlier run */
                char path[2048];
                (void)snprintf(path, sizeof(path), "%s",
                               file_of(at("one"), l, m.d.n_layers));
                copy_file(path, file_of(at("five"), l, m.d.n_layers));
            }
            calibrate(&m, &conf);
            same_files(at("one"), at("five"), m.d.n_layers);
            clear(at("five"));
        }
        clear(at("one"));
        close_model(&m);
    }
}

/* --- one expert's codes, for a package of its own --- */

/* Experts whose codes are given, of one matrix of a layer; those are the rows
 * that calibration has. */
static unsigned given(struct calibration *c, const struct model *m,
                      enum arch_slot slot, struct quant_spec spec)
{
    const struct part *p = arch_part(&m->d, 1, slot);
    const uint64_t rows = p->rows / m->d.layers[1].n_experts;
    unsigned n = 0;
    spec = quant_fit(spec, rows);
    for (uint32_t i = 0; i < m->d.layers[1].n_experts; i++) {
        struct weights_codes codes = {0};
        struct err e = {0};
        if (!calibration_codes(c, p, i * rows, rows, &codes)) {
            continue;
        }
        n++;
        const struct quant_rows from = {codes.codes, codes.params, p->cols};
        const struct part own = arch_expert(&m->d, 1, slot, i);
        for (uint64_t row = 0; row < rows; row++) {
            float a[D];
            float b[D];
            unit_ok(calibration_rows(c, own.t, own.first + row, 1, a, &e), &e);
            quant_decode(spec, &from, row, b);
            assert_memory_equal(a, b, p->cols * sizeof(*a));
        }
    }
    return n;
}

static void a_slice_for_one_expert(void **state)
{
    (void)state;
    static const char *const forms[] = {"lut4", "int4", "int8", "lut6:4"};
    struct mk of = calm(&models[ZAYA]);
    for (size_t f = 0; f < countof(forms); f++) {
        struct model m;
        struct calibration *c = NULL;
        struct err e = {0};
        open_model(&m, &of, forms[f], NULL);
        const struct calibrate_conf conf = conf_of(&m, at("codes"));
        unit_ok(calibrate_run(&m.d, &conf, &c, &e), &e);
        for (size_t s = 0; s < countof(slots); s++) {
            assert_int_equal(given(c, &m, slots[s], m.forms.spec),
                             ZAYA_EXPERTS);
        }
        calibration_close(c);
        clear(at("codes"));
        close_model(&m);
    }
}

/* --- who is chosen --- */

/* The numbers of a tensor, in the file that the model is read from. */
static float *floats_of(struct model *m, const struct part *p)
{
    size_t at_byte =
        (size_t)((const char *)p->t->data - (const char *)m->file.p);
    assert_in_range(at_byte, 1, m->file.n - 1);
    return (float *)(void *)((char *)m->file.p + at_byte);
}

/* Row `row` of expert `index` as calibration has it. */
static void row_of(struct calibration *c, const struct model *m, uint32_t l,
                   enum arch_slot slot, uint32_t index, uint64_t row,
                   float *out)
{
    const struct part p = arch_expert(&m->d, l, slot, index);
    struct err e = {0};
    unit_ok(calibration_rows(c, p.t, p.first + row, 1, out, &e), &e);
}

/* The row of the source at the nearest of the best palette that knows no
 * importance. */
static void nearest(const struct model *m, uint32_t l, enum arch_slot slot,
                    uint32_t index, uint64_t row, float *out)
{
    const struct part p = arch_expert(&m->d, l, slot, index);
    const struct quant_spec spec = {QUANT_LUT4, 1};
    float w[D];
    uint8_t codes[D / 2];
    uint16_t params[16];
    struct err e = {0};
    unit_ok(gguf_rows(p.t, p.first + row, 1, w, &e), &e);
    const struct quant_input in = {
        .spec = spec, .rows = w, .n_rows = 1, .cols = p.cols};
    struct quant_form f = {.codes = codes, .params = params};
    unit_ok(quant_encode(&in, &f, &e), &e);
    const struct quant_rows from = {codes, params, p.cols};
    quant_decode(spec, &from, 0, out);
}

/* How many rows of an expert's matrix are those of plain rounding. */
static unsigned rounded_rows(struct calibration *c, const struct model *m,
                           enum arch_slot slot, uint32_t index)
{
    const struct part p = arch_expert(&m->d, 0, slot, index);
    unsigned n = 0;
    for (uint64_t row = 0; row < p.rows; row++) {
        float a[D];
        float b[D];
        row_of(c, m, 0, slot, index, row, a);
        nearest(m, 0, slot, index, row, b);
        n += memcmp(a, b, p.cols * sizeof(*a)) == 0 ? 1 : 0;
    }
    return n;
}

/* Expert 2 is never chosen, expert 0 always. */
static void an_expert_that_nobody_chose(void **state)
{
    (void)state;
    struct model m;
    struct calibration *c = NULL;
    struct err e = {0};
    struct mk of = calm(&models[ZAYA]);
    open_model(&m, &of, "lut4", NULL);
    for (uint32_t l = 0; l < m.d.n_layers; l++) {
        float *bias = floats_of(&m, arch_part(&m.d, l, SLOT_ROUTER_BIAS));
        bias[0] = 9;
        bias[2] = -9;
    }
    const struct calibrate_conf conf = conf_of(&m, at("codes"));
    unit_ok(calibrate_run(&m.d, &conf, &c, &e), &e);
    assert_int_equal(rounded_rows(c, &m, SLOT_EXPERT_DOWN, 2), D);
    /* 12 weights have an entry each: only what other layers lost moves them */
    assert_true(rounded_rows(c, &m, SLOT_EXPERT_DOWN, 0) < D * 3 / 4);
    /* the layer's mean is known of both */
    assert_true(rounded_rows(c, &m, SLOT_EXPERT_GATE, 2) < ZAYA_WIDE / 2);
    assert_true(rounded_rows(c, &m, SLOT_EXPERT_UP, 2) < ZAYA_WIDE / 2);
    calibration_close(c);
    clear(at("codes"));
    close_model(&m);
}

/* 60 rows of gate are palettes of 15, and an expert has 12: all of that matrix is
 * rounded. */
static void shared_palettes_are_rounded(void **state)
{
    (void)state;
    struct model m;
    struct calibration *c = NULL;
    struct err e = {0};
    struct mk of = calm(&models[ZAYA]);
    open_model(&m, &of, "lut6:16", NULL);
    assert_int_equal(
        quant_fit(m.forms.spec, (uint64_t)ZAYA_EXPERTS * ZAYA_WIDE).group, 15);
    const struct calibrate_conf conf = conf_of(&m, at("codes"));
    unit_ok(calibrate_run(&m.d, &conf, &c, &e), &e);
    for (size_t s = 0; s < countof(slots); s++) {
        assert_int_equal(has_codes(c, arch_part(&m.d, 1, slots[s])), 1);
    }
    assert_int_equal(given(c, &m, SLOT_EXPERT_GATE, m.forms.spec), 0);
    calibration_close(c);
    clear(at("codes"));
    close_model(&m);
}

/* --- limits --- */

/* LFM2.5-8B-A1B's numbers, and a dense branch besides. */
static void memory_is_bounded(void **state)
{
    (void)state;
    struct model m;
    struct err e = {0};
    uint32_t n = 0;
    open_model(&m, &fused, "lut4", NULL);
    uint64_t small = calibrate_bytes(&m.d, &m.forms, CALIBRATE_SEQUENCES);
    m.d.d_model = 2048;
    for (uint32_t l = 0; l < m.d.n_layers; l++) {
        struct layer *y = &m.d.layers[l];
        y->n_heads = 32;
        y->n_kv = 8;
        y->d_head = 64;
        y->d_ff = 7168;
        y->n_experts = 32;
        y->d_expert = 1792;
        m.d.parts[l][SLOT_DOWN - SLOT_LAYER].cols = 7168;
    }
    unit_ok(calibrate_fit(&m.d, &m.forms, &n, &e), &e);
    assert_int_equal(n, CALIBRATE_SEQUENCES);
    uint64_t all = calibrate_bytes(&m.d, &m.forms, n);
    assert_true(all > small && all <= CALIBRATE_BYTES_MAX);
    /* what both sides' experts read is in it */
    assert_true(all > 2 * 4 * (uint64_t)n * CALIBRATE_TOKENS * 2048 + small);
    m.d.layers[1].d_expert = 16384; /* rows of `down` */
    assert_int_equal(calibrate_fit(&m.d, &m.forms, &n, &e), ERR_UNSUPPORTED);
    close_model(&m);
}

/* --- is it of use? --- */

static void nearer_than_the_nearest(void **state)
{
    (void)state;
    for (size_t f = 0; f < countof(mixtures); f++) {
        if (unit_passed_over(f, 2)) {
            continue;
        }
        struct mk m = calm(mixtures[f]);
        m.context = 128;
        double off = distance(&m, "lut4", "off", "dense");
        double on = distance(&m, "lut4", "on", "dense");
        double apart = distance(&m, "lut4", "on", "sparse");
        printf("%s: mean KL %.6g nearest, %.6g calibrated, %.6g in packages of "
               "experts\n",
               m.arch, off, on, apart);
        assert_true(on < 0.9 * off);
        assert_true(apart < 0.95 * off);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_expert),
        cmocka_unit_test(the_same_bytes),
        cmocka_unit_test(a_slice_for_one_expert),
        cmocka_unit_test(an_expert_that_nobody_chose),
        cmocka_unit_test(shared_palettes_are_rounded),
        cmocka_unit_test(memory_is_bounded),
        cmocka_unit_test(nearer_than_the_nearest),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
