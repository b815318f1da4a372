/* Files that are not what they should be: a clear refusal, nothing touched. */
#include <sqlite3.h>

#include "harness.h"

static void sql(const char *path, const char *text)
{
    sqlite3 *db = NULL;
    assert_int_equal(sqlite3_open(path, &db), SQLITE_OK);
    assert_int_equal(sqlite3_exec(db, text, NULL, NULL, NULL), SQLITE_OK);
    assert_int_equal(sqlite3_close(db), SQLITE_OK);
}

static void refused(struct fix *f, int code, const char *says)
{
    struct err e = {0};
    int rc = fix_open(f, &e);
    if (rc != code || strstr(e.msg, says) == NULL) {
        fail_msg("%d, not %d: %s", rc, code, e.msg);
    }
    assert_null(f->s);
}

static void test_new_file(void **state)
{
    struct fix *f = *state;
    struct err e = {0};
    struct stat st;
    mode_t old = umask(0);
    unit_ok(fix_open(f, &e), &e);
    (void)umask(old);
    assert_int_equal(stat(f->path, &st), 0);
    assert_int_equal(st.st_mode & 07777, 0600);
    char side[128];
    (void)snprintf(side, sizeof(side), "%s-wal", f->path);
    assert_int_equal(stat(side, &st), 0);
    assert_int_equal(st.st_mode & 07777, 0600);
    (void)snprintf(side, sizeof(side), "%s-shm", f->path);
    assert_int_equal(stat(side, &st), -1);
}

static void test_second_owner(void **state)
{
    struct fix *f = *state;
    struct err e = {0};
    unit_ok(fix_open(f, &e), &e);
    struct store *first = f->s;
    f->s = NULL;
    refused(f, ERR_CONFLICT, "in use by another process");
    f->s = first;
    struct store_job j = job_of("j", JOB_QUEUED);
    assert_int_equal(put_job(f, &j), 0);
}

static void test_version_0_is_migrated(void **state)
{
    struct fix *f = *state;
    struct err e = {0};
    FILE *h = fopen(f->path, "we"); /* an empty file is a version 0 database */
    assert_non_null(h);
    (void)fclose(h);
    unit_ok(fix_open(f, &e), &e);
    struct store_job j = job_of("j", JOB_QUEUED);
    assert_int_equal(put_job(f, &j), 0);
    fix_close(f);
    unit_ok(fix_open(f, &e), &e); /* and again: no step runs twice */
    assert_string_equal(list_jobs(f), "j=queued/0 ");
}

/* What aned wrote before jobs had intents: its rows stay, its events go. */
static void test_version_2_is_migrated(void **state)
{
    struct fix *f = *state;
    struct err e = {0};
    sql(f->path,
        "CREATE TABLE jobs(id TEXT PRIMARY KEY, state TEXT NOT NULL,"
        " spec TEXT NOT NULL, name TEXT NOT NULL, stage TEXT NOT NULL,"
        " progress REAL NOT NULL, error TEXT NOT NULL, message TEXT,"
        " result TEXT, attempts INTEGER NOT NULL, created_ms INTEGER NOT NULL,"
        " started_ms INTEGER NOT NULL, finished_ms INTEGER NOT NULL) STRICT;"
        "CREATE TABLE models(name TEXT PRIMARY KEY, fingerprint TEXT NOT NULL,"
        " state TEXT NOT NULL, reason TEXT, job TEXT NOT NULL, gates TEXT,"
        " bytes INTEGER NOT NULL, created_ms INTEGER NOT NULL,"
        " used_ms INTEGER NOT NULL) STRICT;"
        "CREATE TABLE artifacts(model TEXT NOT NULL REFERENCES models(name)"
        " ON DELETE CASCADE, path TEXT NOT NULL, sha256 TEXT NOT NULL,"
        " bytes INTEGER NOT NULL, PRIMARY KEY(model, path))"
        " STRICT, WITHOUT ROWID;"
        "CREATE TABLE events(id INTEGER PRIMARY KEY AUTOINCREMENT,"
        " at_ms INTEGER NOT NULL, kind TEXT NOT NULL, subject TEXT NOT NULL,"
        " detail TEXT) STRICT;"
        "CREATE TABLE sessions(id TEXT PRIMARY KEY, model TEXT NOT NULL,"
        " tokens BLOB NOT NULL, pinned INTEGER NOT NULL,"
        " created_ms INTEGER NOT NULL, used_ms INTEGER NOT NULL) STRICT;"
        "INSERT INTO jobs "
        "VALUES('a','done','{}','m','',1,'',NULL,NULL,1,1,1,1);"
        "INSERT INTO jobs "
        "VALUES('b','gating','{}','n','',1,'',NULL,NULL,1,2,1,0);"
        "INSERT INTO events(at_ms, kind, subject) VALUES(1,'job.state','a');"
        "PRAGMA application_id=1634624868; PRAGMA user_version=2");
    unit_ok(fix_open(f, &e), &e);
    assert_string_equal(list_jobs(f), "b=queued/1 a=done/1 ");
    fix_close(f);
    sql(f->path, "SELECT intent FROM jobs; CREATE TABLE events(x)");
}

