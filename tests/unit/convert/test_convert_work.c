/* Work that survives (convert/work.h): what counts of a journal, whose folder it
 * is, and that a conversion that was stopped ends with the same bytes. */
#include <fcntl.h>
#include <sys/stat.h>
#include <time.h>

#include "../unit.h"
#include "base/hash.h"
#include "convert/work.h"
#include "model/bundle.h"
#include "room.h"

/* Two keys of 64 digits. */
#define KEY_A \
    "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa"
#define KEY_B \
    "bbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbb"
#define HASH_1 \
    "1111111111111111111111111111111111111111111111111111111111111111"
#define HASH_2 \
    "2222222222222222222222222222222222222222222222222222222222222222"

/* --- records --- */

/* A line with its hash. */
static void put_line(struct buf *b, const char *text)
{
    uint8_t d[SHA256_BYTES];
    char hex[SHA256_HEX];
    struct sha256 s;
    sha256_init(&s);
    sha256_add(&s, text, strlen(text));
    sha256_end(&s, d);
    sha256_hex(d, hex);
    buf_printf(b, "%s %s\n", hex, text);
}

static struct buf journal(void)
{
    struct buf b;
    buf_init(&b, WORK_JOURNAL_MAX);
    put_line(&b, "aned-work 1 " KEY_A);
    put_line(&b, "note range 0x1p+0 scale");
    put_line(&b, "file 100 " HASH_1 " embed.bin");
    put_line(&b, "file 200 " HASH_1 " p/weight.bin");
    put_line(&b, "file 300 " HASH_2 " p/weight.bin");
    return b;
}

/* How many records count, and how many bytes. */
static size_t counted(const struct buf *b, size_t n, const char *key,
                      size_t *whole)
{
    struct work_records r;
    work_records_read(b->p, n, key, &r, whole);
    size_t found = r.n;
    work_records_fini(&r);
    return found;
}

static void the_last_record_of_a_file_counts(void **state)
{
    (void)state;
    struct work_records r;
    struct buf b = journal();
    size_t whole = 0;
    work_records_read(b.p, b.n, KEY_A, &r, &whole);
    assert_int_equal(whole, b.n);
    assert_int_equal(r.n, 3);
    const struct work_record *f = work_records_find(&r, "p/weight.bin", false);
    assert_non_null(f);
    assert_int_equal(f->bytes, 300);
    assert_string_equal(f->sha256, HASH_2);
    assert_null(work_records_find(&r, "p/weight.bin", true));
    assert_non_null(work_records_find(&r, "range", true));
    work_records_fini(&r);
    buf_fini(&b);
}

/* However it is cut, what counts is a whole number of lines. */
static void a_torn_line_is_no_record(void **state)
{
    (void)state;
    struct buf b = journal();
    size_t before = 0;
    for (size_t n = 0; n <= b.n; n++) {
        size_t whole = 0;
        size_t found = counted(&b, n, KEY_A, &whole);
        assert_true(whole <= n && (whole == 0 || b.p[whole - 1] == '\n'));
        assert_true(whole >= before && found <= 3);
        before = whole;
    }
    assert_int_equal(before, b.n);
    buf_fini(&b);
}

/* One bit anywhere: that line and those after it do not count. */
static void a_changed_line_is_no_record(void **state)
{
    (void)state;
    struct buf b = journal();
    for (size_t i = 0; i < b.n; i++) {
        size_t whole = 0;
        b.p[i] = (char)(b.p[i] ^ 1);
        (void)counted(&b, b.n, KEY_A, &whole);
        assert_true(whole <= i);
        b.p[i] = (char)(b.p[i] ^ 1);
    }
    buf_fini(&b);
}

static void whose_journal(void **state)
{
    (void)state;
    struct buf b = journal();
    size_t whole = 7;
    assert_int_equal(counted(&b, b.n, KEY_B, &whole), 0);
    assert_int_equal(whole, 0);
    buf_fini(&b);
    buf_init(&b, WORK_JOURNAL_MAX);
    put_line(&b, "aned-work 2 " KEY_A); /* another version's */
    put_line(&b, "file 100 " HASH_1 " embed.bin");
    assert_int_equal(counted(&b, b.n, KEY_A, &whole), 0);
    assert_int_equal(whole, 0);
    buf_fini(&b);
}

