/* feedback.c - targets and codes of rows, a tile of them at a time. */
#include "convert/quant/feedback.h"

#include <string.h>

#include "base/num.h"
#include "convert/quant/feedback_impl.h"

#define DAMPING_TRIES 4 /* each ten times the last */

/* --- the factor --- */

struct column {
    double diagonal;
    uint32_t at;
};

/* Ascending; of equal ones the later column first: it is coded later. */
static int by_diagonal(const void *a, const void *b)
{
    const struct column *x = a;
    const struct column *y = b;
    if (x->diagonal < y->diagonal || x->diagonal > y->diagonal) {
        return x->diagonal < y->diagonal ? -1 : 1;
    }
    return x->at > y->at ? -1 : 1;
}

/* *ret_mean: of the diagonal. */
static int choose_order(struct feedback *f, const struct hessian *h,
                        double *ret_mean, struct err *e)
{
    struct column *c = malloc(f->cols * sizeof(*c));
    double sum = 0;
    if (c == NULL) {
        return err_set(e, ERR_NOMEM, "no memory for %zu columns", f->cols);
    }
    for (size_t i = 0; i < f->cols; i++) {
        c[i] = (struct column){hessian_get(h, i, i), (uint32_t)i};
        sum += c[i].diagonal;
    }
    if (!isfinite(sum)) {
        free(c);
        return err_set(e, ERR_CONVERT,
                       "an input of the calibration is not finite");
    }
    qsort(c, f->cols, sizeof(*c), by_diagonal);
    for (size_t i = 0; i < f->cols; i++) {
        f->order[i] = c[i].at;
    }
    free(c);
    *ret_mean = sum / (double)f->cols;
    return 0;
}

static int make_factor(struct feedback *f, const struct hessian *h,
                       unsigned threads, struct err *e)
{
    double mean = 0;
    RETERR(choose_order(f, h, &mean, e));
    double *scratch = malloc((f->strips + 1) * TILE_COUNT * sizeof(*scratch));
    if (scratch == NULL) {
        return err_set(e, ERR_NOMEM, "no memory for %zu columns", f->cols);
    }
    /* Inputs that are all zero say nothing: any H will do. */
    double damping = mean > 0 ? mean * FEEDBACK_DAMPING : 1;
    bool ok = false;
    for (int i = 0; !ok && i < DAMPING_TRIES; i++) {
        ok = factor(f, h, damping, threads, scratch);
        damping *= 10; /* sums in fp32 are not quite those of squares */
    }
    free(scratch);
    return ok ? 0
              : err_set(e, ERR_CONVERT,
                        "the calibration's inputs have no usable covariance");
}

int feedback_open(const struct hessian *h, const struct shift *shift,
                  double part, unsigned threads, struct feedback **ret,
                  struct err *e)
{
    size_t cols = hessian_cols(h);
    must(shift == NULL || shift_cols(shift) == cols);
    if (!(part >= 0 && part <= 1)) {
        return err_set(e, ERR_INVALID, "part %g of a shift: 0 to 1", part);
    }
    struct feedback *f = calloc(1, sizeof(*f));
    bool ok = f != NULL;
    if (ok) {
        f->cols = cols;
        f->strips = tile_strips(cols);
        f->shift = part > 0 ? shift : NULL;
        f->part = part;
        f->order = malloc(cols * sizeof(*f->order));
        f->pivot = malloc(f->strips * TILE * sizeof(*f->pivot));
        f->tiles = malloc(tile_at(f->strips, 0) * sizeof(*f->tiles));
        ok = f->order != NULL && f->pivot != NULL && f->tiles != NULL;
    }
    int rc = ok ? make_factor(f, h, threads, e)
                : err_set(e, ERR_NOMEM, "no memory for %zu columns", cols);
    if (rc < 0) {
        feedback_close(f);
        return rc;
    }
    *ret = f;
    return 0;
}

