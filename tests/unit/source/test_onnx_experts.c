/* A mixture of experts behind QMoE: its weights by hand, and every part of the
 * subgraph around it changed, which is refused by its name. */
#include "../unit.h"
#include "onnx_kit.h"
#include "source/onnx/decoder.h"

static int recover(struct kit *k, struct onnx *m, struct onnx_decoder *d,
                   struct err *e)
{
    struct span s = kit_pack(k);
    const struct onnx_files none = {NULL, NULL};
    int rc = onnx_read(m, s.p, s.n, &none, e);
    return rc < 0 ? rc : onnx_recover(m, d, e);
}

/* Expert x, row r, column c of fc1 or fc2 as kit_codes made them. */
static float code(size_t x, size_t r, size_t c, size_t rows, size_t cols)
{
    size_t at = (x * rows + r) * cols + c;
    uint8_t b = (uint8_t)(at / 2 * 37 + 11);
    return ((float)(at % 2 == 0 ? b & 15 : b >> 4) - 8) *
           (0.25F + (float)(at / KIT_BLOCK % 7));
}

static void experts_by_hand(void **state)
{
    (void)state;
    struct kit k;
    struct onnx m;
    struct onnx_decoder d;
    struct err e = {0};
    kit_decoder(&k);
    kit_mixture(&k);
    unit_ok(recover(&k, &m, &d, &e), &e);
    const struct onnx_layer *l = &d.layers[0];
    assert_true(l->n_experts == KIT_EXPERTS && l->n_top == KIT_TOP);
    for (size_t i = ONNX_S_EXPERT_GATE; i <= ONNX_S_EXPERT_DOWN; i++) {
        bool down = i == ONNX_S_EXPERT_DOWN;
        size_t rows = down ? KIT_WIDTH : KIT_EXPERT_FF;
        size_t cols = down ? KIT_EXPERT_FF : KIT_WIDTH;
        const struct onnx_rows *w = &l->slots[i];
        float y[KIT_WIDTH];
        assert_true(w->rows == KIT_EXPERTS * rows && w->cols == cols);
        for (size_t r = 0; r < w->rows; r++) {
            struct onnx_stack s = {.n = 1, .of = {{.m = *w, .rows = w->rows}}};
            onnx_stack_rows(&s, r, 1, y);
            size_t in =
                down ? r % rows : r % rows * 2 + (i == ONNX_S_EXPERT_UP);
            for (size_t c = 0; c < cols; c++) {
                assert_true(y[c] == code(r / rows, in, c,
                                         down ? rows : 2 * rows, cols));
            }
        }
    }
    onnx_fini(&m);
    arena_fini(&k.a);
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
        kit_decoder(&k);
        kit_mixture(&k);
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
        cmocka_unit_test(odd_experts_are_named),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
