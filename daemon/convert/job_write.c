/* job_write.c - the files of a bundle, and what bundle.json says of it. */
#include <string.h>

#include "base/num.h"
#include "convert/job.h"
#include "convert/program.h"

#define PLE_FILE      "embed_layers.bin"
#define POSITION_FILE "positions.bin"

static const char *keep_str(struct bundle *b, const char *s)
{
    char *r = arena_str(&b->arena, s);
    must(r != NULL);
    return r;
}

static void *keep_array(struct bundle *b, size_t n, size_t size)
{
    void *r = arena_array(&b->arena, n, size);
    must(r != NULL);
    return r;
}

/* The functions of a package: "main" of any T, or one for each. */
static size_t keep_functions(struct job *j, const struct program_shape *s,
                             const char ***ret_names, uint32_t **ret_t)
{
    size_t n = s->n > 0 ? s->n : 1;
    const char **names = keep_array(&j->b, n, sizeof(*names));
    uint32_t *t = keep_array(&j->b, n, sizeof(*t));
    names[0] = "main";
    for (uint32_t i = 0; i < s->n; i++) {
        char name[SHAPE_NAME_MAX];
        shape_name(s->t[i], name);
        names[i] = keep_str(&j->b, name);
        t[i] = s->t[i];
    }
    *ret_names = names;
    *ret_t = t;
    return n;
}

static void keep_port(struct job *j, struct bundle_port *list, size_t *n,
                      struct bundle_port p)
{
    p.name = keep_str(&j->b, p.name);
    list[(*n)++] = p;
}

/* What goes to later programs, and comes from earlier ones. */
static void keep_ports(struct job *j, struct bundle_shard *s)
{
    const struct decoder *d = &j->d;
    s->gives = keep_array(&j->b, (size_t)LAYER_PORTS * d->n_layers,
                          sizeof(*s->gives));
    s->takes = keep_array(&j->b, (size_t)LAYER_PORTS * d->n_layers,
                          sizeof(*s->takes));
    for (uint32_t k = 0; k < LAYER_PORTS * s->last; k++) {
        char name[PROGRAM_PORT_MAX];
        uint32_t l = k / LAYER_PORTS;
        const struct bundle_port p = {name, l,
                                      (enum layer_port)(k % LAYER_PORTS)};
        if (l >= s->first && program_gives(d, p.role, l, s->last)) {
            program_gives_name(s->first, l, p.role, name);
            keep_port(j, s->gives, &s->n_gives, p);
        } else if (l < s->first &&
                   layer_port_read_by(d->layers, p.role, l, s->first,
                                      s->last)) {
            program_takes_name(l, p.role, name);
            keep_port(j, s->takes, &s->n_takes, p);
        }
    }
}

static int write_shard(struct job *j, uint32_t i, struct err *e)
{
    const struct plan_range *r = &j->plan.shards[i];
    const struct program_shape *shape = &j->emit.shape;
    struct bundle_shard *s = &j->b.shards[i];
    char name[64];
    char file[WORK_PATH_MAX];
    (void)snprintf(name, sizeof(name), SHARD_NAME, r->first, r->last);
    RETERR(emit_layers(&j->emit, name, r->first, r->last, &s->weight_bytes, e));
    emit_weight_file(name, file);
    convert_known(j, file);
    s->path = keep_str(&j->b, name);
    s->first = r->first;
    s->last = r->last;
    s->t_min = shape->n > 0 ? shape->t[0] : program_rows_least(&j->d);
    s->t_max = shape_max(shape);
    s->n_functions = keep_functions(j, shape, &s->functions, &s->function_t);
    keep_ports(j, s);
    return 0;
}

/* Experts [first, first + n) of layer l, which are group i of the bundle. */
static int write_group(struct job *j, uint32_t i, uint32_t l, uint32_t first,
                       struct err *e)
{
    const struct program_shape *shape = &j->emit.shape;
    struct bundle_group *g = &j->b.groups[i];
    uint32_t widths = shape->n > 0 ? shape->n : 1;
    uint32_t left = j->d.layers[l].n_experts - first;
    uint32_t n = left < j->in.group ? left : j->in.group;
    char name[64];
    char file[WORK_PATH_MAX];
    (void)snprintf(name, sizeof(name), GROUP_NAME, l, first / j->in.group);
    RETERR(emit_experts(&j->emit, name, l, first, first + n, &g->weight_bytes,
                        e));
    emit_weight_file(name, file);
    convert_known(j, file);
    g->path = keep_str(&j->b, name);
    g->layer = l;
    g->experts = keep_array(&j->b, (size_t)n * widths, sizeof(*g->experts));
    for (uint32_t k = 0; k < n * widths; k++) {
        char of[EXPERT_FUNCTION_MAX];
        struct bundle_expert *x = &g->experts[g->n_experts++];
        x->expert = first + k / widths;
        x->t = shape->n > 0 ? shape->t[k % widths] : 0;
        program_expert_name(x->expert, x->t, of);
        x->function = keep_str(&j->b, of);
    }
    return 0;
}

