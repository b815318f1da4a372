/* import.c - `aned import`: Core ML packages with a manifest into a bundle. */
#include <getopt.h>

#include "base/parse.h"
#include "cli/bar.h"
#include "cli/cli.h"
#include "convert/import/import.h"

static const char usage[] =
    "usage: aned import META --out BUNDLE --tokenizer FILE [OPTIONS]\n"
    "\n"
    "Makes a bundle of Core ML packages that exist already. META is a\n"
    "*_runtime_meta.json as the public ane-book converters write it; it names\n"
    "layer packages, head packages and the embedding table, all below its own\n"
    "folder. Where it names a compiled X.mlmodelc, X.mlpackage beside it is\n"
    "read. BUNDLE is the new folder itself; it must not exist.\n"
    "\n"
    "  --tokenizer FILE   a GGUF of the model (vocabulary-only will do), or a\n"
    "                     bundle: the manifest has no vocabulary\n"
    "  --name N           the model's name (default: the manifest's)\n"
    "  --set KEY=NUMBER   a number that META lacks, such as d_ff; repeatable\n"
    "  --profile P        chip whose residency is predicted: law (default),\n"
    "                     m1 ... m5-max\n"
    "  --copy             copy the files (default)\n"
    "  --link             hard links in place of copies: the files must stay\n"
    "                     as they are, on the same file system\n"
    "  --accept G,...     gates that may fail: quality, exactness\n"
    "  --threads N        default: all cores\n";

enum {
    OPT_OUT = 256,
    OPT_NAME,
    OPT_TOKENIZER,
    OPT_PROFILE,
    OPT_SET,
    OPT_COPY,
    OPT_LINK,
    OPT_ACCEPT,
    OPT_THREADS
};

static const struct option options[] = {
    {"out",       required_argument, NULL, OPT_OUT      },
    {"name",      required_argument, NULL, OPT_NAME     },
    {"tokenizer", required_argument, NULL, OPT_TOKENIZER},
    {"profile",   required_argument, NULL, OPT_PROFILE  },
    {"set",       required_argument, NULL, OPT_SET      },
    {"copy",      no_argument,       NULL, OPT_COPY     },
    {"link",      no_argument,       NULL, OPT_LINK     },
    {"accept",    required_argument, NULL, OPT_ACCEPT   },
    {"threads",   required_argument, NULL, OPT_THREADS  },
    {"help",      no_argument,       NULL, 'h'          },
    {NULL,        0,                 NULL, 0            },
};

/* 0, or the exit code of a wrong option. */
static int read_value(int opt, const char *text, struct import_options *o)
{
    uint64_t n = 0;
    switch (opt) {
    case OPT_OUT:
        o->common.out = text;
        return 0;
    case OPT_NAME:
        o->common.name = text;
        return 0;
    case OPT_TOKENIZER:
        o->tokenizer = text;
        return 0;
    case OPT_PROFILE:
        o->common.profile = text;
        return 0;
    case OPT_ACCEPT:
        return cli_accept(usage, text, &o->common);
    case OPT_COPY:
    case OPT_LINK:
        o->link = opt == OPT_LINK;
        return 0;
    case OPT_SET:
        if (o->n_sets == IMPORT_SETS_MAX) {
            return cli_usage(usage, "--set: at most %u times",
                             IMPORT_SETS_MAX);
        }
        o->sets[o->n_sets++] = text;
        return 0;
    default:
        if (!parse_u64(text, ENGINE_THREADS_MAX, &n)) {
            return cli_usage(usage, "--threads '%s'", text);
        }
        o->common.threads = (unsigned)n;
        return 0;
    }
}

/* -1: run; else the exit code. */
static int read_options(int argc, char **argv, struct import_options *o)
{
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
        int rc = read_value(opt, optarg, o);
        if (rc != 0) {
            return rc;
        }
    }
    if (argc - optind != 1) {
        return cli_usage(usage, "one META, not %d", argc - optind);
    }
    o->common.source = argv[optind];
    return o->common.out != NULL
               ? -1
               : cli_usage(usage, "--out BUNDLE is needed");
}

int cli_import(int argc, char **argv)
{
    struct import_options o = {.link = false};
    struct convert_result r = {0};
    struct err e = {0};
    struct cli_bar bar;
    convert_options_init(&o.common);
    int rc = read_options(argc, argv, &o);
    if (rc >= 0) {
        return rc;
    }
    cli_bar_begin(&bar, &o.common);
    rc = import_run(&o, &r, &e);
    return cli_bar_end(&bar, rc, &o.common, &r, &e);
}
