/* mil.c - `aned mil run`, `compile` and `dump`: a package on files. */
#include "mil/mil.h"

#include <getopt.h>
#include <string.h>

#include "base/buf.h"
#include "base/file.h"
#include "base/npy.h"
#include "base/parse.h"
#include "cli/cli.h"
#include "cli/mil_time.h"
#include "engine/cpu/backend_cpu.h"
#include "engine/dense.h"

#define PATH_LEN  4096
#define TIMED_MAX 1000000 /* predictions of `mil time` */

static const char usage[] =
    "usage: aned mil run PKG IN OUT [--function F] [--round fp16] [--backend "
    "B]\n"
    "                        [--threads N] [--isa NAME]\n"
    "aned mil compile PKG [--function F] [--backend B] [--after PASS]\n"
    "aned mil time PKG [--function F] [--backend B] [--width T] [--count N] "
    "[--json]\n"
    "aned mil dump PKG\n"
    "\n"
    "run: IN/step0/NAME.npy, IN/step1/... are the inputs, one prediction a\n"
    "folder; states are kept between them. OUT/stepK/NAME.npy are the outputs\n"
    "(float32), OUT/state/NAME.npy the states after the last one (float16).\n"
    "\n"
    "  --function F   default: the package's default function\n"
    "  --round fp16   round each operation's result to fp16\n"
    "  --backend B    cpu (default), interpreter or coreml\n"
    "  --threads N    default: the number of cores; never changes a result\n"
    "  --isa NAME     kernels to run on: scalar, avx2, avxvnni, avx512, amx,\n"
    "                 neon, neon_dot, neon_i8mm (default: the best of this\n"
    "                 machine); never changes a result\n"
    "\n"
    "compile: what the backend makes of the program, one operation a line; "
    "and\n"
    "when it does not run as rows (any T, many sequences at once), why not.\n"
    "\n"
    "  --after PASS   as it is after this pass: states, views, norm, rope, "
    "linear,\n"
    "                 elementwise, glu, heads, share or dead\n"
    "\n"
    "time: run it on zeros, and tell how long a prediction takes.\n"
    "\n"
    "  --width T      rows of a prediction (default: the least)\n"
    "  --count N      predictions (default 100)\n"
    "  --json         as one object; of Core ML also how many results came\n"
    "                 elsewhere than prepared\n"
    "\n"
    "dump: the program as text on stdout.\n";

struct mil_run {
    const char *pkg, *in, *out;
    const char *function;
    const struct backend *backend;
    struct backend_conf conf;
    struct cpu_conf cpu; /* of conf */
    uint32_t width, count;
    bool json;

    struct backend_model *model;
    struct backend_state *state;
    struct backend_info info;
    struct dense dense;
    struct npy *arrays;     /* info.n_in */
    struct tensor *tensors; /* info.n_in */
};

/* dir/sub/name.npy; names come from the package. */
static int npy_path(char *out, size_t size, const char *dir, const char *sub,
                    const char *name, struct err *e)
{
    if (name[0] == '\0' || name[0] == '.' || strchr(name, '/') != NULL) {
        return err_set(e, ERR_INVALID, "'%s' does not make a file name", name);
    }
    int n = snprintf(out, size, "%s/%s/%s.npy", dir, sub, name);
    if (n < 0 || (size_t)n >= size) {
        return err_set(e, ERR_INVALID, "path too long");
    }
    return 0;
}

static int tensor_of(struct npy *a, struct tensor *t, struct err *e)
{
    switch (a->type) { /* NOLINT: the rest are no inputs */
    case NPY_F16:
        t->dtype = MIL_FP16;
        break;
    case NPY_F32:
        t->dtype = MIL_FP32;
        break;
    case NPY_I32:
        t->dtype = MIL_INT32;
        break;
    case NPY_BOOL:
        t->dtype = MIL_BOOL;
        break;
    case NPY_I64:
    case NPY_U8:
    case NPY_I8:
    case NPY_U16:
    case NPY_U32:
    default:
        return err_set(e, ERR_MIL_INPUT,
                       "input %s: float16, float32, int32 or bool is wanted",
                       t->name);
    }
    t->rank = a->rank;
    memcpy(t->dims, a->dims, (size_t)a->rank * sizeof(*a->dims));
    t->data = a->data;
    return 0;
}

static void drop_arrays(struct mil_run *r)
{
    for (size_t i = 0; r->arrays != NULL && i < r->info.n_in; i++) {
        npy_fini(&r->arrays[i]);
        r->arrays[i] = (struct npy){0};
    }
}

/* The inputs that IN/step has; *n of them. */
static int load_step(struct mil_run *r, const char *step, size_t *n,
                     struct err *e)
{
    char path[PATH_LEN];
    *n = 0;
    drop_arrays(r);
    for (size_t i = 0; i < r->info.n_in; i++) {
        struct tensor *t = &r->tensors[*n];
        t->name = r->info.in[i].name;
        RETERR(npy_path(path, sizeof(path), r->in, step, t->name, e));
        if (!file_exists(path)) {
            continue; /* predict names the missing input */
        }
        RETERR(npy_read(path, MIL_TENSOR_BYTES_MAX, &r->arrays[*n], e));
        RETERR(tensor_of(&r->arrays[*n], t, e));
        (*n)++;
    }
    return 0;
}

