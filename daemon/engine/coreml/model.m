/* model.m - a function of a package: read, compiled, loaded. */
#include <string.h>

#import "engine/coreml/coreml.h"

/* CPU and Neural Engine: what the Neural Engine refuses runs on the CPU and
 * shows there; the GPU would hide it. Widths change from step to step; a longer
 * load for shorter predictions is what a daemon wants. */
#define HINTS "frequent reshapes, fast prediction"

static const struct coreml_conf *own_conf(const struct backend_conf *conf)
{
    static const struct coreml_conf defaults;
    return conf->coreml != NULL ? conf->coreml : &defaults;
}

MLModelConfiguration *coreml_configuration(const char *function,
                                           const struct backend_conf *conf)
{
    MLModelConfiguration *c = [[[MLModelConfiguration alloc] init] autorelease];
    MLOptimizationHints *hints =
        [[[MLOptimizationHints alloc] init] autorelease];
    [hints setReshapeFrequency:MLReshapeFrequencyHintFrequent];
    [hints setSpecializationStrategy:MLSpecializationStrategyFastPrediction];
    [c setOptimizationHints:hints];
    [c setComputeUnits:own_conf(conf)->cpu_only
                           ? MLComputeUnitsCPUOnly
                           : MLComputeUnitsCPUAndNeuralEngine];
    if (function != NULL) {
        [c setFunctionName:[NSString stringWithUTF8String:function]];
    }
    return c;
}

int coreml_read(struct backend_model *m, const char *pkg, const char *function,
                struct err *e)
{
    RETERR(mil_read(pkg, &m->program, e));
    RETERR(mil_validate(m->program, e));
    m->fn = mil_function_find(m->program, function);
    return m->fn != NULL ? 0
                         : err_set(e, ERR_NOT_FOUND, "no function %s",
                                   function != NULL ? function : "(default)");
}

/* --- load --- */

/* What Instruments shows: "layers_00_08 t4". */
static NSString *display_name(const struct backend_model *m,
                              const char *function)
{
    NSString *path = [NSString stringWithUTF8String:m->compiled.source];
    NSString *name = [[path lastPathComponent] stringByDeletingPathExtension];
    return
        [NSString stringWithFormat:@"%@%s%s", name, function != NULL ? " " : "",
                                   function != NULL ? function : ""];
}

static int load_once(struct backend_model *m, const char *function,
                     const struct backend_conf *conf, struct err *e)
{
    CoreMLAnswer *answer = [[[CoreMLAnswer alloc] init] autorelease];
    MLModelConfiguration *c = coreml_configuration(function, conf);
    MLModel *model = nil;
    [c setModelDisplayName:display_name(m, function)];
    @try {
        [MLModel loadContentsOfURL:folder_url(m->compiled.path)
                     configuration:c
                 completionHandler:^(MLModel *loaded, NSError *error) {
                   (void)[answer giveValue:loaded error:error];
                 }];
    } @catch (NSException *x) {
        return coreml_raised(e, x, "loading");
    }
    RETERR([answer take:&model watch:&conf->watch what:"loading" error:e]);
    m->runner = [[CoreMLRunner alloc] initWithModel:model];
    return 0;
}

/* What was compiled earlier may be damaged, or of a system before an update
 * that did not change its name: it is compiled anew, once. */
static int load(struct backend_model *m, const char *function,
                const struct backend_conf *conf, struct err *e)
{
    uint64_t stamp = cache_stamp(&m->compiled);
    int rc = load_once(m, function, conf, e);
    if (rc != ERR_BACKEND || m->counts.compiled) {
        return rc;
    }
    RETERR(compile_again(m, stamp, conf, e));
    return load_once(m, function, conf, e);
}

/* --- what the bits depend on --- */

/* Without a measurement a width agrees with itself only. A function without T
 * cannot say which width it is: it gives all that were measured. */
static int take_widths(struct backend_model *m, const struct backend_conf *conf,
                       struct err *e)
{
    m->exact = calloc(conf->n_exact_widths + 1, sizeof(*m->exact));
    if (m->exact == NULL) {
        return err_set(e, ERR_NOMEM, "widths");
    }
    for (size_t i = 0; i < conf->n_exact_widths; i++) {
        uint32_t t = conf->exact_widths[i];
        if (!m->flexible || (t >= m->t_min && t <= m->t_max)) {
            m->exact[m->n_exact++] = t;
        }
    }
    if (m->n_exact == 0) {
        m->exact[m->n_exact++] = (uint32_t)m->t_max;
    }
    return 0;
}

void coreml_machine(const struct backend_conf *conf, char out[ARITH_BYTES_MAX])
{
    (void)snprintf(out, ARITH_BYTES_MAX, "%.40s, %.30s, %s, " HINTS,
                   system_chip(), system_build(),
                   own_conf(conf)->cpu_only ? "CPU" : "CPU and NE");
}

/* --- open, close --- */

static int open_model(struct backend_model *m, const char *pkg,
                      const char *function, const struct backend_conf *conf,
                      struct err *e)
{
    RETERR(coreml_read(m, pkg, function, e));
    RETERR(ports_make(m, e));
    RETERR(compile_find(m, pkg, conf, e));
    RETERR(load(m, function, conf, e));
    RETERR(ports_match(m, e));
    RETERR(take_widths(m, conf, e));
    coreml_machine(conf, m->arith);
    return 0;
}

int coreml_open(const char *pkg, const char *function,
                const struct backend_conf *conf, struct backend_model **ret,
                struct err *e)
{
    int rc = 0;
    struct backend_model *m = calloc(1, sizeof(*m));
    if (m == NULL) {
        return err_set(e, ERR_NOMEM, "a model");
    }
    @autoreleasepool {
        rc = open_model(m, pkg, function, conf, e);
    }
    if (rc < 0) {
        coreml_close(m);
        return rc;
    }
    *ret = m;
    return 0;
}

void coreml_close(struct backend_model *m)
{
    if (m == NULL) {
        return;
    }
    @autoreleasepool {
        [m->runner release];
        [m->in_names release];
        [m->out_names release];
        [m->state_names release];
        [m->in_index release];
    }
    compile_drop(m);
    free(m->in);
    free(m->out);
    free(m->states);
    free(m->features);
    free(m->exact);
    mil_free(m->program);
    free(m);
}
