/* file and npy: bounded reads, atomic writes, trees, arrays. */
#include <fcntl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "../unit.h"
#include "base/file.h"
#include "base/hash.h"
#include "base/npy.h"

static char dir[64];

static const char *at(const char *name)
{
    static char path[4][128];
    static int turn;
    char *p = path[turn++ % 4];
    (void)snprintf(p, 128, "%s/%s", dir, name);
    return p;
}

static void reads_are_bounded(void **state)
{
    (void)state;
    struct err e = {0};
    struct buf b;
    unit_ok(file_write(at("f"), "hello", 5, &e), &e);
    unit_ok(file_read(at("f"), 5, &b, &e), &e);
    assert_string_equal(b.p, "hello");
    buf_fini(&b);
    assert_int_equal(file_read(at("f"), 4, &b, &e), ERR_TOO_BIG);
    assert_int_equal(file_read(at("none"), 4, &b, &e), ERR_NOT_FOUND);
    assert_int_equal(file_read(dir, 4, &b, &e), ERR_INVALID);
    assert_int_equal(mkfifo(at("fifo"), 0600), 0);
    assert_int_equal(file_read(at("fifo"), 4, &b, &e), ERR_INVALID);
    unit_ok(file_write(at("empty"), NULL, 0, &e), &e);
    unit_ok(file_read(at("empty"), 4, &b, &e), &e);
    assert_string_equal(b.p, "");
    buf_fini(&b);
}

static void writes_replace_whole_files(void **state)
{
    (void)state;
    struct err e = {0};
    struct buf b;
    unit_ok(file_write(at("w"), "old", 3, &e), &e);
    unit_ok(file_write(at("w"), "new!", 4, &e), &e);
    unit_ok(file_read(at("w"), 100, &b, &e), &e);
    assert_string_equal(b.p, "new!");
    buf_fini(&b);
    assert_int_equal(file_write(at("no/such/folder"), "x", 1, &e),
                     ERR_NOT_FOUND);
    struct stat st;
    assert_int_equal(stat(at("w"), &st), 0);
    assert_int_equal(st.st_mode & 0777, 0600);
}

static void a_stamp_tells_trees_apart(void **state)
{
    (void)state;
    struct err e = {0};
    unit_ok(file_mkdirs(at("s/t"), 0700, &e), &e);
    unit_ok(file_write(at("s/t/f"), "12345", 5, &e), &e);
    unit_ok(file_write(at("s/g"), "12345", 5, &e), &e);
    uint64_t was = file_tree_stamp(at("s"));
    assert_int_equal(file_tree_stamp(at("s")), was);
    const struct timespec old[2] = {{.tv_sec = 5}, {.tv_sec = 5}};
    assert_int_equal(utimensat(AT_FDCWD, at("s/g"), old, 0), 0);
    uint64_t touched = file_tree_stamp(at("s"));
    assert_int_not_equal(touched, was);
    assert_int_equal(rename(at("s/g"), at("s/h")), 0);
    uint64_t renamed = file_tree_stamp(at("s"));
    assert_int_not_equal(renamed, touched);
    assert_int_equal(unlink(at("s/h")), 0);
    assert_int_not_equal(file_tree_stamp(at("s")), renamed);
    unit_ok(file_rmtree(at("s"), &e), &e);
    assert_int_equal(file_tree_stamp(at("s")), 0);
}

static void trees_are_made_published_and_removed(void **state)
{
    (void)state;
    struct err e = {0};
    unit_ok(file_mkdirs(at("a/b/c"), 0700, &e), &e);
    unit_ok(file_mkdirs(at("a/b/c"), 0700, &e), &e);
    unit_ok(file_write(at("a/b/c/f"), "12345", 5, &e), &e);
    unit_ok(file_write(at("keep"), "123", 3, &e), &e);
    assert_int_equal(symlink(at("keep"), at("a/b/link")), 0);
    assert_int_equal(file_tree_bytes(at("a")), 5); /* links do not count */
    assert_int_equal(file_mkdirs(at("keep/x"), 0700, &e), ERR_IO);
    assert_int_equal(unlink(at("a/b/link")), 0);
    unit_ok(file_publish_dir(at("a"), at("z"), &e), &e);
    assert_false(file_exists(at("a")));
    unit_ok(file_mkdirs(at("a"), 0700, &e), &e);
    assert_int_equal(file_publish_dir(at("a"), at("z"), &e), ERR_EXISTS);
    assert_int_equal(symlink(at("keep"), at("z/b/link")), 0);
    unit_ok(file_rmtree(at("z"), &e), &e);
    unit_ok(file_rmtree(at("z"), &e), &e);
    assert_false(file_exists(at("z")));
    assert_true(file_exists(at("keep"))); /* never through a link */
}

