/* The demo model's shards, converted here: the interpreter's bits through every
 * class of the stand-in, and bits that depend on the width.
 */
#include <math.h>
#include <unistd.h>

#include "base/file.h"
#include "base/half.h"
#include "convert/convert.h"
#include "kit.h"
#include "model/bundle.h"

#define VALUES_MAX 65536 /* of one input, output or state of these shards */

static char bundle_dir[512];
static struct bundle *bundle;

static int convert(void **state)
{
    (void)state;
    struct convert_options o;
    struct convert_result r;
    struct err e = {0};
    char source[1024];
    (void)snprintf(source, sizeof(source), "%s/../conf/demo/aned-demo.gguf",
                   unit_tests());
    (void)snprintf(bundle_dir, sizeof(bundle_dir), "%s",
                   [kit_path(@"demo") UTF8String]);
    convert_options_init(&o);
    o.source = source;
    o.out = bundle_dir;
    o.context = 64;
    o.threads = 1;
    if (convert_run(&o, &r, &e) < 0 ||
        bundle_open(bundle_dir, &bundle, &e) < 0) {
        print_error("%s\n", e.msg);
        return -1;
    }
    return 0;
}

static int drop(void **state)
{
    (void)state;
    bundle_close(bundle);
    return 0;
}

static NSURL *compiled(const char *name)
{
    NSString *to = kit_path([NSString stringWithFormat:@"%s.mlmodelc", name]);
    NSURL *url = [NSURL fileURLWithPath:to isDirectory:YES];
    NSURL *from = [NSURL
        fileURLWithPath:[NSString stringWithFormat:@"%s/%s", bundle_dir, name]];
    NSError *error = nil;
    if (!file_exists([to UTF8String])) {
        NSURL *made = [MLModel compileModelAtURL:from error:&error];
        assert_non_null(made);
        assert_int_equal(rename([[made path] UTF8String], [to UTF8String]), 0);
    }
    return url;
}

/* An input's shape for T rows. */
static int shape_for(MLFeatureDescription *d, int64_t t, int64_t *dims)
{
    MLMultiArrayConstraint *c = [d multiArrayConstraint];
    NSArray<NSValue *> *ranges = [[c shapeConstraint] sizeRangeForDimension];
    int rank = 0;
    for (NSNumber *n in [c shape]) {
        NSRange r = [[ranges objectAtIndex:(NSUInteger)rank] rangeValue];
        dims[rank++] = r.length > 1 ? t : [n longLongValue];
    }
    return rank;
}

/* Every input as noise, `same` rows alike where rows are the third dimension.
 */
static NSDictionary *inputs(MLModel *m, int64_t t, uint32_t seed)
{
    NSMutableDictionary *d = [NSMutableDictionary dictionary];
    NSDictionary *in = [[m modelDescription] inputDescriptionsByName];
    for (NSString *name in in) {
        int64_t dims[MIL_RANK_MAX];
        int rank = shape_for([in objectForKey:name], t, dims);
        [d setObject:kit_array(dims, rank, seed++) forKey:name];
    }
    return d;
}

static uint16_t got[VALUES_MAX];
static uint16_t want[VALUES_MAX];

/* The interpreter itself on the package, with the same inputs. */
static void check(const char *package, NSURL *url, int64_t t)
{
    struct run_model *rm = NULL;
    struct run_state *rs = NULL;
    struct run_array in[MIL_RANK_MAX * 2];
    static uint16_t values[MIL_RANK_MAX * 2][VALUES_MAX];
    struct err e = {0};
    char path[1024];
    size_t n = 0;
    MLModel *m = kit_load(url, nil);
    MLState *s = [[m newState] autorelease];
    (void)snprintf(path, sizeof(path), "%s/%s", bundle_dir, package);
    unit_ok(si_run_open(path, NULL, false, 1, &rm, &e), &e);
    unit_ok(si_run_state_new(rm, &rs, &e), &e);
    NSDictionary *arrays = inputs(m, t, 3);
    for (NSString *name in arrays) {
        MLMultiArray *a = [arrays objectForKey:name];
        in[n] = (struct run_array){
            .name = [name UTF8String], .dtype = MIL_FP16, .data = values[n]};
        (void)kit_halves(a, values[n], VALUES_MAX);
        for (NSNumber *d in [a shape]) {
            in[n].dims[in[n].rank++] = [d longLongValue];
        }
        n++;
    }
    NSString *name =
        [[[[m modelDescription] outputDescriptionsByName] allKeys] lastObject];
    for (int step = 0; step < 3; step++) {
        struct run_array out = {.name = [name UTF8String]};
        size_t count =
            kit_output(kit_predict(m, arrays, s, nil), name, got, VALUES_MAX);
        unit_ok(si_run_predict(rm, rs, in, n, &out, 1, &e), &e);
        for (size_t i = 0; i < count; i++) {
            want[i] = half_from_float(((const float *)out.data)[i]);
        }
        assert_memory_equal(got, want, count * sizeof(*got));
    }
    for (NSString *state in [[m modelDescription] stateDescriptionsByName]) {
        size_t count = kit_state_values(s, state, got, VALUES_MAX);
        unit_ok(si_run_state_read(rs, [state UTF8String], want, count, &e), &e);
        assert_memory_equal(got, want, count * sizeof(*got));
    }
    si_run_state_free(rs);
    si_run_unref(rm);
}