void feedback_close(struct feedback *f)
{
    if (f != NULL) {
        free(f->order);
        free(f->pivot);
        free(f->tiles);
        free(f);
    }
}

/* --- rows --- */

/* Up to TILE rows on their way. Arrays are strips x (TILE x TILE) tiles, a row
 * of the matrix in the same row of each; places are those of f->order. */
struct rows {
    const struct feedback *f;
    const float *w;
    size_t first; /* number of the first in the matrix */
    size_t n, padded; /* rows; the same in whole TILE_ROWS */
    const struct grid *grid;
    uint8_t *codes;
    double *want;    /* the weights that codes should stand for */
    double *off;     /* codes' values less those */
    double *tile[2]; /* scratch: too large for a stack */
};

/* The inner steps of the two solutions below: one tile's own triangle. All rows
 * take a step together, so x is turned meanwhile. turned: the triangle, turned.
 */
static void solve_turned(double *x, const double *turned, double *scratch)
{
    tile_turn(scratch, x);
    for (size_t d = 0; d + 1 < TILE; d++) {
        tile_spread(scratch + (d + 1) * TILE, TILE - 1 - d,
                    turned + d * TILE + d + 1, scratch + d * TILE);
    }
    tile_turn(x, scratch);
}

static void solve_plain(double *x, const double *triangle, double *scratch)
{
    tile_turn(scratch, x);
    for (size_t d = TILE - 1; d > 0; d--) {
        tile_spread(scratch, d, triangle + d * TILE, scratch + d * TILE);
    }
    tile_turn(x, scratch);
}

/* x = x (L D L^T)^-1, in place. */
static void solve(const struct rows *r, double *x)
{
    const struct feedback *f = r->f;
    double *turned = r->tile[0];
    for (size_t j = 0; j < f->strips; j++) {
        double *own = x + j * TILE_COUNT;
        for (size_t k = 0; k < j; k++) {
            tile_turn(turned, f->tiles + tile_at(j, k));
            tile_sub(own, x + k * TILE_COUNT, turned, r->padded);
        }
        tile_turn(turned, f->tiles + tile_at(j, j));
        solve_turned(own, turned, r->tile[1]);
    }
    for (size_t j = f->strips; j-- > 0;) {
        double *own = x + j * TILE_COUNT;
        for (size_t i = 0; i < r->padded * TILE; i++) {
            own[i] /= f->pivot[j * TILE + i % TILE];
        }
        for (size_t k = j + 1; k < f->strips; k++) {
            tile_sub(own, x + k * TILE_COUNT, f->tiles + tile_at(k, j),
                     r->padded);
        }
        solve_plain(own, f->tiles + tile_at(j, j), r->tile[1]);
    }
}

/* The same from the sum over inputs. */
static void multiply_shift(struct rows *r)
{
    const struct feedback *f = r->f;
    double *left = r->tile[0];
    double *right = r->tile[1];
    for (size_t k = 0; k < f->strips; k++) {
        memset(left, 0, TILE_COUNT * sizeof(*left));
        size_t wide = num_min(TILE, f->cols - k * TILE);
        for (size_t i = 0; i < r->n; i++) {
            for (size_t c = 0; c < wide; c++) {
                left[i * TILE + c] = (double)r->w[i * f->cols + k * TILE + c];
            }
        }
        for (size_t j = 0; j < f->strips; j++) {
            size_t places = num_min(TILE, f->cols - j * TILE);
            memset(right, 0, TILE_COUNT * sizeof(*right));
            for (size_t i = 0; i < wide; i++) {
                const float *from = shift_row(f->shift, k * TILE + i);
                for (size_t c = 0; c < places; c++) {
                    right[i * TILE + c] = (double)from[f->order[j * TILE + c]];
                }
            }
            tile_sub(r->off + j * TILE_COUNT, left, right, r->padded);
        }
    }
}

