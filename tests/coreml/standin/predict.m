/* predict.m - one prediction: inputs in, the interpreter, outputs out, and what
 * may not happen meanwhile.
 */
#include <signal.h>
#include <string.h>
#include <unistd.h>

#include "base/half.h"
#include "base/hash.h"
#import "standin.h"

#define HALF_NAN 0x7e00u

/* A value's memory of one prediction, kept for the next one. */
struct slot {
    const char *name;
    int axis; /* of the rows; -1: none */
    char *dense;
    size_t cap;          /* bytes */
    MLMultiArray *array; /* of this prediction: the input, or the backing */
    bool used;           /* si_array_begin was called */
    uint64_t sum;        /* of an input's bytes */
};

struct call {
    size_t n_in, n_out;
    const struct mil_feature **feature_in, **feature_out; /* NULL entries */
    struct slot *in, *out;
    struct run_array *run_in, *run_out;
    int64_t width; /* of this prediction; 0: it has none */
};

/* --- what a model has --- */

static const struct mil_feature *feature(const struct mil_feature *f, size_t n,
                                         const char *name)
{
    for (size_t i = 0; i < n; i++) {
        if (strcmp(f[i].name, name) == 0) {
            return &f[i];
        }
    }
    return NULL;
}

struct call *si_call_new(const struct model *m)
{
    const struct mil_function *f = m->fn;
    size_t n_out = f->body->n_outputs;
    struct call *c = calloc(1, sizeof(*c));
    must(c != NULL);
    c->feature_in = calloc(f->n_inputs + 1, sizeof(struct mil_feature *));
    c->feature_out = calloc(n_out + 1, sizeof(struct mil_feature *));
    c->in = calloc(f->n_inputs + 1, sizeof(*c->in));
    c->out = calloc(n_out + 1, sizeof(*c->out));
    c->run_in = calloc(f->n_inputs + 1, sizeof(*c->run_in));
    c->run_out = calloc(n_out + 1, sizeof(*c->run_out));
    must(c->feature_in != NULL && c->feature_out != NULL && c->in != NULL &&
         c->out != NULL && c->run_in != NULL && c->run_out != NULL);
    for (size_t i = 0; i < f->n_inputs; i++) {
        const struct mil_value *v = f->inputs[i];
        if (!v->type.state) {
            c->feature_in[c->n_in] = feature(f->in, f->n_in, v->name);
            c->in[c->n_in++] = (struct slot){
                .name = v->name, .axis = si_noise_axis(m->program, v, true)};
        }
    }
    for (size_t i = 0; i < n_out; i++) {
        const struct mil_value *v = f->body->outputs[i];
        c->feature_out[c->n_out] = feature(f->out, f->n_out, v->name);
        c->out[c->n_out++] = (struct slot){
            .name = v->name, .axis = si_noise_axis(m->program, v, false)};
    }
    return c;
}

void si_call_free(struct call *c)
{
    if (c == NULL) {
        return;
    }
    for (size_t i = 0; i < c->n_in; i++) {
        free(c->in[i].dense);
    }
    for (size_t i = 0; i < c->n_out; i++) {
        free(c->out[i].dense);
    }
    free(c->feature_in);
    free(c->feature_out);
    free(c->in);
    free(c->out);
    free(c->run_in);
    free(c->run_out);
    free(c);
}

static void reserve(struct slot *s, size_t bytes)
{
    if (bytes > s->cap) {
        s->dense = realloc(s->dense, bytes);
        must(s->dense != NULL);
        s->cap = bytes;
    }
}

static void begin(struct slot *s, MLMultiArray *a, enum pixels_use use)
{
    s->array = [a retain];
    si_array_begin(a, use);
    s->used = true;
}

static void end(struct slot *s)
{
    if (s->used) {
        si_array_end(s->array);
    }
    [s->array release];
    s->array = nil;
    s->used = false;
}

/* --- inputs --- */

static size_t dense_bytes(MLMultiArray *a)
{
    return array_of(a)->count * si_array_element(array_of(a)->dtype);
}

