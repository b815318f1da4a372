#include "../unit.h"
#include "http/route.h"

static const struct http_route table[] = {
    {HTTP_M_GET,    "/a",         NULL, 0},
    {HTTP_M_GET,    "/j/{}",      NULL, 0},
    {HTTP_M_DELETE, "/j/{}",      NULL, 0},
    {HTTP_M_POST,   "/m/{}/x/{}", NULL, 0},
};

static int find(unsigned method, const char *path, struct http_args *a,
                unsigned *allow)
{
    const struct http_route *r = NULL;
    *allow = 0;
    int rc = http_route_find(table, countof(table), method,
                             (struct span){path, strlen(path)}, &r, a, allow);
    return rc < 0 ? rc : (int)(r - table);
}

static void test_find(void **state)
{
    (void)state;
    struct http_args a = {0};
    unsigned allow = 0;
    assert_int_equal(find(HTTP_M_GET, "/a", &a, &allow), 0);
    assert_int_equal(find(HTTP_M_HEAD, "/a", &a, &allow), 0);
    assert_int_equal(find(HTTP_M_GET, "/j/k", &a, &allow), 1);
    assert_int_equal(a.n, 1);
    assert_string_equal(a.v[0], "k");
    assert_int_equal(find(HTTP_M_DELETE, "/j/k", &a, &allow), 2);
    assert_int_equal(find(HTTP_M_POST, "/m/1/x/%412", &a, &allow), 3);
    assert_string_equal(a.v[1], "A2");

    assert_int_equal(find(HTTP_M_GET, "/", &a, &allow), ERR_NO_ROUTE);
    assert_int_equal(find(HTTP_M_GET, "/a/", &a, &allow), ERR_NO_ROUTE);
    assert_int_equal(find(HTTP_M_GET, "/j/", &a, &allow), ERR_NO_ROUTE);
    assert_int_equal(find(HTTP_M_GET, "/j/k/l", &a, &allow), ERR_NO_ROUTE);
    assert_int_equal(find(HTTP_M_POST, "/j/k", &a, &allow), ERR_BAD_METHOD);
    char text[40];
    http_route_allow(allow, text);
    assert_string_equal(text, "GET, HEAD, DELETE");
    assert_int_equal(find(0, "/a", &a, &allow), ERR_BAD_METHOD);
}

static void test_hostile_parts(void **state)
{
    (void)state;
    static const char *const bad[] = {"/j/%2e%2e", "/j/a%2Fb", "/j/a%2fb",
                                      "/j/%00",    "/j/%0a",   "/j/%",
                                      "/j/%4",     "/j/%zz",   "/j/a%7f"};
    for (size_t i = 0; i < countof(bad); i++) {
        struct http_args a = {0};
        unsigned allow = 0;
        int rc = find(HTTP_M_GET, bad[i], &a, &allow);
        if (rc != ERR_HTTP) {
            fail_msg("%s: %d", bad[i], rc);
        }
    }
    char path[300] = "/j/";
    memset(path + 3, 'x', 256);
    path[3 + 256] = '\0';
    struct http_args a = {0};
    unsigned allow = 0;
    assert_int_equal(find(HTTP_M_GET, path, &a, &allow), ERR_NO_ROUTE);
    path[3 + 255] = '\0';
    assert_int_equal(find(HTTP_M_GET, path, &a, &allow), 1);
}

static void test_decode(void **state)
{
    (void)state;
    char out[8];
    assert_int_equal(http_decode("a+b%20c", 7, true, out, sizeof(out)), 0);
    assert_string_equal(out, "a b c");
    assert_int_equal(http_decode("a+b", 3, false, out, sizeof(out)), 0);
    assert_string_equal(out, "a+b");
    assert_int_equal(http_decode("1234567", 7, false, out, sizeof(out)), 0);
    assert_int_equal(http_decode("12345678", 8, false, out, sizeof(out)),
                     ERR_TOO_BIG);
    assert_int_equal(http_decode("%4", 2, false, out, sizeof(out)), ERR_HTTP);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_find),
        cmocka_unit_test(test_hostile_parts),
        cmocka_unit_test(test_decode),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
