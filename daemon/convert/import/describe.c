/* describe.c - what bundle.json says of an imported model. */
#include <math.h>

#include "convert/import/impl.h"

/* What each layer is, as far as the manifest tells. Norms and feed-forward are
 * in the packages, and nothing computes a layer from this. */
static const struct layer *layers_of(const struct import_manifest *m,
                                     struct arena *a)
{
    struct layer *l = arena_array(a, m->n_layers, sizeof(*l));
    must(l != NULL);
    for (uint32_t i = 0; i < m->n_layers; i++) {
        l[i] = (struct layer){.rotates = true,
                              .n_heads = m->n_heads,
                              .n_kv = m->n_kv_heads,
                              .d_head = m->d_head,
                              .kv_from = i,
                              .pre_norm = true,
                              .score_scale = 1 / sqrtf((float)m->d_head),
                              .gated = true,
                              .d_ff = m->d_ff,
                              .residual_scale = 1,
                              .out_scale = 1};
    }
    return l;
}

void import_describe(const struct import_manifest *m, struct bundle *b)
{
    b->architecture = m->family;
    b->n_layers = m->n_layers;
    b->d_model = m->d_model;
    b->n_heads = m->n_heads;
    b->n_kv_heads = m->n_kv_heads;
    b->d_head = m->d_head;
    b->d_ff = m->d_ff;
    b->layers = layers_of(m, &b->arena);
    b->logit_scale = 1;
    b->vocab = m->vocab;
    b->context = m->context;
    b->context_train = m->context;
    b->norm_eps = m->norm_eps;
    b->shape = "ranged";
    b->kv = "state";
    b->norm = "scale";
    b->embed_scale = 1; /* their runtime takes rows as they are */
    b->residual_scale = 1;
    b->rope = (struct bundle_rope){.present = true,
                                   .dim = m->rope_dim,
                                   .base = m->rope_base,
                                   .scale = 1,
                                   .magnitude = 1};
}
