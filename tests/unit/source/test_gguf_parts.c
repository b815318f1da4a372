/* Split models: names, what belongs together, and that the parts are one. */
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "../unit.h"
#include "base/file.h"
#include "gguf_make.h"

enum { PARTS = 3, TENSORS = 2 };

/* The sound file of gguf_make.h in three parts, on disk and in memory. */
struct split {
    struct buf whole;
    struct gguf *g; /* of whole */
    struct buf part[PARTS];
    char dir[32];
    char path[PARTS][96];
};

static void make_split(struct split *s)
{
    struct err e = {0};
    make_sound(&s->whole);
    unit_ok(gguf_open_mem(s->whole.p, s->whole.n, &s->g, &e), &e);
    (void)snprintf(s->dir, sizeof(s->dir), "/tmp/aned-test-XXXXXX");
    assert_non_null(mkdtemp(s->dir));
    for (size_t i = 0; i < PARTS; i++) {
        const struct make_says says = {(uint32_t)i, PARTS, TENSORS};
        make_part(&s->part[i], s->g, (const uint8_t *)s->whole.p, i, PARTS,
                  &says);
        must(buf_ok(&s->part[i]));
        (void)snprintf(s->path[i], sizeof(s->path[i]),
                       "%s/m.x-%05zu-of-00003.gguf", s->dir, i + 1);
        unit_ok(file_write(s->path[i], s->part[i].p, s->part[i].n, &e), &e);
    }
}

static void drop_split(struct split *s)
{
    struct err e = {0};
    gguf_close(s->g);
    buf_fini(&s->whole);
    for (size_t i = 0; i < PARTS; i++) {
        buf_fini(&s->part[i]);
    }
    unit_ok(file_rmtree(s->dir, &e), &e);
}

static void reads_names(void **state)
{
    (void)state;
    static const struct {
        const char *path;
        uint32_t no, count; /* 0: no part */
        size_t stem;
    } t[] = {
        {"m-00001-of-00003.gguf",         1,     3,     1 },
        {"/a/b/m.q4-99999-of-99999.gguf", 99999, 99999, 9 },
        {"m-00000-of-00003.gguf",         0,     0,     16},
        {"m-00004-of-00003.gguf",         0,     0,     16},
        {"m-0001-of-0003.gguf",           0,     0,     14},
        {"m-00001-of-00003.GGUF",         0,     0,     21},
        {"m-00001-of-0000a.gguf",         0,     0,     16},
        {"m_00001-of-00003.gguf",         0,     0,     16},
        {"-00001-of-00003.gguf",          0,     0,     15},
        {"/a/-00001-of-00003.gguf",       0,     0,     18},
        {"m.gguf",                        0,     0,     1 },
        {".gguf",                         0,     0,     5 },
        {"",                              0,     0,     0 },
    };
    for (size_t i = 0; i < countof(t); i++) {
        uint32_t no = 0;
        uint32_t count = 0;
        bool is = gguf_part_of(t[i].path, &no, &count);
        assert_int_equal(is, t[i].no != 0);
        if (is) {
            assert_int_equal(no, t[i].no);
            assert_int_equal(count, t[i].count);
        }
        assert_int_equal(gguf_stem(t[i].path), t[i].stem);
    }
}

