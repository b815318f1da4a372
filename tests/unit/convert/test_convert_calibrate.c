/* Calibration: every matrix of every family gets codes; their bytes depend
 * neither on threads nor on where a run was cut off; the package holds just
 * those codes, and they are better than the nearest ones. */
#include "calibrated.h"

/* --- what has codes --- */

static void every_matrix(void **state)
{
    (void)state;
    for (unsigned f = 0; f < N; f++) {
        struct model m;
        struct calibration *c = NULL;
        struct err e = {0};
        unsigned n = 0;
        struct mk of = models[f];
        of.gain = 1;
        open_model(&m, &of, "lut4", NULL);
        const struct calibrate_conf conf = conf_of(&m, at("codes"));
        unit_ok(calibrate_run(&m.d, &conf, &c, &e), &e);
        for (uint32_t l = 0; l < m.d.n_layers; l++) {
            for (unsigned s = SLOT_LAYER; s < SLOT_COUNT; s++) {
                const struct part *p = arch_matrix(&m.d, l, (enum arch_slot)s);
                if (p != NULL) {
                    assert_int_equal(has_codes(c, p), 1);
                    n++;
                }
            }
        }
        /* gemma4 shares keys, lfm2's convolutions have two matrices */
        assert_true(n >= 7 * m.d.n_layers - 8);
        assert_int_equal(has_codes(c, arch_head(&m.d)), 1);
        calibration_close(c);
        clear(at("codes"));
        close_model(&m);
    }
}

static void fp16_is_left_alone(void **state)
{
    (void)state;
    struct model m;
    struct calibration *c = NULL;
    struct err e = {0};
    open_model(&m, &mk_llama, "lut4", "fp16");
    unit_ok(quant_choice_add(&m.forms, "blk.1.*=fp16", &e), &e);
    const struct calibrate_conf conf = conf_of(&m, at("codes"));
    unit_ok(calibrate_run(&m.d, &conf, &c, &e), &e);
    assert_int_equal(has_codes(c, arch_part(&m.d, 0, SLOT_Q)), 1);
    assert_int_equal(has_codes(c, arch_part(&m.d, 1, SLOT_Q)), 0);
    assert_int_equal(has_codes(c, arch_part(&m.d, 2, SLOT_DOWN)), 1);
    assert_int_equal(has_codes(c, arch_head(&m.d)), 0);
    calibration_close(c);
    clear(at("codes"));
    close_model(&m);
}

/* --- the same bytes --- */

static void threads_change_nothing(void **state)
{
    (void)state;
    const struct mk *of[] = {&models[GEMMA4], &models[PHI3], &mk_llama};
    for (size_t i = 0; i < countof(of); i++) {
        struct model m;
        open_model(&m, of[i], "lut4", "lut6");
        struct calibrate_conf conf = conf_of(&m, at("one"));
        calibrate(&m, &conf);
        conf.dir = at("five");
        conf.threads = 5;
        calibrate(&m, &conf);
        same_files(at("one"), at("five"), m.d.n_layers);
        clear(at("one"));
        clear(at("five"));
        close_model(&m);
    }
}

/* As after a crash that left the files of the first `n` layers. */
static void resumes_after_each_layer(void **state)
{
    (void)state;
    struct model m;
    open_model(&m, &models[GEMMA4], "lut4", NULL);
    struct calibrate_conf conf = conf_of(&m, at("whole"));
    calibrate(&m, &conf);
    for (uint32_t n = 0; n <= m.d.n_layers + 1; n++) {
        if (unit_passed_over(n, 3)) {
            continue;
        }
        struct err e = {0};
        char path[2048];
        unit_ok(file_mkdirs(at("part"), 0755, &e), &e);
        for (uint32_t l = 0; l < n; l++) {
            (void)snprintf(path, sizeof(path), "%s",
                           file_of(at("whole"), l, m.d.n_layers));
            copy_file(path, file_of(at("part"), l, m.d.n_layers));
        }
        if (n % 2 == 1) { /* also when the samples have to be written anew */
            copy_file(at("whole/samples"), at("part/samples"));
        }
        conf.dir = at("part");
        calibrate(&m, &conf);
        same_files(at("whole"), at("part"), m.d.n_layers);
        clear(at("part"));
    }
    clear(at("whole"));
    close_model(&m);
}

