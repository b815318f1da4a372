/* Packages of ours, imported by another's manifest: ports, and what a cancelled
 * import leaves. The manifest's own mistakes: tests/e2e/test_import.py. */
#include <unistd.h>

#include "convert/import/impl.h"
#include "room.h"

/* A bundle's head and layers stand at their own names, as .mlpackage. */
static const char text[] =
    "{\"model_family\":\"t\",\"n_layers\":%u,\"d_model\":%u,"
    "\"n_heads\":%u,\"n_kv_heads\":%u,\"d_head\":%u,\"d_ff\":%u,"
    "\"rope_dim\":%u,\"vocab_size\":%u,\"max_seq_len\":%u,"
    "\"rms_norm_eps\":1e-5,\"rope_freq_base\":10000,"
    "\"embed_bin\":\"embed.bin\",\"layers\":[{\"start\":0,\"end\":%u,"
    "\"path\":\"%s\"}],\"lm_head_shards\":[{\"vocab_start\":0,"
    "\"vocab_end\":%u,\"mlmodelc\":\"%s\"}]}";

static struct bundle *bundle_of(const char *path)
{
    struct bundle *b = NULL;
    struct err e = {0};
    unit_ok(bundle_open(path, &b, &e), &e);
    return b;
}

/* What the packages of b say, as a manifest would. */
static void manifest_of(const struct bundle *b, struct import_manifest *m)
{
    char made[2048];
    struct err e = {0};
    int n = snprintf(made, sizeof(made), text, b->n_layers, b->d_model,
                     b->n_heads, b->n_kv_heads, b->d_head, b->d_ff, b->rope.dim,
                     b->vocab, b->context, b->n_layers, b->shards[0].path,
                     b->vocab, b->heads[0].path);
    assert_true(n > 0 && (size_t)n < sizeof(made));
    unit_ok(import_manifest_read(made, (size_t)n, NULL, 0, m, &e), &e);
    FILE *f = fopen(at("b/x_runtime_meta.json"), "w");
    assert_non_null(f);
    assert_int_equal(fwrite(made, 1, (size_t)n, f), n);
    assert_int_equal(fclose(f), 0);
}

static void make(const char *kv, const char *shape)
{
    struct convert_result r;
    struct err e = {0};
    struct mk small = mk_llama;
    small.n_tokens = small.vocab;
    struct convert_options o = options(write_model(&small, "m.gguf"), at("b"));
    unit_ok(file_rmtree(at("b"), &e), &e);
    o.kv = kv;
    o.shape = shape;
    o.residual_scale = 1;
    unit_ok(convert_run(&o, &r, &e), &e);
}

static struct mil_program *program(const struct bundle *b, const char *name)
{
    struct mil_program *p = NULL;
    struct err e = {0};
    char path[512];
    assert_true(file_join(path, sizeof(path), b->dir, name));
    unit_ok(mil_read(path, &p, &e), &e);
    return p;
}

static int layers(const struct mil_program *p, const struct import_manifest *m,
                  struct import_ports *t, struct err *e)
{
    return import_layer_ports(p, m, &m->parts[0], t, e);
}

static void ports_are_held_against_the_manifest(void **state)
{
    (void)state;
    make(NULL, NULL);
    struct bundle *b = bundle_of(at("b"));
    struct import_manifest m;
    manifest_of(b, &m);
    struct mil_program *p = program(b, b->shards[0].path);
    struct mil_program *h = program(b, b->heads[0].path);
    struct import_ports t;
    struct err e = {0};
    unit_ok(layers(p, &m, &t, &e), &e);
    assert_int_equal(t.t_min, 1);
    assert_int_equal(t.t_max, 4);
    unit_ok(import_head_ports(h, &m, &m.heads[0], &t, &e), &e);
    assert_int_equal(layers(h, &m, &t, &e), ERR_UNSUPPORTED);
    assert_int_equal(import_head_ports(p, &m, &m.heads[0], &t, &e),
                     ERR_UNSUPPORTED);

    uint32_t *const numbers[] = {&m.d_model, &m.context, &m.rope_dim,
                                 &m.n_kv_heads, &m.d_head};
    for (size_t i = 0; i < countof(numbers); i++) {
        *numbers[i] += 2;
        assert_int_equal(layers(p, &m, &t, &e), ERR_CONVERT);
        *numbers[i] -= 2;
    }
    for (int off = -1; off <= 1; off += 2) { /* a layer more, a layer less */
        m.parts[0].last += (uint32_t)off;
        assert_int_equal(layers(p, &m, &t, &e), ERR_CONVERT);
        m.parts[0].last -= (uint32_t)off;
    }
    m.heads[0].last -= 1;
    assert_int_equal(import_head_ports(h, &m, &m.heads[0], &t, &e),
                     ERR_CONVERT);
    struct import_weights w = {.n = {0}};
    import_weights_add(&w, p);
    assert_string_equal(import_weights_name(&w), "int8");
    mil_free(p);
    mil_free(h);
    import_manifest_fini(&m);
    bundle_close(b);
}

static void other_forms_are_refused(void **state)
{
    (void)state;
    static const struct {
        const char *kv, *shape;
    } forms[] = {
        {"host", NULL       },
        {NULL,   "functions"},
    };
    for (size_t i = 0; i < countof(forms); i++) {
        make(forms[i].kv, forms[i].shape);
        struct bundle *b = bundle_of(at("b"));
        struct import_manifest m;
        manifest_of(b, &m);
        struct mil_program *p = program(b, b->shards[0].path);
        struct import_ports t;
        struct err e = {0};
        assert_int_equal(layers(p, &m, &t, &e), ERR_UNSUPPORTED);
        mil_free(p);
        import_manifest_fini(&m);
        bundle_close(b);
    }
}

struct stop {
    unsigned calls, at; /* at: the call that says no; 0: none does */
};

static bool on_progress(void *ctx, const char *stage, double fraction)
{
    struct stop *s = ctx;
    assert_non_null(stage);
    assert_true(fraction >= 0 && fraction <= 1);
    return ++s->calls != s->at;
}

static void a_cancelled_import_leaves_nothing(void **state)
{
    (void)state;
    make(NULL, NULL);
    struct bundle *b = bundle_of(at("b"));
    struct import_manifest m;
    struct stop stop = {.at = 0};
    struct convert_result r;
    struct err e = {0};
    manifest_of(b, &m);
    struct import_options o = {.tokenizer = at("m.gguf")};
    o.common = options(at("b/x_runtime_meta.json"), at("i"));
    o.common.progress = on_progress;
    o.common.ctx = &stop;
    unit_ok(import_run(&o, &r, &e), &e);
    struct bundle *i = bundle_of(at("i"));
    assert_int_equal(i->total_bytes > 0, 1);
    assert_string_equal(i->name, "x");
    bundle_close(i);
    unit_ok(file_rmtree(at("i"), &e), &e);

    unsigned entries = count_entries(room);
    unsigned all = stop.calls;
    assert_true(all >= 5);
    for (unsigned at_call = 1; at_call <= all; at_call++) {
        stop = (struct stop){.at = at_call};
        int rc = import_run(&o, &r, &e);
        if (rc == 0) { /* few calls are told when there is little time */
            unit_ok(file_rmtree(at("i"), &e), &e);
            continue;
        }
        assert_int_equal(rc, ERR_CANCELLED);
        assert_int_equal(count_entries(room), entries);
    }
    import_manifest_fini(&m);
    bundle_close(b);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(ports_are_held_against_the_manifest),
        cmocka_unit_test(other_forms_are_refused),
        cmocka_unit_test(a_cancelled_import_leaves_nothing),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