/* g is the model of s. */
static void check_whole(const struct split *s, const struct gguf *g)
{
    struct err e = {0};
    uint32_t layers = 0;
    assert_int_equal(gguf_n_parts(g), PARTS);
    assert_int_equal(gguf_file_bytes(g),
                     s->part[0].n + s->part[1].n + s->part[2].n);
    assert_int_equal(gguf_n_kv(g), gguf_n_kv(s->g) + 3);
    assert_true(gguf_get_u32(g, "t.block_count", &layers) && layers == 3);
    assert_int_equal(gguf_n_tensors(g), TENSORS);
    for (size_t i = 0; i < TENSORS; i++) {
        const struct gguf_tensor *a = gguf_tensor_at(s->g, i);
        const struct gguf_tensor *b = gguf_tensor_at(g, i);
        float x[2][8];
        assert_string_equal(a->name, b->name);
        assert_ptr_equal(gguf_tensor(g, a->name), b);
        assert_int_equal(a->rows * a->cols, 8);
        unit_ok(gguf_rows(a, 0, a->rows, x[0], &e), &e);
        unit_ok(gguf_rows(b, 0, b->rows, x[1], &e), &e);
        assert_memory_equal(x[0], x[1], sizeof(x[0]));
    }
    unit_ok(gguf_check_unchanged(g, &e), &e);
}

static void is_one_by_any_name(void **state)
{
    (void)state;
    struct split s = {0};
    make_split(&s);
    for (size_t i = 0; i < PARTS; i++) {
        struct gguf *g = NULL;
        struct err e = {0};
        unit_ok(gguf_open(s.path[i], &g, &e), &e);
        check_whole(&s, g);
        for (size_t k = 0; k < PARTS; k++) {
            struct stat of_fd;
            struct stat of_path;
            assert_int_equal(fstat(gguf_part_fd(g, k), &of_fd), 0);
            assert_int_equal(stat(s.path[k], &of_path), 0);
            assert_int_equal(of_fd.st_ino, of_path.st_ino);
        }
        gguf_close(g);
    }
    const struct span bytes[] = {
        {s.part[0].p, s.part[0].n},
        {s.part[1].p, s.part[1].n},
        {s.part[2].p, s.part[2].n}
    };
    struct gguf *g = NULL;
    struct err e = {0};
    unit_ok(gguf_open_mems(bytes, PARTS, &g, &e), &e);
    check_whole(&s, g);
    assert_int_equal(gguf_part_fd(g, 2), -1);
    gguf_close(g);
    drop_split(&s);
}

/* Descriptors survive that the files lose their names: a sandbox. */
static void reads_what_was_opened_before(void **state)
{
    (void)state;
    struct split s = {0};
    struct gguf_parts p;
    struct gguf *g = NULL;
    struct err e = {0};
    make_split(&s);
    int fd = open(s.path[1], O_RDONLY | O_CLOEXEC);
    assert_true(fd >= 0);
    unit_ok(gguf_parts_open(s.path[1], fd, &p, &e), &e);
    assert_int_equal(close(fd), 0);
    assert_int_equal(p.n, PARTS);
    assert_int_equal(p.named, 1);
    for (size_t i = 0; i < PARTS; i++) {
        assert_int_equal(unlink(s.path[i]), 0);
    }
    unit_ok(gguf_open_parts(&p, &g, &e), &e);
    gguf_parts_close(&p);
    check_whole(&s, g);
    gguf_close(g);
    drop_split(&s);
}

static void names_the_part_that_is_missing(void **state)
{
    (void)state;
    struct split s = {0};
    char aside[64];
    make_split(&s);
    (void)snprintf(aside, sizeof(aside), "%s/aside", s.dir);
    for (size_t gone = 0; gone < PARTS; gone++) {
        struct gguf *g = NULL;
        struct err e = {0};
        const char *other = s.path[(gone + 1) % PARTS];
        assert_int_equal(rename(s.path[gone], aside), 0);
        assert_int_equal(gguf_open(other, &g, &e), ERR_NOT_FOUND);
        if (strstr(e.msg, s.path[gone]) == NULL) {
            fail_msg("%s", e.msg);
        }
        assert_int_equal(gguf_open(s.path[gone], &g, &e), ERR_NOT_FOUND);
        /* and one that is not sound */
        unit_ok(file_write(s.path[gone], "GGUF", 4, &e), &e);
        assert_int_equal(gguf_open(other, &g, &e), ERR_GGUF_TRUNCATED);
        assert_non_null(strstr(e.msg, s.path[gone]));
        assert_null(g);
        assert_int_equal(rename(aside, s.path[gone]), 0);
    }
    drop_split(&s);
}

