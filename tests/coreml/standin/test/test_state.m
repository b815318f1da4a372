/* MLState: values that move, handlers, functions that share a state, and the
 * rules that a caller must keep.
 */
#include <signal.h>
#include <unistd.h>

#include "base/file.h"
#include "base/half.h"
#include "kit.h"
#include "mil/spec.h"

#define TMAX 1024

static MLModel *model(void)
{
    return kit_load(kit_compiled(kit_state, @"state"), nil);
}

static void test_new(void **state)
{
    (void)state;
    uint16_t v[8];
    @autoreleasepool {
        MLModel *m = model();
        MLState *s = [m newState];
        assert_int_equal([s retainCount], 1); /* the caller's */
        assert_int_equal(kit_state_values(s, @"acc", v, 8), 4);
        for (int i = 0; i < 4; i++) {
            assert_int_equal(v[i], 0);
        }
        assert_int_equal(si_count_get(COUNT_STATE_BYTES), 8);
        [s release];
        assert_int_equal(si_count_get(COUNT_STATE_BYTES), 0);
        MLModel *plain = kit_load(kit_compiled(kit_plain, @"plain"), nil);
        MLState *empty = [plain newState];
        assert_non_null(empty);
        [empty release];
    }
    kit_no_objects();
}

/* A model that is gone does not take its states along. */
static void test_outlives(void **state)
{
    (void)state;
    uint16_t v[8];
    MLState *s = nil;
    @autoreleasepool {
        MLModel *m = model();
        s = [m newState];
        (void)kit_predict(m, @{@"x" : kit_x(2, 1)}, s, nil);
    }
    @autoreleasepool {
        assert_int_equal(si_count_get(COUNT_MODEL), 0);
        assert_int_equal(kit_state_values(s, @"acc", v, 8), 4);
        assert_int_not_equal(v[0], 0);
        [s release];
    }
    kit_no_objects();
}

static void test_moves(void **state)
{
    (void)state;
    @autoreleasepool {
        const void *seen[20] = {0};
        MLState *s = [[model() newState] autorelease];
        for (size_t i = 0; i < countof(seen); i++) {
            __block const void *at = NULL;
            [s getMultiArrayForStateNamed:@"acc"
                                  handler:^(MLMultiArray *a) {
                                    at = [a dataPointer];
                                  }];
            for (size_t k = 0; k < i; k++) {
                assert_ptr_not_equal(seen[k], at);
            }
            seen[i] = at;
        }
    }
}

/* acc[c] = value + c */
static void set_values(MLState *s, float value)
{
    [s getMultiArrayForStateNamed:@"acc"
                          handler:^(MLMultiArray *a) {
                            [a getMutableBytesWithHandler:^(
                                   void *p, NSInteger size,
                                   NSArray<NSNumber *> *strides) {
                              long step = [[strides objectAtIndex:1] longValue];
                              NSNumber *said = [[a strides] objectAtIndex:1];
                              assert_int_equal([said longValue], 32);
                              assert_int_equal(step, 25); /* padded */
                              assert_int_equal(size, (3 * 25 + 1) * 2);
                              for (int c = 0; c < 4; c++) {
                                  ((uint16_t *)p)[c * step] =
                                      half_from_float(value + (float)c);
                              }
                            }];
                          }];
}

static void test_written(void **state)
{
    (void)state;
    uint16_t v[8];
    @autoreleasepool {
        MLState *s = [[model() newState] autorelease];
        set_values(s, 10);
        (void)kit_state_values(s, @"acc", v, 8);
        for (int c = 0; c < 4; c++) {
            assert_int_equal(v[c], half_from_float(10.0f + (float)c));
        }
    }
    kit_no_objects();
}

/* From one into the other, handler inside handler. */
static void copy_state(MLState *from, MLState *to)
{
    [from
        getMultiArrayForStateNamed:@"acc"
                           handler:^(MLMultiArray *a) {
                             [to getMultiArrayForStateNamed:@"acc"
                                                    handler:^(MLMultiArray *b) {
                                                      [a transferToMultiArray:
                                                              b];
                                                    }];
                           }];
}

