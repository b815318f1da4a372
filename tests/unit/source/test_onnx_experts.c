/* A mixture of experts behind QMoE: its weights by hand, and every part of the
 * subgraph around it changed, which is refused by its name. */
#include "../unit.h"
#include "onnx_mixture.h"
#include "source/onnx/decoder.h"

static int recover(struct kit *k, struct onnx *m, struct onnx_decoder *d,
                   struct err *e)
{
    struct span s = kit_pack(k);
    const struct onnx_files none = {NULL, NULL};
    int rc = onnx_read(m, s.p, s.n, &none, e);
    return rc < 0 ? rc : onnx_recover(m, d, e);
}

/* Forms of codes: bits, blocks, shapes and types of scales, zero points. */
static const struct form {
    int64_t bits, block;
    bool flat, halves, zeros;
} forms[] = {
    {4, 16, false, false, false}, {8, 16, false, false, false},
    {4, 0,  false, false, false}, {8, 0,  true,  false, false},
    {8, 32, false, true,  false}, {4, 0,  true,  true,  false},
    {4, 16, false, false, true }, {8, 16, false, true,  true },
    {8, 0,  true,  false, true },
};

static int64_t blocks_of(const struct form *f, int64_t cols)
{
    return f->block > 0 ? (cols - 1) / f->block + 1 : 1;
}

/* Zero points that count up, of rows for all experts. */
static void put_zeros(struct kit *k, const struct form *f, const char *name,
                      int64_t rows, int64_t cols)
{
    uint8_t p[2048];
    const int64_t blocks = blocks_of(f, cols);
    const int64_t dims[3] = {KIT_EXPERTS, rows, (blocks * f->bits + 7) / 8};
    size_t n = (size_t)(dims[0] * dims[1] * dims[2]);
    assert_true(n <= sizeof(p));
    for (size_t i = 0; i < n; i++) {
        p[i] = (uint8_t)(i * 91 + 5);
    }
    KIT_PUSH(k, k->g, initializer,
             kit_tensor(k, name, ONNX_UINT8, dims, f->flat ? 2 : 3, p, n));
}

/* Row r of all experts' rows, column c, of fc1 or fc2 as the kit made them. */
static float code(const struct form *f, size_t r, size_t c, size_t cols)
{
    size_t at = r * cols + c;
    size_t blocks = (size_t)blocks_of(f, (int64_t)cols);
    size_t block = f->block > 0 ? c / (size_t)f->block : 0;
    size_t stride = (blocks * (size_t)f->bits + 7) / 8;
    bool small = f->bits == 4;
    uint8_t b = kit_code(small ? at / 2 : at);
    uint8_t z = (uint8_t)((r * stride + (small ? block / 2 : block)) * 91 + 5);
    int q = !small ? b : at % 2 == 0 ? b & 15 : b >> 4;
    int zero = !f->zeros ? 1 << (f->bits - 1)
               : !small  ? z
               : block % 2 == 0 ? z & 15
                                : z >> 4;
    return (float)(q - zero) * kit_code_scale(r * blocks + block);
}

static void check_rows(const struct form *f, const struct onnx_layer *l,
                       size_t slot)
{
    bool down = slot == ONNX_S_EXPERT_DOWN;
    size_t rows = down ? KIT_WIDTH : KIT_EXPERT_FF; /* of an expert */
    size_t cols = down ? KIT_EXPERT_FF : KIT_WIDTH;
    const struct onnx_rows *w = &l->slots[slot];
    float y[KIT_WIDTH];
    assert_true(w->rows == KIT_EXPERTS * rows && w->cols == cols);
    for (size_t r = 0; r < w->rows; r++) {
        const struct onnx_stack s = {.n = 1, .of = {{.m = *w, .rows = w->rows}}};
        size_t in = down ? r : r * 2 + (slot == ONNX_S_EXPERT_UP);
        onnx_stack_rows(&s, r, 1, y);
        for (size_t c = 0; c < cols; c++) {
            assert_true(y[c] == code(f, in, c, cols));
        }
    }
}

static void experts_by_hand(void **state)
{
    (void)state;
    for (size_t i = 0; i < countof(forms); i++) {
        const struct form *f = &forms[i];
        struct kit_mix mix = kit_mix(f->bits, f->block);
        struct kit k;
        struct onnx m;
        struct onnx_decoder d;
        struct err e = {0};
        mix.flat = f->flat;
        mix.scale_type = f->halves ? ONNX_FLOAT16 : ONNX_FLOAT;
        kit_decoder(&k);
        Ox__Node *n = kit_mixture(&k, &mix);
        if (f->zeros) {
            put_zeros(&k, f, "z1", 2 * KIT_EXPERT_FF, KIT_WIDTH);
            put_zeros(&k, f, "z2", KIT_WIDTH, KIT_EXPERT_FF);
            kit_names(&k, "h2,shares,fc1,fc1.s,,fc2,fc2.s,,,,,z1,z2",
                      &n->n_input, &n->input);
        }
        unit_ok(recover(&k, &m, &d, &e), &e);
        const struct onnx_layer *l = &d.layers[0];
        assert_true(l->n_experts == KIT_EXPERTS && l->n_top == KIT_TOP);
        for (size_t s = ONNX_S_EXPERT_GATE; s <= ONNX_S_EXPERT_DOWN; s++) {
            check_rows(f, l, s);
        }
        onnx_fini(&m);
        arena_fini(&k.a);
    }
}

