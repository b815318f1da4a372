/* probe_impl.h - what the files of the probe share; private to engine/probe.
 *
 * probe.c         packages: their functions opened, the reference
 * probe_measure.c the widths of a function, step by step
 * probe_rig.c     one function of one package on the probe's rows
 * probe_rows.c    results: sound, like the reference's, the same bits
 * probe_plan.c    operations by kind and device
 * probe_margin.c  the leads of the whole model
 * probe_report.c  results as JSON
 * probe_role.c    the child's main function
 */
#pragma once

#include "engine/impl.h"
#include "engine/probe/probe.h"

/* A shard or a head of the bundle. */
struct probe_part {
    const struct bundle *b;
    const struct tables *tables;
    const struct bundle_shard *shard; /* one of these two */
    const struct bundle_head *head;
};

const char *part_path(const struct probe_part *p);

/* --- probe_rows.c --- */

/* The rows of the probe: what goes in, the same for all that is compared. */
struct probe_in {
    uint32_t past, n; /* rows stand at positions past .. past + n - 1 */
    size_t d;         /* numbers of a row */
    float *x;         /* (n, d) */
    int32_t *tokens;  /* n: whose embeddings they are made of */
    uint32_t *peak;   /* n: the number that is as large as any, or PEAK_NONE */
};

#define PEAK_NONE UINT32_MAX

/* Rows for a part that runs up to t_max of them, whose results have w numbers.
 */
CHECKED int probe_in_make(struct probe_in *in, const struct probe_part *p,
                          uint32_t t_max, size_t w, struct err *e);
void probe_in_free(struct probe_in *in); /* zeroed is fine */
/* The i-th of a row of numbers that are the same in each run, in [-1, 1) and
 * exact in fp16. */
float probe_number(uint64_t seed, uint64_t i);

/* Numbers [from, from + n) of a row: a result, or what it stored in a state. */
struct segment {
    const char *name; /* borrowed */
    size_t from, n;
};

/* What rows gave. */
struct probe_out {
    uint32_t n;
    size_t w; /* numbers of a row, all segments */
    size_t n_segments;
    struct segment *segments;
    float *v; /* (n, w) */
};

/* Numbers that are not finite. */
uint64_t probe_out_bad(const struct probe_out *o, uint32_t n);
uint64_t probe_out_hash(const struct probe_out *o, uint32_t row);

struct likeness {
    double cosine;    /* the least of all rows and segments; 2: not compared */
    const char *name; /* the segment that it is of; "" */
};
/* Where a result is the input plus something, of that. */
struct likeness probe_out_like(const struct probe_out *o,
                               const struct probe_out *want,
                               const struct probe_in *in, bool adds);

/* --- probe_rig.c --- */

/* A function of a part, opened, with the arrays that the engine would bind. */
struct rig {
    struct engine g; /* of this one shard or head, without the rest */
    bool head, open;
    struct bundle_shard one; /* the shard, or the head, */
    struct bundle_head top;  /* with this function only */
    const char *function;    /* NULL: the default */
    uint32_t function_t;
    struct engine_seq *base, *seq; /* a past; with rows after it */
    struct sheet sheets[SHEETS_MAX];
    const struct probe_in *in; /* set by rig_rows */
};

/* function: index into the part's functions where it has several; else 0.
 * Errors: those of the backend and of unit.c. */
CHECKED int rig_open(struct rig *r, const struct probe_part *p, size_t function,
                     const struct backend *be, const struct backend_conf *bc,
                     struct err *e);
void rig_close(struct rig *r); /* zeroed is fine */
const struct backend_info *rig_info(const struct rig *r);
const struct unit *rig_unit(const struct rig *r);
/* Its results for n rows, zero; probe_out_free. */
CHECKED int rig_out(const struct rig *r, uint32_t n, struct probe_out *ret,
                    struct err *e);
size_t rig_out_width(const struct rig *r);
void probe_out_free(struct probe_out *o); /* zeroed is fine */
/* These rows from now on, behind a random past. */
CHECKED int rig_rows(struct rig *r, const struct probe_in *in, struct err *e);
/* Forget the rows after the past. */
CHECKED int rig_again(struct rig *r, struct err *e);
/* Place rows [first, first + n) in width t for rig_predict. */
CHECKED int rig_place(struct rig *r, uint32_t t, uint32_t first, uint32_t n,
                      struct err *e);
