/* Compiling, loading, descriptions, predictions, output backings. */
#include <unistd.h>

#include "base/file.h"
#include "base/half.h"
#include "kit.h"

static NSString *text_of(NSArray *a)
{
    return [a componentsJoinedByString:@" "];
}

static void assert_text(NSString *got, const char *expected)
{
    assert_string_equal([got UTF8String], expected);
}

static void assert_says(NSError *e, NSInteger code, const char *part)
{
    assert_non_null(e);
    assert_text([e domain], "com.apple.CoreML");
    const char *text = [[e localizedDescription] UTF8String];
    if ([e code] != code || strstr(text, part) == NULL) {
        fail_msg("code %ld: %s", (long)[e code], text);
    }
}

/* --- compiling --- */

static void test_compile(void **state)
{
    (void)state;
    @autoreleasepool {
        NSError *error = nil;
        NSURL *from =
            [NSURL fileURLWithPath:kit_package(kit_plain, @"compile")];
        NSURL *a = [MLModel compileModelAtURL:from error:&error];
        assert_text([[a path] lastPathComponent], "compile.mlmodelc");
        assert_string_not_equal(
            [[[a path] stringByDeletingLastPathComponent] UTF8String],
            [kit_path(@"") UTF8String]);
        __block NSURL *b = nil;
        __block bool elsewhere = false;
        pthread_t me = pthread_self();
        dispatch_semaphore_t done = dispatch_semaphore_create(0);
        [MLModel compileModelAtURL:from
                 completionHandler:^(NSURL *url, NSError *e) {
                   elsewhere = !pthread_equal(me, pthread_self());
                   assert_null(e);
                   b = [url retain];
                   (void)dispatch_semaphore_signal(done);
                 }];
        (void)dispatch_semaphore_wait(done, DISPATCH_TIME_FOREVER);
        dispatch_release(done);
        assert_true(elsewhere);
        assert_false([[a path] isEqualToString:[b path]]); /* new each time */
        assert_non_null(kit_load(a, nil));
        assert_non_null(kit_load(b, nil));
        [b release];
    }
    kit_no_objects();
}

static void test_compile_fails(void **state)
{
    (void)state;
    @autoreleasepool {
        NSError *error = nil;
        NSURL *nowhere = [NSURL fileURLWithPath:kit_path(@"no.mlpackage")];
        assert_null([MLModel compileModelAtURL:nowhere error:&error]);
        assert_says(error, MLModelErrorGeneric, "Failed to parse the model");
    }
}

/* --- loading --- */

static void test_load(void **state)
{
    (void)state;
    @autoreleasepool {
        NSURL *url = kit_compiled(kit_state, @"state");
        MLModel *m = kit_load(url, nil);
        assert_int_equal([[m configuration] computeUnits],
                         MLComputeUnitsCPUAndNeuralEngine);
        __block MLModel *other = nil;
        dispatch_semaphore_t done = dispatch_semaphore_create(0);
        [MLModel loadContentsOfURL:url
                     configuration:[m configuration]
                 completionHandler:^(MLModel *x, NSError *e) {
                   assert_null(e);
                   other = [x retain];
                   (void)dispatch_semaphore_signal(done);
                 }];
        (void)dispatch_semaphore_wait(done, DISPATCH_TIME_FOREVER);
        dispatch_release(done);
        assert_ptr_not_equal(m, other);
        [other release];
        assert_int_equal([[MLModel availableComputeDevices] count], 3);
    }
    kit_no_objects();
}

static void test_load_fails(void **state)
{
    (void)state;
    @autoreleasepool {
        NSError *error = nil;
        NSURL *package =
            [NSURL fileURLWithPath:kit_package(kit_state, @"state")];
        NSURL *url = kit_compiled(kit_state, @"state");
        assert_null(kit_try(package, nil, &error));
        assert_says(error, MLModelErrorIO, "Unable to load model: file:");
        assert_says(error, MLModelErrorIO, "MLModel.compileModel(at:)");
        assert_null(
            kit_try([NSURL fileURLWithPath:@"/nowhere.mlmodelc"], nil, &error));
        assert_says(error, MLModelErrorIO, "Unable to load model");
        assert_null(kit_try(url, @"decode", &error));
        assert_says(error, MLModelErrorGeneric, "decode");
        kit_faults("os_build = newer\n");
        assert_null(kit_try(url, nil, &error));
        assert_says(error, MLModelErrorGeneric, "error code: -14");
        kit_faults("");
        assert_non_null(kit_load(url, nil));
    }
    kit_no_objects();
}

