/* convert.c - `aned convert`: the worker's code on the command line. */
#include "convert/convert.h"

#include <getopt.h>
#include <limits.h>
#include <string.h>

#include "base/file.h"
#include "base/parse.h"
#include "cli/bar.h"
#include "cli/cli.h"
#include "cli/plan.h"
#include "convert/arch/arch.h"
#include "convert/reshard.h"
#include "model/chat.h"
#include "proto/tier.h"

#define HELP_COLUMNS 76u /* of a line, behind its indentation */

static const char usage[] =
    "usage: aned convert FILE --out BUNDLE [OPTIONS]\n"
    "\n"
    "Turns a model into a bundle of Core ML shards. FILE is a GGUF, or a folder\n"
    "with config.json and *.safetensors, or one such file.\n"
    "BUNDLE is the new folder itself; it must not exist. Of a split model "
    "FILE\n"
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
    "  --target-bytes N    choose each matrix's form by what it costs: the\n"
    "                      programs' weights have N bytes at most\n"
    "  --target-kl X       the same: the logits' KL is X nats at most (0.05)\n"
    "  --calibrate C       on or off: error feedback over text; default on "
    "where a\n"
    "                      form has 4 or 6 bits. It takes minutes\n"
    "  --calibration FILE  text for it (default: what the model writes)\n"
    "  --chat-template F   Jinja, in place of FILE's own chat template\n"
    "  --context S,...     positions (default: the model's own, at most 4096; "
    "under\n"
    "                      profile cpu 32768, as memory allows); of\n"
    "                      several, BUNDLE has the most, and BUNDLE-2k ... "
    "are\n"
    "                      made beside it and share its weights\n"
    "  --shape S           ranged (default: 1 to 4 rows), functions (of 1 and "
    "4\n"
    "                      rows) or functions:T,T,... (of these)\n"
    "  --kv K              state (default) or host\n"
    "  --experts E         dense: all of a layer in one program; sparse: each a\n"
    "                      function that the engine runs where a row chose it;\n"
    "                      sparse:N: N of them a package (default 8); auto\n"
    "                      (default): dense, unless the plan's figures say\n"
    "                      otherwise\n"
    "  --output O          logits (default), or argmax: each row's likeliest "
    "token\n"
    "                      only, so nothing else can be drawn\n"
    "  --profile P         chip to plan for: law (default), m1 ... m5-max; cpu:\n"
    "                      the CPU backend alone, for long contexts\n"
    "  --norm N            scale or max (default: by the measured range)\n"
    "  --residual-scale A  a power of two up to 1 (default: likewise)\n"
    "  --accept G,...      gates that may fail: quality, exactness; without it "
    "such\n"
    "                      a bundle ends in exit code 65\n"
    "  --threads N         default: all cores\n"
    "  --dry-run           write nothing: print what it makes and how long\n"
    "                      it takes, as aned plan does, or what would stop\n"
    "                      the conversion as its error\n";

enum {
    OPT_OUT = 256,
    OPT_NAME,
    OPT_QUANT,
    OPT_HEAD_QUANT,
    OPT_QUANT_FOR,
    OPT_CALIBRATE,
    OPT_CALIBRATION,
    OPT_CHAT_TEMPLATE,
    OPT_CONTEXT,
    OPT_SHAPE,
    OPT_OUTPUT,
    OPT_KV,
    OPT_EXPERTS,
    OPT_PROFILE,
    OPT_NORM,
    OPT_SCALE,
    OPT_TARGET_BYTES,
    OPT_TARGET_KL,
    OPT_THREADS,
    OPT_ACCEPT,
    OPT_DRY_RUN
};

static const struct option options[] = {
    {"out",            required_argument, NULL, OPT_OUT          },
    {"name",           required_argument, NULL, OPT_NAME         },
    {"quant",          required_argument, NULL, OPT_QUANT        },
    {"head-quant",     required_argument, NULL, OPT_HEAD_QUANT   },
    {"quant-for",      required_argument, NULL, OPT_QUANT_FOR    },
    {"calibrate",      required_argument, NULL, OPT_CALIBRATE    },
    {"calibration",    required_argument, NULL, OPT_CALIBRATION  },
    {"chat-template",  required_argument, NULL, OPT_CHAT_TEMPLATE},
    {"target-bytes",   required_argument, NULL, OPT_TARGET_BYTES },
    {"target-kl",      required_argument, NULL, OPT_TARGET_KL    },
    {"context",        required_argument, NULL, OPT_CONTEXT      },
    {"shape",          required_argument, NULL, OPT_SHAPE        },
    {"kv",             required_argument, NULL, OPT_KV           },
    {"experts",        required_argument, NULL, OPT_EXPERTS      },
    {"output",         required_argument, NULL, OPT_OUTPUT       },
    {"profile",        required_argument, NULL, OPT_PROFILE      },
    {"norm",           required_argument, NULL, OPT_NORM         },
    {"residual-scale", required_argument, NULL, OPT_SCALE        },
    {"threads",        required_argument, NULL, OPT_THREADS      },
    {"accept",         required_argument, NULL, OPT_ACCEPT       },
    {"dry-run",        no_argument,       NULL, OPT_DRY_RUN      },
    {"help",           no_argument,       NULL, 'h'              },
    {NULL,             0,                 NULL, 0                },
};

/* The usage, and the architectures as the converter's own table has them. */
static void help(void)
{
    char names[ARCH_NAMES_MAX];
    size_t column = 0;
    arch_names(names, sizeof(names));
    (void)fputs(usage, stdout);
    (void)fputs("\nArchitectures:\n ", stdout);
    for (const char *name = names; *name != 0;) {
        size_t n = strcspn(name, " ");
        if (column + n > HELP_COLUMNS) {
            (void)fputs("\n ", stdout);
            column = 0;
        }
        printf(" %.*s", (int)n, name);
        column += n + 1;
        name += n + strspn(name + n, " ");
    }
    (void)fputs("\n", stdout);
}

