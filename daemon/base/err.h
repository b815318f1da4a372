/* err.h - the error vocabulary of aned.
 *
 * Functions return int: 0 is success, a negative number is an error code. Codes
 * of libuv are used as they are (UV_E* are -errno on Unix, plus -3000.. and
 * -4095), so a function may return a libuv result or -errno. aned's own codes
 * start at -20000. One row of ERR_MAP has a code's wire name, HTTP status, exit
 * code and text; there is no second table.
 *
 * Wire names are stable: scripts match on them.
 */
#pragma once

#include "base/base.h"

/* sysexits.h values that aned uses */
enum {
    EXIT_USAGE = 64,
    EXIT_DATA = 65,
    EXIT_NOINPUT = 66,
    EXIT_UNAVAILABLE = 69,
    EXIT_BUG = 70,
    EXIT_CANTCREAT = 73,
    EXIT_TEMPFAIL = 75,
    EXIT_CONFIG = 78,
};

/*     name               value  http exit wire name                 text */
#define ERR_MAP(XX)                                                          \
    XX(INTERNAL, -20000, 500, 70, "internal", "a bug in aned")               \
    XX(USAGE, -20001, 400, 64, "usage", "the command line is wrong")         \
    XX(TOO_BIG, -20002, 413, 65, "too_big", "larger than the limit")         \
    XX(NO_ROUTE, -20003, 404, 69, "no_route", "no such path")                \
    XX(BAD_METHOD, -20004, 405, 69, "bad_method",                            \
       "path exists, method does not")                                       \
    XX(TIMEOUT, -20005, 408, 75, "timeout", "peer too slow")                 \
    XX(NOT_FOUND, -20006, 404, 66, "not_found", "no such thing")             \
    XX(INVALID, -20007, 400, 65, "invalid", "a value is not acceptable")     \
    XX(UNSUPPORTED, -20008, 400, 65, "unsupported", "aned cannot do this")   \
    XX(BUSY, -20009, 503, 75, "busy", "the queue is full")                   \
    XX(CANCELLED, -20010, 499, 75, "cancelled", "cancelled")                 \
    XX(EXISTS, -20011, 409, 73, "exists", "already there")                   \
    XX(IO, -20012, 500, 73, "io", "a file could not be read or written")     \
    XX(NO_SPACE, -20013, 507, 73, "no_space", "the disk is full")            \
    XX(CONFIG, -20014, 503, 78, "config", "the configuration is wrong")      \
    XX(UNAVAILABLE, -20015, 503, 69, "unavailable", "not there right now")   \
    XX(CONFLICT, -20016, 409, 75, "conflict", "not in this state")           \
    XX(NOMEM, -20017, 503, 75, "no_memory", "not enough memory")             \
    XX(JSON, -20018, 400, 65, "json.invalid", "not valid JSON")              \
    XX(NPY, -20019, 400, 65, "npy.invalid", "not a .npy array aned reads")   \
    XX(FRAME, -20020, 500, 70, "frame.malformed", "a malformed frame")       \
    XX(CONTEXT, -20021, 400, 65, "context_length_exceeded",                  \
       "the request exceeds the available context size")                     \
    XX(STORE, -20022, 500, 70, "store", "database failure")                  \
    XX(HTTP, -20023, 400, 65, "http.malformed", "a malformed HTTP message")  \
    XX(MODEL_FAILED, -20024, 503, 69, "model.failed",                        \
       "the model's engine keeps failing")                                   \
    XX(ENGINE_LOST, -20025, 503, 75, "engine.lost",                          \
       "the engine process ended")                                           \
    XX(REJECTED, -20026, 409, 65, "model.rejected",                          \
       "the model did not pass its gates")                                   \
    XX(INTERRUPTED, -20027, 503, 75, "interrupted", "the daemon stopped")    \
    XX(MODEL_NOT_FOUND, -20028, 404, 66, "model_not_found",                  \
       "there is no such model")                                             \
    XX(STARTING, -20029, 503, 75, "starting",                                \
       "the daemon reads its store; ask again")                              \
    XX(UNAUTHORIZED, -20030, 401, 77, "unauthorized", "a key is needed")     \
    XX(FORBIDDEN, -20031, 403, 77, "forbidden", "not allowed")               \
    /* http/: what a route never sees */                                     \
    XX(HTTP_URI, -20050, 414, 65, "http.uri_too_long",                       \
       "the request target is too long")                                     \
    XX(HTTP_HEADERS, -20051, 431, 65, "http.headers_too_large",              \
       "the request headers are too large or too many")                      \
    XX(HTTP_EXPECT, -20052, 417, 65, "http.expectation",                     \
       "an expectation aned does not know")                                  \
    XX(HTTP_METHOD, -20053, 501, 65, "http.method",                          \
       "a method aned does not know")                                        \
    XX(HTTP_VERSION, -20054, 505, 65, "http.version",                        \
       "an HTTP version aned does not speak")                                \
    XX(HTTP_ENCODING, -20055, 415, 65, "http.content_encoding",              \
       "a compressed body; send it as it is")                                \
    XX(HTTP_TYPE, -20056, 415, 65, "http.content_type",                      \
       "a body of a type that aned does not read")                           \
    /* source/: files other people wrote */                                  \
    XX(SOURCE_CHANGED, -20100, 409, 65, "source.changed",                    \
       "the source file changed while it was read")                          \
    XX(GGUF_MAGIC, -20101, 400, 65, "gguf.not_gguf", "not a GGUF file")      \
    XX(GGUF_VERSION, -20102, 400, 65, "gguf.version",                        \
       "a GGUF version aned does not read")                                  \
    XX(GGUF_TRUNCATED, -20103, 400, 65, "gguf.truncated",                    \
       "the file ends too early")                                            \
    XX(GGUF_COUNT, -20104, 400, 65, "gguf.count",                            \
       "a count is larger than the file can hold")                           \
    XX(GGUF_KEY, -20105, 400, 65, "gguf.key",                                \
       "a metadata key is empty, too long or given twice")                   \
    XX(GGUF_VALUE, -20106, 400, 65, "gguf.value",                            \
       "a metadata value has the wrong type, range or length")               \
    XX(GGUF_ALIGNMENT, -20107, 400, 65, "gguf.alignment",                    \
       "the alignment is not a power of two")                                \
    XX(GGUF_TENSOR, -20108, 400, 65, "gguf.tensor",                          \
       "a tensor's name, shape or type is not acceptable")                   \
    XX(GGUF_OFFSET, -20109, 400, 65, "gguf.offset_out_of_file",              \
       "tensor data lies outside the file")                                  \
    XX(GGUF_ENDIAN, -20110, 400, 65, "gguf.big_endian",                      \
       "a big-endian GGUF; aned reads little-endian ones")                   \
    XX(GGUF_MISSING, -20111, 400, 65, "gguf.missing",                        \
       "a needed key or tensor is absent")                                   \
    XX(GGUF_VOCAB, -20112, 400, 65, "gguf.vocab",                            \
       "the vocabulary is not sound")                                        \
    XX(GGUF_SPLIT, -20113, 400, 65, "gguf.split",                            \
       "the parts of a split model do not belong together")                  \
    XX(SAFETENSORS, -20114, 400, 65, "safetensors.invalid",                  \
       "the safetensors file is not sound")                                  \
    XX(MODEL_CONFIG, -20115, 400, 65, "source.config",                       \
       "a file beside the weights says what aned does not understand")       \
    XX(ONNX, -20130, 400, 65, "onnx.invalid",                                \
       "not an ONNX model, or one that is not sound")                        \
    XX(ONNX_DATA, -20131, 400, 65, "onnx.external_data",                     \
       "external data of an ONNX model is not acceptable")                   \
    XX(ONNX_GRAPH, -20132, 400, 65, "onnx.not_understood",                   \
       "an ONNX graph that is no decoder aned knows")                        \
    /* mil/: Core ML packages */                                             \
    XX(PKG_MANIFEST, -20200, 400, 65, "package.manifest",                    \
       "Manifest.json is not acceptable")                                    \
    XX(PKG_MISSING, -20201, 400, 66, "package.missing_file",                 \
       "a file of the package is absent")                                    \
    XX(PKG_PROTOBUF, -20202, 400, 65, "package.protobuf",                    \
       "model.mlmodel is not a Core ML specification")                       \
    XX(PKG_UNSUPPORTED, -20203, 400, 65, "package.unsupported",              \
       "not an ML Program package")                                          \
    XX(MIL_INVALID, -20204, 400, 65, "mil.invalid",                          \
       "the program is not sound")                                           \
    XX(MIL_OP, -20205, 400, 65, "mil.op", "an operation aned does not run")  \
    XX(MIL_BLOB, -20206, 400, 65, "mil.blob", "a weight blob is not sound")  \
    XX(MIL_SHAPE, -20207, 400, 65, "mil.shape", "shapes do not fit")         \
    XX(MIL_INPUT, -20208, 400, 65, "mil.input",                              \
       "an input is missing or does not fit")                                \
    /* engine/ */                                                            \
    XX(STATE, -20250, 500, 65, "state.invalid",                              \
       "a saved state is damaged, or of something else")                     \
    XX(BACKEND, -20251, 500, 69, "backend.failed",                           \
       "the system could not run the model")                                 \
    /* model/: bundles and text */                                           \
    XX(BUNDLE, -20300, 400, 65, "bundle.invalid", "the bundle is not sound") \
    XX(TOKENIZER, -20301, 400, 65, "tokenizer.unsupported",                  \
       "a tokenizer aned does not have")                                     \
    XX(TEMPLATE, -20302, 400, 65, "template.unsupported",                    \
       "a chat template aned does not know")                                 \
    XX(TEMPLATE_INPUT, -20303, 400, 65, "template.input",                    \
       "these messages do not fit the model's chat template")                \
    /* convert/ */                                                           \
    XX(ARCH, -20400, 400, 65, "convert.architecture",                        \
       "an architecture aned does not convert")                              \
    XX(CONVERT, -20401, 400, 65, "convert.source",                           \
       "the source model is not acceptable")                                 \
    XX(RANGE, -20402, 422, 65, "gate.range", "values leave the fp16 range")  \
    XX(STRUCTURE, -20403, 422, 65, "gate.structure",                         \
       "the package is not sound")                                           \
    XX(WORKER_LOST, -20404, 500, 70, "convert.worker_lost",                  \
       "the converter process ended before its job")

