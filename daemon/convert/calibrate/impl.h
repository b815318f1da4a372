/* impl.h - shared by the files of calibrate.h. */
#pragma once

#include "convert/quant/feedback.h"

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
/* Does feedback change any of the layer's experts? */
bool group_has_experts(const struct decoder *d,
                       const struct quant_choice *forms, uint32_t l);
/* Units of progress of each step; their sum is calibrate_cost. */
double cost_sample(const struct decoder *d); /* one position, all sequences */
double cost_group(const struct decoder *d, const struct quant_choice *forms,
                  uint32_t l, const struct group *g);
double cost_experts(const struct decoder *d, const struct quant_choice *forms,
                    uint32_t l);
double cost_head(const struct decoder *d, const struct quant_choice *forms);

/* --- codes.c: the files --- */

/* One matrix, one slice of the head, or the experts of one constant. */
struct item {
    enum arch_slot slot;
    struct part part;    /* whose rows [from, from + rows) it has */
    uint64_t from, rows;
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
/* Encode rows [first, first + rows) of an item, whole groups of them, and put
 * them into the file. */
CHECKED int codes_encode(struct codes *c, const struct item *i, uint64_t first,
                         uint64_t rows, const struct weights *w,
                         struct err *e);
/* From now on it is found, also after a crash. */
CHECKED int codes_publish(struct codes *c, const char *dir, struct err *e);
void codes_close(struct codes *c); /* zeroed with fd -1 is fine */
/* Rows [first, first + rows) of the item as a package has them that holds just
 * these; false: it does not, because palettes of the item cross their border. A
 * scale of a whole tensor is that of the item. */
bool codes_slice(const struct codes *c, const struct item *i, uint64_t first,
                 uint64_t rows, struct weights_codes *ret);
/* The item that row `row` of t belongs to, and which of its rows that is; NULL:
 * none. */
const struct item *codes_item(const struct codes *c,
                              const struct gguf_tensor *t, uint64_t row,
                              uint64_t *ret_row);
/* Row `row` of the item, as the source counts them and the package will have
 * them. */
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

struct side_state {
    struct reference_conf conf;
    struct reference *r;
    struct reference_keys **keys; /* a chunk */
    float *x;                     /* chunk after chunk: (d_model, tokens) */
};

struct streams {
    const struct decoder *d;
    const struct codes *quantised;
    const struct quant_choice *forms;
    const int32_t *tokens;
    uint32_t chunks, chunk_tokens;
    struct side_state sides[SIDES];
    float *inner; /* of the quantised side, chunk after chunk */
    struct streams_routed *routed; /* NULL: no experts */
};

/* A chunk's stream of a side as it is kept, into its panels. */
CHECKED int streams_load(struct streams *s, enum side side, uint32_t chunk,
                         struct err *e);
/* Copy rows of a panel to where all chunks are kept, or from there. */
void streams_copy(const struct streams *s, const struct reference_panel *p,
                  float *kept, bool keep);

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

/* --- streams_experts.c: what a layer's experts read --- */

struct streams_routed;

/* Tokens of one expert: how many chose it, and the sum of the squares of what
 * they multiply it by. */
struct routed_count {
    uint32_t tokens;
    double squares;
};

/* Route all samples at layer l, and keep what experts read on both sides. The
 * tokens of an expert are those of the quantised side, since that is what the
 * package will run with; the wanted side is asked for what that expert would
 * have made of the same tokens, by the same gates. */
CHECKED int streams_route(struct streams *s, uint32_t l, struct err *e);
/* Call fn with what all experts read, every token alike. */
CHECKED int streams_routed_all(struct streams *s, streams_fn *fn, void *ctx,
                               struct err *e);
/* The same with the tokens of one expert: what its first products read, times
 * each token's gate, or what its last one reads. */
CHECKED int streams_expert(struct streams *s, uint32_t l, uint32_t index,
                           bool last, streams_fn *fn, void *ctx,
                           struct routed_count *ret, struct err *e);
CHECKED int streams_routed_open(struct streams *s, struct err *e);
void streams_routed_close(struct streams_routed *r); /* NULL is fine */
/* Bytes of so many sequences; 0: the model has no experts. */
uint64_t streams_routed_bytes(const struct decoder *d, uint32_t sequences);

/* --- calibrate.c, experts.c: the driver --- */

struct run {
    const struct decoder *d;
    const struct calibrate_conf *conf;
    struct calibration *c;
    struct streams *streams;
    struct codes now; /* items of the layer at hand: those that have codes */
    uint8_t key[SHA256_BYTES];
    /* of a group: */
    struct hessian *h;
    struct shift *shift;
    float *rows; /* of the matrix that the shift is for; NULL: for all */
    float *importance;
    struct feedback *feedback;
    struct weights weights;
};

/* Sums for inputs of so many columns. one: the matrix whose rows the shift is
 * summed for; NULL: it serves all. Errors: NOMEM, those of gguf_rows. */
CHECKED int group_open(struct run *r, size_t cols, const struct part *one,
                       struct err *e);
void group_close(struct run *r); /* also what is not open */
/* A streams_fn: add to the sums. */
CHECKED int group_add(void *ctx, const struct reference_panel in[SIDES],
                      struct err *e);
/* The sums are complete: what follows is encoded with them. */
CHECKED int group_feedback(struct run *r, struct err *e);
/* Items of the file that are of this slot stand in for the source's rows. */
void group_show(struct run *r, const struct codes *file, enum arch_slot slot);

/* Codes of all experts of layer l into its file. */
CHECKED int experts_quantise(struct run *r, struct codes *file, uint32_t l,
                             struct err *e);
