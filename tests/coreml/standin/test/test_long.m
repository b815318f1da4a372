/* Many predictions, states and loads leave nothing behind: no object, no byte,
 * no descriptor. STANDIN_PREDICTIONS sets how many.
 */
#include <dirent.h>
#include <malloc.h>
#include <unistd.h>

#include "base/parse.h"
#include "kit.h"

#define PREDICTIONS 5000
#define SLACK       (256 * 1024) /* bytes that GNUstep's caches may take */

static int open_files(void)
{
    int n = 0;
    DIR *d = opendir("/proc/self/fd");
    assert_non_null(d);
    while (readdir(d) != NULL) {
        n++;
    }
    assert_int_equal(closedir(d), 0);
    return n;
}

struct level {
    int64_t objects, array_bytes, pixel_bytes, state_bytes;
    int files;
    size_t heap;
};

static struct level now(void)
{
    return (struct level){
        .objects = si_count_objects(),
        .array_bytes = si_count_get(COUNT_ARRAY_BYTES),
        .pixel_bytes = si_count_get(COUNT_PIXEL_BYTES),
        .state_bytes = si_count_get(COUNT_STATE_BYTES),
        .files = open_files(),
        .heap = UNIT_SANITIZED ? 0 : mallinfo2().uordblks,
    };
}

static void assert_level(struct level a, struct level b)
{
    assert_int_equal(b.objects, a.objects);
    assert_int_equal(b.array_bytes, a.array_bytes);
    assert_int_equal(b.pixel_bytes, a.pixel_bytes);
    assert_int_equal(b.state_bytes, a.state_bytes);
    assert_int_equal(b.files, a.files);
    if (b.heap > a.heap + SLACK) {
        fail_msg("the heap grew from %zu to %zu", a.heap, b.heap);
    }
}

static uint64_t predictions(void)
{
    const char *s = getenv("STANDIN_PREDICTIONS"); /* NOLINT: one thread */
    uint64_t n = PREDICTIONS;
    assert_true(s == NULL || parse_u64(s, 1u << 30, &n));
    return n;
}

/* As a backend does it: own arrays on pixel buffers, one provider, results in a
 * backing or not, a look into the state now and then. */
static void test_predictions(void **state)
{
    (void)state;
    struct level before = {0};
    uint64_t n = predictions();
    @autoreleasepool {
        int64_t dims[] = {1, 4, 2, 1};
        uint16_t v[8];
        MLModel *m = kit_load(kit_compiled(kit_state, @"state"), nil);
        MLState *s = [[m newState] autorelease];
        MLMultiArray *x = kit_pixels(dims, 4);
        MLMultiArray *y = kit_pixels(dims, 4);
        id<MLFeatureProvider> f = kit_features(@{@"x" : x});
        MLPredictionOptions *o =
            [[[MLPredictionOptions alloc] init] autorelease];
        [kit_x(2, 3) transferToMultiArray:x];
        for (uint64_t i = 0; i < n; i++) {
            @autoreleasepool {
                NSError *error = nil;
                [o setOutputBackings:i % 2 == 0 ? @{@"out" : y} : @{}];
                id r = [m predictionFromFeatures:f
                                      usingState:s
                                         options:o
                                           error:&error];
                assert_non_null(r);
                if (i % 10 == 0) {
                    (void)kit_state_values(s, @"acc", v, 8);
                }
            }
            if (i == n / 10) {
                before = now();
            }
        }
        assert_level(before, now());
        assert_int_equal(si_count_get(COUNT_BACKINGS_IGNORED), 0);
        assert_int_equal(si_count_get(COUNT_BACKINGS_USED), (n + 1) / 2);
    }
    kit_no_objects();
}

/* Errors and exceptions on the way leave nothing either. */
static void test_failures(void **state)
{
    (void)state;
    struct level before = {0};
    @autoreleasepool {
        MLModel *m = kit_load(kit_compiled(kit_state, @"state"), nil);
        MLState *s = [[m newState] autorelease];
        id<MLFeatureProvider> f = kit_features(@{@"x" : kit_x(2, 1)});
        for (int i = 0; i < 400; i++) {
            kit_faults(i % 2 == 0 ? "predict_error = *\n"
                                  : "predict_exception = *\n");
            @autoreleasepool {
                @try {
                    NSError *error = nil;
                    assert_null([m predictionFromFeatures:f
                                               usingState:s
                                                    error:&error]);
                } @catch (NSException *e) {
                    assert_int_equal(i % 2, 1);
                }
            }
            if (i == 40) {
                before = now();
            }
        }
        assert_level(before, now());
        kit_faults("");
    }
    kit_no_objects();
}

static void test_loads(void **state)
{
    (void)state;
    struct level before = {0};
    NSURL *url = nil;
    @autoreleasepool {
        url = [kit_compiled(kit_functions, @"functions") retain];
    }
    for (int i = 0; i < 200; i++) {
        @autoreleasepool {
            MLModel *m = kit_load(url, i % 2 == 0 ? @"t1" : @"t4");
            MLState *s = [[m newState] autorelease];
            NSError *error = nil;
            (void)kit_predict(m, @{@"x" : kit_x(i % 2 == 0 ? 1 : 4, 1)}, s,
                              nil);
            assert_null(kit_try(url, @"none", &error));
        }
        if (i == 20) {
            before = now();
        }
    }
    assert_level(before, now());
    [url release];
    kit_no_objects();
}

int main(int argc, char **argv)
{
    static const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_predictions),
        cmocka_unit_test(test_failures),
        cmocka_unit_test(test_loads),
    };
    return kit_main(argc, argv, tests, countof(tests), NULL, 0);
}
