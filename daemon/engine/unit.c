/* unit.c - packages opened, and their ports held against the bundle: what is
 * wrong with a package is said here by name, not found by a prediction later.
 */
#include <string.h>

#include "engine/unit_impl.h"

static const char *const role_names[] = {
    [ROLE_X] = "x",
    [ROLE_COS] = "rope_cos",
    [ROLE_SIN] = "rope_sin",
    [ROLE_MASK] = "attn_mask",
    [ROLE_WRITE] = "kv_write_mask",
    [ROLE_COS_LOCAL] = "rope_cos_local",
    [ROLE_SIN_LOCAL] = "rope_sin_local",
    [ROLE_MASK_LOCAL] = "attn_mask_local",
    [ROLE_EMBED] = "x_embed",
    [ROLE_PLE] = "ple",
    [ROLE_EXPERTS] = "experts",
};

size_t unit_stem(const char *name, const char *suffix)
{
    size_t n = strlen(name);
    size_t k = strlen(suffix);
    return n > k && strcmp(name + n - k, suffix) == 0 ? n - k : 0;
}

size_t unit_find_take(const struct shard *s, const char *name)
{
    size_t i = 0;
    while (i < s->n_takes && strcmp(s->takes[i].name, name) != 0) {
        i++;
    }
    return i;
}

static bool role_of(const struct shard *s, const char *name, enum role *ret)
{
    if (unit_find_take(s, name) < s->n_takes) { /* the manifest says it */
        *ret = ROLE_TAKE;
        return true;
    }
    for (size_t i = 0; i < countof(role_names); i++) {
        if (strcmp(name, role_names[i]) == 0) {
            *ret = (enum role)i;
            return true;
        }
    }
    if (strcmp(name, "hidden") == 0) { /* of an imported head */
        *ret = ROLE_X;
        return true;
    }
    *ret = unit_stem(name, "_tail") > 0 ? ROLE_TAIL : ROLE_PAST;
    return *ret == ROLE_TAIL || unit_stem(name, "_past") > 0;
}

static struct shape shape_of(enum role r, const struct bundle *b)
{
    int64_t d = b->d_model;
    int64_t s = b->context;
    int64_t band = 3 * (int64_t)layer_block(b->rope.window);
    switch (r) {
    case ROLE_X:
    case ROLE_EMBED:
    case ROLE_EXPERTS:
        return (struct shape){
            4, {1, d, T_HERE, 1}
        };
    case ROLE_PLE:
        return (struct shape){
            4, {1, (int64_t)b->n_layers * b->d_ple, T_HERE, 1}
        };
    case ROLE_COS:
    case ROLE_SIN:
        return (struct shape){
            2, {T_HERE, b->rope.dim / 2, 0, 0}
        };
    case ROLE_COS_LOCAL:
    case ROLE_SIN_LOCAL:
        return (struct shape){
            2, {T_HERE, b->rope_local.dim / 2, 0, 0}
        };
    case ROLE_MASK:
    case ROLE_MASK_LOCAL:
        if (b->encoder && b->rope.window == 0) {
            return (struct shape){
                4, {1, 1, 1, T_HERE}
            };
        }
        return (struct shape){
            4, {1, 1, T_HERE, b->encoder ? band : s}
        };
    case ROLE_WRITE:
        return (struct shape){
            4, {1, 1, s, T_HERE}
        };
    case ROLE_TAIL:
        return (struct shape){
            4, {1, MIL_UNKNOWN, MIL_UNKNOWN, 1}
        };
    case ROLE_PAST:
    case ROLE_TAKE: /* shape_of_port */
        break;
    }
    return (struct shape){
        4, {1, MIL_UNKNOWN, s, MIL_UNKNOWN}
    };
}

static struct shape shape_of_port(const struct bundle_port *p,
                                  const struct bundle *b)
{
    const struct layer *l = &b->layers[p->layer];
    return (struct shape){
        4,
        {1, layer_port_heads(l, p->role), T_HERE, layer_port_dim(l, p->role)}
    };
}

int unit_check_port(const struct backend_port *p, struct shape want, int64_t *t,
                    struct err *e)
{
    bool fits = p->type.rank == want.rank;
    for (int i = 0; fits && i < want.rank; i++) {
        int64_t have = p->type.dims[i];
        if (want.dims[i] == T_HERE) {
            fits = have == MIL_UNKNOWN || (have > 0 && have <= UINT16_MAX);
            *t = have == MIL_UNKNOWN ? *t : have;
        } else if (want.dims[i] == MIL_UNKNOWN) {
            fits = have > 0;
        } else {
            fits = have == want.dims[i];
        }
    }
    if (fits) {
        return 0;
    }
    char text[128];
    mil_type_print(&p->type, text, sizeof(text));
    return err_set(e, ERR_BUNDLE, "%s: shape %s does not fit the bundle",
                   p->name, text);
}

