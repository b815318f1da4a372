/* leaks.m - what GNUstep allocates for good is no leak of ours.
 *
 * A class of GNUstep's Foundation makes, when it gets its first message, one
 * object that nothing refers to afterwards. A suppression could name it only
 * by the frames of libobjc, for which LSan would have to unwind each allocation
 * slowly: that takes ten times as long as the tests do. So the classes get
 * their first message here, before main, while LSan does not look.
 */
#import "standin.h"

#if defined(__has_feature)
#if __has_feature(address_sanitizer)
#include <sanitizer/lsan_interface.h>

@interface StandinLeaks : NSObject
@end

@implementation StandinLeaks

+ (void)load
{
    __lsan_disable();
    @autoreleasepool {
        NSURL *url = [NSURL fileURLWithPath:@"/"];
        (void)[[url path] lastPathComponent];
    }
    __lsan_enable();
}

@end
#endif
#endif
