/* Hostile ONNX models: each is refused by its reason, and changes nothing. */
#include "../unit.h"
#include "onnx_kit.h"
#include "source/onnx/decoder.h"

/* Two files stand beside the model. */
static int find(void *ctx, const char *location, struct span *ret,
                struct err *e)
{
    static const char data[4096] = {0};
    unsigned *asked = ctx;
    (*asked)++;
    if (strcmp(location, "w.data") != 0 && strcmp(location, "other.data") != 0) {
        return err_set(e, ERR_NOT_FOUND, "%s: not there", location);
    }
    *ret = (struct span){data, sizeof(data)};
    return 0;
}

static int read_bytes(struct span s, struct err *e, unsigned *asked)
{
    struct onnx m;
    const struct onnx_files files = {find, asked};
    struct onnx_decoder d;
    *asked = 0;
    int rc = onnx_read(&m, s.p, s.n, &files, e);
    rc = rc < 0 ? rc : onnx_recover(&m, &d, e);
    onnx_fini(&m);
    return rc;
}

typedef void break_fn(struct kit *k);

struct hostile {
    const char *why;
    break_fn *make;
    int code;
    const char *says; /* a part of the message */
};

/* --- external data --- */

static Ox__Tensor *outside(struct kit *k, const char *location)
{
    Ox__Tensor *t = kit_weight(k, "n1");
    kit_entry(k, t, "location", location);
    return t;
}
#define PLACE(name, path)             \
    static void name(struct kit *k)   \
    {                                 \
        (void)outside(k, path);       \
    }
PLACE(up, "../w.data")
PLACE(up_inside, "a/../../w.data")
PLACE(absolute, "/etc/passwd")
PLACE(dot_up, "./../w.data")
PLACE(double_slash, "a//../w.data")
PLACE(backslash, "..\\w.data")
PLACE(empty_path, "")
PLACE(dot, ".")
PLACE(proc, "/proc/self/fd/3")
PLACE(newline, "w.data\n")
PLACE(latin, "w\xff.data")
PLACE(marker, "*/_ORT_MEM_ADDR_/*")
PLACE(absent, "gone.data")
PLACE(in_folder, "sub/w.data")

static void long_path(struct kit *k)
{
    char path[4097];
    memset(path, 'a', sizeof(path) - 1);
    path[sizeof(path) - 1] = '\0';
    (void)outside(k, path);
}

static void nul_in_path(struct kit *k)
{
    Ox__Tensor *t = outside(k, "x");
    t->external_data[0]->value = kit_bytes(k, "w.data\0x", 8);
}

#define OFFSET(name, key, value)                       \
    static void name(struct kit *k)                    \
    {                                                  \
        kit_entry(k, outside(k, "w.data"), key, value); \
    }
OFFSET(offset_minus, "offset", "-1")
OFFSET(offset_hex, "offset", "0x10")
OFFSET(offset_power, "offset", "1e3")
OFFSET(offset_space, "offset", " 5")
OFFSET(offset_plus, "offset", "+5")
OFFSET(offset_huge, "offset", "18446744073709551616")
OFFSET(offset_max, "offset", "9223372036854775807")
OFFSET(offset_past, "offset", "4095")
OFFSET(length_wrong, "length", "127")
OFFSET(length_nothing, "length", "")
OFFSET(key_unknown, "url", "x")