static bool role_available(enum role r, const struct shard *s,
                           const struct bundle *b)
{
    switch (r) {
    case ROLE_EXPERTS:
        return s->joins;
    case ROLE_COS:
    case ROLE_SIN:
        return b->rope.present;
    case ROLE_COS_LOCAL:
    case ROLE_SIN_LOCAL:
    case ROLE_MASK_LOCAL:
        return b->rope_local.present;
    case ROLE_PLE:
        return b->d_ple > 0;
    case ROLE_EMBED:
    case ROLE_X:
    case ROLE_MASK:
    case ROLE_WRITE:
    case ROLE_PAST:
    case ROLE_TAKE:
    case ROLE_TAIL:
        return true;
    }
    return false;
}

static int check_inputs(const struct shard *s, struct unit *u,
                        const struct bundle *b, int64_t *t, struct err *e)
{
    bool have_x = false;
    bool have_experts = false;
    for (size_t i = 0; i < u->info.n_in; i++) {
        const struct backend_port *p = &u->info.in[i];
        enum role *r = &u->roles[i];
        if (!role_of(s, p->name, r) || !role_available(*r, s, b)) {
            return err_set(e, ERR_BUNDLE, "input %s is not of the contract",
                           p->name);
        }
        size_t k = unit_find_take(s, p->name);
        u->nth[i] = (uint32_t)k;
        RETERR(unit_check_port(p,
                          *r == ROLE_TAKE ? shape_of_port(&s->takes[k], b)
                                          : shape_of(*r, b),
                          t, e));
        have_x = have_x || *r == ROLE_X;
        have_experts = have_experts || *r == ROLE_EXPERTS;
    }
    if (have_experts != s->joins) {
        return err_set(e, ERR_BUNDLE, "no input experts");
    }
    return have_x ? 0 : err_set(e, ERR_BUNDLE, "no input x");
}

const struct backend_port *unit_find_port(const struct backend_port *p,
                                          size_t n, const char *name)
{
    for (size_t i = 0; i < n; i++) {
        if (strcmp(p[i].name, name) == 0) {
            return &p[i];
        }
    }
    return NULL;
}

/* Every port of the manifest is one of the package. */
static int check_handed(const struct shard *s, const struct unit *u,
                        const struct bundle *b, struct err *e)
{
    for (size_t i = 0; i < s->n_takes; i++) {
        const char *name = s->takes[i].name;
        if (unit_find_port(u->info.in, u->info.n_in, name) == NULL) {
            return err_set(e, ERR_BUNDLE, "no input %s", name);
        }
    }
    for (size_t i = 0; i < s->n_gives; i++) {
        const struct bundle_port *g = &s->gives[i];
        const struct backend_port *p =
            unit_find_port(u->info.out, u->info.n_out, g->name);
        int64_t t = 0;
        if (p == NULL) {
            return err_set(e, ERR_BUNDLE, "no output %s", g->name);
        }
        RETERR(unit_check_port(p, shape_of_port(g, b), &t, e));
    }
    return 0;
}

static int check_output(const struct unit *u, const char *name, uint32_t want,
                        struct err *e)
{
    const struct backend_port *p =
        unit_find_port(u->info.out, u->info.n_out, name);
    if (p == NULL) {
        return err_set(e, ERR_BUNDLE, "no output %s", name);
    }
    int64_t rows = p->type.rank == 4 ? p->type.dims[1] : 0;
    if (rows != want && rows != MIL_UNKNOWN) {
        return err_set(e, ERR_BUNDLE, "output %s is not %u rows", name, want);
    }
    return 0;
}

/* Numbers of a row of the output; 0: it is none that the engine reads by these
 * names. */
static uint32_t out_width(const struct shard *s, const struct bundle *b,
                          const char *name)
{
    bool routes = s->n_routed > 0;
    if (strcmp(name, s->out) == 0 ||
        (s->value != NULL && strcmp(name, s->value) == 0)) {
        return s->out_rows;
    }
    return routes && strcmp(name, EXPERT_IN) == 0      ? b->d_model
           : routes && strcmp(name, EXPERT_GATES) == 0 ? s->n_routed
                                                       : 0;
}

