/* predict.m - a prediction, and the first one of a width. */
#include <string.h>

#import "engine/coreml/coreml.h"

@implementation CoreMLRunner

- (instancetype)initWithModel:(MLModel *)aModel
{
    self = [super init];
    if (self != nil) {
        model = [aModel retain];
        must(pthread_mutex_init(&lock, NULL) == 0);
    }
    return self;
}

- (void)dealloc
{
    [model release];
    (void)pthread_mutex_destroy(&lock);
    [super dealloc];
}

- (MLModel *)model
{
    return model;
}

- (int)makeState:(MLState **)ret error:(struct err *)e
{
    int rc = 0;
    (void)pthread_mutex_lock(&lock);
    @try {
        *ret = [model newState];
    } @catch (NSException *x) {
        rc = coreml_raised(e, x, "making a state");
    } @finally {
        (void)pthread_mutex_unlock(&lock);
    }
    return rc;
}

- (int)predict:(id<MLFeatureProvider>)input
         state:(MLState *)state
       options:(MLPredictionOptions *)options
        result:(id<MLFeatureProvider> *)ret
         error:(struct err *)e
{
    NSError *error = nil;
    int rc = 0;
    (void)pthread_mutex_lock(&lock);
    @try {
        if (state != nil) {
            *ret = [model predictionFromFeatures:input
                                      usingState:state
                                         options:options
                                           error:&error];
        } else {
            *ret = [model predictionFromFeatures:input
                                         options:options
                                           error:&error];
        }
        rc = *ret != nil ? 0 : coreml_error(e, error, "the prediction");
    } @catch (NSException *x) {
        rc = coreml_raised(e, x, "the prediction");
    } @finally {
        (void)pthread_mutex_unlock(&lock);
    }
    return rc;
}

@end

/* --- results --- */

/* It came in the array that was prepared for it, or in another one over the
 * same pixel buffer. */
static bool in_place(const struct memory *x, MLMultiArray *a)
{
    return x->array != nil && (a == x->array || (x->pixels != NULL &&
                                                 [a pixelBuffer] == x->pixels));
}

static int check_shape(const struct backend_port *p,
                       const struct backend_array *a, struct err *e)
{
    bool fits = a->dtype == p->type.dtype && a->rank == p->type.rank;
    for (int k = 0; fits && k < a->rank; k++) {
        fits = p->type.dims[k] == MIL_UNKNOWN || p->type.dims[k] == a->dims[k];
    }
    return fits ? 0
                : err_set(e, ERR_MIL_SHAPE,
                          "output %s: Core ML gave another shape or type than "
                          "the package declares",
                          p->name);
}

static int take(struct backend_io *io, size_t i, struct result *r,
                MLMultiArray *a, struct err *e)
{
    memory_drop(&r->moved);
    if (in_place(&r->backing, a)) {
        io->out[i] = r->shape;
        return 0;
    }
    io->m->counts.moved++;
    RETERR(memory_of_result(&r->moved, &io->out[i], a, e));
    io->out[i].own = &r->moved;
    return check_shape(&io->m->out[i], &io->out[i], e);
}

static int take_all(struct binding *b, id<MLFeatureProvider> result,
                    struct err *e)
{
    struct backend_model *m = b->io.m;
    for (size_t i = 0; i < m->n_out; i++) {
        MLMultiArray *a =
            [[result featureValueForName:[m->out_names objectAtIndex:i]]
                multiArrayValue];
        if (a == nil) {
            return err_set(e, ERR_BACKEND, "Core ML gave no output %s",
                           m->out[i].name);
        }
        RETERR(take(&b->io, i, &b->results[i], a, e));
    }
    return 0;
}

/* --- predict --- */

/* The arrays prepared for results make predictions fail; that may have been
 * found out (warm_with) after this binding was made. */
static void without_backings(struct binding *b)
{
    [b->options setOutputBackings:[NSDictionary dictionary]];
    for (size_t i = 0; i < b->io.n_out; i++) {
        memory_drop(&b->results[i].backing);
    }
    b->plain = true;
}

static int run(struct binding *b, struct backend_state *s, struct err *e)
{
    struct backend_model *m = b->io.m;
    id<MLFeatureProvider> result = nil;
    m->counts.predictions++;
    if (m->counts.refused && !b->plain) {
        without_backings(b);
    }
    RETERR([m->runner predict:b->inputs
                        state:m->n_states > 0 ? s->state : nil
                      options:b->options
                       result:&result
                        error:e]);
    @try {
        return take_all(b, result, e);
    } @catch (NSException *x) {
        return coreml_raised(e, x, "taking a result");
    }
}