static int write_groups(struct job *j, struct err *e)
{
    uint32_t i = 0;
    j->b.n_groups = plan_groups(&j->in);
    j->b.groups = keep_array(&j->b, j->b.n_groups + 1, sizeof(*j->b.groups));
    for (uint32_t l = 0; l < j->d.n_layers; l++) {
        const struct layer *y = &j->d.layers[l];
        for (uint32_t x = 0; y->sparse && x < y->n_experts; x += j->in.group) {
            RETERR(write_group(j, i++, l, x, e));
        }
    }
    must(i == j->b.n_groups);
    return 0;
}

static int write_head(struct job *j, uint32_t i, struct err *e)
{
    const struct plan_range *r = &j->plan.heads[i];
    struct bundle_head *h = &j->b.heads[i];
    struct program_shape shape = {0};
    char name[64];
    char file[WORK_PATH_MAX];
    (void)snprintf(name, sizeof(name), HEAD_NAME, i);
    RETERR(emit_head(&j->emit, name, r->first, r->last, &h->weight_bytes, e));
    emit_weight_file(name, file);
    convert_known(j, file);
    shape_of_heads(&j->emit.shape, &shape);
    h->path = keep_str(&j->b, name);
    h->vocab_first = r->first;
    h->vocab_last = r->last;
    h->t_min = shape.n > 0 ? shape.t[0] : program_rows_least(&j->d);
    h->t_max = shape_max(&shape);
    if (shape.n > 0) {
        h->n_functions =
            keep_functions(j, &shape, &h->functions, &h->function_t);
    }
    return 0;
}

/* The part of `units` that is still to be done. */
static uint64_t left_of(uint64_t units, uint64_t kept, uint64_t all)
{
    double share = all > 0 ? (double)kept / (double)all : 0;
    return (uint64_t)((double)units * (share < 1 ? 1 - share : 0));
}

static uint64_t planned_heads(const struct job *j)
{
    uint64_t n = 0;
    for (uint32_t i = 0; i < j->plan.n_heads; i++) {
        n += plan_head_bytes(&j->in, j->plan.heads[i]);
    }
    return n;
}

int convert_write_programs(struct job *j, uint64_t layers, uint64_t head,
                           struct err *e)
{
    struct bundle *b = &j->b;
    b->n_shards = j->plan.n_shards;
    b->shards = keep_array(b, b->n_shards, sizeof(*b->shards));
    b->n_heads_shards = j->plan.n_heads;
    b->heads = keep_array(b, b->n_heads_shards, sizeof(*b->heads));
    RETERR(progress_stage(&j->progress, "writing", layers, e));
    for (uint32_t i = 0; i < j->plan.n_shards; i++) {
        RETERR(write_shard(j, i, e));
    }
    RETERR(write_groups(j, e));
    RETERR(progress_stage(&j->progress, "writing", head, e));
    for (uint32_t i = 0; i < j->plan.n_heads; i++) {
        RETERR(write_head(j, i, e));
    }
    return 0;
}

int convert_write(struct job *j, struct err *e)
{
    const struct gguf_tensor *embed = j->d.global[SLOT_EMBD].t;
    const struct gguf_tensor *ple = j->d.global[SLOT_PLE_EMBD].t;
    const struct gguf_tensor *positions = j->d.global[SLOT_POSITIONS].t;
    uint64_t tables = embed->bytes + (ple != NULL ? ple->bytes : 0);
    uint64_t head = j->plan.n_heads > 0 ? arch_head(&j->d)->t->bytes : 0;
    uint64_t layers = reference_bytes(&j->d) - head;
    uint64_t table_bytes = 2 * (embed->rows * embed->cols +
                                (ple != NULL ? ple->rows * ple->cols : 0));
    tables = left_of(tables, j->kept.tables, table_bytes);
    layers = left_of(layers, j->kept.layers, plan_layers_bytes(&j->in));
    head = left_of(head, j->kept.head, planned_heads(j));
    RETERR(progress_stage(&j->progress, "writing", tables, e));
    RETERR(convert_write_table(j, embed, "embed.bin", e));
    if (ple != NULL) {
        RETERR(convert_write_table(j, ple, PLE_FILE, e));
    }
    if (positions != NULL) {
        RETERR(convert_write_table(j, positions, POSITION_FILE, e));
    }
    return convert_write_programs(j, layers, head, e);
}

/* --- bundle.json --- */