static void test_description(void **state)
{
    (void)state;
    @autoreleasepool {
        MLModel *m = kit_load(kit_compiled(kit_state, @"state"), nil);
        MLModelDescription *d = [m modelDescription];
        MLFeatureDescription *x =
            [[d inputDescriptionsByName] objectForKey:@"x"];
        assert_int_equal([[d inputDescriptionsByName] count], 1);
        assert_text([x name], "x");
        assert_int_equal([x type], MLFeatureTypeMultiArray);
        assert_false([x isOptional]);
        assert_null([x stateConstraint]);
        MLMultiArrayConstraint *c = [x multiArrayConstraint];
        assert_text(text_of([c shape]), "1 4 8 1");
        assert_int_equal([c dataType], MLMultiArrayDataTypeFloat16);
        MLMultiArrayShapeConstraint *s = [c shapeConstraint];
        assert_int_equal([s type], MLMultiArrayShapeConstraintTypeRange);
        assert_int_equal([[s enumeratedShapes] count], 0);
        NSRange t = [[[s sizeRangeForDimension] objectAtIndex:2] rangeValue];
        assert_int_equal(t.location, 1);
        assert_int_equal(t.location + t.length - 1, 64);
        NSRange four = [[[s sizeRangeForDimension] objectAtIndex:1] rangeValue];
        assert_int_equal(four.location, 4);
        assert_int_equal(four.length, 1);
        assert_non_null([[d outputDescriptionsByName] objectForKey:@"out"]);

        MLFeatureDescription *acc =
            [[d stateDescriptionsByName] objectForKey:@"acc"];
        assert_int_equal([acc type], MLFeatureTypeState);
        assert_null([acc multiArrayConstraint]);
        assert_text(text_of([[acc stateConstraint] bufferShape]), "1 4 1 1");
        assert_int_equal([[acc stateConstraint] dataType],
                         MLMultiArrayDataTypeFloat16);

        assert_true(
            [x isAllowedValue:[MLFeatureValue
                                  featureValueWithMultiArray:kit_x(64, 1)]]);
        assert_false(
            [x isAllowedValue:[MLFeatureValue
                                  featureValueWithMultiArray:kit_x(65, 1)]]);
    }
}

static void test_description_fixed(void **state)
{
    (void)state;
    @autoreleasepool {
        MLModel *m = kit_load(kit_compiled(kit_functions, @"functions"), @"t4");
        MLFeatureDescription *x =
            [[[m modelDescription] inputDescriptionsByName] objectForKey:@"x"];
        MLMultiArrayShapeConstraint *s =
            [[x multiArrayConstraint] shapeConstraint];
        assert_int_equal([s type], MLMultiArrayShapeConstraintTypeEnumerated);
        assert_int_equal([[s enumeratedShapes] count], 1);
        assert_text(text_of([[s enumeratedShapes] objectAtIndex:0]), "1 4 4 1");
        assert_text([[m configuration] functionName], "t4");
    }
}

/* --- predictions --- */

/* What the interpreter says of the package itself. */
static size_t expect(kit_build *build, NSString *name, const char *function,
                     MLMultiArray *x, const char *out, bool fp32, uint16_t *ret)
{
    struct run_model *m = NULL;
    struct run_state *s = NULL;
    struct err e = {0};
    uint16_t values[1024];
    size_t n = 1;
    unit_ok(si_run_open([kit_package(build, name) UTF8String], function, fp32,
                        1, &m, &e),
            &e);
    (void)kit_halves(x, values, countof(values));
    unit_ok(si_run_state_new(m, &s, &e), &e);
    struct run_array in = {
        .name = "x", .dtype = MIL_FP16, .rank = 4, .data = values};
    for (int i = 0; i < 4; i++) {
        in.dims[i] = [[[x shape] objectAtIndex:(NSUInteger)i] longLongValue];
    }
    struct run_array r = {.name = out};
    unit_ok(si_run_predict(m, s, &in, 1, &r, 1, &e), &e);
    for (int i = 0; i < r.rank; i++) {
        n *= (size_t)r.dims[i];
    }
    for (size_t i = 0; i < n; i++) {
        ret[i] = half_from_float(((const float *)r.data)[i]);
    }
    si_run_state_free(s);
    si_run_unref(m);
    return n;
}

