/* standin.h - what the stand-in's files share.
 *
 * The headers in tests/coreml/include declare Core ML's classes without
 * instance variables, as Apple's do; here a class's data lies behind its object
 * (class_createInstance's extra bytes). Memory is managed by hand: what a
 * function named *_new returns is the caller's. Functions begin with si_: the
 * library is linked whole into aned.
 */
#pragma once

#import <CoreML/CoreML.h>
#import <Foundation/Foundation.h>
#include <objc/runtime.h>
#include <pthread.h>
#include <stdatomic.h>

#include "count.h"
#include "fault.h"
#include "mil/mil.h"
#include "noise.h"
#include "rule.h"
#include "run.h"

/* --- object.m: objects with data behind them --- */

/* In an @implementation: objects of this class are counted as `count_`, which
 * its -dealloc takes back, and have a zeroed `type` behind them. */
#define STANDIN_CLASS(count_, type)                    \
    +(id)allocWithZone : (NSZone *)zone                \
    {                                                  \
        (void)zone;                                    \
        return si_alloc(self, (count_), sizeof(type)); \
    }

id si_alloc(Class class, enum count c, size_t n);

static inline void *si_data(id object)
{
    return object_getIndexedIvars(object);
}

/* An error of Core ML's domain. */
NSError *si_error(NSInteger code, NSString *format, ...)
    __attribute__((format(__NSString__, 2, 3)));
/* The same with its cause in NSUnderlyingErrorKey. */
NSError *si_error_because(NSError *cause, NSInteger code, NSString *format, ...)
    __attribute__((format(__NSString__, 3, 4)));
/* Set *ret (may be NULL) to error; nil. */
id si_fail(NSError **ret, NSError *error);

/* Run the block on a new thread, as Core ML's own queues do. */
void si_elsewhere(void (^block)(void));
/* A C++ exception that nobody catches, on another thread: the process aborts,
 * and this call does not return. */
__attribute__((noreturn)) void si_terminate(NSString *what);
/* Never comes back. */
__attribute__((noreturn)) void si_hang(void);

NSArray *si_numbers(const int64_t *v, int n);
/* The first n numbers of an array of NSNumber; -1: it has more than
 * MIL_RANK_MAX, or one is negative. */
int si_ints(NSArray *numbers, int64_t *ret);
NSString *si_shape_text(const int64_t *dims, int rank); /* "1 x 64 x 4" */

/* --- pixels.m --- */

enum pixels_use { PIXELS_IDLE, PIXELS_INPUT, PIXELS_BACKING };

/* The memory of a pixel buffer. Between open and close it may be read, or
 * written. `use`: what a prediction does with it meanwhile, so that a lock from
 * outside breaks a rule. */
void *si_pixels_open(CVPixelBufferRef p, bool write);
void si_pixels_close(CVPixelBufferRef p, bool write);
void si_pixels_set_use(CVPixelBufferRef p, enum pixels_use use);
/* Somebody outside has it locked now. */
bool si_pixels_locked(CVPixelBufferRef p);

/* --- array.m --- */

enum array_kind {
    ARRAY_OWN,
    ARRAY_BORROWED, /* the caller's memory */
    ARRAY_PIXELS,
    ARRAY_RESULT, /* of a prediction: its pages are read-only */
    ARRAY_STATE,  /* inside a state's handler */
};

struct array {
    enum array_kind kind;
    MLMultiArrayDataType dtype;
    int rank;
    int64_t dims[MIL_RANK_MAX];
    int64_t strides[MIL_RANK_MAX]; /* elements */
    size_t count;                  /* elements */
    size_t bytes;                  /* from the first to the last one */
    void *p;                       /* not of ARRAY_PIXELS */
    CVPixelBufferRef pixels;       /* owned */
    bool locked;    /* pixels: dataPointer has locked them for good */
    bool was_input; /* a prediction has read it */
    bool dead;      /* a state's array after its handler */
    atomic_int use; /* enum pixels_use; relaxed, as it guards nothing */
    void (^deallocator)(void *);
};

static inline struct array *array_of(MLMultiArray *a)
{
    return si_data(a);
}

size_t si_array_element(MLMultiArrayDataType t); /* bytes; 0: no such type */
MLMultiArrayDataType si_array_dtype(enum mil_dtype t);
/* An array of new pages, rows of the innermost dimension padded to 64 bytes if
 * wanted, as the Neural Engine has them. Autoreleased. */
