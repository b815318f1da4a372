/* MLMultiArray, pixel buffers, surfaces, values and providers. */
#include <signal.h>

#include "base/half.h"
#include "kit.h"

static NSArray *shape_of(NSString *s)
{
    NSMutableArray *a = [NSMutableArray array];
    for (NSString *n in [s componentsSeparatedByString:@" "]) {
        [a addObject:[NSNumber numberWithInt:[n intValue]]];
    }
    return a;
}

static NSString *text_of(NSArray *a)
{
    return [a componentsJoinedByString:@" "];
}

static MLMultiArray *array(NSString *shape, MLMultiArrayDataType t)
{
    NSError *error = nil;
    return [[[MLMultiArray alloc] initWithShape:shape_of(shape)
                                       dataType:t
                                          error:&error] autorelease];
}

static void assert_text(NSString *got, const char *expected)
{
    assert_string_equal([got UTF8String], expected);
}

static void test_shapes(void **state)
{
    (void)state;
    @autoreleasepool {
        MLMultiArray *a = array(@"1 4 3 2", MLMultiArrayDataTypeFloat16);
        assert_text(text_of([a shape]), "1 4 3 2");
        assert_text(text_of([a strides]), "24 6 2 1");
        assert_int_equal([a count], 24);
        assert_int_equal([a dataType], MLMultiArrayDataTypeFloat16);
        assert_null([a pixelBuffer]);
        [a getBytesWithHandler:^(const void *p, NSInteger size) {
          assert_int_equal(size, 48);
          /* nobody has set it: it is NaN */
          assert_int_equal(((const uint16_t *)p)[7], 0xffff);
        }];
        MLMultiArray *b =
            [[[MLMultiArray alloc] initWithShape:shape_of(@"2 3")
                                        dataType:MLMultiArrayDataTypeFloat32
                                         strides:shape_of(@"8 2")] autorelease];
        [b getMutableBytesWithHandler:^(void *p, NSInteger size,
                                        NSArray<NSNumber *> *strides) {
          assert_non_null(p);
          assert_int_equal(size, (8 + 4 + 1) * 4);
          assert_text(text_of(strides), "8 2");
        }];
    }
    assert_int_equal(si_count_get(COUNT_ARRAY), 0);
    assert_int_equal(si_count_get(COUNT_ARRAY_BYTES), 0);
}

static void test_refused(void **state)
{
    (void)state;
    float memory[6] = {0};
    @autoreleasepool {
        NSError *error = nil;
        assert_null([[MLMultiArray alloc]
            initWithShape:shape_of(@"1 0 3")
                 dataType:MLMultiArrayDataTypeFloat16
                    error:&error]);
        assert_text([error domain], "com.apple.CoreML");
        assert_null(array(@"1 -2", MLMultiArrayDataTypeFloat16));
        assert_null(array(@"1 2", (MLMultiArrayDataType)7));
        assert_null([[MLMultiArray alloc]
            initWithDataPointer:memory
                          shape:shape_of(@"2 3")
                       dataType:MLMultiArrayDataTypeFloat32
                        strides:shape_of(@"3")
                    deallocator:NULL
                          error:&error]);
        bool threw = false;
        @try {
            (void)[[MLMultiArray alloc]
                initWithShape:shape_of(@"2 3")
                     dataType:MLMultiArrayDataTypeFloat32
                      strides:shape_of(@"3")];
        } @catch (NSException *e) {
            threw = true;
        }
        assert_true(threw);
    }
    assert_int_equal(si_count_get(COUNT_ARRAY), 0);
}

static void test_borrowed(void **state)
{
    (void)state;
    static float memory[12];
    __block int freed = 0;
    @autoreleasepool {
        NSError *error = nil;
        MLMultiArray *a = [[[MLMultiArray alloc]
            initWithDataPointer:memory
                          shape:shape_of(@"2 3")
                       dataType:MLMultiArrayDataTypeFloat32
                        strides:shape_of(@"6 2")
                    deallocator:^(void *p) {
                      assert_ptr_equal(p, memory);
                      freed++;
                    }
                          error:&error] autorelease];
        memory[8] = 5; /* row 1, column 1 */
        assert_ptr_equal([a dataPointer], memory);
        assert_true([[a objectAtIndexedSubscript:4] floatValue] == 5);
        assert_int_equal(freed, 0);
    }
    assert_int_equal(freed, 1);
}

