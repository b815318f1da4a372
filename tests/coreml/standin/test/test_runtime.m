/* What is not Core ML: blocks, dispatch, activities. */
#include <signal.h>
#include <stdatomic.h>
#include <unistd.h>

#include "kit.h"

/* --- blocks --- */

static _Atomic(int) captured_live;

@interface Captured : NSObject
@end

@implementation Captured

- (id)init
{
    self = [super init];
    captured_live++;
    return self;
}

- (void)dealloc
{
    captured_live--;
    [super dealloc];
}

@end

typedef int (^counter)(void);

static counter block_of(Captured *c, int n)
{
    __block int calls = 0;
    counter inner = ^{
      return c != nil ? n : 0;
    };
    return Block_copy(^{
      calls++;
      return inner() + calls;
    });
}

/* A copied block owns what it captures, also a block that it captures, and lets
 * go of it when it is released. */
static void test_blocks(void **state)
{
    (void)state;
    counter blocks[200];
    @autoreleasepool {
        for (int i = 0; i < 200; i++) {
            Captured *c = [[Captured alloc] init];
            blocks[i] = block_of(c, i);
            [c release];
        }
    }
    assert_int_equal(captured_live, 200);
    for (int i = 0; i < 200; i++) {
        assert_int_equal(blocks[i](), i + 1);
        assert_int_equal(blocks[i](), i + 2);
        Block_release(blocks[i]);
    }
    assert_int_equal(captured_live, 0);
}

/* Handlers that Core ML keeps for its own threads are freed, too. */
static void test_handlers(void **state)
{
    (void)state;
    @autoreleasepool {
        NSURL *url = kit_compiled(kit_plain, @"plain");
        MLModelConfiguration *conf =
            [[[MLModelConfiguration alloc] init] autorelease];
        dispatch_semaphore_t done = dispatch_semaphore_create(0);
        for (int i = 0; i < 20; i++) {
            Captured *c = [[Captured alloc] init];
            [MLModel loadContentsOfURL:url
                         configuration:conf
                     completionHandler:^(MLModel *m, NSError *e) {
                       assert_null(e);
                       assert_non_null(c != nil ? m : nil);
                       (void)dispatch_semaphore_signal(done);
                     }];
            [c release];
            (void)dispatch_semaphore_wait(done, DISPATCH_TIME_FOREVER);
        }
        dispatch_release(done);
    }
    for (int i = 0; i < 2000 && captured_live != 0; i++) {
        (void)usleep(5000);
    }
    assert_int_equal(captured_live, 0);
    kit_no_objects();
}

/* The last of two references goes away on another thread, some time after this
 * thread used the object for the last time: no race for TSan, which does not
 * see GNUstep's reference counts. */
static void test_released_elsewhere(void **state)
{
    (void)state;
    @autoreleasepool {
        dispatch_queue_t q = dispatch_queue_create("q", DISPATCH_QUEUE_SERIAL);
        MLModel *m = kit_load(kit_compiled(kit_plain, @"plain"), nil);
        @autoreleasepool {
            MLMultiArray *x = kit_x(1, 1);
            dispatch_async(q, ^{
              (void)usleep(300000);
              (void)[x self];
            });
            (void)kit_predict(m, @{@"x" : x}, nil, nil);
        }
        dispatch_release(q);
    }
    kit_no_objects();
}

/* --- dispatch --- */

static void add_one(void *p)
{
    atomic_fetch_add((_Atomic int *)p, 1);
}

static void test_queue(void **state)
{
    (void)state;
    @autoreleasepool {
        dispatch_queue_t q =
            dispatch_queue_create("q", dispatch_queue_attr_make_with_qos_class(
                                           DISPATCH_QUEUE_SERIAL, 0x19, 0));
        __block int order = 0;
        __block int wrong = 0;
        for (int i = 0; i < 1000; i++) {
            dispatch_async(q, ^{
              wrong += order++ != i;
            });
        }
        __block int at = 0;
        dispatch_sync(q, ^{
          at = order;
        });
        assert_int_equal(at, 1000);
        assert_int_equal(wrong, 0);
        static _Atomic int n; /* the last one comes when it comes */
        atomic_store(&n, 0);
        dispatch_async_f(q, &n, add_one);
        dispatch_sync_f(q, &n, add_one);
        assert_int_equal(atomic_load(&n), 2);
        dispatch_retain(q);
        dispatch_release(q);
        dispatch_async_f(q, &n, add_one); /* what is queued is still done */
        dispatch_release(q);
        for (int i = 0; i < 60000 && atomic_load(&n) < 3; i++) {
            (void)usleep(1000);
        }
        assert_int_equal(atomic_load(&n), 3);
    }
    kit_no_objects();
}

