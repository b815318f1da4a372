/* plan.m - where the system would run a function's operations. */
#include <string.h>

#import "engine/coreml/coreml.h"

/* "ios18.conv" is a conv. */
static const char *type_of(const char *name)
{
    const char *dot = strchr(name, '.');
    return strncmp(name, "ios", 3) == 0 && dot != NULL ? dot + 1 : name;
}

static enum backend_device device(id<MLComputeDeviceProtocol> d)
{
    if ([d isKindOfClass:[MLNeuralEngineComputeDevice class]]) {
        return BACKEND_NEURAL_ENGINE;
    }
    return [d isKindOfClass:[MLGPUComputeDevice class]] ? BACKEND_GPU
                                                        : BACKEND_CPU;
}

/* --- operations --- */

struct list {
    MLComputePlan *plan;
    struct backend_plan *ret;
    size_t cap;
};

static int grow(struct list *l, struct err *e)
{
    if (l->ret->n_ops < l->cap) {
        return 0;
    }
    size_t cap = l->cap == 0 ? 256 : l->cap * 2;
    if (cap > MIL_OPS_MAX) {
        return err_set(e, ERR_TOO_BIG, "more than %u operations", MIL_OPS_MAX);
    }
    struct backend_plan_op *ops =
        realloc(l->ret->ops, cap * sizeof(*l->ret->ops));
    if (ops == NULL) {
        return err_set(e, ERR_NOMEM, "a plan");
    }
    l->ret->ops = ops;
    l->cap = cap;
    return 0;
}

static int add(struct list *l, MLModelStructureProgramOperation *op,
               MLComputePlanDeviceUsage *usage, struct err *e)
{
    RETERR(grow(l, e));
    struct backend_plan_op *to = &l->ret->ops[l->ret->n_ops++];
    MLComputePlanCost *cost = [l->plan estimatedCostOfMLProgramOperation:op];
    MLModelStructureProgramNamedValueType *out = [[op outputs] firstObject];
    const char *name = [[out name] UTF8String];
    const char *type = [[op operatorName] UTF8String];
    *to = (struct backend_plan_op){
        .preferred = device([usage preferredComputeDevice]),
        .cost = cost != nil ? [cost weight] : -1,
    };
    (void)snprintf(to->name, sizeof(to->name), "%s", name != NULL ? name : "");
    (void)snprintf(to->type, sizeof(to->type), "%s",
                   type != NULL ? type_of(type) : "");
    for (id<MLComputeDeviceProtocol> d in [usage supportedComputeDevices]) {
        to->supported |= 1U << device(d);
    }
    return 0;
}

/* Operations that have no device compute nothing at run time. */
static int add_block(struct list *l, MLModelStructureProgramBlock *block,
                     int depth, struct err *e)
{
    if (depth > MIL_NEST_MAX) {
        return err_set(e, ERR_TOO_BIG, "blocks are nested more than %d deep",
                       MIL_NEST_MAX);
    }
    for (MLModelStructureProgramOperation *op in [block operations]) {
        MLComputePlanDeviceUsage *usage =
            [l->plan computeDeviceUsageForMLProgramOperation:op];
        if (usage != nil) {
            RETERR(add(l, op, usage, e));
        }
        for (MLModelStructureProgramBlock *inner in [op blocks]) {
            RETERR(add_block(l, inner, depth + 1, e));
        }
    }
    return 0;
}

/* --- the plan --- */

static int load(const struct backend_model *m, const char *function,
                const struct backend_conf *conf, MLComputePlan **ret,
                struct err *e)
{
    CoreMLAnswer *answer = [[[CoreMLAnswer alloc] init] autorelease];
    if (!file_is_dir(m->compiled.path)) { /* it would end the process */
        return err_set(e, ERR_BACKEND, "the compiled model is gone; try again");
    }
    [MLComputePlan loadContentsOfURL:folder_url(m->compiled.path)
                       configuration:coreml_configuration(function, conf)
                   completionHandler:^(MLComputePlan *plan, NSError *error) {
                     (void)[answer giveValue:plan error:error];
                   }];
    return [answer take:ret watch:&conf->watch what:"planning" error:e];
}

static int list_ops(const struct backend_model *m, MLComputePlan *plan,
                    struct backend_plan *ret, struct err *e)
{
    MLModelStructureProgram *program = [[plan modelStructure] program];
    NSString *name = [NSString stringWithUTF8String:m->fn->name];
    MLModelStructureProgramFunction *f =
        name != nil ? [[program functions] objectForKey:name] : nil;
    struct list l = {.plan = plan, .ret = ret};
    if (f == nil) {
        return err_set(e, ERR_BACKEND, "Core ML's plan has no function %s",
                       m->fn->name);
    }
    return add_block(&l, [f block], 0, e);
}

static int make(struct backend_model *m, const char *pkg, const char *function,
                const struct backend_conf *conf, struct backend_plan *ret,
                struct err *e)
{
    MLComputePlan *plan = nil;
    RETERR(coreml_read(m, pkg, function, e));
    RETERR(compile_find(m, pkg, conf, e));
    @try {
        RETERR(load(m, function, conf, &plan, e));
        return list_ops(m, plan, ret, e);
    } @catch (NSException *x) {
        return coreml_raised(e, x, "planning");
    }
}

int coreml_plan(const char *pkg, const char *function,
                const struct backend_conf *conf, struct backend_plan *ret,
                struct err *e)
{
    int rc = 0;
    struct backend_model *m = calloc(1, sizeof(*m));
    if (m == NULL) {
        return err_set(e, ERR_NOMEM, "a model");
    }
    *ret = (struct backend_plan){0};
    @autoreleasepool {
        rc = make(m, pkg, function, conf, ret, e);
    }
    coreml_close(m);
    if (rc < 0) {
        free(ret->ops);
        *ret = (struct backend_plan){0};
    }
    return rc;
}
