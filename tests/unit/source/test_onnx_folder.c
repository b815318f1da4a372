/* Folders with an ONNX decoder: which file is the graph, and what may stand
 * beside it. Nothing outside the folder is read. */
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "../unit.h"
#include "base/file.h"
#include "onnx_kit.h"
#include "source/source.h"

struct place {
    char top[32];  /* holds the folder, and what is outside */
    char dir[48];
    struct kit k;
};

static void path_of(const struct place *p, const char *name, char out[128])
{
    (void)snprintf(out, 128, "%s/%s", p->dir, name);
}

static void put(const struct place *p, const char *name, const void *bytes,
                size_t n)
{
    char path[128];
    struct err e = {0};
    path_of(p, name, path);
    unit_ok(file_write(path, bytes, n, &e), &e);
}

static void put_model(struct place *p, const char *name)
{
    struct span s = kit_pack(&p->k);
    put(p, name, s.p, s.n);
}

/* A decoder whose first norm lies in w.data, which is not there yet. */
static void begin(struct place *p, const char *location)
{
    (void)snprintf(p->top, sizeof(p->top), "/tmp/aned-test-XXXXXX");
    assert_non_null(mkdtemp(p->top));
    (void)snprintf(p->dir, sizeof(p->dir), "%s/model", p->top);
    assert_int_equal(mkdir(p->dir, 0700), 0);
    kit_decoder(&p->k);
    kit_entry(&p->k, kit_weight(&p->k, "n1"), "location", location);
}

static void end(struct place *p)
{
    struct err e = {0};
    unit_ok(file_rmtree(p->top, &e), &e);
    arena_fini(&p->k.a);
}

static void put_data(const struct place *p, const char *name)
{
    float x[KIT_WIDTH];
    for (size_t i = 0; i < KIT_WIDTH; i++) {
        x[i] = (float)i;
    }
    put(p, name, x, sizeof(x));
}

static int open_it(const struct place *p, const char *name, struct gguf **ret,
                   struct err *e)
{
    char path[128];
    path_of(p, name, path);
    return source_open(name[0] != '\0' ? path : p->dir, ret, e);
}

static void fails(struct place *p, const char *name, int code, const char *says)
{
    struct err e = {0};
    struct gguf *g = NULL;
    int rc = open_it(p, name, &g, &e);
    if (rc != code || strstr(e.msg, says) == NULL) {
        fail_msg("%s: %s (wanted %s: %s)", err_name(rc), e.msg, err_name(code),
                 says);
    }
}

static void reads_a_folder(void **state)
{
    (void)state;
    struct place p;
    struct err e = {0};
    struct gguf *g = NULL;
    float y[KIT_WIDTH];
    begin(&p, "w.data");
    put_model(&p, "model.onnx");
    put_data(&p, "w.data");
    const char *const paths[] = {"", "model.onnx"};
    for (size_t i = 0; i < countof(paths); i++) {
        unit_ok(open_it(&p, paths[i], &g, &e), &e);
        assert_string_equal(gguf_format(g), "onnx");
        unit_ok(gguf_rows(gguf_tensor(g, "blk.0.attn_norm.weight"), 0, 1, y,
                          &e),
                &e);
        assert_true(y[31] == 31);
        unit_ok(gguf_check_unchanged(g, &e), &e);
        gguf_close(g);
    }
    end(&p);
}

/* A file of the model that becomes shorter is noticed, not read. */
static void notices_changes(void **state)
{
    (void)state;
    struct place p;
    struct err e = {0};
    struct gguf *g = NULL;
    char path[128];
    begin(&p, "w.data");
    put_model(&p, "model.onnx");
    put_data(&p, "w.data");
    unit_ok(open_it(&p, "", &g, &e), &e);
    path_of(&p, "w.data", path);
    assert_int_equal(truncate(path, 0), 0);
    assert_int_equal(gguf_check_unchanged(g, &e), ERR_SOURCE_CHANGED);
    float y[KIT_WIDTH];
    assert_int_equal(gguf_rows(gguf_tensor(g, "blk.0.attn_norm.weight"), 0, 1,
                               y, &e),
                     ERR_SOURCE_CHANGED);
    gguf_close(g);
    end(&p);
}

