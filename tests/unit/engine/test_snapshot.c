/* test_snapshot.c - sequences to files and back, on the demo model: a sequence
 * from a file continues with the same bits as one that never stopped, in every
 * form of bundle and on both backends. A file that is damaged or of another
 * model is refused, and only its positions are lost. */
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "converted.h"
#include "engine/cpu/backend_cpu.h"
#include "engine/snapshot.h"
#include "role_child.h"

enum { N = 200, MORE = 24, SAVED = 192 };

static char dir[256];
static int32_t tokens[N + MORE];

static const struct form {
    const char *shape, *kv, *quant, *backend;
} forms[] = {
    {"ranged",    "state", "int8", "cpu"        },
    {"ranged",    "state", "int8", "interpreter"},
    {"functions", "state", "fp16", "cpu"        },
    {"ranged",    "host",  "int8", "cpu"        },
    /* where there is Core ML, or what imitates it */
    {"ranged",    "state", "int8", "coreml"     },
    {"functions", "state", "fp16", "coreml"     },
    {"ranged",    "host",  "int8", "coreml"     },
};

static size_t n_forms(void)
{
    return backend_find("coreml") != NULL ? countof(forms) : 4;
}

/* The path of a file, which stands. */
static const char *file(const char *name)
{
    static char path[16][512];
    size_t i = 0;
    while (path[i][0] != '\0' && strcmp(strrchr(path[i], '/') + 1, name) != 0) {
        i++;
        assert_true(i < countof(path));
    }
    (void)snprintf(path[i], sizeof(path[i]), "%s/%s", dir, name);
    return path[i];
}

static struct engine *open_form(const struct form *f)
{
    char out[512];
    const struct engine_conf conf = {.threads = 1, .backend = f->backend};
    (void)snprintf(out, sizeof(out), "%s/%s-%s-%s", dir, f->shape, f->kv,
                   f->quant);
    return converted_open(converted_demo(), out, f->quant, f->shape, f->kv,
                          &conf);
}

static int setup(void **state)
{
    (void)state;
    converted_dir(dir, "snapshot");
    uint32_t x = 7;
    for (size_t i = 0; i < countof(tokens); i++) {
        x = x * 1664525u + 1013904223u;
        tokens[i] = (int32_t)(x >> 16) % 200;
    }
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    struct err e;
    unit_ok(file_rmtree(dir, &e), &e);
    return 0;
}

/* A sequence of the first n tokens. */
static struct engine_seq *computed(struct engine *g, uint32_t n)
{
    struct engine_seq *s = NULL;
    struct err e;
    unit_ok(engine_seq_open(g, &s, &e), &e);
    unit_ok(engine_eval(s, tokens, n, 0, 0, NULL, NULL, &e), &e);
    return s;
}

static int run(struct snapshot *x, struct msg_state_done *done, struct err *e)
{
    int rc = 0;
    while (rc == 0) {
        rc = snapshot_run(x, 0, e);
    }
    if (rc > 0) {
        snapshot_done(x, done, e);
    }
    return rc;
}

static void save(const struct engine_seq *s, const char *path, uint32_t from,
                 uint32_t to)
{
    struct snapshot *x = NULL;
    struct msg_state_done done;
    struct err e;
    struct stat st;
    const struct msg_state_part part = {from, to, path};
    unit_ok(snapshot_save(s, &part, &x, &e), &e);
    assert_int_equal(run(x, &done, &e), 1);
    assert_int_equal(stat(path, &st), 0);
    assert_int_equal(st.st_mode & 0777, 0600);
    assert_int_equal((uint64_t)st.st_size, done.bytes);
    snapshot_free(x);
}

/* How many positions of the parts came back, and the sequence. */
static uint32_t load(struct engine *g, const struct msg_state *m,
                     struct engine_seq **ret, struct msg_state_done *done,
                     struct err *why)
{
    struct snapshot *x = NULL;
    unit_ok(snapshot_load(g, m, &x, why), why);
    assert_int_equal(run(x, done, why), 1);
    *ret = snapshot_take(x);
    snapshot_free(x);
    assert_int_equal(engine_seq_length(*ret), done->n);
    assert_memory_equal(engine_seq_tokens(*ret), tokens,
                        done->n * sizeof(tokens[0]));
    return done->n;
}