/* Predictions go on alike from a state and from its copy. */
static void test_copied(void **state)
{
    (void)state;
    uint16_t v[64];
    uint16_t w[64];
    @autoreleasepool {
        MLModel *m = model();
        MLState *a = [[m newState] autorelease];
        MLState *b = [[m newState] autorelease];
        MLMultiArray *x = kit_x(3, 4);
        set_values(a, 10);
        copy_state(a, b);
        size_t n = kit_state_values(a, @"acc", v, 64);
        assert_int_equal(kit_state_values(b, @"acc", w, 64), n);
        assert_memory_equal(v, w, n * sizeof(*v));
        n = kit_output(kit_predict(m, @{@"x" : x}, a, nil), @"out", v, 64);
        (void)kit_output(kit_predict(m, @{@"x" : x}, b, nil), @"out", w, 64);
        assert_memory_equal(v, w, n * sizeof(*v));
    }
    kit_no_objects();
}

/* A name that is not there throws, and so may a handler; the state is as good
 * as before. */
static void test_handler_throws(void **state)
{
    (void)state;
    uint16_t v[8];
    int thrown = 0;
    @autoreleasepool {
        MLModel *m = model();
        MLState *s = [[m newState] autorelease];
        @try {
            (void)kit_state_values(s, @"other", v, 8);
        } @catch (NSException *e) {
            thrown++;
        } @
        try {
            [s getMultiArrayForStateNamed:@"acc"
                                  handler:^(MLMultiArray *a) {
                                    (void)a;
                                    [NSException raise:@"Mine" format:@"x"];
                                  }];
        } @catch (NSException *e) {
            thrown++;
        }
        assert_int_equal(thrown, 2);
        (void)kit_predict(m, @{@"x" : kit_x(3, 4)}, s, nil);
    }
    kit_no_objects();
}

/* One state goes through two functions of a package, loaded as two models. */
static void test_shared(void **state)
{
    (void)state;
    uint16_t v[8];
    uint16_t w[8];
    @autoreleasepool {
        NSURL *url = kit_compiled(kit_functions, @"functions");
        MLModel *one = kit_load(url, @"t1");
        MLModel *four = kit_load(url, @"t4");
        MLState *s = [[four newState] autorelease];
        (void)kit_predict(four, @{@"x" : kit_x(4, 1)}, s, nil);
        (void)kit_state_values(s, @"acc", v, 8);
        (void)kit_predict(one, @{@"x" : kit_x(1, 2)}, s, nil);
        (void)kit_state_values(s, @"acc", w, 8);
        assert_memory_not_equal(v, w, 8);
        /* another package's state is refused, whatever its names say */
        NSError *error = nil;
        MLModel *plain = kit_load(kit_compiled(kit_plain, @"plain"), nil);
        assert_null([plain
            predictionFromFeatures:kit_features(@{@"x" : kit_x(1, 1)})
                        usingState:s
                             error:&error]);
        assert_non_null(error);
    }
    kit_no_objects();
}

/* --- broken rules --- */

static MLMultiArray *kept;
static const uint16_t *kept_pointer;

static void keep(bool pointer)
{
    MLState *s = [[model() newState] autorelease];
    [s getMultiArrayForStateNamed:@"acc"
                          handler:^(MLMultiArray *a) {
                            kept = [a retain];
                            kept_pointer = pointer ? [a dataPointer] : NULL;
                          }];
}

static void read_after(void)
{
    keep(true);
    _exit(kept_pointer[0]);
}

static void use_after(void)
{
    keep(false);
    (void)[kept shape];
}

/* A prediction that sleeps has counted its fault: it has all that it uses. */
static void wait_for_fault(void)
{
    while (si_count_get(COUNT_FAULTS) == 0) {
        (void)usleep(1000);
    }
}