static struct bundle_rope rope_of(const struct arch_kind *k)
{
    return (struct bundle_rope){.present = true,
                                .dim = k->rope_dim,
                                .base = k->base,
                                .scale = k->scale,
                                .window = k->window,
                                .magnitude = k->magnitude,
                                .n_factors = k->n_factors,
                                .factors = k->factors,
                                .long_factors = k->long_factors,
                                .original = k->original};
}

static void fill_ropes(struct job *j)
{
    const struct decoder *d = &j->d;
    j->b.rope = rope_of(&d->kinds[LAYER_GLOBAL]);
    if (d->kinds[LAYER_LOCAL].used) {
        j->b.rope_local = rope_of(&d->kinds[LAYER_LOCAL]);
    }
}

static void fill_peaks(struct job *j)
{
    struct bundle *b = &j->b;
    b->n_peaks = j->range.n_peaks;
    b->peaks = keep_array(b, b->n_peaks, sizeof(*b->peaks));
    for (size_t i = 0; i < b->n_peaks; i++) {
        char name[RANGE_NAME_MAX];
        range_name(j->range.peaks[i].kind, j->range.peaks[i].layer, name);
        b->peaks[i].name = keep_str(b, name);
        b->peaks[i].peak = j->range.peaks[i].peak;
    }
}

static void fill_calibration(struct job *j)
{
    struct bundle_calibration *to = &j->b.calibration;
    if (!j->calibrates) {
        return;
    }
    const struct calibrate_samples *s = calibration_samples(j->calibration);
    to->from = s->text_sha256[0] != '\0' ? BUNDLE_CALIBRATION_TEXT
                                         : BUNDLE_CALIBRATION_OWN;
    to->sequences = s->sequences;
    to->tokens = s->tokens;
    to->seed = s->seed;
    memcpy(to->sha256, s->text_sha256, sizeof(to->sha256));
}

/* The width of the first layer's feed-forward; of experts alone, that of the
 * chosen ones together. */
static uint32_t dense_width(const struct decoder *d)
{
    const struct layer *y = &d->layers[0];
    uint64_t wide = (uint64_t)y->n_top * y->d_expert;
    return y->d_ff > 0 ? y->d_ff : (uint32_t)num_min(wide, MODEL_DIM_MAX);
}

/* An encoder's labels, and its biases where the source has a file of them. */
static void fill_labels(struct job *j)
{
    struct bundle *b = &j->b;
    b->encoder = j->d.encoder;
    b->n_labels = j->d.n_labels;
    b->labels = keep_array(b, b->n_labels + 1, sizeof(*b->labels));
    for (uint32_t i = 0; i < b->n_labels; i++) {
        struct span s = arch_label(&j->d, i);
        char *name = keep_array(b, s.n + 1, 1);
        memcpy(name, s.p, s.n);
        name[s.n] = '\0';
        b->labels[i] = name;
    }
}

void convert_describe(struct job *j)
{
    const struct decoder *d = &j->d;
    struct bundle *b = &j->b;
    fill_labels(j);
    b->known = j->known;
    b->n_known = j->n_known;
    b->format = BUNDLE_FORMAT;
    b->name = j->name;
    b->architecture = d->arch->name;
    b->n_layers = d->n_layers;
    b->d_model = d->d_model;
    b->n_heads = arch_attention(d)->n_heads;
    b->n_kv_heads = arch_attention(d)->n_kv;
    b->d_head = arch_attention(d)->d_head;
    b->d_ff = dense_width(d);
    b->layers = d->layers;
    b->logit_scale = d->logit_scale;
    b->logit_cap = d->logit_cap;
    b->pooling = d->pooling;
    b->d_ple = d->d_ple;
    b->ple_file = d->d_ple > 0 ? PLE_FILE : NULL;
    b->position_file =
        d->global[SLOT_POSITIONS].t != NULL ? POSITION_FILE : NULL;
    b->vocab = d->vocab;
    b->context = j->emit.context;
    b->context_train = d->context_train;
    b->norm_eps = d->norm_eps;
    convert_describe_forms(j);
    b->quant = j->quant;
    b->shape = j->emit.shape.n > 0 ? "functions" : "ranged";
    b->kv = j->emit.host ? "host" : "state";
    b->argmax = j->emit.argmax;
    b->norm = j->emit.norm == NORM_MAX ? "max" : "scale";
    b->embed_scale = d->embed_scale;
    b->residual_scale = j->emit.alpha;
    b->margin = j->choice.margin;
    b->eps_omitted = j->choice.eps_omitted;
    b->embed_file = "embed.bin";
    b->tokenizer_file = "tokenizer.gguf";
    b->source_name = j->source_name;
    b->source_bytes = gguf_file_bytes(j->g);
    memcpy(b->source_sha256, j->digest.hex, SHA256_HEX);
    b->converter_version = ANED_VERSION;
    fill_calibration(j);
    fill_ropes(j);
    fill_peaks(j);
}
