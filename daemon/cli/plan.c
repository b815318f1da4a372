/* aned plan - what a conversion would make of a model: programs, sizes, the time
 * of a step by a profile, and why it is so. Reads no weight, writes nothing. */
#include "cli/plan.h"

#include <getopt.h>
#include <string.h>

#include "base/buf.h"
#include "base/parse.h"
#include "cli/cli.h"

#define TEXT_MAX MIB(1)

static const char usage[] =
    "usage: aned plan FILE [OPTIONS]\n"
    "\n"
    "Say how `aned convert` would divide a model among Core ML programs, how\n"
    "long a step of them would take by what is published of a chip, which\n"
    "limits decide, and what the next chip would change. Nothing is written.\n"
    "\n"
    "  --profile P  law (default: fits every chip), m1, m2, m3, m3-max, m4,\n"
    "               m4-pro, m4-max, m5, m5-pro, m5-max; cpu: the CPU backend\n"
    "               alone, whose context has no limit but the model's own\n"
    "  --context S  positions (default: the model's own, at most 4096; under\n"
    "               profile cpu 32768, as memory allows)\n"
    "  --quant Q    int8 (default), fp16, int8-tensor, int4, lut4, lut6\n"
    "  --target-bytes N, --target-kl X\n"
    "               as for aned convert. The forms need a measurement, which\n"
    "               reads all weights: the plan is of the smallest ones\n"
    "  --kv K       state (default) or host\n"
    "  --experts E  auto (default), dense, sparse or sparse:N\n"
    "  --shape S    ranged (default) or functions\n"
    "  --json       the same as one JSON object, with every figure's source\n";

/* Packages of experts, a line a layer. */
static void put_groups(struct buf *b, const struct plan_input *in)
{
    for (uint32_t l = 0; in->sparse && l < in->n_layers; l++) {
        const struct plan_layer *y = &in->layers[l];
        if (y->experts > 0) {
            buf_printf(b, "%-8s %4u x %-5u %9.1f %8s  of layer %u\n", "experts",
                       (y->experts + in->group - 1) / in->group, in->group,
                       (double)(y->experts * y->one_bytes) / 1e6, "-", l);
        }
    }
}

static void put_programs(struct buf *b, const struct convert_forecast *f)
{
    const struct plan *p = &f->plan;
    buf_printf(b, "\n%-8s %9s %12s %8s\n", "program", "from - to", "MB",
               "states");
    for (uint32_t i = 0; i < p->n_shards; i++) {
        const struct plan_range *r = &p->shards[i];
        bool joins = r->first == r->last; /* behind the last experts */
        buf_printf(b, "%-8s %4u - %-5u %9.1f %8u\n", joins ? "behind" : "layers",
                   joins ? r->first - 1 : r->first, r->last - 1,
                   (double)plan_shard_bytes(&f->in, *r) / 1e6,
                   plan_shard_states(&f->in, *r));
    }
    put_groups(b, &f->in);
    for (uint32_t i = 0; i < p->n_heads; i++) {
        const struct plan_range *r = &p->heads[i];
        buf_printf(b, "%-6s %6u - %-6u %8.1f %8s\n", "head", r->first,
                   r->last - 1, (double)plan_head_bytes(&f->in, *r) / 1e6, "-");
    }
}

static void put_step(struct buf *b, struct plan_time t)
{
    buf_printf(b, "  %u row%s  ", t.rows, t.rows == 1 ? " " : "s");
    if (t.known) {
        buf_printf(b, "%.1f to %.1f ms, %.1f to %.1f tokens a second\n",
                   t.least_ms, t.most_ms, t.rows * 1e3 / t.most_ms,
                   t.rows * 1e3 / t.least_ms);
    } else {
        buf_puts(b, "not known, see below\n");
    }
}

static void put_target(struct buf *b, const struct convert_forecast *f)
{
    buf_printf(b,
               "  the forms are chosen while converting, by a measurement of "
               "all weights; this\n  plan is of the smallest form of each "
               "matrix: %llu bytes of weights\n",
               (unsigned long long)f->weight_bytes);
}

