/* Keys and values from program to program: a model whose last layers read an
 * earlier layer's, cut anywhere, is the model that it is uncut, bit for bit, in
 * every form; and what is wrong with it has a name. Its sequences:
 * tests/unit/engine/test_handoff.c. */
#include "convert/quality/quality.h"
#include "handoff_rig.h"
#include "package_edit.h"

/* --- cut anywhere --- */

/* One program a layer, the cut at the first layer that reads, before and behind
 * it, between two owners, ... of 32. */
static const uint32_t some_cuts[] = {0x3e, 0x08, 0x04, 0x10, 0x14, 0x2a, 0x28};

static void the_same_bits(void **state)
{
    (void)state;
    for (size_t f = 0; f < countof(forms); f++) {
        make(forms[f].shape, forms[f].kv, NULL);
        for (size_t c = 0; c < countof(some_cuts); c++) {
            if (unit_passed_over(f + c, 4)) {
                continue;
            }
            char form[64];
            (void)snprintf(form, sizeof(form), "%s %s, cuts %x", forms[f].shape,
                           forms[f].kv, some_cuts[c]);
            cut("whole", "cut", some_cuts[c]);
            for (size_t b = 0; b < n_backends(); b++) {
                same_bits(form, backends[b], 0);
                same_bits(form, backends[b], 5);
            }
        }
    }
}

/* Routers go on from that of an earlier program. */
static void routers_too(void **state)
{
    (void)state;
    static const uint32_t cuts[] = {0x3e, 0x08, 0x14};
    rig_family = ZAYA;
    for (size_t f = 0; f < countof(forms); f++) {
        make(forms[f].shape, forms[f].kv, NULL);
        for (size_t c = 0; c < countof(cuts); c++) {
            if (unit_passed_over(f + c, 3)) {
                continue;
            }
            cut("whole", "cut", cuts[c]);
            for (size_t b = 0; b < n_backends(); b++) {
                same_bits(forms[f].shape, backends[b], 0);
                same_bits(forms[f].shape, backends[b], 5);
            }
        }
    }
    rig_family = GEMMA4;
}

/* What the manifest says of layers 0-3, 3-5 and 5: layer 3 and 4 read layer 1,
 * layer 5 reads layer 2. */
static void the_manifest_says_it(void **state)
{
    (void)state;
    struct bundle *b = NULL;
    struct err e = {0};
    make(NULL, NULL, NULL);
    cut("whole", "cut", 0x28);
    unit_ok(bundle_open(at("cut"), &b, &e), &e);
    const struct bundle_shard *s = b->shards;
    assert_int_equal(b->n_shards, 3);
    assert_int_equal(s[0].n_gives, 4);
    assert_int_equal(s[0].n_takes, 0);
    assert_int_equal(s[1].n_takes, 2);
    assert_int_equal(s[1].takes[0].layer, 1);
    assert_int_equal(s[1].takes[0].role, PORT_KEYS);
    assert_string_equal(s[1].takes[0].name, "shared_1_k_new");
    assert_int_equal(s[2].n_takes, 2);
    assert_int_equal(s[2].takes[1].layer, 2);
    assert_int_equal(s[2].takes[1].role, PORT_VALUES);
    assert_string_equal(s[0].gives[3].name, "layers_2_v_new");
    assert_int_equal(s[1].n_gives + s[2].n_gives, 0);
    bundle_close(b);
}

/* To pieces and back: the packages are those of the conversion. */
static void there_and_back(void **state)
{
    (void)state;
    static const char file[] = "layers_00_06.mlpackage/Data/com.apple.CoreML";
    static const char *const tails[] = {"model.mlmodel", "weights/weight.bin"};
    make(NULL, NULL, NULL);
    cut("whole", "cut", 0x3e);
    cut("cut", "back", 0);
    for (size_t i = 0; i < countof(tails); i++) {
        struct buf text[2] = {{0}};
        struct err e = {0};
        for (size_t k = 0; k < 2; k++) {
            char name[256];
            char path[512];
            (void)snprintf(name, sizeof(name), "%s/%s", file, tails[i]);
            assert_true(file_join(path, sizeof(path),
                                  at(k == 0 ? "whole" : "back"), name));
            unit_ok(file_read(path, MIB(64), &text[k], &e), &e);
        }
        assert_int_equal(text[0].n, text[1].n);
        assert_memory_equal(text[0].p, text[1].p, text[0].n);
        buf_fini(&text[0]);
        buf_fini(&text[1]);
    }
}

/* --- what is wrong has a name --- */

static void rename_take(struct bundle *b)
{
    b->shards[1].takes[0].name = "another";
}

static void rename_give(struct bundle *b)
{
    b->shards[0].gives[0].name = "another";
}