/* 0, or the exit code of a wrong option. */
static int read_value(int opt, const char *text, struct convert_options *o,
                      struct tiers *t)
{
    uint64_t n = 0;
    if (opt == OPT_SCALE) {
        return parse_double(text, &o->residual_scale) &&
                       o->residual_scale > 0
                   ? 0
                   : cli_usage(usage, "--residual-scale '%s'", text);
    }
    if (opt == OPT_TARGET_BYTES || opt == OPT_TARGET_KL) {
        return cli_read_target(usage, opt == OPT_TARGET_BYTES, text, o);
    }
    if (opt == OPT_ACCEPT) {
        return cli_accept(usage, text, o);
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
        struct err e = {0};
        return tiers_parse(text, t, &e) == 0 ? 0
                                             : cli_usage(usage, "%s", e.msg);
    }
    if (!parse_u64(text, ENGINE_THREADS_MAX, &n)) {
        return cli_usage(usage, "--threads '%s'", text);
    }
    o->threads = (unsigned)n;
    return 0;
}

/* Files of text that the options name, or NULL. */
struct text_files {
    const char *calibration, *chat_template;
};

/* -1: run; else the exit code. */
static int read_options(int argc, char **argv, struct convert_options *o,
                        struct text_files *files, struct tiers *tiers,
                        bool *dry)
{
    const char **strings[] = {
        [OPT_OUT - OPT_OUT] = &o->out,
        [OPT_NAME - OPT_OUT] = &o->name,
        [OPT_QUANT - OPT_OUT] = &o->quant,
        [OPT_HEAD_QUANT - OPT_OUT] = &o->head_quant,
        [OPT_CALIBRATE - OPT_OUT] = &o->calibrate,
        [OPT_CALIBRATION - OPT_OUT] = &files->calibration,
        [OPT_CHAT_TEMPLATE - OPT_OUT] = &files->chat_template,
        [OPT_SHAPE - OPT_OUT] = &o->shape,
        [OPT_KV - OPT_OUT] = &o->kv,
        [OPT_EXPERTS - OPT_OUT] = &o->experts,
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
            help();
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
        int rc = read_value(opt, optarg, o, tiers);
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

/* The smaller contexts, each a folder beside the first. */
static int make_tiers(const struct convert_options *made, const struct tiers *t)
{
    int rc = EXIT_SUCCESS;
    for (uint32_t i = 1; i < t->n && rc == EXIT_SUCCESS; i++) {
        char suffix[TIER_SUFFIX_MAX];
        char out[PATH_MAX];
        char name[MODEL_NAME_MAX + TIER_SUFFIX_MAX];
        size_t n = strlen(made->out);
        while (n > 1 && made->out[n - 1] == '/') {
            n--;
        }
        tier_suffix(t->context[i], suffix);
        if (n + strlen(suffix) >= sizeof(out)) {
            return cli_usage(usage, "--out: the path is too long");
        }
        (void)snprintf(out, sizeof(out), "%.*s%s", (int)n, made->out, suffix);
        (void)snprintf(name, sizeof(name), "%s%s",
                       made->name != NULL ? made->name : "", suffix);
        struct convert_options o;
        convert_options_init(&o);
        o.bundle = made->out;
        o.out = out;
        o.name = made->name != NULL ? name : NULL;
        o.context = t->context[i];
        o.threads = made->threads;
        o.accept = made->accept;
        rc = cli_convert_run(reshard_run, &o);
    }
    return rc;
}

/* What each of the contexts would be. */
static int foretell(struct convert_options *o, const struct tiers *t)
{
    int rc = cli_plan_of(o, false);
    for (uint32_t i = 1; i < t->n && rc == EXIT_SUCCESS; i++) {
        printf("\nof the same weights, which take room once:\n\n");
        o->context = t->context[i];
        o->out = NULL; /* room and place are the first one's matter */
        rc = cli_plan_of(o, false);
    }
    return rc;
}

/* text, tmpl: the caller's, also after an error. */
static int read_texts(const struct text_files *files, struct buf *text,
                      struct buf *tmpl, struct convert_options *o,
                      struct err *e)
{
    if (files->calibration != NULL) {
        RETERR(file_read(files->calibration, CALIBRATE_TEXT_MAX, text, e));
        o->calibration = text->n > 0 ? text->p : "";
        o->calibration_bytes = text->n;
    }
    if (files->chat_template != NULL) {
        int rc = chat_read(files->chat_template, tmpl, e);
        o->chat_template = tmpl->p;
        return rc < 0 ? err_prefix(e, rc, "--chat-template") : 0;
    }
    return 0;
}

int cli_convert(int argc, char **argv)
{
    bool dry = false;
    struct text_files files = {0};
    struct buf text = {0};
    struct buf tmpl = {0};
    struct tiers tiers = {0};
    struct convert_options o;
    struct err e = {0};
    convert_options_init(&o);
    int rc = read_options(argc, argv, &o, &files, &tiers, &dry);
    if (rc >= 0) {
        return rc;
    }
    o.context = tiers.context[0];
    if (read_texts(&files, &text, &tmpl, &o, &e) < 0) {
        rc = err_print(&e);
    } else if (dry) {
        rc = foretell(&o, &tiers);
    } else {
        rc = cli_convert_run(convert_run, &o);
    }
    buf_fini(&text);
    buf_fini(&tmpl);
    return rc == EXIT_SUCCESS && !dry ? make_tiers(&o, &tiers) : rc;
}
