/* plan.m - MLComputePlan: what runs where. Everything but constants is for the
 * Neural Engine, if there is one and the configuration allows it, and if no
 * fault says otherwise.
 */
#include <string.h>

#import "standin.h"

/* --- MLComputePlanDeviceUsage, MLComputePlanCost --- */

struct usage {
    NSArray *supported; /* owned */
    id preferred;       /* a singleton */
};

@implementation MLComputePlanDeviceUsage

STANDIN_CLASS(COUNT_STRUCTURE, struct usage)

static struct usage *usage_of(MLComputePlanDeviceUsage *u)
{
    return si_data(u);
}

- (void)dealloc
{
    si_count_add(COUNT_STRUCTURE, -1);
    [usage_of(self)->supported release];
    [super dealloc];
}

- (NSArray<id<MLComputeDeviceProtocol>> *)supportedComputeDevices
{
    return usage_of(self)->supported;
}

- (id<MLComputeDeviceProtocol>)preferredComputeDevice
{
    return usage_of(self)->preferred;
}

@end

struct cost {
    double weight;
};

@implementation MLComputePlanCost

STANDIN_CLASS(COUNT_STRUCTURE, struct cost)

static struct cost *cost_of(MLComputePlanCost *c)
{
    return si_data(c);
}

- (void)dealloc
{
    si_count_add(COUNT_STRUCTURE, -1);
    [super dealloc];
}

- (double)weight
{
    return cost_of(self)->weight;
}

@end

/* --- MLComputePlan --- */

struct plan {
    MLModelStructure *structure; /* owned */
    MLComputeUnits units;
};

@implementation MLComputePlan

STANDIN_CLASS(COUNT_PLAN, struct plan)

static struct plan *plan_of(MLComputePlan *p)
{
    return si_data(p);
}

- (void)dealloc
{
    si_count_add(COUNT_PLAN, -1);
    [plan_of(self)->structure release];
    [super dealloc];
}

/* Which operations a fault takes off the Neural Engine; NULL: none. */
static const char *off_ane(const struct model *m, struct fault_hit *hit)
{
    struct fault_target t = si_model_target(m);
    return si_fault_hit(FAULT_PLAN_CPU, &t, hit) ? hit->ops : NULL;
}

static MLComputePlan *load(NSURL *url, MLModelConfiguration *conf,
                           NSError **error)
{
    struct mil_program *program = NULL;
    struct fault_conf f;
    struct fault_hit hit = {0};
    struct model m = {.conf = conf};
    MLComputePlan *o = nil;
    si_count_add(COUNT_PLANS, 1);
    si_fault_conf(&f);
    NSError *why = si_structure_read(url, &program, &m.from);
    struct fault_target t = si_model_target(&m);
    if (why == nil && si_fault_hit(FAULT_PLAN_ERROR, &t, NULL)) {
        why = si_error(MLModelErrorGeneric, @"injected in a plan");
    }
    if (why == nil) {
        m.fn = mil_function_find(program, t.function);
        why = m.fn != NULL
                  ? nil
                  : si_error(MLModelErrorGeneric,
                             @"Function %s is not in the model", t.function);
    }
    if (why == nil) {
        si_model_specialise(&m, 0, f.load_ms, f.cache);
        o = [[[MLComputePlan alloc] init] autorelease];
        plan_of(o)->units = [conf computeUnits];
        plan_of(o)->structure =
            [si_structure_of(program, o, m.fn, off_ane(&m, &hit)) retain];
    }
    mil_free(program);
    return why == nil ? o : si_fail(error, why);
}

+ (void)loadContentsOfURL:(NSURL *)url
            configuration:(MLModelConfiguration *)configuration
        completionHandler:
            (void (^)(MLComputePlan *computePlan, NSError *error))handler
{
    MLModelConfiguration *conf = [[configuration copy] autorelease];
    si_elsewhere(^{
      NSError *error = nil;
      MLComputePlan *p = load(url, conf, &error);
      handler(p, p != nil ? nil : error);
    });
}

- (MLModelStructure *)modelStructure
{
    return plan_of(self)->structure;
}

- (MLComputePlanDeviceUsage *)computeDeviceUsageForMLProgramOperation:
    (MLModelStructureProgramOperation *)operation
{
    struct structure_op *op = si_structure_op_of(operation);
    MLComputeUnits units = plan_of(self)->units;
    if (op->plan != self || !op->counted) {
        return nil;
    }
    bool neural = op->on_ane && si_device_neural() != nil &&
                  (units == MLComputeUnitsAll ||
                   units == MLComputeUnitsCPUAndNeuralEngine);
    MLComputePlanDeviceUsage *u =
        [[[MLComputePlanDeviceUsage alloc] init] autorelease];
    struct usage *x = usage_of(u);
    x->preferred = neural ? si_device_neural() : si_device_cpu();
    x->supported = neural
                       ? [[NSArray alloc]
                             initWithObjects:si_device_cpu(), x->preferred, nil]
                       : [[NSArray alloc] initWithObjects:si_device_cpu(), nil];
    return u;
}

- (MLComputePlanCost *)estimatedCostOfMLProgramOperation:
    (MLModelStructureProgramOperation *)operation
{
    struct structure_op *op = si_structure_op_of(operation);
    if (op->plan != self || !op->counted) {
        return nil;
    }
    MLComputePlanCost *c = [[[MLComputePlanCost alloc] init] autorelease];
    cost_of(c)->weight = op->weight;
    return c;
}

@end
