/* verify.h - are a model's files still those that were published?
 *
 * A child (`aned verify-worker`) hashes them, one model at a time:
 *   - after a load, gently, while the model serves;
 *   - before the engine starts, when the daemon did not end cleanly before:
 *     a power cut may leave zeros where metadata says all is well;
 *   - when somebody asks.
 * What was hashed is remembered by its stamp (bundle_stamp), over a clean end
 * in HOME/verified.json: that file is taken away at the start, so after a crash
 * nothing is known. Then the manifest is compared with the rows of the store.
 *
 * A model whose files differ is unloaded and marked failed; its reason says
 * what to convert again. An explicit load hashes it once more.
 * Thread: the loop thread.
 */
#pragma once

#include "base/hash.h"

struct model;
struct models;
struct json;

enum verify_state {
    VERIFY_UNKNOWN,
    VERIFY_QUEUED,
    VERIFY_RUNNING,
    VERIFY_SOUND,
    VERIFY_DAMAGED
};
const char *verify_state_name(enum verify_state s);

struct verify { /* in struct model */
    enum verify_state state;
    double progress;
    char stamp[SHA256_HEX]; /* of the files when they were sound; "" */
    int64_t checked_ms;     /* Unix time of that; 0 = never */
    bool first;             /* hash before the next engine starts */
    bool asked;             /* hash whatever the stamp says */
    unsigned lost;          /* children that ended without an answer */
};

/* Verify the models of ms from now on, which are those found on disk. Blocking,
 * before the loop runs. Without this call nothing is ever hashed. */
void verify_start(struct models *ms);
/* No child any more; what is queued stays so. */
void verify_stop(struct models *ms);
/* After the loop: write down what is known, for the daemon ends in order. */
void verify_end(struct models *ms);

/* m's engine came up, or could not load. */
void verify_loaded(struct model *m);
/* m is about to get an engine. True: its files are hashed first, and
 * model_checked() comes later, never from inside. */
bool verify_holds(struct model *m);
/* Hash now. Errors: BUNDLE (there is no manifest to compare with). */
CHECKED int verify_ask(struct model *m, struct err *e);
/* m goes away. */
void verify_forget(struct model *m);
/* {"state", "progress", "checked_ms"} as member "verification" of o. */
void verify_put(struct json *o, const struct model *m);