static void location_twice(struct kit *k)
{
    kit_entry(k, outside(k, "w.data"), "location", "other.data");
}
static void offset_twice(struct kit *k)
{
    Ox__Tensor *t = outside(k, "w.data");
    kit_entry(k, t, "offset", "0");
    kit_entry(k, t, "offset", "0");
}
static void no_location(struct kit *k)
{
    kit_entry(k, kit_weight(k, "n1"), "offset", "0");
}
static void both_places(struct kit *k)
{
    Ox__Tensor *t = outside(k, "w.data");
    t->raw_data = kit_bytes(k, "xxxx", 4);
}
static void outside_of_nothing(struct kit *k)
{
    Ox__Tensor *t = kit_weight(k, "n1");
    t->data_location = 1;
}
static void place_unknown(struct kit *k)
{
    kit_weight(k, "n1")->data_location = 2;
}
/* 128 bytes at 0, and 128 at 64 */
static void partly_shared(struct kit *k)
{
    kit_entry(k, outside(k, "w.data"), "offset", "0");
    Ox__Tensor *t = kit_weight(k, "n2");
    kit_entry(k, t, "location", "w.data");
    kit_entry(k, t, "offset", "64");
}
static void shared_in_constant(struct kit *k)
{
    Ox__Tensor *t = kit_find(k, "one")->attribute[0]->t;
    kit_entry(k, t, "location", "/etc/passwd");
}

/* --- tensors --- */

static void dims_set(struct kit *k, int64_t a, int64_t b)
{
    Ox__Tensor *t = kit_weight(k, "wq");
    t->dims[0] = a;
    t->dims[1] = b;
}
static void dims_2_63(struct kit *k)
{
    dims_set(k, INT64_MAX, 2);
}
static void dims_wrap(struct kit *k)
{
    dims_set(k, INT64_C(1) << 32, INT64_C(1) << 32);
}
static void dims_minus(struct kit *k)
{
    dims_set(k, -1, 32);
}
static void dims_lowest(struct kit *k)
{
    dims_set(k, INT64_MIN, 1);
}
static void dims_short(struct kit *k)
{
    dims_set(k, 32, 33);
}
static void dims_huge(struct kit *k)
{
    dims_set(k, INT64_C(1) << 40, 1 << 12);
}
static void dims_nine(struct kit *k)
{
    const int64_t d[9] = {1, 1, 1, 1, 1, 1, 1, 1, 32};
    KIT_PUSH(k, k->g, initializer,
             kit_tensor(k, "nine", ONNX_FLOAT, d, 9, "", 0));
}
#define TYPE(name, number)                           \
    static void name(struct kit *k)                  \
    {                                                \
        kit_weight(k, "wq")->data_type = number;     \
    }
TYPE(type_none, 0)
TYPE(type_string, 8)
TYPE(type_unknown, 99)
TYPE(type_minus, -1)
TYPE(type_double, 11)

static void forms_both(struct kit *k)
{
    static float one[1] = {1};
    Ox__Tensor *t = kit_weight(k, "n1");
    t->n_float_data = 1;
    t->float_data = one;
}
static void floats_few(struct kit *k)
{
    static float one[1] = {1};
    Ox__Tensor *t = kit_weight(k, "n1");
    t->raw_data = (ProtobufCBinaryData){0, NULL};
    t->n_float_data = 1;
    t->float_data = one;
}
static void bytes_of_int32(struct kit *k)
{
    static int32_t big[2] = {1, 300};
    const int64_t two = 2;
    Ox__Tensor *t = kit_tensor(k, "b", ONNX_UINT8, &two, 1, "", 0);
    t->n_int32_data = 2;
    t->int32_data = big;
    KIT_PUSH(k, k->g, initializer, t);
}
static void init_twice(struct kit *k)
{
    (void)kit_floats(k, k->g, "wq", KIT_WIDTH, KIT_WIDTH);
}
static void init_nameless(struct kit *k)
{
    kit_weight(k, "wq")->name = kit_text(k, "");
}
static void name_nul(struct kit *k)
{
    kit_weight(k, "wq")->name = kit_bytes(k, "wq\0z", 4);
}
static void name_long(struct kit *k)
{
    char name[65536];
    memset(name, 'n', sizeof(name));
    kit_weight(k, "wq")->name = kit_bytes(k, name, sizeof(name));
}
static void sparse(struct kit *k)
{
    ProtobufCBinaryData *b = arena_array(&k->a, 1, sizeof(*b));
    must(b != NULL);
    *b = kit_text(k, "x");
    k->g->n_sparse_initializer = 1;
    k->g->sparse_initializer = b;
}

