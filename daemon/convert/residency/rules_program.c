/* rules_program.c - the rules on inputs, states and sizes: of a function, of a
 * program, of a bundle. */
#include <stdarg.h>
#include <string.h>

#include "convert/residency/rules.h"

#define MB 1000000u

/* What the record has: 2.0 GB ran, 2.3 GB went to the CPU; 19 MB ran, 14 MB
 * went to the CPU, some of 5 to 8 MB ran. */
#define PROGRAM_BYTES_CAP  (2000ull * MB)
#define PROGRAM_FLOOR      (20ull * MB)
#define PROGRAM_FLOOR_SURE (5ull * MB)
#define BUNDLE_BYTES_SAFE  (3000ull * MB)
#define BUNDLE_BYTES_CAP   (4096ull << 20)
#define PROGRAMS_CAP       100u
#define RANGE_PROVEN       4 /* rows */
#define SPEC_PROVEN        9

enum rule_name {
    INPUT_NO_T,
    INPUT_EXPLICIT,
    INPUT_TWO_RANGES,
    INPUT_ENUM_STATE,
    INPUT_ENUM,
    RANGE_WIDE,
    RANGE_NARROW,
    STATE_RANGED,
    STATE_COUNT,
    STATE_SYSTEM,
    SPEC_OPSET,
    PROGRAM_BYTES_MAX,
    PROGRAM_BYTES,
    PROGRAM_FLOOR_RULE,
    BUNDLE_BYTES,
    BUNDLE_PROGRAMS,
    RULE_NAMES
};

static const struct {
    struct predict_rule is;
    enum predict_verdict verdict;
} rules[RULE_NAMES] = {
    [INPUT_NO_T] = {{"input.no_t", "R7",
                     "an input of fixed shape beside ranged ones ends the "
                     "process (Core ML tools issue 2548); let it carry T"},
                    PREDICT_OFF    },
    [INPUT_EXPLICIT] = {{"input.explicit", "R7",
                         "an input without T beside ranged ones; its explicit "
                         "range may help, nobody has tried"},
                    PREDICT_UNKNOWN},
    [INPUT_TWO_RANGES] = {{"input.two_ranges", "R7",
                           "more than one ranged axis stops the load (-14)"},
                    PREDICT_OFF    },
    [INPUT_ENUM_STATE] = {{"input.enumerated_state", "R7",
                           "enumerated shapes beside states end the load; use "
                           "functions or one range"},
                    PREDICT_OFF    },
    [INPUT_ENUM] =
        {{"input.enumerated", "R7",
          "enumerated shapes: not all operations run there with them"},
                    PREDICT_UNKNOWN},
    [RANGE_WIDE] =
        {{"range.wide", "R7",
          "only ranges of up to 4 rows are known to run there at each size"},
                    PREDICT_UNKNOWN},
    [RANGE_NARROW] =
        {{"range.narrow", "R9",
          "widths 1 and 2 failed on M5 in one exporter; 4 and 8 ran"},
                    PREDICT_UNKNOWN},
    [STATE_RANGED] = {{"state.ranged", "R8",
                       "states of flexible shape do not exist"},
                    PREDICT_OFF    },
    [STATE_COUNT] = {{"state.count", "R8", "more states than the profile has"},
                    PREDICT_UNKNOWN},
    [STATE_SYSTEM] = {{"state.system", "R8",
                       "programs with states failed on M5 in betas of macOS "
                       "27; kv = host has none"},
                    PREDICT_UNKNOWN},
    [SPEC_OPSET] = {{"spec.opset", "R1",
                     "not of opset CoreML8: states and compressed weights are "
                     "untried there"},
                    PREDICT_UNKNOWN},
    [PROGRAM_BYTES_MAX] =
        {{"program.bytes_max", "R4",
          "more than 2.0 GB of weights go to the CPU or stop the load (-14)"},
                    PREDICT_OFF    },
    [PROGRAM_BYTES] =
        {{"program.bytes", "R4",
          "more weights than the profile's program_bytes; divide it"},
                    PREDICT_UNKNOWN},
    [PROGRAM_FLOOR_RULE] = {{"program.floor", "R4",
                             "the CPU is preferred for small programs"},
                    PREDICT_UNKNOWN},
    [BUNDLE_BYTES] =
        {{"bundle.bytes", "R5",
          "more weights than the Neural Engine was seen to hold at once"},
                    PREDICT_UNKNOWN},
    [BUNDLE_PROGRAMS] =
        {{"bundle.programs", "R5",
          "functions times shapes; a process holds some 121 to 128"},
                    PREDICT_UNKNOWN},
};

const struct predict_rule *program_rule_at(size_t i)
{
    return i < countof(rules) ? &rules[i].is : NULL;
}

/* Of one rule one finding: the first tells it. */
static void found(struct predict_findings *to, enum rule_name r,
                  const char *fmt, ...) PRINTF_LIKE(3, 4);

static void found(struct predict_findings *to, enum rule_name r,
                  const char *fmt, ...)
{
    for (size_t i = 0; i < to->n; i++) {
        if (to->of[i].rule == &rules[r].is) {
            return;
        }
    }
    must(to->n < countof(to->of)); /* there are fewer rules */
    struct predict_finding *f = &to->of[to->n++];
    f->rule = &rules[r].is;
    f->verdict = rules[r].verdict;
    va_list ap;
    va_start(ap, fmt);
    (void)vsnprintf(f->detail, sizeof(f->detail), fmt, ap);
    va_end(ap);
}

/* --- functions --- */

static bool is_ranged(const struct mil_feature *in, int axis)
{
    return in->has_range && in->lo[axis] != in->hi[axis];
}