/* r->off = -W * shift, columns in f->order. */
static void take_shift(struct rows *r)
{
    const struct feedback *f = r->f;
    memset(r->off, 0, f->strips * TILE_COUNT * sizeof(*r->off));
    if (!shift_has_rows(f->shift)) {
        multiply_shift(r);
        return;
    }
    for (size_t i = 0; i < r->n; i++) {
        const float *from = shift_row(f->shift, r->first + i);
        for (size_t k = 0; k < f->cols; k++) {
            r->off[k / TILE * TILE_COUNT + i * TILE + k % TILE] =
                -(double)from[f->order[k]];
        }
    }
}

static void choose_wanted(struct rows *r)
{
    const struct feedback *f = r->f;
    size_t n = f->strips * TILE_COUNT;
    if (f->shift != NULL) {
        take_shift(r);
        solve(r, r->off);
    }
    for (size_t i = 0; i < n; i++) {
        size_t place = i / TILE_COUNT * TILE + i % TILE;
        size_t row = i % TILE_COUNT / TILE;
        r->want[i] = 0;
        if (row < r->n && place < f->cols) {
            r->want[i] = (double)r->w[row * f->cols + f->order[place]];
            r->want[i] -= f->shift != NULL ? f->part * r->off[i] : 0;
        }
    }
}

/* The places of one strip, from the last, all rows together; target: what the
 * strips behind it made of the wanted weights. */
static void code_strip(struct rows *r, size_t strip, double *target)
{
    const struct feedback *f = r->f;
    const double *own = f->tiles + tile_at(strip, strip);
    size_t places = num_min(TILE, f->cols - strip * TILE);
    const double *want = r->want + strip * TILE_COUNT;
    double *left = r->tile[1]; /* target, turned; then what codes are off */
    tile_turn(left, target);
    memset(left + places * TILE, 0, (TILE - places) * TILE * sizeof(*left));
    for (size_t p = places; p-- > 0;) {
        double *now = left + p * TILE;
        for (size_t i = 0; i < r->n; i++) {
            uint8_t code = grid_code(&r->grid[i], (float)now[i]);
            double value = (double)grid_value(&r->grid[i], code);
            r->codes[i * f->cols + f->order[strip * TILE + p]] = code;
            now[i] = value - want[i * TILE + p];
        }
        for (size_t i = r->n; i < TILE; i++) {
            now[i] = 0;
        }
        tile_spread(left, p, own + p * TILE, now);
    }
    tile_turn(r->off + strip * TILE_COUNT, left);
}

static void code_rows(struct rows *r)
{
    const struct feedback *f = r->f;
    double *target = r->tile[0];
    choose_wanted(r);
    for (size_t s = f->strips; s-- > 0;) {
        memcpy(target, r->want + s * TILE_COUNT, TILE_COUNT * sizeof(*target));
        for (size_t k = s + 1; k < f->strips; k++) {
            tile_sub(target, r->off + k * TILE_COUNT, f->tiles + tile_at(k, s),
                     r->padded);
        }
        code_strip(r, s, target);
    }
}

int feedback_codes(const struct feedback *f, const float *rows, size_t first,
                   size_t n, const struct grid *grid, uint8_t *codes,
                   struct err *e)
{
    size_t count = f->strips * TILE_COUNT;
    double *room = malloc((2 * count + 2 * TILE_COUNT) * sizeof(*room));
    if (room == NULL) {
        return err_set(e, ERR_NOMEM, "no memory for a tile of rows");
    }
    struct rows r = {.f = f, .want = room, .off = room + count};
    r.tile[0] = room + 2 * count;
    r.tile[1] = r.tile[0] + TILE_COUNT;
    for (size_t i = 0; i < n; i += TILE) {
        r.n = num_min(TILE, n - i);
        r.padded = (r.n + TILE_ROWS - 1) / TILE_ROWS * TILE_ROWS;
        r.w = rows + i * f->cols;
        r.first = first + i;
        r.grid = grid + i;
        r.codes = codes + i * f->cols;
        code_rows(&r);
    }
    free(room);
    return 0;
}
