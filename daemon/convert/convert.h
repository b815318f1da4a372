/* convert.h - a model of source/ becomes a bundle.
 *
 * convert_run is the whole conversion, on files: the worker role and
 * `aned convert` both call it. Memory is bounded by a block of tensor rows
 * beyond the mapped source. On failure or cancel nothing is left at `out`. What
 * was made stays beside it (work.h) where the same conversion can go on from
 * there later: after a crash, a cancel, a full disk.
 */
#pragma once

#include "convert/plan.h"
#include "convert/residency/residency.h"
#include "proto/json.h"
#include "proto/limits.h"
#include "source/source.h"

struct convert_options {
    const char *source; /* a path as source_open takes it */
    /* Read these instead of opening the path. NULL: open it. Borrowed. */
    const struct source_files *files;
    const char *bundle; /* reshard.h: made from this one, not from a source */
    /* The new bundle folder; must not exist. NULL: only for a forecast. */
    const char *out;
    const char *name;   /* NULL: from the file */
    const char *quant;  /* NULL = "int8"; the others: quant.h */
    const char *head_quant; /* NULL = quant, but int8 under palettes */
    /* "PATTERN=KIND" over the source's names, '*' is any text; later ones win.
     */
    const char *quant_for[QUANT_RULES_MAX];
    uint32_t n_quant_for;
    /* One of these, in place of quant: each matrix of a layer gets the form
     * that holds the amount at the least cost (target/target.h). */
    uint64_t target_bytes; /* of the programs' weights at most; 0: none */
    double target_kl;      /* of the logits at most, nats; 0: none */
    /* "on" or "off"; NULL: on where a form has 4 or 6 bits. */
    const char *calibrate;
    /* UTF-8 text to calibrate with; NULL: what the model writes. Borrowed. */
    const char *calibration;
    size_t calibration_bytes;
    /* Jinja in place of the source's chat template; NULL: its own. Borrowed. */
    const char *chat_template;
    /* 0 = default: MODEL_CONTEXT_DEFAULT at most; under profile cpu
     * MODEL_CONTEXT_LONG, where memory_bytes allow. */
    uint32_t context;
    uint64_t memory_bytes; /* of the machine; 0: not known */
    const char *shape;     /* shape_parse; NULL = "ranged" */
    const char *kv;        /* NULL = "state" */
    const char *experts;   /* experts_parse; NULL = "auto" */
    const char *output;    /* NULL = "logits"; "argmax" */
    const char *profile;   /* NULL = "law" */
    const char *norm;      /* NULL = chosen by the measured range */
    double residual_scale; /* 0 = chosen by the measured range */
    unsigned threads;      /* 0 = cores */
    /* `out` is only on its way: keep the records of the work, so that the same
     * conversion, begun again, finds `out` and takes it up. */
    bool keep_records;
    /* Gates whose failure the caller takes, with commas between; NULL: none.
     * The conversion is the same: it says what gates_rejecting() finds. */
    const char *accept;
    /* Called often (several times a second); return false to cancel. stage is
     * a stable word: "reading", "measuring", "choosing", "calibrating",
     * "writing", "gating", "publishing". fraction is of the whole conversion, 0
     * to 1, and never falls. May be NULL. */
    bool (*progress)(void *ctx, const char *stage, double fraction);
    /* Called while gating with what a gate found, for those who keep it: first
     * each function's predicted residency, then the summary, as objects of
     * convert/residency/residency.h, then {"quality": quality_json}, taken
     * over. Not 0 ends the conversion. May be NULL. */
    int (*report)(void *ctx, struct json *j, struct err *e);
    void *ctx; /* of both */
};

/* The result of a gate. verdict: "passed", "failed", "not run", "warned". */
struct convert_gate {
    /* "structure", "range", "residency", "quality", "exactness" */
    const char *name;
    const char *verdict;
    char detail[ERR_MSG_MAX];
};

struct convert_result {
    size_t n_gates;
    struct convert_gate gates[5];
    struct gguf_notes notes; /* odd and harmless: warnings of the job */
    char target[ERR_MSG_MAX]; /* what was chosen; "": no target */
    uint64_t bundle_bytes;
    uint64_t shared_bytes; /* of them, with another bundle (reshard.h) */
    uint32_t n_shards, n_heads;
    uint32_t ms;
};

/* All defaults, and this machine's memory. Not in a sandbox. */
void convert_options_init(struct convert_options *o);
/* Errors: TEMPLATE, GGUF_*, ARCH, CONVERT, UNSUPPORTED, RANGE, STRUCTURE,
 * EXISTS, IO, NO_SPACE, CANCELLED, SOURCE_CHANGED, BUSY (the same conversion
 * is being made there by another process). */
CHECKED int convert_run(const struct convert_options *o,
                        struct convert_result *ret, struct err *e);

/* What a conversion would make, of its source's head alone. */
struct convert_forecast {
    char name[MODEL_NAME_MAX + 1];    /* without `out` the file's */
    const char *architecture; /* static */
    char quant[32];           /* quant_text */
    uint32_t labels;          /* of an encoder; else 0 */
    uint32_t vocab;
    bool encoder; /* it reads texts and writes none */
    struct plan_profile profile;
    struct plan_input in; /* owned: plan_input_fini */
    struct plan plan;
    uint64_t source_bytes;
    uint64_t bundle_bytes; /* on the disk, about, and not less */
    /* A target's forms need the measurement: everything here is of the
     * smallest forms. */
    bool smallest;
    uint64_t weight_bytes; /* of all programs */
    struct predict_total residency; /* predicted; of the packages' programs */
    const char *verdict;            /* of it: static */
    double seconds;        /* about, where nothing else runs */
};
/* Nothing is written or made, and no weight is read. With `out` whatever else
 * would stop a conversion before its first byte is an error too: EXISTS,
 * NO_SPACE, CONVERT (a named chip does not keep all programs in memory).
 * Errors: as convert_run. */
CHECKED int convert_forecast(const struct convert_options *o,
                             struct convert_forecast *ret, struct err *e);

/* The convert role: one job, frames on fd 3 (FRAME_CONVERT JSON in, PROGRESS
 * {"stage","fraction"}, CONVERT_REPORT with what `report` is called with, then
 * CONVERT_DONE {"gates":[...],"warnings":[...],"bundle_bytes",...}
 * or ERROR). The job's JSON: {"source","out","name","quant","head_quant",
 * "quant_for":[...],"target_bytes","target_kl","calibrate","calibration" and
 * "chat_template" (paths),
 * "context","shape","kv","experts","profile","norm","residual_scale","threads","keep_records"}; absent ones default. With
 * "kind":"import" the source is a manifest (import/import.h):
 * {"source","out","name","tokenizer","set":[...],"profile", "threads"}; fd 4 is
 * not needed. The model file is fd 4 when fd 4 is open; the other parts of a
 * split one, and the files of a folder, are opened by "source". Enters the sandbox before the first
 * model byte. Returns the exit code. */
int convert_role(int argc, char **argv);
