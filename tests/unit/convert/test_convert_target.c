/* Forms chosen for an amount of bytes or of KL. */
#include "base/crew.h"
#include "convert/quality/quality.h"
#include "convert/target/impl.h"
#include "mkfamilies.h"
#include "model/bundle.h"
#include "room.h"

/* --- the choice alone --- */

#define MATRICES 40u

/* Costs in any order: some forms of no use, some matrices that are kept. */
static void make_costs(struct target *t, uint64_t seed)
{
    *t = (struct target){.n_matrices = MATRICES};
    t->matrices = calloc(MATRICES, sizeof(*t->matrices));
    assert_non_null(t->matrices);
    for (uint32_t i = 0; i < MATRICES; i++) {
        struct target_matrix *m = &t->matrices[i];
        m->kept = mk_random(&seed) % 8 == 0;
        m->n_costs = m->kept ? 1 : TARGET_FORMS;
        for (unsigned f = 0; f < m->n_costs; f++) {
            m->costs[f].spec.kind = f == 0   ? QUANT_LUT4
                                    : f == 1 ? QUANT_LUT6
                                    : f == 2 ? QUANT_INT8
                                             : QUANT_FP16;
            m->costs[f].bytes = 1000u + mk_random(&seed) % 5000u;
            m->costs[f].kl =
                f == 3 ? 0 : (double)(mk_random(&seed) % 10000u) * 1e-7;
        }
    }
}

static void bytes_hold_and_more_never_hurt(void **state)
{
    (void)state;
    for (uint64_t seed = 1; seed <= 50; seed++) {
        struct target t;
        make_costs(&t, seed);
        assert_false(target_by_bytes(&t, 0, false));
        uint64_t least = t.bytes;
        double last = t.sum;
        assert_true(target_by_bytes(&t, least, false));
        assert_int_equal(t.bytes, least);
        for (uint64_t most = least; most < least + 150000; most += 337) {
            assert_true(target_by_bytes(&t, most, false));
            assert_true(t.bytes <= most);
            assert_true(t.sum <= last + 1e-15);
            last = t.sum;
        }
        free(t.matrices);
    }
}

/* No choice with that KL has fewer bytes than the largest of these over all
 * prices of KL: the sum of what is least in bytes + price * KL, less the price
 * of the KL that is allowed. */
static double bound(const struct target *t, double want)
{
    double best = 0;
    for (double price = 1e3; price < 1e12; price *= 1.02) {
        double sum = -price * want;
        for (uint32_t i = 0; i < t->n_matrices; i++) {
            const struct target_matrix *m = &t->matrices[i];
            double least = (double)INFINITY;
            for (unsigned f = 0; f < m->n_costs; f++) {
                least = fmin(least, (double)m->costs[f].bytes +
                                        price * m->costs[f].kl);
            }
            sum += least;
        }
        best = sum > best ? sum : best;
    }
    return best;
}

static void kl_holds_with_little_to_spare(void **state)
{
    (void)state;
    for (uint64_t seed = 1; seed <= 50; seed++) {
        struct target t;
        make_costs(&t, seed);
        (void)target_by_kl(&t, 0, false);
        double best = t.sum;
        for (double want = best * 1.05; want < best * 40; want *= 1.3) {
            assert_true(target_by_kl(&t, want, false));
            assert_true(target_sum(&t, false) <= want);
            /* a step has 5000 bytes at most */
            assert_true((double)t.bytes <= bound(&t, want) + 5000);
        }
        assert_false(target_by_kl(&t, best / 2 - 1e-9, false));
        assert_true(t.sum >= best - 1e-12 && t.sum <= best + 1e-12);
        free(t.matrices);
    }
}

/* What feedback leaves is counted: the same sum then needs fewer bytes. */
static void feedback_is_counted(void **state)
{
    (void)state;
    struct target t;
    make_costs(&t, 3);
    (void)target_by_kl(&t, 0, false);
    double want = t.sum + 0.004;
    assert_true(target_by_kl(&t, want, false));
    uint64_t plain = t.bytes;
    assert_true(target_by_kl(&t, want, true));
    assert_true(t.bytes < plain);
    assert_true(target_sum(&t, true) <= want);
    assert_true(t.sum > want);
    free(t.matrices);
}

