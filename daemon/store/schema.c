/* schema.c - see schema.h.
 *
 * One connection, EXCLUSIVE before the first read and WAL after: no -shm file,
 * and no second opener while aned runs (facts/reliability.md V-28). FULL: an
 * answered request has been synced (V-14). */
#include "store/schema.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/file.h"

#define APPLICATION_ID 0x616e6564 /* "aned" */

/* user_version is the number of steps done. Steps are only ever appended:
 * a released one never changes. */
static const char *const steps[] = {
    "CREATE TABLE jobs("
    " id TEXT PRIMARY KEY,"
    " state TEXT NOT NULL CHECK(state IN ('queued','running','gating','done',"
    "  'failed','cancelled','interrupted')),"
    " spec TEXT NOT NULL, name TEXT NOT NULL, stage TEXT NOT NULL,"
    " progress REAL NOT NULL, error TEXT NOT NULL, message TEXT, result TEXT,"
    " attempts INTEGER NOT NULL, created_ms INTEGER NOT NULL,"
    " started_ms INTEGER NOT NULL, finished_ms INTEGER NOT NULL) STRICT;"
    "CREATE INDEX jobs_by_time ON jobs(created_ms, id);"
    "CREATE TABLE models("
    " name TEXT PRIMARY KEY, fingerprint TEXT NOT NULL,"
    " state TEXT NOT NULL CHECK(state IN ('ready','rejected','failed')),"
    " reason TEXT, job TEXT NOT NULL, gates TEXT, bytes INTEGER NOT NULL,"
    " created_ms INTEGER NOT NULL, used_ms INTEGER NOT NULL) STRICT;"
    "CREATE TABLE artifacts("
    " model TEXT NOT NULL REFERENCES models(name) ON DELETE CASCADE,"
    " path TEXT NOT NULL, sha256 TEXT NOT NULL, bytes INTEGER NOT NULL,"
    " PRIMARY KEY(model, path)) STRICT, WITHOUT ROWID;"
    "CREATE TABLE events("
    " id INTEGER PRIMARY KEY AUTOINCREMENT, at_ms INTEGER NOT NULL,"
    " kind TEXT NOT NULL, subject TEXT NOT NULL, detail TEXT) STRICT;",
    "CREATE TABLE sessions("
    " id TEXT PRIMARY KEY, model TEXT NOT NULL,"
    " tokens BLOB NOT NULL CHECK(length(tokens) % 4 = 0),"
    " pinned INTEGER NOT NULL CHECK(pinned IN (0,1)),"
    " created_ms INTEGER NOT NULL, used_ms INTEGER NOT NULL) STRICT;",
    ("DROP TABLE events;"
     "ALTER TABLE jobs ADD COLUMN intent TEXT;"),
    ("CREATE TABLE residency_reports("
     " id INTEGER PRIMARY KEY, fingerprint TEXT NOT NULL,"
     " kind TEXT NOT NULL CHECK(kind IN ('measured','predicted')),"
     " machine TEXT NOT NULL, options TEXT NOT NULL,"
     " verdict TEXT NOT NULL CHECK(verdict IN ('passed','warned','failed')),"
     " reason TEXT, widths TEXT NOT NULL, report TEXT NOT NULL,"
     " created_ms INTEGER NOT NULL,"
     " UNIQUE(fingerprint, kind, options, machine)) STRICT;"
     "CREATE TABLE residency_ops("
     " report INTEGER NOT NULL REFERENCES residency_reports(id)"
     "  ON DELETE CASCADE,"
     " n INTEGER NOT NULL, package TEXT NOT NULL, function TEXT NOT NULL,"
     " type TEXT NOT NULL, device TEXT NOT NULL, could TEXT NOT NULL,"
     " count INTEGER NOT NULL, cost REAL NOT NULL, example TEXT NOT NULL,"
     " reason TEXT NOT NULL, PRIMARY KEY(report, n)) STRICT, WITHOUT ROWID;"),
    "ALTER TABLE residency_ops ADD COLUMN rule TEXT NOT NULL DEFAULT '';",
    ("CREATE TABLE quality_reports("
     " fingerprint TEXT PRIMARY KEY,"
     " verdict TEXT NOT NULL CHECK(verdict IN ('passed','failed','not run')),"
     " report TEXT NOT NULL, created_ms INTEGER NOT NULL)"
     " STRICT, WITHOUT ROWID;"),
    ("CREATE TABLE answers("
     " id TEXT PRIMARY KEY, body BLOB NOT NULL, talk BLOB NOT NULL,"
     " created_ms INTEGER NOT NULL) STRICT;"),
};

