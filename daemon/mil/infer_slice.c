/* infer_slice.c - slice_by_index, slice_by_size, slice_update. */
#include <string.h>

#include "mil/sig.h"

struct slice {
    bool begin_known, end_known;
    int64_t begin[MIL_RANK_MAX], end[MIL_RANK_MAX], stride[MIL_RANK_MAX];
    bool begin_mask[MIL_RANK_MAX], end_mask[MIL_RANK_MAX],
        squeeze[MIL_RANK_MAX];
};

static int slice_params(struct infer *i, struct slice *s)
{
    int rank = in_type(i, "x")->rank;
    size_t n = (size_t)rank;
    for (int k = 0; k < rank; k++) {
        s->stride[k] = 1;
    }
    RETERR(in_vector(i, "begin", rank, s->begin, &s->begin_known));
    RETERR(in_vector(i, "end", rank, s->end, &s->end_known));
    RETERR(in_ints(i, "stride", n, s->stride));
    RETERR(in_bools(i, "begin_mask", n, s->begin_mask));
    RETERR(in_bools(i, "end_mask", n, s->end_mask));
    RETERR(in_bools(i, "squeeze_mask", n, s->squeeze));
    for (int k = 0; k < rank; k++) {
        if (s->stride[k] == 0 || s->stride[k] < -INT32_MAX ||
            s->stride[k] > INT32_MAX) {
            return in_fail(i, ERR_MIL_INVALID, "stride", "%lld",
                           (long long)s->stride[k]);
        }
    }
    return 0;
}

/* What a slice has whatever the dimension is: 1 for "-1 to the end" and the
 * like, counts of 0 and 1 between bounds of one sign; else MIL_UNKNOWN. */
static int64_t slice_fixed(const struct slice *s, int k)
{
    int64_t stride = s->stride[k];
    bool begin = s->begin_known && !s->begin_mask[k];
    bool end = s->end_known && !s->end_mask[k];
    int64_t b = s->begin[k];
    int64_t z = s->end[k];
    if (begin && s->end_mask[k] &&
        ((b == 0 && stride < 0) || (b == -1 && stride > 0))) {
        return 1;
    }
    if (!begin || !end || (b < 0) != (z < 0) || (b < 0) != (stride < 0)) {
        return MIL_UNKNOWN;
    }
    int64_t span = stride > 0 ? z - b : b - z;
    int64_t step = stride > 0 ? stride : -stride;
    int64_t count = span <= 0 ? 0 : (span - 1) / step + 1;
    return count <= 1 ? count : MIL_UNKNOWN;
}

/* Elements of dimension k, d long (d >= 0), numpy's way. */
static int64_t slice_known(const struct slice *s, int k, int64_t d)
{
    int64_t stride = s->stride[k];
    int64_t lo = stride > 0 ? 0 : -1;
    int64_t hi = stride > 0 ? d : d - 1;
    int64_t b = s->begin[k] < 0 ? s->begin[k] + d : s->begin[k];
    int64_t z = s->end[k] < 0 ? s->end[k] + d : s->end[k];
    b = b < lo ? lo : b > hi ? hi : b;
    z = z < lo ? lo : z > hi ? hi : z;
    if (s->begin_mask[k]) {
        b = stride > 0 ? 0 : d - 1;
    }
    if (s->end_mask[k]) {
        z = stride > 0 ? d : -1;
    }
    int64_t span = stride > 0 ? z - b : b - z;
    int64_t step = stride > 0 ? stride : -stride;
    return span <= 0 ? 0 : (span - 1) / step + 1;
}

static int64_t slice_dim(const struct slice *s, int k, int64_t d)
{
    if (s->begin_mask[k] && s->end_mask[k] && d < 0) {
        return MIL_UNKNOWN;
    }
    int64_t fixed = slice_fixed(s, k);
    if (fixed >= 0 || d < 0) {
        return fixed;
    }
    if ((!s->begin_known && !s->begin_mask[k]) ||
        (!s->end_known && !s->end_mask[k])) {
        return d == 1 ? 1 : MIL_UNKNOWN;
    }
    return slice_known(s, k, d);
}

static int sliced(struct infer *i, int *ret_rank, int64_t *dims)
{
    const struct mil_type *x = in_type(i, "x");
    struct slice s = {0};
    int rank = 0;
    RETERR(slice_params(i, &s));
    for (int k = 0; k < x->rank; k++) {
        if (!s.squeeze[k]) {
            dims[rank++] = slice_dim(&s, k, x->dims[k]);
        } else if (s.begin_known && x->dims[k] >= 0 &&
                   (s.begin[k] >= x->dims[k] || s.begin[k] < -x->dims[k])) {
            return in_fail(i, ERR_MIL_SHAPE, "begin", "%lld is outside %lld",
                           (long long)s.begin[k], (long long)x->dims[k]);
        }
    }
    *ret_rank = rank;
    return 0;
}

int infer_slice(struct infer *i)
{
    int64_t dims[MIL_RANK_MAX];
    int rank = 0;
    int rc = sliced(i, &rank, dims);
    return rc < 0 ? rc : out_type(i, in_type(i, "x")->dtype, rank, dims);
}

int infer_slice_update(struct infer *i)
{
    int64_t dims[MIL_RANK_MAX];
    int rank = 0;
    RETERR(sliced(i, &rank, dims));
    if (in_type(i, "update")->rank == 0) {
        return in_fail(i, ERR_MIL_SHAPE, "update", "must not be a scalar");
    }
    RETERR(in_same_dims(i, "update", rank, dims));
    return out_like(i, "x");
}

int infer_slice_size(struct infer *i)
{
    const struct mil_type *x = in_type(i, "x");
    int64_t begin[MIL_RANK_MAX];
    int64_t size[MIL_RANK_MAX];
    int64_t dims[MIL_RANK_MAX];
    bool begin_known = false;
    bool size_known = false;
    RETERR(in_vector(i, "begin", x->rank, begin, &begin_known));
    RETERR(in_vector(i, "size", x->rank, size, &size_known));
    for (int k = 0; k < x->rank; k++) {
        int64_t d = x->dims[k];
        int64_t b = begin_known ? begin[k] : MIL_UNKNOWN;
        if (begin_known && b < 0) {
            b = d >= 0 ? b + d : MIL_UNKNOWN;
        }
        if (!size_known) {
            dims[k] = MIL_UNKNOWN;
        } else if (size[k] >= 0) {
            dims[k] = size[k];
        } else {
            dims[k] = size[k] == -1 && d >= 0 && b >= 0 && b <= d ? d - b
                                                                  : MIL_UNKNOWN;
        }
        if (size_known && size[k] < -1) {
            return in_fail(i, ERR_MIL_SHAPE, "size", "%lld",
                           (long long)size[k]);
        } else if (b >= 0 && d >= 0 && dims[k] >= 0 && dims[k] > d - b) {
            return in_fail(i, ERR_MIL_SHAPE, "size", "%lld from %lld of %lld",
                           (long long)dims[k], (long long)b, (long long)d);
        }
    }
    return out_type(i, x->dtype, x->rank, dims);
}
