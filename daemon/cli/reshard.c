/* reshard.c - `aned reshard`: a bundle's programs drawn anew, with its own
 * weights. */
#include <getopt.h>

#include "base/parse.h"
#include "cli/bar.h"
#include "cli/cli.h"
#include "convert/reshard.h"

static const char usage[] =
    "usage: aned reshard BUNDLE --out DIR [OPTIONS]\n"
    "\n"
    "Makes another bundle of BUNDLE's weights, bit for bit: divided for "
    "another\n"
    "chip, for another context, or in another form. Nothing is quantised, the\n"
    "source is not needed, and files that are the same share their bytes.\n"
    "\n"
    "  --profile P   chip to plan for: law, m1 ... m5-max (default: divided "
    "as\n"
    "                BUNDLE is)\n"
    "  --context S   positions\n"
    "  --shape S     ranged, functions or functions:T,T,...\n"
    "  --kv K        state or host\n"
    "  --output O    logits or argmax\n"
    "  --name N      the model's name (default: BUNDLE's)\n"
    "  --accept G    gates that may fail: quality, exactness\n"
    "  --threads N   default: all cores\n";

enum { OUT = 256, PROFILE, CONTEXT, SHAPE, KV, OUTPUT, NAME, ACCEPT, THREADS };

static const struct option options[] = {
    {"out",     required_argument, NULL, OUT    },
    {"profile", required_argument, NULL, PROFILE},
    {"context", required_argument, NULL, CONTEXT},
    {"shape",   required_argument, NULL, SHAPE  },
    {"kv",      required_argument, NULL, KV     },
    {"output",  required_argument, NULL, OUTPUT },
    {"name",    required_argument, NULL, NAME   },
    {"accept",  required_argument, NULL, ACCEPT },
    {"threads", required_argument, NULL, THREADS},
    {"help",    no_argument,       NULL, 'h'    },
    {NULL,      0,                 NULL, 0      },
};

/* 0, or the exit code of a wrong number. */
static int read_number(int opt, const char *text, struct convert_options *o)
{
    uint64_t n = 0;
    bool context = opt == CONTEXT;
    uint64_t max = context ? MODEL_CONTEXT_MAX : ENGINE_THREADS_MAX;
    if (!parse_u64(text, max, &n) || (context && n == 0)) {
        return cli_usage(usage, "--%s '%s'", context ? "context" : "threads",
                         text);
    }
    if (context) {
        o->context = (uint32_t)n;
    } else {
        o->threads = (unsigned)n;
    }
    return 0;
}

/* -1: run; else the exit code. */
static int read_options(int argc, char **argv, struct convert_options *o)
{
    const char **strings[] = {
        [OUT - OUT] = &o->out,     [PROFILE - OUT] = &o->profile,
        [SHAPE - OUT] = &o->shape, [KV - OUT] = &o->kv,
        [OUTPUT - OUT] = &o->output, [NAME - OUT] = &o->name,
    };
    int opt = 0;
    while ((opt = getopt_long(argc, argv, "h", options, NULL)) != -1) {
        if (opt == 'h') {
            (void)fputs(usage, stdout);
            return EXIT_SUCCESS;
        }
        if (opt < OUT) {
            return cli_usage(usage, "wrong option");
        }
        if (opt == CONTEXT || opt == THREADS || opt == ACCEPT) {
            int rc = opt == ACCEPT ? cli_accept(usage, optarg, o)
                                   : read_number(opt, optarg, o);
            if (rc != 0) {
                return rc;
            }
        } else {
            *strings[opt - OUT] = optarg;
        }
    }
    if (argc - optind != 1) {
        return cli_usage(usage, "one BUNDLE, not %d", argc - optind);
    }
    o->bundle = argv[optind];
    return o->out != NULL ? -1 : cli_usage(usage, "--out DIR is needed");
}

int cli_reshard(int argc, char **argv)
{
    struct convert_options o;
    convert_options_init(&o);
    int rc = read_options(argc, argv, &o);
    return rc >= 0 ? rc : cli_convert_run(reshard_run, &o);
}
