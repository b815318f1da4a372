/* job.h - one conversion, shared by convert.c (the stages), job_options.c
 * (options and source), job_plan.c (what it will be: programs, room, time) and
 * job_write.c (the bundle's files and description). */
#pragma once

#include "convert/convert.h"
#include "convert/digest.h"
#include "convert/emit.h"
#include "convert/plan_input.h"
#include "convert/reference/reference.h"
#include "convert/residency/residency.h"
#include "model/bundle.h"

#define PATH_ROOM   2048
#define CALIBRATION_TOKENS 64u /* of the range: the beginning of quality_text */
#define PARENT_ROOM (PATH_ROOM - 32)

#define SHARD_NAME "layers_%02u_%02u.mlpackage"
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
    struct plan_input in; /* what was divided */
    struct plan plan;
    struct range range;
    struct range_choice choice;
    struct quant_choice forms; /* of the matrices */
    char quant[QUANT_TEXT_MAX];
    struct emit emit;
    struct predict_total residency;
    struct bundle b;
    char name[MODEL_NAME_MAX + 1];
    char source_name[256];
    char out[PARENT_ROOM];   /* without slashes at its end */
    char staging[PATH_ROOM]; /* "" until it exists */
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

/* job_plan.c */
/* After the context is chosen. Errors: those of plan_make. */
CHECKED int convert_make_plan(struct job *j, struct err *e);
/* Errors: CONVERT when a chip was named and does not keep all programs in
 * memory. */
CHECKED int convert_check_fit(const struct job *j, struct err *e);
/* Bytes of the bundle, about, and not less. */
uint64_t convert_bundle_bytes(const struct job *j);
/* Is there room for the bundle? Nothing is checked where the file system does
 * not tell. Errors: NO_SPACE, naming both amounts. */
CHECKED int convert_check_room(const struct job *j, struct err *e);
/* Tell j->progress what each stage will take. */
void convert_costs(struct job *j);

/* convert.c: what reshard.c shares */
/* A new folder beside j->out, which convert_job_fini removes. */
CHECKED int convert_make_staging(struct job *j, struct err *e);
/* Structure and residency, of the packages of j->b. */
CHECKED int convert_gate_packages(struct job *j, struct err *e);
CHECKED int convert_publish(struct job *j, struct err *e);
void convert_job_fini(struct job *j); /* frees j */
uint64_t convert_now_ms(void);

/* The path of a file in the staging folder. */
CHECKED int convert_staged(const struct job *j, const char *name,
                           char out[PATH_ROOM], struct err *e);

/* job_write.c */
CHECKED int convert_write(struct job *j, struct err *e); /* stage writing */
/* The packages of j->plan into staging and j->b. layers, head: of the
 * progress' units. */
CHECKED int convert_write_programs(struct job *j, uint64_t layers,
                                   uint64_t head, struct err *e);
void convert_describe(struct job *j); /* j->b, all but its shards */