int coreml_predict(struct backend_io *io, struct backend_state *s,
                   struct err *e)
{
    const struct backend_model *m = io->m;
    if (m->n_states > 0 && s == NULL) {
        return err_set(e, ERR_MIL_INPUT, "the function needs a state");
    }
    if (m->n_states > 0 && !state_fits(s, m)) {
        return err_set(e, ERR_MIL_INPUT, "a state of another package");
    }
    @autoreleasepool {
        return run(container_of(io, struct binding, io), s, e);
    }
}

/* --- warm --- */

/* One prediction on another thread, which may outlive this call. Errors: those
 * of predict, CANCELLED. */
static int run_elsewhere(struct binding *b, MLState *state,
                         MLPredictionOptions *options,
                         const struct backend_watch *watch, struct err *e)
{
    CoreMLRunner *runner = b->io.m->runner;
    CoreMLInputs *inputs = b->inputs;
    CoreMLAnswer *answer = [[[CoreMLAnswer alloc] init] autorelease];
    dispatch_queue_t queue =
        dispatch_queue_create("dev.aned.warm", DISPATCH_QUEUE_SERIAL);
    id result = nil;
    dispatch_async(queue, ^{
      @autoreleasepool {
          struct err why = {0};
          id<MLFeatureProvider> r = nil;
          int rc = [runner predict:inputs
                             state:state
                           options:options
                            result:&r
                             error:&why];
          if (rc == 0) {
              (void)[answer giveValue:(id)r error:nil];
          } else {
              (void)[answer giveFailure:&why];
          }
      }
    });
    dispatch_release(queue);
    return [answer take:&result watch:watch what:"the prediction" error:e];
}

/* When it fails, the arrays prepared for results may be why: a second try goes
 * without them. They are given up when that works, and it fails again with
 * them. */
static int warm_with(struct binding *b, MLState *state,
                     const struct backend_watch *watch, struct err *e)
{
    struct err again = {0};
    MLPredictionOptions *none =
        [[[MLPredictionOptions alloc] init] autorelease];
    int rc = run_elsewhere(b, state, b->options, watch, e);
    if (rc == 0 || rc == ERR_CANCELLED ||
        [[b->options outputBackings] count] == 0 ||
        run_elsewhere(b, state, none, watch, &again) < 0) {
        return rc;
    }
    rc = run_elsewhere(b, state, b->options, watch, e);
    if (rc < 0 && rc != ERR_CANCELLED) {
        b->io.m->counts.refused = true;
        rc = 0;
    }
    return rc;
}

static int warm_binding(struct backend_model *m, struct backend_array **in,
                        uint32_t t, const struct backend_watch *watch,
                        struct err *e)
{
    struct backend_io *io = NULL;
    MLState *state = nil;
    int rc = 0;
    for (size_t i = 0; i < m->n_in; i++) {
        const struct mil_type *type = &m->in[i].type;
        int64_t dims[MIL_RANK_MAX];
        if (!ports_shape(type, t, dims)) {
            return err_set(e, ERR_MIL_INPUT,
                           "input %s has more than one open dimension",
                           m->in[i].name);
        }
        RETERR(
            coreml_array_new(m, i, type->dtype, type->rank, dims, &in[i], e));
    }
    RETERR(coreml_bind(m, in, &io, e));
    if (m->n_states > 0) {
        rc = [m->runner makeState:&state error:e];
    }
    if (rc == 0) {
        rc = warm_with(container_of(io, struct binding, io), state, watch, e);
    }
    [state release];
    coreml_unbind(io);
    return rc;
}

int coreml_warm(struct backend_model *m, uint32_t t,
                const struct backend_watch *watch, struct err *e)
{
    struct backend_array **in =
        calloc(m->n_in + 1, sizeof(struct backend_array *));
    int rc = 0;
    if (in == NULL) {
        return err_set(e, ERR_NOMEM, "inputs");
    }
    @autoreleasepool {
        rc = warm_binding(m, in, t, watch, e);
    }
    for (size_t i = 0; i < m->n_in; i++) {
        coreml_array_free(in[i]);
    }
    free(in);
    return rc;
}