static NSError *take_input(struct call *c, size_t i,
                           id<MLFeatureProvider> input)
{
    NSString *name = [NSString stringWithUTF8String:c->in[i].name];
    MLMultiArray *a = [[input featureValueForName:name] multiArrayValue];
    NSError *why = nil;
    if (a == nil && c->feature_in[i] != NULL && c->feature_in[i]->optional) {
        return si_error(MLModelErrorFeatureType,
                        @"The stand-in does not fill in the optional "
                        @"input %@; give it",
                        name);
    }
    if (a == nil) {
        return si_error(MLModelErrorFeatureType,
                        @"Feature %@ is required but not specified.", name);
    }
    if (c->feature_in[i] != NULL &&
        !si_description_allows(c->feature_in[i], a, &why)) {
        return si_error_because(
            why, MLModelErrorFeatureType,
            @"For input feature '%@', the provided shape %@ is not compatible "
            @"with the model's feature description.",
            name, si_shape_text(array_of(a)->dims, array_of(a)->rank));
    }
    begin(&c->in[i], a, PIXELS_INPUT);
    return nil;
}

static enum mil_dtype mil_of(MLMultiArrayDataType t)
{
    return t == MLMultiArrayDataTypeFloat16   ? MIL_FP16
           : t == MLMultiArrayDataTypeFloat32 ? MIL_FP32
                                              : MIL_INT32;
}

static void gather_input(struct call *c, size_t i)
{
    struct slot *s = &c->in[i];
    const struct array *a = array_of(s->array);
    size_t bytes = dense_bytes(s->array);
    reserve(s, bytes);
    si_array_gather(s->array, s->dense);
    s->sum = hash_bulk(s->dense, bytes);
    c->run_in[i] = (struct run_array){.name = s->name,
                                      .dtype = mil_of(a->dtype),
                                      .rank = a->rank,
                                      .data = s->dense};
    memcpy(c->run_in[i].dims, a->dims, sizeof(a->dims));
    if (c->width == 0 && s->axis >= 0) {
        c->width = a->dims[s->axis];
    }
}

static NSError *take_inputs(struct call *c, id<MLFeatureProvider> input)
{
    c->width = 0;
    for (size_t i = 0; i < c->n_in; i++) {
        NSError *why = take_input(c, i, input);
        if (why != nil) {
            return why;
        }
        gather_input(c, i);
    }
    return nil;
}

/* Nobody has written to them since take_inputs. */
static void check_inputs(struct call *c)
{
    for (size_t i = 0; i < c->n_in; i++) {
        struct slot *s = &c->in[i];
        si_array_gather(s->array, s->dense);
        if (hash_bulk(s->dense, dense_bytes(s->array)) != s->sum) {
            si_rule_broken(RULE_INPUT_CHANGED, "%s has other values at its end",
                           s->name);
        }
    }
}

/* --- output backings --- */

/* An array that is locked, or was an input once, is not taken: CoreML-LLM's
 * docs say so of pixel buffers (facts: ane.md 1.2). */
static bool takes_backing(MLMultiArray *m)
{
    struct array *a = array_of(m);
    if (a->kind == ARRAY_STATE || a->kind == ARRAY_RESULT || a->was_input ||
        a->locked ||
        atomic_load_explicit(&a->use, memory_order_relaxed) != PIXELS_IDLE) {
        return false;
    }
    return a->kind != ARRAY_PIXELS || !si_pixels_locked(a->pixels);
}

static void take_backings(const struct model *m, MLPredictionOptions *options)
{
    struct fault_target t = si_model_target(m);
    NSDictionary *backings = [options outputBackings];
    bool ignored =
        [backings count] > 0 && si_fault_hit(FAULT_BACKINGS_IGNORED, &t, NULL);
    for (size_t i = 0; i < m->call->n_out; i++) {
        struct slot *s = &m->call->out[i];
        NSString *name = [NSString stringWithUTF8String:s->name];
        id a = [backings objectForKey:name];
        if (a == nil) {
            continue;
        }
        if (!ignored && [a isKindOfClass:[MLMultiArray class]] &&
            takes_backing(a)) {
            begin(s, a, PIXELS_BACKING);
        } else {
            si_count_add(COUNT_BACKINGS_IGNORED, 1);
        }
    }
}

/* --- outputs --- */