/* Logits of the last MORE tokens after s, which is closed. */
static const float *rest(struct engine *g, struct engine_seq *s, size_t *bytes)
{
    struct msg_ready r;
    struct err e;
    const float *got = NULL;
    engine_ready(g, &r);
    uint32_t n = engine_seq_length(s);
    if (n < N) {
        unit_ok(engine_eval(s, tokens + n, N - n, 64, 0, NULL, NULL, &e), &e);
    }
    unit_ok(engine_eval(s, tokens + N, MORE, 5, 2, &got, NULL, &e), &e);
    *bytes = (size_t)MORE * r.vocab * sizeof(float);
    engine_seq_close(s);
    return got;
}

/* s continues with the logits `want`. s is closed. */
static void check_rest(struct engine *g, struct engine_seq *s,
                       const float *want)
{
    size_t bytes = 0;
    const float *got = rest(g, s, &bytes);
    assert_memory_equal(got, want, bytes);
}

/* A copy that never left memory gives the same. s is closed. */
static void check_copy(struct engine *g, const struct engine_seq *of,
                       struct engine_seq *s)
{
    struct engine_seq *copy = NULL;
    struct err e;
    size_t bytes = 0;
    unit_ok(engine_seq_fork(of, engine_seq_length(s), &copy, &e), &e);
    const float *got = rest(g, copy, &bytes);
    float *want = malloc(bytes);
    assert_non_null(want);
    memcpy(want, got, bytes);
    check_rest(g, s, want);
    free(want);
}

static float *cold(struct engine *g)
{
    struct msg_ready r;
    struct err e;
    const float *got = NULL;
    engine_ready(g, &r);
    struct engine_seq *s = computed(g, N);
    unit_ok(engine_eval(s, tokens + N, MORE, 0, 2, &got, NULL, &e), &e);
    size_t bytes = (size_t)MORE * r.vocab * sizeof(float);
    float *keep = malloc(bytes);
    assert_non_null(keep);
    memcpy(keep, got, bytes);
    engine_seq_close(s);
    return keep;
}

static void test_exact(void **state)
{
    (void)state;
    for (size_t f = 0; f < n_forms(); f++) {
        if (unit_passed_over(f, 2)) {
            continue;
        }
        struct engine *g = open_form(&forms[f]);
        struct engine_seq *s = computed(g, 100);
        struct engine_seq *back = NULL;
        struct engine_seq *fork = NULL;
        struct msg_state_done done;
        struct err e;
        /* two deltas, and all in one */
        save(s, file("a"), 0, 64);
        unit_ok(engine_eval(s, tokens + 100, N - 100, 0, 0, NULL, NULL, &e),
                &e);
        save(s, file("b"), 64, SAVED);
        save(s, file("c"), 0, SAVED);
        struct msg_state two = {
            .tokens = tokens,
            .n_tokens = N,
            .n_parts = 2,
            .parts = {{0, 64, file("a")}, {64, SAVED, file("b")}},
        };
        assert_int_equal(load(g, &two, &back, &done, &e), SAVED);
        check_copy(g, s, back);
        /* the middle of a file, and not all of one */
        struct msg_state cut = {
            .tokens = tokens,
            .n_tokens = N,
            .n_parts = 2,
            .parts = {{0, 64, file("a")}, {64, 128, file("c")}},
        };
        assert_int_equal(load(g, &cut, &back, &done, &e), 128);
        check_copy(g, s, back);
        /* a fork of what was loaded, and what that was forked from */
        assert_int_equal(load(g, &two, &back, &done, &e), SAVED);
        unit_ok(engine_seq_fork(back, 150, &fork, &e), &e);
        check_copy(g, s, back);
        check_copy(g, s, fork);
        engine_seq_close(s);
        engine_close(g);
    }
}