static void files_of_another_run_are_not_used(void **state)
{
    (void)state;
    struct model m;
    open_model(&m, &mk_llama, "lut4", NULL);
    struct calibrate_conf conf = conf_of(&m, at("whole"));
    calibrate(&m, &conf);
    struct buf right = read_file(file_of(at("whole"), 0, m.d.n_layers));
    conf.dir = at("other");
    conf.source = "another source";
    calibrate(&m, &conf);
    struct buf other = read_file(file_of(at("other"), 0, m.d.n_layers));
    assert_int_equal(other.n, right.n);
    assert_memory_not_equal(other.p, right.p, 64); /* the key */
    assert_memory_equal(other.p + 64, right.p + 64, right.n - 64);
    memset(other.p + 64, 0x11, other.n - 64); /* to be seen if they were used */
    struct err e = {0};
    unit_ok(
        file_write(file_of(at("other"), 0, m.d.n_layers), other.p, other.n, &e),
        &e);
    conf.source = "a source";
    calibrate(&m, &conf);
    same_files(at("whole"), at("other"), m.d.n_layers);
    buf_fini(&right);
    buf_fini(&other);
    clear(at("whole"));
    clear(at("other"));
    close_model(&m);
}

struct stop {
    unsigned left; /* calls until the run is cancelled */
};

static bool on_progress(void *ctx, const char *stage, double fraction)
{
    struct stop *s = ctx;
    assert_string_equal(stage, "calibrating");
    assert_true(fraction >= 0 && fraction <= 1);
    return s->left == 0 || --s->left > 0;
}

static uint64_t clock_of_steps(void)
{
    static uint64_t ms;
    return ms += 1000; /* every call is told */
}

static unsigned parts_in(const char *dir)
{
    unsigned n = 0;
    DIR *d = opendir(dir);
    assert_non_null(d);
    for (struct dirent *x = readdir(d); x != NULL; x = readdir(d)) {
        n += strstr(x->d_name, ".part") != NULL;
    }
    (void)closedir(d);
    return n;
}

static void cancelled_runs_go_on(void **state)
{
    (void)state;
    struct model m;
    struct calibration *c = NULL;
    struct err e = {0};
    open_model(&m, &mk_llama, "lut4", NULL);
    struct calibrate_conf conf = conf_of(&m, at("whole"));
    calibrate(&m, &conf);
    conf.dir = at("part");
    unsigned cancelled = 0;
    for (unsigned n = 2; cancelled < 200; n += 29) {
        struct stop s = {.left = n};
        double cost = calibrate_cost(&m.d, &m.forms, true);
        struct progress p = {
            .fn = on_progress, .ctx = &s, .now_ms = clock_of_steps};
        unit_ok(progress_stage(&p, "calibrating", (uint64_t)cost, &e), &e);
        conf.progress = &p;
        int rc = calibrate_run(&m.d, &conf, &c, &e);
        if (rc == 0) {
            break;
        }
        assert_int_equal(rc, ERR_CANCELLED);
        assert_int_equal(parts_in(at("part")), 0);
        cancelled++;
    }
    assert_true(cancelled >= 3 && cancelled < 200);
    calibration_close(c);
    same_files(at("whole"), at("part"), m.d.n_layers);
    clear(at("whole"));
    clear(at("part"));
    close_model(&m);
}

/* --- the package --- */

static bool holds(const struct buf *b, const uint8_t *p, size_t n)
{
    const char *at_byte = b->p;
    const char *end = b->p + b->n;
    while (n <= (size_t)(end - at_byte)) {
        at_byte = memchr(at_byte, p[0], (size_t)(end - at_byte) - n + 1);
        if (at_byte == NULL) {
            return false;
        }
        if (memcmp(at_byte, p, n) == 0) {
            return true;
        }
        at_byte++;
    }
    return false;
}

static void must_hold(const struct buf *b, struct calibration *c,
                      const struct quant_choice *forms, const struct part *p)
{
    struct weights_codes codes = {0};
    struct quant_spec spec =
        quant_fit(quant_choice_for(forms, p->t->name), p->rows);
    assert_true(calibration_codes(c, p, 0, p->rows, &codes));
    bool there = holds(b, codes.codes,
                       (size_t)(p->rows * p->cols * quant_bits(spec.kind) / 8));
    there = there && holds(b, (const uint8_t *)codes.params,
                           (size_t)quant_params(spec, p->rows) * 2);
    if (!there) {
        fail_msg("the package has other codes of %s", p->t->name);
    }
}

