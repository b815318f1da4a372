/* config.m - MLModelConfiguration, MLOptimizationHints, MLPredictionOptions. */
#import "standin.h"

/* --- MLOptimizationHints --- */

struct hints {
    MLReshapeFrequencyHint frequency;
    MLSpecializationStrategy strategy;
};

@implementation MLOptimizationHints

STANDIN_CLASS(COUNT_HINTS, struct hints)

static struct hints *hints_of(MLOptimizationHints *h)
{
    return si_data(h);
}

- (void)dealloc
{
    si_count_add(COUNT_HINTS, -1);
    [super dealloc];
}

- (id)copyWithZone:(NSZone *)zone
{
    MLOptimizationHints *h = [[[self class] allocWithZone:zone] init];
    *hints_of(h) = *hints_of(self);
    return h;
}

- (MLReshapeFrequencyHint)reshapeFrequency
{
    return hints_of(self)->frequency;
}

- (void)setReshapeFrequency:(MLReshapeFrequencyHint)v
{
    hints_of(self)->frequency = v;
}

- (MLSpecializationStrategy)specializationStrategy
{
    return hints_of(self)->strategy;
}

- (void)setSpecializationStrategy:(MLSpecializationStrategy)v
{
    hints_of(self)->strategy = v;
}

@end

/* --- MLModelConfiguration --- */

struct configuration {
    NSString *display_name, *function; /* owned */
    MLOptimizationHints *hints;        /* owned */
    MLComputeUnits units;
    BOOL low_precision;
};

@implementation MLModelConfiguration

STANDIN_CLASS(COUNT_CONFIGURATION, struct configuration)

static struct configuration *conf_of(MLModelConfiguration *c)
{
    return si_data(c);
}

- (instancetype)init
{
    self = [super init];
    conf_of(self)->units = MLComputeUnitsAll;
    conf_of(self)->hints = [[MLOptimizationHints alloc] init];
    return self;
}

- (void)dealloc
{
    struct configuration *c = conf_of(self);
    si_count_add(COUNT_CONFIGURATION, -1);
    [c->display_name release];
    [c->function release];
    [c->hints release];
    [super dealloc];
}

- (id)copyWithZone:(NSZone *)zone
{
    MLModelConfiguration *to = [[[self class] allocWithZone:zone] init];
    [to setModelDisplayName:[self modelDisplayName]];
    [to setFunctionName:[self functionName]];
    [to setOptimizationHints:[self optimizationHints]];
    [to setComputeUnits:[self computeUnits]];
    [to setAllowLowPrecisionAccumulationOnGPU:
            [self allowLowPrecisionAccumulationOnGPU]];
    return to;
}

- (NSString *)modelDisplayName
{
    return conf_of(self)->display_name;
}

- (void)setModelDisplayName:(NSString *)v
{
    NSString *old = conf_of(self)->display_name;
    conf_of(self)->display_name = [v copy];
    [old release];
}

- (NSString *)functionName
{
    return conf_of(self)->function;
}

- (void)setFunctionName:(NSString *)v
{
    NSString *old = conf_of(self)->function;
    conf_of(self)->function = [v copy];
    [old release];
}

- (MLOptimizationHints *)optimizationHints
{
    return conf_of(self)->hints;
}

- (void)setOptimizationHints:(MLOptimizationHints *)v
{
    MLOptimizationHints *old = conf_of(self)->hints;
    conf_of(self)->hints = [v copy];
    [old release];
}

- (MLComputeUnits)computeUnits
{
    return conf_of(self)->units;
}

- (void)setComputeUnits:(MLComputeUnits)v
{
    conf_of(self)->units = v;
}

- (BOOL)allowLowPrecisionAccumulationOnGPU
{
    return conf_of(self)->low_precision;
}

- (void)setAllowLowPrecisionAccumulationOnGPU:(BOOL)v
{
    conf_of(self)->low_precision = v;
}

@end

/* --- MLPredictionOptions --- */

struct options {
    NSDictionary *backings; /* owned */
};

@implementation MLPredictionOptions

STANDIN_CLASS(COUNT_OPTIONS, struct options)

static struct options *options_of(MLPredictionOptions *o)
{
    return si_data(o);
}

- (instancetype)init
{
    self = [super init];
    options_of(self)->backings = [[NSDictionary alloc] init];
    return self;
}

- (void)dealloc
{
    si_count_add(COUNT_OPTIONS, -1);
    [options_of(self)->backings release];
    [super dealloc];
}

- (NSDictionary<NSString *, id> *)outputBackings
{
    return options_of(self)->backings;
}

- (void)setOutputBackings:(NSDictionary<NSString *, id> *)v
{
    NSDictionary *old = options_of(self)->backings;
    options_of(self)->backings = [v copy];
    [old release];
}

@end