/* Where nothing depends on the chunks (design 7): as if computed cold. */
static void test_cold(void **state)
{
    (void)state;
    for (size_t f = 0; f < 3; f++) {
        struct engine *g = open_form(&forms[f]);
        float *want = cold(g);
        struct engine_seq *s = computed(g, N);
        struct msg_state_done done;
        struct err e;
        save(s, file("all"), 0, SAVED);
        engine_seq_close(s);
        struct msg_state m = {.tokens = tokens,
                              .n_tokens = N,
                              .n_parts = 1,
                              .parts = {{0, SAVED, file("all")}}};
        assert_int_equal(load(g, &m, &s, &done, &e), SAVED);
        check_rest(g, s, want);
        free(want);
        engine_close(g);
    }
}

/* A save has the sequence of the time when it began, whatever happens to it
 * meanwhile; an unfinished save leaves nothing. */
static void test_meanwhile(void **state)
{
    (void)state;
    struct engine *g = open_form(&forms[0]);
    float *want = cold(g);
    struct engine_seq *s = computed(g, N);
    struct snapshot *x = NULL;
    struct msg_state_done done;
    struct err e;
    const struct msg_state_part part = {0, SAVED, file("d")};
    unit_ok(snapshot_save(s, &part, &x, &e), &e);
    assert_int_equal(snapshot_run(x, 0, &e), 0);
    assert_true(file_exists(file("d.part")));
    snapshot_free(x);
    assert_false(file_exists(file("d.part")) || file_exists(file("d")));
    unit_ok(snapshot_save(s, &part, &x, &e), &e);
    unit_ok(engine_seq_truncate(s, 10, &e), &e);
    unit_ok(engine_eval(s, tokens, 90, 0, 0, NULL, NULL, &e), &e);
    engine_seq_close(s);
    assert_int_equal(run(x, &done, &e), 1);
    snapshot_free(x);
    struct msg_state m = {.tokens = tokens,
                          .n_tokens = N,
                          .n_parts = 1,
                          .parts = {{0, SAVED, file("d")}}};
    assert_int_equal(load(g, &m, &s, &done, &e), SAVED);
    check_rest(g, s, want);
    free(want);
    engine_close(g);
}

/* Change one byte of a copy of file `from`, or cut it there. */
static void damage(const char *from, const char *to, size_t at, bool cut)
{
    struct buf b;
    struct err e;
    unit_ok(file_read(from, MIB(64), &b, &e), &e);
    at = at < b.n ? at : b.n - 1;
    b.p[at] ^= 0x10;
    unit_ok(file_write(to, b.p, cut ? at : b.n, &e), &e);
    buf_fini(&b);
}

static void test_damaged(void **state)
{
    (void)state;
    struct engine *g = open_form(&forms[0]);
    float *want = cold(g);
    struct engine_seq *s = computed(g, N);
    struct msg_state_done done;
    struct err e;
    save(s, file("good"), 0, SAVED);
    engine_seq_close(s);
    struct msg_state m = {.tokens = tokens,
                          .n_tokens = N,
                          .n_parts = 1,
                          .parts = {{0, SAVED, file("bad")}}};
    /* the header: magic, counts, names, tokens, sums; then blocks */
    static const size_t at[] = {0, 8, 16, 33, 36, 40, 44, 50, 120, 160, 900};
    for (size_t i = 0; i < 2 * countof(at); i++) {
        damage(file("good"), file("bad"), at[i / 2], i % 2 == 1);
        assert_int_equal(load(g, &m, &s, &done, &e), 0);
        assert_int_equal(done.bad, 1);
        assert_int_equal(e.code, ERR_STATE);
        check_rest(g, s, want);
    }
    struct stat st;
    assert_int_equal(stat(file("good"), &st), 0);
    damage(file("good"), file("bad"), (size_t)st.st_size - 5, false);
    assert_int_equal(load(g, &m, &s, &done, &e), 128); /* the last block */
    check_rest(g, s, want);
    damage(file("good"), file("bad"), (size_t)st.st_size - 5, true);
    assert_int_equal(load(g, &m, &s, &done, &e), 0); /* its length is wrong */
    check_rest(g, s, want);
    assert_int_equal(unlink(file("bad")), 0);
    assert_int_equal(load(g, &m, &s, &done, &e), 0);
    assert_int_equal(e.code, ERR_NOT_FOUND);
    check_rest(g, s, want);
    free(want);
    engine_close(g);
}

