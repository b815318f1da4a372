/* job.h - one conversion, shared by convert.c (the stages), job_options.c
 * (options and source), job_plan.c (what it will be: programs, room, time),
 * job_forecast.c (the same, asked alone), reshard.c (from a bundle),
 * job_work.c (what a later run need not do again) and job_write.c (the bundle's
 * files and description). */
#pragma once

#include "convert/calibrate/calibrate.h"
#include "convert/convert.h"
#include "convert/digest.h"
#include "convert/emit.h"
#include "convert/plan_input.h"
#include "convert/reference/reference.h"
#include "convert/residency/residency.h"
#include "convert/target/target.h"
#include "convert/work.h"
#include "model/bundle.h"

#define PATH_ROOM   2048
#define CALIBRATION_TOKENS 64u /* of the range: the beginning of quality_text */
#define PARENT_ROOM (PATH_ROOM - 32)

/* Bytes on record from an earlier run. */
struct job_kept {
    uint64_t tables, layers, head;
};

#define SHARD_NAME "layers_%02u_%02u.mlpackage"
#define GROUP_NAME "experts_%02u_%02u.mlpackage" /* layer, group of it */
#define HEAD_NAME  "head_%u.mlpackage"

struct job {
    const struct convert_options *o;
    struct convert_result result;
    struct gguf *g;
    struct decoder d;
    struct progress progress;
    struct digest digest;
    bool digesting;
    struct plan_profile profile;
    const char *context_by; /* plan_input.context_by */
    enum experts_form experts; /* asked for */
    uint32_t expert_group;     /* the same; 0: the default */
    struct plan_input in; /* what was divided */
    struct plan plan;
    struct range range;
    struct range_choice choice;
    struct quant_choice forms; /* of the matrices */
    struct target target;      /* when one is asked for */
    struct target_text text;   /* that its KL is measured on */
    char quant[QUANT_TEXT_MAX];
    bool calibrates;
    struct calibrate_slice *heads; /* owned: as the plan has them */
    struct calibration *calibration;
    struct emit emit;
    struct predict_total residency;
    struct bundle b;
    char name[MODEL_NAME_MAX + 1];
    char source_name[256];
    char out[PARENT_ROOM];   /* without slashes at its end */
    char staging[PATH_ROOM]; /* "" until it exists: the work's bundle, or,
                                without work, a folder beside `out` */
    struct work *work;       /* NULL until then */
    struct job_kept kept;
    struct bundle_file *known; /* files hashed while they were written; owned */
    size_t n_known;
};

/* job_options.c */
CHECKED int convert_read_options(struct job *j, struct err *e);
/* j->name: o->name, or made of `from`'s last component where that is NULL. */
CHECKED int convert_read_name(struct job *j, const char *from, struct err *e);
/* NULL is a. Errors: INVALID, naming both. */
CHECKED int convert_choice(const char *what, const char *v, const char *a,
                           const char *b, bool *ret_b, struct err *e);
/* j->out is o->out without slashes at its end. Errors: INVALID, EXISTS. */
CHECKED int convert_read_out(struct job *j, struct err *e);
CHECKED int convert_open_source(struct job *j, struct err *e);
/* Errors: SOURCE_CHANGED when the source was written meanwhile. */
CHECKED int convert_check_source(const struct job *j, struct err *e);
CHECKED int convert_choose_context(struct job *j, struct err *e);
/* Every pattern of the options must name a matrix of the source. */
CHECKED int convert_check_forms(struct job *j, struct err *e);

/* job_target.c */
/* A target is asked for. */
bool convert_has_target(const struct job *j);
/* While reading: the smallest form for each matrix, so that plan, room and
 * time are of the least that the conversion can become. */
CHECKED int convert_list_target(struct job *j, struct err *e);
/* After the first plan. Errors: CONVERT when no choice has so few bytes. */
CHECKED int convert_check_target(const struct job *j, struct err *e);
/* Stage choosing: the forms, and the plan that follows from them. Errors: those
 * of target_choose, convert_make_plan, convert_check_fit, convert_check_room.
 */
CHECKED int convert_choose(struct job *j, struct err *e);
/* When the codes are there: the KL that they have, of the same text. Errors:
 * those of target_verify. */
