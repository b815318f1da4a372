/* kmeans.c - sort, sums, dynamic programming, and where it was not exact
 * Lloyd's iteration.
 *
 * With sums of weights W and of weighted numbers S up to each cut, a run from
 * cut i to cut j lowers the error by (S_j - S_i)^2 / (W_j - W_i) against no
 * entry at all. G[c][j], the most that c runs up to j can lower it, is the
 * largest over i of G[c-1][i] + that. The best i never falls when j grows, so
 * the middle j halves the search for all others: entries * cuts * log(cuts)
 * terms, which are independent and done four at a time.
 */
#include "convert/quant/kmeans.h"

#include <string.h>

#include "base/isa.h"
#include "base/num.h"

#define DIGIT_BITS  11u
#define DIGITS      (1u << DIGIT_BITS)
#define ROUNDS_MAX  64 /* of Lloyd; it ends long before */
#define ENTRIES_MAX 256u
#define BLOCK       8u /* places searched together at the end of divide */

struct kmeans {
    size_t points, entries;
    uint32_t *key[2];   /* the numbers as integers that sort alike */
    uint32_t *index[2]; /* where they stood */
    double *x;          /* different numbers, ascending, less `middle` */
    double *w, *s;      /* points + 1 sums: of weights, of weight * x */
    size_t n;           /* different numbers */
    double middle;
    uint32_t *cut; /* where runs may end: m + 1 counts of numbers */
    size_t m;
    double *cw, *cs; /* the sums at the cuts */
    double *gain[2]; /* G[c - 1], G[c] */
    uint16_t *from;  /* entries x (m + 1): the best i */
    uint32_t count[DIGITS];
};

static size_t cuts_of(size_t points, size_t entries)
{
    return points * entries <= KMEANS_EXACT ? points : KMEANS_CUTS;
}

int kmeans_open(size_t points, size_t entries, struct kmeans **ret,
                struct err *e)
{
    must(points > 0 && points <= UINT32_MAX / 2);
    must(entries > 1 && entries < ENTRIES_MAX);
    size_t cuts = num_min(points, num_max(KMEANS_EXACT / entries, KMEANS_CUTS));
    cuts += 1 + BLOCK;
    struct kmeans *m = calloc(1, sizeof(*m));
    bool ok = m != NULL;
    for (size_t i = 0; ok && i < 2; i++) {
        m->key[i] = malloc(points * sizeof(uint32_t));
        m->index[i] = malloc(points * sizeof(uint32_t));
        m->gain[i] = malloc(cuts * sizeof(double));
        ok = m->key[i] != NULL && m->index[i] != NULL && m->gain[i] != NULL;
    }
    if (ok) {
        m->points = points;
        m->entries = entries;
        m->x = malloc(points * sizeof(double));
        m->w = malloc((points + 1) * sizeof(double));
        m->s = malloc((points + 1) * sizeof(double));
        m->cut = malloc(cuts * sizeof(uint32_t));
        m->cw = calloc(cuts, sizeof(double)); /* a block may read on */
        m->cs = calloc(cuts, sizeof(double));
        m->from = malloc(entries * cuts * sizeof(uint16_t));
        ok = m->x != NULL && m->w != NULL && m->s != NULL && m->cut != NULL &&
             m->cw != NULL && m->cs != NULL && m->from != NULL;
    }
    if (!ok) {
        kmeans_close(m);
        return err_set(e, ERR_NOMEM, "no memory for a palette");
    }
    *ret = m;
    return 0;
}

void kmeans_close(struct kmeans *m)
{
    if (m == NULL) {
        return;
    }
    for (size_t i = 0; i < 2; i++) {
        free(m->key[i]);
        free(m->index[i]);
        free(m->gain[i]);
    }
    free(m->x);
    free(m->w);
    free(m->s);
    free(m->cut);
    free(m->cw);
    free(m->cs);
    free(m->from);
    free(m);
}

/* --- sorting --- */

static uint32_t sortable(float f)
{
    uint32_t u = 0;
    f = f == 0 ? 0 : f; /* -0 is 0 */
    memcpy(&u, &f, sizeof(u));
    return (u & 0x80000000u) != 0 ? ~u : u | 0x80000000u;
}

static float unsortable(uint32_t u)
{
    float f = 0;
    u = (u & 0x80000000u) != 0 ? u & 0x7fffffffu : ~u;
    memcpy(&f, &u, sizeof(f));
    return f;
}