/* What the operator has and aned has not, by its name. */
static void forms_are_refused_by_name(void **state)
{
    (void)state;
    static const struct {
        int64_t bits, block;
        const char *in, *says;
        int code;
    } t[] = {
        {4, 0, "h2,shares,fc1,fc1.s,,fc2,fc2.s,,,,,fc1,fc2",
         "zero points of 4 bits for whole rows", ERR_UNSUPPORTED},
        {8, 16, "h2,shares,fc1,fc1.s,,fc2,fc2.s,,,,,fc1,fc2",
         "zero points (input 11)", ERR_ONNX_GRAPH},
        {8, 16, "h2,shares,fc1,fc1.s,,fc2,fc2.s,,,,,h2",
         "zero points (input 11)", ERR_ONNX_GRAPH},
        {8, 16, "h2,shares,fc1,fc1.s,,fc2,fc2.s,,fc1,fc1.s",
         "input 8: a third matrix", ERR_ONNX_GRAPH},
        {8, 16, "h2,shares,fc1,fc1.s,,fc2,fc2.s,,,,,,,,shares", "input 14",
         ERR_ONNX_GRAPH},
        {2, 16, NULL, "experts of 2 bits", ERR_UNSUPPORTED},
        {8, 8, NULL, "in blocks of 8", ERR_UNSUPPORTED},
    };
    for (size_t i = 0; i < countof(t); i++) {
        struct kit_mix mix = kit_mix(t[i].bits, t[i].block);
        struct kit k;
        struct onnx m;
        struct onnx_decoder d;
        struct err e = {0};
        kit_decoder(&k);
        Ox__Node *n = kit_mixture(&k, &mix);
        if (t[i].in != NULL) {
            kit_names(&k, t[i].in, &n->n_input, &n->input);
        }
        int rc = recover(&k, &m, &d, &e);
        if (rc != t[i].code || strstr(e.msg, t[i].says) == NULL) {
            fail_msg("case %zu (%s): %s, %s", i, t[i].says, err_name(rc), e.msg);
        }
        onnx_fini(&m);
        arena_fini(&k.a);
    }
}

/* Inputs of the node that makes `of` are changed, or an attribute is another
 * number. */
static const struct {
    const char *of, *in;
    const char *attr;
    int64_t v;
    const char *says;
} odd[] = {
    {"scale", "all,x.ones", NULL, 0, "Div is needed"},
    {"part", "all,all", NULL, 0, "Add is needed"},
    {"all.eps", "all,one.f", NULL, 0, "and 1e-6"},
    {"all", "log,last", NULL, 0, "and 1e-6"},
    {"biased", "scores,n1", NULL, 0, "bias for each expert"},
    {"more", "exp,eps", NULL, 0, "1 + exp"},
    {"r0", "h1,wr", NULL, 0, "something else"},
    {"clip", "chosen,one.f,", NULL, 0, "not chosen count"},
    {"clip", "chosen,tiny,one.f", NULL, 0, "input 2"},
    {"chosen", "biased,picked", NULL, 0, "gather the chosen"},
    {"x.ones", "x.rows,last", NULL, 0, "one number for each"},
    {"best", "biased,zero", NULL, 0, "pick the experts"},
    {"moe", "h2,shares,fc1,fc1.s,wr,fc2,fc2.s", NULL, 0, "biases of experts"},
    {"moe", "h2,shares,fc1,fc1.s,,fc1,fc1.s", NULL, 0, "do not fit"},
    {"moe", "h2,shares,fc1,fc2.s,,fc2,fc2.s", NULL, 0, "do not fit"},
    {"moe", "h2,shares,fc1,fc1.s,,fc2,fc2.s,,,,,wr", NULL, 0, "input 11"},
    {"moe", NULL, "k", 3, "pick the experts"},
    {"moe", NULL, "expert_weight_bits", 2, "of 2 bits"},
    {"moe", NULL, "block_size", 24, "blocks of 24"},
    {"moe", NULL, "normalize_routing_weights", 0, "kind of mixture"},
    {"moe", NULL, "swiglu_fusion", 2, "kind of mixture"},
    {"best", NULL, "largest", 0, "pick the experts"},
    {"best", NULL, "axis", 0, "pick the experts"},
};

static void set_int(struct kit *k, Ox__Node *n, const char *name, int64_t v)
{
    for (size_t i = 0; i < n->n_attribute; i++) {
        const ProtobufCBinaryData *s = &n->attribute[i]->name;
        if (s->len == strlen(name) && memcmp(s->data, name, s->len) == 0) {
            n->attribute[i]->i = v;
            return;
        }
    }
    kit_int(k, n, name, v);
}

static void odd_experts_are_named(void **state)
{
    (void)state;
    for (size_t i = 0; i < countof(odd); i++) {
        struct kit k;
        struct onnx m;
        struct onnx_decoder d;
        struct err e = {0};
        const struct kit_mix mix = kit_mix(4, KIT_BLOCK);
        kit_decoder(&k);
        (void)kit_mixture(&k, &mix);
        Ox__Node *n = kit_find(&k, odd[i].of);
        if (odd[i].in != NULL) {
            kit_names(&k, odd[i].in, &n->n_input, &n->input);
        } else {
            set_int(&k, n, odd[i].attr, odd[i].v);
        }
        int rc = recover(&k, &m, &d, &e);
        if (rc == 0 || strstr(e.msg, odd[i].says) == NULL) {
            fail_msg("case %zu (%s): %d, %s", i, odd[i].says, rc, e.msg);
        }
        onnx_fini(&m);
        arena_fini(&k.a);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(experts_by_hand),
        cmocka_unit_test(forms_are_refused_by_name),
        cmocka_unit_test(odd_experts_are_named),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