static void what_is_no_record(void **state)
{
    (void)state;
    static const char *const bad[] = {
        "file 100 " HASH_1,
        "file 100 " HASH_1 " ",
        "file 100 " HASH_1 " a b",
        "file 100 " HASH_1 " ../a",
        "file 100 " HASH_1 " /a",
        "file -1 " HASH_1 " a",
        "file 18446744073709551616 " HASH_1 " a",
        "file 1 11 a",
        "link 1 " HASH_1 " a",
        "note x",
        "",
    };
    for (size_t i = 0; i < countof(bad); i++) {
        struct buf b;
        size_t whole = 0;
        buf_init(&b, WORK_JOURNAL_MAX);
        put_line(&b, "aned-work 1 " KEY_A);
        size_t head = b.n;
        put_line(&b, bad[i]);
        put_line(&b, "file 100 " HASH_1 " embed.bin");
        assert_int_equal(counted(&b, b.n, KEY_A, &whole), 0);
        assert_int_equal(whole, head);
        buf_fini(&b);
    }
}

/* --- the folder --- */

static const char *in_work(const char *key, const char *end)
{
    static char path[512];
    (void)snprintf(path, sizeof(path), "%s/" WORK_PREFIX "%.32s%s", room, key,
                   end);
    return path;
}

static void put_file(const char *path, const char *text)
{
    struct err e = {0};
    unit_ok(file_write(path, text, strlen(text), &e), &e);
}

static void only_what_is_on_record_stays(void **state)
{
    (void)state;
    struct work *w = NULL;
    struct err e = {0};
    char bundle[512];
    char path[600];
    unit_ok(work_open(room, KEY_A, NULL, &w, &e), &e);
    assert_false(work_worth(w));
    (void)snprintf(bundle, sizeof(bundle), "%s", work_bundle(w));
    (void)snprintf(path, sizeof(path), "%s/p", bundle);
    unit_ok(file_mkdirs(path, 0700, &e), &e);
    (void)snprintf(path, sizeof(path), "%s/p/known", bundle);
    put_file(path, "12345");
    (void)snprintf(path, sizeof(path), "%s/p/unknown.77.tmp", bundle);
    put_file(path, "12345");
    unit_ok(work_put(w, "p/known", 5, HASH_1, &e), &e);
    assert_true(work_worth(w));
    work_close(w, true);
    unit_ok(work_open(room, KEY_A, NULL, &w, &e), &e);
    assert_non_null(work_find(w, "p/known"));
    assert_int_equal(work_bytes(w, "p/"), 5);
    assert_int_equal(work_bytes(w, "q"), 0);
    assert_false(file_exists(path));
    (void)snprintf(path, sizeof(path), "%s/p/known", bundle);
    assert_true(file_exists(path));
    unit_ok(work_forget(w, &e), &e);
    assert_false(file_exists(path) || work_worth(w));
    work_close(w, false);
    assert_int_equal(count_entries(room), 0);
}

static void a_note_must_be_the_same(void **state)
{
    (void)state;
    struct work *w = NULL;
    struct err e = {0};
    bool same = false;
    unit_ok(work_open(room, KEY_A, NULL, &w, &e), &e);
    unit_ok(work_note(w, "range", "1 max", &same, &e), &e);
    assert_true(same);
    work_close(w, true);
    unit_ok(work_open(room, KEY_A, NULL, &w, &e), &e);
    unit_ok(work_note(w, "range", "1 max", &same, &e), &e);
    assert_true(same);
    unit_ok(work_note(w, "range", "0.5 max", &same, &e), &e);
    assert_false(same);
    work_close(w, false);
}

static void one_at_a_time(void **state)
{
    (void)state;
    struct work *w = NULL;
    struct work *other = NULL;
    struct err e = {0};
    unit_ok(work_open(room, KEY_A, NULL, &w, &e), &e);
    assert_int_equal(work_open(room, KEY_A, NULL, &other, &e), ERR_BUSY);
    unit_ok(work_open(room, KEY_B, NULL, &other, &e), &e); /* another's */
    work_close(other, false);
    work_sweep(room, NULL); /* nor does a sweep touch it */
    assert_true(file_exists(work_dir(w)));
    work_close(w, false);
    assert_int_equal(count_entries(room), 0);
}

static void what_was_moved_comes_back(void **state)
{
    (void)state;
    struct work *w = NULL;
    struct err e = {0};
    char path[600];
    const char *moved = at("moved");
    unit_ok(file_mkdirs(moved, 0700, &e), &e);
    assert_int_equal(work_open(room, KEY_A, moved, &w, &e), ERR_EXISTS);
    assert_int_equal(count_entries(room), 1);
    (void)rmdir(moved);
    unit_ok(work_open(room, KEY_A, moved, &w, &e), &e);
    (void)snprintf(path, sizeof(path), "%s/known", work_bundle(w));
    put_file(path, "1");
    unit_ok(work_put(w, "known", 1, HASH_1, &e), &e);
    assert_int_equal(rename(work_bundle(w), moved), 0);
    work_close(w, true);
    unit_ok(work_open(room, KEY_A, moved, &w, &e), &e);
    assert_true(file_exists(path) && !file_exists(moved));
    work_close(w, false);
}

