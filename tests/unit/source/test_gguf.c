/* gguf_open on sound and broken files: each fault has one stable name. */
#include <fcntl.h>
#include <pthread.h>
#include <sys/stat.h>
#include <unistd.h>

#include "../unit.h"
#include "base/file.h"
#include "gguf_make.h"

static int open_buf(struct buf *b, struct gguf **g, struct err *e)
{
    must(buf_ok(b));
    return gguf_open_mem(b->p, b->n, g, e);
}

/* b must be refused with `code`; b is freed. */
static void refuse(struct buf *b, int code)
{
    struct gguf *g = NULL;
    struct err e = {0};
    int rc = open_buf(b, &g, &e);
    if (rc != code) {
        fail_msg("wanted %s, got %s: %s", err_name(code),
                 rc == 0 ? "success" : err_name(rc), e.msg);
    }
    assert_null(g);
    assert_int_equal(e.code, code);
    buf_fini(b);
}

static void reads_what_is_there(void **state)
{
    (void)state;
    struct buf b;
    struct gguf *g = NULL;
    struct err e = {0};
    make_sound(&b);
    unit_ok(open_buf(&b, &g, &e), &e);
    assert_int_equal(gguf_version(g), 3);
    assert_int_equal(gguf_n_kv(g), 5);
    assert_int_equal(gguf_file_bytes(g), b.n);
    uint32_t u = 0;
    float f = 0;
    bool flag = false;
    struct span s = {0};
    assert_true(gguf_get_u32(g, "t.block_count", &u) && u == 3);
    assert_true(gguf_get_f32(g, "t.eps", &f) && f == 0.5f);
    assert_true(gguf_get_bool(g, "t.flag", &flag) && flag);
    assert_true(gguf_get_str(g, "general.architecture", &s));
    assert_true(s.n == 1 && s.p[0] == 't');
    /* another kind, and absent */
    assert_false(gguf_get_u32(g, "t.eps", &u));
    assert_false(gguf_get_u32(g, "t.flag", &u));
    assert_false(gguf_get_f32(g, "t.block_count", &f));
    assert_false(gguf_get_bool(g, "t.block_count", &flag));
    assert_false(gguf_get_str(g, "t.block", &s));
    assert_null(gguf_find(g, ""));
    assert_null(gguf_get_arr(g, "t.list", GGUF_U32));
    const struct gguf_kv *list = gguf_get_arr(g, "t.list", GGUF_I32);
    assert_non_null(list);
    assert_int_equal(list->count, 3);
    assert_int_equal(gguf_arr_int(list, 1), -8);
    /* tensors keep file order; look-up is by name */
    assert_int_equal(gguf_n_tensors(g), 2);
    assert_string_equal(gguf_tensor_at(g, 0)->name, "b");
    assert_null(gguf_tensor(g, "c"));
    const struct gguf_tensor *t = gguf_tensor(g, "a");
    assert_non_null(t);
    assert_int_equal(t->rows, 2);
    assert_int_equal(t->cols, 4);
    float row[4];
    unit_ok(gguf_rows(t, 1, 1, row, &e), &e);
    assert_true(row[0] == 4 && row[3] == 7);
    assert_int_equal(gguf_rows(t, 1, 2, row, &e), ERR_INVALID);
    assert_int_equal(gguf_rows(t, UINT64_MAX, 2, row, &e), ERR_INVALID);
    assert_int_equal(gguf_rows(t, 3, 0, row, &e), ERR_INVALID);
    unit_ok(gguf_rows(t, 2, 0, row, &e), &e);
    unit_ok(gguf_check_unchanged(g, &e), &e);
    assert_int_equal(gguf_check_vocab(g, NULL, &e), ERR_GGUF_MISSING);
    gguf_close(g);
    buf_fini(&b);
}

/* Every prefix of a sound file is refused: the last tensor ends at the end. */
static void refuses_every_prefix(void **state)
{
    (void)state;
    struct buf b;
    make_sound(&b);
    for (size_t n = 0; n < b.n; n++) {
        struct gguf *g = NULL;
        struct err e = {0};
        uint8_t *exact = malloc(n + 1); /* lets ASan see overreads */
        assert_non_null(exact);
        memcpy(exact, b.p, n);
        assert_true(gguf_open_mem(exact, n, &g, &e) < 0);
        assert_null(g);
        free(exact);
    }
    buf_fini(&b);
}

