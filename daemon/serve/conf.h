/* conf.h - aned.conf: one row per option; parser, --print-config,
 * conf/aned.conf (its output, a test compares) and the struct come from it.
 *
 * The file is INI: [section], key = value, comments after ; or # at the start
 * of a line. An unknown section or key, a value out of range and a key given
 * twice are errors with file:line. Read at start, and again by a reload. Only
 * [aliases] has keys that are the user's own (serve/aliases.h).
 */
#pragma once

#include "base/err.h"
#include "proto/limits.h"
#include "serve/aliases.h"

#define CONF_STR_MAX 512

/* When a reload (SIGHUP, serve/reload.h) makes a changed value count. */
enum conf_when {
    CONF_NOW,  /* at once */
    CONF_LOAD, /* for models that are loaded afterwards */
    CONF_START /* only after a restart */
};

/*  section      key            when  default min max help
 * when: a conf_when without its CONF_. WORD: default, the allowed words */
#define CONF_MAP(INT, STR, WORD)                                               \
    STR(server, socket, START, "",                                             \
        "Path of the Unix socket. Empty: $ANED_SOCKET, else\n"                 \
        "$XDG_RUNTIME_DIR/aned/aned.sock, else HOME/run/aned.sock.")           \
    WORD(server, log, NOW, "info", "error warn info debug",                    \
         "Least important log line that is written to stderr.")                \
    INT(server, drain_ms, NOW, 8000, 0, 600000,                                \
        "Milliseconds that open requests get to finish after SIGTERM.")        \
    INT(http, keepalive_ms, NOW, HTTP_KEEPALIVE_MS, 0, 3600000,                \
        "Milliseconds an event stream may be silent; then a comment is "       \
        "sent.\n"                                                              \
        "0: never.")                                                           \
    INT(http, stall_ms, NOW, HTTP_STALL_MS, 100, 3600000,                      \
        "Milliseconds after which a client that reads nothing is cut off.")    \
    INT(http, resume_s, NOW, RESUME_S, 1, 86400,                               \
        "Seconds that a resumable stream waits for its client to come back.")  \
    STR(http, default_model, NOW, "",                                          \
        "Model of requests that name none. Empty: the only one there is.")     \
    STR(http, listen, START, "",                                               \
        "Loopback addresses to listen on over TCP too, with commas or\n"       \
        "blanks between: 127.0.0.1:11435, [::1]:11435, localhost:11435.\n"     \
        "Port 0: any free one. Empty: none. Requests need the key that\n"      \
        "`anectl key` prints.")                                                \
    WORD(http, allow_unauthenticated, START, "no", "no yes",                   \
         "yes: no key is needed over TCP. Every user and program of the\n"     \
         "machine may then use, convert and delete models.")                   \
    STR(http, cors_origins, START, "",                                         \
        "Origins of web pages that may ask over TCP, as browsers send\n"       \
        "them, with commas or blanks between: http://localhost:3000.\n"        \
        "Empty: none. The key is needed all the same.")                        \
    INT(engine, threads, LOAD, 0, 0, ENGINE_THREADS_MAX,                       \
        "Threads of one engine. 0: one for each core; on a Mac, for each\n"    \
        "performance core.")                                                   \
    INT(engine, prefill_chunk, LOAD, 0, 0, ENGINE_CHUNK_MAX,                   \
        "Prompt tokens in one step at most. 0: as many as the engine takes;\n" \
        "the measured step time bounds it in any case. Never changes an\n"     \
        "output.")                                                             \
    INT(engine, step_ms, NOW, ENGINE_STEP_MS, 100, 3600000,                    \
        "Milliseconds one step may take. An engine that is not back by then\n" \
        "is killed and replaced; the streams go on.")                          \
    WORD(engine, backend, START, "cpu", "cpu interpreter coreml",              \
         "What executes the shards.")                                          \
    INT(engine, margin, LOAD, 0, 0, ENGINE_MARGIN_MAX,                         \
        "Thousandths of a logit. 0: drafts, chunks and restarts never\n"       \
        "change a token. More, for a device on which that costs too much:\n"   \
        "all widths are used, and a greedy token is drawn alone where the\n"   \
        "two best logits are closer than this. Listings say not exact.\n"       \
        "The CPU is exact in any case.")                                       \
    INT(engine, keep_alive_s, NOW, 3600, -1, 31536000,                         \
        "Seconds a model stays in memory after its last use, where the\n"      \
        "request does not say. -1: until memory is needed.")                   \
    STR(engine, preload, START, "",                                            \
        "Models loaded at the start, names with spaces between. They are\n"    \
        "pinned: no keep-alive ends, and they leave last when memory is\n"     \
        "needed.")                                                             \
    STR(engine, program, START, "",                                            \
        "For tests: start this program as the engine instead of aned itself.") \
    INT(speculation, max_draft, NOW, 8, 0, ENGINE_DRAFTS_MAX,                  \
        "Drafted tokens of one choice in a step at most; 0 turns "             \
        "speculation\n"                                                        \
        "off. Fewer are drafted where measured acceptance and step time say\n" \
        "that more do not pay. Never changes an output.")                      \
    INT(speculation, ngram_min, LOAD, 3, 1, DRAFT_NGRAM_MAX,                   \
        "Tokens that must have stood in the conversation before for what\n"    \
        "followed them to be drafted.")                                        \
    INT(speculation, share_tokens, LOAD, 0, 0, DRAFT_SHARED_MAX,               \
        "Tokens of ended conversations that one model keeps of each client\n"  \
        "process, to draft its next ones from: never another's. 0: none; a\n"  \
        "conversation drafts from itself only. Never changes an output.")      \
    INT(limits, queue, LOAD, QUEUE_MAX, 1, 4096,                               \
        "Choices waiting for one model; more are answered 503: the new one,\n" \
        "or the youngest of a later class that has not begun.")                \
    INT(limits, streams, LOAD, STREAMS_MAX, 1, STREAMS_MAX,                    \
        "Choices generated at the same time by one engine.")                   \
    INT(limits, memory_mib, NOW, 0, 0, 16777216,                               \
        "MiB for weights, states and scratch of all engines. 0: three\n"       \
        "quarters of the machine's memory.")                                   \
    STR(limits, pressure_file, START, "",                                      \
        "For tests: read this file for signs of memory pressure, written\n"    \
        "like /proc/pressure/memory, instead of asking the system.")           \
    INT(limits, jobs_queued, NOW, JOBS_QUEUED_MAX, 1, 1024,                    \
        "Conversion jobs waiting; more are answered 503.")                     \
    INT(cache, sessions, LOAD, SESSIONS_MAX, 1, ENGINE_SEQS_MAX,               \
        "Sequences of one engine, running and warm together.")                 \
    INT(cache, state_mib, LOAD, 2048, 16, 1048576,                             \
        "MiB for those sequences' states. On the CPU one takes what it\n"      \
        "uses; elsewhere each takes what a full one does, and fewer are kept\n"\
        "when they are big.")                                                  \
    INT(cache, models, NOW, 2, 1, 64,                                          \
        "Models loaded at the same time; the idle one used least recently "    \
        "is\n"                                                                 \
        "unloaded for another.")                                               \
    INT(cache, disk_mib, NOW, 2048, 0, 1048576,                                \
        "MiB of saved session states under HOME/cache/states; those used\n"    \
        "least recently are removed for others. An eighth is left for what\n"  \
        "is written while others are removed. 0: nothing is saved.")           \
    INT(cache, write_mib_per_hour, NOW, 2048, 0, 1048576,                      \
        "MiB of states written in any hour at most, for the sake of the\n"     \
        "disk. 0: nothing is saved, what is there is still read.")             \
    INT(cache, disk_tokens, NOW, 256, 64, MODEL_CONTEXT_MAX,                   \
        "A session with fewer tokens is not saved, and a saved one not read\n" \
        "for a smaller gain. Whole blocks of 64 are saved.")

