/* foundation.m - what GNUstep lacks of Foundation and CoreFoundation. */
#include <string.h>

#import "standin.h"

/* --- CoreFoundation --- */

const CFAllocatorRef kCFAllocatorDefault = NULL;

CFTypeRef CFRetain(CFTypeRef cf)
{
    return [(id)(uintptr_t)cf retain];
}

void CFRelease(CFTypeRef cf)
{
    [(id)(uintptr_t)cf release];
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
    struct activity *x = si_data(a);
    bool open = !atomic_exchange(&x->ended, true);
    if (open) {
        si_count_add(COUNT_ACTIVITIES_OPEN, -1);
    }
    return open;
}

/* An activity also ends with its object. */
- (void)dealloc
{
    si_count_add(COUNT_ACTIVITY, -1);
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
    si_count_add(COUNT_ACTIVITIES_OPEN, 1);
    return [[[StandinActivity alloc] init] autorelease];
}

- (void)endActivity:(id<NSObject>)activity
{
    if (!end((StandinActivity *)activity)) {
        si_rule_broken(RULE_ACTIVITY_ENDED, "it was ended before");
    }
}

@end
