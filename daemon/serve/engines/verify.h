/* verify.h - checks that a model's files are still those that were published.
 *
 * A child (`aned verify-worker`) hashes them, one model at a time:
 *   - after a load, at low priority, while the model serves; 1 MiB a second
 *     while something is generated;
 *   - before the engine starts, if the daemon's last run did not end cleanly: a
 *     power cut may leave zeros in files whose size and times are right;
 *   - when a client asks.
 * A model that was hashed is remembered by its stamp (bundle_stamp). A daemon
 * that ends cleanly writes the stamps to HOME/verified.json, and the next start
 * reads and removes that file; so after a crash nothing is known. Then the
 * manifest is also compared with the rows of the store.
 *
 * A model whose files differ is unloaded and marked failed; its reason says
 * what to convert again. An explicit load hashes it once more.
 *
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
    bool asked;             /* a client asked: hash whatever the stamp says */
    unsigned lost;          /* children that ended without an answer */
};

/* Begin to verify the models of ms, which are those found on disk. Blocking;
 * call it before the loop runs. Without this call nothing is ever hashed. */
void verify_start(struct models *ms);
/* End the child and start no other; what is queued stays queued. */
void verify_stop(struct models *ms);
/* After the loop, at a clean end of the daemon: write verified.json. */
void verify_end(struct models *ms);

/* Call when m's engine came up, or could not load. */
void verify_loaded(struct model *m);
/* Call before m's engine starts. True: m's files are hashed first, and
 * model_checked() is called later, never from inside. */
bool verify_holds(struct model *m);
/* Hash now. Errors: BUNDLE (there is no manifest to compare with). */
CHECKED int verify_ask(struct model *m, struct err *e);
/* Call when the first generation of all models begins, and when the last one
 * ended: low priority alone does not keep hashing from delaying a step, for the
 * engine's threads yield while they wait for each other. */
void verify_busy(struct models *ms);
/* Call before m is freed. */
void verify_forget(struct model *m);
/* Put {"state", "progress", "checked_ms"} as member "verification" into o. */
void verify_put(struct json *o, const struct model *m);
