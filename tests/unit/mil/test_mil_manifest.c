/* Manifest.json and the files it leads to. */
#include <unistd.h>

#include "../unit.h"
#include "base/file.h"
#include "example.h"
#include "mil/impl.h"

static char dir[64];

static int write_example(void **state)
{
    (void)state;
    struct mil_writer *w = NULL;
    struct err e = {0};
    (void)snprintf(dir, sizeof(dir), "/tmp/aned-mil-XXXXXX");
    if (mkdtemp(dir) == NULL || mil_writer_open(dir, &w, &e) < 0) {
        return -1;
    }
    example_build(w);
    return mil_writer_finish(w, &e);
}

static int remove_example(void **state)
{
    (void)state;
    struct err e = {0};
    return file_rmtree(dir, &e);
}

static int read_with(const char *manifest, struct err *e)
{
    char path[128];
    struct mil_program *p = NULL;
    assert_true(file_join(path, sizeof(path), dir, "Manifest.json"));
    unit_ok(file_write(path, manifest, strlen(manifest), e), e);
    int rc = mil_read(dir, &p, e);
    mil_free(p);
    return rc;
}

#define MODEL_PATH "com.apple.CoreML/model.mlmodel"
#define ITEM(id, path, name, author)                     \
    "\"" id "\":{\"path\":\"" path "\",\"name\":\"" name \
    "\",\"author\":\"" author "\",\"description\":\"\"}"
#define MANIFEST(version, items, root)                                   \
    "{\"fileFormatVersion\":\"" version "\",\"itemInfoEntries\":{" items \
    "},\"rootModelIdentifier\":\"" root "\"}"
#define GOOD        ITEM("m", MODEL_PATH, "model", "a")
#define PATHS(path) MANIFEST("1.0.0", ITEM("m", path, "model", "a"), "m")