/* Each part is sound, but they are not one model. */
static void refuses_strangers(void **state)
{
    (void)state;
    static const struct {
        size_t part; /* what is otherwise; content of.. */
        size_t from; /* ..this part */
        struct make_says says;
        int code;
        const char *word;
    } t[] = {
        {1, 1, {2, 3, 2},          ERR_GGUF_SPLIT,  "part 3 of 3"   },
        {1, 1, {1, 4, 2},          ERR_GGUF_SPLIT,  "part 2 of 4"   },
        {1, 1, {1, 0, 2},          ERR_GGUF_SPLIT,  "part 2 of 0"   },
        {1, 1, {1, 3, 5},          ERR_GGUF_SPLIT,  "5 tensors"     },
        {2, 0, {2, 3, 2},          ERR_GGUF_SPLIT,  "hold 1 tensors"},
        {2, 1, {2, 3, 2},          ERR_GGUF_TENSOR, "'b'"           },
        {0, 1, {0, 3, 2},          ERR_GGUF_SPLIT,  "hold 3 tensors"},
        {0, 0, {0, 129, 2},        ERR_GGUF_SPLIT,  "limit"         },
        {0, 0, {1, 3, 2},          ERR_GGUF_SPLIT,  "-00002-of-"    },
        {0, 0, {0, 2, 2},          ERR_GGUF_SPLIT,  "-of-00002"     },
        {0, 0, {UINT32_MAX, 3, 2}, ERR_GGUF_SPLIT,  "4294967296"    },
    };
    struct split s = {0};
    make_split(&s);
    for (size_t i = 0; i < countof(t); i++) {
        struct buf b;
        struct gguf *g = NULL;
        struct err e = {0};
        make_part(&b, s.g, (const uint8_t *)s.whole.p, t[i].from, PARTS,
                  &t[i].says);
        const char *path = s.path[t[i].part];
        const struct buf *old = &s.part[t[i].part];
        unit_ok(file_write(path, b.p, b.n, &e), &e);
        int rc = gguf_open(s.path[0], &g, &e);
        if (rc != t[i].code || strstr(e.msg, t[i].word) == NULL) {
            fail_msg("row %zu: %s: %s", i, err_name(rc), e.msg);
        }
        assert_null(g);
        unit_ok(file_write(path, old->p, old->n, &e), &e);
        buf_fini(&b);
    }
    struct gguf *g = NULL;
    struct err e = {0};
    assert_int_equal(gguf_open_mem(s.part[0].p, s.part[0].n, &g, &e),
                     ERR_GGUF_SPLIT);
    drop_split(&s);
}

static void refuses_wrong_keys(void **state)
{
    (void)state;
    static const char *const keys[] = {"split.count", "split.no",
                                       "split.tensors.count"};
    for (size_t i = 0; i < countof(keys); i++) {
        struct buf b;
        struct gguf *g = NULL;
        struct err e = {0};
        make_head(&b, 0, 3);
        for (size_t k = 0; k < countof(keys); k++) {
            if (k == i) {
                make_text(&b, keys[k], "2");
            } else {
                make_u32(&b, keys[k], 2);
            }
        }
        assert_int_equal(gguf_open_mem(b.p, b.n, &g, &e), ERR_GGUF_VALUE);
        buf_fini(&b);
        make_head(&b, 0, i == 0 ? 1 : 2);
        make_u32(&b, "split.count", 2);
        if (i > 0) {
            make_u32(&b, keys[i], 0);
        }
        assert_int_equal(gguf_open_mem(b.p, b.n, &g, &e), ERR_GGUF_MISSING);
        buf_fini(&b);
        make_head(&b, 0, 1);
        make_str(&b, keys[i]);
        buf_u32(&b, GGUF_I32);
        buf_u32(&b, (uint32_t)-1);
        assert_int_equal(gguf_open_mem(b.p, b.n, &g, &e), ERR_GGUF_VALUE);
        buf_fini(&b);
    }
}

