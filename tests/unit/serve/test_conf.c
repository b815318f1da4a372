/* aned.conf: the table, the file in conf/, and what is refused. */
#include <unistd.h>

#include "../unit.h"
#include "base/file.h"
#include "serve/conf.h"
#include "serve/home.h"

static char path[64];

static void put(const char *text)
{
    struct err e = {0};
    unit_ok(file_write(path, text, strlen(text), &e), &e);
}

static int setup(void **state)
{
    (void)state;
    (void)snprintf(path, sizeof(path), "/tmp/aned-conf-XXXXXX");
    int fd = mkstemp(path);
    assert_true(fd >= 0);
    return close(fd);
}

static int teardown(void **state)
{
    (void)state;
    return unlink(path);
}

/* conf/aned.conf is what --print-config writes, byte for byte. */
static void the_documented_file_is_the_table(void **state)
{
    (void)state;
    char conf[1024];
    struct err e = {0};
    struct buf want = {0}, got = {0};
    (void)snprintf(conf, sizeof(conf), "%s/../conf/aned.conf", unit_tests());
    FILE *f = fopen(path, "w");
    assert_non_null(f);
    conf_print(f);
    assert_int_equal(fclose(f), 0);
    unit_ok(file_read(path, MIB(1), &got, &e), &e);
    unit_ok(file_read(conf, MIB(1), &want, &e), &e);
    assert_string_equal(got.p, want.p);
    buf_fini(&want);
    buf_fini(&got);
}

static void its_values_are_the_defaults(void **state)
{
    (void)state;
    char conf[1024];
    struct err e = {0};
    struct conf a, b;
    conf_init(&a);
    b = a;
    b.engine_threads = 63;
    b.cache_models = 7;
    (void)snprintf(conf, sizeof(conf), "%s/../conf/aned.conf", unit_tests());
    unit_ok(conf_read(&b, conf, &e), &e);
    assert_memory_equal(&a, &b, sizeof(a));
}

static void values_are_read(void **state)
{
    (void)state;
    struct err e = {0};
    struct conf c;
    conf_init(&c);
    put("# head\n[engine]\nthreads = 3\nbackend=interpreter ; why\n"
        "prefill_chunk = 64\n[speculation]\nmax_draft = 0\n[server]\n"
        "socket = /tmp/a b.sock\n");
    unit_ok(conf_read(&c, path, &e), &e);
    assert_int_equal(c.engine_threads, 3);
    assert_string_equal(c.engine_backend, "interpreter");
    assert_int_equal(c.engine_prefill_chunk, 64);
    assert_string_equal(c.server_socket, "/tmp/a b.sock");
    assert_int_equal(c.cache_models, 2); /* the rest keeps its default */
}

static void mistakes_are_refused_with_their_line(void **state)
{
    (void)state;
    char line[700];
    memset(line, 'x', sizeof(line));
    memcpy(line, "[server]\nsocket = ", 18);
    line[sizeof(line) - 1] = '\0';
    const struct {
        const char *text, *where, *what;
    } rows[] = {
        {"[engine]\n\nthread = 3\n",         ":3:", "thread"     },
        {"[engin]\nthreads = 3\n",           ":2:", "[engin]"    },
        {"threads = 3\n",                    ":1:", "threads"    },
        {"[engine]\nthreads = 65\n",         ":2:", "0 to 64"    },
        {"[engine]\nthreads = -1\n",         ":2:", "0 to 64"    },
        {"[engine]\nthreads = 3x\n",         ":2:", "whole"      },
        {"[engine]\nthreads =\n",            ":2:", "whole"      },
        {"[engine]\nbackend = gpu\n",        ":2:", "coreml"     },
        {"[engine]\nbackend = cp\n",         ":2:", "coreml"     },
        {"[engine]\nthreads=1\nthreads=2\n", ":3:", "twice"      },
        {"[engine]\nthreads=1\n  2\n",       ":3:", "twice"      },
        {"[engine\n",                        ":1:", "section"    },
        {"[engine]\nnonsense\n",             ":2:", "key = value"},
        {line,                               ":2:", "longer"     },
        {"[http]\nlisten = 0.0.0.0:11435\n",  ":2:", "no loopback"},
        {"[http]\n\nlisten = 11435\n",        ":3:", "ADDRESS:PORT"},
        {"[http]\nlisten = evil.example:1\n", ":2:", "'listen'"   },
        {"[http]\nlisten = 127.0.0.1:1\nlisten = 127.0.0.1:2\n", ":3:",
         "twice"                                                    },
        {"[http]\ncors_origins = *\n",        ":2:", "without '*'"},
        {"[http]\nallow_unauthenticated = 1\n", ":2:", "no yes"    },
        {"[aliases]\na = b\nc = d\na = e\n", ":4:", "twice"      },
        {"[aliases]\na =\n",                ":2:", "1 to 128"   },
        {"[aliases]\n = b\n",               ":2:", "1 to 128"   },
        {"[aliases]\na* = b\n[engine]\nthreads = x\n", ":4:", "whole"},
    };
    for (size_t i = 0; i < countof(rows); i++) {
        struct err e = {0};
        struct conf c, was;
        conf_init(&c);
        was = c;
        put(rows[i].text);
        print_message("# %s\n", rows[i].what);
        assert_int_equal(conf_read(&c, path, &e), ERR_CONFIG);
        assert_non_null(strstr(e.msg, rows[i].where));
        assert_non_null(strstr(e.msg, rows[i].what));
        assert_memory_equal(&c, &was, sizeof(c)); /* all or nothing */
        assert_int_equal(err_exit(ERR_CONFIG), 78);
    }
    struct err e = {0};
    struct conf c;
    conf_init(&c);
    assert_int_equal(conf_read(&c, "/nonexistent/aned.conf", &e),
                     ERR_NOT_FOUND);
}