/* Every byte of a sound file changed in six ways: any verdict, no crash, and
 * what is accepted can be read to its end. */
static void survives_every_changed_byte(void **state)
{
    (void)state;
    struct buf b;
    make_sound(&b);
    uint8_t *copy = malloc(b.n);
    assert_non_null(copy);
    for (size_t i = 0; i < b.n * 6; i++) {
        struct gguf *g = NULL;
        struct err e = {0};
        memcpy(copy, b.p, b.n);
        uint8_t old = copy[i / 6];
        const uint8_t new[] = {0,
                               0xff,
                               (uint8_t)(old ^ 0x80),
                               (uint8_t)(old + 1),
                               (uint8_t)(old - 1),
                               0x40};
        copy[i / 6] = new[i % 6];
        if (gguf_open_mem(copy, b.n, &g, &e) < 0) {
            assert_true(e.code <= -20000);
            continue;
        }
        for (size_t k = 0; k < gguf_n_tensors(g); k++) {
            const struct gguf_tensor *t = gguf_tensor_at(g, k);
            float y[256];
            for (uint64_t r = 0; r < t->rows && t->cols <= 256; r++) {
                (void)!gguf_rows(t, r, 1, y, &e);
            }
        }
        gguf_close(g);
    }
    free(copy);
    buf_fini(&b);
}

static void refuses_wrong_heads(void **state)
{
    (void)state;
    static const struct {
        const char *bytes;
        size_t n;
        int code;
    } heads[] = {
        {"",                        0,  ERR_GGUF_TRUNCATED},
        {"GG",                      2,  ERR_GGUF_TRUNCATED},
        {"GGUF",                    4,  ERR_GGUF_TRUNCATED},
        {"GGUF\3\0\0",              7,  ERR_GGUF_TRUNCATED},
        {"GGUF\3\0\0\0",            8,  ERR_GGUF_TRUNCATED},
        {"GGUF\0\0\0\0",            8,  ERR_GGUF_VERSION  },
        {"GGUF\1\0\0\0",            8,  ERR_GGUF_VERSION  },
        {"GGUF\4\0\0\0",            8,  ERR_GGUF_VERSION  },
        {"GGUF\0\0\0\3",            8,  ERR_GGUF_ENDIAN   },
        {"FUGG\0\0\0\1",            8,  ERR_GGUF_MAGIC    },
        {"GGML",                    4,  ERR_GGUF_MAGIC    },
        {"lmgg",                    4,  ERR_GGUF_MAGIC    },
        {"version https://git-lfs", 23, ERR_GGUF_MAGIC    },
    };
    for (size_t i = 0; i < countof(heads); i++) {
        struct buf b;
        buf_init(&b, 64);
        buf_put(&b, heads[i].bytes, heads[i].n);
        refuse(&b, heads[i].code);
    }
    struct gguf *g = NULL;
    struct err e = {0};
    assert_true(gguf_open_mem(heads[12].bytes, 23, &g, &e) < 0);
    assert_non_null(strstr(e.msg, "git-LFS pointer"));
}

/* The boundary set of the facts, for every count and length of the format. */
static void refuses_counts_and_lengths(void **state)
{
    (void)state;
    static const uint64_t big[] = {
        1u << 20,  INT32_MAX,         UINT32_MAX,     (uint64_t)1 << 32,
        INT64_MAX, (uint64_t)1 << 63, UINT64_MAX - 7, UINT64_MAX};
    for (size_t i = 0; i < countof(big); i++) {
        struct buf b;
        make_head(&b, 0, big[i]);
        make_u32(&b, "k", 1);
        refuse(&b, ERR_GGUF_COUNT);
        make_head(&b, big[i], 0);
        make_zeros(&b, 64);
        refuse(&b, ERR_GGUF_COUNT);
        make_head(&b, 0, 1);
        buf_u64(&b, big[i]); /* key length */
        make_zeros(&b, 64);
        refuse(&b, ERR_GGUF_TRUNCATED);
        make_head(&b, 0, 1);
        make_str(&b, "k");
        buf_u32(&b, GGUF_STRING);
        buf_u64(&b, big[i]);
        make_zeros(&b, 64);
        refuse(&b, ERR_GGUF_TRUNCATED);
        for (int item = GGUF_U8; item <= GGUF_F64; item++) {
            make_head(&b, 0, 1);
            make_array(&b, "k", (enum gguf_kind)item, big[i]);
            make_zeros(&b, 64);
            refuse(&b, item == GGUF_ARRAY ? ERR_GGUF_VALUE : ERR_GGUF_COUNT);
        }
        make_head(&b, 0, 1);
        make_array(&b, "k", GGUF_STRING, 1);
        buf_u64(&b, big[i]);
        make_zeros(&b, 64);
        refuse(&b, ERR_GGUF_TRUNCATED);
        make_head(&b, 1, 0);
        buf_u64(&b, big[i]); /* tensor name length */
        make_zeros(&b, 64);
        refuse(&b, ERR_GGUF_TRUNCATED);
    }
}

