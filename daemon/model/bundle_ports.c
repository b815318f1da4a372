/* bundle_ports.c - keys, values and routers that go from shard to shard.
 *
 * What has to go is known from the layers and their division. The manifest
 * names the ports it goes by, and says no more and no less than that: a
 * program without the port of a layer it reads would run on zeros.
 */
#include <string.h>

#include "model/bundle_impl.h"

static const char *const roles[LAYER_PORTS] = {[PORT_KEYS] = "keys",
                                               [PORT_VALUES] = "values",
                                               [PORT_ROUTER] = "router"};

const char *bundle_port_role(enum layer_port role)
{
    return roles[role];
}

/* --- read, write --- */

static int read_port(struct bundle *b, const struct json *j,
                     struct bundle_port *p, struct err *e)
{
    const char *role = NULL;
    int64_t layer = 0;
    RETERR(bundle_want_str(b, j, "name", BUNDLE_TEXT_MAX, &p->name, e));
    RETERR(json_want_int(j, "layer", true, 0, MODEL_LAYERS_MAX, &layer, e));
    RETERR(json_want_str(j, "role", true, &role, e));
    p->layer = (uint32_t)layer;
    for (size_t i = 0; i < LAYER_PORTS; i++) {
        if (strcmp(role, roles[i]) == 0) {
            p->role = (enum layer_port)i;
            return 0;
        }
    }
    return err_set(e, ERR_INVALID, "role is keys, values or router");
}

static int read_list(struct bundle *b, const struct json *j, const char *key,
                     struct bundle_port **ret, size_t *ret_n, struct err *e)
{
    const struct json *a = json_get(j, key);
    size_t n = a != NULL ? json_count(a) : 0;
    if (a == NULL) {
        return 0;
    }
    const unsigned most = (unsigned)LAYER_PORTS * MODEL_LAYERS_MAX;
    if (json_type(a) != JSON_ARRAY || n > most) {
        return err_set(e, ERR_INVALID, "%s is not an array of at most %u", key,
                       most);
    }
    *ret = arena_array(&b->arena, n > 0 ? n : 1, sizeof(**ret));
    if (*ret == NULL) {
        return err_set(e, ERR_NOMEM, "%s", key);
    }
    for (const struct json *c = json_first(a); c != NULL; c = json_next(c)) {
        int rc = read_port(b, c, &(*ret)[*ret_n], e);
        if (rc < 0) {
            return err_prefix(e, rc, "%s[%zu]", key, *ret_n);
        }
        ++*ret_n;
    }
    return 0;
}

int bundle_read_ports(struct bundle *b, const struct json *j,
                      struct bundle_shard *s, struct err *e)
{
    RETERR(read_list(b, j, "gives", &s->gives, &s->n_gives, e));
    return read_list(b, j, "takes", &s->takes, &s->n_takes, e);
}

static void put_list(struct json *j, const char *key,
                     const struct bundle_port *p, size_t n)
{
    struct json *a = n > 0 ? json_add_array(j, key) : NULL;
    for (size_t i = 0; i < n; i++) {
        struct json *o = json_add_object(a, NULL);
        json_add_str(o, "name", p[i].name);
        json_add_int(o, "layer", p[i].layer);
        json_add_str(o, "role", roles[p[i].role]);
    }
}

void bundle_put_ports(struct json *j, const struct bundle_shard *s)
{
    put_list(j, "gives", s->gives, s->n_gives);
    put_list(j, "takes", s->takes, s->n_takes);
}

/* --- check --- */

static const struct bundle_port *find(const struct bundle_port *p, size_t n,
                                      uint32_t layer, enum layer_port role)
{
    for (size_t i = 0; i < n; i++) {
        if (p[i].layer == layer && p[i].role == role) {
            return &p[i];
        }
    }
    return NULL;
}