static void the_first_alias_that_fits_counts(void **state)
{
    (void)state;
    struct err e = {0};
    struct conf c, was;
    char long_name[300];
    conf_init(&c);
    put("[aliases]\nclaude-3* = small\nclaude-* = gemma\nq[0-9] = quick\n"
        "gpt-oss?20b = big\na\\b = slash\n");
    unit_ok(conf_read(&c, path, &e), &e);
    const struct {
        const char *name, *model;
    } rows[] = {
        {"claude-3-5-haiku", "small"}, {"claude-opus-4", "gemma"},
        {"claude-", "gemma"},          {"claude", NULL},
        {"my-claude-3", NULL},         {"q7", "quick"},
        {"qq", NULL},                  {"gpt-oss:20b", "big"},
        {"gpt-oss::20b", NULL},        {"a\\b", "slash"},
        {"", NULL},                    {"small", NULL},
    };
    for (size_t i = 0; i < countof(rows); i++) {
        const char *got = aliases_find(&c.aliases, rows[i].name);
        print_message("# %s\n", rows[i].name);
        if (rows[i].model == NULL) {
            assert_null(got);
        } else {
            assert_non_null(got);
            assert_string_equal(got, rows[i].model);
        }
    }
    memset(long_name, 'x', sizeof(long_name));
    memcpy(long_name, "claude-", 7);
    long_name[MODEL_NAME_MAX] = '\0';
    assert_non_null(aliases_find(&c.aliases, long_name));
    long_name[MODEL_NAME_MAX] = 'x';
    long_name[MODEL_NAME_MAX + 1] = '\0';
    assert_null(aliases_find(&c.aliases, long_name));
    assert_false(alias_is_name(&c.aliases.row[0]));
    assert_true(alias_is_name(&c.aliases.row[4]));
    was = c; /* a file without the section has none */
    put("[engine]\nthreads = 1\n");
    unit_ok(conf_read(&c, path, &e), &e);
    assert_int_equal(c.aliases.n, 0);
    assert_false(aliases_same(&was.aliases, &c.aliases));
}

static void aliases_have_a_limit(void **state)
{
    (void)state;
    struct err e = {0};
    struct aliases a = {0};
    char name[200];
    for (unsigned i = 0; i < ALIASES_MAX; i++) {
        (void)snprintf(name, sizeof(name), "n%u", i);
        unit_ok(aliases_add(&a, name, "m", &e), &e);
    }
    assert_int_equal(aliases_add(&a, "more", "m", &e), ERR_CONFIG);
    assert_int_equal(a.n, ALIASES_MAX);
    a.n = 0;
    memset(name, 'x', sizeof(name));
    name[MODEL_NAME_MAX] = '\0';
    unit_ok(aliases_add(&a, name, name, &e), &e);
    name[MODEL_NAME_MAX] = 'x';
    name[MODEL_NAME_MAX + 1] = '\0';
    assert_int_equal(aliases_add(&a, "a", name, &e), ERR_CONFIG);
    assert_int_equal(aliases_add(&a, name, "m", &e), ERR_CONFIG);
}

struct changes {
    char text[200];
};

static void on_change(void *ctx, const char *name, enum conf_when when)
{
    struct changes *x = ctx;
    size_t n = strlen(x->text);
    (void)snprintf(x->text + n, sizeof(x->text) - n, "%s:%d ", name, (int)when);
}