static void refuses_keys_and_values(void **state)
{
    (void)state;
    struct buf b;
    make_head(&b, 0, 1);
    make_u32(&b, "", 1);
    refuse(&b, ERR_GGUF_KEY);
    make_head(&b, 0, 1);
    make_u32(&b, "a\nb", 1);
    refuse(&b, ERR_GGUF_KEY);
    make_head(&b, 0, 2);
    make_u32(&b, "twice", 1);
    make_text(&b, "twice", "x");
    refuse(&b, ERR_GGUF_KEY);
    make_head(&b, 0, 1);
    buf_u64(&b, GGUF_KEY_MAX + 1);
    make_zeros(&b, GGUF_KEY_MAX + 64);
    refuse(&b, ERR_GGUF_KEY);
    for (uint32_t kind = 13; kind != 0; kind = kind * 3 + 1) {
        make_head(&b, 0, 1);
        make_str(&b, "k");
        buf_u32(&b, kind);
        make_zeros(&b, 64);
        refuse(&b, ERR_GGUF_VALUE);
        make_head(&b, 0, 1);
        make_array(&b, "k", (enum gguf_kind)kind, 1);
        make_zeros(&b, 64);
        refuse(&b, ERR_GGUF_VALUE);
        if (kind > UINT32_MAX / 3) {
            break;
        }
    }
    make_head(&b, 0, 1);
    make_str(&b, "k");
    buf_u32(&b, GGUF_BOOL);
    buf_u8(&b, 2);
    refuse(&b, ERR_GGUF_VALUE);
    make_head(&b, 0, 1);
    make_u32(&b, "split.count", 2);
    refuse(&b, ERR_GGUF_MISSING); /* which one? */
    static const uint32_t layers[] = {0, MODEL_LAYERS_MAX + 1, UINT32_MAX};
    for (size_t i = 0; i < countof(layers); i++) {
        make_head(&b, 0, 2);
        make_text(&b, "general.architecture", "x");
        make_u32(&b, "x.block_count", layers[i]);
        refuse(&b, ERR_GGUF_VALUE);
    }
    make_head(&b, 0, 2);
    make_text(&b, "general.architecture", "x");
    make_text(&b, "x.block_count", "4");
    refuse(&b, ERR_GGUF_VALUE);
}

static void refuses_alignments(void **state)
{
    (void)state;
    static const uint32_t bad[] = {
        0, 1, 3, 24, (1u << 20) + 1, 1u << 17, 1u << 30, 1u << 31, UINT32_MAX};
    struct buf b;
    for (size_t i = 0; i < countof(bad); i++) {
        make_head(&b, 0, 1);
        make_u32(&b, "general.alignment", bad[i]);
        refuse(&b, ERR_GGUF_ALIGNMENT);
    }
    make_head(&b, 0, 1);
    make_text(&b, "general.alignment", "32");
    refuse(&b, ERR_GGUF_ALIGNMENT);
    /* An offset that is no multiple of it. */
    static const uint64_t dims[] = {4};
    make_head(&b, 1, 0);
    make_tensor(&b, "a", 1, dims, GGML_F32, 8);
    make_zeros(&b, 256);
    refuse(&b, ERR_GGUF_ALIGNMENT);
}

static void one_tensor(struct buf *b, uint32_t n_dims, const uint64_t *dims,
                       uint32_t type, uint64_t offset)
{
    make_head(b, 1, 0);
    make_tensor(b, "a", n_dims, dims, type, offset);
    make_pad(b, 32);
    make_zeros(b, 1024);
}

