/* Faults in converted packages, as a wrong emitter or a bad disk would leave
 * them: each is caught by the gate that is there for it, by name. What is seen
 * of a wrong description: test_convert_quality.c; what residency says of wrong
 * programs: test_convert_residency*.c. */
#include <math.h>

#include "convert/quality/quality.h"
#include "package_edit.h"

/* --- the faults --- */

/* The weights are gains times sqrt(d_model). */
static uint16_t plus_one(uint16_t h)
{
    return half_from_float(half_to_float(h) + sqrtf((float)mk_gemma3.d));
}

static uint16_t infinite(uint16_t h)
{
    (void)h;
    return 0x7c00;
}

static void gain(const char *package)
{
    edit_weights(package, "layers_1_post_ffn_norm_weight", plus_one);
}

static void not_finite(const char *package)
{
    edit_weights(package, "layers_1_ffn_norm_weight", infinite);
}

static void change(const char *package, const char *function,
                   void (*fn)(struct edit *x))
{
    struct edit x;
    edit_open(&x, package);
    edit_function(&x, function);
    fn(&x);
    edit_close(&x);
}

static void drop_q_norm(struct edit *x)
{
    edit_uses(x, "layers_1_q_norm", "layers_1_q_heads");
}

static void no_q_norm(const char *package)
{
    change(package, NULL, drop_q_norm);
}

static void turn_back(struct edit *x)
{
    edit_type(x, "layers_1_rope_new_low", "add");
    edit_type(x, "layers_1_rope_new_high", "sub");
}

static void rotation(const char *package)
{
    change(package, NULL, turn_back);
}

static void rotation_of_one_row(const char *package)
{
    change(package, "t1", turn_back);
}

static void use_global_mask(struct edit *x)
{
    edit_arg(x, "layers_1_scores_masked", "y", "attn_mask");
}

static void no_window(const char *package)
{
    change(package, NULL, use_global_mask);
}

/* This prediction is right; what it leaves for the next is not. */
static void forget_keys(struct edit *x)
{
    edit_uses(x, "layers_1_k_all", "layers_1_k_blend");
    edit_arg(x, "layers_1_k_all_updated", "update", "layers_1_k_old");
}

static void keys_not_kept(const char *package)
{
    change(package, NULL, forget_keys);
}

/* The norm's sum over the rows that run together, not over channels. */
static void sum_rows(struct edit *x)
{
    edit_constant(x, "layers_1_norm_sum", "axes", 1, 2);
    edit_result(x, "layers_1_norm_sum", "layers_1_attn_norm_weight");
    edit_result(x, "layers_1_norm_eps", "layers_1_attn_norm_weight");
    edit_result(x, "layers_1_norm_rsqrt", "layers_1_attn_norm_weight");
}

static void chunk_dependent(const char *package)
{
    change(package, NULL, sum_rows);
}

/* --- what catches them --- */

struct gate {
    const char *name, *verdict, *detail;
};

/* The gate of that name: a rung, or exactness. */
static struct gate gate_of(const struct quality *q, const char *name)
{
    const struct quality_result *r = &q->exactness;
    for (unsigned i = 0; i < RUNGS; i++) {
        if (strcmp(quality_rung_name((enum quality_rung)i), name) == 0) {
            r = &q->rungs[i];
        }
    }
    return (struct gate){name, r->verdict, r->detail};
}

static struct quality measured(const char *source)
{
    const struct quality_conf conf = {.threads = 2};
    struct gguf *g = NULL;
    struct decoder d = {0};
    struct quality q;
    struct err e = {0};
    unit_ok(gguf_open(source, &g, &e), &e);
    unit_ok(arch_read(g, &d, &e), &e);
    unit_ok(quality_measure(at("b"), &d, &conf, &q, &e), &e);
    arch_fini(&d);
    gguf_close(g);
    return q;
}

/* Convert, plant in the first package, and write the manifest of what is there
 * now: sizes and hashes are no part of the fault. */
static struct quality planted(const char *source, const char *shape,
                              void (*plant)(const char *package))
{
    struct err e = {0};
    struct bundle *b = NULL;
    struct convert_result result;
    struct convert_options o = options(source, at("b"));
    o.quant = "fp16";
    o.shape = shape;
    unit_ok(file_rmtree(at("b"), &e), &e);
    unit_ok(convert_run(&o, &result, &e), &e);
    assert_string_equal(result.gates[3].verdict, "passed");
    assert_string_equal(result.gates[4].verdict, "passed");
    unit_ok(bundle_open(at("b"), &b, &e), &e);
    plant(b->shards[0].path);
    unit_ok(bundle_write(at("b"), b, &e), &e);
    bundle_close(b);
    return measured(source);
}