/* Run the block on another thread while a prediction lasts. */
static void meanwhile(MLModel *m, MLState *s, MLMultiArray *x,
                      NSDictionary *backings, void (^block)(void))
{
    kit_faults("predict_slow = * ms=60000 times=1\n");
    dispatch_queue_t q = dispatch_queue_create("meanwhile", NULL);
    dispatch_async(q, ^{
      wait_for_fault();
      block();
      _exit(3); /* the rule did not hold */
    });
    (void)kit_predict(m, @{@"x" : x}, s, backings);
    _exit(4); /* the block came too late */
}

static void two_threads(void)
{
    MLModel *m = model();
    MLState *other = [m newState];
    meanwhile(m, [m newState], kit_x(1, 1), nil, ^{
      (void)kit_predict(m, @{@"x" : kit_x(1, 1)}, other, nil);
    });
}

static void two_predictions(void)
{
    MLModel *m = model();
    MLModel *other = model();
    MLState *s = [m newState];
    meanwhile(m, s, kit_x(1, 1), nil, ^{
      (void)kit_predict(other, @{@"x" : kit_x(1, 1)}, s, nil);
    });
}

static void handler_in_prediction(void)
{
    MLModel *m = model();
    MLState *s = [m newState];
    uint16_t *v = calloc(8, 2);
    meanwhile(m, s, kit_x(1, 1), nil, ^{
      (void)kit_state_values(s, @"acc", v, 8);
    });
}

static void prediction_in_handler(void)
{
    MLModel *m = model();
    MLState *s = [m newState];
    [s getMultiArrayForStateNamed:@"acc"
                          handler:^(MLMultiArray *a) {
                            (void)a;
                            (void)kit_predict(m, @{@"x" : kit_x(1, 1)}, s, nil);
                          }];
}

static void write_result(void)
{
    MLModel *m = kit_load(kit_compiled(kit_plain, @"plain"), nil);
    id<MLFeatureProvider> r = kit_predict(m, @{@"x" : kit_x(1, 1)}, nil, nil);
    MLMultiArray *y = [[r featureValueForName:@"y"] multiArrayValue];
    *(uint16_t *)[y dataPointer] = 0;
}

static void input_written(void)
{
    MLModel *m = model();
    MLMultiArray *x = kit_x(1, 1);
    uint16_t *p = [x dataPointer];
    kit_faults("predict_slow = * ms=3000\n");
    dispatch_queue_t q = dispatch_queue_create("writer", NULL);
    dispatch_async(q, ^{
      wait_for_fault();
      p[0] ^= 1;
    });
    (void)kit_predict(m, @{@"x" : x}, [m newState], nil);
}

static void input_opened(void)
{
    MLModel *m = model();
    MLMultiArray *x = kit_x(1, 1);
    meanwhile(m, [m newState], x, nil, ^{
      [x getMutableBytesWithHandler:^(void *p, NSInteger n,
                                      NSArray<NSNumber *> *strides) {
        (void)p;
        (void)n;
        (void)strides;
      }];
    });
}

static MLMultiArray *pixels_like_x(void)
{
    int64_t dims[] = {1, 4, 1, 1};
    return kit_pixels(dims, 4);
}

static void input_locked(void)
{
    MLModel *m = model();
    MLMultiArray *x = pixels_like_x();
    meanwhile(m, [m newState], x, nil, ^{
      (void)CVPixelBufferLockBaseAddress([x pixelBuffer], 0);
    });
}

static void backing_pointed(void)
{
    MLModel *m = model();
    MLMultiArray *y = pixels_like_x();
    meanwhile(m, [m newState], kit_x(1, 1), @{@"out" : y}, ^{
      (void)[y dataPointer];
    });
}

static void backing_locked(void)
{
    MLModel *m = model();
    MLMultiArray *y = pixels_like_x();
    meanwhile(m, [m newState], kit_x(1, 1), @{@"out" : y}, ^{
      (void)CVPixelBufferLockBaseAddress([y pixelBuffer],
                                         kCVPixelBufferLock_ReadOnly);
    });
}

/* Take the range of z out of the description, as the public converter writes
 * fixed inputs. */