/* The interpreter's numbers as the declared type, dense. */
static void convert(struct slot *s, const struct run_array *r,
                    MLMultiArrayDataType t, size_t n)
{
    const float *f = r->data;
    reserve(s, n * si_array_element(t));
    for (size_t i = 0; i < n; i++) {
        if (t == MLMultiArrayDataTypeFloat16) {
            uint16_t h = half_from_float(f[i]);
            memcpy(s->dense + i * sizeof(h), &h, sizeof(h));
        } else if (t == MLMultiArrayDataTypeInt32) {
            int32_t v = (int32_t)f[i];
            memcpy(s->dense + i * sizeof(v), &v, sizeof(v));
        } else {
            memcpy(s->dense + i * sizeof(*f), &f[i], sizeof(*f));
        }
    }
}

static void fill_nan(struct slot *s, MLMultiArrayDataType t, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        if (t == MLMultiArrayDataTypeFloat16) {
            uint16_t h = HALF_NAN;
            memcpy(s->dense + i * sizeof(h), &h, sizeof(h));
        } else if (t == MLMultiArrayDataTypeFloat32) {
            float f = half_to_float(HALF_NAN);
            memcpy(s->dense + i * sizeof(f), &f, sizeof(f));
        }
    }
}

static bool fits(MLMultiArray *m, const struct run_array *r,
                 MLMultiArrayDataType t)
{
    const struct array *a = array_of(m);
    return a->dtype == t && a->rank == r->rank &&
           memcmp(a->dims, r->dims, (size_t)a->rank * sizeof(*a->dims)) == 0;
}

/* The output's array: its backing if that fits, else a new one. */
static MLMultiArray *give_output(const struct model *m, size_t i, bool nan,
                                 int64_t noise)
{
    struct call *c = m->call;
    struct slot *s = &c->out[i];
    const struct run_array *r = &c->run_out[i];
    const struct mil_feature *f = c->feature_out[i];
    MLMultiArrayDataType t =
        si_array_dtype(f != NULL ? f->type.dtype : MIL_FP32);
    size_t n = 1;
    for (int k = 0; k < r->rank; k++) {
        n *= (size_t)r->dims[k];
    }
    convert(s, r, t, n);
    if (noise != 0) {
        si_noise_add(s->dense, mil_of(t), s->name, r->dims, r->rank, s->axis,
                     noise);
    }
    if (nan) {
        fill_nan(s, t, n);
    }
    if (s->array != nil && fits(s->array, r, t)) {
        si_count_add(COUNT_BACKINGS_USED, 1);
        si_array_scatter(s->array, s->dense);
        return s->array;
    }
    si_count_add(COUNT_BACKINGS_IGNORED, s->array != nil);
    si_count_add(COUNT_RESULTS_MADE, 1);
    MLMultiArray *a =
        si_array_paged(ARRAY_RESULT, t, r->dims, r->rank, m->neural);
    si_array_scatter(a, s->dense);
    si_pages_protect(array_of(a)->p, PAGES_READ);
    return a;
}

/* --- faults --- */

/* nil, or the NSError that is injected. */
static NSError *predict_faults(const struct model *m,
                               MLPredictionOptions *options)
{
    struct fault_target t = si_model_target(m);
    struct fault_hit hit = {0};
    if (si_fault_hit(FAULT_PREDICT_SLOW, &t, &hit)) {
        si_fault_sleep(hit.ms);
    }
    if (si_fault_hit(FAULT_PREDICT_KILL, &t, NULL)) {
        (void)kill(getpid(), SIGKILL);
    }
    if (si_fault_hit(FAULT_PREDICT_HANG, &t, NULL)) {
        si_hang();
    }
    if (si_fault_hit(FAULT_PREDICT_ABORT, &t, NULL)) {
        si_terminate(@"std::runtime_error: injected in a prediction");
    }
    if (si_fault_hit(FAULT_PREDICT_EXCEPTION, &t, NULL)) {
        [NSException raise:NSGenericException
                    format:@"injected in a prediction"];
    }
    if (si_fault_hit(FAULT_PREDICT_ERROR, &t, NULL) ||
        ([[options outputBackings] count] > 0 &&
         si_fault_hit(FAULT_BACKINGS_REFUSED, &t, NULL))) {
        return si_error(MLModelErrorGeneric,
                        @"Unable to compute the prediction using ML "
                        @"Program. It can be an invalid input data or "
                        @"broken/unsupported model.");
    }
    return nil;
}