/* --- the measurement --- */

struct model {
    const char *path;
    struct gguf *g;
    struct decoder d;
    struct quant_choice choice;
    struct weights weights;
    struct target target;
    struct target_place *places;
    int32_t tokens[32];
};

static void open_model(struct model *m, const struct mk *from, unsigned threads)
{
    struct err e = {0};
    *m = (struct model){.path = write_model(from, "t.gguf")};
    unit_ok(gguf_open(m->path, &m->g, &e), &e);
    unit_ok(arch_read(m->g, &m->d, &e), &e);
    unit_ok(quant_choice_init(&m->choice, "lut4", NULL, &e), &e);
    m->weights = (struct weights){.threads = threads, .choice = &m->choice};
    for (int32_t i = 0; i < 32; i++) {
        m->tokens[i] = 1 + i * 37 % ((int32_t)m->d.vocab - 2);
    }
    unit_ok(target_list(&m->d, &m->choice, &m->target, &e), &e);
    unit_ok(target_places(&m->d, &m->target, &m->places, &e), &e);
    unit_ok(target_params(&m->target, m->places, &m->weights, &e), &e);
}

static void close_model(struct model *m)
{
    target_places_free(m->places, m->target.n_matrices);
    target_fini(&m->target);
    arch_fini(&m->d);
    gguf_close(m->g);
    (void)unlink(m->path);
}

/* Matrix i alone in its form f, by a run of the whole model. */
static double whole_run(const struct model *m, struct target_check *c,
                        uint32_t i, unsigned f)
{
    struct err e = {0};
    double kl = -1;
    struct target one = m->target;
    one.matrices = calloc(one.n_matrices, sizeof(*one.matrices));
    assert_non_null(one.matrices);
    memcpy(one.matrices, m->target.matrices,
           one.n_matrices * sizeof(*one.matrices));
    for (uint32_t j = 0; j < one.n_matrices; j++) {
        one.matrices[j].kept = j == i;
    }
    one.matrices[i].chosen = f;
    unit_ok(target_check_run(c, &one, true, &kl, &e), &e);
    free(one.matrices);
    return kl;
}

/* A run that begins at the matrix's layer gives the bits of a whole one: also
 * where layers share keys and tensors, or have tensors that are fused. */
static void short_runs_are_whole_runs(void **state)
{
    (void)state;
    const struct mk *some[] = {&mk_llama, &mk_gemma3, &models[PHI3],
                               &models[GEMMA4]};
    crew_ref();
    for (size_t k = 0; k < countof(some); k++) {
        struct err e = {0};
        struct model m;
        open_model(&m, some[k], 2);
        const struct target_conf conf = {
            .weights = &m.weights,
            .text = {.tokens = m.tokens,
                     .sequences = 1,
                     .columns = 32,
                     .given = 1},
            .kl = 1,
            .every_form = true
        };
        struct target_check c = {.d = &m.d, .conf = &conf, .places = m.places};
        unit_ok(target_measure(&m.d, &conf, &m.target, m.places, &e), &e);
        unit_ok(target_check_open(&c, &e), &e);
        for (uint32_t i = 0; i < m.target.n_matrices; i++) {
            const struct target_matrix *x = &m.target.matrices[i];
            for (unsigned f = 0; f < x->n_costs; f++) {
                double kl = whole_run(&m, &c, i, f);
                assert_memory_equal(&kl, &x->costs[f].kl, sizeof(kl));
                assert_true(x->costs[f].spec.kind == QUANT_FP16 || kl > 0);
            }
        }
        target_check_close(&c);
        close_model(&m);
    }
    crew_unref();
}

/* Rows that share a palette as emitted have no more values than it, whatever
 * their places in the source. */