CHECKED int rig_predict(struct rig *r, uint32_t t, struct err *e);
/* The last prediction's results, and what it stored, into rows of *o. */
CHECKED int rig_take(struct rig *r, uint32_t t, uint32_t first, uint32_t n,
                     struct probe_out *o, struct err *e);
/* What the states hold at the rows' positions, into *o. */
CHECKED int rig_states(struct rig *r, struct probe_out *o, struct err *e);

/* --- probe_plan.c --- */

/* Operations of a function that are alike. */
struct plan_group {
    char type[BACKEND_OP_TYPE_MAX];
    char example[BACKEND_OP_NAME_MAX]; /* one of them */
    enum backend_device preferred;
    unsigned supported;
    uint32_t n;
    double cost;
};

struct plan_groups {
    uint32_t n_ops, n_here; /* all; on the Neural Engine */
    double cost, cost_here; /* the same of the cost; 0: not told */
    size_t n;
    struct plan_group of[PROBE_OPS_MAX]; /* the last may be "others" */
};

/* Those elsewhere first, each by cost, then by number. */
void plan_group(const struct backend_plan *plan, struct plan_groups *ret);

/* --- probe.c, probe_report.c --- */

struct width_result {
    uint32_t t;
    int code;             /* of the failure; 0: none */
    enum probe_step step; /* at which it failed */
    char why[ERR_MSG_MAX];
    double warm_ms, us, cpu_us; /* < 0: not measured */
    struct likeness like;
    uint64_t bad;   /* numbers that are not finite */
    bool steady;    /* a row's bits depend on nothing but the width */
    bool repeats;   /* and are the same again */
    uint64_t *hash; /* of the rows; NULL: not computed */
};

struct function_result {
    const char *name; /* "" for the default */
    int code;         /* the function failed as a whole */
    enum probe_step step;
    char why[ERR_MSG_MAX];
    char arith[ARITH_BYTES_MAX];
    double open_ms, plan_ms;
    uint64_t weight_bytes;
    bool planned; /* else plan_why, or the backend has no plan */
    struct plan_groups plan;
    char plan_why[ERR_MSG_MAX];
    char cpu_why[ERR_MSG_MAX]; /* why there is no time of the CPU alone; "" */
    size_t n;
    struct width_result width[ENGINE_WIDTHS_MAX];
};

struct package_result {
    const char *path;
    bool head;
    uint32_t rows;                   /* that were compared */
    char reference_why[ERR_MSG_MAX]; /* why there is no cosine; "" */
    size_t n;
    struct function_result *f; /* owned */
};

/* {"function": .., "ops": [..]} */
struct json *report_function(const struct package_result *p,
                             const struct function_result *f);
/* {"package": ..}, with the classes of sound widths that agree. */
struct json *report_package(const struct package_result *p,
                            const struct backend *reference);

/* --- a probe at work --- */

struct probe {
    const struct probe_conf *c;
    struct bundle *b;
    struct tables tables;
    const char *known; /* the machine is one of conf->known */
    bool asked;        /* that was looked at */
    int stop;          /* what conf->at or conf->result said; 0: go on */
};

/* One package. */
struct package {
    struct probe *p;
    struct probe_part part;
    size_t number; /* of the bundle's */
    struct package_result r;
    struct rig *rigs; /* r.n */
    struct probe_in in;
    struct probe_out want; /* the reference's; n 0: none */
    struct probe_out now;
};

/* Tell that a step begins, or goes on. Not 0: the probe is over. Any other
 * failure is a result; so who gets one returns p->stop. */
CHECKED int package_at(const struct package *k, const char *function,
                       enum probe_step step, uint32_t width);
#define ANY_WIDTH UINT32_MAX

/* A child was lost at this very place. function NULL: any. */
bool package_lost(const struct package *k, const char *function,
                  enum probe_step step, uint32_t width);
/* The failure becomes a result. Return p->stop. */
int function_fails(const struct package *k, struct function_result *f,
                   enum probe_step step, const struct err *e);
double ms_since(uint64_t from_us);

/* probe_measure.c: all of the i-th function's widths, which is open. */
CHECKED int measure_function(struct package *k, size_t i);
