/* test_cache.c - compiled models on disk: compiled once whoever asks, found
 * again, replaced when the package, the system or the files are others. */
#include <fcntl.h>
#include <pthread.h>
#include <spawn.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "engine/coreml/cache.h"
#include "engine/coreml/system.h"
#include "kit.h"

#define BE (&backend_coreml)

extern char **environ;

static const char *program;
static struct contract cached;
static char folder[300]; /* its cache */

static int set_up(void **state)
{
    (void)state;
    kit_faults("");
    (void)snprintf(folder, sizeof(folder), "%s", kit_path("cache"));
    cached = (struct contract){BE, {.cache = folder}};
    return 0;
}

static int tear_down(void **state)
{
    struct err e = {0};
    (void)state;
    unit_ok(file_rmtree(folder, &e), &e);
    return 0;
}

/* Open, predict, close. Whether it was compiled. */
static bool use(const struct contract *c, const struct pkg *k)
{
    struct backend_model *m = open_pkg(c, k, NULL);
    struct coreml_counts n;
    struct rig r;
    rig_bind(&r, c, m, 2);
    check_plain(&r, 4, 5);
    rig_drop(&r);
    coreml_counts(m, &n);
    BE->close(m);
    return n.compiled;
}

static struct cache_entry entry_of(const struct pkg *k)
{
    struct cache_entry x;
    struct err e = {0};
    unit_ok(cache_entry_init(&x, folder, k->path, system_build(), &e), &e);
    return x;
}

static void has_only(const struct cache_entry *x)
{
    char want[128];
    (void)snprintf(want, sizeof(want), "%s lock source ",
                   strrchr(x->path, '/') + 1);
    assert_string_equal(kit_names(x->dir), want);
}

static void test_kept(void **state)
{
    (void)state;
    struct err e = {0};
    struct buf b;
    struct cache_entry x = entry_of(&pkgs.plain);
    int64_t was = si_count_get(COUNT_COMPILES);
    assert_true(use(&cached, &pkgs.plain));
    for (int i = 0; i < 3; i++) {
        assert_false(use(&cached, &pkgs.plain));
    }
    assert_int_equal(si_count_get(COUNT_COMPILES), was + 1);
    has_only(&x);
    char path[COREML_PATH_MAX + 16];
    assert_true(file_join(path, sizeof(path), x.dir, "source"));
    unit_ok(file_read(path, 4096, &b, &e), &e);
    assert_string_equal(b.p, pkgs.plain.path);
    buf_fini(&b);
}

/* Functions are loaded from one compiled model. */
static void test_functions_share(void **state)
{
    (void)state;
    int64_t was = si_count_get(COUNT_COMPILES);
    const struct contract *of[] = {&cached, &kit_coreml};
    for (size_t i = 0; i < 2; i++) { /* with a cache, and without */
        struct backend_model *a = open_pkg(of[i], &pkgs.kv_t, "t1");
        struct backend_model *b = open_pkg(of[i], &pkgs.kv_t, "t4");
        BE->close(a);
        BE->close(b);
        was++;
        assert_int_equal(si_count_get(COUNT_COMPILES), was);
    }
}

/* What lies there of another build, of an older package, or of a process that
 * was killed. */
static void test_tidied(void **state)
{
    (void)state;
    static const char *const old[] = {"0123456789abcdef.mlmodelc", "part",
                                      "fedcba9876543210.mlmodelc"};
    struct cache_entry x = entry_of(&pkgs.plain);
    struct err e = {0};
    char path[COREML_PATH_MAX + 64];
    for (size_t i = 0; i < countof(old); i++) {
        assert_true(file_join(path, sizeof(path), x.dir, old[i]));
        unit_ok(file_mkdirs(path, 0700, &e), &e);
        assert_true(file_join(path, sizeof(path), path, "model.mil"));
        unit_ok(file_replace(path, "x", 1, &e), &e);
    }
    assert_true(use(&cached, &pkgs.plain));
    has_only(&x);
}

