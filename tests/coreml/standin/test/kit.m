#include "kit.h"

#include <fcntl.h>
#include <signal.h>
#include <spawn.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "../../../unit/mil/example.h"
#include "base/file.h"
#include "base/half.h"

#define CHILD_SECONDS  120 /* then it hangs, and the test fails */
#define SETTLE_SECONDS 30  /* then an object is left, and the test fails */

extern char **environ;

static char dir[256];      /* of this program */
static char program[1024]; /* its path */
static bool owns_dir;

/* --- the program --- */

static void set_up(void)
{
    const char *tmp = getenv("TMPDIR");    /* NOLINT: one thread yet */
    const char *given = getenv("KIT_DIR"); /* NOLINT: set by kit_run */
    if (given != NULL) {
        (void)snprintf(dir, sizeof(dir), "%s", given);
        return;
    }
    (void)snprintf(dir, sizeof(dir), "%s/aned-standin-XXXXXX",
                   tmp != NULL ? tmp : "/tmp");
    must(mkdtemp(dir) != NULL);
    owns_dir = true;
    char path[512];
    must(file_join(path, sizeof(path), dir, "faults"));
    must(setenv("ANED_STANDIN", path, 1) == 0);
    must(setenv("KIT_DIR", dir, 1) == 0);
    must(setenv("TMPDIR", dir, 1) == 0); /* what is compiled lands there */
    kit_faults("");
}

int kit_main(int argc, char **argv, const struct CMUnitTest *tests, size_t n,
             const struct kit_child *children, size_t n_children)
{
    int rc = 0;
    struct err e = {0};
    ssize_t len = readlink("/proc/self/exe", program, sizeof(program) - 1);
    must(len > 0);
    set_up();
    @autoreleasepool {
        if (argc == 3 && strcmp(argv[1], "--child") == 0) {
            for (size_t i = 0; i < n_children; i++) {
                if (strcmp(children[i].name, argv[2]) == 0) {
                    children[i].run();
                    return 0;
                }
            }
            return 64;
        }
        rc = _cmocka_run_group_tests("standin", tests, n, NULL, NULL);
    }
    if (owns_dir) {
        must(file_rmtree(dir, &e) == 0);
    }
    return rc;
}

/* --- children --- */

static pid_t start(const char *name, const char *log)
{
    pid_t pid = 0;
    posix_spawn_file_actions_t a;
    char child[] = "--child";
    char arg[128];
    char *argv[] = {program, child, arg, NULL};
    (void)snprintf(arg, sizeof(arg), "%s", name);
    assert_int_equal(posix_spawn_file_actions_init(&a), 0);
    assert_int_equal(
        posix_spawn_file_actions_addopen(&a, STDERR_FILENO, log,
                                         O_WRONLY | O_CREAT | O_TRUNC, 0600),
        0);
    assert_int_equal(
        posix_spawn_file_actions_adddup2(&a, STDERR_FILENO, STDOUT_FILENO), 0);
    assert_int_equal(posix_spawn(&pid, program, &a, NULL, argv, environ), 0);
    assert_int_equal(posix_spawn_file_actions_destroy(&a), 0);
    return pid;
}

static void read_log(const char *log, struct kit_end *ret)
{
    struct buf b = {0};
    struct err e = {0};
    ret->text[0] = '\0';
    if (file_read(log, 1u << 24, &b, &e) == 0 && b.n > 0) {
        (void)snprintf(ret->text, sizeof(ret->text), "%s", b.p);
    }
    buf_fini(&b);
}

static void nap(void)
{
    (void)nanosleep(&(struct timespec){.tv_nsec = 5000000}, NULL);
}

