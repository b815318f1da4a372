/* program.c - one decoder layer over the builder.
 *
 *   x ── norm ── q,k,v (1x1 conv) ── heads [1,n,T,d_head] ── q/k norm ── rope
 *   k,v ── masked write ── state [1,n_kv,S,d_head] ── scores, softmax, values
 *     ── o (1x1 conv) ── (post norm) ── + x ── norm ── gate,up,act,down
 *     ── (post norm) ── + x ── hidden
 *
 * The masked write: upd = matmul(kv_write_mask, new) puts row t where column t
 * has its 1; keep = 1 - sum of the mask's columns, once per program; state =
 * state * keep + upd, written whole. No slice depends on T, no tensor has more
 * than four axes, and keys are not repeated for grouped heads: the queries of
 * a group become rows of one matmul.
 *
 * Weights are written to the package first, then the program: functions share
 * them. C does not define the order in which arguments of a call are evaluated,
 * so at most one argument of any call here makes an op: every compiler's aned
 * makes the same program.
 *
 * A short convolution has no state of its own in the program: what it reads of
 * earlier positions is an input and what it adds an output (program_conv.c).
 *
 * An encoder keeps nothing: its layers read what this program has of all rows
 * (program_band.c), so there is no state and no write mask.
 *
 * Layers that read the keys of a layer in an earlier program take its new rows
 * as inputs and write them to a state of this program, with the same masked
 * write: one state for all of its layers that read it. A router network that
 * goes on from that of the layer before takes it in the same way, and keeps
 * nothing.
 *
 * A sparse layer ends its program at the router; what comes behind its experts,
 * a dense branch too, begins the next one.
 */
#include "convert/program_impl.h"

/* The inputs of the layers [first, last) of one kind. */
static void kind_inputs(struct ctx *c, uint32_t kind, uint32_t last)
{
    const struct decoder *d = c->m->d;
    const char *tail = kind == LAYER_LOCAL ? "_local" : "";
    int64_t table[2] = {c->t, d->kinds[kind].rope_dim / 2};
    uint32_t window = d->kinds[kind].window;
    int64_t mask[4] = {1, 1, c->t, c->m->context};
    if (d->encoder) { /* program_band.c */
        mask[2] = window > 0 ? c->t : 1;
        mask[3] = window > 0 ? 3 * (int64_t)layer_block(window) : c->t;
    }
    char name[TEXT_ROOM];
    bool any = false;
    bool rotates = false;
    for (uint32_t l = c->first; l < last; l++) {
        bool here = d->layers[l].kind == kind &&
                    d->layers[l].mixer != MIXER_CONV;
        any = any || here;
        rotates = rotates || (here && d->layers[l].rotates);
    }
    if (rotates) {
        (void)snprintf(name, sizeof(name), "rope_cos%s", tail);
        c->kinds[kind].cos = draw_input(c, name, 2, table);
        (void)snprintf(name, sizeof(name), "rope_sin%s", tail);
        c->kinds[kind].sin = draw_input(c, name, 2, table);
    }
    if (any) {
        (void)snprintf(name, sizeof(name), "attn_mask%s", tail);
        c->kinds[kind].mask = draw_input(c, name, 4, mask);
    }
}

/* The write mask, and what it leaves of a state. A program without states has
 * none: an input that nothing reads would keep its rows from being run with
 * those of other sequences. */
static void write_inputs(struct ctx *c, uint32_t last)
{
    bool any = false;
    for (uint32_t l = c->first; l < last; l++) {
        any = any || (c->m->d->layers[l].mixer != MIXER_CONV &&
                      !c->m->d->layers[l].both_sides);
    }
    if (!any) {
        return;
    }
    int64_t dims[4] = {1, 1, c->m->context, c->t};
    c->write_mask = draw_input(c, "kv_write_mask", 4, dims);
    const int32_t axis = -1;
    struct mil_value *axes = mil_i32s(c->p, c->f, 1, &axis);
    struct mil_value *yes = mil_bool(c->p, c->f, true);
    struct mil_value *taken =
        mil_op(c->p, c->f, "reduce_sum", "kv_taken", "x", c->write_mask, "axes",
               axes, "keep_dims", yes, NULL);
    c->keep = mil_op(c->p, c->f, "sub", "kv_keep", "x", draw_f16(c, 1), "y",
                     taken, NULL);
}