static void rows_have_their_palettes_values(void **state)
{
    (void)state;
    struct err e = {0};
    struct model m;
    struct mk wide = mk_llama;
    wide.d_head = 32; /* two palettes a head */
    open_model(&m, &wide, 1);
    const struct part *q = arch_part(&m.d, 1, SLOT_Q);
    struct target_values v = {&m.target, m.places};
    struct head_rows perm;
    float row[64];
    assert_true(arch_permutes(&m.d, 1, &perm));
    for (uint32_t i = 0; i < m.target.n_matrices; i++) {
        m.places[i].now = m.places[i].t == q->t ? 1 : -1; /* lut6 */
    }
    for (uint32_t group = 0; group < q->rows / 16; group++) {
        float seen[65];
        size_t n = 0;
        for (uint32_t r = group * 16; r < group * 16 + 16; r++) {
            uint32_t in = r % perm.d_head;
            uint32_t from = r - in + head_row(&perm, in);
            unit_ok(target_rows(&v, q->t, from, 1, row, &e), &e);
            for (size_t c = 0; c < countof(row); c++) {
                size_t at = 0;
                while (at < n && (seen[at] < row[c] || seen[at] > row[c])) {
                    at++;
                }
                assert_true(at < 64);
                seen[at] = row[c];
                n += at == n ? 1 : 0;
            }
        }
        assert_true(n > 16);
    }
    close_model(&m);
}

static void threads_change_nothing(void **state)
{
    (void)state;
    struct err e = {0};
    struct model m[2];
    crew_ref();
    for (unsigned i = 0; i < 2; i++) {
        open_model(&m[i], &mk_gemma3, i == 0 ? 1 : 3);
        const struct target_conf conf = {
            .weights = &m[i].weights,
            .text = {.tokens = m[i].tokens,
                     .sequences = 1,
                     .columns = 32,
                     .given = 1},
            .kl = 0.004
        };
        unit_ok(target_choose(&m[i].d, &conf, &m[i].target, &e), &e);
    }
    assert_true(m[0].target.measured <= 0.004);
    assert_memory_equal(&m[0].target.measured, &m[1].target.measured,
                        sizeof(double));
    for (uint32_t i = 0; i < m[0].target.n_matrices; i++) {
        const struct target_matrix *a = &m[0].target.matrices[i];
        const struct target_matrix *b = &m[1].target.matrices[i];
        assert_int_equal(a->chosen, b->chosen);
        for (unsigned f = 0; f < a->n_costs; f++) {
            assert_memory_equal(&a->costs[f].kl, &b->costs[f].kl,
                                sizeof(double));
        }
    }
    close_model(&m[0]);
    close_model(&m[1]);
    crew_unref();
}

/* Pieces stay as they are, what follows is the model's: the same for any number
 * of threads, and another for another piece. */
static void a_text_is_continued(void **state)
{
    (void)state;
    struct err e = {0};
    struct target_text x[2];
    int32_t ids[64];
    crew_ref();
    for (int32_t i = 0; i < 64; i++) {
        ids[i] = i == 0 ? 1 : i % 32;
    }
    for (unsigned i = 0; i < 2; i++) {
        struct model m;
        open_model(&m, &mk_gemma3, 1);
        const struct target_text_conf conf = {.threads = i == 0 ? 1 : 3,
                                              .ids = ids,
                                              .n = 64,
                                              .bos = 1,
                                              .context = 40};
        unit_ok(target_text_make(&m.d, &conf, &x[i], &e), &e);
        for (uint32_t k = 0; k < x[i].sequences * x[i].columns; k++) {
            assert_in_range(x[i].tokens[k], 0, m.d.vocab - 1);
        }
        close_model(&m);
    }
    assert_int_equal(x[0].columns, 40);
    assert_int_equal(x[0].given, 8);
    size_t bytes = (size_t)x[0].sequences * 40 * sizeof(int32_t);
    assert_memory_equal(x[0].tokens, x[1].tokens, bytes);
    for (uint32_t s = 0; s < x[0].sequences; s++) {
        const int32_t *at = x[0].tokens + (size_t)s * 40;
        assert_int_equal(at[0], 1);
        assert_memory_equal(at + 1, ids + 1 + s * 56 / 7, 7 * sizeof(*ids));
    }
    assert_memory_not_equal(x[0].tokens + 8, x[0].tokens + 48,
                            32 * sizeof(int32_t));
    target_text_fini(&x[0]);
    target_text_fini(&x[1]);
    crew_unref();
}

