/* job_plan.c - what a conversion will be, before it writes: programs, room on
 * the disk, time. Also asked alone (convert_forecast). */
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include "base/crew.h"
#include "base/file.h"
#include "base/num.h"
#include "convert/gates.h"
#include "convert/job.h"
#include "convert/quality/quality.h"
#include "convert/quant/choice.h"

/* --- programs --- */

/* With experts in one form or the other. */
static int plan_form(struct job *j, bool sparse, struct err *e)
{
    const struct plan_form form = {
        .forms = &j->forms,
        .context = j->emit.context,
        .shape = &j->emit.shape,
        .host = j->emit.host,
        .sparse = sparse,
    };
    plan_input_fini(&j->in);
    plan_input_of(&j->d, j->g, &form, &j->in);
    j->in.context_by = j->context_by;
    if (sparse) {
        RETERR(plan_grouping(&j->profile, j->expert_group, &j->in, e));
    }
    return plan_make(&j->profile, &j->in, &j->plan, e);
}

static bool has_experts(const struct decoder *d)
{
    uint32_t l = 0;
    while (l < d->n_layers && d->layers[l].n_experts == 0) {
        l++;
    }
    return l < d->n_layers;
}

/* Dense, unless that is refused or, by the figures, slower. */
static int plan_auto(struct job *j, bool *sparse, struct err *e)
{
    struct err why = {0};
    int rc = plan_form(j, false, e);
    bool may = has_experts(&j->d) && !j->d.encoder && j->profile.chip;
    if (!may || (rc == 0 && !plan_wants_sparse(&j->profile, &j->in, &j->plan))) {
        return rc;
    }
    *sparse = plan_form(j, true, &why) == 0 &&
              plan_experts(&j->profile, &j->in, &j->plan).loads &&
              plan_fit(&j->profile, &j->in, &j->plan) != PLAN_TOO_BIG;
    return *sparse  ? 0
           : rc < 0 ? rc
                    : plan_form(j, false, e);
}

int convert_make_plan(struct job *j, struct err *e)
{
    bool sparse = j->experts == EXPERTS_SPARSE;
    if (sparse && !has_experts(&j->d)) {
        return err_set(e, ERR_INVALID, "experts: %s has none here",
                       j->d.arch->name);
    }
    RETERR(j->experts == EXPERTS_AUTO ? plan_auto(j, &sparse, e)
                                      : plan_form(j, sparse, e));
    for (uint32_t l = 0; l < j->d.n_layers; l++) {
        j->d.layers[l].sparse = sparse && j->d.layers[l].n_experts > 0;
    }
    return 0;
}

int convert_check_fit(const struct job *j, struct err *e)
{
    if (j->o->profile == NULL ||
        plan_fit(&j->profile, &j->in, &j->plan) != PLAN_TOO_BIG) {
        return 0;
    }
    /* whoever names a chip wants a model for it */
    return err_set(
        e, ERR_CONVERT,
        "all programs have %.0f MB of weights; profile %s: resident_bytes "
        "%.0f MB. Fewer bits, or no --profile: the CPU backend has no such "
        "limit",
        (double)plan_resident_bytes(&j->profile, &j->in, &j->plan) / 1e6,
        j->profile.name, j->profile.resident_bytes.most / 1e6);
}

/* --- room --- */

uint64_t convert_weight_bytes(const struct job *j)
{
    uint64_t n = plan_layers_bytes(&j->in);
    for (uint32_t i = 0; i < j->plan.n_heads; i++) {
        n += plan_head_bytes(&j->in, j->plan.heads[i]);
    }
    return n;
}

uint64_t convert_bundle_bytes(const struct job *j)
{
    return j->in.file_bytes + convert_weight_bytes(j);
}

/* By descriptor: the sandbox has no statfs by name. */
int convert_free_bytes(const char *out, bool *known, uint64_t *ret,
                       struct err *e)
{
    char dir[PARENT_ROOM];
    struct statvfs s = {0};
    file_parent(out, dir, sizeof(dir));
    int fd = open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd < 0 && (errno == EACCES || errno == EPERM)) {
        *known = false; /* written to it may be, without being read */
        return 0;
    }
    if (fd < 0) {
        return err_errno(e, errno, dir);
    }
    *known = fstatvfs(fd, &s) == 0 && s.f_blocks > 0 && s.f_frsize > 0 &&
             num_mul(s.f_bavail, s.f_frsize, ret);
    (void)close(fd);
    return 0;
}