/* The file decides, not its name. */
static void a_name_alone_is_no_split(void **state)
{
    (void)state;
    struct split s = {0};
    struct gguf *g = NULL;
    struct err e = {0};
    char path[96];
    make_split(&s);
    (void)snprintf(path, sizeof(path), "%s/n-00001-of-00002.gguf", s.dir);
    unit_ok(file_write(path, s.whole.p, s.whole.n, &e), &e);
    unit_ok(gguf_open(path, &g, &e), &e);
    assert_int_equal(gguf_n_parts(g), 1);
    gguf_close(g);
    g = NULL;
    (void)snprintf(path, sizeof(path), "%s/n.gguf", s.dir);
    unit_ok(file_write(path, s.part[1].p, s.part[1].n, &e), &e);
    assert_int_equal(gguf_open(path, &g, &e), ERR_GGUF_SPLIT);
    assert_non_null(strstr(e.msg, "-00002-of-00003.gguf"));
    drop_split(&s);
}

static void sees_a_change_in_any_part(void **state)
{
    (void)state;
    struct split s = {0};
    make_split(&s);
    for (size_t i = 0; i < PARTS; i++) {
        struct gguf *g = NULL;
        struct err e = {0};
        char word[16];
        unit_ok(gguf_open(s.path[0], &g, &e), &e);
        assert_int_equal(truncate(s.path[i], (off_t)s.part[i].n + 1), 0);
        assert_int_equal(gguf_check_unchanged(g, &e), ERR_SOURCE_CHANGED);
        (void)snprintf(word, sizeof(word), "part %zu of 3", i + 1);
        assert_non_null(strstr(e.msg, word));
        gguf_close(g);
        assert_int_equal(truncate(s.path[i], (off_t)s.part[i].n), 0);
    }
    drop_split(&s);
}

/* Every byte of every part changed: any verdict, no crash. */
static void survives_every_changed_byte(void **state)
{
    (void)state;
    struct split s = {0};
    make_split(&s);
    struct span bytes[PARTS];
    for (size_t i = 0; i < PARTS; i++) {
        bytes[i] = (struct span){s.part[i].p, s.part[i].n};
    }
    for (size_t i = 0; i < PARTS; i++) {
        for (size_t k = 0; k < s.part[i].n; k++) {
            static const uint8_t change[] = {1, 0x80, 0xFF};
            for (size_t c = 0; c < countof(change); c++) {
                struct gguf *g = NULL;
                struct err e = {0};
                s.part[i].p[k] = (char)(s.part[i].p[k] ^ (char)change[c]);
                if (gguf_open_mems(bytes, PARTS, &g, &e) == 0) {
                    float y[64];
                    for (size_t j = 0; j < gguf_n_tensors(g); j++) {
                        const struct gguf_tensor *t = gguf_tensor_at(g, j);
                        if (t->cols <= countof(y)) {
                            (void)!gguf_rows(t, t->rows - 1, 1, y, &e);
                        }
                    }
                    gguf_close(g);
                }
                s.part[i].p[k] = (char)(s.part[i].p[k] ^ (char)change[c]);
            }
        }
    }
    drop_split(&s);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(reads_names),
        cmocka_unit_test(is_one_by_any_name),
        cmocka_unit_test(reads_what_was_opened_before),
        cmocka_unit_test(names_the_part_that_is_missing),
        cmocka_unit_test(refuses_strangers),
        cmocka_unit_test(refuses_wrong_keys),
        cmocka_unit_test(a_name_alone_is_no_split),
        cmocka_unit_test(sees_a_change_in_any_part),
        cmocka_unit_test(survives_every_changed_byte),
    };
    return cmocka_run_group_tests_name("gguf_parts", tests, NULL, NULL);
}