static void test_same_bits(void **state)
{
    (void)state;
    @autoreleasepool {
        for (size_t i = 0; i < bundle->n_shards; i++) {
            const char *p = bundle->shards[i].path;
            check(p, compiled(p), bundle->shards[i].t_min);
            check(p, compiled(p), bundle->shards[i].t_max);
        }
        const char *p = bundle->heads[0].path;
        check(p, compiled(p), 1);
        check(p, compiled(p), bundle->heads[0].t_max);
    }
    kit_no_objects();
}

/* --- bits that depend on the width --- */

static MLModel *head(void)
{
    return kit_load(compiled(bundle->heads[0].path), nil);
}

/* Row r of the head's result [1, V, T, 1], of x whose T rows are all alike. */
static size_t row_of(MLModel *m, int64_t t, int64_t r, uint16_t *out)
{
    static uint16_t all[VALUES_MAX];
    NSDictionary *arrays = inputs(m, t, 9);
    MLMultiArray *x = [arrays objectForKey:@"x"];
    [x getMutableBytesWithHandler:^(void *p, NSInteger size,
                                    NSArray<NSNumber *> *strides) {
      (void)strides;
      for (NSInteger i = 0; i < size / 2; i++) {
          ((uint16_t *)p)[i] = half_from_float(sinf((float)(i / (NSInteger)t)));
      }
    }];
    id<MLFeatureProvider> y = kit_predict(m, arrays, nil, nil);
    size_t n = kit_output(y, @"logits", all, VALUES_MAX) / (size_t)t;
    for (size_t i = 0; i < n; i++) {
        out[i] = all[i * (size_t)t + (size_t)r];
    }
    return n;
}

/* How many differ; all only as much as last bits make of it, going through a
 * model. */
static size_t different(const uint16_t *a, const uint16_t *b, size_t n)
{
    size_t d = 0;
    float most = 0;
    for (size_t i = 0; i < n; i++) {
        most = fmaxf(most, fabsf(half_to_float(a[i])));
    }
    for (size_t i = 0; i < n; i++) {
        assert_true(fabsf(half_to_float(a[i]) - half_to_float(b[i])) <
                    0.02f * most);
        d += a[i] != b[i];
    }
    return d;
}

static void test_widths(void **state)
{
    (void)state;
    static uint16_t a[VALUES_MAX];
    static uint16_t b[VALUES_MAX];
    @autoreleasepool {
        MLModel *m = head();
        int64_t t_max = bundle->heads[0].t_max;
        size_t n = row_of(m, t_max, 0, a);
        for (int64_t t = 1; t < t_max;
             t++) { /* without the key: no difference */
            (void)row_of(m, t, 0, b);
            assert_int_equal(different(a, b, n), 0);
        }
        char text[64];
        (void)snprintf(text, sizeof(text), "width_bits = %d\n", (int)t_max);
        kit_faults(text);
        (void)row_of(m, t_max, 0, b);
        assert_int_equal(different(a, b, n), 0); /* the width named there */
        for (int64_t t = 1; t < t_max; t++) {
            (void)row_of(m, t, 0, b);
            assert_true(different(a, b, n) > n / 4);
            static uint16_t c[VALUES_MAX];
            for (int64_t r = 0; r < t; r++) { /* in every place, each time */
                (void)row_of(m, t, r, c);
                assert_int_equal(different(b, c, n), 0);
            }
        }
        kit_faults("");
    }
    kit_no_objects();
}

/* Only the Neural Engine's bits do. */
static void test_widths_cpu(void **state)
{
    (void)state;
    static uint16_t a[VALUES_MAX];
    static uint16_t b[VALUES_MAX];
    @autoreleasepool {
        NSError *error = nil;
        MLModelConfiguration *c =
            [[[MLModelConfiguration alloc] init] autorelease];
        [c setComputeUnits:MLComputeUnitsCPUOnly];
        size_t n = row_of(head(), 1, 0, a);
        kit_faults("width_bits = 4\n");
        MLModel *m =
            [MLModel modelWithContentsOfURL:compiled(bundle->heads[0].path)
                              configuration:c
                                      error:&error];
        (void)row_of(m, 1, 0, b);
        assert_int_equal(different(a, b, n), 0);
        kit_faults("");
    }
    kit_no_objects();
}

/* States depend on the width that wrote them. */
static void test_widths_states(void **state)
{
    (void)state;
    @autoreleasepool {
        NSURL *url = compiled(bundle->shards[0].path);
        MLModel *m = kit_load(url, nil);
        NSString *name = [[[[m modelDescription] stateDescriptionsByName]
            allKeys] lastObject];
        MLState *s = [[m newState] autorelease];
        (void)kit_predict(m, inputs(m, 1, 3), s, nil);
        size_t n = kit_state_values(s, name, want, VALUES_MAX);
        kit_faults("width_bits = 4\n");
        for (int i = 0; i < 2; i++) {
            MLState *other = [[m newState] autorelease];
            (void)kit_predict(m, inputs(m, 1, 3), other, nil);
            assert_int_equal(kit_state_values(other, name, got, VALUES_MAX), n);
            assert_memory_not_equal(got, want, n * sizeof(*got));
            if (i == 1) { /* and on nothing else */
                (void)kit_state_values(s, name, want, VALUES_MAX);
                assert_memory_equal(got, want, n * sizeof(*got));
            }
            s = other;
        }
        kit_faults("");
    }
    kit_no_objects();
}

int main(int argc, char **argv)
{
    static const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(test_same_bits, convert),
        cmocka_unit_test(test_widths),
        cmocka_unit_test(test_widths_cpu),
        cmocka_unit_test_teardown(test_widths_states, drop),
    };
    return kit_main(argc, argv, tests, countof(tests), NULL, 0);
}