static void forget_range(NSString *package)
{
    NSString *file = [package
        stringByAppendingPathComponent:@"Data/com.apple.CoreML/model.mlmodel"];
    struct buf b;
    struct err e = {0};
    unit_ok(file_read([file UTF8String], 1u << 20, &b, &e), &e);
    Ml__Model *m = ml__model__unpack(NULL, b.n, (const uint8_t *)b.p);
    assert_non_null(m);
    Ml__ArrayType *z = m->description->input[1]->type->array;
    assert_int_equal(z->flexibility_case, ML__ARRAY_TYPE__FLEXIBILITY_RANGE);
    ml__shape_range__free_unpacked(z->range, NULL);
    z->range = NULL;
    z->flexibility_case = ML__ARRAY_TYPE__FLEXIBILITY__NOT_SET;
    size_t n = ml__model__get_packed_size(m);
    uint8_t *out = malloc(n);
    assert_non_null(out);
    assert_int_equal(ml__model__pack(m, out), n);
    unit_ok(file_write([file UTF8String], out, n, &e), &e);
    free(out);
    ml__model__free_unpacked(m, NULL);
    buf_fini(&b);
}

static void mixed(void)
{
    (void)kit_load(kit_compiled(kit_mixed, @"ranged"), nil); /* is fine */
    forget_range(kit_package(kit_mixed, @"mixed"));
    (void)kit_load(kit_compiled(kit_mixed, @"mixed"), nil);
}

static const struct kit_child children[] = {
    {"read_after",            read_after           },
    {"use_after",             use_after            },
    {"two_threads",           two_threads          },
    {"two_predictions",       two_predictions      },
    {"handler_in_prediction", handler_in_prediction},
    {"prediction_in_handler", prediction_in_handler},
    {"write_result",          write_result         },
    {"input_written",         input_written        },
    {"input_opened",          input_opened         },
    {"input_locked",          input_locked         },
    {"backing_pointed",       backing_pointed      },
    {"backing_locked",        backing_locked       },
    {"mixed",                 mixed                },
};

static void test_rules(void **state)
{
    (void)state;
    static const struct {
        const char *child, *says;
    } t[] = {
        {"read_after",            "valid only inside its handler"            },
        {"use_after",             "valid only inside its handler"            },
        {"two_threads",           "one thread at a time in one MLModel"      },
        {"two_predictions",       "one prediction at a time with one MLState"},
        {"handler_in_prediction", "not touched while a prediction uses it"   },
        {"prediction_in_handler", "not touched while a prediction uses it"   },
        {"write_result",          "a prediction's arrays are not written"    },
        {"input_written",         "an input is not changed while"            },
        {"input_opened",          "an input is not changed while"            },
        {"input_locked",          "an input is not changed while"            },
        {"backing_pointed",       "an output backing is not touched while"   },
        {"backing_locked",        "an output backing is not touched while"   },
        {"mixed",                 "EnumeratedWithRangeInputsException"       },
    };
    assert_int_equal(countof(t), countof(children));
    for (size_t i = 0; i < countof(t); i++) {
        kit_faults("");
        kit_aborts(t[i].child, t[i].says);
    }
    kit_faults("");
}

/* Without states, fixed inputs beside ranged ones are fine. */
static void test_mixed_stateless(void **state)
{
    (void)state;
    @autoreleasepool {
        NSURL *url = kit_compiled(kit_mixed_stateless, @"mixed_stateless");
        MLModel *m = kit_load(url, nil);
        (void)kit_predict(m, @{@"x" : kit_x(3, 1), @"z" : kit_x(1, 2)}, nil,
                          nil);
    }
    kit_no_objects();
}

int main(int argc, char **argv)
{
    static const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_new),
        cmocka_unit_test(test_outlives),
        cmocka_unit_test(test_moves),
        cmocka_unit_test(test_written),
        cmocka_unit_test(test_copied),
        cmocka_unit_test(test_handler_throws),
        cmocka_unit_test(test_shared),
        cmocka_unit_test(test_rules),
        cmocka_unit_test(test_mixed_stateless),
    };
    return kit_main(argc, argv, tests, countof(tests), children,
                    countof(children));
}