static void package_holds_the_codes(void **state)
{
    (void)state;
    /* llama and granite: rows of heads are permuted */
    const struct mk *of[] = {&models[GEMMA4], &models[PHI3], &models[GRANITE],
                             &mk_llama};
    for (size_t i = 0; i < countof(of); i++) {
        if (unit_passed_over(i, 4)) {
            continue;
        }
        struct model m;
        struct calibration *c = NULL;
        struct convert_result r = {0};
        struct err e = {0};
        struct mk small = *of[i];
        small.gain = 1; /* for the range of fp16 */
        open_model(&m, &small, "lut4", "int8");
        struct calibrate_conf conf = conf_of(&m, at("codes"));
        conf.sequences = 0; /* as the conversion has it */
        unit_ok(calibrate_run(&m.d, &conf, &c, &e), &e);
        struct convert_options o =
            options(write_model(&small, "m.gguf"), at("b"));
        o.quant = "lut4";
        unit_ok(convert_run(&o, &r, &e), &e);
        assert_int_equal(r.n_shards, 1);
        assert_false(file_exists(at("b/calibration")));
        char path[2048];
        (void)snprintf(path, sizeof(path),
                       "%s/layers_00_%02u.mlpackage/Data/com.apple.CoreML/"
                       "weights/weight.bin",
                       at("b"), m.d.n_layers);
        struct buf layers = read_file(path);
        struct buf head = read_file(at("b/head_0.mlpackage/Data/"
                                       "com.apple.CoreML/weights/weight.bin"));
        for (uint32_t l = 0; l < m.d.n_layers; l++) {
            for (unsigned s = SLOT_LAYER; s < SLOT_COUNT; s++) {
                const struct part *p = arch_matrix(&m.d, l, (enum arch_slot)s);
                if (p != NULL) {
                    must_hold(&layers, c, &m.forms, p);
                }
            }
        }
        must_hold(&head, c, &m.forms, arch_head(&m.d));
        buf_fini(&layers);
        buf_fini(&head);
        calibration_close(c);
        clear(at("codes"));
        clear(at("b"));
        close_model(&m);
    }
}

/* --- is it of use? --- */

static void nearer_than_the_nearest(void **state)
{
    (void)state;
    struct mk m = mk_llama;
    m.context = 128;
    m.embed_gain = 0.12f;
    m.gain = 1.5f;
    const char *const forms[] = {"lut4", "lut6", "int8"};
    for (size_t i = 0; i < countof(forms); i++) {
        if (unit_passed_over(i, 3)) {
            continue;
        }
        double off = distance(&m, forms[i], "off", "auto");
        double on = distance(&m, forms[i], "on", "auto");
        printf("%s: mean KL %.6g nearest, %.6g calibrated\n", forms[i], off,
               on);
        assert_true(on < 0.8 * off);
    }
}

/* --- limits and errors --- */

static void memory_is_bounded(void **state)
{
    (void)state;
    struct model m;
    struct err e = {0};
    uint32_t n = 0;
    open_model(&m, &mk_llama, "lut4", NULL);
    m.d.d_model = 2048; /* the shape of a model of two thousand million */
    for (uint32_t l = 0; l < m.d.n_layers; l++) {
        struct layer *y = &m.d.layers[l];
        y->n_heads = 16;
        y->n_kv = 8;
        y->d_head = 128;
        y->d_ff = 8192;
        m.d.parts[l][SLOT_DOWN - SLOT_LAYER].cols = 8192;
    }
    unit_ok(calibrate_fit(&m.d, &m.forms, &n, &e), &e);
    assert_int_equal(n, CALIBRATE_SEQUENCES);
    assert_true(calibrate_bytes(&m.d, &m.forms, n) <= CALIBRATE_BYTES_MAX);
    m.d.parts[0][SLOT_DOWN - SLOT_LAYER].cols = 10240;
    unit_ok(calibrate_fit(&m.d, &m.forms, &n, &e), &e);
    assert_true(n < CALIBRATE_SEQUENCES); /* less text fits */
    m.d.parts[0][SLOT_DOWN - SLOT_LAYER].cols = 16384;
    assert_int_equal(calibrate_fit(&m.d, &m.forms, &n, &e), ERR_UNSUPPORTED);
    assert_non_null(strstr(e.msg, "--calibrate off"));
    close_model(&m);
}

