/* Every fault of the fault file, and the file itself. */
#include <signal.h>
#include <unistd.h>

#include "base/file.h"
#include "base/half.h"
#include "kit.h"

static MLModel *model(void)
{
    return kit_load(kit_compiled(kit_plain, @"plain"), nil);
}

static bool predicts(MLModel *m)
{
    NSError *error = nil;
    MLPredictionOptions *o = [[[MLPredictionOptions alloc] init] autorelease];
    id r = [m predictionFromFeatures:kit_features(@{@"x" : kit_x(2, 1)})
                             options:o
                               error:&error];
    if (r == nil) {
        assert_non_null(strstr([[error localizedDescription] UTF8String],
                               "Unable to compute the prediction"));
    }
    return r != nil;
}

/* --- errors --- */

static void test_load_error(void **state)
{
    (void)state;
    @autoreleasepool {
        NSURL *url = kit_compiled(kit_plain, @"plain");
        NSURL *other = kit_compiled(kit_functions, @"functions");
        NSError *error = nil;
        kit_faults("load_error = *plain.mlmodelc\n");
        assert_null(kit_try(url, nil, &error));
        assert_string_equal([[error domain] UTF8String], "com.apple.CoreML");
        assert_int_equal([error code], 0);
        assert_non_null(strstr([[error localizedDescription] UTF8String],
                               "Failed to build the model execution plan"));
        assert_non_null(strstr([[error localizedDescription] UTF8String],
                               "error code: -14"));
        (void)kit_load(other, @"t1"); /* another model */

        /* by the package that it came from, and by function */
        kit_faults("load_error = */functions.mlpackage function=t4 times=1\n");
        (void)kit_load(url, nil);
        (void)kit_load(other, @"t1");
        (void)kit_load(other, nil);
        assert_null(kit_try(other, @"t4", &error));
        (void)kit_load(other, @"t4"); /* only once */
        kit_faults("");
    }
    kit_no_objects();
}

static void test_compile_error(void **state)
{
    (void)state;
    @autoreleasepool {
        NSError *error = nil;
        NSURL *package =
            [NSURL fileURLWithPath:kit_package(kit_plain, @"plain")];
        kit_faults("compile_error = *plain*\n");
        assert_null([MLModel compileModelAtURL:package error:&error]);
        kit_faults("");
        assert_non_null([MLModel compileModelAtURL:package error:&error]);
    }
}

static void test_predict_error(void **state)
{
    (void)state;
    @autoreleasepool {
        MLModel *m = model();
        assert_true(predicts(m));
        kit_faults("predict_error = * from=3\n"); /* always, from the third */
        assert_true(predicts(m) && predicts(m));
        assert_true(!predicts(m) && !predicts(m) && !predicts(m));
        kit_faults("predict_error = * times=1\n");
        assert_true(!predicts(m) && predicts(m) && predicts(m));
        kit_faults("predict_error = * from=2 times=2 # a comment\n");
        assert_true(predicts(m) && !predicts(m) && !predicts(m));
        assert_true(predicts(m));
        kit_faults("# nothing\n\n");
        assert_true(predicts(m));
    }
    kit_no_objects();
}

static void test_exceptions(void **state)
{
    (void)state;
    @autoreleasepool {
        MLModel *m = model();
        NSString *name = nil;
        kit_faults("predict_exception = *\n");
        @try {
            (void)predicts(m);
        } @catch (NSException *e) {
            name = [e name];
        }
        assert_string_equal([name UTF8String], "NSGenericException");
        kit_faults("load_exception = *\n");
        name = nil;
        @try {
            (void)model();
        } @catch (NSException *e) {
            name = [e name];
        }
        assert_string_equal([name UTF8String], "NSGenericException");
        kit_faults("");
        assert_true(predicts(m));
    }
    kit_no_objects();
}

static void test_nan(void **state)
{
    (void)state;
    @autoreleasepool {
        uint16_t v[64];
        MLModel *m = model();
        int64_t dims[] = {1, 4, 2, 1};
        kit_faults("predict_nan = *plain* times=2\n");
        for (int i = 0; i < 3; i++) {
            NSDictionary *backings =
                i == 1 ? @{@"y" : kit_pixels(dims, 4)} : @{};
            size_t n =
                kit_output(kit_predict(m, @{@"x" : kit_x(2, 1)}, nil, backings),
                           @"y", v, 64);
            for (size_t k = 0; k < n; k++) {
                bool nan = (v[k] & 0x7fffu) > 0x7c00u;
                assert_int_equal(nan, i < 2);
            }
        }
        kit_faults("");
    }
}

