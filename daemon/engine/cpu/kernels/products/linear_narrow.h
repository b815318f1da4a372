/* linear_narrow.h - products with narrow tables of 16 entries (weight_table.c) by
 * instructions that multiply bytes; a part of linear_look.h.
 *
 * A set that defines LOOK_NARROWS, the most columns it is for, defines besides
 *   LOOK_OWN                  own_words (kernel_impl.h)
 *   lk_set(LOOK_NARROW, ...)  entries + NARROW_MORE, as unsigned bytes
 *   lk_bytes(t, p, odd)       of the NARROW_STEP weights whose indices begin at
 *                             p the even ones, or the odd ones
 *   lk_dot8(acc, w, x)        acc + products of unsigned bytes and signed ones,
 *                             four in each lane
 *   lk_join8(high, low)       high * 128 + low
 *   narrow_own(q, k, to)      a column (linear_impl.h)
 *
 * A lookup gives 64 bytes where it gave 32 words, and none of them has to be
 * made wider. An activation is two bytes, so there are as many products as with
 * words of 16 bits, and the same sums: those of high bytes and of low ones are
 * joined in each lane once a block. They begin with what makes up for
 * NARROW_MORE, which has the scale of the high bytes, as it is 128.
 */
#pragma once

#if defined(LOOK_NARROWS)
static_assert(LOOK_BLOCK % NARROW_STEP == 0 && NARROW_STEP == 2 * VB, "steps");

#define NARROW_LANE ((int64_t)LOOK_BLOCK * 4 / VB) /* products in a lane */
static_assert(128 * NARROW_LANE * (255 * 128 + (int)LINEAR_PEAK) +
                      NARROW_LANE * 255 * 127 <
                  INT32_MAX,
              "a lane's high bytes, what they begin with, and its low bytes");

/* Few sums have a chain of products for even elements and one for odd ones, so
 * that none waits for the one before. */
INLINE int narrow_chains(int C)
{
    return C <= 2 ? 2 : 1;
}

/* NARROW_STEP elements of R rows times C columns. */
INLINE void narrow_step(int R, int C, const struct lk_table *t, const char *p,
                        size_t ldw, const int16_t *q, size_t ldq, vi *a)
{
    const int chains = narrow_chains(C);
    UNSET const int16_t *base[(FEW_COLS + 2) / 3];
    for (int c = 0; c < C; c += 3) {
        base[c / 3] = q + (size_t)c * ldq;
        HOLD(base[c / 3]);
    }
    for (int odd = 0; odd < 2; odd++) {
        UNSET vi w[2];
        for (int r = 0; r < R; r++) {
            w[r] = lk_bytes(&t[r], p + (size_t)r * ldw, odd);
        }
        for (int c = 0; c < C; c++) {
            for (int low = 0; low < 2; low++) {
                vi x = vi_load(base[c / 3] + (size_t)(c % 3) * ldq +
                               (2 * low + odd) * (VB / 2));
                for (int r = 0; r < R; r++) {
                    vi *sum = &a[((c * R + r) * 2 + low) * chains];
                    sum += chains == 2 ? odd : 0;
                    *sum = lk_dot8(*sum, w[r], x);
                }
            }
        }
    }
}

/* The last n elements, less than a step: nothing after them is read. */
INLINE void narrow_tail(int R, int C, const struct lk_table *t, const char *p,
                        size_t ldw, size_t n, const int16_t *q, size_t ldq,
                        vi *a)
{
    char buf[2 * VB] = {0};
    for (int r = 0; r < R; r++) {
        memcpy(buf + r * VB, p + (size_t)r * ldw, look_bytes(LOOK_NARROW, n));
    }
    narrow_step(R, C, t, buf, VB, q, ldq, a);
}

INLINE void narrow_begin(int R, int C, const int16_t *less, size_t ldq, vi *a)
{
    const int chains = narrow_chains(C);
    UNROLL
    for (int s = 0; s < R * C; s++) {
        vi *sum = a + 2 * s * chains;
        for (int i = 1; i < 2 * chains; i++) {
            sum[i] = vi_zero();
        }
        sum[0] = vi_load(less + (size_t)(s / R) * ldq);
    }
}

/* The s-th sum. */
INLINE vi narrow_end(int C, const vi *a, int s)
{
    const int chains = narrow_chains(C);
    a += 2 * s * chains;
    return chains == 2
               ? lk_join8(vi_add(a[0], a[1]), vi_add(a[2], a[3]))
               : lk_join8(a[0], a[1]);
}

/* The sums of n elements of R rows, one or two, and C columns: a[c * ld + r]. */
INLINE void narrow_sums(int R, int C, const struct few_rows *f,
                        const int16_t *q, size_t ldq, size_t n, vi *a, int ld)
{
    UNSET vi sum[2 * FEW_COLS * 2];
    const char *p = f->w;
    size_t i = 0;
    narrow_begin(R, C, q + f->less, ldq, sum);
    for (; i + NARROW_STEP <= n; i += NARROW_STEP, p += VB, q += NARROW_STEP) {
        if (f->ahead != NULL) {
            few_ahead(f, R, i / 2);
        }
        narrow_step(R, C, f->table, p, f->ldw, q, ldq, sum);
    }
    if (i < n) {
        narrow_tail(R, C, f->table, p, f->ldw, n - i, q, ldq, sum);
    }
    UNROLL
    for (int s = 0; s < R * C; s++) {
        a[s / R * ld + s % R] = narrow_end(C, sum, s);
    }
}

/* The same of up to four rows, two at a time: registers hold no more sums. */
INLINE void narrow_rows_sums(int R, int C, const struct few_rows *f,
                             const int16_t *q, size_t ldq, size_t n, vi *a)
{
    for (int r = 0; r < R; r += 2) {
        const int rows = R - r < 2 ? 1 : 2;
        struct few_rows two = *f;
        two.w += (size_t)r * f->ldw;
        two.table += r;
        if (f->ahead != NULL) {
            two.ahead += (size_t)r * look_bytes(LOOK_NARROW, n); /* a share */
        }
        narrow_sums(rows, C, &two, q, ldq, n, a + r, R);
    }
}

/* Of a single row and column. */
INLINE vi narrow_one(const struct lk_table *t, const char *p, const char *ahead,
                     enum ahead to, const int16_t *q, size_t less, size_t n)
{
    UNSET vi a[4];
    size_t i = 0;
    narrow_begin(1, 1, q + less, 0, a);
    for (; i + NARROW_STEP <= n; i += NARROW_STEP, p += VB, ahead += VB) {
        ahead_line(ahead, to);
        narrow_step(1, 1, t, p, 0, q + i, 0, a);
    }
    if (i < n) {
        narrow_tail(1, 1, t, p, 0, n - i, q + i, 0, a);
    }
    return narrow_end(1, a, 0);
}
#else /* never used */
#define narrow_rows_sums(R, C, f, q, ldq, n, a) \
    ((void)(R), (void)(C), (void)(f), (void)(q), (void)(ldq), (void)(n), \
     (void)(a))
#define narrow_one(t, p, ahead, to, q, less, n) \
    ((void)(t), (void)(p), (void)(ahead), (void)(to), (void)(q), (void)(less), \
     (void)(n), vi_zero())
#endif