/* Wait for the end of the child, or for its text. True: it has ended. */
static bool wait_for(pid_t pid, const char *text, const char *log,
                     struct kit_end *ret)
{
    int status = 0;
    for (int i = 0; i < CHILD_SECONDS * 200; i++) {
        pid_t got = waitpid(pid, &status, WNOHANG);
        assert_true(got >= 0);
        if (got == pid) {
            ret->signal = WIFSIGNALED(status) ? WTERMSIG(status) : 0;
            ret->code = WIFEXITED(status) ? WEXITSTATUS(status) : -1;
            read_log(log, ret);
            return true;
        }
        if (text != NULL) {
            read_log(log, ret);
            if (strstr(ret->text, text) != NULL) {
                return false;
            }
        }
        nap();
    }
    (void)kill(pid, SIGKILL);
    (void)waitpid(pid, &status, 0);
    read_log(log, ret);
    fail_msg("a child hangs: %s", ret->text);
    return true;
}

static void log_path(char out[512])
{
    assert_true(file_join(out, 512, dir, "child.log"));
}

void kit_run(const char *name, struct kit_end *ret)
{
    char log[512];
    log_path(log);
    (void)wait_for(start(name, log), NULL, log, ret);
}

void kit_run_until(const char *name, const char *text, struct kit_end *ret)
{
    char log[512];
    int status = 0;
    log_path(log);
    pid_t pid = start(name, log);
    if (wait_for(pid, text, log, ret)) {
        fail_msg("%s ended: %s", name, ret->text);
    }
    for (int i = 0; i < 60; i++) { /* a hang lasts */
        nap();
        assert_int_equal(waitpid(pid, &status, WNOHANG), 0);
    }
    assert_int_equal(kill(pid, SIGKILL), 0);
    assert_int_equal(waitpid(pid, &status, 0), pid);
}

void kit_aborts(const char *name, const char *text)
{
    struct kit_end e;
    kit_run(name, &e);
    if (e.signal != SIGABRT || strstr(e.text, text) == NULL) {
        fail_msg("%s: signal %d, code %d, not '%s': %s", name, e.signal, e.code,
                 text, e.text);
    }
}

void kit_no_objects(void)
{
    for (int i = 0; i < SETTLE_SECONDS * 200 && si_count_objects() != 0; i++) {
        nap();
    }
    if (si_count_objects() != 0) {
        for (int i = 0; i < COUNT_N; i++) {
            print_message("%s: %lld\n", si_count_name((enum count)i),
                          (long long)si_count_get((enum count)i));
        }
        fail_msg("%lld objects are left", (long long)si_count_objects());
    }
}

void kit_faults(const char *text)
{
    char path[512];
    struct err e = {0};
    must(file_join(path, sizeof(path), dir, "faults"));
    must(file_replace(path, text, strlen(text), &e) == 0);
}

NSString *kit_path(NSString *name)
{
    return [[NSString stringWithUTF8String:dir]
        stringByAppendingPathComponent:name];
}

/* --- packages --- */

static const int64_t open_dims[] = {1, 4, MIL_UNKNOWN, 1};
static const int64_t one_dims[] = {1, 4, 1, 1};
static const int64_t four_dims[] = {1, 4, 4, 1};

void kit_plain(struct mil_writer *w)
{
    struct mil_program *p = mil_writer_program(w);
    struct mil_function *f = mil_add_function(p, "main");
    struct mil_value *x =
        mil_add_input(p, f, "x", MIL_FP16, 4, open_dims, 1, 4);
    struct mil_value *d =
        mil_op(p, f, "mul", "d", "x", x, "y", mil_f16(p, f, 2), NULL);
    mil_add_output(
        p, f, mil_op(p, f, "add", "y", "x", d, "y", mil_f16(p, f, 1), NULL));
}

void kit_state(struct mil_writer *w)
{
    example_build(w);
}