int convert_room(const char *out, uint64_t need, uint64_t made,
                 struct err *e)
{
    char dir[PARENT_ROOM];
    uint64_t there = 0;
    bool known = false;
    uint64_t missing = made < need ? need - made : 0;
    file_parent(out, dir, sizeof(dir));
    RETERR(convert_free_bytes(out, &known, &there, e));
    return !known || there >= missing
               ? 0
               : err_set(e, ERR_NO_SPACE,
                         "the bundle needs %.1f MB%s, and %.1f MB are free in "
                         "%s; nothing was written",
                         (double)missing / 1e6, made > 0 ? " more" : "",
                         (double)there / 1e6, dir);
}

int convert_check_room(const struct job *j, struct err *e)
{
    uint64_t codes =
        j->calibrates ? calibrate_file_bytes(&j->d, &j->forms) : 0;
    return convert_room(j->out, convert_bundle_bytes(j) + codes,
                        convert_work_bytes(j), e);
}

/* --- time --- */

/* Nanoseconds, measured on a Zen 5 server with models of Q8_0 and Q4_K_M. Only
 * what they are to each other decides how even the progress is. */
#define NS_START   3e7  /* a conversion of nothing */
#define NS_TOKEN   400  /* copy one of the vocabulary, and read it back */
#define NS_DEQUANT 0.5  /* an element, one core */
#define NS_MAC     0.02 /* of the reference pass, one core */
#define NS_WRITE   0.6  /* a byte, by one thread and the disk */
#define NS_PACKAGE 2e6  /* read again and validated */
#define NS_HASH    0.57 /* a byte, by one thread */
#define NS_SYNC    0.1  /* a byte of what is not on the disk by then */
/* A byte that is read from the disk again, into large pages (file_repage). */
#if defined(__linux__)
#define NS_REREAD 1.0
#else
#define NS_REREAD 0.0
#endif

struct amounts {
    double layers, head;            /* elements */
    double layer_bytes, head_bytes; /* written */
};

static struct amounts amounts(const struct job *j)
{
    const struct plan_input *in = &j->in;
    struct amounts a = {.layer_bytes = (double)plan_layers_bytes(in)};
    for (uint32_t l = 0; l < in->n_layers; l++) {
        a.layers += (double)in->layers[l].elements;
    }
    for (uint32_t i = 0; i < j->plan.n_heads; i++) {
        a.head_bytes += (double)plan_head_bytes(in, j->plan.heads[i]);
    }
    a.head = (double)in->vocab * (double)in->row_elements;
    return a;
}

/* What is left of a part that costs `cost`, where `kept` of its `all` bytes are
 * read and compared instead. */
static double left_of(double cost, uint64_t kept, double all)
{
    double share = all > 0 ? (double)kept / all : 0;
    share = share < 1 ? share : 1;
    double left = cost * (1 - share) + (double)kept * NS_HASH;
    return left < cost ? left : cost;
}

/* An element; nothing where calibration has made the codes. */
static double encode_ns(const struct job *j, enum quant k)
{
    return j->calibrates ? 0 : NS_DEQUANT + quant_encode_ns(k);
}