/* Three passes of a stable radix sort; the result is in key[1], index[1]. */
static void sort(struct kmeans *m, size_t n)
{
    for (unsigned pass = 0; pass < 3; pass++) {
        unsigned shift = pass * DIGIT_BITS;
        const uint32_t *key = m->key[pass % 2];
        const uint32_t *index = m->index[pass % 2];
        uint32_t *to = m->key[(pass + 1) % 2];
        uint32_t *to_index = m->index[(pass + 1) % 2];
        memset(m->count, 0, sizeof(m->count));
        for (size_t i = 0; i < n; i++) {
            m->count[(key[i] >> shift) % DIGITS]++;
        }
        uint32_t at = 0;
        for (size_t d = 0; d < DIGITS; d++) {
            uint32_t here = m->count[d];
            m->count[d] = at;
            at += here;
        }
        for (size_t i = 0; i < n; i++) {
            uint32_t place = m->count[(key[i] >> shift) % DIGITS]++;
            to[place] = key[i];
            to_index[place] = index[i];
        }
    }
}

/* Numbers that cost something, sorted, equal ones made one; their sums. */
static void gather(struct kmeans *m, const float *x, const float *w, size_t n)
{
    size_t used = 0;
    for (size_t i = 0; i < n; i++) {
        if (w == NULL || w[i] > 0) {
            m->key[0][used] = sortable(x[i]);
            m->index[0][used++] = (uint32_t)i;
        }
    }
    if (used == 0) {
        gather(m, x, NULL, n);
        return;
    }
    sort(m, used);
    const uint32_t *key = m->key[1];
    double weight = 0;
    double moment = 0;
    for (size_t i = 0; i < used; i++) {
        double cost = w != NULL ? (double)w[m->index[1][i]] : 1;
        weight += cost;
        moment += cost * (double)unsortable(key[i]);
    }
    m->middle = moment / weight; /* sums of differences from it lose least */
    m->n = 0;
    m->w[0] = m->s[0] = weight = moment = 0;
    for (size_t i = 0; i < used; i++) {
        double cost = w != NULL ? (double)w[m->index[1][i]] : 1;
        double v = (double)unsortable(key[i]) - m->middle;
        weight += cost;
        moment += cost * v;
        bool same = i + 1 < used && key[i + 1] == key[i];
        if (same || !(weight > m->w[m->n])) { /* or it weighs nothing here */
            continue;
        }
        m->x[m->n++] = v;
        m->w[m->n] = weight;
        m->s[m->n] = moment;
    }
}

/* --- cuts --- */

static size_t first_above(const struct kmeans *m, double v)
{
    size_t lo = 0;
    size_t hi = m->n;
    while (lo < hi) {
        size_t mid = lo + (hi - lo) / 2;
        if (m->x[mid] > v) {
            hi = mid;
        } else {
            lo = mid + 1;
        }
    }
    return lo;
}

/* Every number, or half of KMEANS_CUTS at equal counts, where numbers are
 * dense, and half at equal distances, where they are few. */
static void choose_cuts(struct kmeans *m)
{
    size_t n = m->n;
    m->m = 0;
    if (n <= cuts_of(n, m->entries)) {
        for (size_t i = 0; i <= n; i++) {
            m->cut[i] = (uint32_t)i;
        }
        m->m = n;
    } else {
        size_t half = KMEANS_CUTS / 2;
        double lo = m->x[0];
        double step = (m->x[n - 1] - lo) / (double)half;
        size_t a = 0; /* the next of each kind */
        size_t b = 0;
        m->cut[0] = 0;
        while (a < half && b < half) {
            size_t by_count = (a + 1) * n / half;
            size_t by_width =
                b + 1 == half ? n : first_above(m, lo + step * (double)(b + 1));
            size_t next = num_min(by_count, by_width);
            a += by_count == next ? 1 : 0;
            b += by_width == next ? 1 : 0;
            if (next > m->cut[m->m]) {
                m->cut[++m->m] = (uint32_t)next;
            }
        }
        must(m->cut[m->m] == n);
    }
    for (size_t i = 0; i <= m->m; i++) {
        m->cw[i] = m->w[m->cut[i]];
        m->cs[i] = m->s[m->cut[i]];
    }
}

/* --- dynamic programming --- */

struct best {
    double gain;
    size_t at;
};