static int check_outputs(const struct shard *s, const struct unit *u,
                         const struct bundle *b, struct err *e)
{
    const char *const names[] = {s->out, s->value,
                                 s->n_routed > 0 ? EXPERT_IN : NULL,
                                 s->n_routed > 0 ? EXPERT_GATES : NULL};
    for (size_t i = 0; i < countof(names); i++) {
        if (names[i] != NULL) {
            RETERR(check_output(u, names[i], out_width(s, b, names[i]), e));
        }
    }
    return 0;
}

/* The rows a unit takes: the backend's own range where an input is flexible,
 * or where it runs more than the package declares; else the fixed T. */
static void set_range(struct unit *u, const struct bundle *b, int64_t fixed)
{
    uint32_t most = b->encoder ? ENCODER_ROWS_MAX : ENGINE_CHUNK_MAX;
    int64_t lo = u->info.t_min;
    int64_t hi = u->info.t_max;
    if (fixed > 0 && (fixed < lo || fixed > hi)) {
        lo = fixed;
        hi = fixed;
    }
    u->t_lo = (uint32_t)(lo < 1 ? 1 : lo);
    u->fixed = (uint32_t)fixed;
    u->t_hi = (uint32_t)(hi > most ? most : hi);
}

/* What a state is, as its name in the contract says. A positional one (keys,
 * values) can be cut at any position and saved in pieces; others cannot. */
enum state_kind { STATE_UNKNOWN, STATE_POSITIONAL, STATE_RECURRENT };

static enum state_kind kind_of(const char *name)
{
    static const struct {
        const char *end;
        enum state_kind kind;
    } of[] = {
        {"_k_state",    STATE_POSITIONAL},
        {"_v_state",    STATE_POSITIONAL},
        {"_conv_state", STATE_RECURRENT },
    };
    for (size_t i = 0; i < countof(of); i++) {
        if (unit_stem(name, of[i].end) > 0) {
            return of[i].kind;
        }
    }
    return STATE_UNKNOWN;
}

static int check_states(const struct unit *u, const struct bundle *b,
                        struct err *e)
{
    for (size_t i = 0; i < u->info.n_states; i++) {
        const struct backend_port *p = &u->info.states[i];
        switch (kind_of(p->name)) {
        case STATE_POSITIONAL:
            break;
        case STATE_RECURRENT:
            return err_set(e, ERR_UNSUPPORTED,
                           "state %s is recurrent; this aned keeps positional "
                           "states (keys and values) only",
                           p->name);
        case STATE_UNKNOWN:
            return err_set(e, ERR_BUNDLE, "state %s is of no known kind",
                           p->name);
        }
        if (p->type.rank != 4 || p->type.dims[0] != 1 ||
            p->type.dims[2] != b->context) {
            char text[128];
            mil_type_print(&p->type, text, sizeof(text));
            return err_set(e, ERR_BUNDLE,
                           "state %s: shape %s is not [1, heads, %u, dim]",
                           p->name, text, b->context);
        }
    }
    return 0;
}

static int unit_open(struct shard *s, struct unit *u,
                     const struct backend_conf *conf, const struct bundle *b,
                     const char *function, struct err *e)
{
    char path[sizeof(b->dir) + 256];
    if (!file_join(path, sizeof(path), b->dir, s->path)) {
        return err_set(e, ERR_BUNDLE, "the path is too long");
    }
    RETERR(s->be->open(path, function, conf, &u->m, e));
    s->be->info(u->m, &u->info);
    u->roles = calloc(u->info.n_in + 1, sizeof(*u->roles));
    u->nth = calloc(u->info.n_in + 1, sizeof(*u->nth));
    if (u->roles == NULL || u->nth == NULL) {
        return err_set(e, ERR_NOMEM, "ports");
    }
    int64_t fixed = 0;
    RETERR(check_inputs(s, u, b, &fixed, e));
    RETERR(check_handed(s, u, b, e));
    RETERR(check_states(u, b, e));
    set_range(u, b, fixed);
    return check_outputs(s, u, b, e);
}

/* --- rows --- */

/* Does the backend take this input for what it is? The past arrays of the
 * stateless form are no rows, and a program may use a mask in a way of its
 * own. */
static bool row_use_fits(enum role r, enum backend_row_use use)
{
    if (use == BACKEND_ROW_UNREAD) {
        return true;
    }
    switch (r) {
    case ROLE_X:
    case ROLE_COS:
    case ROLE_SIN:
    case ROLE_COS_LOCAL:
    case ROLE_SIN_LOCAL:
    case ROLE_EMBED:
    case ROLE_PLE:
    case ROLE_EXPERTS:
    case ROLE_TAKE:
        return use == BACKEND_ROW_DATA;
    case ROLE_MASK:
    case ROLE_MASK_LOCAL:
        return use == BACKEND_ROW_MASK;
    case ROLE_WRITE:
        return use == BACKEND_ROW_WRITE;
    case ROLE_TAIL:
        return use == BACKEND_ROW_PAST;
    case ROLE_PAST:
        break;
    }
    return false;
}