static void test_keys(void **state)
{
    (void)state;
    struct cache_entry a = entry_of(&pkgs.plain);
    struct cache_entry b;
    struct err e = {0};
    char weights[512];
    unit_ok(cache_entry_init(&b, folder, pkgs.plain.path, "another", &e), &e);
    assert_string_equal(a.dir, b.dir);
    assert_string_not_equal(a.path, b.path);
    b = entry_of(&pkgs.kv);
    assert_string_not_equal(a.dir, b.dir);
    /* the package is written again, at the same place */
    assert_true(use(&cached, &pkgs.plain));
    (void)snprintf(weights, sizeof(weights),
                   "%s/Data/com.apple.CoreML/weights/weight.bin",
                   pkgs.plain.path);
    const struct timespec times[2] = {{.tv_sec = 12345}, {.tv_sec = 12345}};
    assert_int_equal(utimensat(AT_FDCWD, weights, times, 0), 0);
    b = entry_of(&pkgs.plain);
    assert_string_equal(a.dir, b.dir);
    assert_string_not_equal(a.path, b.path);
    assert_true(use(&cached, &pkgs.plain));
    has_only(&b);
    assert_int_equal(
        cache_entry_init(&b, folder, "/nowhere.mlpackage", "x", &e),
        ERR_PKG_MISSING);
}

/* What does not load is compiled anew: a damaged entry, one of a system that
 * has changed without another name, a load that fails once. */
static void test_broken(void **state)
{
    (void)state;
    struct cache_entry x = entry_of(&pkgs.plain);
    struct err e = {0};
    char path[COREML_PATH_MAX + 64];
    assert_true(use(&cached, &pkgs.plain));
    assert_true(file_join(path, sizeof(path), x.path, "coremldata.bin"));
    unit_ok(file_replace(path, "x", 1, &e), &e);
    assert_true(use(&cached, &pkgs.plain));
    assert_false(use(&cached, &pkgs.plain));
    kit_faults("os_build = of tomorrow");
    assert_true(use(&cached, &pkgs.plain));
    assert_false(use(&cached, &pkgs.plain));
    kit_faults("os_build = of tomorrow\nload_error = * times=1");
    assert_true(use(&cached, &pkgs.plain));
    kit_faults("os_build = of tomorrow\nload_error = *");
    int64_t was = si_count_get(COUNT_COMPILES);
    struct backend_model *m = NULL;
    assert_int_equal(BE->open(pkgs.plain.path, NULL, &cached.conf, &m, &e),
                     ERR_BACKEND);
    assert_int_equal(si_count_get(COUNT_COMPILES), was + 1); /* once */
    unit_ok(file_rmtree(x.path, &e), &e);
    unit_ok(file_replace(x.path, "a file", 6, &e), &e); /* no folder */
    kit_faults("");
    assert_true(use(&cached, &pkgs.plain));
}

static void test_unwritable(void **state)
{
    (void)state;
    struct backend_model *m = NULL;
    struct err e = {0};
    unit_ok(file_replace(folder, "a file", 6, &e), &e);
    assert_true(BE->open(pkgs.plain.path, NULL, &cached.conf, &m, &e) < 0);
    assert_null(m);
    assert_non_null(strstr(e.msg, folder));
}

/* --- one at a time --- */

static void *open_one(void *arg)
{
    (void)arg;
    (void)use(&cached, &pkgs.plain);
    return NULL;
}

static void test_threads(void **state)
{
    (void)state;
    pthread_t t[4];
    int64_t was = si_count_get(COUNT_COMPILES);
    for (size_t i = 0; i < countof(t); i++) {
        assert_int_equal(pthread_create(&t[i], NULL, open_one, NULL), 0);
    }
    for (size_t i = 0; i < countof(t); i++) {
        assert_int_equal(pthread_join(t[i], NULL), 0);
    }
    assert_int_equal(si_count_get(COUNT_COMPILES), was + 1);
}

/* Another process, which opens the package and says how often it compiled. */
static pid_t start(void)
{
    char *argv[] = {(char *)(uintptr_t)program, (char *)(uintptr_t) "--open",
                    folder, pkgs.plain.path, NULL};
    pid_t pid = -1;
    assert_int_equal(posix_spawn(&pid, program, NULL, NULL, argv, environ), 0);
    return pid;
}

static int open_in_child(char **argv)
{
    struct contract c = {BE, {.cache = argv[2]}};
    struct pkg k = {0};
    (void)snprintf(k.path, sizeof(k.path), "%s", argv[3]);
    return use(&c, &k) ? 1 : 2;
}

