/* probe_impl.h - shared by probe_run.c (children), probe_judge.c (what their
 * results come to), probe_record.c (the record of that) and predicted.c. */
#pragma once

#include "serve/child.h"
#include "serve/probe/probe_run.h"

/* Where a child was lost. */
struct probe_loss {
    char package[256], function[128], step[16];
    uint32_t width;
    char how[96]; /* "ended by signal 9" */
};

/* What a probe has found out. */
struct probe_found {
    struct json *functions, *packages; /* arrays */
    bool whole;                        /* all packages were measured */
    size_t n_ops;
    struct store_residency_op *ops; /* owned */
    size_t n_losses;
    struct probe_loss losses[PROBE_LOST_MAX];
    bool margin_known;
    double margin; /* of logits */
};

/* Widths that agree, of all packages of a kind. */
struct probe_agreement {
    struct msg_widths best; /* those that the model runs as; n 0: none */
    struct msg_widths all;  /* those that are right */
};

/* kind: "layers" or "head". */
void probe_agree(const struct probe_found *f, const char *kind,
                 struct probe_agreement *ret);

#define PROBE_REASONS 16u

struct probe_verdict {
    const char *word;
    size_t n; /* the gravest first */
    char reason[PROBE_REASONS][ERR_MSG_MAX];
};

void probe_judge(const struct probe_found *f, struct probe_verdict *ret);

/* probe_record.c: a string member; "" when it is none. */
void probe_copy(char *out, size_t size, const struct json *j, const char *key);
/* Append a function's operations to a list that is owned, as many as a report
 * has room for. */
void probe_take_ops(struct store_residency_op **list, size_t *n_list,
                    const struct json *function, const struct json *ops);
/* j's text, owned; j is freed. Longer than a record may be: "{}". */
char *probe_text_of(struct json *j);
/* Members `key` and "lost" of o. */
void probe_put_widths(struct json *o, const char *key,
                      const struct msg_widths *w);
void probe_put_losses(struct json *o, const struct probe_found *f);
/* *ret is owned, but for its operations, which are f's. */
void probe_record_make(const struct probe_found *f, const char *backend,
                       uint64_t took_ms, struct store_residency *ret);
void probe_record_fini(struct store_residency *v); /* not the operations */