/* What is old goes, then the oldest of too many; other names are not ours. */
static void a_sweep(void **state)
{
    (void)state;
    struct err e = {0};
    struct work *w = NULL;
    char key[SHA256_HEX];
    for (unsigned i = 0; i < WORKS_MAX + 3; i++) {
        (void)snprintf(key, sizeof(key), "%032x%032x", i, i);
        unit_ok(work_open(room, key, NULL, &w, &e), &e);
        work_close(w, true);
        const struct timespec t[2] = {{.tv_sec = time(NULL) - 10 * (int)i},
                                      {.tv_sec = time(NULL) - 10 * (int)i}};
        assert_int_equal(
            utimensat(AT_FDCWD, in_work(key, "/journal"), t, 0), 0);
        assert_int_equal(utimensat(AT_FDCWD, in_work(key, ""), t, 0), 0);
    }
    unit_ok(file_mkdirs(at(".staging-mine"), 0700, &e), &e);
    work_sweep(room, NULL);
    /* each is two folders */
    assert_int_equal(count_entries(room), 2 * WORKS_MAX + 1);
    assert_true(file_exists(in_work("00000000000000000000000000000000", "")));
    const struct timespec old[2] = {
        {.tv_sec = time(NULL) - (time_t)WORK_AGE_S - 5},
        {.tv_sec = time(NULL) - (time_t)WORK_AGE_S - 5}};
    const char *first = in_work("00000000000000000000000000000000", "/journal");
    assert_int_equal(utimensat(AT_FDCWD, first, old, 0), 0);
    assert_int_equal(
        utimensat(AT_FDCWD, in_work("00000000000000000000000000000000", ""),
                  old, 0),
        0);
    work_sweep(room, NULL);
    assert_int_equal(count_entries(room), 2 * (WORKS_MAX - 1) + 1);
    assert_false(file_exists(in_work("00000000000000000000000000000000", "")));
    unit_ok(file_rmtree(room, &e), &e);
    assert_int_equal(mkdir(room, 0700), 0);
}

/* --- conversions --- */

struct stopper {
    const char *stage;
    double at; /* cancel there */
    unsigned n;
};

static bool on_progress(void *ctx, const char *stage, double fraction)
{
    struct stopper *s = ctx;
    s->n++;
    return strcmp(stage, s->stage) != 0 || fraction < s->at;
}

static void fingerprint_of(const char *dir, char out[SHA256_HEX])
{
    struct bundle *b = NULL;
    struct err e = {0};
    unit_ok(bundle_open(dir, &b, &e), &e);
    memcpy(out, b->fingerprint, SHA256_HEX);
    unit_ok(bundle_verify(b, NULL, NULL, &e), &e); /* the hashes are the files' */
    bundle_close(b);
}

/* Stopped again and again, always a little later. */
static void stopped_and_continued(const char *quant, const char *shape)
{
    struct convert_result r = {0};
    struct err e = {0};
    char want[SHA256_HEX];
    char got[SHA256_HEX];
    const char *source = write_model(&mk_llama, "m.gguf");
    struct convert_options o = options(source, at("whole"));
    o.quant = quant;
    o.shape = shape;
    unit_ok(convert_run(&o, &r, &e), &e);
    fingerprint_of(at("whole"), want);
    o.out = at("bundle");
    for (unsigned k = 0; k < 6; k++) {
        struct stopper s = {.stage = k < 4 ? "writing" : "gating",
                            .at = 0.1 * k};
        o.progress = on_progress;
        o.ctx = &s;
        int rc = convert_run(&o, &r, &e);
        if (rc == 0) {
            break;
        }
        assert_int_equal(rc, ERR_CANCELLED);
        assert_false(file_exists(at("bundle")));
        o.name = k % 2 == 0 ? "other" : NULL; /* has no part in it */
        o.threads = 1 + k % 2;
    }
    o.progress = NULL;
    o.name = NULL;
    if (!file_exists(at("bundle"))) {
        unit_ok(convert_run(&o, &r, &e), &e);
    }
    fingerprint_of(at("bundle"), got);
    assert_string_equal(got, want);
    assert_int_equal(count_entries(room), 3);
    unit_ok(file_rmtree(at("bundle"), &e), &e);
    unit_ok(file_rmtree(at("whole"), &e), &e);
    (void)unlink(source);
}