static void ple_inputs(struct ctx *c)
{
    const struct decoder *d = c->m->d;
    int64_t embed[4] = {1, d->d_model, c->t, 1};
    int64_t rows[4] = {1, (int64_t)d->n_layers * d->d_ple, c->t, 1};
    c->x_embed = draw_input(c, "x_embed", 4, embed);
    c->ple = draw_input(c, "ple", 4, rows);
}

/* Whether the program has a layer's end, where its embedding joins. */
static bool ends_a_layer(const struct ctx *c, uint32_t last, bool joins)
{
    return joins || !c->m->d->layers[last - 1].sparse || last - c->first > 1;
}

/* What the experts of the layer before gave, into the stream. */
static struct mil_value *join_before(struct ctx *c, bool last,
                                     struct mil_value *x,
                                     const struct layer_weights *w)
{
    const struct decoder *d = c->m->d;
    int64_t dims[4] = {1, d->d_model, c->t, 1};
    struct mil_value *y = draw_input(c, "experts", 4, dims);
    c->joins = true;
    c->l = &d->layers[c->first - 1];
    c->w = w;
    x = draw_join(c, last, x, y);
    c->joins = false;
    return x;
}

void program_layers(const struct emit *m, struct mil_program *p,
                    const char *name, int64_t t, uint32_t first, uint32_t last,
                    const struct layer_weights *before,
                    const struct layer_weights *w)
{
    const struct decoder *d = m->d;
    struct ctx c = {
        .m = m, .p = p, .f = mil_add_function(p, name), .t = t, .first = first};
    int64_t x_dims[4] = {1, d->d_model, t, 1};
    struct mil_value *x = draw_input(&c, "x", 4, x_dims);
    for (uint32_t kind = 0; kind < LAYER_KINDS; kind++) {
        kind_inputs(&c, kind, last);
    }
    write_inputs(&c, last);
    if (d->d_ple > 0 && ends_a_layer(&c, last, before != NULL)) {
        ple_inputs(&c);
    }
    if (before != NULL) {
        x = join_before(&c, first == last, x, before);
    }
    c.all = calloc(last, sizeof(*c.all));
    c.news = calloc(last, sizeof(*c.news));
    c.tails = calloc(last, sizeof(*c.tails));
    must(c.all != NULL && c.news != NULL && c.tails != NULL);
    for (uint32_t l = first; l < last; l++) {
        c.layer = l - first;
        c.l = &d->layers[l];
        c.w = &w[c.layer];
        if (l == 0 && d->global[SLOT_EMBD_NORM].t != NULL) {
            x = draw_embedding(&c, x);
        }
        x = draw_layer(&c, l + 1 == last, x);
    }
    mil_add_output(p, c.f, x);
    if (c.expert_in != NULL) {
        mil_add_output(p, c.f, c.expert_in);
        mil_add_output(p, c.f, c.expert_gates);
    }
    for (uint32_t l = first; l < last; l++) {
        bool out = m->host || program_gives(d, PORT_KEYS, l, last);
        for (size_t k = 0; out && k < 2 && c.news[l][k] != NULL; k++) {
            mil_add_output(p, c.f, c.news[l][k]);
        }
        for (size_t k = 0; k < 2 && c.tails[l][k] != NULL; k++) {
            mil_add_output(p, c.f, c.tails[l][k]);
        }
    }
    if (program_gives(d, PORT_ROUTER, last - 1, last)) {
        mil_add_output(p, c.f, draw_give_router(&c));
    }
    free(c.all);
    free(c.news);
    free(c.tails);
}