static int row_width(const char *name, const struct backend_row_port *p,
                     int64_t want, struct err *e)
{
    return p->width == want
               ? 0
               : err_set(e, ERR_BUNDLE, "%s: a row of %u numbers, not %lld",
                         name, p->width, (long long)want);
}

/* Numbers of a row of keys or values. */
static int64_t port_width(const struct bundle_port *p, const struct bundle *b)
{
    struct shape s = shape_of_port(p, b);
    return s.dims[1] * s.dims[3];
}

/* *ret: this unit can be run as rows. With a fixed T above 1 what the backend
 * calls a row is T columns, not a row of a sequence. */
static int check_rows(const struct shard *s, const struct unit *u,
                      const struct bundle *b, bool *ret, struct err *e)
{
    const struct backend_info *info = &u->info;
    *ret = info->rows_max > 0 && u->fixed <= 1;
    for (size_t i = 0; *ret && i < info->n_in; i++) {
        enum role r = u->roles[i];
        *ret = row_use_fits(r, info->row_in[i].use);
        if (*ret && info->row_in[i].use == BACKEND_ROW_DATA) {
            int64_t want = r == ROLE_TAKE
                               ? port_width(&s->takes[u->nth[i]], b)
                               : shape_of(r, b).dims[1];
            RETERR(row_width(info->in[i].name, &info->row_in[i], want, e));
        }
    }
    for (size_t i = 0; *ret && i < info->n_out; i++) {
        const char *name = info->out[i].name;
        for (size_t k = 0; k < s->n_gives; k++) {
            if (strcmp(name, s->gives[k].name) == 0) {
                RETERR(row_width(name, &info->row_out[i],
                                 port_width(&s->gives[k], b), e));
            }
        }
        uint32_t want = out_width(s, b, name);
        if (want > 0) {
            RETERR(row_width(name, &info->row_out[i], want, e));
        }
    }
    return 0;
}

/* The first unit that runs rows: that of the least T, if there are several. */
static int find_rows(struct shard *s, const struct bundle *b, struct err *e)
{
    for (size_t i = 0; s->rows == NULL && i < s->n_units; i++) {
        bool fits = false;
        int rc = check_rows(s, &s->units[i], b, &fits, e);
        if (rc < 0) {
            return rc;
        }
        s->rows = fits ? &s->units[i] : NULL;
    }
    return 0;
}

/* A function of another width than those that were measured to agree is not
 * needed, and may be one that does not even load. */
static bool function_used(const struct backend_conf *conf, uint32_t t)
{
    for (size_t i = 0; i < conf->n_exact_widths; i++) {
        if (conf->exact_widths[i] == t) {
            return true;
        }
    }
    return conf->n_exact_widths == 0;
}

/* The functions of a package that are used; n = 0: the default one alone. */
static int open_units(struct shard *s, const struct backend_conf *conf,
                      const struct bundle *b, size_t n, const char **names,
                      const uint32_t *t, struct err *e)
{
    s->units = calloc(n + 1, sizeof(*s->units));
    if (s->units == NULL) {
        return err_set(e, ERR_NOMEM, "functions");
    }
    if (n == 0) {
        s->n_units = 1;
        return unit_open(s, &s->units[0], conf, b, NULL, e);
    }
    for (size_t i = 0; i < n; i++) {
        if (t[i] == 0 || function_used(conf, t[i])) {
            struct unit *u = &s->units[s->n_units++];
            RETERR(unit_open(s, u, conf, b, names[i], e));
        }
    }
    return s->n_units > 0
               ? 0
               : err_set(e, ERR_BUNDLE,
                         "no function has a width that may be used");
}

int shard_open(struct shard *s, const struct backend *be,
               const struct backend_conf *conf, const struct bundle *b,
               const struct bundle_shard *from, struct err *e)
{
    bool ranged = strcmp(b->shape, "functions") != 0;
    int rc = 0;
    s->be = be;
    s->path = from->path;
    s->out = "hidden";
    s->out_rows = b->d_model;
    s->n_gives = from->n_gives;
    s->gives = from->gives;
    s->n_takes = from->n_takes;
    s->takes = from->takes;
    s->joins = bundle_joins(b, from);
    s->n_routed =
        bundle_routes(b, from) ? b->layers[from->last - 1].n_experts : 0;
    CHECK(open_units(s, conf, b, ranged ? 0 : from->n_functions,
                     from->functions, from->function_t, e));
    CHECK(past_make(s, e));
    for (size_t i = 0; i < s->n_units; i++) {
        CHECK(past_match(s, &s->units[i], e));
    }
    CHECK(tail_make(s, e));
    for (size_t i = 0; i < s->n_units; i++) {
        CHECK(tail_match(s, &s->units[i], e));
    }
    CHECK(find_rows(s, b, e));
out:
    return rc < 0 ? err_prefix(e, rc, "%s", from->path) : 0;
}