/* --- graphs --- */

static void made_twice(struct kit *k)
{
    (void)kit_node(k, k->g, "MatMul", "h1,wq", "q");
}
static void made_of_input(struct kit *k)
{
    (void)kit_node(k, k->g, "MatMul", "h1,wq", "ids");
}
static void cycle_own(struct kit *k)
{
    kit_names(k, "q,wq", &kit_find(k, "q")->n_input, &kit_find(k, "q")->input);
}
static void cycle_far(struct kit *k)
{
    Ox__Node *n = kit_find(k, "h1");
    kit_names(k, "down,n1", &n->n_input, &n->input);
}
static void nothing_makes(struct kit *k)
{
    Ox__Node *n = kit_find(k, "q");
    kit_names(k, "ghost,wq", &n->n_input, &n->input);
}
static void output_ghost(struct kit *k)
{
    kit_port(k, k->g, "ghost", true);
}
static void no_graph(struct kit *k)
{
    k->m->graph = NULL;
}
static void no_opset(struct kit *k)
{
    k->m->n_opset_import = 0;
}
static void opset_far(struct kit *k)
{
    k->m->opset_import[0]->version = 1 << 30;
}
static void functions(struct kit *k)
{
    ProtobufCBinaryData *b = arena_array(&k->a, 1, sizeof(*b));
    must(b != NULL);
    *b = kit_text(k, "x");
    k->m->n_functions = 1;
    k->m->functions = b;
}
static void too_many_inputs(struct kit *k)
{
    Ox__Node *n = kit_find(k, "q");
    kit_names(k,
              "h1,h1,h1,h1,h1,h1,h1,h1,h1,h1,h1,h1,h1,h1,h1,h1,h1,h1,h1,h1,h1,"
              "h1,h1,h1,h1,h1,h1,h1,h1,h1,h1,h1,h1,h1,h1,h1,h1,h1,h1,h1,h1,h1,"
              "h1,h1,h1,h1,h1,h1,h1,h1,h1,h1,h1,h1,h1,h1,h1,h1,h1,h1,h1,h1,h1,"
              "h1,h1,h1,h1",
              &n->n_input, &n->input);
}
static void attr_twice(struct kit *k)
{
    kit_int(k, kit_find(k, "att"), "num_heads", 2);
}
static void attr_kind(struct kit *k)
{
    (void)kit_attr(k, kit_find(k, "att"), "x", 77);
}
static void attr_no_tensor(struct kit *k)
{
    kit_find(k, "one")->attribute[0]->t = NULL;
}
static void attr_wrong_kind(struct kit *k)
{
    kit_find(k, "att")->attribute[0]->type = ONNX_ATTR_FLOAT;
}

