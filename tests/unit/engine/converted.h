/* converted.h - a small model, converted by the test and opened. */
#pragma once

#include <unistd.h>

#include "../unit.h"
#include "base/file.h"
#include "convert/convert.h"
#include "engine/engine.h"

/* conf/demo's model. */
#define DEMO_GGUF "aned-demo.gguf"

/* A new folder for this program's bundles, below $TMPDIR or /tmp. */
static inline void converted_dir(char dir[256], const char *name)
{
    const char *tmp = getenv("TMPDIR");
    (void)snprintf(dir, 256, "%s/aned-%s-XXXXXX", tmp != NULL ? tmp : "/tmp",
                   name);
    assert_non_null(mkdtemp(dir));
}

/* The demo model's path. */
static inline const char *converted_demo(void)
{
    static char path[1024];
    (void)snprintf(path, sizeof(path), "%s/../conf/demo/" DEMO_GGUF,
                   unit_tests());
    return path;
}

/* Convert `source` to the bundle `out`, if it is not there yet, and open it.
 * quant, shape, kv: NULL is the converter's default. */
static inline struct engine *converted_open(const char *source, const char *out,
                                            const char *quant,
                                            const char *shape, const char *kv,
                                            const struct engine_conf *conf)
{
    struct convert_options o;
    struct convert_result r;
    struct engine *g = NULL;
    struct err e;
    convert_options_init(&o);
    o.source = source;
    o.out = out;
    o.quant = quant;
    o.shape = shape;
    o.kv = kv;
    o.threads = 1;
    if (!file_exists(out)) {
        unit_ok(convert_run(&o, &r, &e), &e);
    }
    unit_ok(engine_open(out, conf, &g, &e), &e);
    return g;
}
