/* model.m - MLModel: loading. */
#include <fcntl.h>
#include <signal.h>
#include <string.h>
#include <unistd.h>

#include "base/file.h"
#include "base/hash.h"
#import "standin.h"

#define KEYS_MAX 4096 /* shapes that a process remembers */

struct fault_target si_model_target(const struct model *m)
{
    return (struct fault_target){
        .path = m->from.path,
        .source = m->from.source,
        .function = [[m->conf functionName] UTF8String],
    };
}

/* --- specialisation --- */

/* Whether this process has met the key; it has from now on. */
static bool met(uint64_t key)
{
    static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
    static uint64_t keys[KEYS_MAX];
    static size_t n;
    (void)pthread_mutex_lock(&lock);
    size_t i = 0;
    while (i < n && keys[i] != key) {
        i++;
    }
    bool found = i < n;
    if (!found && n < KEYS_MAX) {
        keys[n++] = key;
    }
    (void)pthread_mutex_unlock(&lock);
    return found;
}

void si_model_specialise(const struct model *m, uint64_t key, unsigned ms,
                         const char *cache)
{
    char path[FAULT_PATH_MAX];
    struct err e = {0};
    NSString *name = [m->conf functionName];
    NSString *text = [NSString
        stringWithFormat:@"%s %@ %ld %llu %s", m->from.path,
                         name != nil ? name : @"", (long)[m->conf computeUnits],
                         (unsigned long long)key, m->from.os_build];
    uint64_t h = hash_bytes([text UTF8String], strlen([text UTF8String]));
    int n = snprintf(path, sizeof(path), "%s/%016llx", cache,
                     (unsigned long long)h);
    must(n > 0 && (size_t)n < sizeof(path));
    if (met(h) || (cache[0] != '\0' && file_exists(path))) {
        return;
    }
    si_count_add(COUNT_SPECIALISED, 1);
    si_fault_sleep(ms);
    if (cache[0] != '\0') {
        must(file_mkdirs(cache, 0700, &e) == 0);
        must(file_replace(path, "", 0, &e) == 0);
    }
}

/* --- loading --- */

static NSError *error_14(const struct model *m)
{
    return si_error(MLModelErrorGeneric,
                    @"Failed to build the model execution plan using a "
                    @"model architecture file '%s/model.mil' with error "
                    @"code: -14.",
                    m->from.path);
}

/* nil, or the fault that a load meets. */
static NSError *load_faults(const struct model *m,
                            const struct fault_conf *conf)
{
    struct fault_target t = si_model_target(m);
    if (si_fault_hit(FAULT_LOAD_KILL, &t, NULL)) {
        (void)kill(getpid(), SIGKILL);
    }
    if (si_fault_hit(FAULT_LOAD_HANG, &t, NULL)) {
        si_hang();
    }
    if (si_fault_hit(FAULT_LOAD_ABORT, &t, NULL)) {
        si_terminate(@"std::runtime_error: injected in a load");
    }
    if (si_fault_hit(FAULT_LOAD_EXCEPTION, &t, NULL)) {
        [NSException raise:NSGenericException format:@"injected in a load"];
    }
    if (si_fault_hit(FAULT_LOAD_ERROR, &t, NULL) ||
        strcmp(m->from.os_build, conf->os_build) != 0) {
        return error_14(m);
    }
    return nil;
}

static void check_mixture(const struct mil_function *f)
{
    const char *fixed = NULL;
    const char *ranged = NULL;
    if (si_description_mixed(f, &fixed, &ranged)) {
        si_terminate([NSString
            stringWithFormat:
                @"CoreML::MLNeuralNetworkUtilities::"
                @"EnumeratedWithRangeInputsException: A model doesn't allow a "
                @"mixture of enumerated and range shape flexibility, but "
                @"feature (%s) uses the enumerated shape and feature (%s) uses "
                @"the range shape.",
                fixed, ranged]);
    }
}

static NSError *open_program(struct model *m, const struct fault_conf *conf)
{
    struct err e = {0};
    const char *function = [[m->conf functionName] UTF8String];
    if (mil_read(m->from.path, &m->program, &e) < 0) {
        return si_error(MLModelErrorIO, @"%s", e.msg);
    }
    m->fn = mil_function_find(m->program, function);
    if (m->fn == NULL) {
        return si_error(MLModelErrorGeneric, @"Function %s is not in the model",
                        function != NULL ? function : "(default)");
    }
    check_mixture(m->fn);
    if (si_run_open(m->from.path, function, conf->fp32, conf->threads, &m->run,
                    &e) < 0) {
        return si_error(MLModelErrorGeneric, @"Error in declaring network. %s",
                        e.msg);
    }
    return nil;
}