/* The file, with a header that says that it is of a long sequence. */
static void say_long(const char *path)
{
    struct state_file f;
    struct buf b;
    struct err e;
    int fd = -1;
    unit_ok(state_file_open(path, &f, &fd, &e), &e);
    (void)close(fd);
    f.long_list = true;
    buf_init(&b, STATE_HEADER_MAX);
    state_file_put(&b, &f);
    fd = open(path, O_WRONLY | O_CLOEXEC);
    assert_true(fd >= 0 && pwrite(fd, b.p, b.n, 0) == (ssize_t)b.n);
    (void)close(fd);
    buf_fini(&b);
    state_file_fini(&f);
}

/* Files of another model, another backend, other tokens, the other list. */
static void test_others(void **state)
{
    (void)state;
    struct engine *g = open_form(&forms[0]);
    struct engine_seq *s = computed(g, N);
    struct msg_state_done done;
    struct err e;
    save(s, file("mine"), 0, SAVED);
    engine_seq_close(s);
    struct msg_state m = {.tokens = tokens,
                          .n_tokens = N,
                          .n_parts = 1,
                          .parts = {{0, SAVED, file("mine")}}};
    tokens[70] ^= 1;
    assert_int_equal(load(g, &m, &s, &done, &e), 0);
    assert_int_equal(done.bad, 1);
    tokens[70] ^= 1;
    engine_seq_close(s);
    assert_int_equal(load(g, &m, &s, &done, &e), SAVED);
    engine_seq_close(s);
    engine_close(g);
    for (size_t f = 1; f < n_forms(); f++) {
        g = open_form(&forms[f]);
        assert_int_equal(load(g, &m, &s, &done, &e), 0);
        assert_int_equal(e.code, ERR_STATE);
        engine_seq_close(s);
        engine_close(g);
    }
    g = open_form(&forms[0]);
    say_long(file("mine"));
    assert_int_equal(load(g, &m, &s, &done, &e), 0);
    assert_int_equal(e.code, ERR_STATE);
    assert_string_equal(e.msg, "by the long list");
    engine_seq_close(s);
    engine_close(g);
}

static void test_bounds(void **state)
{
    (void)state;
    struct engine *g = open_form(&forms[0]);
    struct engine_seq *s = computed(g, 130);
    struct snapshot *x = NULL;
    struct err e;
    static const uint32_t wrong[][2] = {
        {0,  192},
        {0,  130},
        {64, 64 },
        {3,  64 },
        {64, 0  }
    };
    for (size_t i = 0; i < countof(wrong); i++) {
        const struct msg_state_part p = {wrong[i][0], wrong[i][1], file("x")};
        assert_int_equal(snapshot_save(s, &p, &x, &e), ERR_INVALID);
    }
    const struct msg_state_part p = {0, 64, "/nowhere/x"};
    assert_int_equal(snapshot_save(s, &p, &x, &e), ERR_NOT_FOUND);
    struct msg_state gap = {.tokens = tokens,
                            .n_tokens = 130,
                            .n_parts = 1,
                            .parts = {{64, 128, file("x")}}};
    assert_int_equal(snapshot_load(g, &gap, &x, &e), ERR_INVALID);
    gap.parts[0].from = 0;
    gap.n_tokens = 120;
    assert_int_equal(snapshot_load(g, &gap, &x, &e), ERR_INVALID);
    gap.n_tokens = 130;
    tokens[3] += 1 << 24;
    assert_int_equal(snapshot_load(g, &gap, &x, &e), ERR_INVALID);
    tokens[3] -= 1 << 24;
    engine_seq_close(s);
    engine_close(g);
}

/* --- more arrays than a file can hold --- */

/* backend_cpu on a bundle with kv = host, that says of a program with past
 * arrays that it has `more` of them, like its first one. */
static struct {
    unsigned more;
    int64_t heads; /* of those; 0: as the first one */
    unsigned told; /* past arrays of all programs in one engine */
    struct backend_port in[2 * STATE_ARRAYS_MAX], out[2 * STATE_ARRAYS_MAX];
    char names[4 * STATE_ARRAYS_MAX][32];
} tale;

