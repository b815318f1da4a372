/* A TCP listener: where it is, whom it takes for one client, and what it makes
 * of a port in use. What it refuses: test_http_guard.c, tests/e2e/test_tcp.py.
 */
#include <arpa/inet.h>
#include <netinet/in.h>

#include "harness.h"
#include "http/address.h"
#include "http/guard.h"

static uint64_t last_peer, last_process;
static bool last_tcp;
static int64_t last_pid;

static void who(struct http_req *r, const struct http_args *a)
{
    (void)a;
    last_peer = http_peer(r);
    last_process = http_peer_process(r);
    last_pid = http_peer_pid(r);
    last_tcp = http_is_tcp(r);
    http_reply(r, 200, NULL, "{}", 2);
}

static const struct http_route table[] = {
    {HTTP_M_GET, "/", who, 0}
};
static const struct http_guard guard = {.open = true};
static const struct http_conf conf = {
    .routes = table, .n_routes = 1, .guard = &guard};

static struct http_addresses local;

static int up(void **state)
{
    struct fix *f = calloc(1, sizeof(*f));
    struct err e = {0};
    must(f != NULL);
    assert_int_equal(uv_loop_init(&f->loop), 0);
    fix_dir(f);
    unit_ok(address_read("127.0.0.1:0", &local, &e), &e);
    unit_ok(http_listen_tcp(&f->loop, &local.v[0], &conf, &f->srv, &e), &e);
    *state = f;
    return 0;
}

static int down(void **state)
{
    fix_down(*state);
    free(*state);
    return 0;
}

static unsigned port_of(const struct fix *f)
{
    const char *name = http_tcp_name(f->srv);
    assert_non_null(name);
    assert_int_equal(strncmp(name, "127.0.0.1:", 10), 0);
    return (unsigned)strtoul(name + 10, NULL, 10);
}

static int dial_tcp(const struct fix *f)
{
    struct sockaddr_in sa = {.sin_family = AF_INET,
                             .sin_port = htons((uint16_t)port_of(f)),
                             .sin_addr = {.s_addr = htonl(INADDR_LOOPBACK)}};
    int fd = socket(AF_INET, SOCK_STREAM, 0);
    assert_true(fd >= 0);
    assert_int_equal(connect(fd, (struct sockaddr *)&sa, sizeof(sa)), 0);
    assert_int_equal(fcntl(fd, F_SETFL, O_NONBLOCK), 0);
    return fd;
}

/* The number of the client that sends these headers on a new connection. */
static uint64_t peer_of(struct fix *f, const char *headers)
{
    struct buf b;
    char text[256];
    bool eof = false;
    int fd = dial_tcp(f);
    buf_init(&b, KIB(4));
    (void)snprintf(text, sizeof(text),
                   "GET / HTTP/1.1\r\nHost: localhost\r\n%s\r\n", headers);
    assert_true(put(f, fd, text, strlen(text)));
    get(f, fd, &b, "{}", WAIT_MS, &eof);
    assert_non_null(strstr(b.p, "HTTP/1.1 200 "));
    buf_fini(&b);
    (void)close(fd);
    turn(f, 2);
    return last_peer;
}

static void who_is_one_client(void **state)
{
    struct fix *f = *state;
    uint64_t editor = peer_of(f, "User-Agent: editor/1\r\n");
    assert_true(last_tcp);
    assert_int_equal(last_pid, -1);
    assert_int_equal(last_process, 0); /* nobody's conversations are shared */
    assert_true(editor >> 63 == 1);    /* is no pid */
    assert_int_equal(peer_of(f, "User-Agent: editor/1\r\n"), editor);
    assert_int_not_equal(peer_of(f, "User-Agent: script/1\r\n"), editor);
    uint64_t nameless = peer_of(f, "");
    assert_true(nameless >> 63 == 1);
    assert_int_not_equal(peer_of(f, ""), nameless);
}

static void a_port_in_use(void **state)
{
    struct fix *f = *state;
    struct http_addresses same;
    struct http_server *s = NULL;
    struct err e = {0};
    unit_ok(address_read(http_tcp_name(f->srv), &same, &e), &e);
    assert_int_equal(http_listen_tcp(&f->loop, &same.v[0], &conf, &s, &e),
                     ERR_CONFLICT);
    assert_null(s);
    assert_non_null(strstr(e.msg, http_tcp_name(f->srv)));
    turn(f, 3);
}

/* A handed socket of TCP needs a guard, and loopback. */
static void handed_sockets(void **state)
{
    struct fix *f = *state;
    struct sockaddr_in sa = {.sin_family = AF_INET};
    struct http_conf bare = conf;
    struct http_server *s = NULL;
    struct err e = {0};
    int fd = socket(AF_INET, SOCK_STREAM, 0);
    assert_true(fd >= 0 && address_is_tcp(fd));
    assert_int_equal(http_listen_fd(&f->loop, fd, &conf, &s, &e), ERR_CONFIG);
    assert_int_equal(bind(fd, (struct sockaddr *)&sa, sizeof(sa)), 0);
    assert_int_equal(listen(fd, 4), 0); /* on 0.0.0.0 */
    assert_int_equal(http_listen_fd(&f->loop, fd, &conf, &s, &e), ERR_CONFIG);
    (void)close(fd);
    fd = socket(AF_INET, SOCK_STREAM, 0);
    sa.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    assert_int_equal(bind(fd, (struct sockaddr *)&sa, sizeof(sa)), 0);
    assert_int_equal(listen(fd, 4), 0);
    bare.guard = NULL;
    assert_int_equal(http_listen_fd(&f->loop, fd, &bare, &s, &e), ERR_CONFIG);
    unit_ok(http_listen_fd(&f->loop, fd, &conf, &s, &e), &e);
    assert_non_null(http_tcp_name(s));
    http_close(s, NULL, NULL);
    turn(f, 3);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(who_is_one_client, up, down),
        cmocka_unit_test_setup_teardown(a_port_in_use, up, down),
        cmocka_unit_test_setup_teardown(handed_sockets, up, down),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
