/* activity.m - what macOS is told of this process: that somebody waits for it.
 * The system slows down, or puts to sleep with the machine, what seems to do
 * nothing. The machine itself may still sleep when its user is away. */
#import "engine/coreml/coreml.h"

static id<NSObject> activity; /* owned; nil: at rest */

void coreml_at_work(bool works)
{
    if (works == (activity != nil)) {
        return;
    }
    @autoreleasepool {
        NSProcessInfo *p = [NSProcessInfo processInfo];
        if (works) {
            activity = [[p
                beginActivityWithOptions:
                    NSActivityUserInitiatedAllowingIdleSystemSleep
                                  reason:@"answering a request"] retain];
        } else {
            [p endActivity:activity];
            [activity release];
            activity = nil;
        }
    }
}