static int make_dir(const struct mil_run *r, const char *sub, struct err *e)
{
    char path[PATH_LEN];
    if (!file_join(path, sizeof(path), r->out, sub)) {
        return err_set(e, ERR_INVALID, "path too long");
    }
    return file_mkdirs(path, 0755, e);
}

static int save(const struct mil_run *r, const char *sub,
                const struct tensor *t, struct err *e)
{
    char path[PATH_LEN];
    int rc = npy_path(path, sizeof(path), r->out, sub, t->name, e);
    if (rc < 0) {
        return rc;
    }
    return npy_write(path, t->dtype == MIL_FP16 ? NPY_F16 : NPY_F32, t->rank,
                     t->dims, t->data, e);
}

static int run_step(struct mil_run *r, const char *step, struct err *e)
{
    size_t n = 0;
    RETERR(load_step(r, step, &n, e));
    struct tensor *out = calloc(r->info.n_out + 1, sizeof(*out));
    must(out != NULL);
    for (size_t i = 0; i < r->info.n_out; i++) {
        out[i].name = r->info.out[i].name;
    }
    int rc = dense_predict(&r->dense, r->state, r->tensors, n, out,
                           r->info.n_out, e);
    if (rc < 0) {
        (void)err_prefix(e, rc, "%s", step);
        goto out;
    }
    CHECK(make_dir(r, step, e));
    for (size_t i = 0; i < r->info.n_out; i++) {
        CHECK(save(r, step, &out[i], e));
    }
out:
    free(out);
    return rc;
}

static int save_states(struct mil_run *r, struct err *e)
{
    if (r->info.n_states > 0) {
        RETERR(make_dir(r, "state", e));
    }
    for (size_t i = 0; i < r->info.n_states; i++) {
        struct tensor t;
        RETERR(dense_state(&r->dense, r->state, r->info.states[i].name, &t, e));
        RETERR(save(r, "state", &t, e));
    }
    return 0;
}

static int run_steps(struct mil_run *r, struct err *e)
{
    for (unsigned k = 0;; k++) {
        char step[32];
        char path[PATH_LEN];
        (void)snprintf(step, sizeof(step), "step%u", k);
        if (!file_join(path, sizeof(path), r->in, step)) {
            return err_set(e, ERR_INVALID, "path too long");
        }
        if (!file_is_dir(path)) {
            return k > 0
                       ? save_states(r, e)
                       : err_set(e, ERR_NOT_FOUND, "%s: no such folder", path);
        }
        int rc = run_step(r, step, e);
        if (rc < 0) {
            return rc;
        }
    }
}

static int mil_run(struct mil_run *r, struct err *e)
{
    RETERR(r->backend->open(r->pkg, r->function, &r->conf, &r->model, e));
    int rc = 0;
    r->backend->info(r->model, &r->info);
    CHECK(dense_init(&r->dense, r->backend, r->model, e));
    r->arrays = calloc(r->info.n_in + 1, sizeof(*r->arrays));
    r->tensors = calloc(r->info.n_in + 1, sizeof(*r->tensors));
    must(r->arrays != NULL && r->tensors != NULL);
    if (r->info.n_states > 0) {
        CHECK(r->backend->state_new(r->model, &r->state, e));
    }
    CHECK(run_steps(r, e));
out:
    drop_arrays(r);
    free(r->arrays);
    free(r->tensors);
    dense_fini(&r->dense);
    r->backend->state_free(r->state);
    r->backend->close(r->model);
    return rc;
}

/* Ends b. */
static int print_text(struct buf *b, struct err *e)
{
    int rc = 0;
    if (!buf_ok(b)) {
        rc = err_set(e, ERR_TOO_BIG, "the program's text");
    } else if (fwrite(b->p, 1, b->n, stdout) != b->n || fflush(stdout) != 0) {
        rc = err_set(e, ERR_IO, "standard output");
    }
    buf_fini(b);
    return rc;
}

static int mil_dump_file(const char *pkg, struct err *e)
{
    struct mil_program *p = NULL;
    int rc = mil_read(pkg, &p, e);
    if (rc < 0) {
        return rc;
    }
    struct buf b;
    buf_init(&b, MIL_SPEC_BYTES_MAX);
    mil_dump(p, &b);
    mil_free(p);
    return print_text(&b, e);
}

static int mil_compile(struct mil_run *r, const char *pkg, struct err *e)
{
    bool tells =
        r->backend == &backend_cpu || r->backend == &backend_interpreter;
    int rc = tells ? r->backend->open(pkg, r->function, &r->conf, &r->model, e)
                   : err_set(e, ERR_UNSUPPORTED, "backend %s does not tell",
                             r->backend->name);
    if (rc < 0) {
        return rc;
    }
    struct buf b;
    buf_init(&b, MIL_SPEC_BYTES_MAX);
    cpu_dump(r->model, &b);
    r->backend->close(r->model);
    return print_text(&b, e);
}

