/* ports.m - the ports of a function.
 *
 * Names, order, shapes and ranges are the package's. Core ML's description has
 * no order, leaves out the shapes of most outputs, and gives a range as an
 * NSRange whose length its readers take in two ways. What it says is held
 * against the package: names, types of elements, ranks.
 */
#include <string.h>

#import "engine/coreml/coreml.h"
#include "engine/port.h"

#define PAD_BYTES 64 /* to which the Neural Engine pads rows */

/* --- from the package --- */

static int make_room(struct backend_model *m, struct err *e)
{
    const struct mil_function *f = m->fn;
    size_t n = f->n_inputs + 1;
    m->in = calloc(n, sizeof(*m->in));
    m->features = calloc(n, sizeof(struct mil_feature *));
    m->states = calloc(n, sizeof(*m->states));
    m->out = calloc(f->body->n_outputs + 1, sizeof(*m->out));
    return m->in != NULL && m->features != NULL && m->states != NULL &&
                   m->out != NULL
               ? 0
               : err_set(e, ERR_NOMEM, "ports");
}

static void add_state(struct backend_model *m, const struct mil_value *v)
{
    const struct mil_type *t = &v->type;
    uint64_t rows = 1;
    for (int i = 0; i + 1 < t->rank; i++) {
        rows *= (uint64_t)t->dims[i];
    }
    uint64_t row = t->rank > 0 ? (uint64_t)t->dims[t->rank - 1] : 1;
    row = (row * sizeof(uint16_t) + PAD_BYTES - 1) / PAD_BYTES * PAD_BYTES;
    m->states[m->n_states++] =
        (struct backend_port){.name = v->name, .type = *t};
    m->state_bytes += rows * row;
}

/* *ret is owned. Errors: MIL_INVALID (a name that is no text). */
static int names_of(const struct backend_port *p, size_t n,
                    NSArray<NSString *> **ret, struct err *e)
{
    NSMutableArray *a = [[NSMutableArray alloc] initWithCapacity:n];
    *ret = a;
    for (size_t i = 0; i < n; i++) {
        NSString *name = [NSString stringWithUTF8String:p[i].name];
        if (name == nil) {
            return err_set(e, ERR_MIL_INVALID, "the name %s is not UTF-8",
                           p[i].name);
        }
        [a addObject:name];
    }
    return 0;
}

static int make_names(struct backend_model *m, struct err *e)
{
    RETERR(names_of(m->in, m->n_in, &m->in_names, e));
    RETERR(names_of(m->out, m->n_out, &m->out_names, e));
    RETERR(names_of(m->states, m->n_states, &m->state_names, e));
    NSMutableDictionary *index = [[NSMutableDictionary alloc] init];
    for (size_t i = 0; i < m->n_in; i++) {
        [index setObject:[NSNumber numberWithUnsignedLong:i]
                  forKey:[m->in_names objectAtIndex:i]];
    }
    m->in_index = index;
    return 0;
}

int ports_make(struct backend_model *m, struct err *e)
{
    const struct mil_function *f = m->fn;
    RETERR(make_room(m, e));
    for (size_t i = 0; i < f->n_inputs; i++) {
        const struct mil_value *v = f->inputs[i];
        if (v->type.state) {
            add_state(m, v);
        } else {
            m->features[m->n_in] = port_feature(f->in, f->n_in, v->name);
            m->in[m->n_in] = port_input(v, m->features[m->n_in]);
            m->n_in++;
        }
    }
    m->n_out = f->body->n_outputs;
    for (size_t i = 0; i < m->n_out; i++) {
        const struct mil_value *v = f->body->outputs[i];
        m->out[i] = (struct backend_port){.name = v->name, .type = v->type};
    }
    m->flexible = port_widths(m->in, m->n_in, &m->t_min, &m->t_max);
    return make_names(m, e);
}

/* --- held against Core ML's description --- */

/* Takes the type of elements from the description. */
static int match(struct backend_port *p, MLFeatureDescription *d,
                 const char *what, struct err *e)
{
    bool state = [d type] == MLFeatureTypeState;
    if (d == nil || (!state && [d type] != MLFeatureTypeMultiArray)) {
        return err_set(e, ERR_BACKEND,
                       "Core ML has no array for the %s %s that the package "
                       "declares; convert it again",
                       what, p->name);
    }
    MLStateConstraint *s = [d stateConstraint];
    MLMultiArrayConstraint *c = [d multiArrayConstraint];
    NSArray *shape = state ? [s bufferShape] : [c shape];
    enum mil_dtype t = memory_dtype(state ? [s dataType] : [c dataType]);
    if (t == MIL_NONE || (state && t != MIL_FP16) ||
        ([shape count] > 0 && [shape count] != (NSUInteger)p->type.rank)) {
        return err_set(e, ERR_BACKEND,
                       "Core ML takes the %s %s for an array of another type "
                       "or rank than the package declares; convert it again",
                       what, p->name);
    }
    p->type.dtype = t;
    return 0;
}

static int match_all(struct backend_port *p, NSArray *names,
                     NSDictionary *described, const char *what, struct err *e)
{
    for (NSUInteger i = 0; i < [names count]; i++) {
        NSString *name = [names objectAtIndex:i];
        RETERR(match(&p[i], [described objectForKey:name], what, e));
    }
    return 0;
}

int ports_match(struct backend_model *m, struct err *e)
{
    MLModelDescription *d = [[m->runner model] modelDescription];
    RETERR(
        match_all(m->in, m->in_names, [d inputDescriptionsByName], "input", e));
    RETERR(match_all(m->out, m->out_names, [d outputDescriptionsByName],
                     "output", e));
    return match_all(m->states, m->state_names, [d stateDescriptionsByName],
                     "state", e);
}

/* --- widths --- */

int64_t ports_width(const struct backend_model *m,
                    struct backend_array *const *in)
{
    int64_t width = 0;
    for (size_t i = 0; i < m->n_in; i++) {
        for (int k = 0; in[i] != NULL && k < m->in[i].type.rank; k++) {
            if (m->in[i].type.dims[k] != MIL_UNKNOWN) {
                continue;
            }
            if (width != 0 && width != in[i]->dims[k]) {
                return -1;
            }
            width = in[i]->dims[k];
        }
    }
    return width;
}

bool ports_shape(const struct mil_type *t, int64_t width, int64_t *dims)
{
    int open = 0;
    for (int i = 0; i < t->rank; i++) {
        dims[i] = t->dims[i];
        if (dims[i] == MIL_UNKNOWN) {
            dims[i] = width;
            open++;
        }
    }
    return open == 0 || (open == 1 && width > 0);
}