static void manifests(void **state)
{
    (void)state;
    static const struct {
        const char *why;
        const char *text;
        int rc;
        const char *message;
    } rows[] = {
        {"a one-letter identifier",                    MANIFEST("1.0.0",           GOOD,"m"),0, ""},
        {"an older version",                                          MANIFEST("0.9.0",                                                                    GOOD,"m"),0, ""},
        {"an escaped slash",
         MANIFEST("1.0.0",
         ITEM("m",             "com.apple.CoreML\\/model.mlmodel",                                                                                                            "n", "a"), "m"),
         0, ""},
        {"1.0.1",                             MANIFEST("1.0.1",                                                                 GOOD,"m"),ERR_PKG_MANIFEST, "1.0.1"},
        {"1.1.0",                                        MANIFEST("1.1.0",                                                                        GOOD,"m"),ERR_PKG_MANIFEST, "1.1.0"},
        {"1.0",MANIFEST("1.0",GOOD,"m"),                                                                                                    ERR_PKG_MANIFEST, "1.0"},
        {"1.0.0.0",                                            MANIFEST("1.0.0.0",                                                                GOOD,"m"),ERR_PKG_MANIFEST, "1.0.0."},
        {"a signed version",                            MANIFEST("-1.0.0",                                               GOOD,"m"),ERR_PKG_MANIFEST,
         "-1.0.0"},
        {"a long version",
         MANIFEST("0.0.00000000000000000000000000000",                                                                                                         GOOD,                                                                  "m"),
         ERR_PKG_MANIFEST, "fileFormatVersion"},
        {"no such root",                                    MANIFEST("1.0.0", GOOD,"x"),ERR_PKG_MANIFEST,
         "rootModelIdentifier"},
        {"no items",                                    "{\"fileFormatVersion\":\"1.0.0\"}",                                                              ERR_PKG_MANIFEST,
         "itemInfoEntries"},
        {"items in an array",
         "{\"fileFormatVersion\":\"1.0.0\",\"itemInfoEntries\":[]}",                                                  ERR_PKG_MANIFEST,"itemInfoEntries"},
        {"an item without author",
         "{\"fileFormatVersion\":\"1.0.0\",\"itemInfoEntries\":{\"m\":{"
         "\"path\":\"x\",\"name\":\"n\",\"description\":\"\"}}}",ERR_PKG_MANIFEST,"item m has no author"},
        {"two of one name",
         MANIFEST("1.0.0",
         GOOD "," ITEM("k","com.apple.CoreML/weights","model", "a"),
         "m"),
         ERR_PKG_MANIFEST, "two items model of a"},
        {"one of two authors",
         MANIFEST("1.0.0",
         GOOD "," ITEM("k","com.apple.CoreML/weights","model", "b"),
         "m"),
         0, ""},
        {"an absent item",
         MANIFEST("1.0.0",                                                        GOOD "," ITEM("k","none",                                      "k", "a"), "m"),
         ERR_PKG_MISSING, "none is absent"},
        {"a way out",                            PATHS("../Data/" MODEL_PATH),ERR_PKG_MANIFEST,"item m"},
        {"a way out inside",                            PATHS("com.apple.CoreML/../../x"),
         ERR_PKG_MANIFEST,                                                                                                                                                                                                                                                                         "item m"                                                                                                                                                                                                                                                                                    },
        {"an absolute path",                            PATHS("/etc/passwd"),                            ERR_PKG_MANIFEST,                "item m"                                                                                                  },
        {"an empty path",                             PATHS(""),                                 ERR_PKG_MANIFEST,"item m"},
        {"an empty part",                            PATHS("com.apple.CoreML//model.mlmodel"),
         ERR_PKG_MANIFEST,"item m"           },
        {"a folder for a model",                                            PATHS("com.apple.CoreML/weights"),                                                                    ERR_INVALID,
         ""},
        {"weights for a model",                           PATHS("com.apple.CoreML/weights/weight.bin"),
         ERR_PKG_PROTOBUF,"no Model"},
        {"not JSON",                              "{",                                        ERR_PKG_MANIFEST,""},
        {"empty",                            "",                                                           ERR_PKG_MANIFEST,                                                  ""                                                                                                     },
    };
    for (size_t i = 0; i < countof(rows); i++) {
        struct err e = {0};
        int rc = read_with(rows[i].text, &e);
        if (rc != rows[i].rc || (rc < 0 && e.code != rc) ||
            (rc < 0 && strstr(e.msg, rows[i].message) == NULL)) {
            fail_msg("%s: %s: %s", rows[i].why, err_name(rc), e.msg);
        }
    }
}

static void missing_files(void **state)
{
    (void)state;
    struct err e = {0};
    struct mil_program *p = NULL;
    char path[160];
    assert_int_equal(read_with(MANIFEST("1.0.0", GOOD, "m"), &e), 0);
    (void)snprintf(path, sizeof(path),
                   "%s/Data/com.apple.CoreML/weights/weight.bin", dir);
    assert_int_equal(truncate(path, 100), 0);
    assert_int_equal(mil_read(dir, &p, &e), ERR_MIL_BLOB);
    assert_int_equal(truncate(path, 10), 0);
    assert_int_equal(mil_read(dir, &p, &e), ERR_MIL_BLOB);
    assert_int_equal(unlink(path), 0);
    assert_int_equal(mil_read(dir, &p, &e), ERR_PKG_MISSING);
    (void)snprintf(path, sizeof(path), "%s/Manifest.json", dir);
    assert_int_equal(unlink(path), 0);
    assert_int_equal(mil_read(dir, &p, &e), ERR_PKG_MISSING);
    assert_int_equal(mil_read("/nowhere/x.mlpackage", &p, &e), ERR_PKG_MISSING);
    assert_null(p);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(manifests),
        cmocka_unit_test(missing_files),
    };
    return cmocka_run_group_tests_name("mil_manifest", tests, write_example,
                                       remove_example);
}