static void check_prediction(kit_build *build, NSString *name,
                             NSString *function, int64_t t, NSString *out)
{
    uint16_t want[1024];
    uint16_t got[1024];
    MLModel *m = kit_load(kit_compiled(build, name), function);
    MLState *s = [[m newState] autorelease];
    MLMultiArray *x = kit_x(t, 7);
    id<MLFeatureProvider> r = kit_predict(m, @{@"x" : x}, s, nil);
    size_t n = expect(build, name, [function UTF8String], x, [out UTF8String],
                      false, want);
    assert_int_equal(kit_output(r, out, got, 1024), n);
    assert_memory_equal(got, want, n * sizeof(*got));
}

static void test_same_bits(void **state)
{
    (void)state;
    @autoreleasepool {
        for (int64_t t = 1; t <= 64; t += 9) {
            check_prediction(kit_state, @"state", nil, t, @"out");
        }
        for (int64_t t = 1; t <= 4; t++) {
            check_prediction(kit_plain, @"plain", nil, t, @"y");
        }
        check_prediction(kit_functions, @"functions", nil, 1, @"y");
        check_prediction(kit_functions, @"functions", @"t1", 1, @"y");
        check_prediction(kit_functions, @"functions", @"t4", 4, @"y");
    }
    kit_no_objects();
}

/* In fp32 a sum of many terms is not rounded on its way. */
static void test_arithmetic(void **state)
{
    (void)state;
    @autoreleasepool {
        uint16_t half[1024];
        uint16_t full[1024];
        uint16_t got[1024];
        MLMultiArray *x = kit_x(64, 7);
        size_t n = expect(kit_state, @"state", NULL, x, "out", false, half);
        (void)expect(kit_state, @"state", NULL, x, "out", true, full);
        assert_memory_not_equal(half, full, n * sizeof(*half));
        kit_faults("arith = fp32\n");
        MLModel *m = kit_load(kit_compiled(kit_state, @"state"), nil);
        kit_faults("");
        MLState *s = [[m newState] autorelease];
        (void)kit_output(kit_predict(m, @{@"x" : x}, s, nil), @"out", got,
                         1024);
        assert_memory_equal(got, full, n * sizeof(*got));
    }
}

/* Results on the Neural Engine have rows of 64 bytes, on the CPU none between.
 */
static void test_padding(void **state)
{
    (void)state;
    @autoreleasepool {
        NSError *error = nil;
        NSURL *url = kit_compiled(kit_plain, @"plain");
        MLModel *m = kit_load(url, nil);
        id<MLFeatureProvider> r =
            kit_predict(m, @{@"x" : kit_x(3, 1)}, nil, nil);
        MLMultiArray *y = [[r featureValueForName:@"y"] multiArrayValue];
        assert_text(text_of([y shape]), "1 4 3 1");
        assert_text(text_of([y strides]), "384 96 32 1");
        assert_int_equal([[r featureNames] count], 1);
        assert_null([r featureValueForName:@"x"]);

        MLModelConfiguration *c = [[[m configuration] copy] autorelease];
        [c setComputeUnits:MLComputeUnitsCPUOnly];
        m = [MLModel modelWithContentsOfURL:url configuration:c error:&error];
        r = kit_predict(m, @{@"x" : kit_x(3, 1)}, nil, nil);
        y = [[r featureValueForName:@"y"] multiArrayValue];
        assert_text(text_of([y strides]), "12 3 1 1");
    }
}

static void refuse(MLModel *m, NSDictionary *arrays, MLState *s,
                   const char *why, const char *cause)
{
    NSError *error = nil;
    id<MLFeatureProvider> f = kit_features(arrays);
    MLPredictionOptions *o = [[[MLPredictionOptions alloc] init] autorelease];
    id r = s != nil ? [m predictionFromFeatures:f
                                     usingState:s
                                        options:o
                                          error:&error]
                    : [m predictionFromFeatures:f options:o error:&error];
    assert_null(r);
    assert_non_null(strstr([[error localizedDescription] UTF8String], why));
    if (cause != NULL) {
        NSError *under = [[error userInfo] objectForKey:NSUnderlyingErrorKey];
        assert_non_null(
            strstr([[under localizedDescription] UTF8String], cause));
    }
}