CHECKED int convert_verify_target(struct job *j, struct err *e);
/* j->quant: the form of all matrices, or "mixed" with a target. */
void convert_name_forms(struct job *j);
/* Forms and target for bundle.json. */
void convert_describe_forms(struct job *j);

/* job_plan.c */
/* Bytes of all programs' weights. */
uint64_t convert_weight_bytes(const struct job *j);
/* After the context is chosen. Errors: those of plan_make. */
CHECKED int convert_make_plan(struct job *j, struct err *e);
/* Errors: CONVERT when a chip was named and does not keep all programs in
 * memory. */
CHECKED int convert_check_fit(const struct job *j, struct err *e);
/* Bytes of the bundle, about, and not less. */
uint64_t convert_bundle_bytes(const struct job *j);
/* Bytes that are free where the bundle will be; *known: whether the file system
 * tells. Errors: IO. */
CHECKED int convert_free_bytes(const char *out, bool *known, uint64_t *ret,
                               struct err *e);
/* Is there room for the bundle, beside what is made already? Nothing is checked
 * where the file system does not tell. Errors: NO_SPACE, naming both amounts.
 */
CHECKED int convert_check_room(const struct job *j, struct err *e);
/* The same of `need` bytes for a bundle at `out`, `made` of them there. */
CHECKED int convert_room(const char *out, uint64_t need, uint64_t made,
                         struct err *e);
/* Tell j->progress what each stage will take. */
void convert_costs(struct job *j);
/* From a decoder that is read: forms, context, calibration, plan and costs.
 * Errors: those of what it decides, in that order. */
CHECKED int convert_decide(struct job *j, struct err *e);

/* job_calibrate.c */
/* Will this conversion calibrate? After convert_check_forms. Errors:
 * UNSUPPORTED, INVALID (options that contradict each other). */
CHECKED int convert_choose_calibration(struct job *j, struct err *e);
/* Stage calibrating, if there is one; the source's digest is known. */
CHECKED int convert_calibrate(struct job *j, struct err *e);
/* Remove the calibration's files; its codes are in the packages. */
CHECKED int convert_end_calibration(struct job *j, struct err *e);

/* convert.c: what reshard.c shares */
/* Structure and residency, of the packages of j->b. */
CHECKED int convert_gate_packages(struct job *j, struct err *e);
CHECKED int convert_publish(struct job *j, struct err *e);
void convert_job_fini(struct job *j); /* frees j */
uint64_t convert_now_ms(void);

/* The path of a file in the staging folder. */
CHECKED int convert_staged(const struct job *j, const char *name,
                           char out[PATH_ROOM], struct err *e);

/* job_work.c */
/* Bytes that lie there from an earlier run of the same conversion. */
uint64_t convert_work_bytes(const struct job *j);
/* Find what an earlier run left, or begin. Fills j->work, staging, kept.
 * Errors: those of work_open. */
CHECKED int convert_open_work(struct job *j, struct err *e);
/* What was measured and will be in the weights: work of other values is
 * forgotten. */
CHECKED int convert_bind_work(struct job *j, struct err *e);
/* The source's digest, once it is known: an earlier run must have seen the same.
 * Errors: SOURCE_CHANGED. */
CHECKED int convert_bind_source(struct job *j, struct err *e);
/* The bundle's file `name` as fp16 rows of t, unless it is on record. */
CHECKED int convert_write_table(struct job *j, const struct gguf_tensor *t,
                                const char *name, struct err *e);
/* A file is whole and hashed: its record says so. */
void convert_known(struct job *j, const char *path);
/* The end of a conversion with result rc: what can be continued stays, and *e
 * says what a full disk lacks. */
void convert_close_work(struct job *j, int rc, struct err *e);

/* job_write.c */
CHECKED int convert_write(struct job *j, struct err *e); /* stage writing */
/* The packages of j->plan into staging and j->b. layers, head: of the
 * progress' units. */
CHECKED int convert_write_programs(struct job *j, uint64_t layers,
                                   uint64_t head, struct err *e);
void convert_describe(struct job *j); /* j->b, all but its shards */
