/* bundle_impl.h - what the files of bundle.h share: the names of the manifest's
 * plain fields, and the checks that hold for a manifest read or written.
 */
#pragma once

#include "model/bundle.h"
#include "proto/json.h"

#define BUNDLE_MANIFEST "bundle.json"
#define BUNDLE_PATH_MAX 512u /* bytes, with the NUL */
#define BUNDLE_TEXT_MAX 256u /* bytes of a name in the manifest */

/* Members of bundle.json that are one field of struct bundle. */
struct bundle_u32 {
    const char *key;
    size_t at; /* offset in struct bundle */
    uint32_t lo, hi;
};
struct bundle_f32 {
    const char *key;
    size_t at;
    double lo, hi;
};
struct bundle_str {
    const char *key;
    size_t at;
    bool number; /* part of the fingerprint */
};
#define BUNDLE_N_U32 9
#define BUNDLE_N_F32 3
#define BUNDLE_N_STR 9
extern const struct bundle_u32 bundle_u32s[BUNDLE_N_U32];
extern const struct bundle_f32 bundle_f32s[BUNDLE_N_F32];
extern const struct bundle_str bundle_strs[BUNDLE_N_STR];

/* The field at offset `at` of b. */
static inline void *bundle_at(struct bundle *b, size_t at)
{
    return (char *)b + at;
}
static inline uint32_t bundle_get_u32(const struct bundle *b, size_t at)
{
    return *(const uint32_t *)(const void *)((const char *)b + at);
}
static inline float bundle_get_f32(const struct bundle *b, size_t at)
{
    return *(const float *)(const void *)((const char *)b + at);
}
static inline const char *bundle_get_str(const struct bundle *b, size_t at)
{
    return *(const char *const *)(const void *)((const char *)b + at);
}

/* --- bundle_layers.c: struct layer and the manifest --- */

/* A layer that has nothing but the bundle's plain numbers (format 1). */
void bundle_plain_layer(const struct bundle *b, uint32_t i, bool local,
                        struct layer *ret);
/* a: "layers", an array of n_layers objects; out has room for them. Errors:
 * INVALID. */
CHECKED int bundle_read_layers(const struct bundle *b, const struct json *a,
                               struct layer *out, struct err *e);
void bundle_put_layers(struct json *j, const struct bundle *b);
/* Heads, kinds and references of all layers fit. Errors: BUNDLE. */
CHECKED int bundle_check_layers(const struct bundle *b, struct err *e);
void bundle_hash_layers(struct sha256 *h, const struct bundle *b);
/* One line of what the fingerprint is made of. */
void bundle_hash_text(struct sha256 *h, const char *fmt, ...)
    PRINTF_LIKE(2, 3);

/* --- bundle_forms.c: forms of tensors and their target; both may be absent ---
 */
void bundle_put_forms(struct json *j, const struct bundle *b);
/* j: the manifest. Errors: INVALID, NOMEM. */
CHECKED int bundle_read_forms(struct bundle *b, const struct json *j,
                              struct err *e);

/* Member `key`, 64 hexadecimal digits. Errors: INVALID. */
CHECKED int bundle_want_sha256(const struct json *j, const char *key,
                               char out[SHA256_HEX], struct err *e);

/* --- bundle_ports.c: keys and values from shard to shard --- */

/* j: a shard. Absent lists are empty. Errors: INVALID, NOMEM. */
CHECKED int bundle_read_ports(struct bundle *b, const struct json *j,
                              struct bundle_shard *s, struct err *e);
void bundle_put_ports(struct json *j, const struct bundle_shard *s);
/* What is taken is given by an earlier shard; lists are what layers read.
 * Errors: BUNDLE, naming shard and port. */
CHECKED int bundle_check_ports(const struct bundle *b, struct err *e);
void bundle_hash_ports(struct sha256 *h, const struct bundle_shard *s);

/* --- bundle_experts.c: packages of experts --- */

/* j: the manifest. Absent: there are none. Errors: INVALID, NOMEM. */
CHECKED int bundle_read_groups(struct bundle *b, const struct json *j,
                               struct err *e);
void bundle_put_groups(struct json *j, const struct bundle *b);
/* Each expert of each sparse layer has a function for every T of the shards, once,
 * and nothing else has one. Errors: BUNDLE, naming layer, package and expert. */
CHECKED int bundle_check_groups(const struct bundle *b, struct err *e);
void bundle_hash_groups(struct sha256 *h, const struct bundle *b);

/* --- bundle_check.c --- */

/* The package is a path with files in the list. Errors: BUNDLE. */
CHECKED int bundle_check_package(const struct bundle *b, const char *path,
                                 struct err *e);

/* Member `key`, not empty and shorter than max: a copy in the bundle's arena.
 * Errors: INVALID, NOMEM. */
CHECKED int bundle_want_str(struct bundle *b, const struct json *j,
                            const char *key, size_t max, const char **ret,
                            struct err *e);

/* --- bundle_labels.c: the kind of a model, and an encoder's labels --- */

/* j: the manifest. Errors: INVALID, NOMEM. */
CHECKED int bundle_read_labels(struct bundle *b, const struct json *j,
                               struct err *e);
void bundle_put_labels(struct json *j, const struct bundle *b);
/* Errors: BUNDLE. */
CHECKED int bundle_check_labels(const struct bundle *b, struct err *e);

/* --- bundle_calibration.c --- */

/* j: "calibration", or NULL. Errors: INVALID. */
CHECKED int bundle_read_calibration(struct bundle *b, const struct json *j,
                                    struct err *e);
void bundle_put_calibration(struct json *j, const struct bundle *b);

/* Relative, '/' separated, no empty, "." or ".." component. */
bool bundle_path_ok(const char *path);

/* Check a whole manifest whose fields are each in range: shards and heads cover
 * the layers and the vocabulary in order without gaps, every path is a listed
 * file (or a package with listed files), sums agree. Errors: BUNDLE. */
CHECKED int bundle_check(const struct bundle *b, struct err *e);

/* Check that every listed file is a regular file inside dir, reached without
 * symbolic links, of the recorded size. Errors: BUNDLE. */
CHECKED int bundle_check_files(const struct bundle *b, const char *dir,
                               struct err *e);

/* Full path of a listed file. Errors: BUNDLE (too long). */
CHECKED int bundle_file_path(const char *dir, const char *path,
                             char out[static BUNDLE_PATH_MAX + 1024],
                             struct err *e);

/* Hash of the architecture's numbers and the files' hashes. */
void bundle_fingerprint(const struct bundle *b, char out[SHA256_HEX]);
