/* What a Core ML backend does, with every class that our headers declare: text
 * for the compiler, the analyzer and the linker, not for running. Manual
 * retain/release, as in daemon/engine/coreml.
 */
#include <Block.h>
#import <CoreML/CoreML.h>
#import <Foundation/Foundation.h>
#import <dispatch/dispatch.h>
#import <objc/message.h>
#import <objc/runtime.h>

struct sample {
    NSURL *compiled;
    MLModelConfiguration *conf;
    MLModel *model;
    MLState *state;
    MLPredictionOptions *options;
    id<NSObject> activity;
    dispatch_queue_t queue;
};

int sample_open(struct sample *s, const char *package, const char *target);
int sample_step(struct sample *s, float *out, size_t n);
int sample_save(struct sample *s, void *to, size_t bytes);
double sample_plan(struct sample *s);
void sample_close(struct sample *s);

/* Gives the same two arrays to each prediction, without a dictionary. */
@interface SampleInputs : NSObject <MLFeatureProvider> {
    NSSet<NSString *> *names;
    MLFeatureValue *x;
}
- (instancetype)initWithArray:(MLMultiArray *)array;
@end

@implementation SampleInputs

- (instancetype)initWithArray:(MLMultiArray *)array
{
    self = [super init];
    if (self != nil) {
        names = [[NSSet alloc] initWithArray:@[ @"x" ]];
        x = [[MLFeatureValue featureValueWithMultiArray:array] retain];
    }
    return self;
}

- (void)dealloc
{
    [names release];
    [x release];
    [super dealloc];
}

- (NSSet<NSString *> *)featureNames
{
    return names;
}

- (MLFeatureValue *)featureValueForName:(NSString *)name
{
    return [name isEqualToString:@"x"] ? x : nil;
}

@end

/* Compile `package` and keep the result at `target`. */
static int compile(NSURL *package, NSURL *target)
{
    __block NSURL *made = nil;
    dispatch_semaphore_t done = dispatch_semaphore_create(0);
    [MLModel compileModelAtURL:package
             completionHandler:^(NSURL *url, NSError *error) {
               if (error == nil) {
                   made = [url retain];
               }
               dispatch_semaphore_signal(done);
             }];
    dispatch_semaphore_wait(done, DISPATCH_TIME_FOREVER);
    dispatch_release(done);
    if (made == nil) {
        return -1;
    }
    NSFileManager *files = [NSFileManager defaultManager];
    NSError *error = nil;
    [files removeItemAtURL:target error:nil];
    BOOL good = [files moveItemAtURL:made toURL:target error:&error];
    [made release];
    return good ? 0 : (int)[error code];
}

static MLModelConfiguration *configuration(NSString *function)
{
    MLModelConfiguration *conf =
        [[[MLModelConfiguration alloc] init] autorelease];
    MLOptimizationHints *hints = [[MLOptimizationHints alloc] init];
    hints.reshapeFrequency = MLReshapeFrequencyHintFrequent;
    hints.specializationStrategy = MLSpecializationStrategyFastPrediction;
    conf.computeUnits = MLComputeUnitsCPUAndNeuralEngine;
    conf.optimizationHints = hints;
    conf.functionName = function;
    conf.modelDisplayName = @"sample";
    [hints release];
    return conf;
}

/* What the model declares of its inputs and states; -1 when it is not ours. */
static int look(MLModelDescription *d)
{
    for (NSString *name in d.inputDescriptionsByName) {
        MLFeatureDescription *f = [d.inputDescriptionsByName objectForKey:name];
        MLMultiArrayConstraint *c = f.multiArrayConstraint;
        MLMultiArrayShapeConstraint *shape = c.shapeConstraint;
        if (f.type != MLFeatureTypeMultiArray ||
            c.dataType != MLMultiArrayDataTypeFloat16) {
            return -1;
        }
        if (shape.type == MLMultiArrayShapeConstraintTypeRange &&
            [shape.sizeRangeForDimension objectAtIndex:0].rangeValue.length ==
                0) {
            return -1;
        }
    }
    for (NSString *name in d.stateDescriptionsByName) {
        MLStateConstraint *c =
            [d.stateDescriptionsByName objectForKey:name].stateConstraint;
        if (c == nil || c.bufferShape.count != 4) {
            return -1;
        }
    }
    return 0;
}