static const struct backend_port *named(const struct backend_port *p, size_t n,
                                        const char *name)
{
    for (size_t i = 0; i < n; i++) {
        if (strcmp(p[i].name, name) == 0) {
            return &p[i];
        }
    }
    return NULL;
}

static struct backend_port another(const struct backend_port *p, unsigned i,
                                   const char *end)
{
    struct backend_port to = *p;
    char *name = tale.names[2 * i + (end[1] == 'n')];
    (void)snprintf(name, sizeof(tale.names[0]), "layers_%u_k%s", 1000 + i, end);
    to.name = name;
    to.type.dims[1] = tale.heads > 0 ? tale.heads : to.type.dims[1];
    return to;
}

static void tell(const struct backend_model *m, struct backend_info *ret)
{
    backend_cpu.info(m, ret);
    const struct backend_port *past =
        named(ret->in, ret->n_in, "layers_0_k_past");
    const struct backend_port *new =
        named(ret->out, ret->n_out, "layers_0_k_new");
    for (size_t i = 0; i < ret->n_in; i++) {
        tale.told += strstr(ret->in[i].name, "_past") != NULL;
    }
    if (past == NULL || tale.in[0].name != NULL) {
        return; /* a head, or not the first shard */
    }
    assert_non_null(new);
    memcpy(tale.in, ret->in, ret->n_in * sizeof(tale.in[0]));
    memcpy(tale.out, ret->out, ret->n_out * sizeof(tale.out[0]));
    for (unsigned i = 0; i < tale.more; i++) {
        tale.in[ret->n_in++] = another(past, i, "_past");
        tale.out[ret->n_out++] = another(new, i, "_new");
    }
    ret->in = tale.in;
    ret->out = tale.out;
}

/* The program has no such inputs, so their arrays are ours. */
static int told_array(struct backend_model *m, size_t i, enum mil_dtype dtype,
                      int rank, const int64_t *dims, struct backend_array **ret,
                      struct err *e)
{
    struct backend_info info;
    backend_cpu.info(m, &info);
    if (i < info.n_in) {
        return backend_cpu.array_new(m, i, dtype, rank, dims, ret, e);
    }
    *ret = calloc(1, sizeof(**ret));
    assert_non_null(*ret);
    **ret = (struct backend_array){.dtype = dtype, .rank = rank};
    return 0;
}

static int open_told(unsigned more, int64_t heads, struct err *e)
{
    char out[512];
    struct backend be = backend_cpu;
    const struct engine_conf conf = {.threads = 1};
    struct engine *g = NULL;
    memset(&tale, 0, sizeof(tale));
    tale.more = more;
    tale.heads = heads;
    be.info = tell;
    be.array_new = told_array;
    engine_close(open_form(&forms[3])); /* makes the bundle */
    (void)snprintf(out, sizeof(out), "%s/ranged-host-int8", dir);
    int rc = engine_open_with(&be, out, &conf, &g, e);
    struct engine_seq *s = NULL;
    if (rc == 0) {
        unit_ok(engine_seq_open(g, &s, e), e);
        engine_seq_close(s);
    }
    engine_close(g);
    return rc;
}

static void test_many_arrays(void **state)
{
    (void)state;
    struct err e;
    unit_ok(open_told(0, 0, &e), &e);
    assert_in_range(tale.told, 2, 64);
    unsigned room = STATE_ARRAYS_MAX - tale.told;
    unit_ok(open_told(room, 0, &e), &e);
    static const unsigned beyond[] = {1, 2, STATE_ARRAYS_MAX / 2};
    for (size_t i = 0; i < countof(beyond); i++) {
        assert_int_equal(open_told(room + beyond[i], 0, &e), ERR_BUNDLE);
        assert_non_null(strstr(e.msg, "past arrays"));
    }
    assert_int_equal(open_told(1, MODEL_DIM_MAX + 1, &e), ERR_BUNDLE);
    assert_int_equal(open_told(1, (int64_t)1 << 40, &e), ERR_BUNDLE);
}

/* --- the engine child --- */