/* A graph in an attribute, `deep` of them in each other. */
static void nest(struct kit *k, unsigned deep)
{
    ProtobufCBinaryData inner = kit_text(k, "");
    for (unsigned i = 0; i < deep; i++) {
        Ox__Graph *g = KIT_NEW(k, Graph);
        Ox__Node *n = kit_node(k, g, "If", "ids", "");
        kit_attr(k, n, "then_branch", ONNX_ATTR_GRAPH)->g = inner;
        size_t size = ox__graph__get_packed_size(g);
        uint8_t *p = arena_alloc(&k->a, size + 1);
        must(p != NULL && ox__graph__pack(g, p) == size);
        inner = (ProtobufCBinaryData){size, p};
    }
    Ox__Node *n = kit_node(k, k->g, "If", "ids", "nested");
    kit_attr(k, n, "then_branch", ONNX_ATTR_GRAPH)->g = inner;
}
static void nest_5(struct kit *k)
{
    nest(k, 5);
}
static void nest_1000(struct kit *k)
{
    nest(k, 1000);
}
static void nest_malformed(struct kit *k)
{
    Ox__Node *n = kit_node(k, k->g, "If", "ids", "nested");
    kit_attr(k, n, "then_branch", ONNX_ATTR_GRAPH)->g =
        kit_bytes(k, "\x0a\xff\xff\xff\xff\x0f", 6);
}
static void escape_in_nest(struct kit *k)
{
    Ox__Graph *g = KIT_NEW(k, Graph);
    const int64_t one = 1;
    Ox__Tensor *t = kit_tensor(k, "inner", ONNX_FLOAT, &one, 1, "", 0);
    kit_entry(k, t, "location", "../../etc/passwd");
    KIT_PUSH(k, g, initializer, t);
    size_t size = ox__graph__get_packed_size(g);
    uint8_t *p = arena_alloc(&k->a, size + 1);
    must(p != NULL && ox__graph__pack(g, p) == size);
    Ox__Node *n = kit_node(k, k->g, "If", "ids", "nested");
    kit_attr(k, n, "then_branch", ONNX_ATTR_GRAPH)->g =
        (ProtobufCBinaryData){size, p};
}
/* a name of the graph around */
static void shadow(struct kit *k)
{
    Ox__Graph *g = KIT_NEW(k, Graph);
    (void)kit_node(k, g, "Identity", "ids", "q");
    size_t size = ox__graph__get_packed_size(g);
    uint8_t *p = arena_alloc(&k->a, size + 1);
    must(p != NULL && ox__graph__pack(g, p) == size);
    Ox__Node *n = kit_node(k, k->g, "If", "ids", "nested");
    kit_attr(k, n, "then_branch", ONNX_ATTR_GRAPH)->g =
        (ProtobufCBinaryData){size, p};
}