int cli_read_target(const char *help, bool bytes, const char *text,
                    struct convert_options *o)
{
    bool good = bytes ? parse_u64(text, TARGET_BYTES_MAX, &o->target_bytes) &&
                            o->target_bytes > 0
                      : parse_double(text, &o->target_kl) &&
                            o->target_kl >= TARGET_KL_MIN &&
                            o->target_kl <= TARGET_KL_MAX;
    if (good) {
        return 0;
    }
    return bytes ? cli_usage(help, "--target-bytes '%s': 1 to %llu", text,
                             (unsigned long long)TARGET_BYTES_MAX)
                 : cli_usage(help, "--target-kl '%s': %g to %g nats", text,
                             TARGET_KL_MIN, TARGET_KL_MAX);
}

static void put_residency(struct buf *b, const struct convert_forecast *f)
{
    char line[ERR_MSG_MAX];
    predict_line(&f->residency, line, sizeof(line));
    buf_printf(b, "\nresidency, of the programs without their weights\n"
                  "  %s: %s\n",
               f->verdict, line);
    for (size_t i = 1; i < f->residency.n; i++) { /* the line has the first */
        buf_printf(b, "  %s\n", f->residency.reason[i]);
    }
}

static const char *context_why(const char *by)
{
    static const char *const why[][2] = {
        {"asked",   "as asked"                                       },
        {"model",   "the model's own"                                },
        {"default", "the default; the model's own is longer"         },
        {"memory",  "what fits a quarter of this machine's memory"   },
    };
    for (size_t i = 0; by != NULL && i < countof(why); i++) {
        if (strcmp(by, why[i][0]) == 0) {
            return why[i][1];
        }
    }
    return "positions";
}

static int put_text(struct buf *b, const struct convert_forecast *f,
                    struct err *e)
{
    uint32_t widest = f->in.widths[f->in.n_widths - 1];
    buf_printf(b,
               "%s: %s, %u layers, %u %s, %s, context %u (%s), profile %s\n",
               f->name, f->architecture, f->in.n_layers,
               f->labels > 0 ? f->labels : f->vocab,
               f->labels > 0 ? "labels" : "tokens", f->quant, f->in.context,
               context_why(f->in.context_by), f->profile.name);
    put_programs(b, f);
    buf_puts(b, "\na step, predicted from public figures\n");
    if (!f->encoder) { /* an encoder reads many rows or none */
        put_step(b, plan_predict(&f->profile, &f->in, &f->plan, 1));
    }
    put_step(b, plan_predict(&f->profile, &f->in, &f->plan, widest));
    buf_puts(b, "\nwhy\n");
    size_t from = b->n;
    RETERR(plan_explain(&f->profile, &f->in, &f->plan, b, e));
    must(buf_ok(b) && from < b->n);
    if (f->smallest) {
        put_target(b, f);
    }
    put_residency(b, f);
    buf_printf(b,
               "\nthe bundle: %.1f MB on the disk, of a file of %.1f MB; about "
               "%.0f s to convert\n",
               (double)f->bundle_bytes / 1e6, (double)f->source_bytes / 1e6,
               f->seconds < 1 ? 1 : f->seconds);
    return 0;
}