static void refuses_tensors(void **state)
{
    (void)state;
    struct buf b;
    uint64_t d[8] = {32, 1, 1, 1, 1, 1, 1, 1};
    const uint32_t ranks[] = {0, 5, 8};
    for (size_t i = 0; i < countof(ranks); i++) {
        one_tensor(&b, ranks[i], d, GGML_F32, 0);
        refuse(&b, ERR_GGUF_TENSOR);
    }
    static const uint32_t types[] = {4, 5, 31, 33, 36, 38, 42, UINT32_MAX};
    for (size_t i = 0; i < countof(types); i++) {
        one_tensor(&b, 1, d, types[i], 0);
        refuse(&b, ERR_GGUF_TENSOR);
    }
    for (uint32_t axis = 0; axis < 4; axis++) {
        uint64_t z[4] = {32, 1, 1, 1};
        z[axis] = 0;
        one_tensor(&b, 4, z, GGML_F32, 0);
        refuse(&b, ERR_GGUF_TENSOR);
    }
    d[0] = 33; /* no multiple of the block */
    one_tensor(&b, 1, d, GGML_Q8_0, 0);
    refuse(&b, ERR_GGUF_TENSOR);
    /* Products that wrap to 0 or to something small. */
    static const uint64_t wraps[][4] = {
        {(uint64_t)1 << 32, (uint64_t)1 << 32,   1,       1      },
        {(uint64_t)1 << 63, 2,                   1,       1      },
        {256,               (uint64_t)1 << 56,   1,       1      },
        {256,               0xE38E38E38E38E3A0u, 1,       1      },
        {(uint64_t)1 << 62, 1,                   1,       1      },
        {32,                1 << 20,             1 << 20, 1 << 20},
        {UINT64_MAX - 255,  1,                   1,       1      },
    };
    static const uint32_t of[] = {GGML_F32,  GGML_F16,  GGML_Q4_0,
                                  GGML_Q8_0, GGML_Q4_K, 20 /* IQ4_NL */};
    for (size_t i = 0; i < countof(wraps); i++) {
        for (size_t k = 0; k < countof(of); k++) {
            struct gguf *g = NULL;
            struct err e = {0};
            one_tensor(&b, 4, wraps[i], of[k], 0);
            int rc = open_buf(&b, &g, &e);
            assert_true(rc == ERR_GGUF_TENSOR || rc == ERR_GGUF_OFFSET);
            buf_fini(&b);
        }
    }
}

static void refuses_places(void **state)
{
    (void)state;
    struct buf b;
    static const uint64_t all[] = {256}; /* 1024 bytes: exactly what is there */
    static const uint64_t more[] = {257};
    static const uint64_t offsets[] = {32,
                                       1024,
                                       (uint64_t)1 << 31,
                                       (uint64_t)1 << 60,
                                       ((uint64_t)1 << 63),
                                       UINT64_MAX - 31,
                                       UINT64_MAX - 1023};
    struct gguf *g = NULL;
    struct err e = {0};
    one_tensor(&b, 1, all, GGML_F32, 0);
    unit_ok(open_buf(&b, &g, &e), &e);
    gguf_close(g);
    buf_fini(&b);
    one_tensor(&b, 1, more, GGML_F32, 0);
    refuse(&b, ERR_GGUF_OFFSET);
    for (size_t i = 0; i < countof(offsets); i++) {
        one_tensor(&b, 1, all, GGML_F32, offsets[i]);
        refuse(&b, ERR_GGUF_OFFSET);
    }
    static const uint64_t sixteen[] = {16};
    make_head(&b, 2, 0);
    make_tensor(&b, "a", 1, sixteen, GGML_F32, 0);
    make_tensor(&b, "a", 1, sixteen, GGML_F32, 64);
    make_zeros(&b, 512);
    refuse(&b, ERR_GGUF_TENSOR); /* one name twice */
    make_head(&b, 2, 0);
    make_tensor(&b, "a", 1, sixteen, GGML_F32, 32);
    make_tensor(&b, "b", 1, sixteen, GGML_F32, 0);
    make_zeros(&b, 512);
    refuse(&b, ERR_GGUF_TENSOR); /* shared bytes */
}