static const struct hostile all[] = {
    {"O01", up, ERR_ONNX_DATA, "not a path inside"},
    {"O02", up_inside, ERR_ONNX_DATA, "not a path inside"},
    {"O03", absolute, ERR_ONNX_DATA, "not a path inside"},
    {"O04", dot_up, ERR_ONNX_DATA, "not a path inside"},
    {"O05", double_slash, ERR_ONNX_DATA, "not a path inside"},
    {"O06", backslash, ERR_ONNX_DATA, "not a path inside"},
    {"O07", empty_path, ERR_ONNX_DATA, "not a path inside"},
    {"O08", dot, ERR_ONNX_DATA, "not a path inside"},
    {"O09", long_path, ERR_ONNX_DATA, "4096 bytes"},
    {"O11", proc, ERR_ONNX_DATA, "not a path inside"},
    {"O14 newline", newline, ERR_ONNX_DATA, "control character"},
    {"O14 UTF-8", latin, ERR_ONNX_DATA, "UTF-8"},
    {"O14 NUL", nul_in_path, ERR_ONNX_DATA, "control character"},
    {"O20", marker, ERR_ONNX_DATA, "not a path inside"},
    {"absent", absent, ERR_NOT_FOUND, "gone.data"},
    {"in a folder", in_folder, ERR_NOT_FOUND, "sub/w.data"},
    {"O15", offset_minus, ERR_ONNX_DATA, "no number of bytes"},
    {"O15", offset_hex, ERR_ONNX_DATA, "no number of bytes"},
    {"O15", offset_power, ERR_ONNX_DATA, "no number of bytes"},
    {"O15", offset_space, ERR_ONNX_DATA, "no number of bytes"},
    {"O15", offset_plus, ERR_ONNX_DATA, "no number of bytes"},
    {"O15", offset_huge, ERR_ONNX_DATA, "no number of bytes"},
    {"O15", offset_max, ERR_ONNX_DATA, "lie outside"},
    {"past the end", offset_past, ERR_ONNX_DATA, "lie outside"},
    {"O16", length_wrong, ERR_ONNX_DATA, "its shape takes 128"},
    {"O15", length_nothing, ERR_ONNX_DATA, "no number of bytes"},
    {"O17", key_unknown, ERR_ONNX_DATA, "unknown key 'url'"},
    {"O17", location_twice, ERR_ONNX_DATA, "'location' stands twice"},
    {"O17", offset_twice, ERR_ONNX_DATA, "'offset' stands twice"},
    {"no location", no_location, ERR_ONNX_DATA, "no location"},
    {"O21", both_places, ERR_ONNX_DATA, "both in the model and outside"},
    {"O21", outside_of_nothing, ERR_ONNX_DATA, "both in the model and outside"},
    {"place 2", place_unknown, ERR_ONNX, "data location is 2"},
    {"overlap", partly_shared, ERR_ONNX_DATA, "share some of their bytes"},
    {"constant", shared_in_constant, ERR_ONNX_DATA, "not a path inside"},
    {"2^63 x 2", dims_2_63, ERR_ONNX, "elements"},
    {"O25 wraps", dims_wrap, ERR_ONNX, "no shape that fits"},
    {"O25 -1", dims_minus, ERR_ONNX, "no shape that fits"},
    {"O25 -2^63", dims_lowest, ERR_ONNX, "no shape that fits"},
    {"O16", dims_short, ERR_ONNX, "its shape takes 4224"},
    {"2^52 elements", dims_huge, ERR_ONNX, "elements"},
    {"9 dimensions", dims_nine, ERR_ONNX, "9 dimensions"},
    {"O26", type_none, ERR_UNSUPPORTED, "data type is 0"},
    {"O26", type_string, ERR_UNSUPPORTED, "data type is 8"},
    {"O26", type_unknown, ERR_UNSUPPORTED, "data type is 99"},
    {"O26", type_minus, ERR_UNSUPPORTED, "data type is -1"},
    {"O26", type_double, ERR_UNSUPPORTED, "data type is 11"},
    {"O21", forms_both, ERR_ONNX, "several forms"},
    {"O21", floats_few, ERR_ONNX, "1 values"},
    {"int32_data", bytes_of_int32, ERR_ONNX, "too large for UINT8"},
    {"duplicate", init_twice, ERR_ONNX, "'wq' is made twice"},
    {"nameless", init_nameless, ERR_ONNX, "no name"},
    {"NUL", name_nul, ERR_ONNX, "control character"},
    {"64 KiB name", name_long, ERR_ONNX, "65536 bytes"},
    {"O22", sparse, ERR_UNSUPPORTED, "sparse"},
    {"O28", made_twice, ERR_ONNX, "'q' is made twice"},
    {"O28", made_of_input, ERR_ONNX, "'ids' is made twice"},
    {"O28", cycle_own, ERR_ONNX, "cycle"},
    {"O28", cycle_far, ERR_ONNX, "cycle"},
    {"O28", nothing_makes, ERR_ONNX, "nothing makes its input 'ghost'"},
    {"O28", output_ghost, ERR_ONNX, "nothing makes the output 'ghost'"},
    {"no graph", no_graph, ERR_ONNX, "no graph"},
    {"O34", no_opset, ERR_ONNX, "no version"},
    {"O34", opset_far, ERR_UNSUPPORTED, "version 1073741824"},
    {"O24", functions, ERR_UNSUPPORTED, "functions"},
    {"67 inputs", too_many_inputs, ERR_TOO_BIG, "more than 64"},
    {"O27", attr_twice, ERR_ONNX, "'num_heads' stands twice"},
    {"O27", attr_kind, ERR_UNSUPPORTED, "kind is 77"},
    {"O27", attr_no_tensor, ERR_ONNX, "no tensor"},
    {"O27", attr_wrong_kind, ERR_ONNX_GRAPH, "out of range"},
    {"O30", nest_5, ERR_TOO_BIG, "nested deeper than 4"},
    {"O30", nest_1000, ERR_TOO_BIG, "nested deeper than 4"},
    {"O30", nest_malformed, ERR_ONNX, "malformed"},
    {"O23", escape_in_nest, ERR_ONNX_DATA, "not a path inside"},
    {"shadow", shadow, ERR_ONNX, "'q' is made twice"},
};