static void bad_texts_are_refused(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        size_t n;
        int code;
        const char *word;
    } t[] = {
        {"\xff\xfe", 2,                      ERR_INVALID, "UTF-8"       },
        {"",         0,                      ERR_INVALID, "0 tokens"    },
        {"a b c",    5,                      ERR_INVALID, "at least"    },
        {"",         CALIBRATE_TEXT_MAX + 1, ERR_TOO_BIG, "a part of it"},
    };
    struct mk of = mk_llama;
    of.n_tokens = of.vocab;
    for (size_t i = 0; i < countof(t); i++) {
        struct convert_options o = options(write_model(&of, "m.gguf"), at("b"));
        struct convert_result r = {0};
        struct err e = {0};
        o.quant = "lut4";
        o.calibration = t[i].text;
        o.calibration_bytes = t[i].n;
        assert_int_equal(convert_run(&o, &r, &e), t[i].code);
        if (strstr(e.msg, t[i].word) == NULL) {
            fail_msg("'%s' is not in '%s'", t[i].word, e.msg);
        }
        assert_false(file_exists(at("b")));
    }
}

static void text_is_used(void **state)
{
    (void)state;
    struct mk of = mk_llama;
    struct convert_result r = {0};
    struct err e = {0};
    struct bundle *b = NULL;
    char text[6000];
    of.n_tokens = of.vocab;
    for (size_t i = 0; i < sizeof(text); i++) {
        text[i] = (char)('a' + i * i % 23);
    }
    struct convert_options o = options(write_model(&of, "m.gguf"), at("b"));
    o.quant = "int8"; /* a text alone asks for calibration */
    o.calibration = text;
    o.calibration_bytes = sizeof(text);
    unit_ok(convert_run(&o, &r, &e), &e);
    unit_ok(bundle_open(at("b"), &b, &e), &e);
    assert_int_equal(b->calibration.from, BUNDLE_CALIBRATION_TEXT);
    assert_int_equal(strlen(b->calibration.sha256), 64);
    assert_true(b->calibration.sequences >= CALIBRATE_SEQUENCES_MIN);
    assert_int_equal(b->calibration.tokens, CALIBRATE_TOKENS);
    bundle_close(b);
    clear(at("b"));
    o.calibrate = "off";
    assert_int_equal(convert_run(&o, &r, &e), ERR_INVALID);
    o.calibrate = "maybe";
    assert_int_equal(convert_run(&o, &r, &e), ERR_INVALID);
    assert_false(file_exists(at("b")));
}

static void bundles_tell(void **state)
{
    (void)state;
    static const struct {
        const char *quant, *calibrate;
        enum bundle_calibration_from from;
    } t[] = {
        {"lut4", NULL,  BUNDLE_CALIBRATION_OWN},
        {"lut4", "off", BUNDLE_CALIBRATION_OFF},
        {"int8", NULL,  BUNDLE_CALIBRATION_OFF},
        {"int8", "on",  BUNDLE_CALIBRATION_OWN},
    };
    for (size_t i = 0; i < countof(t); i++) {
        if (unit_passed_over(i, 2)) {
            continue;
        }
        struct convert_options o =
            options(write_model(&mk_llama, "m.gguf"), at("b"));
        struct convert_result r = {0};
        struct err e = {0};
        struct bundle *b = NULL;
        o.quant = t[i].quant;
        o.calibrate = t[i].calibrate;
        unit_ok(convert_run(&o, &r, &e), &e);
        unit_ok(bundle_open(at("b"), &b, &e), &e);
        assert_int_equal(b->calibration.from, t[i].from);
        bundle_close(b);
        clear(at("b"));
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_matrix),
        cmocka_unit_test(fp16_is_left_alone),
        cmocka_unit_test(threads_change_nothing),
        cmocka_unit_test(resumes_after_each_layer),
        cmocka_unit_test(files_of_another_run_are_not_used),
        cmocka_unit_test(cancelled_runs_go_on),
        cmocka_unit_test(package_holds_the_codes),
        cmocka_unit_test(nearer_than_the_nearest),
        cmocka_unit_test(memory_is_bounded),
        cmocka_unit_test(bad_texts_are_refused),
        cmocka_unit_test(text_is_used),
        cmocka_unit_test(bundles_tell),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
