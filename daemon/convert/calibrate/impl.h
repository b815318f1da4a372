/* impl.h - shared by the files of calibrate.h. */
#pragma once

#include "base/file.h"
#include "convert/calibrate/calibrate.h"
#include "convert/reference/walk.h"

#define PATH_ROOM 2304

/* --- groups.c: which matrices read the same, and what that costs --- */

struct group {
    enum reference_block block;
    bool last;               /* the block's last product */
    enum arch_slot slots[3]; /* SLOT_COUNT: none */
};
extern const struct group groups[]; /* of a layer, in forward order */
extern const size_t n_groups;

/* Is the matrix there, and one that feedback changes? */
bool group_takes(const struct decoder *d, const struct quant_choice *forms,
                 const struct part *p);
/* Has the layer this group? */
bool group_is(const struct decoder *d, uint32_t l, const struct group *g);
/* Columns of the group's matrices; 0: none that feedback changes. */
size_t group_cols(const struct decoder *d, const struct quant_choice *forms,
                  uint32_t l, const struct group *g);
/* The group's only matrix, if it has so few rows that the shift is summed for
 * them (quant/shift.h); NULL: it is summed over inputs. */
const struct part *group_one(const struct decoder *d,
                             const struct quant_choice *forms, uint32_t l,
                             const struct group *g);
/* Units of progress of each step; their sum is calibrate_cost. */
double cost_sample(const struct decoder *d); /* one position, all sequences */
double cost_group(const struct decoder *d, const struct quant_choice *forms,
                  uint32_t l, const struct group *g);
double cost_head(const struct decoder *d, const struct quant_choice *forms);

/* --- codes.c: the files --- */

/* One matrix, or one slice of the head. */
struct item {
    enum arch_slot slot;
    struct part part; /* its rows */
    struct quant_spec spec;
    bool permutes;
    struct head_rows perm; /* order of rows as emitted, where it permutes */
    size_t codes_at, params_at; /* in the file */
};

struct codes {
    size_t n, bytes;     /* items; of the file */
    struct item *items;  /* owned */
    struct file_map map; /* the file, once it is there or being written */
    char path[PATH_ROOM];
    char tmp[PATH_ROOM]; /* while it is written */
    int fd;              /* likewise; -1: none */
};

/* What the file of a layer holds; l == n_layers: the head's. Errors: NOMEM,
 * INVALID (path). */
CHECKED int codes_plan(struct codes *c, const struct decoder *d,
                       const struct calibrate_conf *conf, uint32_t l,
                       struct err *e);
/* Map the file if a run with this key has made it. *ret: it has. */
CHECKED int codes_find(struct codes *c, const uint8_t key[SHA256_BYTES],
                       bool *ret, struct err *e);
/* A new file, not yet to be found; items may be read as they are written. */
CHECKED int codes_create(struct codes *c, const uint8_t key[SHA256_BYTES],
                         struct err *e);
/* Encode an item and put it into the file. */
CHECKED int codes_encode(struct codes *c, const struct item *i,
                         const struct weights *w, struct err *e);
/* From now on it is found, also after a crash. */
CHECKED int codes_publish(struct codes *c, const char *dir, struct err *e);
void codes_close(struct codes *c); /* zeroed with fd -1 is fine */
/* The item that row `row` of t belongs to; NULL: none. */
const struct item *codes_item(const struct codes *c,
                              const struct gguf_tensor *t, uint64_t row);
/* Row `row` of the item's tensor, as the package will have it. */
void codes_row(const struct codes *c, const struct item *i, uint64_t row,
               float *out);

/* --- samples.c --- */

/* sequences * CALIBRATE_TOKENS ids, sequence after sequence; *ret is the
 * caller's. *s: sequences are set already, and may become fewer. */
CHECKED int samples_make(const struct decoder *d,
                         const struct calibrate_conf *conf,
                         const uint8_t key[SHA256_BYTES],
                         struct calibrate_samples *s, int32_t **ret,
                         struct err *e);

/* --- streams.c: the samples on their way through the layers --- */

/* With the source's weights, and with those quantised so far. */
enum side { WANTED, QUANTISED, SIDES };

struct streams;

/* tokens: as samples_make gives them, borrowed. quantised: codes of the layer
 * at hand, borrowed; its items' rows stand in for the source's. */
CHECKED int streams_open(const struct decoder *d, unsigned threads,
                         const struct calibrate_samples *s,
                         const int32_t *tokens, const struct codes *quantised,
                         const struct quant_choice *forms, struct streams **ret,
                         struct err *e);
void streams_close(struct streams *s); /* NULL is fine */

/* Called with what both sides' products of a group read, some tokens at a time,
 * in order. */
typedef int streams_fn(void *ctx, const struct reference_panel in[SIDES],
                       struct err *e);
/* Run to the group's inputs. After its last group a block's wanted side has
 * passed it; the other one waits for streams_pass. fn may be NULL. */
CHECKED int streams_read(struct streams *s, uint32_t l, const struct group *g,
                         streams_fn *fn, void *ctx, struct err *e);
/* The quantised side passes a block that streams_read has brought to its last
 * group. */
CHECKED int streams_pass(struct streams *s, uint32_t l, const struct group *g,
                         struct err *e);
/* What the head reads. */
CHECKED int streams_head(struct streams *s, streams_fn *fn, void *ctx,
                         struct err *e);
uint64_t streams_bytes(const struct decoder *d, uint32_t sequences);