static struct frame receive(enum frame_type want, uint32_t request)
{
    struct frame f;
    struct err e;
    do {
        assert_int_equal(frame_read_fd(child.fd, &child.in, &f, &e), 1);
    } while (f.type == FRAME_PROGRESS);
    assert_int_equal(f.type, want);
    assert_int_equal(f.request, request);
    return f;
}

static void send_seq(enum frame_type type, uint32_t seq, uint32_t request)
{
    msg_seq_put(&child.b, &(struct msg_seq){seq, 0, 0});
    child_send(type, request);
}

static void send_state(enum frame_type type, uint32_t seq, uint32_t request)
{
    bool loads = type == FRAME_STATE_LOAD;
    struct msg_state m = {.seq = seq,
                          .tokens = tokens,
                          .n_tokens = loads ? N : 0,
                          .n_parts = 1,
                          .parts = {{0, SAVED, file("role")}}};
    msg_state_put(&child.b, &m);
    child_send(type, request);
}

/* The token after tokens [at, N). */
static int32_t step(uint32_t seq, uint32_t at, uint32_t request)
{
    struct msg_step_done done;
    struct err e;
    struct msg_row row = {.seq = seq,
                          .position = at,
                          .n_tokens = N - at,
                          .tokens = tokens + at,
                          .sample = true};
    msg_sampling_init(&row.sampling);
    msg_step_put(&child.b, &(struct msg_step){1, &row});
    child_send(FRAME_STEP, request);
    struct frame f = receive(FRAME_STEP_DONE, request);
    unit_ok(msg_step_done_get(f.payload, f.n, &done, &e), &e);
    assert_int_equal(done.rows[0].error, 0);
    int32_t id = done.rows[0].tokens[0].id;
    msg_step_done_fini(&done);
    return id;
}

static void test_role(void **state)
{
    (void)state;
    struct msg_state_done done;
    struct err e;
    char bundle[512];
    engine_close(open_form(&forms[0])); /* makes the bundle */
    (void)snprintf(bundle, sizeof(bundle), "%s/ranged-state-int8", dir);
    child_start();
    msg_load_put(&child.b, &(struct msg_load){.bundle = bundle, .backend = "cpu", .threads = 1});
    child_send(FRAME_LOAD, 1);
    (void)receive(FRAME_READY, 1);
    send_seq(FRAME_SEQ_OPEN, 4, 2);
    (void)receive(FRAME_OK, 2);
    int32_t want = step(4, 0, 3);
    /* the sequence may go at once; the answers come as they come */
    send_state(FRAME_STATE_SAVE, 4, 4);
    send_seq(FRAME_SEQ_CLOSE, 4, 5);
    done.seq = 0;
    for (unsigned i = 0; i < 2; i++) {
        struct frame f;
        assert_int_equal(frame_read_fd(child.fd, &child.in, &f, &e), 1);
        assert_int_equal(f.type, f.request == 4 ? FRAME_STATE_DONE : FRAME_OK);
        if (f.request == 4) {
            unit_ok(msg_state_done_get(f.payload, f.n, &done, &e), &e);
        }
    }
    assert_int_equal(done.seq, 4);
    send_state(FRAME_STATE_LOAD, 6, 6);
    struct frame f = receive(FRAME_STATE_DONE, 6);
    unit_ok(msg_state_done_get(f.payload, f.n, &done, &e), &e);
    assert_int_equal(done.seq, 6);
    assert_int_equal(done.n, SAVED);
    assert_int_equal(step(6, SAVED, 7), want);
    send_state(FRAME_STATE_LOAD, 6, 8); /* it is open */
    (void)receive(FRAME_ERROR, 8);
    /* what is on its way is finished before the end */
    assert_int_equal(unlink(file("role")), 0);
    send_state(FRAME_STATE_SAVE, 6, 9);
    child_send(FRAME_UNLOAD, 10);
    (void)receive(FRAME_STATE_DONE, 9);
    assert_true(file_exists(file("role")));
    assert_int_equal(child_finish(), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_exact),     cmocka_unit_test(test_cold),
        cmocka_unit_test(test_meanwhile), cmocka_unit_test(test_damaged),
        cmocka_unit_test(test_others),    cmocka_unit_test(test_bounds),
        cmocka_unit_test(test_many_arrays),
        cmocka_unit_test(test_role),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
