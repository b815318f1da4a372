/* wait.m - answers that Core ML gives on its own threads. */

#import "engine/coreml/coreml.h"

enum { WAITING, GIVEN, LEFT }; /* LEFT: nobody waits any more */

@implementation CoreMLAnswer

- (instancetype)init
{
    self = [super init];
    if (self != nil) {
        done = dispatch_semaphore_create(0);
    }
    return self;
}

- (void)dealloc
{
    dispatch_release(done);
    [value release];
    [error release];
    [super dealloc];
}

- (BOOL)finish
{
    int was = WAITING;
    if (!atomic_compare_exchange_strong(&stage, &was, GIVEN)) {
        return NO;
    }
    (void)dispatch_semaphore_signal(done);
    return YES;
}

- (BOOL)giveValue:(id)aValue error:(NSError *)anError
{
    value = [aValue retain];
    error = [anError retain];
    return [self finish];
}

- (BOOL)giveFailure:(const struct err *)failure
{
    why = *failure;
    return [self finish];
}

/* False: nobody wants the answer. An answer that came meanwhile is taken. */
- (BOOL)leave
{
    int was = WAITING;
    return atomic_compare_exchange_strong(&stage, &was, LEFT);
}

- (int)waitFor:(const struct backend_watch *)watch error:(struct err *)e
{
    const int64_t slice = (int64_t)(BACKEND_ASK_MS * NSEC_PER_MSEC);
    while (dispatch_semaphore_wait(
               done, dispatch_time(DISPATCH_TIME_NOW, slice)) != 0) {
        if (watch->go != NULL && !watch->go(watch->ctx) && [self leave]) {
            return err_set(e, ERR_CANCELLED, "while Core ML was at work");
        }
    }
    return 0;
}

- (int)take:(id *)ret
      watch:(const struct backend_watch *)watch
       what:(const char *)what
      error:(struct err *)e
{
    RETERR([self waitFor:watch error:e]);
    if (value != nil) {
        *ret = [[value retain] autorelease];
        return 0;
    }
    if (error == nil && why.code != 0) {
        if (e != NULL) {
            *e = why;
        }
        return why.code;
    }
    return coreml_error(e, error, what);
}

@end