/* --- conversions --- */

static uint64_t weight_bytes(const struct bundle *b)
{
    uint64_t n = 0;
    for (size_t i = 0; i < b->n_shards; i++) {
        n += b->shards[i].weight_bytes;
    }
    for (size_t i = 0; i < b->n_heads_shards; i++) {
        n += b->heads[i].weight_bytes;
    }
    return n;
}

static void convert_to(const struct convert_options *o, struct bundle **ret)
{
    struct convert_result r = {0};
    struct err e = {0};
    unit_ok(convert_run(o, &r, &e), &e);
    assert_string_not_equal(r.target, "");
    unit_ok(bundle_open(o->out, ret, &e), &e);
    assert_string_equal((*ret)->quant, "mixed");
    assert_true((*ret)->target.present);
    assert_true((*ret)->n_forms > 0);
}

static void drop(struct bundle *b)
{
    struct err e = {0};
    unit_ok(file_rmtree(b->dir, &e), &e);
    bundle_close(b);
}

static void bytes_are_kept_to_the_byte(void **state)
{
    (void)state;
    const struct mk *some[] = {&mk_llama, &mk_gemma3};
    for (size_t k = 0; k < countof(some); k++) {
        if (unit_passed_over(k, 2)) {
            continue;
        }
        const char *source = write_model(some[k], "m.gguf");
        struct convert_options o = options(source, at("bundle"));
        struct convert_result r = {0};
        struct bundle *b = NULL;
        struct err e = {0};
        struct convert_forecast f = {0};
        double kl = 1e9;
        o.target_bytes = TARGET_BYTES_MAX;
        unit_ok(convert_forecast(&o, &f, &e), &e);
        assert_true(f.smallest);
        plan_input_fini(&f.in);
        for (uint64_t i = 0; i < 4; i += UNIT_SANITIZED ? 3 : 1) {
            o.target_bytes = f.weight_bytes + i * f.weight_bytes / 5;
            convert_to(&o, &b);
            uint64_t n = weight_bytes(b);
            assert_true(n <= o.target_bytes);
            assert_true(i > 0 || n == o.target_bytes);
            assert_true(b->target.measured_kl < kl);
            kl = b->target.measured_kl;
            assert_int_equal(b->target.bytes, o.target_bytes);
            drop(b);
        }
        o.target_bytes = f.weight_bytes - 1;
        assert_int_equal(convert_run(&o, &r, &e), ERR_CONVERT);
        assert_non_null(strstr(e.msg, "smallest form"));
        assert_int_equal(count_entries(room), 1); /* the source */
        (void)unlink(source);
    }
}

static const char *form_of(const struct bundle *b, const char *tensor)
{
    for (size_t i = 0; i < b->n_forms; i++) {
        if (strcmp(b->forms[i].tensor, tensor) == 0) {
            return b->forms[i].quant;
        }
    }
    return "none";
}

/* The manifest says a KL of 9 and something. */
static void plant_kl(const char *dir)
{
    struct err e = {0};
    struct buf b = {0};
    char path[256];
    assert_true(file_join(path, sizeof(path), dir, "bundle.json"));
    unit_ok(file_read(path, 1 << 20, &b, &e), &e);
    char *at = strstr(b.p, "\"reached_kl\"");
    assert_non_null(at);
    at = strchr(at, '0');
    assert_non_null(at);
    *at = '9';
    unit_ok(file_write(path, b.p, b.n, &e), &e);
    buf_fini(&b);
}

