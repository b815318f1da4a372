/* read_family.h - small GGUFs of mkfamilies.h, read by convert/arch. */
#pragma once

#include "convert/arch/arch.h"
#include "mkfamilies.h"

/* A model read; what it borrows from lives as long. */
struct read {
    struct buf file;
    struct gguf *g;
    struct decoder d;
    struct err e;
};

static inline int try_read(const struct mk *m, struct read *r)
{
    *r = (struct read){0};
    r->file = mk_gguf(m);
    unit_ok(gguf_open_mem(r->file.p, r->file.n, &r->g, &r->e), &r->e);
    return arch_read(r->g, &r->d, &r->e);
}

static inline void end(struct read *r)
{
    arch_fini(&r->d);
    gguf_close(r->g);
    buf_fini(&r->file);
}

static inline void must_refuse(const struct mk *m, int code, const char *tells)
{
    struct read r;
    int rc = try_read(m, &r);
    if (rc != code || strstr(r.e.msg, tells) == NULL) {
        fail_msg("%s, '%s': %s: %s", m->arch, tells, err_name(rc), r.e.msg);
    }
    end(&r);
}