void convert_costs(struct job *j)
{
    struct amounts a = amounts(j);
    double n = crew_threads(j->o->threads);
    bool own = j->o->calibration == NULL;
    double calibrate =
        j->calibrates ? calibrate_cost(&j->d, &j->forms, own) / n : 0;
    const char *top = arch_head(&j->d)->t->name;
    double encode = encode_ns(j, j->forms.spec.kind) / n;
    double encode_head =
        encode_ns(j, quant_choice_for(&j->forms, top).kind) / n;
    double packages = (double)j->plan.n_shards + (double)j->plan.n_heads +
                      (double)plan_groups(&j->in);
    double bundle = (double)convert_bundle_bytes(j);
    double put = NS_WRITE + NS_HASH;
    /* the source is hashed while it is measured (digest.h) */
    double measure =
        (a.layers + a.head) * (NS_DEQUANT + NS_MAC * CALIBRATION_TOKENS) +
        (double)gguf_file_bytes(j->g) * NS_HASH;
    /* the reference, and the bundle some six times as slow */
    double quality =
        (a.layers + a.head) * (NS_DEQUANT + NS_MAC * QUALITY_TOKENS) * 7;
    /* palettes, about half of the layers for each matrix, whole runs */
    double runs = (double)j->target.n_matrices * TARGET_FEW * TARGET_COLUMNS;
    double both = quant_encode_ns(QUANT_LUT4) + quant_encode_ns(QUANT_LUT6);
    double palettes = a.layers * both / n;
    double single = (a.layers / 2 + a.head) * NS_MAC * runs / n;
    double text = (a.layers + a.head) *
                  (NS_DEQUANT + NS_MAC * TARGET_SEQUENCES) * TARGET_COLUMNS / n;
    double whole =
        (a.layers + a.head) *
        (NS_DEQUANT + NS_MAC * (double)(TARGET_SEQUENCES * TARGET_COLUMNS)) *
        6 / n;
    double asked = convert_has_target(j) ? 1 : 0;
    double embed = a.head * (NS_DEQUANT / n + 2 * put); /* as fp16 */
    double layers = a.layers * encode + a.layer_bytes * put;
    double head = a.head * encode_head + a.head_bytes * put;
    const struct job_kept *k = &j->kept;
    double embed_left = left_of(embed, k->tables, a.head * 2);
    double layers_left = left_of(layers, k->layers, a.layer_bytes);
    double head_left = left_of(head, k->head, a.head_bytes);
    const struct progress_part parts[] = {
        {"reading",     NS_START              },
        {"measuring",   NS_TOKEN * j->in.vocab},
        {"measuring",   measure / n           },
        {"choosing",    asked * text          },
        {"choosing",    asked * palettes      },
        {"choosing",    asked * single        },
        {"choosing",    asked * whole         },
        {"calibrating", calibrate             },
        {"writing",     embed_left            },
        {"writing",     layers_left           },
        {"writing",     head_left             },
        {"writing",     bundle * NS_REREAD    },
        {"gating",      packages * NS_PACKAGE },
        {"gating",      quality / n           },
        {"publishing",  bundle * NS_SYNC      },
    };
    progress_plan(&j->progress, parts, countof(parts));
    progress_credit(&j->progress, embed - embed_left + layers - layers_left +
                                      head - head_left);
}

/* What only a model that writes has. */
static int check_encoder(struct job *j, struct err *e)
{
    const struct convert_options *o = j->o;
    bool calibrates = o->calibration != NULL ||
                      (o->calibrate != NULL && strcmp(o->calibrate, "on") == 0);
    const struct {
        bool asked;
        const char *what;
    } none[] = {
        {o->context > 0 && j->d.n_labels > 0,
         "--context: it reads texts of any length"                       },
        {j->emit.host,          "--kv host: it keeps no keys"            },
        {j->emit.argmax,        "--output argmax: all its numbers are read"  },
        {calibrates,            "--calibrate: not done for encoders yet" },
        {convert_has_target(j), "a target: not done for encoders yet"    },
        {j->experts == EXPERTS_SPARSE,
         "--experts sparse: its experts are in its programs"},
    };
    for (size_t i = 0; i < countof(none); i++) {
        if (none[i].asked) {
            return err_set(e, ERR_UNSUPPORTED, "%s is an encoder; no %s",
                           j->d.arch->name, none[i].what);
        }
    }
    return shape_of_encoder(o->shape,
                            layer_block(j->d.kinds[LAYER_GLOBAL].window),
                            &j->emit.shape, e);
}

int convert_decide(struct job *j, struct err *e)
{
    if (j->d.encoder) {
        RETERR(check_encoder(j, e));
    }
    RETERR(convert_check_forms(j, e));
    RETERR(gate_vocabulary(j->g, &j->result.notes, e));
    RETERR(convert_choose_context(j, e));
    RETERR(convert_list_target(j, e));
    RETERR(convert_choose_calibration(j, e));
    RETERR(convert_make_plan(j, e));
    RETERR(convert_check_target(j, e));
    if (j->d.n_labels > 0 && j->plan.n_heads != 1) {
        return err_set(e, ERR_UNSUPPORTED,
                       "%u labels do not fit one program of this profile",
                       j->d.n_labels);
    }
    convert_costs(j);
    return 0;
}