static void each_by_its_gate(void **state)
{
    (void)state;
    static const struct {
        const char *fault;
        void (*plant)(const char *package);
        const char *shape, *gate, *says, *passes; /* gates, by name */
    } t[] = {
        {"a weight is infinite",                              not_finite,      "ranged",    "weights",
         "layers_1_ffn_norm_weight",                                                                                                NULL     },
        {"gain + 1 where it is the gain",                     gain,            "ranged",    "program",
         "layer 1 of layers_",                                                                                                      "weights"},
        {"no norm of queries",                                no_q_norm,       "ranged",    "program",
         "layer 1 of layers_",                                                                                                      "weights"},
        {"rotation the other way",                            rotation,        "ranged",    "program",
         "layer 1 of layers_",                                                                                                      "weights"},
        {"no window",                                         no_window,       "ranged",    "program", "layer 1 of layers_",
         "weights"                                                                                                                           },
        {"keys are not kept",                                 keys_not_kept,   "ranged",    "steps",   "8 positions",
         "program"                                                                                                                           },
        {"keys are not kept",                                 keys_not_kept,   "ranged",    "chunks",  "16 positions",
         "program"                                                                                                                           },
        {"rotation the other way in the function of one row",
         rotation_of_one_row,                                                  "functions", "steps",   "8 positions",               "chunks" },
        {"a sum over the rows of a chunk",                    chunk_dependent, "ranged",
         "exactness",                                                                                  "positions have other bits", "weights"},
    };
    struct mk m = mk_gemma3;
    m.context = 128;
    m.embed_gain = 0.12f;
    m.gain = 4;
    m.window = 6;
    const char *source = write_model(&m, "m.gguf");
    unsigned missed = 0;
    for (size_t i = 0; i < countof(t); i++) {
        struct quality q = planted(source, t[i].shape, t[i].plant);
        struct gate g = gate_of(&q, t[i].gate);
        print_message("# %s | %s | %s | %s\n", t[i].fault, g.name, g.verdict,
                      g.detail);
        if (strcmp(g.verdict, "failed") != 0 ||
            strstr(g.detail, t[i].says) == NULL ||
            (t[i].passes != NULL &&
             strcmp(gate_of(&q, t[i].passes).verdict, "passed") != 0)) {
            print_message("# not caught: %s\n", q.all.detail);
            missed++;
        }
        quality_fini(&q);
    }
    assert_int_equal(missed, 0);
}

/* --- the prompt --- */

static const char *demo(void)
{
    static char path[1024];
    (void)snprintf(path, sizeof(path), "%s/../conf/demo/aned-demo.gguf",
                   unit_tests());
    return path;
}

/* All of `from` in tokenizer.gguf is `to`, as long. */
static void change_tokenizer(const char *from, const char *to)
{
    struct buf text = {0};
    struct err e = {0};
    char path[2048];
    size_t n = 0;
    (void)snprintf(path, sizeof(path), "%s/tokenizer.gguf", at("b"));
    unit_ok(file_read(path, MIB(64), &text, &e), &e);
    for (char *p = text.p; (p = memmem(p, text.n - (size_t)(p - text.p), from,
                                       strlen(from))) != NULL;
         p++) {
        memcpy(p, to, strlen(to));
        n++;
    }
    assert_true(n > 0);
    unit_ok(file_write(path, text.p, text.n, &e), &e);
    buf_fini(&text);
}

static void no_message(const char *package)
{
    (void)package;
    change_tokenizer("message", "massage");
}

static void a_prompt(void **state)
{
    (void)state;
    struct quality q = planted(demo(), "ranged", no_message);
    struct gate g = gate_of(&q, "prompt");
    print_message("# a template that names no message | %s | %s | %s\n", g.name,
                  g.verdict, g.detail);
    assert_string_equal(g.verdict, "failed");
    assert_non_null(strstr(g.detail, "chat template"));
    assert_memory_equal(q.all.detail, "prompt: ", 8);
    assert_string_equal(gate_of(&q, "program").verdict, "passed");
    quality_fini(&q);
}

int main(void)
{
    const struct CMUnitTest t[] = {
        cmocka_unit_test(each_by_its_gate),
        cmocka_unit_test(a_prompt),
    };
    return cmocka_run_group_tests(t, setup, teardown);
}