MLMultiArray *si_array_paged(enum array_kind kind, MLMultiArrayDataType dtype,
                             const int64_t *dims, int rank, bool padded);
/* The elements one behind the other, to or from an array. Elements between rows
 * stay as they are. */
void si_array_gather(MLMultiArray *a, void *dense);
void si_array_scatter(MLMultiArray *a, const void *dense);
/* A prediction begins or ends to use it. */
void si_array_begin(MLMultiArray *a, enum pixels_use use);
void si_array_end(MLMultiArray *a);
/* The state's handler is over: no call to it is allowed any more. */
void si_array_kill(MLMultiArray *a);

/* --- value.m --- */

/* What a prediction returns. values: MLFeatureValue by name. Autoreleased. */
id<MLFeatureProvider> si_result_provider(NSDictionary *values);

/* --- describe.m --- */

MLModelDescription *si_description_new(const struct mil_function *f);
/* Whether an input's or output's shape is allowed; *error: why not. */
bool si_description_allows(const struct mil_feature *f, MLMultiArray *a,
                           NSError **error);
/* The trap of fixed inputs beside ranged ones in a function with states
 * (coremltools issue 2548): compiles, and kills the process that loads it. Set
 * *fixed and *ranged (NULL before) to one of each. */
bool si_description_mixed(const struct mil_function *f, const char **fixed,
                          const char **ranged);

/* --- compile.m --- */

/* What a compiled model is: the package's own files, and where they came from.
 */
struct compiled {
    char path[FAULT_PATH_MAX];
    char source[FAULT_PATH_MAX];
    char os_build[FAULT_TEXT_MAX];
};
/* nil, or why url is no compiled model. */
NSError *si_compiled_read(NSURL *url, struct compiled *ret);
/* Make a .mlmodelc in a temporary folder. */
NSURL *si_compile_package(NSURL *url, NSError **error);

/* --- model.m --- */

struct model {
    struct compiled from;
    struct mil_program *program; /* owned */
    const struct mil_function *fn;
    struct run_model *run;           /* a user of it */
    MLModelConfiguration *conf;      /* owned */
    MLModelDescription *description; /* owned */
    bool neural;                     /* runs on the Neural Engine */
    atomic_bool busy;                /* a prediction runs */
    struct call *call;               /* predict.m's, owned */
};

static inline struct model *model_of(MLModel *m)
{
    return si_data(m);
}

struct fault_target si_model_target(const struct model *m);
/* The first time that this process, or the cache, meets the key, sleep. */
void si_model_specialise(const struct model *m, uint64_t key, unsigned ms,
                         const char *cache);

/* --- predict.m --- */

struct call *si_call_new(const struct model *m);
void si_call_free(struct call *c); /* NULL is fine */
/* state, options: nil without. */
id<MLFeatureProvider> si_model_predict(MLModel *m, id<MLFeatureProvider> input,
                                       MLState *state,
                                       MLPredictionOptions *options,
                                       NSError **error);

/* --- state.m --- */

/* A state of f, made by m. Owned. */
MLState *si_state_new(struct run_model *m, const struct mil_function *f);
/* A prediction uses it, from begin to end. NULL: it has no values. */
struct run_state *si_state_begin(MLState *s);
void si_state_end(MLState *s);

/* --- device.m --- */

/* Singletons. neural: nil when the machine has none. */
id<MLComputeDeviceProtocol> si_device_cpu(void);
id<MLComputeDeviceProtocol> si_device_neural(void);

/* --- structure.m --- */

struct structure_op {
    const void *plan;     /* which plan it belongs to */
    double weight;        /* of the function's cost; 0: a constant */
    bool counted, on_ane; /* has a device */
};
/* The program. fn: whose operations are weighed for `plan`; NULL: nobody's.
 * ops: comma-separated names, which are not for the Neural Engine; NULL: none,
 * "": all. Autoreleased. */
MLModelStructure *si_structure_of(const struct mil_program *p, const void *plan,
                                  const struct mil_function *fn,
                                  const char *ops);
/* Read a compiled model's program. `from` may be NULL. What is no compiled
 * model, but there, ends the process, as with Core ML. */
NSError *si_structure_read(NSURL *url, struct mil_program **ret,
                           struct compiled *from);
/* Inside of an operation. */
struct structure_op *si_structure_op_of(MLModelStructureProgramOperation *op);