static void exchange_takes(struct bundle *b)
{
    const char *name = b->shards[1].takes[0].name;
    b->shards[1].takes[0].name = b->shards[2].takes[0].name;
    b->shards[2].takes[0].name = name;
}

/* Heads of layer 2 are larger than those of layer 1. */
static void exchange_gives(struct bundle *b)
{
    const char *name = b->shards[0].gives[0].name;
    b->shards[0].gives[0].name = b->shards[0].gives[2].name;
    b->shards[0].gives[2].name = name;
}

/* The packages are not those of the manifest. */
static void ports_that_are_not_there(void **state)
{
    (void)state;
    static const struct {
        void (*change)(struct bundle *b);
        const char *says;
    } t[] = {
        {rename_take,    "layers_03_05.mlpackage: input shared_1_k_new is not" },
        {rename_give,    "layers_00_03.mlpackage: no output another"           },
        {exchange_takes, "layers_03_05.mlpackage: input shared_1_k_new is not" },
        {exchange_gives, "layers_00_03.mlpackage: layers_2_k_new: shape"       },
    };
    for (size_t f = 0; f < 2; f++) {
        make(NULL, forms[f].kv, NULL);
        for (size_t i = 0; i < countof(t); i++) {
            const struct engine_conf conf = {.threads = 1};
            struct bundle *b = NULL;
            struct engine *g = NULL;
            struct err e = {0};
            cut("whole", "cut", 0x28);
            unit_ok(bundle_open(at("cut"), &b, &e), &e);
            t[i].change(b);
            unit_ok(bundle_write(at("cut"), b, &e), &e);
            bundle_close(b);
            assert_int_equal(engine_open(at("cut"), &conf, &g, &e), ERR_BUNDLE);
            if (strstr(e.msg, t[i].says) == NULL) {
                fail_msg("'%s' does not say '%s'", e.msg, t[i].says);
            }
        }
    }
}

/* --- the wrong layer's keys --- */

/* Results change their names, and with them what the program gives; its own
 * layers read what they read before. */
static void exchange(struct edit *x, const char *a, const char *b)
{
    Ml__Operation *of_a = edit_op(x, a);
    Ml__Operation *of_b = edit_op(x, b);
    edit_uses(x, a, "planted");
    edit_uses(x, b, a);
    edit_uses(x, "planted", b);
    edit_text(&of_a->outputs[0]->name, b);
    edit_text(&of_b->outputs[0]->name, a);
}

/* Layer 0 has heads as layer 1, whose keys layers 3 and 4 read. */
static void plant(const char *package)
{
    struct edit x;
    edit_open(&x, package);
    edit_function(&x, NULL);
    exchange(&x, "layers_0_k_new", "layers_1_k_new");
    edit_close(&x);
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

static void the_wrong_keys(void **state)
{
    (void)state;
    make(NULL, NULL, NULL);
    cut("whole", "b", 0x28);
    struct quality q = measured(at("m.gguf"));
    assert_string_equal(q.rungs[RUNG_PROGRAM].verdict, "passed");
    quality_fini(&q);
    struct bundle *b = NULL;
    struct err e = {0};
    plant("layers_00_03.mlpackage");
    unit_ok(bundle_open(at("b"), &b, &e), &e);
    unit_ok(bundle_write(at("b"), b, &e), &e);
    bundle_close(b);
    q = measured(at("m.gguf"));
    print_message("# %s\n", q.rungs[RUNG_PROGRAM].detail);
    assert_string_equal(q.rungs[RUNG_WEIGHTS].verdict, "passed");
    assert_string_equal(q.rungs[RUNG_PROGRAM].verdict, "failed");
    assert_non_null(
        strstr(q.rungs[RUNG_PROGRAM].detail, "layer 3 of layers_03_05"));
    quality_fini(&q);
}

/* --- a norm without a weight --- */

/* Values are normed without a weight: in both forms of the norm, their rows
 * have the name by which host and later programs take them. */
static void values_have_a_name(void **state)
{
    (void)state;
    static const char *const norms[] = {"scale", "max"};
    for (size_t i = 0; i < countof(norms); i++) {
        for (size_t f = 0; f < 2; f++) {
            make(NULL, forms[f].kv, norms[i]);
            cut("whole", "cut", 0x3e);
            same_bits(norms[i], "cpu", 0);
        }
    }
}

int main(void)
{
    const struct CMUnitTest t[] = {
        cmocka_unit_test(the_same_bits),
        cmocka_unit_test(routers_too),
        cmocka_unit_test(the_manifest_says_it),
        cmocka_unit_test(there_and_back),
        cmocka_unit_test(ports_that_are_not_there),
        cmocka_unit_test(the_wrong_keys),
        cmocka_unit_test(values_have_a_name),
    };
    fill_tokens();
    return cmocka_run_group_tests(t, setup, teardown);
}
