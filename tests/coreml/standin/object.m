/* object.m - objects with data behind them, errors, threads, blocks. */
#define _GNU_SOURCE 1
#include <dlfcn.h>
#include <string.h>
#include <unistd.h>

#import "standin.h"

NSString *const MLModelErrorDomain = @"com.apple.CoreML";

id si_alloc(Class class, enum count c, size_t n)
{
    si_count_add(c, 1);
    return NSAllocateObject(class, n, NULL);
}

/* --- errors --- */

static NSError *error_of(NSError *cause, NSInteger code, NSString *text)
{
    NSMutableDictionary *info = [NSMutableDictionary dictionary];
    [info setObject:text forKey:NSLocalizedDescriptionKey];
    if (cause != nil) {
        [info setObject:cause forKey:NSUnderlyingErrorKey];
    }
    return [NSError errorWithDomain:MLModelErrorDomain code:code userInfo:info];
}

NSError *si_error(NSInteger code, NSString *format, ...)
{
    va_list ap;
    va_start(ap, format);
    NSString *s = [[[NSString alloc] initWithFormat:format
                                          arguments:ap] autorelease];
    va_end(ap);
    return error_of(nil, code, s);
}

NSError *si_error_because(NSError *cause, NSInteger code, NSString *format, ...)
{
    va_list ap;
    va_start(ap, format);
    NSString *s = [[[NSString alloc] initWithFormat:format
                                          arguments:ap] autorelease];
    va_end(ap);
    return error_of(cause, code, s);
}

id si_fail(NSError **ret, NSError *error)
{
    if (ret != NULL) {
        *ret = error;
    }
    return nil;
}

/* --- threads --- */

static void *run_block(void *arg)
{
    void (^block)(void) = arg;
    @autoreleasepool {
        block();
        Block_release(block);
    }
    return NULL;
}

void si_elsewhere(void (^block)(void))
{
    pthread_t t;
    pthread_attr_t detached;
    must(pthread_attr_init(&detached) == 0);
    must(pthread_attr_setdetachstate(&detached, PTHREAD_CREATE_DETACHED) == 0);
    must(pthread_create(&t, &detached, run_block, Block_copy(block)) == 0);
    must(pthread_attr_destroy(&detached) == 0);
}

void si_hang(void)
{
    for (;;) {
        (void)pause();
    }
}

void si_terminate(NSString *what)
{
    si_elsewhere(^{
      (void)fprintf(stderr,
                    "libc++abi: terminating due to uncaught exception of "
                    "type %s\n",
                    [what UTF8String]);
      abort();
    });
    si_hang();
}

/* --- numbers --- */

NSArray *si_numbers(const int64_t *v, int n)
{
    NSMutableArray *a = [NSMutableArray arrayWithCapacity:(NSUInteger)n];
    for (int i = 0; i < n; i++) {
        [a addObject:[NSNumber numberWithLongLong:v[i]]];
    }
    return a;
}

int si_ints(NSArray *numbers, int64_t *ret)
{
    if ([numbers count] > MIL_RANK_MAX) {
        return -1;
    }
    int n = 0;
    for (NSNumber *x in numbers) {
        ret[n] = [x longLongValue];
        if (ret[n] < 0) {
            return -1;
        }
        n++;
    }
    return n;
}

NSString *si_shape_text(const int64_t *dims, int rank)
{
    return [si_numbers(dims, rank) componentsJoinedByString:@" x "];
}

/* --- blocks ---
 *
 * libBlocksRuntime copies blocks, but knows nothing of Objective-C: a captured
 * object is neither retained nor released. These two stand in front of its own.
 */

enum { BLOCK_FIELD_IS_OBJECT_ = 3 };

typedef void block_assign(void *, const void *, const int);
typedef void block_dispose(const void *, const int);

void _Block_object_assign(void *to, const void *object, const int flags);
void _Block_object_dispose(const void *object, const int flags);

static block_assign *next_assign;
static block_dispose *next_dispose;

static void find_next(void)
{
    *(void **)(&next_assign) = dlsym(RTLD_NEXT, "_Block_object_assign");
    *(void **)(&next_dispose) = dlsym(RTLD_NEXT, "_Block_object_dispose");
    must(next_assign != NULL && next_dispose != NULL);
}

static pthread_once_t once = PTHREAD_ONCE_INIT;

void _Block_object_assign(void *to, const void *object, const int flags)
{
    (void)pthread_once(&once, find_next);
    if (flags == BLOCK_FIELD_IS_OBJECT_) {
        id o = [(id)(uintptr_t)object retain];
        memcpy(to, &o, sizeof(o));
    } else {
        next_assign(to, object, flags);
    }
}

void _Block_object_dispose(const void *object, const int flags)
{
    (void)pthread_once(&once, find_next);
    if (flags == BLOCK_FIELD_IS_OBJECT_) {
        [(id)(uintptr_t)object release];
    } else {
        next_dispose(object, flags);
    }
}