/* An array of `rows` x `columns` in an IOSurface; nil on failure. */
static MLMultiArray *surface_array(size_t rows, size_t columns)
{
    NSDictionary *want =
        @{(NSString *)kCVPixelBufferIOSurfacePropertiesKey : @{}};
    CVPixelBufferRef buffer = NULL;
    if (CVPixelBufferCreate(kCFAllocatorDefault, columns, rows,
                            kCVPixelFormatType_OneComponent16Half,
                            (CFDictionaryRef)want,
                            &buffer) != kCVReturnSuccess) {
        return nil;
    }
    MLMultiArray *array = nil;
    IOSurfaceRef surface = CVPixelBufferGetIOSurface(buffer);
    if (surface != NULL && IOSurfaceGetBytesPerRow(surface) ==
                               CVPixelBufferGetBytesPerRow(buffer)) {
        @try {
            array = [[MLMultiArray alloc]
                initWithPixelBuffer:buffer
                              shape:@[ @1, @(rows), @(columns), @1 ]];
        } @catch (NSException *e) {
            NSString *why = e.reason != nil ? e.reason : e.name;
            (void)[why UTF8String];
        }
    }
    CVPixelBufferRelease(buffer);
    return [array autorelease];
}

int sample_open(struct sample *s, const char *package, const char *target)
{
    int rc = -1;
    @autoreleasepool {
        NSString *from = [NSString stringWithUTF8String:package];
        NSString *to = [NSString stringWithUTF8String:target];
        NSError *error = nil;
        if (from == nil || to == nil) {
            return -1;
        }
        s->compiled = [[NSURL fileURLWithPath:to isDirectory:YES] retain];
        rc = compile([NSURL fileURLWithPath:from isDirectory:YES],
                     s -> compiled);
        if (rc != 0) {
            return rc;
        }
        s->conf = [configuration(@"decode") retain];
        s->model = [[MLModel modelWithContentsOfURL:s->compiled
                                      configuration:s->conf
                                              error:&error] retain];
        if (s->model == nil) {
            return [error.domain isEqualToString:MLModelErrorDomain]
                       ? (int)error.code
                       : -1;
        }
        rc = look(s->model.modelDescription);
        s->state = [s->model newState];
        s->options = [[MLPredictionOptions alloc] init];
        s->queue = dispatch_queue_create("sample", DISPATCH_QUEUE_SERIAL);
        s->activity = [[[NSProcessInfo processInfo]
            beginActivityWithOptions:
                NSActivityUserInitiatedAllowingIdleSystemSleep
                              reason:@"a sample"] retain];
    }
    return rc;
}

/* Copy `n` values of an array that Core ML may have padded. */
static size_t copy_out(MLMultiArray *array, float *out, size_t n)
{
    __block size_t got = 0;
    NSInteger step = [[array.strides objectAtIndex:0] integerValue];
    [array getBytesWithHandler:^(const void *bytes, NSInteger size) {
      const __fp16 *from = bytes;
      while (got < n &&
             (NSInteger)((got * (size_t)step + 1) * sizeof(*from)) <= size) {
          out[got] = (float)from[got * (size_t)step];
          got++;
      }
    }];
    return got;
}

int sample_step(struct sample *s, float *out, size_t n)
{
    size_t got = 0;
    @autoreleasepool {
        MLMultiArray *x = surface_array(64, 4);
        MLMultiArray *y = surface_array(64, 4);
        if (x == nil || y == nil) {
            return -1;
        }
        SampleInputs *inputs = [[SampleInputs alloc] initWithArray:x];
        NSError *error = nil;
        s->options.outputBackings = @{@"hidden" : y};
        id<MLFeatureProvider> result = nil;
        @try {
            result = [s->model predictionFromFeatures:inputs
                                           usingState:s->state
                                              options:s->options
                                                error:&error];
        } @finally {
            [inputs release];
        }
        MLMultiArray *hidden =
            [result featureValueForName:@"hidden"].multiArrayValue;
        if (hidden == nil) {
            return error != nil ? (int)error.code : -1;
        }
        if (hidden != y) { /* the backing was not taken */
            [hidden transferToMultiArray:y];
        }
        got = copy_out(y, out, n);
    }
    return got == n ? 0 : -1;
}

int sample_save(struct sample *s, void *to, size_t bytes)
{
    __block int rc = -1;
    @autoreleasepool {
        @try {
            [s->state
                getMultiArrayForStateNamed:@"layers_0_k_state"
                                   handler:^(MLMultiArray *buffer) {
                                     [buffer getMutableBytesWithHandler:^(
                                                 void *from, NSInteger size,
                                                 NSArray<NSNumber *> *strides) {
                                       if (strides.count == 4 &&
                                           size >= (NSInteger)bytes) {
                                           memcpy(to, from, bytes);
                                           rc = 0;
                                       }
                                     }];
                                   }];
        } @catch (NSException *e) {
            rc = -2;
        }
    }
    return rc;
}

