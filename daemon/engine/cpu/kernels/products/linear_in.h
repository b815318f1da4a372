/* linear_in.h - what linear.c knows of linear_in.c's input. */
#pragma once

#include "engine/cpu/kernels/products/linear_impl.h"

#define ROUND_MIN 16384 /* elements to round that pay for a thread */

/* Rows [first, first + n) of the input. Their columns begin at 2 * first, where
 * there is room if all of them are wide: row r is column first + r. */
struct group {
    size_t first, n, cols;
    size_t run; /* linear_job's, while linear_run runs */
    size_t pack;              /* its first one in each of in->pack */
    bool packed[PACK_ORDERS]; /* since linear_in_take */
};

struct linear_in {
    size_t k, n;
    unsigned threads; /* that the scratch is for */
    bool integer, real;

    size_t n_groups, cap_groups;
    struct group *group;
    struct linear_job *job; /* LINEAR_PARTS_MAX, linear_run's: as its own they
                               would be cleared at each call */
    size_t cap_q, ldq;
    int16_t *q;
    size_t cap_pack[PACK_ORDERS];
    int8_t *pack[PACK_ORDERS]; /* of kernels.pack, if the set has it */
    size_t cap_lane;
    uint8_t *lane; /* linear_run's, where many columns meet a table */
    size_t cap_rows;
    uint32_t *of; /* each row's group */
    uint32_t *lo; /* counted from its group's first column */
    float *xscale;
    bool *wide;
    size_t cap_x, ldx;
    float *x;
    size_t cap_scratch, scratch_size;
    char *scratch;
};

/* Elements of a column, with zeros up to a whole step of the set. */
static inline size_t padded(const struct linear_in *in,
                            const struct kernels *kn)
{
    return (in->k + kn->k_step - 1) / kn->k_step * kn->k_step;
}

/* Rows that are worth waking a thread for. */
static inline size_t rounding_grain(const struct linear_in *in)
{
    return ROUND_MIN / 2 / (in->k + 1) + 1;
}

/* Column c of all groups' (struct group). */
static inline int16_t *column(const struct linear_in *in, size_t c)
{
    return in->q + c * in->ldq;
}

/* A group's packs of columns (kernels.pack). */
static inline size_t group_packs(const struct group *g,
                                 const struct kernels *kn)
{
    return kn->pack != NULL && g->cols >= kn->many ? linear_groups(g->cols) : 0;
}
