/* convert.c - `aned convert`: the worker's code on the command line. */
#include <getopt.h>
#include <math.h>
#include <signal.h>
#include <string.h>
#include <unistd.h>

#include "base/parse.h"
#include "cli/cli.h"
#include "cli/plan.h"
#include "convert/convert.h"

static const char usage[] =
    "usage: aned convert FILE --out BUNDLE [OPTIONS]\n"
    "\n"
    "Turns a GGUF into a bundle of Core ML shards. Architectures: llama,\n"
    "qwen2, qwen3, phi3, hunyuan-dense, gemma2, gemma3, gemma4, granite,\n"
    "olmo2, smollm3.\n"
    "BUNDLE is the new folder itself; it must not exist. Of a split model FILE\n"
    "is any part (NAME-00001-of-00003.gguf).\n"
    "\n"
    "  --name N            the model's name (default: the file's)\n"
    "  --quant Q           int8 (default), fp16, int8-tensor, int4, lut4, "
    "lut6;\n"
    "                      lut4:N, lut6:N: N rows share a palette (default 1, "
    "16)\n"
    "  --head-quant Q      the output projection's (default: as --quant, but "
    "int8\n"
    "                      with lut4 and lut6)\n"
    "  --quant-for P=Q     of the matrices whose name in FILE matches P, where "
    "'*'\n"
    "                      is any text; may be repeated, later ones win\n"
    "  --context S         positions (default: the model's own, at most 4096)\n"
    "  --shape S           ranged (default: 1 to 4 rows), functions (of 1 and "
    "4\n"
    "                      rows) or functions:T,T,... (of these)\n"
    "  --kv K              state (default) or host\n"
    "  --output O          logits (default), or argmax: each row's likeliest "
    "token\n"
    "                      only, so nothing else can be drawn\n"
    "  --profile P         chip to plan for: law (default), m1 ... m5-max\n"
    "  --norm N            scale or max (default: by the measured range)\n"
    "  --residual-scale A  a power of two up to 1 (default: likewise)\n"
    "  --threads N         default: all cores\n"
    "  --dry-run           write nothing: print what it makes and how long\n"
    "                      it takes, as aned plan does, or what would stop\n"
    "                      the conversion as its error\n";

struct bar {
    bool terminal;
    const char *stage;
};

static volatile sig_atomic_t interrupted;

static void on_signal(int sig)
{
    (void)sig;
    interrupted = 1; /* the next progress call ends it and cleans up */
}

static bool on_progress(void *ctx, const char *stage, double fraction)
{
    struct bar *b = ctx;
    if (interrupted) {
        return false;
    }
    if (!b->terminal) {
        return true;
    }
    char line[33];
    int full = (int)(fraction * 32);
    for (int i = 0; i < 32; i++) {
        line[i] = i < full ? '#' : '.';
    }
    line[32] = '\0';
    b->stage = stage;
    (void)fprintf(stderr, "\r%-10s [%s] %3d %%", stage, line,
                  (int)(fraction * 100));
    (void)fflush(stderr);
    return true;
}

enum {
    OPT_OUT = 256,
    OPT_NAME,
    OPT_QUANT,
    OPT_HEAD_QUANT,
    OPT_QUANT_FOR,
    OPT_CONTEXT,
    OPT_SHAPE,
    OPT_OUTPUT,
    OPT_KV,
    OPT_PROFILE,
    OPT_NORM,
    OPT_SCALE,
    OPT_THREADS,
    OPT_DRY_RUN
};

static const struct option options[] = {
    {"out", required_argument, NULL, OPT_OUT},
    {"name", required_argument, NULL, OPT_NAME},
    {"quant", required_argument, NULL, OPT_QUANT},
    {"head-quant", required_argument, NULL, OPT_HEAD_QUANT},
    {"quant-for", required_argument, NULL, OPT_QUANT_FOR},
    {"context", required_argument, NULL, OPT_CONTEXT},
    {"shape", required_argument, NULL, OPT_SHAPE},
    {"kv", required_argument, NULL, OPT_KV},
    {"output", required_argument, NULL, OPT_OUTPUT},
    {"profile", required_argument, NULL, OPT_PROFILE},
    {"norm", required_argument, NULL, OPT_NORM},
    {"residual-scale", required_argument, NULL, OPT_SCALE},
    {"threads", required_argument, NULL, OPT_THREADS},
    {"dry-run", no_argument, NULL, OPT_DRY_RUN},
    {"help", no_argument, NULL, 'h'},
    {NULL, 0, NULL, 0},
};

