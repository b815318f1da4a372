/* residency.h - predicts where a package's operations will run: on the Neural
 * Engine, not on it, or nobody knows. README.md has the rules.
 *
 * A prediction is what the public record says of such operations, types,
 * weights, states and sizes. It reads a parsed program and nothing else: no
 * device is asked. So it may warn, it never rejects, and what shows it says
 * `predicted` beside it. What a machine really does is measured there
 * (engine/probe/probe.h).
 *
 * An operation is judged by itself; a finding is of a whole function, program
 * or bundle. A finding that is `off` (Core ML gives up the whole of it) takes
 * every operation along; one that is `unknown` warns and leaves them.
 *
 * Thread: pure; any number of threads.
 */
#pragma once

#include "convert/plan.h"
#include "mil/mil.h"
#include "proto/json.h"

/* The gravest first. */
enum predict_verdict { PREDICT_OFF, PREDICT_UNKNOWN, PREDICT_ON };
#define PREDICT_VERDICTS 3
const char *predict_word(enum predict_verdict v); /* "off", "unknown", "on" */

/* Changes when the same program may get another prediction. Bundles keep the
 * one they were converted with. */
#define PREDICT_RULES_VERSION 1

struct predict_rule {
    const char *id; /* "weights.blocks" */
    /* Section or rule ("R7") of the facts on the Neural Engine, chapter 6. */
    const char *source;
    const char *reason;
};

/* The rules by index; NULL after the last. For tests and the README. */
const struct predict_rule *predict_rule_at(size_t i);

/* What differs by chip: the planner's profile, as the rules read it. */
struct predict_limits {
    char profile[32];
    uint64_t program_bytes; /* weights of one program */
    uint32_t states;        /* of one program */
    uint32_t head_rows;     /* output channels of one product */
    uint32_t axis;          /* longest axis that is not of channels */
    unsigned chip;          /* generation: 4 for m4-max; 1 for law */
};

/* Errors: those of plan_profile. */
CHECKED int predict_limits(const char *profile, struct predict_limits *ret,
                           struct err *e);

/* What was found of the program. */
struct predict_finding {
    const struct predict_rule *rule;
    enum predict_verdict verdict;
    char detail[PREDICT_DETAIL_MAX]; /* "input pos is [1]"; "" */
};

struct predict_findings {
    size_t n;
    struct predict_finding of[PREDICT_FINDINGS_MAX];
};

/* One operation. Constants and constexpr_* are none: they are folded at load,
 * and a compute plan has nothing to say of them either. */
struct predict_op {
    const struct mil_op *op;
    enum predict_verdict verdict;
    const struct predict_rule *rule; /* that decided; "op.native" where on */
    char detail[PREDICT_DETAIL_MAX];
    /* Share of the function's bytes, 0..1: of weights as stored, and of what
     * goes in and out at the default shape. A decode step is bound by memory,
     * so bytes stand for time. */
    double cost;
    double weights; /* bytes of the constants that it reads, as stored */
};

struct predict_function {
    const struct mil_function *f;
    size_t n_ops;
    struct predict_op *ops; /* program order, nested blocks included; owned */
    uint32_t count[PREDICT_VERDICTS];
    double cost[PREDICT_VERDICTS]; /* sum to 1, or all are 0 */
    double bytes;                  /* that the cost is a share of */
    struct predict_findings findings;
};

/* Of a package. It borrows the program. */
struct prediction {
    struct predict_limits limits;
    const struct mil_program *p;
    uint64_t weight_bytes;
    size_t n;
    struct predict_function *f; /* owned */
    struct predict_findings findings;
};

/* weight_bytes: of the package's weight files; 0: as the program says, which
 * knows nothing of them while it is being built. */
void predict_program(const struct mil_program *p, uint64_t weight_bytes,
                     const struct predict_limits *l, struct prediction *ret);
void predict_free(struct prediction *v); /* zeroed is fine */

/* Operations of one type and one rule. */
struct predict_kind {
    const struct predict_op *first;
    uint32_t n;
    double cost;
};

struct predict_kinds {
    size_t n; /* the gravest first, then by cost */
    struct predict_kind of[PREDICT_KINDS_MAX];
    struct predict_kind others[PREDICT_VERDICTS]; /* what found no room */
};

void predict_group(const struct predict_function *f, struct predict_kinds *ret);

/* "op.gather: a gather is ...: indices int32[1,4]"; cut to size. */
void predict_reason(const struct predict_rule *rule, const char *detail,
                    char *out, size_t size);

/* --- map.c: layer by layer --- */

/* Each operation by its place: {"rules": [id, ..], "groups": [{"layers": [0,
 * 1], "ops": [[name, type, verdict, rule, weights], ..]}, ..]}. Layers count
 * from 0 in the package, and those that are alike share a group; operations of
 * no layer come last, in a group without layers. name: without "layers_N_";
 * rule: an index of rules; weights: bytes, a list where the layers differ. NULL
 * where its text would have more than PREDICT_MAP_MAX bytes. The caller frees
 * it. */
struct json *predict_map_json(const struct predict_function *f);

/* --- report.c: of all packages of a bundle --- */

struct predict_total {
    struct predict_limits limits;
    uint64_t packages, programs; /* programs: functions x shapes */
    uint64_t bytes;
    uint64_t ops, on;
    double moved, moved_on; /* bytes of all operations, of those that are on */
    struct predict_findings findings; /* of the bundle: set by predict_judge */
    size_t n;
    char reason[PREDICT_REASONS][PREDICT_REASON_MAX + 64]; /* gravest first */
    uint64_t weight[PREDICT_REASONS]; /* operations, or more for a finding */
    char rule[PREDICT_REASONS][32];
};

void predict_total_init(struct predict_total *t,
                        const struct predict_limits *l);
void predict_total_add(struct predict_total *t, const char *package,
                       const struct prediction *v);
/* After the last package: looks at the whole, orders the reasons. "passed": all
 * is on and nothing was found; else "warned". */
const char *predict_judge(struct predict_total *t);
/* "predicted for profile law: 100.0% of 412 operations on the Neural Engine;
 * ..." */
void predict_line(const struct predict_total *t, char *out, size_t size);

/* What the store and the API keep, in the form of a measured report
 * (engine/probe): {"function": {.., "findings", "map"}, "ops": [..]}, alike
 * operations as one. kind: "layers" or "head". */
struct json *predict_function_json(const struct prediction *v, size_t function,
                                   const char *package, const char *kind);
/* {"summary": {"machine", "options", "verdict", "reasons"}} */
struct json *predict_summary_json(struct predict_total *t);
