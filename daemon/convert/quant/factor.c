/* factor.c - H + damping = L D L^T, by columns of tiles.
 *
 * A column of tiles takes what the columns before it left of it (all its tiles
 * in parallel), then its own triangle is factored, then the tiles below are
 * divided by it, in parallel. The sums of a tile have one order whatever thread
 * does them.
 */
#include <math.h>
#include <string.h>

#include "base/crew.h"
#include "convert/quant/feedback_impl.h"

struct work {
    struct feedback *f;
    const struct hessian *h;
    double damping;
    size_t j;        /* the column of tiles */
    double *turned;  /* tiles (j, k), k < j, turned */
    double *inverse; /* of the triangle (j, j), turned */
};

static void on_gather(void *ctx, size_t begin, size_t end, unsigned worker)
{
    struct work *w = ctx;
    const struct feedback *f = w->f;
    (void)worker;
    for (size_t i = begin; i < end; i++) {
        for (size_t j = 0; j <= i; j++) {
            double *t = f->tiles + tile_at(i, j);
            for (size_t k = 0; k < TILE_COUNT; k++) {
                size_t r = i * TILE + k / TILE;
                size_t s = j * TILE + k % TILE;
                bool real = r < f->cols && s < f->cols;
                t[k] = real ? hessian_get(w->h, f->order[r], f->order[s]) : 0;
                t[k] += r != s ? 0 : real ? w->damping : 1;
            }
        }
    }
}

static void on_turn(void *ctx, size_t begin, size_t end, unsigned worker)
{
    struct work *w = ctx;
    (void)worker;
    for (size_t k = begin; k < end; k++) {
        tile_turn(w->turned + k * TILE_COUNT, w->f->tiles + tile_at(w->j, k));
    }
}

static void on_rest(void *ctx, size_t begin, size_t end, unsigned worker)
{
    struct work *w = ctx;
    (void)worker;
    for (size_t i = begin; i < end; i++) {
        double *c = w->f->tiles + tile_at(w->j + i, w->j);
        for (size_t k = 0; k < w->j; k++) {
            tile_sub(c, w->f->tiles + tile_at(w->j + i, k),
                     w->turned + k * TILE_COUNT, TILE);
        }
    }
}

static void on_divide(void *ctx, size_t begin, size_t end, unsigned worker)
{
    struct work *w = ctx;
    (void)worker;
    for (size_t i = begin; i < end; i++) {
        double *c = w->f->tiles + tile_at(w->j + 1 + i, w->j);
        double minus[TILE_COUNT];
        for (size_t k = 0; k < TILE_COUNT; k++) {
            minus[k] = -c[k];
        }
        memset(c, 0, sizeof(minus));
        tile_sub(c, minus, w->inverse, TILE);
    }
}

/* The Cholesky factor of a tile, in place; zeros above. */
static bool triangle(double *t)
{
    for (size_t j = 0; j < TILE; j++) {
        double *row = t + j * TILE;
        for (size_t k = 0; k < j; k++) {
            row[j] -= row[k] * row[k];
        }
        if (!(row[j] > 0) || !(row[j] < (double)INFINITY)) {
            return false;
        }
        row[j] = sqrt(row[j]);
        for (size_t i = j + 1; i < TILE; i++) {
            double *below = t + i * TILE;
            for (size_t k = 0; k < j; k++) {
                below[j] -= below[k] * row[k];
            }
            below[j] /= row[j];
            row[i] = 0;
        }
    }
    return true;
}

/* The inverse of the lower triangle g, turned: inv[c][r]. */
static void invert(const double *g, double *inv)
{
    memset(inv, 0, TILE_COUNT * sizeof(*inv));
    for (size_t c = 0; c < TILE; c++) {
        double *col = inv + c * TILE;
        for (size_t r = c; r < TILE; r++) {
            double sum = r == c ? 1 : 0;
            for (size_t k = c; k < r; k++) {
                sum -= g[r * TILE + k] * col[k];
            }
            col[r] = sum / g[r * TILE + r];
        }
    }
}

/* From G with G G^T = H to L and D. */
static void on_unit(void *ctx, size_t begin, size_t end, unsigned worker)
{
    struct work *w = ctx;
    (void)worker;
    for (size_t i = begin; i < end; i++) {
        for (size_t j = 0; j <= i; j++) {
            double *t = w->f->tiles + tile_at(i, j);
            for (size_t k = 0; k < TILE_COUNT; k++) {
                t[k] /= w->f->pivot[j * TILE + k % TILE];
            }
        }
    }
}

bool factor(struct feedback *f, const struct hessian *h, double damping,
            unsigned threads, double *scratch)
{
    struct work w = {.f = f,
                     .h = h,
                     .damping = damping,
                     .turned = scratch + TILE_COUNT,
                     .inverse = scratch};
    bool ok = true;
    crew_run(threads, f->strips, 1, on_gather, &w);
    for (w.j = 0; ok && w.j < f->strips; w.j++) {
        double *own = f->tiles + tile_at(w.j, w.j);
        crew_run(threads, w.j, 8, on_turn, &w);
        crew_run(threads, f->strips - w.j, 1, on_rest, &w);
        ok = triangle(own);
        if (ok) {
            invert(own, w.inverse);
            for (size_t k = 0; k < TILE; k++) {
                f->pivot[w.j * TILE + k] = own[k * TILE + k];
            }
            crew_run(threads, f->strips - w.j - 1, 1, on_divide, &w);
        }
    }
    if (ok) {
        crew_run(threads, f->strips, 1, on_unit, &w);
    }
    for (size_t i = 0; ok && i < f->strips * TILE; i++) {
        f->pivot[i] *= f->pivot[i];
    }
    return ok;
}
