/* foundation.m - what GNUstep lacks of Foundation and CoreFoundation. */
#include <string.h>

#import "standin.h"

/* --- CoreFoundation --- */

const CFAllocatorRef kCFAllocatorDefault = NULL;
const CFDictionaryKeyCallBacks kCFTypeDictionaryKeyCallBacks = {0};
const CFDictionaryValueCallBacks kCFTypeDictionaryValueCallBacks = {0};

CFTypeRef CFRetain(CFTypeRef cf)
{
    return [(id)(uintptr_t)cf retain];
}

void CFRelease(CFTypeRef cf)
{
    [(id)(uintptr_t)cf release];
}

/* Of objects: with the callbacks of CFType, as an NSDictionary is. */
CFDictionaryRef
CFDictionaryCreate(CFAllocatorRef allocator, const void **keys,
                   const void **values, CFIndex numValues,
                   const CFDictionaryKeyCallBacks *keyCallBacks,
                   const CFDictionaryValueCallBacks *valueCallBacks)
{
    (void)allocator;
    must(keyCallBacks == &kCFTypeDictionaryKeyCallBacks &&
         valueCallBacks == &kCFTypeDictionaryValueCallBacks);
    NSMutableDictionary *d = [[NSMutableDictionary alloc] init];
    for (CFIndex i = 0; i < numValues; i++) {
        [d setObject:(id)(uintptr_t)values[i] forKey:(id)(uintptr_t)keys[i]];
    }
    return (CFDictionaryRef)d;
}

/* --- activities --- */

struct activity {
    atomic_bool ended;
};

@interface StandinActivity : NSObject
@end

@implementation StandinActivity

STANDIN_CLASS(COUNT_ACTIVITY, struct activity)

static bool end(StandinActivity *a)
{
    struct activity *x = standin_data(a);
    bool open = !atomic_exchange(&x->ended, true);
    if (open) {
        count_add(COUNT_ACTIVITIES_OPEN, -1);
    }
    return open;
}

/* An activity also ends with its object. */
- (void)dealloc
{
    standin_gone(self, COUNT_ACTIVITY);
    (void)end(self);
    [super dealloc];
}

@end

/* GNUstep has these methods too, but nothing happens in them. A category that
 * is loaded later takes their place. */
#pragma clang diagnostic ignored "-Wobjc-protocol-method-implementation"
@implementation NSProcessInfo (Standin)

- (id)beginActivityWithOptions:(NSActivityOptions)options
                        reason:(NSString *)reason
{
    (void)options;
    must(reason != nil);
    count_add(COUNT_ACTIVITIES_OPEN, 1);
    return [[[StandinActivity alloc] init] autorelease];
}

- (void)endActivity:(id<NSObject>)activity
{
    if (!end((StandinActivity *)activity)) {
        rule_broken(RULE_ACTIVITY_ENDED, "it was ended before");
    }
}

@end