/* --- deaths and hangs --- */

static void predict(void)
{
    (void)predicts(model());
}

static void load(void)
{
    (void)fprintf(stderr, "begins\n");
    (void)model();
}

static void load_ahead_of_time(void)
{
    dispatch_semaphore_t done = dispatch_semaphore_create(0);
    MLModelConfiguration *c = [[[MLModelConfiguration alloc] init] autorelease];
    (void)fprintf(stderr, "begins\n");
    [MLModel loadContentsOfURL:kit_compiled(kit_plain, @"plain")
                 configuration:c
             completionHandler:^(MLModel *m, NSError *e) {
               (void)m;
               (void)e;
               (void)dispatch_semaphore_signal(done);
             }];
    (void)dispatch_semaphore_wait(done, DISPATCH_TIME_FOREVER);
    dispatch_release(done);
}

static void predict_loudly(void)
{
    MLModel *m = model();
    (void)fprintf(stderr, "begins\n");
    (void)predicts(m);
}

static void plan_of_package(void)
{
    dispatch_semaphore_t done = dispatch_semaphore_create(0);
    MLModelConfiguration *c = [[[MLModelConfiguration alloc] init] autorelease];
    NSURL *package = [NSURL fileURLWithPath:kit_package(kit_plain, @"plain")];
    [MLComputePlan loadContentsOfURL:package
                       configuration:c
                   completionHandler:^(MLComputePlan *p, NSError *e) {
                     (void)p;
                     (void)e;
                     (void)dispatch_semaphore_signal(done);
                   }];
    (void)dispatch_semaphore_wait(done, DISPATCH_TIME_FOREVER);
}

static void bad_file(void)
{
    kit_faults("predict_eror = *\n");
    (void)model();
}

static void bad_option(void)
{
    kit_faults("predict_error = * form=3\n");
    (void)model();
}

static void bad_setting(void)
{
    kit_faults("arith = bf16\n");
    (void)model();
}