static void test_transfer(void **state)
{
    (void)state;
    @autoreleasepool {
        MLMultiArray *a = array(@"2 3", MLMultiArrayDataTypeInt32);
        [a getMutableBytesWithHandler:^(void *p, NSInteger size,
                                        NSArray<NSNumber *> *strides) {
          (void)strides;
          for (NSInteger i = 0; i < size / 4; i++) {
              ((int32_t *)p)[i] = (int32_t)i * 100;
          }
        }];
        int64_t dims[] = {2, 3};
        MLMultiArray *b = kit_pixels(dims, 2);
        uint16_t got[6];
        [a transferToMultiArray:b];
        assert_int_equal(kit_halves(b, got, 6), 6);
        for (int i = 0; i < 6; i++) {
            assert_int_equal(got[i], half_from_float((float)i * 100));
        }
        bool threw = false;
        @try {
            [a transferToMultiArray:array(@"3 2", MLMultiArrayDataTypeInt32)];
        } @catch (NSException *e) {
            threw = true;
        }
        assert_true(threw);
    }
}

/* Rows of a pixel buffer are padded to 64 bytes; its memory is there only while
 * it is locked. */
static void test_pixels(void **state)
{
    (void)state;
    @autoreleasepool {
        int64_t dims[] = {1, 4, 3, 5};
        MLMultiArray *a = kit_pixels(dims, 4);
        CVPixelBufferRef p = [a pixelBuffer];
        assert_text(text_of([a strides]), "384 96 32 1");
        assert_int_equal(CVPixelBufferGetWidth(p), 5);
        assert_int_equal(CVPixelBufferGetHeight(p), 12);
        assert_int_equal(CVPixelBufferGetBytesPerRow(p), 64);
        assert_int_equal(CVPixelBufferGetDataSize(p), 64 * 12);
        assert_int_equal(CVPixelBufferLockBaseAddress(p, 0), kCVReturnSuccess);
        uint16_t *q = CVPixelBufferGetBaseAddress(p);
        q[32] = half_from_float(7); /* row 1, column 0 */
        assert_int_equal(CVPixelBufferUnlockBaseAddress(p, 0),
                         kCVReturnSuccess);
        assert_true([[a objectAtIndexedSubscript:5] floatValue] == 7);

        IOSurfaceRef s = CVPixelBufferGetIOSurface(p);
        assert_non_null(s);
        assert_int_equal(IOSurfaceGetBytesPerRow(s), 64);
        assert_int_equal(IOSurfaceGetAllocSize(s), 64 * 12);
        assert_int_equal(IOSurfaceLock(s, kIOSurfaceLockReadOnly, NULL), 0);
        assert_ptr_equal(IOSurfaceGetBaseAddress(s), q);
        assert_int_equal(IOSurfaceUnlock(s, kIOSurfaceLockReadOnly, NULL), 0);
        bool threw = false;
        @try {
            (void)[[MLMultiArray alloc] initWithPixelBuffer:p
                                                      shape:shape_of(@"5 12")];
        } @catch (NSException *e) {
            threw = true;
        }
        assert_true(threw);
    }
    assert_int_equal(si_count_get(COUNT_PIXELS), 0);
    assert_int_equal(si_count_get(COUNT_SURFACE), 0);
    assert_int_equal(si_count_get(COUNT_PIXEL_BYTES), 0);
}

static void test_pixels_made(void **state)
{
    (void)state;
    CVPixelBufferRef p = NULL;
    @autoreleasepool {
        assert_int_equal(CVPixelBufferCreate(NULL, 4, 4, 1, NULL, &p),
                         kCVReturnInvalidPixelFormat);
        assert_int_equal(
            CVPixelBufferCreate(
                NULL, 4, 0, kCVPixelFormatType_OneComponent16Half, NULL, &p),
            kCVReturnInvalidSize);
        NSDictionary *d = @{
            (id)kIOSurfaceWidth : @6,
            (id)kIOSurfaceHeight : @3,
            (id)kIOSurfaceBytesPerElement : @2,
            (id)kIOSurfacePixelFormat : [NSNumber
                numberWithUnsignedInt:kCVPixelFormatType_OneComponent16Half],
        };
        IOSurfaceRef s = IOSurfaceCreate((CFDictionaryRef)d);
        assert_int_equal(IOSurfaceGetBytesPerRow(s), 64);
        assert_int_equal(CVPixelBufferCreateWithIOSurface(NULL, s, NULL, &p),
                         kCVReturnSuccess);
        CFRelease(s);
        assert_int_equal(CVPixelBufferGetWidth(p), 6);
        assert_ptr_equal(CVPixelBufferGetIOSurface(p), s);
        CVPixelBufferRelease(p);
    }
    assert_int_equal(si_count_get(COUNT_PIXELS), 0);
    assert_int_equal(si_count_get(COUNT_SURFACE), 0);
}