/* acc += the sum of x over its rows; y = x + acc. */
static void add_summing(struct mil_program *p, const char *name,
                        const int64_t *dims, bool with_z, bool with_state)
{
    static const int32_t axis[] = {2};
    struct mil_function *f = mil_add_function(p, name);
    struct mil_value *x = mil_add_input(p, f, "x", MIL_FP16, 4, dims, 1, 4);
    if (with_z) {
        struct mil_value *z =
            mil_add_input(p, f, "z", MIL_FP16, 4, one_dims, 1, 1);
        x = mil_op(p, f, "add", "xz", "x", x, "y", z, NULL);
        f->in[1].has_range = with_state; /* our validator asks for it */
        memcpy(f->in[1].lo, one_dims, sizeof(one_dims));
        memcpy(f->in[1].hi, one_dims, sizeof(one_dims));
    }
    if (with_state) {
        struct mil_value *acc = mil_add_state(p, f, "acc", 4, one_dims);
        struct mil_value *s = mil_op(p, f, "reduce_sum", "s", "x", x, "axes",
                                     mil_i32s(p, f, 1, axis), "keep_dims",
                                     mil_bool(p, f, true), NULL);
        struct mil_value *r0 = mil_state_read(p, f, "r0", acc);
        struct mil_value *u = mil_op(p, f, "add", "u", "x", r0, "y", s, NULL);
        struct mil_value *r1 = mil_state_write(p, f, "r1", acc, r0, u);
        x = mil_op(p, f, "add", "sum", "x", x, "y", r1, NULL);
    }
    mil_add_output(
        p, f, mil_op(p, f, "add", "y", "x", x, "y", mil_f16(p, f, 0), NULL));
}

void kit_functions(struct mil_writer *w)
{
    add_summing(mil_writer_program(w), "t1", one_dims, false, true);
    add_summing(mil_writer_program(w), "t4", four_dims, false, true);
}

void kit_mixed(struct mil_writer *w)
{
    add_summing(mil_writer_program(w), "main", open_dims, true, true);
}

void kit_mixed_stateless(struct mil_writer *w)
{
    add_summing(mil_writer_program(w), "main", open_dims, true, false);
}

NSString *kit_package(kit_build *build, NSString *name)
{
    NSString *path = kit_path([name stringByAppendingString:@".mlpackage"]);
    struct mil_writer *w = NULL;
    struct err e = {0};
    if (!file_exists([path UTF8String])) {
        unit_ok(mil_writer_open([path UTF8String], &w, &e), &e);
        build(w);
        unit_ok(mil_writer_finish(w, &e), &e);
    }
    return path;
}

NSURL *kit_compiled(kit_build *build, NSString *name)
{
    NSString *to = kit_path([name stringByAppendingString:@".mlmodelc"]);
    NSURL *url = [NSURL fileURLWithPath:to isDirectory:YES];
    NSURL *package = [NSURL fileURLWithPath:kit_package(build, name)];
    NSError *error = nil;
    if (file_exists([to UTF8String])) {
        return url;
    }
    NSURL *made = [MLModel compileModelAtURL:package error:&error];
    if (made == nil) {
        fail_msg("%s", [[error localizedDescription] UTF8String]);
    }
    assert_int_equal(rename([[made path] UTF8String], [to UTF8String]), 0);
    return url;
}

/* --- models --- */

MLModel *kit_try(NSURL *url, NSString *function, NSError **error)
{
    MLModelConfiguration *c = [[[MLModelConfiguration alloc] init] autorelease];
    [c setComputeUnits:MLComputeUnitsCPUAndNeuralEngine];
    [c setFunctionName:function];
    return [MLModel modelWithContentsOfURL:url configuration:c error:error];
}

MLModel *kit_load(NSURL *url, NSString *function)
{
    NSError *error = nil;
    MLModel *m = kit_try(url, function, &error);
    if (m == nil) {
        fail_msg("%s", [[error localizedDescription] UTF8String]);
    }
    return m;
}

static NSArray *numbers(const int64_t *v, int n)
{
    NSMutableArray *a = [NSMutableArray array];
    for (int i = 0; i < n; i++) {
        [a addObject:[NSNumber numberWithLongLong:v[i]]];
    }
    return a;
}

static float noise(uint32_t *seed)
{
    *seed = *seed * 1664525u + 1013904223u;
    return (float)(*seed >> 8) / 8388608.0f - 1.0f;
}