/* Operations of `block` that prefer the Neural Engine, by cost. */
static double on_engine(MLComputePlan *plan,
                        MLModelStructureProgramBlock *block)
{
    double sum = 0;
    for (MLModelStructureProgramOperation *op in block.operations) {
        MLComputePlanDeviceUsage *usage =
            [plan computeDeviceUsageForMLProgramOperation:op];
        MLComputePlanCost *cost = [plan estimatedCostOfMLProgramOperation:op];
        id<MLComputeDeviceProtocol> device = usage.preferredComputeDevice;
        if ([device isKindOfClass:[MLNeuralEngineComputeDevice class]]) {
            sum += cost.weight;
        } else if ([device isKindOfClass:[MLCPUComputeDevice class]] ||
                   [device isKindOfClass:[MLGPUComputeDevice class]]) {
            for (MLModelStructureProgramNamedValueType *output in op.outputs) {
                MLModelStructureProgramValueType *type = output.type;
                (void)[output.name UTF8String];
                (void)type;
            }
            MLModelStructureProgramArgument *argument =
                [op.inputs objectForKey:@"x"];
            for (MLModelStructureProgramBinding *binding in argument.bindings) {
                MLModelStructureProgramValue *value = binding.value;
                (void)value;
            }
        }
        for (MLModelStructureProgramBlock *inner in op.blocks) {
            sum += on_engine(plan, inner);
        }
    }
    return sum;
}

static int has_engine(void)
{
    for (id<MLComputeDeviceProtocol> device in MLAllComputeDevices()) {
        if ([device isKindOfClass:[MLNeuralEngineComputeDevice class]]) {
            return ((MLNeuralEngineComputeDevice *)device).totalCoreCount > 0;
        }
    }
    return 0;
}

double sample_plan(struct sample *s)
{
    __block double share = has_engine() ? 0 : -1;
    @autoreleasepool {
        dispatch_semaphore_t done = dispatch_semaphore_create(0);
        [MLComputePlan
            loadContentsOfURL:s->compiled
                configuration:s->conf
            completionHandler:^(MLComputePlan *plan, NSError *error) {
              MLModelStructure *structure = plan.modelStructure;
              MLModelStructureProgram *program = structure.program;
              for (NSString *name in program.functions) {
                  MLModelStructureProgramFunction *f =
                      [program.functions objectForKey:name];
                  share = error == nil && plan != nil ? on_engine(plan, f.block)
                                                      : -1;
              }
              dispatch_semaphore_signal(done);
            }];
        dispatch_semaphore_wait(done, DISPATCH_TIME_FOREVER);
        MLModelAsset *asset = [MLModelAsset modelAssetWithURL:s->compiled
                                                        error:nil];
        [asset functionNamesWithCompletionHandler:^(NSArray<NSString *> *names,
                                                    NSError *error) {
          if (error != nil || names.count == 0) {
              share = -1;
          }
          dispatch_semaphore_signal(done);
        }];
        dispatch_semaphore_wait(done, DISPATCH_TIME_FOREVER);
        dispatch_release(done);
    }
    return share;
}

void sample_close(struct sample *s)
{
    if (s->activity != nil) {
        [[NSProcessInfo processInfo] endActivity:s->activity];
    }
    [s->activity release];
    [s->options release];
    [s->state release];
    [s->model release];
    [s->conf release];
    [s->compiled release];
    if (s->queue != NULL) {
        dispatch_release(s->queue);
    }
}

/* What the other classes are for: text, data, numbers, the process. */
int main(int argc, char **argv)
{
    NSAutoreleasePool *pool = [[NSAutoreleasePool alloc] init];
    NSOperatingSystemVersion os =
        [NSProcessInfo processInfo].operatingSystemVersion;
    NSMutableArray<NSNumber *> *numbers = [NSMutableArray arrayWithCapacity:4];
    NSMutableDictionary<NSString *, NSNumber *> *named =
        [NSMutableDictionary dictionary];
    NSMutableData *data = [[NSMutableData alloc] initWithLength:16];
    NSData *copy = [NSData dataWithBytes:data.bytes length:data.length];
    NSValue *range = [NSValue valueWithRange:(NSRange){0, (NSUInteger)argc}];
    MLDictionaryFeatureProvider *features =
        [[MLDictionaryFeatureProvider alloc] initWithDictionary:@{} error:nil];
    struct sample s = {.model = nil};
    int rc =
        argc > 2 && features != nil ? sample_open(&s, argv[1], argv[2]) : 64;
    [numbers addObject:@(os.majorVersion)];
    numbers[0] = @1.5f;
    named[@"range"] = [numbers objectAtIndex:0];
    if ([NSBundle mainBundle].bundleIdentifier == nil || copy.length != 16 ||
        range.rangeValue.length == 0) {
        rc = 78;
    }
    sample_close(&s);
    [features release];
    [data release];
    [pool drain];
    return rc;
}