static void the_same_bytes(void **state)
{
    (void)state;
    stopped_and_continued("int8", "ranged");
    if (!UNIT_SANITIZED) {
        stopped_and_continued("lut4", "functions");
        stopped_and_continued("fp16", "ranged");
    }
}

/* A byte of a file on record, which no longer is what was written. */
static void a_damaged_file(void **state)
{
    (void)state;
    static const char *const files[] = {
        "embed.bin",
        "layers_00_03.mlpackage/Data/com.apple.CoreML/weights/weight.bin"};
    for (size_t i = 0; i < countof(files); i++) {
        struct convert_result r = {0};
        struct err e = {0};
        struct bundle *b = NULL;
        char path[1024];
        struct convert_options o =
            options(write_model(&mk_llama, "m.gguf"), at("bundle"));
        o.keep_records = true;
        unit_ok(convert_run(&o, &r, &e), &e);
        (void)snprintf(path, sizeof(path), "%.200s/%s", at("bundle"), files[i]);
        int fd = open(path, O_RDWR);
        char c = 0;
        assert_true(fd >= 0 && pread(fd, &c, 1, 500) == 1);
        c = (char)(c ^ 1);
        assert_true(pwrite(fd, &c, 1, 500) == 1 && close(fd) == 0);
        unit_ok(convert_run(&o, &r, &e), &e);
        unit_ok(bundle_open(at("bundle"), &b, &e), &e);
        unit_ok(bundle_verify(b, NULL, NULL, &e), &e);
        bundle_close(b);
        fd = open(path, O_RDONLY);
        char now = 0;
        assert_true(fd >= 0 && pread(fd, &now, 1, 500) == 1);
        assert_int_equal(now, (char)(c ^ 1)); /* made again */
        (void)close(fd);
        unit_ok(file_rmtree(room, &e), &e);
        assert_int_equal(mkdir(room, 0700), 0);
    }
}

/* A source that was written since is another one. */
static void another_source(void **state)
{
    (void)state;
    struct convert_result r = {0};
    struct err e = {0};
    struct stopper s = {.stage = "gating"};
    struct convert_options o =
        options(write_model(&mk_llama, "m.gguf"), at("bundle"));
    o.progress = on_progress;
    o.ctx = &s;
    assert_int_equal(convert_run(&o, &r, &e), ERR_CANCELLED);
    assert_int_equal(count_entries(room), 3);
    (void)write_model(&mk_llama, "m.gguf"); /* a new inode and time */
    assert_int_equal(convert_run(&o, &r, &e), ERR_CANCELLED);
    assert_int_equal(count_entries(room), 5); /* the old work is left alone */
    unit_ok(file_rmtree(room, &e), &e);
    assert_int_equal(mkdir(room, 0700), 0);
}

/* `out` is on its way: it is found again, and nothing is written twice. */
static void records_that_are_kept(void **state)
{
    (void)state;
    struct convert_result r = {0};
    struct err e = {0};
    char want[SHA256_HEX];
    char got[SHA256_HEX];
    struct convert_options o =
        options(write_model(&mk_llama, "m.gguf"), at("bundle"));
    o.keep_records = true;
    unit_ok(convert_run(&o, &r, &e), &e);
    fingerprint_of(at("bundle"), want);
    struct stat before;
    struct stat after;
    const char *table = at("bundle/embed.bin");
    assert_int_equal(stat(table, &before), 0);
    unit_ok(convert_run(&o, &r, &e), &e);
    fingerprint_of(at("bundle"), got);
    assert_string_equal(got, want);
    assert_int_equal(stat(table, &after), 0);
    assert_true(before.st_ino == after.st_ino && file_unwritten(&before, &after));
    unit_ok(file_rmtree(room, &e), &e);
    assert_int_equal(mkdir(room, 0700), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_last_record_of_a_file_counts),
        cmocka_unit_test(a_torn_line_is_no_record),
        cmocka_unit_test(a_changed_line_is_no_record),
        cmocka_unit_test(whose_journal),
        cmocka_unit_test(what_is_no_record),
        cmocka_unit_test(only_what_is_on_record_stays),
        cmocka_unit_test(a_note_must_be_the_same),
        cmocka_unit_test(one_at_a_time),
        cmocka_unit_test(what_was_moved_comes_back),
        cmocka_unit_test(a_sweep),
        cmocka_unit_test(the_same_bytes),
        cmocka_unit_test(a_damaged_file),
        cmocka_unit_test(another_source),
        cmocka_unit_test(records_that_are_kept),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
