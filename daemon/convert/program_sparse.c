/* program_sparse.c - experts of a sparse layer as functions of their own.
 *
 *   x [1, d, T, 1] ── gate, up (1x1 conv) ── act(gate) * up ── down ── y
 *
 * The host knows the gates (program_experts.c draws the router), so it runs a
 * function for what a row chose, multiplies and adds; a package has some experts
 * of a layer, which share its weight file. What else stands behind the experts,
 * norms, a dense branch, the join with the stream, is in the program of the next
 * layers (program_layer.c).
 *
 * Against the dense form the gate comes after `down`, not before: the product of
 * act(gate) and up is without it.
 */
#include "convert/program_impl.h"

static const char *const names[] = {
    [EXPERT_GATE] = "expert_gate",
    [EXPERT_UP] = "expert_up",
    [EXPERT_DOWN] = "expert_down",
};

void program_expert_name(uint32_t expert, uint32_t t,
                         char out[EXPERT_FUNCTION_MAX])
{
    if (t > 0) {
        (void)snprintf(out, EXPERT_FUNCTION_MAX, "expert_%u_t%u", expert, t);
    } else {
        (void)snprintf(out, EXPERT_FUNCTION_MAX, "expert_%u", expert);
    }
}

static struct mil_value *project(struct ctx *c, enum expert_matrix which,
                                 const struct weight *w, const char *name,
                                 struct mil_value *x)
{
    char text[TEXT_ROOM];
    (void)snprintf(text, sizeof(text), "%s_weight", names[which]);
    struct mil_value *weight = weights_value(c->p, c->f, text, w);
    return mil_conv1x1(c->p, c->f, name, x, weight, NULL);
}

void program_expert(const struct emit *m, struct mil_program *p,
                    const char *name, int64_t t, uint32_t l,
                    const struct weight w[EXPERT_MATRICES])
{
    struct ctx c = {.m = m,
                    .p = p,
                    .f = mil_add_function(p, name),
                    .t = t,
                    .l = &m->d->layers[l]};
    const int64_t dims[4] = {1, m->d->d_model, t, 1};
    struct mil_value *x = draw_input(&c, "x", 4, dims);
    struct mil_value *a =
        project(&c, EXPERT_GATE, &w[EXPERT_GATE], names[EXPERT_GATE], x);
    a = draw_activation(&c, "expert_act", a);
    struct mil_value *u =
        project(&c, EXPERT_UP, &w[EXPERT_UP], names[EXPERT_UP], x);
    a = draw_binary(&c, "mul", "expert_act_up", a, u);
    mil_add_output(p, c.f,
                   project(&c, EXPERT_DOWN, &w[EXPERT_DOWN], "y", a));
}

int expert_put(const struct emit *m, struct mil_writer *w, uint32_t l,
               uint32_t expert, struct weight r[EXPERT_MATRICES],
               struct err *e)
{
    for (unsigned k = 0; k < EXPERT_MATRICES; k++) {
        const struct part *p = arch_part(m->d, l, expert_slot(k));
        uint64_t rows = p->rows / m->d->layers[l].n_experts;
        RETERR(weights_matrix(&m->weights, w, p, expert * rows, rows, NULL,
                              &r[k], e));
    }
    return 0;
}

bool program_behind(const struct layer *l, enum arch_slot slot)
{
    static const uint64_t always =
        SLOT_BIT(SLOT_GATE) | SLOT_BIT(SLOT_UP) | SLOT_BIT(SLOT_DOWN) |
        SLOT_BIT(SLOT_GATE_BIAS) | SLOT_BIT(SLOT_UP_BIAS) |
        SLOT_BIT(SLOT_DOWN_BIAS) | SLOT_BIT(SLOT_POST_DENSE) |
        SLOT_BIT(SLOT_POST_EXPERTS) | SLOT_BIT(SLOT_POST_FFN) |
        SLOT_BIT(SLOT_POST_FFN_BIAS) | SLOT_BIT(SLOT_JOIN_FFN) |
        SLOT_BIT(SLOT_PLE_PROJ) | SLOT_BIT(SLOT_PLE_GATE) |
        SLOT_BIT(SLOT_PLE_OUT) | SLOT_BIT(SLOT_PLE_NORM);
    bool norm = slot == SLOT_FFN_NORM && l->expert_branch;
    return (SLOT_BIT(slot) & always) != 0 || slot == SLOT_PLE_NORM_IN || norm;
}