static void chooses_the_graph(void **state)
{
    (void)state;
    static const char genai[] =
        "{\"model\": {\"decoder\": {\"filename\": \"%s\"}}}";
    char text[256];
    struct place p;
    struct err e = {0};
    struct gguf *g = NULL;
    begin(&p, "w.data");
    put_data(&p, "w.data");
    put_model(&p, "a.onnx");
    unit_ok(open_it(&p, "", &g, &e), &e);
    gguf_close(g);
    put(&p, "b.onnx", "x", 1);
    fails(&p, "", ERR_INVALID, "name one");
    unit_ok(open_it(&p, "a.onnx", &g, &e), &e);
    gguf_close(g);
    fails(&p, "b.onnx", ERR_ONNX, "b.onnx");
    const struct {
        const char *name;
        int code;
    } t[] = {{"a.onnx", 0},
             {"b.onnx", ERR_ONNX},
             {"c.onnx", ERR_NOT_FOUND},
             {"../model/a.onnx", ERR_NOT_FOUND}};
    for (size_t i = 0; i < countof(t); i++) {
        int n = snprintf(text, sizeof(text), genai, t[i].name);
        put(&p, "genai_config.json", text, (size_t)n);
        if (t[i].code == 0) {
            unit_ok(open_it(&p, "", &g, &e), &e);
            gguf_close(g);
        } else {
            fails(&p, "", t[i].code, t[i].code == ERR_ONNX ? "b.onnx" : "names");
        }
    }
    end(&p);
}

/* What the configuration says is compared. */
static void compares_configurations(void **state)
{
    (void)state;
    static const struct {
        const char *name, *text, *says;
        int code;
    } t[] = {
        {"config.json", "{\"hidden_size\": 33}", "hidden size: 33",
         ERR_ONNX_GRAPH},
        {"config.json", "{\"num_hidden_layers\": 2}", "layers: 2",
         ERR_ONNX_GRAPH},
        {"config.json", "{\"rms_norm_eps\": 1e-5}", "epsilon", ERR_ONNX_GRAPH},
        {"config.json", "{\"rope_theta\": 20000}", "is no rotation",
         ERR_ONNX_GRAPH},
        {"config.json", "{\"model_type\": \"qwen3\"}", "called qwen3",
         ERR_ONNX_GRAPH},
        {"config.json", "{\"vocab_size\": \"many\"}", "vocab_size",
         ERR_INVALID},
        {"config.json", "{", "config.json", ERR_MODEL_CONFIG},
        {"genai_config.json", "{}", "no model with a decoder", ERR_INVALID},
        {"genai_config.json",
         "{\"model\": {\"decoder\": {\"head_size\": 8}}}", "head size: 8",
         ERR_ONNX_GRAPH},
    };
    for (size_t i = 0; i < countof(t); i++) {
        struct place p;
        begin(&p, "w.data");
        put_model(&p, "model.onnx");
        put_data(&p, "w.data");
        put(&p, t[i].name, t[i].text, strlen(t[i].text));
        fails(&p, "", t[i].code, t[i].says);
        end(&p);
    }
}

/* --- what must not stand in the place of the data --- */

static void refuses_links(void **state)
{
    (void)state;
    struct place p;
    struct err e = {0};
    struct gguf *g = NULL;
    char path[128];
    char out[128];
    begin(&p, "w.data");
    put_model(&p, "model.onnx");
    put_data(&p, "../secret");
    path_of(&p, "w.data", path);
    (void)snprintf(out, sizeof(out), "%s/secret", p.top);
    fails(&p, "", ERR_NOT_FOUND, "'w.data' is not in the model's folder");
    assert_int_equal(symlink("../secret", path), 0);
    fails(&p, "", ERR_INVALID, "leaves the model's folder");
    assert_int_equal(unlink(path), 0);
    assert_int_equal(symlink("/dev/stdin", path), 0);
    assert_int_not_equal(open_it(&p, "", &g, &e), 0);
    assert_int_equal(unlink(path), 0);
    assert_int_equal(link(out, path), 0);
    fails(&p, "", ERR_ONNX_DATA, "hard links");
    assert_int_equal(unlink(path), 0);
    assert_int_equal(mkfifo(path, 0600), 0);
    fails(&p, "", ERR_INVALID, "no regular file");
    assert_int_equal(unlink(path), 0);
    assert_int_equal(mkdir(path, 0700), 0);
    fails(&p, "", ERR_INVALID, "no regular file");
    assert_int_equal(rmdir(path), 0);
    put(&p, "w.data", "", 0);
    fails(&p, "", ERR_ONNX_DATA, "lie outside 'w.data' of 0 bytes");
    end(&p);
}

/* A model is no data of another: itself, or one beside it. */
static void refuses_models(void **state)
{
    (void)state;
    struct place p;
    const char *const names[] = {"model.onnx", "other.onnx"};
    for (size_t i = 0; i < countof(names); i++) {
        begin(&p, names[i]);
        put_model(&p, "model.onnx");
        put_data(&p, "other.onnx");
        fails(&p, "", ERR_ONNX_DATA, "is a model itself");
        end(&p);
    }
    begin(&p, "sub/w.data");
    put_model(&p, "model.onnx");
    fails(&p, "", ERR_ONNX_DATA, "not in the model's folder");
    end(&p);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(reads_a_folder),
        cmocka_unit_test(notices_changes),
        cmocka_unit_test(chooses_the_graph),
        cmocka_unit_test(compares_configurations),
        cmocka_unit_test(refuses_links),
        cmocka_unit_test(refuses_models),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