static double seconds(void)
{
    struct timespec t;
    assert_int_equal(clock_gettime(CLOCK_MONOTONIC, &t), 0);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

static double time_of(void (^block)(void))
{
    double from = seconds();
    block();
    return seconds() - from;
}

static void cached(void)
{
    (void)kit_load(kit_compiled(kit_plain, @"cached"), nil);
    _exit(si_count_get(COUNT_SPECIALISED) == 1 ? 11 : 12);
}

static const struct kit_child children[] = {
    {"predict",            predict           },
    {"load",               load              },
    {"load_ahead_of_time", load_ahead_of_time},
    {"predict_loudly",     predict_loudly    },
    {"plan_of_package",    plan_of_package   },
    {"bad_file",           bad_file          },
    {"bad_option",         bad_option        },
    {"bad_setting",        bad_setting       },
    {"cached",             cached            },
};

static void dies(const char *faults, const char *child, int signal)
{
    struct kit_end e;
    kit_faults(faults);
    kit_run(child, &e);
    if (e.signal != signal) {
        fail_msg("%s: signal %d, code %d: %s", faults, e.signal, e.code,
                 e.text);
    }
    kit_faults("");
    kit_run(child, &e); /* without the fault all is well */
    if (e.signal != 0 || e.code != 0) {
        fail_msg("%s: signal %d, code %d: %s", child, e.signal, e.code, e.text);
    }
}

static void test_deaths(void **state)
{
    (void)state;
    dies("predict_kill = *plain*\n", "predict", SIGKILL);
    dies("load_kill = *plain*\n", "load", SIGKILL);
    dies("predict_abort = *plain*\n", "predict", SIGABRT);
    dies("load_abort = *plain*\n", "load", SIGABRT);
    dies("load_kill = *plain*\n", "load_ahead_of_time", SIGKILL);
    kit_faults("predict_abort = *\n");
    kit_aborts("predict", "libc++abi: terminating due to uncaught exception");
    kit_faults("");
    kit_aborts("plan_of_package", "It is not a valid .mlmodelc file");
}

static void test_hangs(void **state)
{
    (void)state;
    struct kit_end e;
    kit_faults("predict_hang = *\n");
    kit_run_until("predict_loudly", "begins", &e);
    kit_faults("load_hang = *\n");
    kit_run_until("load", "begins", &e);
    kit_run_until("load_ahead_of_time", "begins", &e);
    kit_faults("");
}

/* The first process that comes to it, and no other. */
static void test_once(void **state)
{
    (void)state;
    @autoreleasepool {
        struct kit_end e;
        char text[1024];
        (void)snprintf(text, sizeof(text), "predict_kill = * once=%s\n",
                       [kit_path(@"once") UTF8String]);
        kit_faults(text);
        kit_run("predict", &e);
        assert_int_equal(e.signal, SIGKILL);
        for (int i = 0; i < 2; i++) {
            kit_run("predict", &e);
            assert_int_equal(e.signal, 0);
            assert_int_equal(e.code, 0);
        }
        kit_faults("");
    }
}

/* A test does not run without its fault. */
static void test_bad_file(void **state)
{
    (void)state;
    kit_aborts("bad_file", "not understood: predict_eror");
    kit_aborts("bad_option", "not understood: predict_error");
    kit_aborts("bad_setting", "not understood: arith");
    kit_faults("");
}

/* --- slow specialisation --- */

/* A load, and the first prediction of each shape: once in a process. That it
 * takes so long is looked at from below only: a loaded machine is slower. */
static void test_slow(void **state)
{
    (void)state;
    @autoreleasepool {
        kit_faults("load_ms = 300\nshape_ms = 400\n");
        int64_t before = si_count_get(COUNT_SPECIALISED);
        NSURL *url = kit_compiled(kit_plain, @"slow");
        __block MLModel *m = nil;
        assert_true(time_of(^{
                      m = kit_load(url, nil);
                    }) >= 0.3);
        MLMultiArray *one = kit_x(1, 1);
        MLMultiArray *two = kit_x(2, 1);
        assert_true(time_of(^{
                      (void)kit_predict(m, @{@"x" : one}, nil, nil);
                    }) >= 0.4);
        assert_true(time_of(^{
                      (void)kit_predict(m, @{@"x" : two}, nil, nil);
                    }) >= 0.4);
        assert_int_equal(si_count_get(COUNT_SPECIALISED) - before, 3);
        m = kit_load(url, nil);
        (void)kit_predict(m, @{@"x" : one}, nil, nil);
        (void)kit_predict(m, @{@"x" : two}, nil, nil);
        assert_int_equal(si_count_get(COUNT_SPECIALISED) - before, 3);
        kit_faults("");
    }
}

static void test_cache(void **state)
{
    (void)state;
    @autoreleasepool {
        struct kit_end e;
        char text[1024];
        (void)snprintf(text, sizeof(text), "load_ms = 10\ncache = %s\n",
                       [kit_path(@"cache") UTF8String]);
        kit_faults(text);
        kit_run("cached", &e);
        assert_int_equal(e.code, 11);
        assert_true(file_is_dir([kit_path(@"cache") UTF8String]));
        kit_run("cached", &e);
        assert_int_equal(e.code, 12); /* another process, the same cache */
        kit_faults("");
    }
}

/* --- counts --- */

static void test_counts(void **state)
{
    (void)state;
    @autoreleasepool {
        NSString *at = kit_path(@"counts");
        char text[1024];
        struct kit_end e;
        (void)snprintf(text, sizeof(text), "counts = %s\n", [at UTF8String]);
        MLModel *m = model();
        assert_true(predicts(m));
        kit_faults(text);
        assert_true(predicts(m)); /* reads the file */
        NSString *s = [NSString stringWithContentsOfFile:at];
        assert_non_null(strstr([s UTF8String], "MLModel 1\n"));
        assert_non_null(strstr([s UTF8String], "\npredictions "));
        assert_non_null(strstr([s UTF8String], "\nactivities open 0\n"));
        kit_faults("");

        NSString *end = kit_path(@"counts.%p");
        assert_int_equal(setenv("ANED_STANDIN_COUNTS", [end UTF8String], 1), 0);
        kit_run("predict", &e);
        assert_int_equal(unsetenv("ANED_STANDIN_COUNTS"), 0);
        NSArray *files = [[NSFileManager defaultManager]
            directoryContentsAtPath:kit_path(@"")];
        int found = 0;
        for (NSString *f in files) {
            found += [f hasPrefix:@"counts."];
        }
        assert_int_equal(found, 1);
    }
}

int main(int argc, char **argv)
{
    static const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_load_error),
        cmocka_unit_test(test_compile_error),
        cmocka_unit_test(test_predict_error),
        cmocka_unit_test(test_exceptions),
        cmocka_unit_test(test_nan),
        cmocka_unit_test(test_deaths),
        cmocka_unit_test(test_hangs),
        cmocka_unit_test(test_once),
        cmocka_unit_test(test_bad_file),
        cmocka_unit_test(test_slow),
        cmocka_unit_test(test_cache),
        cmocka_unit_test(test_counts),
    };
    return kit_main(argc, argv, tests, countof(tests), children,
                    countof(children));
}