static void test_values(void **state)
{
    (void)state;
    @autoreleasepool {
        NSError *error = nil;
        MLMultiArray *a = kit_x(1, 1);
        MLFeatureValue *v = [MLFeatureValue featureValueWithMultiArray:a];
        assert_ptr_equal([v multiArrayValue], a);
        assert_int_equal([v type], MLFeatureTypeMultiArray);
        assert_false([v isUndefined]);
        assert_null([v imageBufferValue]);
        MLDictionaryFeatureProvider *p = [[[MLDictionaryFeatureProvider alloc]
            initWithDictionary:@{@"a" : a, @"v" : v}
                         error:&error] autorelease];
        assert_int_equal([[p featureNames] count], 2);
        assert_ptr_equal([p featureValueForName:@"v"], v);
        assert_ptr_equal([[p objectForKeyedSubscript:@"a"] multiArrayValue], a);
        assert_null([p featureValueForName:@"b"]);
        assert_null([[MLDictionaryFeatureProvider alloc]
            initWithDictionary:@{@"a" : @"text"}
                         error:&error]);
        assert_int_equal([error code], MLModelErrorFeatureType);
    }
    kit_no_objects();
}

/* --- broken rules --- */

static void touch_unlocked(void)
{
    int64_t dims[] = {2, 3};
    CVPixelBufferRef p = [kit_pixels(dims, 2) pixelBuffer];
    (void)CVPixelBufferLockBaseAddress(p, 0);
    *(uint16_t *)CVPixelBufferGetBaseAddress(p) = 1;
    (void)CVPixelBufferUnlockBaseAddress(p, 0);
    *(uint16_t *)CVPixelBufferGetBaseAddress(p) = 1;
}

static void write_read_only(void)
{
    int64_t dims[] = {2, 3};
    CVPixelBufferRef p = [kit_pixels(dims, 2) pixelBuffer];
    (void)CVPixelBufferLockBaseAddress(p, kCVPixelBufferLock_ReadOnly);
    *(uint16_t *)CVPixelBufferGetBaseAddress(p) = 1;
}

static void unlock_otherwise(void)
{
    int64_t dims[] = {2, 3};
    CVPixelBufferRef p = [kit_pixels(dims, 2) pixelBuffer];
    (void)CVPixelBufferLockBaseAddress(p, kCVPixelBufferLock_ReadOnly);
    (void)CVPixelBufferUnlockBaseAddress(p, 0);
}

static void crash(void)
{
    *(volatile int *)(uintptr_t)8 = 1;
}

static const struct kit_child children[] = {
    {"touch_unlocked",   touch_unlocked  },
    {"write_read_only",  write_read_only },
    {"unlock_otherwise", unlock_otherwise},
    {"crash",            crash           },
};

static void test_pixel_rules(void **state)
{
    (void)state;
    kit_aborts("touch_unlocked", "touched only while it is locked");
    kit_aborts("write_read_only", "touched only while it is locked");
    kit_aborts("unlock_otherwise", "unlocked as it was locked");
}

/* What is no broken rule stays a crash of its own. */
static void test_other_crash(void **state)
{
    (void)state;
    struct kit_end e;
    kit_run("crash", &e);
    assert_true(e.signal == SIGSEGV || UNIT_SANITIZED);
    assert_true(e.signal != 0 || e.code != 0);
    assert_null(strstr(e.text, "rule broken"));
}

int main(int argc, char **argv)
{
    static const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_shapes),      cmocka_unit_test(test_refused),
        cmocka_unit_test(test_borrowed),    cmocka_unit_test(test_transfer),
        cmocka_unit_test(test_pixels),      cmocka_unit_test(test_pixels_made),
        cmocka_unit_test(test_values),      cmocka_unit_test(test_pixel_rules),
        cmocka_unit_test(test_other_crash),
    };
    return kit_main(argc, argv, tests, countof(tests), children,
                    countof(children));
}