__extension__ typedef unsigned __int128 wide;

/* Random tensor tables against 128-bit arithmetic. */
static void sizes_match_wide_arithmetic(void **state)
{
    (void)state;
    uint64_t x = 88172645463325252u;
    int accepted = 0;
    for (int round = 0; round < 200000; round++) {
        uint64_t d[4];
        for (int i = 0; i < 4; i++) {
            x ^= x << 13;
            x ^= x >> 7;
            x ^= x << 17;
            /* small three times in four, else of any magnitude */
            d[i] = x % 4 != 0 ? 1 + (x >> 8) % 5 : x >> ((x >> 2) & 63);
            d[i] *= i == 0 ? 32 : 1;
        }
        struct buf b;
        struct gguf *g = NULL;
        struct err e = {0};
        uint32_t type = x % 2 == 0 ? GGML_F16 : GGML_Q4_0;
        one_tensor(&b, 4, d, type, 0);
        int rc = open_buf(&b, &g, &e);
        bool fits = d[0] > 0 && d[1] > 0 && d[2] > 0 && d[3] > 0;
        wide n = (wide)d[0] / 32 * (type == GGML_F16 ? 64 : 18);
        for (int i = 1; i < 4 && fits; i++) {
            fits = n <= 1024;
            n *= d[i];
        }
        fits = fits && n <= 1024;
        assert_int_equal(rc == 0, fits);
        accepted += rc == 0;
        gguf_close(g);
        buf_fini(&b);
    }
    assert_true(accepted > 100);
}

/* Two tokens, with n scores and n types of which the first is of `type`. */
static int check_vocabulary(uint64_t n, uint32_t type, struct gguf_notes *notes)
{
    struct buf b;
    struct gguf *g = NULL;
    struct err e = {0};
    make_head(&b, 0, 3);
    make_array(&b, "tokenizer.ggml.tokens", GGUF_STRING, 2);
    make_str(&b, "a");
    make_str(&b, "b");
    make_array(&b, "tokenizer.ggml.scores", GGUF_I32, n);
    make_zeros(&b, 4 * n);
    make_array(&b, "tokenizer.ggml.token_type", GGUF_I32, n);
    buf_u32(&b, type);
    make_zeros(&b, 4 * (n - 1));
    unit_ok(open_buf(&b, &g, &e), &e);
    int rc = gguf_check_vocab(g, notes, &e);
    gguf_close(g);
    buf_fini(&b);
    return rc;
}

/* What llama.cpp takes is taken, and said. */
static void notes_odd_vocabularies(void **state)
{
    (void)state;
    struct gguf_notes notes = {0};
    assert_int_equal(check_vocabulary(2, 1, &notes), 0);
    assert_int_equal(notes.n, 0);
    assert_int_equal(check_vocabulary(4, 7, &notes), 0);
    assert_int_equal(notes.n, 3);
    assert_non_null(strstr(notes.text[0], "scores has 4 items for 2 tokens"));
    assert_non_null(strstr(notes.text[1], "token_type has 4 items"));
    assert_non_null(strstr(notes.text[2], "1 tokens have unknown types"));
    assert_int_equal(check_vocabulary(1, 1, NULL), ERR_GGUF_VOCAB);
    assert_int_equal(check_vocabulary(2, 6, NULL), ERR_GGUF_VOCAB); /* <0xHH> */
}

static void opens_files(void **state)
{
    (void)state;
    struct gguf *g = NULL;
    struct err e = {0};
    char dir[] = "/tmp/aned-test-XXXXXX";
    char path[128];
    assert_non_null(mkdtemp(dir));
    (void)snprintf(path, sizeof(path), "%s/f.gguf", dir);
    assert_int_equal(gguf_open(path, &g, &e), ERR_NOT_FOUND);
    assert_int_equal(gguf_open(dir, &g, &e), ERR_INVALID);
    assert_int_equal(mkfifo(path, 0600), 0);
    assert_int_equal(gguf_open(path, &g, &e), ERR_INVALID);
    assert_int_equal(unlink(path), 0);
    struct buf b;
    make_sound(&b);
    unit_ok(file_write(path, b.p, b.n, &e), &e);
    unit_ok(gguf_open(path, &g, &e), &e);
    unit_ok(gguf_check_unchanged(g, &e), &e);
    assert_int_equal(truncate(path, (off_t)b.n - 1), 0);
    assert_int_equal(gguf_check_unchanged(g, &e), ERR_SOURCE_CHANGED);
    gguf_close(g);
    buf_fini(&b);
    assert_int_equal(unlink(path), 0);
    assert_int_equal(rmdir(dir), 0);
}

