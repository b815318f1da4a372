#include "convert/plan.h"

#include <string.h>

#include "base/num.h"
#include "profiles.h"
#include "proto/json.h"

/* Slices of the vocabulary end on multiples of this, so that a slice's rows
 * fill whole vectors. */
#define ROW_UNIT 64u

static int read_profile(const struct json *j, struct plan_profile *p,
                        struct err *e)
{
    int64_t program = 0;
    int64_t states = 0;
    int64_t rows = 0;
    int64_t axis = 0;
    const struct {
        const char *key;
        int64_t lo, hi;
        int64_t *to;
    } ints[] = {
        {"program_bytes", 1,        INT64_MAX / 2,     &program},
        {"states",        2,        1 << 20,           &states },
        {"head_rows",     ROW_UNIT, MODEL_DIM_MAX,     &rows   },
        {"axis",          32,       MODEL_CONTEXT_MAX, &axis   },
    };
    for (size_t i = 0; i < countof(ints); i++) {
        RETERR(json_want_int(j, ints[i].key, true, ints[i].lo, ints[i].hi,
                             ints[i].to, e));
    }
    p->program_bytes = (uint64_t)program;
    p->states = (uint32_t)states;
    p->head_rows = (uint32_t)rows;
    p->axis = (uint32_t)axis;
    return 0;
}

int plan_profile(const char *name, struct plan_profile *ret, struct err *e)
{
    struct json *root = NULL;
    char known[ERR_MSG_MAX / 2] = "";
    size_t used = 0;
    name = name != NULL ? name : "law";
    int rc = json_parse(profiles_json, sizeof(profiles_json) - 1, &root, e);
    if (rc < 0) {
        return err_prefix(e, rc, "conf/ane-profiles.json");
    }
    const struct json *list = json_get(root, "profiles");
    bool found = false;
    for (const struct json *j = json_first(list); j != NULL && !found;
         j = json_next(j)) {
        const char *n = json_str(json_get(j, "name"));
        struct plan_profile p = {0};
        if (n == NULL || strlen(n) >= sizeof(p.name)) {
            continue;
        }
        int k = snprintf(known + used, sizeof(known) - used, " %s", n);
        used += k > 0 ? num_min((size_t)k, sizeof(known) - used - 1) : 0;
        if (strcmp(n, name) == 0) {
            found = true;
            (void)snprintf(p.name, sizeof(p.name), "%s", n);
            rc = read_profile(j, &p, e);
            if (rc == 0) {
                *ret = p;
            }
        }
    }
    json_free(root);
    if (!found) {
        return err_set(e, ERR_INVALID, "profile '%.32s'; there are%s", name,
                       known);
    }
    return rc;
}

/* n things in `parts` pieces whose sizes differ by at most one `unit`. */
static void divide(uint32_t n, uint32_t parts, uint32_t unit,
                   struct plan_range *out)
{
    uint32_t units = (n + unit - 1) / unit;
    uint32_t at = 0;
    for (uint32_t i = 0; i < parts; i++) {
        uint32_t size = (units / parts + (i < units % parts ? 1 : 0)) * unit;
        uint32_t to = at + size < n ? at + size : n;
        out[i] = (struct plan_range){.first = at, .last = to};
        at = to;
    }
    must(at == n);
}

int plan_make(const struct plan_profile *p, const struct plan_input *in,
              struct plan *ret, struct err *e)
{
    if (in->context > p->axis) {
        return err_set(e, ERR_CONVERT, "a context of %u; profile %s ends at %u",
                       in->context, p->name, p->axis);
    }
    if (in->layer_bytes > p->program_bytes) {
        return err_set(e, ERR_CONVERT,
                       "one layer has %llu bytes of weights; profile %s takes "
                       "%llu a program",
                       (unsigned long long)in->layer_bytes, p->name,
                       (unsigned long long)p->program_bytes);
    }
    uint64_t layers = p->program_bytes / in->layer_bytes;
    if (in->states) {
        layers = num_min(layers, p->states / 2);
    }
    uint64_t rows = num_min(p->program_bytes / in->row_bytes, p->head_rows);
    rows = rows / ROW_UNIT * ROW_UNIT;
    uint64_t heads = rows > 0 ? (in->vocab + rows - 1) / rows : UINT64_MAX;
    uint64_t shards = (in->n_layers + layers - 1) / layers;
    if (heads > SHARDS_MAX || shards > SHARDS_MAX) {
        return err_set(e, ERR_CONVERT, "more than %u programs", SHARDS_MAX);
    }
    ret->n_shards = (uint32_t)shards;
    ret->n_heads = (uint32_t)heads;
    divide(in->n_layers, ret->n_shards, 1, ret->shards);
    divide(in->vocab, ret->n_heads, ROW_UNIT, ret->heads);
    return 0;
}