/* The i of [lo, hi) that gives the most; the first of equal ones. */
static void scan(const struct kmeans *m, const double *g, size_t j, size_t lo,
                 size_t hi, struct best *b)
{
    double sj = m->cs[j];
    double wj = m->cw[j];
    for (size_t i = lo; i < hi; i++) {
        double d = sj - m->cs[i];
        double gain = g[i] + d * d / (wj - m->cw[i]);
        if (gain > b->gain) {
            *b = (struct best){gain, i};
        }
    }
}

#if defined(ISA_FOR_V3)
#include <immintrin.h>

/* Whole fours of [lo, hi); returns where the rest begins. */
ISA_FOR_V3 static size_t scan_v3(const struct kmeans *m, const double *g,
                                 size_t j, size_t lo, size_t hi, struct best *b)
{
    __m256d sj = _mm256_set1_pd(m->cs[j]);
    __m256d wj = _mm256_set1_pd(m->cw[j]);
    __m256d top = _mm256_set1_pd(-1);
    __m256d at = _mm256_setzero_pd();
    __m256d here =
        _mm256_add_pd(_mm256_set1_pd((double)lo), _mm256_setr_pd(0, 1, 2, 3));
    __m256d four = _mm256_set1_pd(4);
    size_t i = lo;
    for (; i + 4 <= hi; i += 4) {
        __m256d d = _mm256_sub_pd(sj, _mm256_loadu_pd(m->cs + i));
        __m256d w = _mm256_sub_pd(wj, _mm256_loadu_pd(m->cw + i));
        __m256d gain = _mm256_add_pd(_mm256_loadu_pd(g + i),
                                     _mm256_div_pd(_mm256_mul_pd(d, d), w));
        __m256d more = _mm256_cmp_pd(gain, top, _CMP_GT_OQ);
        top = _mm256_blendv_pd(top, gain, more);
        at = _mm256_blendv_pd(at, here, more);
        here = _mm256_add_pd(here, four);
    }
    double gains[4];
    double places[4];
    _mm256_storeu_pd(gains, top);
    _mm256_storeu_pd(places, at);
    for (size_t k = 0; i > lo && k < 4; k++) {
        size_t place = (size_t)places[k];
        if (gains[k] > b->gain || (!(gains[k] < b->gain) && place < b->at)) {
            *b = (struct best){gains[k], place};
        }
    }
    return i;
}
#endif

static struct best best_from(const struct kmeans *m, const double *g, size_t j,
                             size_t lo, size_t hi)
{
    struct best b = {-1, lo}; /* gains are not negative */
#if defined(ISA_FOR_V3)
    if (isa_has(ISA_V3)) {
        lo = scan_v3(m, g, j, lo, hi, &b);
    }
#endif
    scan(m, g, j, lo, hi, &b);
    return b;
}

#if defined(ISA_FOR_V3)
/* best_from for the BLOCK places from a on, with i in [lo, hi]. The arrays have
 * room for a whole block. */
ISA_FOR_V3 static void block_v3(const struct kmeans *m, const double *g,
                                size_t a, size_t lo, size_t hi,
                                double gain[BLOCK], double at[BLOCK])
{
    for (size_t k = 0; k < BLOCK; k += 4) {
        __m256d sj = _mm256_loadu_pd(m->cs + a + k);
        __m256d wj = _mm256_loadu_pd(m->cw + a + k);
        __m256d j = _mm256_add_pd(_mm256_set1_pd((double)(a + k)),
                                  _mm256_setr_pd(0, 1, 2, 3));
        __m256d top = _mm256_set1_pd(-1);
        __m256d place = _mm256_set1_pd((double)lo);
        for (size_t i = lo; i <= hi; i++) {
            __m256d here = _mm256_set1_pd((double)i);
            __m256d d = _mm256_sub_pd(sj, _mm256_broadcast_sd(m->cs + i));
            __m256d w = _mm256_sub_pd(wj, _mm256_broadcast_sd(m->cw + i));
            __m256d sum = _mm256_add_pd(_mm256_broadcast_sd(g + i),
                                        _mm256_div_pd(_mm256_mul_pd(d, d), w));
            __m256d more = _mm256_and_pd(_mm256_cmp_pd(sum, top, _CMP_GT_OQ),
                                         _mm256_cmp_pd(here, j, _CMP_LT_OQ));
            top = _mm256_blendv_pd(top, sum, more);
            place = _mm256_blendv_pd(place, here, more);
        }
        _mm256_storeu_pd(gain + k, top);
        _mm256_storeu_pd(at + k, place);
    }
}
#endif