static void hostile_models(void **state)
{
    (void)state;
    for (size_t i = 0; i < countof(all); i++) {
        struct kit k;
        struct err e = {0};
        unsigned asked = 0;
        kit_decoder(&k);
        all[i].make(&k);
        int rc = read_bytes(kit_pack(&k), &e, &asked);
        if (rc != all[i].code || strstr(e.msg, all[i].says) == NULL) {
            fail_msg("%zu %s: %s: %s", i, all[i].why, err_name(rc), e.msg);
        }
        arena_fini(&k.a);
    }
}

/* The kit's own model is sound, or the rest shows nothing. */
static void sound_model(void **state)
{
    (void)state;
    struct kit k;
    struct err e = {0};
    unsigned asked = 0;
    kit_decoder(&k);
    unit_ok(read_bytes(kit_pack(&k), &e, &asked), &e);
    arena_fini(&k.a);
}

/* Shared ranges are sound when they are the same. */
static void shared_ranges(void **state)
{
    (void)state;
    struct kit k;
    struct err e = {0};
    unsigned asked = 0;
    kit_decoder(&k);
    kit_entry(&k, outside(&k, "w.data"), "offset", "64");
    kit_entry(&k, kit_weight(&k, "n2"), "location", "w.data");
    kit_entry(&k, kit_weight(&k, "n2"), "offset", "64");
    unit_ok(read_bytes(kit_pack(&k), &e, &asked), &e);
    assert_int_equal(asked, 1); /* the file is asked for once */
    arena_fini(&k.a);
}

/* No beginning of a file is a model, and none is a crash. */
static void cut_off(void **state)
{
    (void)state;
    struct kit k;
    struct err e = {0};
    unsigned asked = 0;
    kit_decoder(&k);
    struct span s = kit_pack(&k);
    for (size_t n = 0; n < s.n; n += n < 600 ? 1 : 997) {
        assert_true(read_bytes((struct span){s.p, n}, &e, &asked) < 0);
    }
    arena_fini(&k.a);
}

/* Bytes that protobuf itself must refuse: O31, O32. */
static void malformed_bytes(void **state)
{
    (void)state;
    static const struct {
        const char *p;
        size_t n;
    } t[] = {
        {"\x08\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01", 13},
        {"\x3a\xff\xff\xff\xff\x07", 6},
        {"\x3a\xff\xff\xff\xff\x0f", 6},
        {"\x3a\xff\xff\xff\xff\xff\xff\xff\xff\x7f", 10},
        {"\x00\x01", 2},
        {"\x3b\x3c", 2},
        {"\x3e\x01", 2},
        {"\x3f\x01", 2},
        {"GGUF\x03\x00\x00\x00", 8},
        {"", 0},
    };
    for (size_t i = 0; i < countof(t); i++) {
        struct err e = {0};
        unsigned asked = 0;
        assert_true(
            read_bytes((struct span){t[i].p, t[i].n}, &e, &asked) < 0);
    }
}

/* O29: a million nodes of two bytes end at the limit of memory. */
static void many_nodes(void **state)
{
    (void)state;
    enum { NODES = 2000000 };
    struct err e = {0};
    unsigned asked = 0;
    size_t body = (size_t)NODES * 2;
    char *p = malloc(body + 16);
    assert_non_null(p);
    size_t at = 0;
    p[at++] = 0x3a;
    for (size_t v = body; ; v >>= 7) {
        p[at++] = (char)((v & 127) | (v > 127 ? 128 : 0));
        if (v <= 127) {
            break;
        }
    }
    for (size_t i = 0; i < NODES; i++) {
        p[at++] = 0x0a;
        p[at++] = 0;
    }
    int rc = read_bytes((struct span){p, at}, &e, &asked);
    assert_true(rc == ERR_ONNX || rc == ERR_TOO_BIG);
    free(p);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(sound_model),    cmocka_unit_test(hostile_models),
        cmocka_unit_test(shared_ranges),  cmocka_unit_test(cut_off),
        cmocka_unit_test(malformed_bytes), cmocka_unit_test(many_nodes),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