enum err_code {
#define XX(name, value, http, exit, wire, text) ERR_##name = (value),
    ERR_MAP(XX)
#undef XX
};

#define ERR_MSG_MAX 400 /* bytes, with the NUL; longer text is cut */

/* Detail for a person. Filled only on failure; `msg` never holds a peer's bytes
 * unescaped. It is on the caller's stack: no allocation on the error path. */
struct err {
    int code;
    char msg[ERR_MSG_MAX];
};

/* Fill *e (may be NULL) and return code, so that callers write
 * `return err_set(e, ERR_STORE, "...")`. Control bytes and bytes that are not
 * ASCII are replaced by '?' in the finished message. */
int err_set(struct err *e, int code, const char *fmt, ...) PRINTF_LIKE(3, 4);

/* The same for a failed system call: code from errno_value (ENOSPC, EDQUOT ->
 * NO_SPACE, ENOENT -> NOT_FOUND, ENOMEM -> NOMEM, else IO), text
 * "what: strerror". */
int err_errno(struct err *e, int errno_value, const char *what);

/* Put "prefix: " in front of the message already in *e, whose code becomes
 * `code`, the result of the call that failed. e may be NULL. Returns code. */
int err_prefix(struct err *e, int code, const char *fmt, ...)
    PRINTF_LIKE(3, 4);

/* Stable wire name such as "gguf.version"; unknown codes are "internal". */
const char *err_name(int code);

/* The row's one-line text. */
const char *err_text(int code);

/* HTTP status; 500 for codes that are not in ERR_MAP. */
int err_http(int code);

/* sysexits value; 70 for codes that are not in ERR_MAP. */
int err_exit(int code);

/* The code with this wire name; ERR_INTERNAL when there is none. */
int err_by_name(const char *wire);

/* Print "wire.name: msg" on stderr; returns the exit code. For main.c and
 * the command line only. */
int err_print(const struct err *e);

/* --- chains of calls that stop at the first error (NOTES, decision 53) --- */

/* Run op. When its result is not 0, keep it in rc and go to `out` (BIND's
 * CHECK). For a function that has to free something at its label `out`. */
#define CHECK(op)      \
    do {               \
        rc = (op);     \
        if (rc != 0) { \
            goto out;  \
        }              \
    } while (0)

/* Run op. When its result is not 0, return it (BIND's RETERR). For a function
 * that has nothing to free. */
#define RETERR(op)       \
    do {                 \
        int err_ = (op); \
        if (err_ != 0) { \
            return err_; \
        }                \
    } while (0)