static void test_semaphore(void **state)
{
    (void)state;
    dispatch_semaphore_t s = dispatch_semaphore_create(1);
    assert_null(dispatch_semaphore_create(-1));
    assert_int_equal(dispatch_semaphore_wait(s, DISPATCH_TIME_NOW), 0);
    assert_int_not_equal(dispatch_semaphore_wait(s, DISPATCH_TIME_NOW), 0);
    assert_int_not_equal(
        dispatch_semaphore_wait(s, dispatch_time(DISPATCH_TIME_NOW, 1000000)),
        0);
    assert_int_equal(dispatch_semaphore_signal(s), 0);
    dispatch_release(s);
    assert_true(dispatch_time(DISPATCH_TIME_FOREVER, 5) ==
                DISPATCH_TIME_FOREVER);
    dispatch_time_t t = dispatch_time(DISPATCH_TIME_NOW, 0);
    assert_true(dispatch_time(t, 5) == t + 5);
    assert_true(dispatch_time(t, -5) == t - 5);

    static dispatch_once_t once;
    __block int n = 0;
    for (int i = 0; i < 3; i++) {
        dispatch_once(&once, ^{
          n++;
        });
    }
    assert_int_equal(n, 1);
    kit_no_objects();
}

/* --- activities --- */

static void test_activities(void **state)
{
    (void)state;
    @autoreleasepool {
        NSProcessInfo *p = [NSProcessInfo processInfo];
        id<NSObject> a = [[p beginActivityWithOptions:
                                 NSActivityUserInitiatedAllowingIdleSystemSleep
                                               reason:@"a test"] retain];
        assert_int_equal(si_count_get(COUNT_ACTIVITIES_OPEN), 1);
        [p endActivity:a];
        assert_int_equal(si_count_get(COUNT_ACTIVITIES_OPEN), 0);
        [a release];
        (void)[p beginActivityWithOptions:NSActivityBackground reason:@"b"];
        assert_int_equal(si_count_get(COUNT_ACTIVITIES_OPEN), 1);
    }
    /* nobody kept it: it has ended */
    assert_int_equal(si_count_get(COUNT_ACTIVITIES_OPEN), 0);
    kit_no_objects();
}

/* --- broken rules --- */

static void ends_twice(void)
{
    NSProcessInfo *p = [NSProcessInfo processInfo];
    id<NSObject> a = [p beginActivityWithOptions:NSActivityBackground
                                          reason:@"x"];
    [p endActivity:a];
    [p endActivity:a];
}

static void waits_for_itself(void)
{
    dispatch_queue_t q = dispatch_queue_create("q", DISPATCH_QUEUE_SERIAL);
    dispatch_sync(q, ^{
      dispatch_sync(q, ^{
                    });
    });
}

static void frees_semaphore(void)
{
    dispatch_semaphore_t s = dispatch_semaphore_create(1);
    (void)dispatch_semaphore_wait(s, DISPATCH_TIME_FOREVER);
    dispatch_release(s);
}

static const struct kit_child children[] = {
    {"ends_twice",       ends_twice      },
    {"waits_for_itself", waits_for_itself},
    {"frees_semaphore",  frees_semaphore },
};

static void test_rules(void **state)
{
    (void)state;
    kit_aborts("ends_twice", "an activity is ended once");
    kit_aborts("waits_for_itself", "dispatch_sync is not called on the queue");
    kit_aborts("frees_semaphore", "a semaphore is freed with the count");
}

int main(int argc, char **argv)
{
    static const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_blocks),
        cmocka_unit_test(test_handlers),
        cmocka_unit_test(test_released_elsewhere),
        cmocka_unit_test(test_queue),
        cmocka_unit_test(test_semaphore),
        cmocka_unit_test(test_activities),
        cmocka_unit_test(test_rules),
    };
    return kit_main(argc, argv, tests, countof(tests), children,
                    countof(children));
}
