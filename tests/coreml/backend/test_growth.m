/* test_growth.m - very many predictions: no object, byte or descriptor more at
 * the end, and none of them allocates outside of Core ML's own calls, neither
 * in our code nor in Foundation on its behalf.
 *
 *     test_coreml_growth [PREDICTIONS]
 *
 * malloc and its family are replaced by ones that count, but for sanitizers,
 * which do that themselves. While Core ML's methods run nothing is counted,
 * but for what it calls of ours.
 */
#include <malloc.h>
#include <objc/runtime.h>

#include "../../unit/engine/converted.h"
#import "engine/coreml/coreml.h"
#include "kit.h"

#define SMOKE 5000

static unsigned long predictions = SMOKE;

/* --- counting --- */

/* volatile: the compiler knows malloc, and that it looks at none of these. */
static _Thread_local volatile bool counting;
static _Thread_local volatile int inside; /* Core ML */
static _Thread_local volatile unsigned long allocated;

#if !UNIT_SANITIZED
static void count_one(void)
{
    allocated += counting && inside == 0;
}

void *__libc_malloc(size_t n);
void *__libc_calloc(size_t n, size_t size);
void *__libc_realloc(void *p, size_t n);
void *__libc_memalign(size_t align, size_t n);

void *malloc(size_t n)
{
    count_one();
    return __libc_malloc(n);
}

void *calloc(size_t n, size_t size)
{
    count_one();
    return __libc_calloc(n, size);
}

void *realloc(void *p, size_t n)
{
    count_one();
    return __libc_realloc(p, n);
}

void *memalign(size_t align, size_t n)
{
    count_one();
    return __libc_memalign(align, n);
}

int posix_memalign(void **ret, size_t align, size_t n)
{
    count_one();
    *ret = __libc_memalign(align, n);
    return *ret != NULL ? 0 : 12; /* ENOMEM */
}

void *aligned_alloc(size_t align, size_t n)
{
    count_one();
    return __libc_memalign(align, n);
}
#endif

typedef id<MLFeatureProvider> predict_fn(id, SEL, id, MLPredictionOptions *,
                                         NSError **);
typedef id<MLFeatureProvider>
predict_state_fn(id, SEL, id, MLState *, MLPredictionOptions *, NSError **);
typedef MLFeatureValue *value_fn(id, SEL, NSString *);

static predict_fn *predict_own;
static predict_state_fn *predict_state_own;
static value_fn *value_own;
static unsigned long asked; /* for an input */

static id<MLFeatureProvider> predict(id self, SEL name, id input,
                                     MLPredictionOptions *options,
                                     NSError **error)
{
    inside++;
    id r = predict_own(self, name, input, options, error);
    inside--;
    return r;
}

static id<MLFeatureProvider> predict_state(id self, SEL name, id input,
                                           MLState *state,
                                           MLPredictionOptions *options,
                                           NSError **error)
{
    inside++;
    id r = predict_state_own(self, name, input, state, options, error);
    inside--;
    return r;
}

static MLFeatureValue *value(id self, SEL name, NSString *feature)
{
    int was = inside;
    inside = 0;
    asked++;
    MLFeatureValue *v = value_own(self, name, feature);
    inside = was;
    return v;
}

static IMP put_before(Class class, SEL name, IMP with)
{
    Method m = class_getInstanceMethod(class, name);
    assert_non_null(m);
    return method_setImplementation(m, with);
}

static int set_up(void **state)
{
    predict_own = (predict_fn *)put_before(
        [MLModel class], @selector(predictionFromFeatures:options:error:),
        (IMP)predict);
    predict_state_own = (predict_state_fn *)put_before(
        [MLModel class],
        @selector(predictionFromFeatures:usingState:options:error:),
        (IMP)predict_state);
    value_own = (value_fn *)put_before(
        [CoreMLInputs class], @selector(featureValueForName:), (IMP)value);
    return kit_make(state);
}

static void *volatile sink;

/* The counter counts: our malloc, and Foundation's for us. */
static void test_counts(void **state)
{
    (void)state;
    if (UNIT_SANITIZED) {
        skip();
    }
    @autoreleasepool {
        allocated = 0;
        counting = true;
        sink = malloc(10);
        counting = false;
        assert_int_equal(allocated, 1);
        free(sink);
        counting = true;
        sink = [[NSMutableArray alloc] init];
        counting = false;
        assert_true(allocated > 1);
        [(id)sink release];
    }
}

/* --- predictions --- */

static size_t heap(void)
{
    if (UNIT_SANITIZED) {
        return 0;
    }
    struct mallinfo2 m = mallinfo2();
    return m.uordblks + m.hblkhd;
}

