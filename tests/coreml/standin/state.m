/* state.m - MLState.
 *
 * The values lie in the interpreter's state. A handler gets a copy at an
 * address that no handler had lately, which nobody can read when the handler is
 * over; what it has changed is copied back.
 */
#include <string.h>

#import "standin.h"

struct state_value {
    NSString *name; /* owned */
    int64_t dims[MIL_RANK_MAX];
    int rank;
    size_t n; /* elements */
};

struct state {
    struct run_model *model;    /* a user of it */
    struct run_state *s;        /* owned; NULL without values */
    struct state_value *values; /* owned */
    size_t n_values;
    int64_t bytes;
    pthread_mutex_t lock; /* of what is below */
    bool predicting;
    int handlers; /* running now, all on one thread */
    pthread_t who;
};

@implementation MLState

STANDIN_CLASS(COUNT_STATE, struct state)

static struct state *state_of(MLState *s)
{
    return si_data(s);
}

- (void)dealloc
{
    struct state *s = state_of(self);
    si_count_add(COUNT_STATE, -1);
    for (size_t i = 0; i < s->n_values; i++) {
        [s->values[i].name release];
    }
    free(s->values);
    si_run_state_free(s->s);
    si_run_unref(s->model);
    si_count_add(COUNT_STATE_BYTES, -s->bytes);
    (void)pthread_mutex_destroy(&s->lock);
    [super dealloc];
}

static void enter(struct state *s)
{
    (void)pthread_mutex_lock(&s->lock);
    if (s->predicting) {
        si_rule_broken(RULE_STATE_BUSY, "getMultiArrayForStateNamed");
    }
    if (s->handlers > 0 && !pthread_equal(s->who, pthread_self())) {
        si_rule_broken(RULE_STATE_BUSY, "handlers on two threads");
    }
    s->handlers++;
    s->who = pthread_self();
    (void)pthread_mutex_unlock(&s->lock);
}

static void leave(struct state *s)
{
    (void)pthread_mutex_lock(&s->lock);
    s->handlers--;
    (void)pthread_mutex_unlock(&s->lock);
}

static struct state_value *find(struct state *s, NSString *name)
{
    for (size_t i = 0; i < s->n_values; i++) {
        if ([s->values[i].name isEqualToString:name]) {
            return &s->values[i];
        }
    }
    [NSException raise:NSInvalidArgumentException
                format:@"the model has no state named %@", name];
    return NULL;
}

- (void)getMultiArrayForStateNamed:(NSString *)stateName
                           handler:(void(CF_NOESCAPE ^)(MLMultiArray *buffer))
                                       handler
{
    struct state *s = state_of(self);
    struct state_value *v = find(s, stateName);
    const char *name = [v->name UTF8String];
    struct err e = {0};
    uint16_t *dense = malloc(v->n * sizeof(*dense));
    must(dense != NULL);
    si_count_add(COUNT_HANDLERS, 1);
    enter(s);
    must(si_run_state_read(s->s, name, dense, v->n, &e) == 0);
    MLMultiArray *a = [si_array_paged(ARRAY_STATE, MLMultiArrayDataTypeFloat16,
                                      v->dims, v->rank, true) retain];
    si_array_scatter(a, dense);
    @try {
        handler(a);
    } @finally {
        si_array_gather(a, dense);
        must(si_run_state_write(s->s, name, dense, v->n, &e) == 0);
        si_array_kill(a);
        [a release];
        free(dense);
        leave(s);
    }
}

@end

struct run_state *si_state_begin(MLState *m)
{
    struct state *s = state_of(m);
    (void)pthread_mutex_lock(&s->lock);
    if (s->predicting) {
        si_rule_broken(RULE_STATE_PREDICTION, "two predictions overlap");
    }
    if (s->handlers > 0) {
        si_rule_broken(RULE_STATE_BUSY, "a prediction while a handler runs");
    }
    s->predicting = true;
    (void)pthread_mutex_unlock(&s->lock);
    return s->s;
}

void si_state_end(MLState *m)
{
    struct state *s = state_of(m);
    (void)pthread_mutex_lock(&s->lock);
    s->predicting = false;
    (void)pthread_mutex_unlock(&s->lock);
}

static void describe(struct state_value *v, const struct mil_feature *f)
{
    v->name = [[NSString alloc] initWithUTF8String:f->name];
    v->rank = f->type.rank;
    memcpy(v->dims, f->type.dims, sizeof(v->dims));
    v->n = 1;
    for (int i = 0; i < v->rank; i++) {
        v->n *= (size_t)v->dims[i];
    }
}

MLState *si_state_new(struct run_model *m, const struct mil_function *f)
{
    MLState *o = [[MLState alloc] init];
    struct state *s = state_of(o);
    struct err e = {0};
    must(pthread_mutex_init(&s->lock, NULL) == 0);
    s->model = si_run_ref(m);
    s->values = calloc(f->n_states + 1, sizeof(*s->values));
    must(s->values != NULL);
    s->n_values = f->n_states;
    for (size_t i = 0; i < f->n_states; i++) {
        describe(&s->values[i], &f->states[i]);
        s->bytes += (int64_t)(s->values[i].n * sizeof(uint16_t));
    }
    si_count_add(COUNT_STATE_BYTES, s->bytes);
    if (f->n_states > 0) {
        must(si_run_state_new(m, &s->s, &e) == 0);
    }
    return o;
}