/* What was chosen holds what was asked for, and the gate looks at that. */
static void kl_is_held_and_said(void **state)
{
    (void)state;
    const char *source = write_model(&mk_qwen2, "m.gguf");
    struct convert_options o = options(source, at("bundle"));
    struct bundle *b = NULL;
    struct gguf *g = NULL;
    struct decoder d;
    struct quality q = {0};
    struct err e = {0};
    const struct quality_conf conf = {.threads = 2};
    o.target_kl = 0.0004;
    o.calibrate = "off"; /* it is measured before */
    o.quant_for[0] = "blk.1.ffn_down*=int8";
    o.n_quant_for = 1;
    convert_to(&o, &b);
    assert_string_equal(form_of(b, "blk.1.ffn_down.weight"), "int8");
    assert_string_equal(form_of(b, "token_embd.weight"), "int8");
    assert_true(b->target.measured_kl <= 0.0004);
    assert_true(b->target.measured_kl > 0.0001);
    unit_ok(gguf_open(source, &g, &e), &e);
    unit_ok(arch_read(g, &d, &e), &e);
    crew_ref();
    unit_ok(quality_measure(b->dir, &d, &conf, &q, &e), &e);
    assert_string_equal(q.rungs[RUNG_PROGRAM].verdict, "passed");
    quality_fini(&q);
    plant_kl(b->dir);
    unit_ok(quality_measure(b->dir, &d, &conf, &q, &e), &e);
    assert_string_equal(q.rungs[RUNG_PROGRAM].verdict, "failed");
    assert_non_null(strstr(q.rungs[RUNG_PROGRAM].detail, "was asked for"));
    quality_fini(&q);
    drop(b);
    o.calibrate = "on"; /* the codes are run, and are better than plain ones */
    convert_to(&o, &b);
    assert_true(b->target.reached_kl < 0.99 * b->target.measured_kl);
    assert_true(b->target.reached_kl > 0.1 * b->target.measured_kl);
    crew_unref();
    arch_fini(&d);
    gguf_close(g);
    drop(b);
    (void)unlink(source);
}

/* What nobody may choose is named when it is in the way. */
static void what_cannot_be_is_named(void **state)
{
    (void)state;
    const char *source = write_model(&mk_qwen2, "m.gguf");
    struct convert_options o = options(source, at("bundle"));
    struct convert_result r = {0};
    struct err e = {0};
    o.target_kl = 1e-6;
    o.head_quant = "lut4";
    assert_int_equal(convert_run(&o, &r, &e), ERR_CONVERT);
    assert_non_null(strstr(e.msg, "token_embd.weight as lut4"));
    o.head_quant = NULL;
    o.quant = "int8";
    assert_int_equal(convert_run(&o, &r, &e), ERR_INVALID);
    assert_non_null(strstr(e.msg, "leave out quant 'int8'"));
    o.quant = NULL;
    o.target_bytes = 1000000;
    assert_int_equal(convert_run(&o, &r, &e), ERR_INVALID);
    o.target_bytes = 0;
    const double wrong[] = {-1, 1e-7, 1.5, (double)NAN, (double)INFINITY};
    for (size_t i = 0; i < countof(wrong); i++) {
        o.target_kl = wrong[i];
        assert_int_equal(convert_run(&o, &r, &e), ERR_INVALID);
    }
    assert_int_equal(count_entries(room), 1);
    (void)unlink(source);
}

int main(void)
{
    const struct CMUnitTest t[] = {
        cmocka_unit_test(bytes_hold_and_more_never_hurt),
        cmocka_unit_test(kl_holds_with_little_to_spare),
        cmocka_unit_test(feedback_is_counted),
        cmocka_unit_test(a_text_is_continued),
        cmocka_unit_test(short_runs_are_whole_runs),
        cmocka_unit_test(rows_have_their_palettes_values),
        cmocka_unit_test(threads_change_nothing),
        cmocka_unit_test(bytes_are_kept_to_the_byte),
        cmocka_unit_test(kl_is_held_and_said),
        cmocka_unit_test(what_cannot_be_is_named),
    };
    return cmocka_run_group_tests(t, setup, teardown);
}