static void test_processes(void **state)
{
    (void)state;
    pid_t pid[3];
    int compiled = 0;
    for (size_t i = 0; i < countof(pid); i++) {
        pid[i] = start();
    }
    for (size_t i = 0; i < countof(pid); i++) {
        int status = 0;
        assert_int_equal(waitpid(pid[i], &status, 0), pid[i]);
        assert_true(WIFEXITED(status));
        assert_in_range(WEXITSTATUS(status), 1, 2);
        compiled += WEXITSTATUS(status) == 1;
    }
    assert_int_equal(compiled, 1);
    assert_false(use(&cached, &pkgs.plain));
}

static bool stop(void *ctx)
{
    return ++*(unsigned *)ctx < 3;
}

static void test_cancelled_wait(void **state)
{
    (void)state;
    struct cache_entry x = entry_of(&pkgs.plain);
    const struct backend_watch none = {0};
    unsigned asked = 0;
    struct backend_conf conf = {
        .cache = folder, .watch = {stop, &asked}
    };
    struct backend_model *m = NULL;
    struct err e = {0};
    int fd = -1;
    unit_ok(cache_lock(&x, &none, &fd, &e), &e);
    assert_int_equal(BE->open(pkgs.plain.path, NULL, &conf, &m, &e),
                     ERR_CANCELLED);
    assert_null(m);
    assert_int_equal(asked, 3);
    cache_unlock(fd);
    assert_true(use(&cached, &pkgs.plain));
}

/* The lock's file may be removed while somebody waits for it. */
static bool remove_lock(void *ctx)
{
    int *fd = ctx;
    struct cache_entry x = entry_of(&pkgs.plain);
    struct err e = {0};
    if (*fd >= 0) {
        unit_ok(file_rmtree(x.dir, &e), &e);
        cache_unlock(*fd);
        *fd = -1;
    }
    return true;
}

static void test_lock_removed(void **state)
{
    (void)state;
    struct cache_entry x = entry_of(&pkgs.plain);
    const struct backend_watch none = {0};
    struct err e = {0};
    int held = -1;
    int fd = -1;
    const struct backend_watch watch = {remove_lock, &held};
    unit_ok(cache_lock(&x, &none, &held, &e), &e);
    unit_ok(cache_lock(&x, &watch, &fd, &e), &e);
    char path[COREML_PATH_MAX + 16];
    struct stat a;
    struct stat b;
    assert_true(file_join(path, sizeof(path), x.dir, "lock"));
    assert_int_equal(stat(path, &a), 0);
    assert_int_equal(fstat(fd, &b), 0);
    assert_int_equal(a.st_ino, b.st_ino); /* the file that others see */
    cache_unlock(fd);
}

/* Without a cache nothing stays. */
static void test_temporary(void **state)
{
    (void)state;
    struct backend_model *a = open_pkg(&kit_coreml, &pkgs.plain, NULL);
    struct backend_model *b = open_pkg(&kit_coreml, &pkgs.kv, NULL);
    BE->close(a);
    assert_non_null(strstr(kit_names(kit.tmp), "aned-coreml-"));
    BE->close(b);
    assert_null(strstr(kit_names(kit.tmp), "aned-coreml-"));
    assert_true(use(&kit_coreml, &pkgs.plain));
    assert_null(strstr(kit_names(kit.tmp), "aned-coreml-"));
}

int main(int argc, char **argv)
{
#define TEST(f) cmocka_unit_test_setup_teardown(f, set_up, tear_down)
    const struct CMUnitTest tests[] = {
        TEST(test_kept),           TEST(test_functions_share),
        TEST(test_tidied),         TEST(test_keys),
        TEST(test_broken),         TEST(test_unwritable),
        TEST(test_threads),        TEST(test_processes),
        TEST(test_cancelled_wait), TEST(test_lock_removed),
        TEST(test_temporary),
    };
    kit_start(argv);
    program = argv[0];
    if (argc == 4 && strcmp(argv[1], "--open") == 0) {
        return open_in_child(argv);
    }
    return cmocka_run_group_tests_name("coreml cache", tests, kit_make,
                                       kit_unmake);
}