/* Row c for a few j in [a, z]; the best i lies in [lo, hi]. */
static void block(struct kmeans *m, size_t c, size_t a, size_t z, size_t lo,
                  size_t hi)
{
    const double *g = m->gain[(c - 1) % 2];
    double *gain = m->gain[c % 2];
    uint16_t *from = m->from + c * (m->m + 1);
    must(z - a < BLOCK);
#if defined(ISA_FOR_V3)
    if (isa_has(ISA_V3)) {
        double gains[BLOCK];
        double places[BLOCK];
        block_v3(m, g, a, lo, hi, gains, places);
        for (size_t j = a; j <= z; j++) {
            gain[j] = gains[j - a];
            from[j] = (uint16_t)places[j - a];
        }
        return;
    }
#endif
    for (size_t j = a; j <= z; j++) {
        struct best b = {-1, lo};
        scan(m, g, j, lo, num_min(hi + 1, j), &b);
        gain[j] = b.gain;
        from[j] = (uint16_t)b.at;
    }
}

/* The same for any j. */
static void divide(struct kmeans *m, size_t c, size_t a, size_t z, size_t lo,
                   size_t hi)
{
    const double *g = m->gain[(c - 1) % 2];
    uint16_t *from = m->from + c * (m->m + 1);
    while (a <= z) {
        if (z - a < BLOCK) {
            block(m, c, a, z, lo, num_min(hi, z - 1));
            return;
        }
        size_t j = a + (z - a) / 2;
        size_t last = num_min(hi, j - 1);
        size_t least = lo; /* one run less never begins its last one later */
        if (c > 2) {
            least = num_max(lo, m->from[(c - 1) * (m->m + 1) + j]);
        }
        struct best b = best_from(m, g, j, num_min(least, last), last + 1);
        m->gain[c % 2][j] = b.gain;
        from[j] = (uint16_t)b.at;
        if (j > a) {
            divide(m, c, a, j - 1, lo, b.at);
        }
        a = j + 1;
        lo = b.at;
    }
}

/* Ends of the best k runs, k <= m->m: end[c] is a cut. */
static void best_runs(struct kmeans *m, size_t k, uint32_t *end)
{
    size_t n = m->m;
    must(n <= UINT16_MAX);
    for (size_t j = 1; j <= n; j++) {
        double d = m->cs[j] - m->cs[0];
        m->gain[1][j] = d * d / (m->cw[j] - m->cw[0]);
    }
    for (size_t c = 2; c < k; c++) {
        divide(m, c, c, n, c - 1, n - 1);
    }
    end[k] = (uint32_t)n;
    if (k > 1) { /* of the last row only the last place is wanted */
        end[k - 1] =
            (uint32_t)best_from(m, m->gain[(k - 1) % 2], n, k - 1, n).at;
    }
    for (size_t c = k - 1; c > 1; c--) {
        end[c - 1] = m->from[c * (n + 1) + end[c]];
    }
    end[0] = 0;
}

/* --- entries --- */

static double mean(const struct kmeans *m, size_t from, size_t to)
{
    return (m->s[to] - m->s[from]) / (m->w[to] - m->w[from]);
}

/* Move every number to the nearest entry, and entries to their numbers' means,
 * until nothing moves. */
static void settle(const struct kmeans *m, size_t k, uint32_t *end, double *ret)
{
    bool moved = true;
    for (int round = 0; moved && round < ROUNDS_MAX; round++) {
        moved = false;
        for (size_t c = 1; c < k; c++) {
            size_t to = first_above(m, (ret[c - 1] + ret[c]) / 2);
            moved = moved || to != end[c];
            end[c] = (uint32_t)to;
        }
        for (size_t c = 0; moved && c < k; c++) {
            if (end[c + 1] > end[c]) {
                ret[c] = mean(m, end[c], end[c + 1]);
            }
        }
    }
}

void kmeans_run(struct kmeans *m, const float *x, const float *w, size_t n,
                double *ret)
{
    must(n > 0 && n <= m->points);
    gather(m, x, w, n);
    choose_cuts(m);
    size_t k = num_min(m->entries, m->m);
    uint32_t end[ENTRIES_MAX];
    best_runs(m, k, end);
    for (size_t c = 0; c <= k; c++) {
        end[c] = m->cut[end[c]];
    }
    for (size_t c = 0; c < k; c++) {
        ret[c] = mean(m, end[c], end[c + 1]);
    }
    if (m->m < m->n) {
        settle(m, k, end, ret);
    }
    for (size_t c = 0; c < m->entries; c++) {
        ret[c] = c < k ? ret[c] + m->middle : ret[k - 1];
    }
}
