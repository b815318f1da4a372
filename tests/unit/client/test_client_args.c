#include "../unit.h"
#include "client/client.h"

enum { O_FLAG, O_STR, O_INT, O_NUM, O_LIST };
static const struct opt opts[] = {
    [O_FLAG] = {"flag", 'f', OPT_FLAG, NULL, "", 0,  0               },
    [O_STR] = {"str",  's', OPT_STR,  "S",  "", 0,  0               },
    [O_INT] = {"int",  'i', OPT_INT,  "N",  "", 0,  9007199254740991},
    [O_NUM] = {"num",  0,   OPT_NUM,  "X",  "", -1, 2               },
    [O_LIST] = {"list", 0,   OPT_LIST, "T",  "", 0,  0               },
};
static const struct command cmd = {.name = "t",
                                   .args = "A [B]",
                                   .opts = opts,
                                   .n_opts = countof(opts),
                                   .pos_min = 1,
                                   .pos_max = 2};

static struct client c;
static struct args a;
static struct err e;

/* "words between spaces" as a command line after the command's name. */
static int parse(const char *line)
{
    static char copy[2000];
    static char *argv[64];
    int argc = 0;
    char *save = NULL;
    memset(&c, 0, sizeof(c));
    (void)snprintf(copy, sizeof(copy), "t %s", line);
    for (char *w = strtok_r(copy, " ", &save); w != NULL && argc < 63;
         w = strtok_r(NULL, " ", &save)) {
        argv[argc++] = w;
    }
    argv[argc] = NULL;
    return args_parse(&c, &cmd, argc, argv, &a, &e);
}

static void test_good(void **state)
{
    (void)state;
    assert_int_equal(parse("x"), 0);
    assert_int_equal(a.n_pos, 1);
    assert_false(a.opt[O_FLAG].set);
    /* options before, between and after */
    assert_int_equal(parse("-f x --str=v y --int 42 --num -0.5"), 0);
    assert_int_equal(a.n_pos, 2);
    assert_string_equal(a.pos[0], "x");
    assert_string_equal(a.pos[1], "y");
    assert_true(a.opt[O_FLAG].set);
    assert_string_equal(a.opt[O_STR].str, "v");
    assert_int_equal(a.opt[O_INT].integer, 42);
    assert_true(a.opt[O_NUM].num < -0.49 && a.opt[O_NUM].num > -0.51);
    assert_int_equal(parse("x -i9007199254740991"), 0);
    assert_true(a.opt[O_INT].integer == INT64_C(9007199254740991));
    assert_int_equal(parse("x --list a --list b"), 0);
    assert_int_equal(a.opt[O_LIST].n_list, 2);
    assert_string_equal(a.opt[O_LIST].list[1], "b");
    assert_int_equal(parse("--json x --socket /tmp/s"), 0);
    assert_true(c.json);
    assert_string_equal(c.peer.path, "/tmp/s");
    assert_int_equal(parse("x -- --flag"), 0);
    assert_string_equal(a.pos[1], "--flag");
    assert_int_equal(parse("--help"), 0); /* whatever else is missing */
    assert_true(a.help);
}

static void test_bad(void **state)
{
    (void)state;
    static const struct {
        const char *line, *says;
    } rows[] = {
        {"",                  "takes A [B]"  },
        {"x y z",             "takes A [B]"  },
        {"x --nope",          "--nope"       },
        {"x -z",              "-z"           },
        {"x --str",           "needs a value"},
        {"x --flag=1",        "--flag"       },
        {"x --int 1.5",       "whole number" },
        {"x --int 0x10",      "whole number" },
        {"x --int 1e3",       "whole number" },
        {"x --int -1",        "from 0 to"    },
        {"x --num 2.1",       "from -1 to 2" },
        {"x --num nan",       "number"       },
        {"x --num inf",       "number"       },
        {"x --num 1x",        "number"       },
        {"x --str a --str b", "twice"        },
    };
    for (size_t i = 0; i < countof(rows); i++) {
        e.msg[0] = '\0';
        int rc = parse(rows[i].line);
        if (rc != ERR_USAGE || strstr(e.msg, rows[i].says) == NULL) {
            fail_msg("%s: %d %s", rows[i].line, rc, e.msg);
        }
    }
}

static void test_global(void **state)
{
    (void)state;
    char *argv[] = {(char[]){"anectl"}, (char[]){"--json"}, (char[]){"models"},
                    (char[]){"--quiet"}, NULL};
    bool help = false;
    bool version = false;
    memset(&c, 0, sizeof(c));
    assert_int_equal(args_global(&c, 4, argv, &help, &version, &e), 2);
    assert_true(c.json);
    assert_false(help);
}

/* The tables are sound: unique, parsable, explained. */
static void test_tables(void **state)
{
    (void)state;
    for (size_t i = 0; commands[i] != NULL; i++) {
        const struct command *k = commands[i];
        assert_ptr_equal(command_find(k->name), k);
        assert_non_null(k->run);
        assert_non_null(strstr(k->examples, k->name));
        assert_true(k->n_opts <= OPTS_MAX);
        for (size_t o = 0; o < k->n_opts; o++) {
            assert_true(strlen(k->opts[o].help) > 3);
            assert_int_equal(k->opts[o].kind == OPT_FLAG ||
                                 k->opts[o].kind == OPT_GONE,
                             k->opts[o].arg == NULL);
            for (size_t p = 0; p < o; p++) {
                assert_string_not_equal(k->opts[o].name, k->opts[p].name);
                assert_true(k->opts[o].letter == 0 ||
                            k->opts[o].letter != k->opts[p].letter);
            }
        }
    }
    assert_null(command_find("nope"));
}

static void test_socket_search(void **state)
{
    (void)state;
    struct http_peer p;
    (void)setenv("HOME", "/h", 1);
    (void)unsetenv("ANED_HOME");
    (void)unsetenv("ANED_SOCKET");
    (void)unsetenv("XDG_RUNTIME_DIR");
    unit_ok(http_peer_find(&p, NULL, &e), &e);
    assert_int_equal(strncmp(p.path, "/h/", 3), 0);
    (void)setenv("ANED_HOME", "/a", 1);
    unit_ok(http_peer_find(&p, NULL, &e), &e);
    assert_string_equal(p.path, "/a/run/aned.sock");
    (void)setenv("XDG_RUNTIME_DIR", "/x", 1);
    unit_ok(http_peer_find(&p, NULL, &e), &e);
    assert_string_equal(p.path, "/x/aned/aned.sock");
    (void)setenv("ANED_SOCKET", "/s", 1);
    unit_ok(http_peer_find(&p, NULL, &e), &e);
    assert_string_equal(p.path, "/s");
    unit_ok(http_peer_find(&p, "/g", &e), &e);
    assert_string_equal(p.path, "/g");
    char deep[300];
    memset(deep, 'x', sizeof(deep) - 1);
    deep[sizeof(deep) - 1] = '\0';
    assert_int_equal(http_peer_find(&p, deep, &e), ERR_CONFIG);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_good),          cmocka_unit_test(test_bad),
        cmocka_unit_test(test_global),        cmocka_unit_test(test_tables),
        cmocka_unit_test(test_socket_search),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