int schema_fail(sqlite3 *db, const char *path, const char *what, struct err *e)
{
    const char *text = sqlite3_errmsg(db);
    switch (sqlite3_errcode(db) & 0xff) {
    case SQLITE_FULL:
        return err_set(e, ERR_NO_SPACE, "%s: %s: the disk is full", path, what);
    case SQLITE_BUSY:
    case SQLITE_LOCKED:
        return err_set(e, ERR_CONFLICT, "%s is in use by another process",
                       path);
    case SQLITE_CORRUPT:
    case SQLITE_NOTADB:
        return err_set(e, ERR_STORE,
                       "%s is damaged (%s: %s). Move it and its -wal file "
                       "away together and start again: models on disk are "
                       "found again, the list of jobs starts empty",
                       path, what, text);
    default:
        return err_set(e, ERR_STORE, "%s: %s: %s", path, what, text);
    }
}

int schema_exec(sqlite3 *db, const char *path, const char *sql, struct err *e)
{
    if (sqlite3_exec(db, sql, NULL, NULL, NULL) != SQLITE_OK) {
        char what[41];
        (void)snprintf(what, sizeof(what), "%s", sql);
        return schema_fail(db, path, what, e);
    }
    return 0;
}

static int read_int(sqlite3 *db, const char *path, const char *sql,
                    int64_t *ret, struct err *e)
{
    sqlite3_stmt *q = NULL;
    int rc = 0;
    if (sqlite3_prepare_v2(db, sql, -1, &q, NULL) != SQLITE_OK ||
        sqlite3_step(q) != SQLITE_ROW) {
        rc = schema_fail(db, path, sql, e);
    } else {
        *ret = sqlite3_column_int64(q, 0);
    }
    (void)sqlite3_finalize(q);
    return rc;
}

/* A check that answers "ok" or what is wrong; foreign_key_check answers
 * nothing when all is well. */
static int check(sqlite3 *db, const char *path, const char *sql, struct err *e)
{
    sqlite3_stmt *q = NULL;
    int rc = 0;
    int step = SQLITE_ERROR;
    if (sqlite3_prepare_v2(db, sql, -1, &q, NULL) == SQLITE_OK) {
        step = sqlite3_step(q);
    }
    const char *text =
        step == SQLITE_ROW ? (const char *)sqlite3_column_text(q, 0) : NULL;
    if (step != SQLITE_ROW && step != SQLITE_DONE) {
        rc = schema_fail(db, path, sql, e);
    } else if (step == SQLITE_ROW && (text == NULL || strcmp(text, "ok"))) {
        rc = err_set(e, ERR_STORE,
                     "%s is damaged (%s: %s). Move it and its -wal file away "
                     "together and start again: models on disk are found "
                     "again, the list of jobs starts empty",
                     path, sql, text != NULL ? text : "?");
    }
    (void)sqlite3_finalize(q);
    return rc;
}

/* Private from its first moment; sqlite's own would follow the umask. */
static int make_file(const char *path, struct err *e)
{
    int fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    if (fd < 0) {
        return err_errno(e, errno, path);
    }
    (void)close(fd);
    return 0;
}

/* A clean end removes the -wal file. */
static bool ended_badly(const char *path)
{
    char wal[4096];
    struct stat st;
    int n = snprintf(wal, sizeof(wal), "%s-wal", path);
    return n > 0 && (size_t)n < sizeof(wal) && stat(wal, &st) == 0 &&
           st.st_size > 0;
}

static int settings(sqlite3 *db, const char *path, struct err *e)
{
    static const char *const pragmas[] = {
        "PRAGMA locking_mode=EXCLUSIVE",
        "PRAGMA journal_mode=WAL",
        "PRAGMA synchronous=FULL",
        "PRAGMA fullfsync=1",
        "PRAGMA checkpoint_fullfsync=1",
        "PRAGMA foreign_keys=ON",
        "PRAGMA trusted_schema=OFF",
        "PRAGMA cell_size_check=ON",
        "PRAGMA mmap_size=0",
        "PRAGMA journal_size_limit=16777216",
    };
    (void)sqlite3_extended_result_codes(db, 1);
    (void)sqlite3_db_config(db, SQLITE_DBCONFIG_DEFENSIVE, 1, NULL);
    (void)sqlite3_limit(db, SQLITE_LIMIT_LENGTH, 16 << 20);
    (void)sqlite3_busy_timeout(db, 0); /* busy means another owner */
    for (size_t i = 0; i < countof(pragmas); i++) {
        int rc = schema_exec(db, path, pragmas[i], e);
        if (rc < 0) {
            return rc;
        }
    }
    return 0;
}