/* 0, or the exit code of a wrong option. */
static int read_value(int opt, const char *text, struct convert_options *o)
{
    uint64_t n = 0;
    if (opt == OPT_SCALE) {
        return parse_double(text, &o->residual_scale) &&
                       o->residual_scale > 0
                   ? 0
                   : cli_usage(usage, "--residual-scale '%s'", text);
    }
    if (opt == OPT_QUANT_FOR) {
        if (o->n_quant_for == QUANT_RULES_MAX) {
            return cli_usage(usage, "--quant-for: at most %u times",
                             QUANT_RULES_MAX);
        }
        o->quant_for[o->n_quant_for++] = text;
        return 0;
    }
    if (opt == OPT_CONTEXT) {
        if (!parse_u64(text, MODEL_CONTEXT_MAX, &n) || n == 0) {
            return cli_usage(usage, "--context '%s'", text);
        }
        o->context = (uint32_t)n;
        return 0;
    }
    if (!parse_u64(text, ENGINE_THREADS_MAX, &n)) {
        return cli_usage(usage, "--threads '%s'", text);
    }
    o->threads = (unsigned)n;
    return 0;
}

/* -1: run; else the exit code. */
static int read_options(int argc, char **argv, struct convert_options *o,
                        bool *dry)
{
    const char **strings[] = {
        [OPT_OUT - OPT_OUT] = &o->out,
        [OPT_NAME - OPT_OUT] = &o->name,
        [OPT_QUANT - OPT_OUT] = &o->quant,
        [OPT_HEAD_QUANT - OPT_OUT] = &o->head_quant,
        [OPT_SHAPE - OPT_OUT] = &o->shape,
        [OPT_KV - OPT_OUT] = &o->kv,
        [OPT_OUTPUT - OPT_OUT] = &o->output,
        [OPT_PROFILE - OPT_OUT] = &o->profile,
        [OPT_NORM - OPT_OUT] = &o->norm,
    };
    optind = 1;
    for (;;) {
        int opt = getopt_long(argc, argv, "h", options, NULL);
        if (opt == -1) {
            break;
        }
        if (opt == 'h') {
            (void)fputs(usage, stdout);
            return EXIT_SUCCESS;
        }
        if (opt < OPT_OUT) {
            (void)fputs(usage, stderr);
            return EXIT_USAGE;
        }
        if (opt == OPT_DRY_RUN) {
            *dry = true;
            continue;
        }
        size_t i = (size_t)(opt - OPT_OUT);
        if (i < countof(strings) && strings[i] != NULL) {
            *strings[i] = optarg;
            continue;
        }
        int rc = read_value(opt, optarg, o);
        if (rc != 0) {
            return rc;
        }
    }
    if (argc - optind != 1) {
        return cli_usage(usage, "one FILE, not %d", argc - optind);
    }
    o->source = argv[optind];
    return o->out != NULL ? -1 : cli_usage(usage, "--out BUNDLE is needed");
}

int cli_convert(int argc, char **argv)
{
    bool dry = false;
    struct convert_options o;
    struct convert_result r = {0};
    struct err e = {0};
    struct bar bar = {.terminal = isatty(STDERR_FILENO) != 0};
    convert_options_init(&o);
    int rc = read_options(argc, argv, &o, &dry);
    if (rc >= 0) {
        return rc;
    }
    if (dry) {
        return cli_plan_of(&o, false);
    }
    o.progress = on_progress;
    o.ctx = &bar;
    (void)signal(SIGINT, on_signal);
    (void)signal(SIGTERM, on_signal);
    rc = convert_run(&o, &r, &e);
    if (bar.terminal && bar.stage != NULL) {
        (void)fprintf(stderr, "\r%60s\r", "");
    }
    if (rc < 0) {
        return err_print(&e);
    }
    for (size_t i = 0; i < r.notes.n; i++) {
        (void)fprintf(stderr, "warning: %s\n", r.notes.text[i]);
    }
    printf("%s: %.1f MB, %u layer shards, %u head slices, %.1f s\n", o.out,
           (double)r.bundle_bytes / 1e6, r.n_shards, r.n_heads,
           (double)r.ms / 1e3);
    for (size_t i = 0; i < r.n_gates; i++) {
        const struct convert_gate *g = &r.gates[i];
        printf("  %-10s %s%s%s\n", g->name, g->verdict,
               g->detail[0] != '\0' ? ": " : "", g->detail);
    }
    return EXIT_SUCCESS;
}