#define CONF_F_INT(section, key, when, def, min, max, help) \
    int64_t section##_##key;
#define CONF_F_STR(section, key, when, def, help) \
    char section##_##key[CONF_STR_MAX];
#define CONF_F_WORD(section, key, when, def, words, help) \
    char section##_##key[CONF_STR_MAX];
struct conf {
    CONF_MAP(CONF_F_INT, CONF_F_STR, CONF_F_WORD)
    struct aliases aliases; /* [aliases]: a reload changes them at once */
};
#undef CONF_F_INT
#undef CONF_F_STR
#undef CONF_F_WORD

void conf_init(struct conf *c); /* defaults */
/* Read path over what c holds. All or nothing. Errors: CONFIG with file:line;
 * NOT_FOUND. */
CHECKED int conf_read(struct conf *c, const char *path, struct err *e);
/* The documented file with every default, as conf/aned.conf. */
void conf_print(FILE *to);

/* Compare *is, which was just read, with *was, which is in use. Values that
 * differ and need no restart are copied to *was; fn (may be NULL) is called
 * with the name, "section.key", of each that differs; "aliases" of all those. */
typedef void conf_change_fn(void *ctx, const char *name, enum conf_when when);
void conf_take(struct conf *was, const struct conf *is, conf_change_fn *fn,
               void *ctx);