/* Its first ranged axis; -1: none. */
static int ranged_axis(const struct mil_feature *in, int from)
{
    for (int d = from; d < in->type.rank; d++) {
        if (is_ranged(in, d)) {
            return d;
        }
    }
    return -1;
}

static const struct mil_feature *first_ranged(const struct mil_function *f)
{
    for (size_t i = 0; i < f->n_in; i++) {
        if (ranged_axis(&f->in[i], 0) >= 0) {
            return &f->in[i];
        }
    }
    return NULL;
}

static void look_at_ranges(const struct mil_function *f,
                           const struct mil_feature *first,
                           struct predict_findings *to)
{
    int a = ranged_axis(first, 0);
    for (size_t i = 0; i < f->n_in; i++) {
        const struct mil_feature *in = &f->in[i];
        int d = ranged_axis(in, 0);
        if (d < 0) {
            char type[48];
            mil_type_print(&in->type, type, sizeof(type));
            found(to, in->has_range ? INPUT_EXPLICIT : INPUT_NO_T, "%.28s %s",
                  in->name, type);
        } else if (ranged_axis(in, d + 1) >= 0 || in->lo[d] != first->lo[a] ||
                   in->hi[d] != first->hi[a]) {
            found(to, INPUT_TWO_RANGES, "%.60s", in->name);
        }
    }
}

static void look_at_widths(const struct mil_feature *first,
                           const struct predict_limits *l,
                           struct predict_findings *to)
{
    int a = ranged_axis(first, 0);
    if (first->hi[a] < 0) {
        found(to, RANGE_WIDE, "%.40s has no upper bound", first->name);
    } else if (first->hi[a] > RANGE_PROVEN) {
        found(to, RANGE_WIDE, "%.40s: %lld", first->name,
              (long long)first->hi[a]);
    }
    if (l->chip >= 5 && first->lo[a] <= 2) {
        found(to, RANGE_NARROW, "%.40s begins at %lld", first->name,
              (long long)first->lo[a]);
    }
}

static void look_at_states(const struct mil_function *f,
                           const struct predict_limits *l,
                           struct predict_findings *to)
{
    for (size_t i = 0; i < f->n_states; i++) {
        const struct mil_type *t = &f->states[i].type;
        for (int d = 0; d < t->rank; d++) {
            if (t->dims[d] == MIL_UNKNOWN) {
                found(to, STATE_RANGED, "%.60s", f->states[i].name);
            }
        }
    }
    if (f->n_states > l->states) {
        found(to, STATE_COUNT, "%zu, profile %s has %u", f->n_states,
              l->profile, l->states);
    }
    if (l->chip >= 5 && f->n_states > 0) {
        found(to, STATE_SYSTEM, "%zu states", f->n_states);
    }
}

void find_in_function(const struct mil_function *f,
                      const struct predict_limits *l,
                      struct predict_findings *to)
{
    const struct mil_feature *first = first_ranged(f);
    if (first != NULL) {
        look_at_ranges(f, first, to);
        look_at_widths(first, l, to);
    }
    for (size_t i = 0; i < f->n_in; i++) {
        if (f->in[i].n_shapes > 0) {
            found(to, f->n_states > 0 ? INPUT_ENUM_STATE : INPUT_ENUM, "%.60s",
                  f->in[i].name);
        }
    }
    look_at_states(f, l, to);
}

uint64_t rule_shapes(const struct mil_function *f)
{
    const struct mil_feature *first = first_ranged(f);
    if (first == NULL) {
        return 1;
    }
    int a = ranged_axis(first, 0);
    int64_t lo = first->lo[a];
    int64_t hi = first->hi[a];
    return hi < lo || lo < 0 ? 1 : (uint64_t)(hi - lo) + 1;
}

/* --- programs --- */

void find_in_program(const struct mil_program *p, uint64_t bytes,
                     const struct predict_limits *l,
                     struct predict_findings *to)
{
    double mb = (double)bytes / MB;
    for (size_t i = 0; i < p->n_functions; i++) {
        const char *opset = p->functions[i]->opset;
        if (p->spec_version < SPEC_PROVEN || opset == NULL ||
            strcmp(opset, "CoreML8") != 0) {
            found(to, SPEC_OPSET, "specification %d, %.30s", p->spec_version,
                  opset != NULL ? opset : "none");
        }
    }
    if (bytes > PROGRAM_BYTES_CAP) {
        found(to, PROGRAM_BYTES_MAX, "%.1f MB", mb);
    } else if (bytes > l->program_bytes) {
        found(to, PROGRAM_BYTES, "%.1f MB, profile %s has %.0f MB", mb,
              l->profile, (double)l->program_bytes / MB);
    } else if (bytes < PROGRAM_FLOOR) {
        found(to, PROGRAM_FLOOR_RULE,
              bytes < PROGRAM_FLOOR_SURE
                  ? "%.1f MB; of 5 to 20 MB some ran there"
                  : "%.1f MB; 19 MB ran there, 14 MB did not",
              mb);
    }
}

/* --- bundles --- */

void find_in_total(struct predict_total *t)
{
    double gb = (double)t->bytes / (1000.0 * MB);
    if (t->bytes > BUNDLE_BYTES_CAP) {
        found(&t->findings, BUNDLE_BYTES, "%.2f GB; its window is 4 GiB", gb);
    } else if (t->bytes > BUNDLE_BYTES_SAFE) {
        found(&t->findings, BUNDLE_BYTES, "%.2f GB; 3 GB were seen", gb);
    }
    if (t->programs > PROGRAMS_CAP) {
        found(&t->findings, BUNDLE_PROGRAMS, "%llu",
              (unsigned long long)t->programs);
    }
}