/* The package of expert i, and its functions. */
static const char *find_functions(const struct bundle *b, uint32_t layer,
                                  uint32_t i, const char **names, uint32_t *t,
                                  size_t *n)
{
    const char *path = NULL;
    *n = 0;
    for (size_t k = 0; k < b->n_groups; k++) {
        const struct bundle_group *g = &b->groups[k];
        for (size_t f = 0; g->layer == layer && f < g->n_experts; f++) {
            if (g->experts[f].expert == i) {
                must(*n < ENGINE_WIDTHS_MAX); /* bundle_experts.c */
                path = g->path;
                names[*n] = g->experts[f].function;
                t[(*n)++] = g->experts[f].t;
            }
        }
    }
    must(path != NULL); /* the manifest was checked */
    return path;
}

int expert_open(struct shard *s, const struct backend *be,
                const struct backend_conf *conf, const struct bundle *b,
                uint32_t layer, uint32_t i, struct err *e)
{
    const char *names[ENGINE_WIDTHS_MAX];
    uint32_t t[ENGINE_WIDTHS_MAX];
    size_t n = 0;
    int rc = 0;
    *s = (struct shard){.be = be, .out = "y", .out_rows = b->d_model};
    s->path = find_functions(b, layer, i, names, t, &n);
    CHECK(open_units(s, conf, b, n, names, t, e));
    for (size_t k = 0; k < s->n_units; k++) {
        const struct backend_info *info = &s->units[k].info;
        if (info->n_in != 1 || info->n_out != 1 || info->n_states != 0) {
            rc = err_set(e, ERR_BUNDLE, "an expert takes x and gives y alone");
            goto out;
        }
    }
    CHECK(find_rows(s, b, e));
out:
    return rc < 0 ? err_prefix(e, rc, "%s", s->path) : 0;
}

int head_open(struct shard *s, const struct backend *be,
              const struct backend_conf *conf, const struct bundle *b,
              const struct bundle_head *from, struct err *e)
{
    int rc = 0;
    s->be = be;
    s->path = from->path;
    s->out = b->argmax ? "top_id" : "logits";
    s->value = b->argmax ? "top_value" : NULL;
    s->out_rows = b->argmax ? 1 : from->vocab_last - from->vocab_first;
    CHECK(open_units(s, conf, b, from->n_functions, from->functions,
                     from->function_t, e));
    for (size_t i = 0; i < s->n_units; i++) {
        const struct backend_info *info = &s->units[i].info;
        if (info->n_in != 1 || info->n_states != 0) {
            rc = err_set(e, ERR_BUNDLE, "a head takes x alone");
            goto out;
        }
    }
    CHECK(find_rows(s, b, e));
out:
    return rc < 0 ? err_prefix(e, rc, "%s", from->path) : 0;
}

void shard_close(struct shard *s)
{
    tail_close(s);
    for (size_t i = 0; i < s->n_past; i++) {
        s->be->array_free(s->past[i].any);
    }
    for (size_t i = 0; i < s->n_units; i++) {
        s->be->close(s->units[i].m);
        free(s->units[i].roles);
        free(s->units[i].nth);
    }
    for (size_t i = 0; i < s->n_past; i++) {
        free(s->past[i].in);
        free(s->past[i].out);
    }
    free(s->past);
    free(s->units);
    s->past = NULL;
    s->n_past = 0;
    s->units = NULL;
    s->n_units = 0;
    s->rows = NULL;
}

struct unit *shard_unit(const struct shard *s, uint32_t t)
{
    for (size_t i = 0; i < s->n_units; i++) {
        if (t >= s->units[i].t_lo && t <= s->units[i].t_hi) {
            return &s->units[i];
        }
    }
    return NULL;
}

const struct unit *shard_state_unit(const struct shard *s)
{
    return s->rows != NULL ? s->rows : &s->units[0];
}

unsigned shard_uses(const struct shard *s)
{
    unsigned uses = 0;
    for (size_t i = 0; i < s->n_units; i++) {
        for (size_t k = 0; k < s->units[i].info.n_in; k++) {
            uses |= 1U << s->units[i].roles[k];
        }
    }
    return uses;
}