/* --- a prediction --- */

static uint64_t shapes_key(const struct call *c)
{
    uint64_t key = 1;
    for (size_t i = 0; i < c->n_in; i++) {
        key = key * 1099511628211u +
              hash_bytes(c->run_in[i].dims,
                         (size_t)c->run_in[i].rank * sizeof(int64_t));
    }
    return key;
}

static NSError *compute(const struct model *m, struct run_state *state,
                        int64_t noise)
{
    struct call *c = m->call;
    struct err e = {0};
    for (size_t i = 0; noise != 0 && i < c->n_in; i++) {
        struct run_array *r = &c->run_in[i];
        si_noise_add(r->data, r->dtype, r->name, r->dims, r->rank,
                     c->in[i].axis, noise);
    }
    for (size_t i = 0; i < c->n_out; i++) {
        c->run_out[i] = (struct run_array){.name = c->out[i].name};
    }
    if (si_run_predict(m->run, state, c->run_in, c->n_in, c->run_out, c->n_out,
                       &e) < 0) {
        return si_error(MLModelErrorGeneric,
                        @"Unable to compute the prediction. %s", e.msg);
    }
    return nil;
}

static NSDictionary *predict(const struct model *m, struct run_state *state,
                             id<MLFeatureProvider> input,
                             MLPredictionOptions *options, NSError **error)
{
    struct call *c = m->call;
    struct fault_conf conf;
    struct fault_target t = si_model_target(m);
    NSError *why = take_inputs(c, input);
    if (why == nil) {
        take_backings(m, options);
        si_fault_conf(&conf);
        si_model_specialise(m, shapes_key(c), conf.shape_ms, conf.cache);
        why = predict_faults(m, options);
    }
    bool noisy = m->neural && conf.width_bits != 0 && c->width != 0 &&
                 c->width != conf.width_bits;
    int64_t noise = noisy ? c->width : 0;
    if (why == nil) {
        why = compute(m, state, noise);
    }
    if (why != nil) {
        return si_fail(error, why);
    }
    bool nan = si_fault_hit(FAULT_PREDICT_NAN, &t, NULL);
    NSMutableDictionary *values = [NSMutableDictionary dictionary];
    for (size_t i = 0; i < c->n_out; i++) {
        MLMultiArray *a = give_output(m, i, nan, noise);
        [values setObject:[MLFeatureValue featureValueWithMultiArray:a]
                   forKey:[NSString stringWithUTF8String:c->out[i].name]];
    }
    check_inputs(c);
    return values;
}

/* nil: the state is none that this model can use. */
static NSError *check_state(const struct model *m, MLState *state)
{
    if (m->fn->n_states > 0 && state == nil) {
        return si_error(MLModelErrorGeneric,
                        @"The model has states, and no state was given");
    }
    return nil;
}

id<MLFeatureProvider> si_model_predict(MLModel *o, id<MLFeatureProvider> input,
                                       MLState *state,
                                       MLPredictionOptions *options,
                                       NSError **error)
{
    struct model *m = model_of(o);
    NSDictionary *values = nil;
    si_count_add(COUNT_PREDICTIONS, 1);
    NSError *why = check_state(m, state);
    if (why != nil) {
        return si_fail(error, why);
    }
    if (atomic_exchange_explicit(&m->busy, true, memory_order_relaxed)) {
        si_rule_broken(RULE_MODEL_THREAD, "two predictions overlap");
    }
    struct run_state *s = state != nil ? si_state_begin(state) : NULL;
    @try {
        values = predict(m, s, input, options, error);
    } @finally {
        for (size_t i = 0; i < m->call->n_in; i++) {
            end(&m->call->in[i]);
        }
        for (size_t i = 0; i < m->call->n_out; i++) {
            end(&m->call->out[i]);
        }
        if (state != nil) {
            si_state_end(state);
        }
        atomic_store_explicit(&m->busy, false, memory_order_relaxed);
    }
    return values != nil ? si_result_provider(values) : nil;
}