static int put_json(struct buf *b, const struct convert_forecast *f,
                    struct err *e)
{
    struct json *o = NULL;
    RETERR(plan_json(&f->profile, &f->in, &f->plan, &o, e));
    json_add_str(o, "name", f->name);
    json_add_str(o, "architecture", f->architecture);
    json_add_str(o, "quant", f->quant);
    json_add_int(o, "labels", f->labels);
    json_add_int(o, "source_bytes", (int64_t)f->source_bytes);
    json_add_int(o, "bundle_bytes", (int64_t)f->bundle_bytes);
    json_add_bool(o, "smallest_forms", f->smallest);
    json_add_int(o, "weight_bytes", (int64_t)f->weight_bytes);
    json_add_num(o, "convert_s", f->seconds);
    char line[ERR_MSG_MAX];
    predict_line(&f->residency, line, sizeof(line));
    struct json *r = json_add_object(o, "residency");
    json_add_str(r, "verdict", f->verdict);
    json_add_str(r, "predicted", line);
    struct json *reasons = json_add_array(r, "reasons");
    for (size_t i = 0; i < f->residency.n; i++) {
        json_add_str(reasons, NULL, f->residency.reason[i]);
    }
    json_write(o, true, b);
    buf_puts(b, "\n");
    json_free(o);
    return 0;
}

int cli_plan_of(const struct convert_options *o, bool json)
{
    struct convert_forecast *f = calloc(1, sizeof(*f));
    struct err e = {0};
    struct buf b;
    must(f != NULL);
    buf_init(&b, TEXT_MAX);
    int rc = convert_forecast(o, f, &e);
    if (rc == 0) {
        rc = json ? put_json(&b, f, &e) : put_text(&b, f, &e);
        plan_input_fini(&f->in);
    }
    free(f);
    if (rc < 0) {
        buf_fini(&b);
        return err_print(&e);
    }
    must(buf_ok(&b)); /* some thousand short lines at most */
    bool printed = fwrite(b.p, 1, b.n, stdout) == b.n && fflush(stdout) == 0;
    buf_fini(&b);
    return printed ? EXIT_SUCCESS : EXIT_CANTCREAT;
}

/* -1: run; else the exit code. */
static int read_options(int argc, char **argv, struct convert_options *o,
                        bool *json)
{
    static const struct option options[] = {
        {"profile", required_argument, NULL, 'p'},
        {"context", required_argument, NULL, 'c'},
        {"quant",   required_argument, NULL, 'q'},
        {"target-bytes", required_argument, NULL, 'B'},
        {"target-kl", required_argument, NULL, 'K'},
        {"kv",      required_argument, NULL, 'k'},
        {"experts", required_argument, NULL, 'e'},
        {"shape",   required_argument, NULL, 's'},
        {"json",    no_argument,       NULL, 'j'},
        {"help",    no_argument,       NULL, 'h'},
        {NULL,      0,                 NULL, 0  },
    };
    const struct {
        int opt;
        const char **to;
    } strings[] = {
        {'p', &o->profile},
        {'q', &o->quant  },
        {'k', &o->kv     },
        {'e', &o->experts},
        {'s', &o->shape  },
    };
    uint64_t context = 0;
    int opt = 0;
    while ((opt = getopt_long(argc, argv, "h", options, NULL)) != -1) {
        if (opt == 'h') {
            (void)fputs(usage, stdout);
            return EXIT_SUCCESS;
        }
        if (opt == '?') {
            return cli_usage(usage, "wrong option");
        }
        if (opt == 'c' &&
            (!parse_u64(optarg, MODEL_CONTEXT_MAX, &context) || context == 0)) {
            return cli_usage(usage, "--context '%s'", optarg);
        }
        *json = *json || opt == 'j';
        if (opt == 'B' || opt == 'K') {
            int rc = cli_read_target(usage, opt == 'B', optarg, o);
            if (rc != 0) {
                return rc;
            }
        }
        for (size_t i = 0; i < countof(strings); i++) {
            if (strings[i].opt == opt) {
                *strings[i].to = optarg;
            }
        }
    }
    if (argc - optind != 1) {
        return cli_usage(usage, "one FILE, not %d", argc - optind);
    }
    o->context = (uint32_t)context;
    o->source = argv[optind];
    return -1;
}

int cli_plan(int argc, char **argv)
{
    struct convert_options o;
    bool json = false;
    convert_options_init(&o);
    int rc = read_options(argc, argv, &o, &json);
    return rc >= 0 ? rc : cli_plan_of(&o, json);
}