MLMultiArray *kit_array(const int64_t *dims, int rank, uint32_t seed)
{
    NSError *error = nil;
    MLMultiArray *a =
        [[[MLMultiArray alloc] initWithShape:numbers(dims, rank)
                                    dataType:MLMultiArrayDataTypeFloat16
                                       error:&error] autorelease];
    assert_non_null(a);
    [a getMutableBytesWithHandler:^(void *p, NSInteger size,
                                    NSArray<NSNumber *> *strides) {
      (void)strides;
      uint32_t s = seed;
      for (NSInteger i = 0; i < size / 2; i++) {
          ((uint16_t *)p)[i] = half_from_float(noise(&s));
      }
    }];
    return a;
}

MLMultiArray *kit_x(int64_t t, uint32_t seed)
{
    int64_t dims[] = {1, 4, t, 1};
    return kit_array(dims, 4, seed);
}

MLMultiArray *kit_pixels(const int64_t *dims, int rank)
{
    CVPixelBufferRef p = NULL;
    NSDictionary *attributes =
        @{(id)kCVPixelBufferIOSurfacePropertiesKey : @{}};
    int64_t height = 1;
    for (int i = 0; i < rank - 1; i++) {
        height *= dims[i];
    }
    CVReturn rc = CVPixelBufferCreate(
        NULL, (size_t)dims[rank - 1], (size_t)height,
        kCVPixelFormatType_OneComponent16Half, (CFDictionaryRef)attributes, &p);
    assert_int_equal(rc, kCVReturnSuccess);
    MLMultiArray *a =
        [[MLMultiArray alloc] initWithPixelBuffer:p shape:numbers(dims, rank)];
    CVPixelBufferRelease(p);
    return [a autorelease];
}

id<MLFeatureProvider> kit_features(NSDictionary *arrays)
{
    NSError *error = nil;
    MLDictionaryFeatureProvider *p = [[[MLDictionaryFeatureProvider alloc]
        initWithDictionary:arrays
                     error:&error] autorelease];
    assert_non_null(p);
    return p;
}

id<MLFeatureProvider> kit_predict(MLModel *m, NSDictionary *arrays,
                                  MLState *state, NSDictionary *backings)
{
    NSError *error = nil;
    MLPredictionOptions *o = [[[MLPredictionOptions alloc] init] autorelease];
    if (backings != nil) {
        [o setOutputBackings:backings];
    }
    id<MLFeatureProvider> f = kit_features(arrays);
    id<MLFeatureProvider> r = state != nil ? [m predictionFromFeatures:f
                                                            usingState:state
                                                               options:o
                                                                 error:&error]
                                           : [m predictionFromFeatures:f
                                                               options:o
                                                                 error:&error];
    if (r == nil) {
        fail_msg("%s", [[error localizedDescription] UTF8String]);
    }
    return r;
}

/* Gather by shape and strides, as a caller has to. */
size_t kit_halves(MLMultiArray *a, uint16_t *out, size_t cap)
{
    NSArray<NSNumber *> *shape = [a shape];
    NSArray<NSNumber *> *strides = [a strides];
    size_t n = (size_t)[a count];
    assert_int_equal([a dataType], MLMultiArrayDataTypeFloat16);
    assert_true(n <= cap);
    [a getBytesWithHandler:^(const void *p, NSInteger size) {
      for (size_t i = 0; i < n; i++) {
          size_t at = 0;
          size_t rest = i;
          for (NSUInteger k = [shape count]; k-- > 0;) {
              size_t d = [[shape objectAtIndex:k] unsignedLongValue];
              at += rest % d * [[strides objectAtIndex:k] unsignedLongValue];
              rest /= d;
          }
          assert_true(at < (size_t)size / 2);
          out[i] = ((const uint16_t *)p)[at];
      }
    }];
    return n;
}

size_t kit_output(id<MLFeatureProvider> r, NSString *name, uint16_t *out,
                  size_t cap)
{
    return kit_halves([[r featureValueForName:name] multiArrayValue], out, cap);
}

size_t kit_state_values(MLState *s, NSString *name, uint16_t *out, size_t cap)
{
    __block size_t n = 0;
    [s getMultiArrayForStateNamed:name
                          handler:^(MLMultiArray *a) {
                            n = kit_halves(a, out, cap);
                          }];
    return n;
}
