/* map.c - a prediction layer by layer: what the report of a model draws. */
#include <string.h>

#include "base/parse.h"
#include "convert/residency/rules.h"

struct part {
    const struct predict_op **ops; /* n, in program order */
    size_t n;
    bool told; /* with a layer before it that is alike */
};

struct map {
    const struct predict_op **ops; /* the parts', one after the other */
    struct part *layers;           /* n, and one for what is of no layer */
    size_t n;
    const struct predict_rule *rules[PREDICT_KINDS_MAX];
    size_t n_rules;
};

/* "layers_3_q" -> 3, "q". A name without a layer: `none`, itself. */
static size_t place(const char *name, size_t none, const char **rest)
{
    uint64_t layer = 0;
    const char *tail =
        strncmp(name, "layers_", 7) == 0
            ? parse_digits(name + 7, MODEL_LAYERS_MAX - 1, &layer)
            : NULL;
    bool has = tail != NULL && *tail == '_';
    *rest = has ? tail + 1 : name;
    return has ? (size_t)layer : none;
}

static const char *name_of(const struct mil_op *op)
{
    return op->n_outputs > 0 ? op->outputs[0]->name : op->type;
}

static size_t rule_index(struct map *m, const struct predict_rule *r)
{
    size_t i = 0;
    while (i < m->n_rules && m->rules[i] != r) {
        i++;
    }
    if (i == m->n_rules && i < countof(m->rules)) {
        m->rules[m->n_rules++] = r;
    }
    return i;
}

static size_t count_layers(const struct predict_function *f)
{
    size_t n = 0;
    for (size_t i = 0; i < f->n_ops; i++) {
        const char *rest = NULL;
        size_t l = place(name_of(f->ops[i].op), SIZE_MAX, &rest);
        n = l != SIZE_MAX && l >= n ? l + 1 : n;
    }
    return n;
}

static struct part *part_of(struct map *m, const struct predict_op *o)
{
    const char *rest = NULL;
    return &m->layers[place(name_of(o->op), m->n, &rest)];
}

static void divide(struct map *m, const struct predict_function *f)
{
    size_t at = 0;
    for (size_t i = 0; i < f->n_ops; i++) {
        part_of(m, &f->ops[i])->n++;
    }
    for (size_t i = 0; i <= m->n; i++) {
        m->layers[i].ops = m->ops + at;
        at += m->layers[i].n;
        m->layers[i].n = 0;
    }
    for (size_t i = 0; i < f->n_ops; i++) {
        struct part *p = part_of(m, &f->ops[i]);
        p->ops[p->n++] = &f->ops[i];
    }
}

/* But for the bytes of weights. */
static bool alike(const struct part *a, const struct part *b)
{
    bool same = a->n == b->n;
    for (size_t i = 0; same && i < a->n; i++) {
        const struct predict_op *x = a->ops[i];
        const struct predict_op *y = b->ops[i];
        const char *p = NULL;
        const char *q = NULL;
        (void)place(name_of(x->op), 0, &p);
        (void)place(name_of(y->op), 0, &q);
        same = x->verdict == y->verdict && x->rule == y->rule &&
               strcmp(p, q) == 0 && strcmp(x->op->type, y->op->type) == 0;
    }
    return same;
}

/* [name, type, verdict, rule, weights]: weights of the layers of `list`, one
 * number where they are the same. */
static void put_op(struct json *rows, struct map *m, size_t first, size_t op,
                   const size_t *list, size_t n)
{
    const struct predict_op *o = m->layers[first].ops[op];
    const char *rest = NULL;
    struct json *row = json_add_array(rows, NULL);
    bool same = true;
    (void)place(name_of(o->op), 0, &rest);
    json_add_str(row, NULL, rest);
    json_add_str(row, NULL, o->op->type);
    json_add_str(row, NULL, predict_word(o->verdict));
    json_add_int(row, NULL, (int64_t)rule_index(m, o->rule));
    for (size_t i = 0; i < n; i++) {
        int64_t w = (int64_t)m->layers[list[i]].ops[op]->weights;
        same = same && w == (int64_t)o->weights;
    }
    if (same) {
        json_add_int(row, NULL, (int64_t)o->weights);
        return;
    }
    struct json *each = json_add_array(row, NULL);
    for (size_t i = 0; i < n; i++) {
        json_add_int(each, NULL, (int64_t)m->layers[list[i]].ops[op]->weights);
    }
}

/* Part i, and the layers after it that are alike. */
static void put_group(struct json *groups, struct map *m, size_t i)
{
    size_t list[MODEL_LAYERS_MAX];
    size_t n = 0;
    if (m->layers[i].n == 0 || m->layers[i].told) {
        return;
    }
    struct json *g = json_add_object(groups, NULL);
    struct json *layers = json_add_array(g, "layers");
    for (size_t k = i; k < m->n; k++) { /* none for the last part */
        if (!m->layers[k].told && alike(&m->layers[i], &m->layers[k])) {
            json_add_int(layers, NULL, (int64_t)k);
            m->layers[k].told = true;
            list[n++] = k;
        }
    }
    struct json *rows = json_add_array(g, "ops");
    for (size_t k = 0; k < m->layers[i].n; k++) {
        put_op(rows, m, i, k, list, n);
    }
}

/* It goes in a frame: NULL when it is too long. */
static struct json *bounded(struct json *j)
{
    struct buf b;
    buf_init(&b, PREDICT_MAP_MAX);
    json_write(j, false, &b);
    if (!buf_ok(&b)) {
        json_free(j);
        j = NULL;
    }
    buf_fini(&b);
    return j;
}

struct json *predict_map_json(const struct predict_function *f)
{
    struct map m = {.n = count_layers(f)}; /* MODEL_LAYERS_MAX at most */
    m.layers = calloc(m.n + 1, sizeof(*m.layers));
    m.ops = calloc(f->n_ops + 1, sizeof(*m.ops));
    must(m.layers != NULL && m.ops != NULL);
    divide(&m, f);
    struct json *groups = json_array();
    for (size_t i = 0; i <= m.n; i++) {
        put_group(groups, &m, i);
    }
    struct json *j = json_object();
    struct json *rules = json_add_array(j, "rules");
    for (size_t i = 0; i < m.n_rules; i++) {
        json_add_str(rules, NULL, m.rules[i]->id);
    }
    json_add_tree(j, "groups", groups);
    free(m.layers);
    free(m.ops);
    return bounded(j);
}