/* One prediction of each, the host's part of it included. */
static void turn(struct rig *plain, struct backend_array *const *x,
                 struct rig *kv, struct backend_state *s, uint32_t i)
{
    struct err e = {0};
    const struct backend *be = &backend_coreml;
    rig_store(kv, i, i * 3 % (CONTRACT_S - 4), (uint32_t)kv->t);
    counting = true;
    be->rebind(plain->io, plain->x, x[i % 2]);
    int rc = be->predict(plain->io, NULL, &e);
    rc = rc == 0 ? be->lock(&plain->io->out[0], false, &e) : rc;
    if (rc == 0) {
        be->unlock(&plain->io->out[0], false);
        rc = be->predict(kv->io, s, &e);
    }
    counting = false;
    unit_ok(rc, &e);
}

static void test_predictions(void **state)
{
    (void)state;
    struct backend_model *a = open_pkg(&kit_coreml, &pkgs.plain, NULL);
    struct backend_model *b = open_pkg(&kit_coreml, &pkgs.kv, NULL);
    struct backend_state *s = new_state(&kit_coreml, b);
    struct rig plain;
    struct rig kv[CONTRACT_T];
    struct coreml_counts n;
    rig_bind(&plain, &kit_coreml, a, 3);
    struct backend_array *x[2] = {
        plain.in[plain.x],
        new_array(&kit_coreml, a, plain.x, 4, plain.in[plain.x]->dims)};
    for (int64_t t = 1; t <= CONTRACT_T; t++) {
        rig_bind(&kv[t - 1], &kit_coreml, b, t);
    }
    allocated = 0;
    asked = 0;
    struct kit_left before = {0};
    size_t bytes = 0;
    for (uint32_t i = 0; i < predictions / 2; i++) {
        turn(&plain, x, &kv[i % CONTRACT_T], s, i);
        if (i == 99) { /* caches are full */
            before = kit_count();
            bytes = heap();
            allocated = 0;
        }
    }
    assert_int_equal(allocated, 0);
    assert_true(heap() <= bytes + 65536);
    kit_same(before);
    check_sums(&kv[(predictions / 2 - 1) % CONTRACT_T], s);
    assert_true(asked >= predictions); /* our object was asked */
    coreml_counts(a, &n);
    assert_int_equal(n.moved, 0);
    coreml_counts(b, &n);
    assert_int_equal(n.moved, 0);
    print_message("# %lu predictions, %ld objects, %ld bytes, %zu descriptors, "
                  "heap %+ld\n",
                  predictions, (long)before.objects, (long)before.bytes,
                  before.fds, (long)heap() - (long)bytes);
    backend_coreml.array_free(x[1]);
    plain.in[plain.x] = x[0];
    rig_drop(&plain);
    for (int64_t t = 0; t < CONTRACT_T; t++) {
        rig_drop(&kv[t]);
    }
    backend_coreml.state_free(s);
    backend_coreml.close(a);
    backend_coreml.close(b);
}

/* --- the engine's tokens --- */

static void test_tokens(void **state)
{
    (void)state;
    static const char *const kv[] = {"state", "host"};
    const struct engine_conf conf = {.threads = 1, .backend = "coreml"};
    struct err e = {0};
    for (size_t i = 0; i < countof(kv); i++) {
        char out[400];
        const float *logits = NULL;
        struct engine_seq *s = NULL;
        (void)snprintf(out, sizeof(out), "%s-%s", kit_path("bundle"), kv[i]);
        struct engine *g =
            converted_open(converted_demo(), out, NULL, NULL, kv[i], &conf);
        unit_ok(engine_seq_open(g, &s, &e), &e);
        for (int32_t t = 5; t < 60; t++) {
            counting = t > 6;
            int rc = engine_eval(s, &t, 1, 0, 1, &logits, NULL, &e);
            counting = false;
            unit_ok(rc, &e);
            if (t == 6) {
                allocated = 0;
            }
        }
        assert_int_equal(allocated, 0);
        engine_seq_close(s);
        engine_close(g);
    }
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_counts),
        cmocka_unit_test(test_predictions),
        cmocka_unit_test(test_tokens),
    };
    kit_start(argv);
    if (argc > 1) {
        predictions = strtoul(argv[1], NULL, 10);
    }
    if (predictions < 1000) {
        (void)fprintf(stderr, "at least 1000 predictions\n");
        return 64;
    }
    return cmocka_run_group_tests_name("coreml growth", tests, set_up,
                                       kit_unmake);
}