static void names_that_may_become_folders(void **state)
{
    (void)state;
    static const char *const good[] = {"a", "gemma-3-270m", "Q4_K.v2", "0"};
    static const char *const bad[] = {"",    ".",    "..", ".a",  "a/b",
                                      "a b", "a..b", "-a", "a\n", "\xc3\xa9"};
    for (size_t i = 0; i < countof(good); i++) {
        assert_true(file_name_ok(good[i]));
    }
    for (size_t i = 0; i < countof(bad); i++) {
        assert_false(file_name_ok(bad[i]));
    }
    char longest[130];
    memset(longest, 'a', sizeof(longest));
    longest[128] = '\0';
    assert_true(file_name_ok(longest));
    longest[128] = 'a';
    longest[129] = '\0';
    assert_false(file_name_ok(longest));
}

static void paths_that_stay_inside(void **state)
{
    (void)state;
    static const char *const good[] = {"a", "a/b", "a.b/..c/...", ".a/b."};
    static const char *const bad[] = {"",     "/",     "/a",   "a/",   "a//b",
                                      ".",    "..",    "./a",  "../a", "a/.",
                                      "a/..", "a/../b", "a/./b"};
    for (size_t i = 0; i < countof(good); i++) {
        assert_true(file_path_ok(good[i]));
    }
    for (size_t i = 0; i < countof(bad); i++) {
        assert_false(file_path_ok(bad[i]));
    }
}

/* A pipe takes a part at a time, and /dev/full nothing. */
static void folders_of_paths(void **state)
{
    (void)state;
    static const struct {
        const char *path, *folder;
    } t[] = {
        {"b",     "."  },
        {"/b",    "/"  },
        {"a/b",   "a"  },
        {"/a/b",  "/a" },
        {"a/b/c", "a/b"},
    };
    char out[16];
    for (size_t i = 0; i < countof(t); i++) {
        file_parent(t[i].path, out, sizeof(out));
        assert_string_equal(out, t[i].folder);
    }
    file_parent("/abc/d", out, 4); /* cut, and ended */
    assert_string_equal(out, "/ab");
}

static void all_is_put_or_it_is_an_error(void **state)
{
    (void)state;
    enum { N = 1 << 20 };
    struct err e = {0};
    int fd[2];
    char *p = calloc(1, N);
    assert_non_null(p);
    assert_int_equal(pipe(fd), 0);
    pid_t reader = fork();
    if (reader == 0) {
        size_t got = 0;
        ssize_t k = 0;
        (void)close(fd[1]);
        while ((k = read(fd[0], p, 1000)) > 0) {
            got += (size_t)k;
        }
        _exit(got == N ? 0 : 1);
    }
    (void)close(fd[0]);
    assert_int_equal(file_put(fd[1], p, N, FILE_HERE, "pipe", &e), 0);
    (void)close(fd[1]);
    int status = -1;
    assert_int_equal(waitpid(reader, &status, 0), reader);
    assert_int_equal(status, 0);
    int full = open("/dev/full", O_WRONLY | O_CLOEXEC);
    if (full >= 0) { /* Linux has it */
        assert_int_equal(file_put(full, p, 10, FILE_HERE, "full", &e),
                         ERR_NO_SPACE);
        (void)close(full);
    }
    free(p);
}

static void arrays_survive(void **state)
{
    (void)state;
    struct err e = {0};
    struct npy a;
    static const float f[6] = {1, 2, 3, 4, 5, 6.5F};
    static const int64_t dims[2] = {2, 3};
    unit_ok(npy_write(at("x.npy"), NPY_F32, 2, dims, f, &e), &e);
    unit_ok(npy_read(at("x.npy"), 1000, &a, &e), &e);
    assert_int_equal(a.rank, 2);
    assert_int_equal(a.dims[1], 3);
    assert_int_equal(a.count, 6);
    assert_memory_equal(a.data, f, sizeof(f));
    npy_fini(&a);
    assert_int_equal(npy_read(at("x.npy"), 23, &a, &e), ERR_TOO_BIG);
    unit_ok(npy_write(at("s.npy"), NPY_I32, 0, NULL, "\1\0\0\0", &e), &e);
    unit_ok(npy_read(at("s.npy"), 1000, &a, &e), &e);
    assert_int_equal(a.rank, 0);
    assert_int_equal(a.count, 1);
    npy_fini(&a);
}

static void put(const char *name, const char *dict, size_t data)
{
    struct err e = {0};
    struct buf b;
    buf_init(&b, 1 << 16);
    buf_put(&b, "\x93NUMPY\x01\x00", 8);
    buf_u16(&b, (uint16_t)strlen(dict));
    buf_puts(&b, dict);
    for (size_t i = 0; i < data; i++) {
        buf_u8(&b, 0);
    }
    unit_ok(file_write(at(name), b.p, b.n, &e), &e);
    buf_fini(&b);
}

