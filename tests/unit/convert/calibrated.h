/* calibrated.h - small models that are calibrated in a temporary folder. */
#pragma once

#include "convert/calibrate/calibrate.h"
#include "convert/quality/quality.h"
#include "mkfamilies.h"
#include "room.h"

struct model {
    struct buf file;
    struct gguf *g;
    struct decoder d;
    struct quant_choice forms;
    struct calibrate_slice head;
};

static inline void open_model(struct model *m, const struct mk *of,
                              const char *quant, const char *head)
{
    struct err e = {0};
    *m = (struct model){0};
    m->file = mk_gguf(of);
    unit_ok(gguf_open_mem(m->file.p, m->file.n, &m->g, &e), &e);
    unit_ok(arch_read(m->g, &m->d, &e), &e);
    unit_ok(quant_choice_init(&m->forms, quant, head, &e), &e);
    m->head = (struct calibrate_slice){0, m->d.vocab};
}

static inline void close_model(struct model *m)
{
    arch_fini(&m->d);
    gguf_close(m->g);
    buf_fini(&m->file);
}

static inline struct calibrate_conf conf_of(const struct model *m,
                                            const char *dir)
{
    return (struct calibrate_conf){.threads = 1,
                                   .sequences = CALIBRATE_SEQUENCES_MIN,
                                   .forms = &m->forms,
                                   .dir = dir,
                                   .vocab = "/nonexistent",
                                   .source = "a source",
                                   .heads = &m->head,
                                   .n_heads = 1};
}

/* The files of a run; calibration is closed. */
static inline void calibrate(const struct model *m,
                             const struct calibrate_conf *conf)
{
    struct calibration *c = NULL;
    struct err e = {0};
    int rc = calibrate_run(&m->d, conf, &c, &e);
    if (rc != 0) {
        fail_msg("%s: %s: %s", m->d.arch->name, err_name(rc), e.msg);
    }
    calibration_close(c);
}

static inline const char *file_of(const char *dir, uint32_t l,
                                  uint32_t n_layers)
{
    static char path[2048];
    if (l == n_layers) {
        (void)snprintf(path, sizeof(path), "%s/head", dir);
    } else {
        (void)snprintf(path, sizeof(path), "%s/layer_%03u", dir, l);
    }
    return path;
}

static inline struct buf read_file(const char *path)
{
    struct buf b = {0};
    struct err e = {0};
    unit_ok(file_read(path, (size_t)1 << 24, &b, &e), &e);
    return b;
}

static inline void same_files(const char *a, const char *b,
                              uint32_t n_layers)
{
    for (uint32_t l = 0; l <= n_layers; l++) {
        struct buf x = read_file(file_of(a, l, n_layers));
        struct buf y = read_file(file_of(b, l, n_layers));
        if (x.n != y.n || memcmp(x.p, y.p, x.n) != 0) {
            fail_msg("%s and %s differ in layer %u", a, b, l);
        }
        buf_fini(&x);
        buf_fini(&y);
    }
}

static inline void copy_file(const char *from, const char *to)
{
    struct err e = {0};
    struct buf b = read_file(from);
    unit_ok(file_write(to, b.p, b.n, &e), &e);
    buf_fini(&b);
}

static inline void clear(const char *dir)
{
    struct err e = {0};
    unit_ok(file_rmtree(dir, &e), &e);
}

/* 0 without, 1 with. */
static inline unsigned has_codes(struct calibration *c,
                                 const struct part *p)
{
    struct weights_codes codes = {0};
    bool there = calibration_codes(c, p, 0, p->rows, &codes);
    assert_true(!there || (codes.codes != NULL && codes.params != NULL));
    return there;
}

static inline double distance(const struct mk *of, const char *quant,
                              const char *calibrate, const char *experts)
{
    struct model m;
    struct convert_result r = {0};
    struct quality q = {0};
    struct err e = {0};
    const struct quality_conf conf = {.threads = 2};
    open_model(&m, of, quant, NULL);
    struct convert_options o = options(write_model(of, "m.gguf"), at("b"));
    o.quant = quant;
    o.calibrate = calibrate;
    o.experts = experts;
    unit_ok(convert_run(&o, &r, &e), &e);
    unit_ok(quality_measure(at("b"), &m.d, &conf, &q, &e), &e);
    double kl = q.program.kl_mean;
    quality_fini(&q);
    clear(at("b"));
    close_model(&m);
    return kl;
}