/* --- a file that is truncated under the mapping --- */

struct cut {
    struct gguf *g;
    const struct gguf_tensor *t;
    char dir[32];
    char path[64];
};

/* One F32 tensor of 1024 x 1024, truncated to its head once it is open. */
static void cut_open(struct cut *c)
{
    static const uint64_t dims[] = {1024, 1024};
    struct err e = {0};
    struct buf b;
    (void)snprintf(c->dir, sizeof(c->dir), "/tmp/aned-test-XXXXXX");
    assert_non_null(mkdtemp(c->dir));
    (void)snprintf(c->path, sizeof(c->path), "%s/f", c->dir);
    make_head(&b, 1, 0);
    make_tensor(&b, "a", 2, dims, GGML_F32, 0);
    make_pad(&b, 32);
    unit_ok(file_write(c->path, b.p, b.n, &e), &e);
    assert_int_equal(truncate(c->path, (off_t)b.n + (4 << 20)), 0);
    unit_ok(gguf_open(c->path, &c->g, &e), &e);
    c->t = gguf_tensor(c->g, "a");
    assert_int_equal(truncate(c->path, (off_t)b.n), 0);
    buf_fini(&b);
}

static void cut_close(struct cut *c)
{
    gguf_close(c->g);
    assert_int_equal(unlink(c->path), 0);
    assert_int_equal(rmdir(c->dir), 0);
}

static void *rows_elsewhere(void *arg)
{
    struct cut *c = arg;
    static _Thread_local float row[1024];
    struct err e = {0};
    return gguf_rows(c->t, 512, 1, row, &e) == ERR_SOURCE_CHANGED ? c : NULL;
}

static int read_raw(void *ctx, struct err *e)
{
    const struct cut *c = ctx;
    volatile uint8_t sum = 0;
    float row[1024];
    /* A nested guard that trips must give the outer one back. */
    must(gguf_rows(c->t, 700, 1, row, e) == ERR_SOURCE_CHANGED);
    sum = (uint8_t)(sum + c->t->data[3 << 20]);
    return 7; /* not reached */
}

static void turns_sigbus_into_an_error(void **state)
{
    (void)state;
    struct cut c = {0};
    struct err e = {0};
    static float row[1024];
    if (UNIT_TSAN) {
        skip(); /* it holds back signals that come from inside its memcpy */
    }
    cut_open(&c);
    for (int i = 0; i < 3; i++) { /* more than once: the handler stays */
        assert_int_equal(gguf_rows(c.t, 1000, 1, row, &e), ERR_SOURCE_CHANGED);
        assert_int_equal(gguf_guard(read_raw, &c, &e), ERR_SOURCE_CHANGED);
        assert_int_equal(e.code, ERR_SOURCE_CHANGED);
    }
    pthread_t th[4];
    for (size_t i = 0; i < countof(th); i++) {
        assert_int_equal(pthread_create(&th[i], NULL, rows_elsewhere, &c), 0);
    }
    for (size_t i = 0; i < countof(th); i++) {
        void *ok = NULL;
        assert_int_equal(pthread_join(th[i], &ok), 0);
        assert_ptr_equal(ok, &c);
    }
    cut_close(&c);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(reads_what_is_there),
        cmocka_unit_test(refuses_every_prefix),
        cmocka_unit_test(survives_every_changed_byte),
        cmocka_unit_test(refuses_wrong_heads),
        cmocka_unit_test(refuses_counts_and_lengths),
        cmocka_unit_test(refuses_keys_and_values),
        cmocka_unit_test(refuses_alignments),
        cmocka_unit_test(refuses_tensors),
        cmocka_unit_test(refuses_places),
        cmocka_unit_test(sizes_match_wide_arithmetic),
        cmocka_unit_test(notes_odd_vocabularies),
        cmocka_unit_test(opens_files),
        cmocka_unit_test(turns_sigbus_into_an_error),
    };
    return cmocka_run_group_tests_name("gguf", tests, NULL, NULL);
}