/* One list: each port once, by layer and by name. */
static int check_list(const char *path, const struct bundle_port *p, size_t n,
                      struct err *e)
{
    for (size_t i = 0; i < n; i++) {
        if (p[i].name == NULL || p[i].name[0] == '\0' ||
            strlen(p[i].name) >= BUNDLE_TEXT_MAX) {
            return err_set(e, ERR_BUNDLE, "%s: a port has no name", path);
        }
        bool again = find(p, n, p[i].layer, p[i].role) != &p[i];
        for (size_t k = 0; k < i; k++) {
            again = again || strcmp(p[k].name, p[i].name) == 0;
        }
        if (again) {
            return err_set(e, ERR_BUNDLE, "%s: port %s stands there twice",
                           path, p[i].name);
        }
    }
    return 0;
}

/* Is the port one that the shard has to take, or give? */
static bool is_needed(const struct bundle *b, const struct bundle_shard *s,
                      bool takes, uint32_t l, enum layer_port role)
{
    return takes ? l < s->first && layer_port_read_by(b->layers, role, l,
                                                      s->first, s->last)
                 : l >= s->first && l < s->last &&
                       layer_port_read_by(b->layers, role, l, s->last,
                                          b->n_layers);
}

/* What has to be in the list is there, and nothing else. */
static int check_needed(const struct bundle *b, const struct bundle_shard *s,
                        bool takes, struct err *e)
{
    const struct bundle_port *p = takes ? s->takes : s->gives;
    size_t n = takes ? s->n_takes : s->n_gives;
    size_t needed = 0;
    for (uint32_t l = 0; l < b->n_layers; l++) {
        for (unsigned i = 0; i < LAYER_PORTS; i++) {
            enum layer_port role = (enum layer_port)i;
            bool need = is_needed(b, s, takes, l, role);
            needed += need ? 1 : 0;
            if (need && find(p, n, l, role) == NULL) {
                return err_set(e, ERR_BUNDLE, "%s %s no %s of layer %u, which "
                                              "%s reads",
                               s->path, takes ? "takes" : "gives", roles[role],
                               l, takes ? "it" : "a later program");
            }
        }
    }
    return needed == n ? 0
                       : err_set(e, ERR_BUNDLE, "%s %s rows that nobody reads",
                                 s->path, takes ? "takes" : "gives");
}

/* By the earlier shard that has the layer. */
static bool given_before(const struct bundle *b, size_t shard,
                         const struct bundle_port *p)
{
    size_t i = 0;
    while (i < shard && b->shards[i].last <= p->layer) {
        i++;
    }
    const struct bundle_shard *s = &b->shards[i];
    return i < shard && find(s->gives, s->n_gives, p->layer, p->role) != NULL;
}

int bundle_check_ports(const struct bundle *b, struct err *e)
{
    for (size_t i = 0; i < b->n_shards; i++) {
        const struct bundle_shard *s = &b->shards[i];
        RETERR(check_list(s->path, s->gives, s->n_gives, e));
        RETERR(check_list(s->path, s->takes, s->n_takes, e));
        for (size_t k = 0; k < s->n_takes; k++) {
            if (!given_before(b, i, &s->takes[k])) {
                return err_set(e, ERR_BUNDLE,
                               "%s takes %s, the %s of layer %u, which no "
                               "program before it gives",
                               s->path, s->takes[k].name,
                               roles[s->takes[k].role], s->takes[k].layer);
            }
        }
    }
    for (size_t i = 0; i < b->n_shards; i++) {
        RETERR(check_needed(b, &b->shards[i], true, e));
        RETERR(check_needed(b, &b->shards[i], false, e));
    }
    return 0;
}

/* --- hash --- */

static void hash_list(struct sha256 *h, const char *what,
                      const struct bundle_port *p, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        bundle_hash_text(h, "\n%s %s %u %s", what, p[i].name, p[i].layer,
                         roles[p[i].role]);
    }
}

void bundle_hash_ports(struct sha256 *h, const struct bundle_shard *s)
{
    hash_list(h, "gives", s->gives, s->n_gives);
    hash_list(h, "takes", s->takes, s->n_takes);
}