static bool is_pass(const char *name)
{
    for (size_t i = 0; cpu_pass(i) != NULL; i++) {
        if (strcmp(name, cpu_pass(i)) == 0) {
            return true;
        }
    }
    return false;
}

static int no_pass(const char *name)
{
    char all[256] = "";
    size_t n = 0;
    for (size_t i = 0; cpu_pass(i) != NULL && n < sizeof(all); i++) {
        n += (size_t)snprintf(all + n, sizeof(all) - n, "%s%s",
                              i > 0 ? ", " : "", cpu_pass(i));
    }
    return cli_usage(usage, "--after takes %s, not '%s'", all, name);
}

/* Read options into *r. Returns an exit code, or -1 to continue. */
static int parse(int argc, char **argv, struct mil_run *r)
{
    static const struct option options[] = {
        {"function", required_argument, NULL, 'f'},
        {"round",    required_argument, NULL, 'r'},
        {"backend",  required_argument, NULL, 'b'},
        {"threads",  required_argument, NULL, 't'},
        {"isa",      required_argument, NULL, 'i'},
        {"after",    required_argument, NULL, 'a'},
        {"width",    required_argument, NULL, 'w'},
        {"count",    required_argument, NULL, 'n'},
        {"json",     no_argument,       NULL, 'j'},
        {"help",     no_argument,       NULL, 'h'},
        {NULL,       0,                 NULL, 0  },
    };
    const char *backend = "cpu";
    int c = 0;
    r->conf.cpu = &r->cpu;
    while ((c = getopt_long(argc, argv, "h", options, NULL)) != -1) {
        uint64_t n = 0;
        switch (c) {
        case 'f':
            r->function = optarg;
            break;
        case 'r':
            if (strcmp(optarg, "fp16") != 0) {
                return cli_usage(usage, "--round takes fp16");
            }
            r->cpu.round_fp16 = true;
            break;
        case 'b':
            backend = optarg;
            break;
        case 't':
            if (!parse_u64(optarg, ENGINE_THREADS_MAX, &n)) {
                return cli_usage(usage, "--threads takes 0 to %u",
                                 ENGINE_THREADS_MAX);
            }
            r->conf.threads = (unsigned)n;
            break;
        case 'i':
            r->cpu.isa = optarg;
            break;
        case 'a':
            r->cpu.after = optarg;
            break;
        case 'w':
            if (!parse_u64(optarg, ENGINE_CHUNK_MAX, &n) || n == 0) {
                return cli_usage(usage, "--width takes 1 to %u",
                                 ENGINE_CHUNK_MAX);
            }
            r->width = (uint32_t)n;
            break;
        case 'n':
            if (!parse_u64(optarg, TIMED_MAX, &n) || n == 0) {
                return cli_usage(usage, "--count takes 1 to %d", TIMED_MAX);
            }
            r->count = (uint32_t)n;
            break;
        case 'j':
            r->json = true;
            break;
        case 'h':
            (void)fputs(usage, stdout);
            return EXIT_SUCCESS;
        default:
            return cli_usage(usage, "unknown option");
        }
    }
    r->backend = backend_find(backend);
    if (r->backend == NULL) {
        return cli_usage(usage, "no backend '%s' in this build", backend);
    }
    if (r->cpu.after != NULL && !is_pass(r->cpu.after)) {
        return no_pass(r->cpu.after);
    }
    return r->cpu.isa != NULL ? cli_isa(usage, r->cpu.isa) : -1;
}

int cli_mil(int argc, char **argv)
{
    struct mil_run r = {.count = 100};
    struct err e = {0};
    int rc = parse(argc, argv, &r);
    if (rc >= 0) {
        return rc;
    }
    argc -= optind;
    argv += optind;
    bool compile = argc == 2 && strcmp(argv[0], "compile") == 0;
    if (r.cpu.after != NULL && !compile) {
        return cli_usage(usage, "--after is an option of mil compile");
    }
    if (argc == 2 && strcmp(argv[0], "dump") == 0) {
        rc = mil_dump_file(argv[1], &e);
    } else if (compile) {
        rc = mil_compile(&r, argv[1], &e);
    } else if (argc == 2 && strcmp(argv[0], "time") == 0) {
        const struct mil_timing t = {.pkg = argv[1],
                                     .function = r.function,
                                     .backend = r.backend,
                                     .conf = &r.conf,
                                     .width = r.width,
                                     .count = r.count,
                                     .json = r.json};
        rc = mil_time(&t, &e);
    } else if (argc == 4 && strcmp(argv[0], "run") == 0) {
        r.pkg = argv[1];
        r.in = argv[2];
        r.out = argv[3];
        rc = mil_run(&r, &e);
    } else {
        return cli_usage(usage, "mil run PKG IN OUT, mil compile PKG, mil "
                                "time PKG, or mil dump PKG");
    }
    return rc < 0 ? err_print(&e) : EXIT_SUCCESS;
}