static void test_newer_and_foreign(void **state)
{
    struct fix *f = *state;
    struct err e = {0};
    unit_ok(fix_open(f, &e), &e);
    fix_close(f);
    sql(f->path, "PRAGMA user_version=99");
    refused(f, ERR_CONFIG, "version 99");
    assert_int_equal(unlink(f->path), 0);
    sql(f->path, "CREATE TABLE t(x); PRAGMA user_version=1");
    refused(f, ERR_STORE, "another program");
    assert_int_equal(unlink(f->path), 0);
    sql(f->path, "CREATE TABLE t(x); PRAGMA application_id=7");
    refused(f, ERR_STORE, "another program");
}

static void test_not_a_database(void **state)
{
    struct fix *f = *state;
    struct stat st;
    FILE *h = fopen(f->path, "we");
    assert_non_null(h);
    for (int i = 0; i < 500; i++) {
        (void)fputs("this is not a database at all ", h);
    }
    (void)fclose(h);
    refused(f, ERR_STORE, "Move it");
    assert_int_equal(stat(f->path, &st), 0);
    assert_int_equal(st.st_size, 500 * 30); /* never replaced by an empty one */
    assert_int_equal(unlink(f->path), 0);
    assert_int_equal(mkdir(f->path, 0700), 0);
    struct err e = {0};
    assert_true(fix_open(f, &e) < 0);
    assert_int_equal(rmdir(f->path), 0);
}

/* Every page in turn overwritten: opened or refused, never a crash, never an
 * empty list in place of the jobs without a word. */
static void test_damaged_pages(void **state)
{
    struct fix *f = *state;
    struct err e = {0};
    struct stat st;
    unit_ok(fix_open(f, &e), &e);
    for (int i = 0; i < 200; i++) {
        char id[40];
        (void)snprintf(id, sizeof(id), "job_%d", i);
        struct store_job j = job_of(id, JOB_QUEUED);
        assert_int_equal(store_job_put(f->s, &j, NULL, NULL), 0);
    }
    fix_close(f);
    assert_int_equal(stat(f->path, &st), 0);
    size_t size = (size_t)st.st_size;
    char *all = malloc(size);
    must(all != NULL);
    int fd = open(f->path, O_RDWR | O_CLOEXEC);
    assert_int_equal(pread(fd, all, size, 0), (ssize_t)size);
    int refusals = 0;
    for (size_t at = 0; at < size; at += 4096) {
        char junk[4096];
        memset(junk, 0xa5, sizeof(junk));
        assert_int_equal(pwrite(fd, junk, 4096, (off_t)at), 4096);
        int rc = fix_open(f, &e);
        if (rc < 0) {
            refusals++;
            assert_int_equal(rc, ERR_STORE);
            assert_true(strlen(e.msg) > 0);
        } else {
            (void)list_jobs(f);
            assert_int_equal(listed_n, 200);
            fix_close(f);
        }
        char side[128];
        (void)snprintf(side, sizeof(side), "%s-wal", f->path);
        (void)unlink(side);
        assert_int_equal(ftruncate(fd, (off_t)size), 0);
        assert_int_equal(pwrite(fd, all, size, 0), (ssize_t)size);
    }
    assert_true(refusals > 3);
    (void)close(fd);
    free(all);
}

#define T(fn) cmocka_unit_test_setup_teardown(fn, fix_up, fix_down)

int main(void)
{
    const struct CMUnitTest tests[] = {
        T(test_new_file),
        T(test_second_owner),
        T(test_version_0_is_migrated),
        T(test_version_2_is_migrated),
        T(test_newer_and_foreign),
        T(test_not_a_database),
        T(test_damaged_pages),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