static MLModel *load(Class class, NSURL *url, MLModelConfiguration *conf,
                     NSError **error)
{
    struct fault_conf f;
    MLModel *o = [[[class alloc] init] autorelease];
    struct model *m = model_of(o);
    si_count_add(COUNT_LOADS, 1);
    si_fault_conf(&f);
    m->conf = [conf copy];
    NSError *why = si_compiled_read(url, &m->from);
    if (why == nil) {
        why = load_faults(m, &f);
    }
    if (why == nil) {
        si_model_specialise(m, 0, f.load_ms, f.cache);
        why = open_program(m, &f);
    }
    if (why != nil) {
        return si_fail(error, why);
    }
    m->description = si_description_new(m->fn);
    m->neural = si_device_neural() != nil &&
                ([conf computeUnits] == MLComputeUnitsAll ||
                 [conf computeUnits] == MLComputeUnitsCPUAndNeuralEngine);
    m->call = si_call_new(m);
    return o;
}

@implementation MLModel

STANDIN_CLASS(COUNT_MODEL, struct model)

- (void)dealloc
{
    struct model *m = model_of(self);
    si_count_add(COUNT_MODEL, -1);
    si_call_free(m->call);
    si_run_unref(m->run);
    mil_free(m->program);
    [m->conf release];
    [m->description release];
    [super dealloc];
}

+ (NSArray<id<MLComputeDeviceProtocol>> *)availableComputeDevices
{
    return MLAllComputeDevices();
}

+ (NSURL *)compileModelAtURL:(NSURL *)modelURL error:(NSError **)error
{
    return si_compile_package(modelURL, error);
}

+ (void)compileModelAtURL:(NSURL *)modelURL
        completionHandler:
            (void (^)(NSURL *compiledModelURL, NSError *error))handler
{
    si_elsewhere(^{
      NSError *error = nil;
      NSURL *done = si_compile_package(modelURL, &error);
      handler(done, done != nil ? nil : error);
    });
}

+ (instancetype)modelWithContentsOfURL:(NSURL *)url
                         configuration:(MLModelConfiguration *)configuration
                                 error:(NSError **)error
{
    return load(self, url, configuration, error);
}

+ (void)loadContentsOfURL:(NSURL *)url
            configuration:(MLModelConfiguration *)configuration
        completionHandler:(void (^)(MLModel *model, NSError *error))handler
{
    MLModelConfiguration *conf = [[configuration copy] autorelease];
    si_elsewhere(^{
      NSError *error = nil;
      MLModel *m = load(self, url, conf, &error);
      handler(m, m != nil ? nil : error);
    });
}

- (MLModelDescription *)modelDescription
{
    return model_of(self)->description;
}

- (MLModelConfiguration *)configuration
{
    return model_of(self)->conf;
}

- (MLState *)newState
{
    return si_state_new(model_of(self)->run, model_of(self)->fn);
}

- (id<MLFeatureProvider>)predictionFromFeatures:(id<MLFeatureProvider>)input
                                        options:(MLPredictionOptions *)options
                                          error:(NSError **)error
{
    return si_model_predict(self, input, nil, options, error);
}

- (id<MLFeatureProvider>)predictionFromFeatures:(id<MLFeatureProvider>)input
                                     usingState:(MLState *)state
                                          error:(NSError **)error
{
    return si_model_predict(self, input, state, nil, error);
}

- (id<MLFeatureProvider>)predictionFromFeatures:(id<MLFeatureProvider>)input
                                     usingState:(MLState *)state
                                        options:(MLPredictionOptions *)options
                                          error:(NSError **)error
{
    return si_model_predict(self, input, state, options, error);
}

@end

/* --- MLModelAsset --- */

struct asset {
    struct compiled from;
};

@implementation MLModelAsset

STANDIN_CLASS(COUNT_ASSET, struct asset)

- (void)dealloc
{
    si_count_add(COUNT_ASSET, -1);
    [super dealloc];
}

+ (instancetype)modelAssetWithURL:(NSURL *)compiledModelURL
                            error:(NSError **)error
{
    MLModelAsset *o = [[[self alloc] init] autorelease];
    struct asset *a = si_data(o);
    NSError *why = si_compiled_read(compiledModelURL, &a->from);
    return why == nil ? o : si_fail(error, why);
}

- (void)functionNamesWithCompletionHandler:
    (void (^)(NSArray<NSString *> *functionNames, NSError *error))handler
{
    si_elsewhere(^{
      struct asset *a = si_data(self);
      struct mil_program *p = NULL;
      struct err e = {0};
      if (mil_read(a->from.path, &p, &e) < 0) {
          handler(nil, si_error(MLModelErrorIO, @"%s", e.msg));
          return;
      }
      NSMutableArray *names = [NSMutableArray array];
      for (size_t i = 0; i < p->n_functions; i++) {
          [names
              addObject:[NSString stringWithUTF8String:p->functions[i]->name]];
      }
      mil_free(p);
      handler(names, nil);
    });
}

@end
