/* fuse_impl.h - what the passes of fuse.h look at nodes and constants with. */
#pragma once

#include <string.h>

#include "engine/cpu/graph/bind.h"
#include "engine/cpu/graph/fuse.h"
#include "engine/cpu/ops/ops.h"

static inline bool is(const struct node *n, const char *type)
{
    return n != NULL && strcmp(n->def->type, type) == 0;
}

static inline const struct node *def_of(const struct fuse *f, int slot)
{
    return slot >= 0 && f->def[slot] >= 0 ? f->m->nodes[f->def[slot]] : NULL;
}

static inline bool const_float1(const struct fuse *f, int slot, float *ret)
{
    const struct val *v = slot >= 0 ? &f->m->consts[slot] : NULL;
    if (v == NULL || v->kind != VAL_F32 || v->n != 1) {
        return false;
    }
    *ret = v->f[0];
    return true;
}

static inline bool const_bool(const struct fuse *f, int slot, bool absent,
                              bool want)
{
    const struct val *v = slot >= 0 ? &f->m->consts[slot] : NULL;
    if (v == NULL) {
        return absent == want;
    }
    return v->kind == VAL_BOOL && v->n == 1 && (v->i[0] != 0) == want;
}

static inline const struct mil_type *type_of(const struct fuse *f, int slot)
{
    return f->m->slot_type[slot];
}

/* The last axis, as a scalar or a vector of one. */
static inline bool is_last_axis(const struct fuse *f, int slot, int rank)
{
    const struct val *v = slot >= 0 ? &f->m->consts[slot] : NULL;
    return v != NULL && v->kind == VAL_I32 && v->n == 1 &&
           (v->i[0] == -1 || v->i[0] == rank - 1);
}

/* A constant vector of which every element is `want`; absent is `absent`. */
static inline bool fuse_all(const struct fuse *f, int slot, bool absent,
                            int32_t want)
{
    const struct val *v = slot >= 0 ? &f->m->consts[slot] : NULL;
    if (v == NULL) {
        return absent;
    }
    bool all = v->kind == VAL_I32 || v->kind == VAL_BOOL;
    for (size_t i = 0; all && i < v->n; i++) {
        all = v->i[i] == want;
    }
    return all;
}

/* fuse_experts.c: a pass of fuse_whole. */
CHECKED int fuse_experts(struct fuse *f, struct err *e);
/* fuse_attention.c: a pass of fuse_run. */
CHECKED int fuse_attention(struct fuse *f, struct err *e);