static void broken_arrays_are_refused(void **state)
{
    (void)state;
    static const struct {
        const char *dict;
        size_t data;
    } t[] = {
        {"{'descr': '<f4', 'fortran_order': True, 'shape': (1,), }",   4},
        {"{'descr': '>f4', 'fortran_order': False, 'shape': (1,), }",  4},
        {"{'descr': '<c8', 'fortran_order': False, 'shape': (1,), }",  8},
        {"{'descr': '<f4', 'fortran_order': False, 'shape': (2,), }",  4},
        {"{'descr': '<f4', 'fortran_order': False, 'shape': (1,), }",  8},
        {"{'descr': '<f4', 'fortran_order': False, 'shape': (-1,), }", 4},
        {"{'descr': '<f4', 'fortran_order': False, 'shape': "
         "(1,1,1,1,1,1,1,1,1), }",                            4},
        {"{'descr': '<f4', 'fortran_order': False, 'shape': "
         "(4294967296,4294967296,4294967296), }",             0},
        {"{'descr': '<f4', 'fortran_order': False, 'shape': (1",       4},
        {"",                                                           0},
    };
    struct npy a;
    struct err e = {0};
    for (size_t i = 0; i < countof(t); i++) {
        put("bad.npy", t[i].dict, t[i].data);
        assert_int_equal(npy_read(at("bad.npy"), 1000, &a, &e), ERR_NPY);
    }
    unit_ok(file_write(at("bad.npy"), "\x93NUMPY\x01\x00\xff\xff", 10, &e), &e);
    assert_int_equal(npy_read(at("bad.npy"), 1000, &a, &e), ERR_NPY);
}

static void files_are_hashed(void **state)
{
    (void)state;
    struct err e = {0};
    char hex[SHA256_HEX];
    uint64_t n = 0;
    unit_ok(file_write(at("abc"), "abc", 3, &e), &e);
    unit_ok(sha256_file(at("abc"), hex, &n, &e), &e);
    assert_int_equal(n, 3);
    assert_string_equal(
        hex,
        "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
    assert_int_equal(sha256_file(dir, hex, &n, &e), ERR_INVALID);
}

static int make_dir(void **state)
{
    (void)state;
    (void)snprintf(dir, sizeof(dir), "/tmp/aned-unit-XXXXXX");
    return mkdtemp(dir) != NULL ? 0 : -1;
}

static int drop_dir(void **state)
{
    (void)state;
    return file_rmtree(dir, NULL);
}

/* Sizes around the large pages that maps ask for. */
static void maps_hold_what_was_written(void **state)
{
    (void)state;
    static const size_t sizes[] = {1,        4096,           (2u << 20) - 1,
                                   2u << 20, (2u << 20) + 1, (5u << 20) + 4097};
    struct err e = {0};
    unsigned char *p = malloc(6u << 20);
    assert_non_null(p);
    for (size_t i = 0; i < (6u << 20); i++) {
        p[i] = (unsigned char)(i * 2654435761u >> 13);
    }
    for (size_t i = 0; i < countof(sizes); i++) {
        struct file_map m[2] = {{0}};
        unit_ok(file_write(at("map"), p, sizes[i], &e), &e);
        unit_ok(file_map(at("map"), &m[0], &e), &e);
        unit_ok(file_repage(at("map"), &e), &e); /* also while it is mapped */
        unit_ok(file_map(at("map"), &m[1], &e), &e);
        for (size_t k = 0; k < 2; k++) {
            assert_int_equal(m[k].n, sizes[i]);
            assert_memory_equal(m[k].p, p, sizes[i]);
            file_unmap(&m[k]);
            assert_null(m[k].p);
        }
    }
    free(p);
    assert_int_equal(file_repage(at("none"), &e), ERR_NOT_FOUND);
    assert_int_equal(file_repage(dir, &e), ERR_INVALID);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(reads_are_bounded),
        cmocka_unit_test(writes_replace_whole_files),
        cmocka_unit_test(maps_hold_what_was_written),
        cmocka_unit_test(a_stamp_tells_trees_apart),
        cmocka_unit_test(trees_are_made_published_and_removed),
        cmocka_unit_test(names_that_may_become_folders),
        cmocka_unit_test(paths_that_stay_inside),
        cmocka_unit_test(folders_of_paths),
        cmocka_unit_test(all_is_put_or_it_is_an_error),
        cmocka_unit_test(arrays_survive),
        cmocka_unit_test(broken_arrays_are_refused),
        cmocka_unit_test(files_are_hashed),
    };
    return cmocka_run_group_tests(tests, make_dir, drop_dir);
}