/* A reload takes what counts now or with the next load, and leaves the rest. */
static void a_reload_leaves_what_needs_a_restart(void **state)
{
    (void)state;
    struct conf was, is;
    struct changes x = {""};
    conf_init(&was);
    conf_init(&is);
    conf_take(&was, &is, on_change, &x);
    assert_string_equal(x.text, "");
    is.cache_models = 9;
    is.limits_streams = 4;
    (void)snprintf(is.server_log, sizeof(is.server_log), "warn");
    (void)snprintf(is.engine_backend, sizeof(is.engine_backend), "coreml");
    conf_take(&was, &is, on_change, &x);
    char want[200];
    (void)snprintf(want, sizeof(want),
                   "server.log:%d engine.backend:%d limits.streams:%d "
                   "cache.models:%d ",
                   CONF_NOW, CONF_START, CONF_LOAD, CONF_NOW);
    assert_string_equal(x.text, want);
    assert_int_equal(was.cache_models, 9);
    assert_int_equal(was.limits_streams, 4);
    assert_string_equal(was.server_log, "warn");
    assert_string_equal(was.engine_backend, "cpu");
    x.text[0] = '\0';
    unit_ok(aliases_add(&is.aliases, "a*", "b", &(struct err){0}),
            &(struct err){0});
    conf_take(&was, &is, on_change, &x);
    (void)snprintf(want, sizeof(want), "engine.backend:%d aliases:%d ",
                   CONF_START, CONF_NOW);
    assert_string_equal(x.text, want);
    assert_string_equal(aliases_find(&was.aliases, "ab"), "b");
    x.text[0] = '\0'; /* it still waits for its restart; the rest is taken */
    conf_take(&was, &is, on_change, &x);
    (void)snprintf(want, sizeof(want), "engine.backend:%d ", CONF_START);
    assert_string_equal(x.text, want);
}

static void default_places(void **state)
{
    (void)state;
    struct err e = {0};
    struct home h;
    (void)setenv("ANED_HOME", "/a/home", 1);
    (void)unsetenv("ANED_SOCKET");
    (void)unsetenv("XDG_RUNTIME_DIR");
    unit_ok(home_paths(NULL, NULL, &h, &e), &e);
    assert_string_equal(h.models, "/a/home/models");
    assert_string_equal(h.socket, "/a/home/run/aned.sock");
    (void)setenv("XDG_RUNTIME_DIR", "/run/user/1", 1);
    unit_ok(home_paths(NULL, "", &h, &e), &e);
    assert_string_equal(h.socket, "/run/user/1/aned/aned.sock");
    (void)setenv("ANED_SOCKET", "/x/s.sock", 1);
    unit_ok(home_paths("/b/", NULL, &h, &e), &e);
    assert_string_equal(h.dir, "/b");
    assert_string_equal(h.socket, "/x/s.sock");
    unit_ok(home_paths("/b", "/c.sock", &h, &e), &e);
    assert_string_equal(h.socket, "/c.sock");
    (void)unsetenv("ANED_HOME");
    (void)setenv("HOME", "/u", 1);
    unit_ok(home_dir(NULL, h.dir, &e), &e);
#if !defined(__APPLE__)
    assert_string_equal(h.dir, "/u/.local/share/aned");
#endif
}

static void an_open_home_is_refused(void **state)
{
    (void)state;
    struct err e = {0};
    struct home h;
    char dir[] = "/tmp/aned-home-XXXXXX", sub[64];
    assert_non_null(mkdtemp(dir));
    (void)snprintf(sub, sizeof(sub), "%s/new", dir);
    unit_ok(home_paths(sub, "/x", &h, &e), &e);
    unit_ok(home_make(&h, &e), &e);
    unit_ok(home_make(&h, &e), &e);
    char cmd[128];
    (void)snprintf(cmd, sizeof(cmd), "chmod 750 %s", sub);
    assert_int_equal(system(cmd), 0);
    assert_int_equal(home_make(&h, &e), ERR_CONFIG);
    unit_ok(file_rmtree(dir, &e), &e);
}

static void macos_keeps_some_folders(void **state)
{
    (void)state;
    struct err e = {0};
    unit_ok(home_guarded("/Users/u/Library/Application Support/x", "/Users/u",
                         true, &e),
            &e);
    unit_ok(home_guarded("/Users/u/Documents/x", "/Users/u", false, &e), &e);
    assert_int_equal(home_guarded("/Users/u/Documents/x", "/Users/u", true, &e),
                     ERR_CONFIG);
    assert_non_null(strstr(e.msg, "Documents"));
    assert_non_null(strstr(e.msg, "--home"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(the_documented_file_is_the_table, setup,
                                        teardown),
        cmocka_unit_test(its_values_are_the_defaults),
        cmocka_unit_test_setup_teardown(values_are_read, setup, teardown),
        cmocka_unit_test_setup_teardown(mistakes_are_refused_with_their_line,
                                        setup, teardown),
        cmocka_unit_test_setup_teardown(the_first_alias_that_fits_counts, setup,
                                        teardown),
        cmocka_unit_test(aliases_have_a_limit),
        cmocka_unit_test(a_reload_leaves_what_needs_a_restart),
        cmocka_unit_test(default_places),
        cmocka_unit_test(an_open_home_is_refused),
        cmocka_unit_test(macos_keeps_some_folders),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