static void test_refusals(void **state)
{
    (void)state;
    @autoreleasepool {
        NSError *error = nil;
        int64_t other[] = {1, 5, 1, 1};
        int64_t flat[] = {4, 1};
        MLModel *plain = kit_load(kit_compiled(kit_plain, @"plain"), nil);
        MLModel *with_state = kit_load(kit_compiled(kit_state, @"state"), nil);
        refuse(plain, @{@"y" : kit_x(1, 1)}, nil,
               "Feature x is required but not specified", NULL);
        refuse(plain, @{@"x" : kit_x(5, 1)}, nil, "For input feature 'x'",
               "(1 x 4 x 5 x 1) does not match");
        refuse(plain, @{@"x" : kit_array(other, 4, 1)}, nil,
               "For input feature 'x'", "does not match");
        refuse(plain, @{@"x" : kit_array(flat, 2, 1)}, nil,
               "For input feature 'x'", "does not match");
        MLMultiArray *f =
            [[[MLMultiArray alloc] initWithShape:[kit_x(1, 1) shape]
                                        dataType:MLMultiArrayDataTypeFloat32
                                           error:&error] autorelease];
        refuse(plain, @{@"x" : f}, nil, "For input feature 'x'", "data type");
        refuse(with_state, @{@"x" : kit_x(1, 1)}, nil, "has states", NULL);
        MLState *empty = [[plain newState] autorelease];
        refuse(with_state, @{@"x" : kit_x(1, 1)}, empty, "needs a state", NULL);
        /* and they go on */
        (void)kit_predict(plain, @{@"x" : kit_x(1, 1)}, nil, nil);
        (void)kit_predict(plain, @{@"x" : kit_x(1, 1)}, empty, nil);
    }
    kit_no_objects();
}

/* --- output backings --- */

static void check_backing(MLModel *m, MLMultiArray *x, MLMultiArray *backing,
                          bool used)
{
    uint16_t want[64];
    uint16_t got[64];
    id<MLFeatureProvider> plain = kit_predict(m, @{@"x" : x}, nil, nil);
    size_t n = kit_output(plain, @"y", want, 64);
    id<MLFeatureProvider> r =
        kit_predict(m, @{@"x" : x}, nil, @{@"y" : backing, @"none" : x});
    MLMultiArray *y = [[r featureValueForName:@"y"] multiArrayValue];
    assert_int_equal(y == backing, used);
    assert_int_equal(kit_halves(y, got, 64), n);
    assert_memory_equal(got, want, n * sizeof(*got));
}

static void test_backings(void **state)
{
    (void)state;
    @autoreleasepool {
        int64_t dims[] = {1, 4, 3, 1};
        int64_t more[] = {1, 4, 4, 1};
        MLModel *m = kit_load(kit_compiled(kit_plain, @"plain"), nil);
        MLMultiArray *x = kit_x(3, 5);
        MLMultiArray *b = kit_pixels(dims, 4);
        check_backing(m, x, b, true);
        check_backing(m, x, b, true); /* again and again */
        check_backing(m, x, kit_array(dims, 4, 1), true);
        check_backing(m, x, kit_pixels(more, 4), false); /* another T */
        check_backing(m, x, x, false);                   /* an input now */

        MLMultiArray *once = kit_pixels(dims, 4);
        (void)kit_predict(m, @{@"x" : once}, nil, nil);
        check_backing(m, x, once, false); /* an input before */

        MLMultiArray *pointed = kit_pixels(dims, 4);
        (void)[pointed dataPointer];
        check_backing(m, x, pointed, false); /* locked for good */

        MLMultiArray *locked = kit_pixels(dims, 4);
        (void)CVPixelBufferLockBaseAddress([locked pixelBuffer], 0);
        check_backing(m, x, locked, false);
        (void)CVPixelBufferUnlockBaseAddress([locked pixelBuffer], 0);
        check_backing(m, x, locked, true);

        kit_faults("backings_ignored = *plain*\n");
        check_backing(m, x, b, false);
        kit_faults("");
        check_backing(m, x, b, true);
    }
    kit_no_objects();
}

int main(int argc, char **argv)
{
    static const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_compile),
        cmocka_unit_test(test_compile_fails),
        cmocka_unit_test(test_load),
        cmocka_unit_test(test_load_fails),
        cmocka_unit_test(test_description),
        cmocka_unit_test(test_description_fixed),
        cmocka_unit_test(test_same_bits),
        cmocka_unit_test(test_arithmetic),
        cmocka_unit_test(test_padding),
        cmocka_unit_test(test_refusals),
        cmocka_unit_test(test_backings),
    };
    return kit_main(argc, argv, tests, countof(tests), NULL, 0);
}