static int run_step(sqlite3 *db, const char *path, size_t i, struct err *e)
{
    char sql[128];
    (void)snprintf(sql, sizeof(sql),
                   "PRAGMA application_id=%d; PRAGMA user_version=%zu;"
                   "COMMIT",
                   APPLICATION_ID, i + 1);
    RETERR(schema_exec(db, path, "BEGIN IMMEDIATE", e));
    RETERR(schema_exec(db, path, steps[i], e));
    return schema_exec(db, path, sql, e);
}

static int migrate(sqlite3 *db, const char *path, struct err *e)
{
    int64_t version = 0;
    int64_t app = 0;
    RETERR(read_int(db, path, "PRAGMA user_version", &version, e));
    RETERR(read_int(db, path, "PRAGMA application_id", &app, e));
    if (app != APPLICATION_ID && (app != 0 || version != 0)) {
        return err_set(e, ERR_STORE, "%s is a database of another program",
                       path);
    }
    if (version > (int64_t)countof(steps)) {
        return err_set(e, ERR_CONFIG,
                       "%s has version %lld, this aned knows up to %zu: "
                       "start the newer aned",
                       path, (long long)version, countof(steps));
    }
    for (size_t i = (size_t)version; i < countof(steps); i++) {
        int rc = run_step(db, path, i, e);
        if (rc < 0 && sqlite3_get_autocommit(db) == 0) {
            (void)sqlite3_exec(db, "ROLLBACK", NULL, NULL, NULL);
        }
        if (rc < 0) {
            return rc;
        }
    }
    return 0;
}

int schema_open(const char *path, sqlite3 **ret, struct err *e)
{
    sqlite3 *db = NULL;
    bool thorough = ended_badly(path);
    const char *how =
        thorough ? "PRAGMA integrity_check(1)" : "PRAGMA quick_check(1)";
    int rc = make_file(path, e);
    if (rc < 0) {
        return rc;
    }
    if (sqlite3_open_v2(path, &db,
                        SQLITE_OPEN_READWRITE | SQLITE_OPEN_NOMUTEX |
                            SQLITE_OPEN_PRIVATECACHE,
                        NULL) != SQLITE_OK) {
        rc = schema_fail(db, path, "open", e);
        goto out;
    }
    CHECK(settings(db, path, e));
    CHECK(check(db, path, how, e));
    if (thorough) {
        CHECK(check(db, path, "PRAGMA foreign_key_check", e));
    }
    CHECK(migrate(db, path, e));
    *ret = db;
    db = NULL; /* given away */
out:
    (void)sqlite3_close(db); /* NULL is a no-op */
    return rc;
}

int store_check(const char *path, struct err *e)
{
    static const char *const sql[] = {"PRAGMA integrity_check(1)",
                                      "PRAGMA foreign_key_check"};
    sqlite3 *db = NULL;
    int64_t version = 0;
    int rc = 0;
    if (!file_exists(path)) {
        return err_set(e, ERR_NOT_FOUND, "there is no %s", path);
    }
    if (sqlite3_open_v2(path, &db, SQLITE_OPEN_READWRITE, NULL) != SQLITE_OK) {
        rc = schema_fail(db, path, "open", e);
        goto out;
    }
    (void)sqlite3_busy_timeout(db, 0);
    if (ended_badly(path)) { /* that stays to be seen by the next start */
        (void)sqlite3_db_config(db, SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, 1, NULL);
    }
    CHECK(schema_exec(db, path, "PRAGMA locking_mode=EXCLUSIVE", e));
    for (size_t i = 0; i < countof(sql); i++) {
        CHECK(check(db, path, sql[i], e));
    }
    CHECK(read_int(db, path, "PRAGMA application_id", &version, e));
    if (version != APPLICATION_ID) {
        rc = err_set(e, ERR_STORE, "%s is a database of another program", path);
    }
out:
    (void)sqlite3_close(db);
    return rc;
}
