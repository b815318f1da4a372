/* MLComputePlan, MLModelStructure, MLModelAsset and compute devices. */
#include <math.h>

#include "kit.h"

static MLModelConfiguration *configuration(NSString *function,
                                           MLComputeUnits units)
{
    MLModelConfiguration *c = [[[MLModelConfiguration alloc] init] autorelease];
    [c setFunctionName:function];
    [c setComputeUnits:units];
    return c;
}

static MLComputePlan *plan(NSURL *url, MLModelConfiguration *c, NSError **error)
{
    __block MLComputePlan *p = nil;
    __block NSError *why = nil;
    dispatch_semaphore_t done = dispatch_semaphore_create(0);
    [MLComputePlan loadContentsOfURL:url
                       configuration:c
                   completionHandler:^(MLComputePlan *x, NSError *e) {
                     p = [x retain];
                     why = [e retain];
                     (void)dispatch_semaphore_signal(done);
                   }];
    (void)dispatch_semaphore_wait(done, DISPATCH_TIME_FOREVER);
    dispatch_release(done);
    *error = [why autorelease];
    return [p autorelease];
}

static NSArray *operations(MLComputePlan *p, NSString *function)
{
    MLModelStructureProgram *program = [[p modelStructure] program];
    assert_non_null(program);
    MLModelStructureProgramFunction *f =
        [[program functions] objectForKey:function];
    assert_non_null(f);
    return [[f block] operations];
}

struct seen {
    int constants, neural, cpu, other;
    double cost;
};

static struct seen look(MLComputePlan *p, NSString *function)
{
    struct seen s = {0};
    for (MLModelStructureProgramOperation *o in operations(p, function)) {
        MLComputePlanDeviceUsage *u =
            [p computeDeviceUsageForMLProgramOperation:o];
        MLComputePlanCost *c = [p estimatedCostOfMLProgramOperation:o];
        assert_int_equal(u == nil, c == nil);
        id d = [u preferredComputeDevice];
        s.cost += c != nil ? [c weight] : 0;
        if (u == nil) {
            s.constants++;
        } else if ([d isKindOfClass:[MLNeuralEngineComputeDevice class]]) {
            assert_int_equal([d totalCoreCount], 16);
            assert_true([[u supportedComputeDevices] containsObject:d]);
            s.neural++;
        } else if ([d isKindOfClass:[MLCPUComputeDevice class]]) {
            s.cpu++;
        } else {
            s.other++;
        }
    }
    return s;
}

static void test_plan(void **state)
{
    (void)state;
    @autoreleasepool {
        NSError *error = nil;
        MLComputePlan *p =
            plan(kit_compiled(kit_state, @"state"),
                 configuration(nil, MLComputeUnitsCPUAndNeuralEngine), &error);
        assert_non_null(p);
        assert_null(error);
        struct seen s = look(p, @"main");
        assert_true(s.constants > 5);
        assert_int_equal(s.neural, 8);
        assert_int_equal(s.cpu + s.other, 0);
        assert_true(fabs(s.cost - 1) < 1e-9);

        NSMutableSet *names = [NSMutableSet set];
        for (MLModelStructureProgramOperation *o in operations(p, @"main")) {
            [names addObject:[o operatorName]];
        }
        assert_true([names containsObject:@"ios18.conv"]);
        assert_true([names containsObject:@"const"]);
        assert_true(
            [names containsObject:@"ios18.constexpr_blockwise_shift_scale"]);
    }
    kit_no_objects();
}

static void test_structure(void **state)
{
    (void)state;
    @autoreleasepool {
        NSError *error = nil;
        MLComputePlan *p = plan(kit_compiled(kit_plain, @"plain"),
                                configuration(nil, MLComputeUnitsAll), &error);
        MLModelStructureProgramFunction *f =
            [[[[p modelStructure] program] functions] objectForKey:@"main"];
        assert_string_equal([[[[f inputs] objectAtIndex:0] name] UTF8String],
                            "x");
        assert_string_equal(
            [[[[f block] outputNames] objectAtIndex:0] UTF8String], "y");
        MLModelStructureProgramOperation *o =
            [[[f block] operations] lastObject];
        assert_string_equal([[o operatorName] UTF8String], "ios18.add");
        assert_string_equal([[[[o outputs] objectAtIndex:0] name] UTF8String],
                            "y");
        assert_int_equal([[o blocks] count], 0);
        MLModelStructureProgramArgument *x = [[o inputs] objectForKey:@"x"];
        MLModelStructureProgramBinding *b = [[x bindings] objectAtIndex:0];
        assert_string_equal([[b name] UTF8String], "d");
        assert_null([b value]);
    }
    kit_no_objects();
}

/* The plan is that of the configuration's function, and of no other plan's
 * operations. */
static void test_functions(void **state)
{
    (void)state;
    @autoreleasepool {
        NSError *error = nil;
        NSURL *url = kit_compiled(kit_functions, @"functions");
        MLComputePlan *p =
            plan(url, configuration(@"t4", MLComputeUnitsCPUAndNeuralEngine),
                 &error);
        MLComputePlan *q =
            plan(url, configuration(@"t4", MLComputeUnitsCPUAndNeuralEngine),
                 &error);
        assert_true(look(p, @"t4").neural > 0);
        assert_int_equal(look(p, @"t1").neural, 0);
        MLModelStructureProgramOperation *o = [operations(p, @"t4") lastObject];
        assert_non_null([p computeDeviceUsageForMLProgramOperation:o]);
        assert_null([q computeDeviceUsageForMLProgramOperation:o]);
        assert_null(plan(url, configuration(@"t9", MLComputeUnitsAll), &error));
        assert_non_null(
            strstr([[error localizedDescription] UTF8String], "t9"));

        __block int n = 0;
        dispatch_semaphore_t done = dispatch_semaphore_create(0);
        MLModelAsset *a = [MLModelAsset modelAssetWithURL:url error:&error];
        [a functionNamesWithCompletionHandler:^(NSArray<NSString *> *names,
                                                NSError *e) {
          assert_null(e);
          n = [names containsObject:@"t1"] + [names containsObject:@"t4"];
          (void)dispatch_semaphore_signal(done);
        }];
        (void)dispatch_semaphore_wait(done, DISPATCH_TIME_FOREVER);
        dispatch_release(done);
        assert_int_equal(n, 2);
    }
    kit_no_objects();
}

static void test_wrong_plans(void **state)
{
    (void)state;
    @autoreleasepool {
        NSError *error = nil;
        NSURL *url = kit_compiled(kit_state, @"state");
        MLModelConfiguration *c =
            configuration(nil, MLComputeUnitsCPUAndNeuralEngine);
        int all = look(plan(url, c, &error), @"main").neural;
        kit_faults("plan_cpu = *state*\n");
        struct seen s = look(plan(url, c, &error), @"main");
        assert_true(s.neural == 0 && s.cpu == all);
        kit_faults("plan_cpu = *state* ops=conv,slice_update\n");
        s = look(plan(url, c, &error), @"main");
        assert_true(s.cpu == 2 && s.neural == all - 2);
        kit_faults("plan_cpu = *other*\n");
        assert_int_equal(look(plan(url, c, &error), @"main").neural, all);
        kit_faults("plan_error = *\n");
        assert_null(plan(url, c, &error));
        assert_non_null(error);
        kit_faults("");
        NSURL *nowhere = [NSURL fileURLWithPath:@"/nowhere.mlmodelc"];
        assert_null(plan(nowhere, c, &error));
        assert_int_equal([error code], MLModelErrorIO);
        c = configuration(nil, MLComputeUnitsCPUOnly);
        assert_int_equal(look(plan(url, c, &error), @"main").cpu, all);
    }
    kit_no_objects();
}

static void test_devices(void **state)
{
    (void)state;
    @autoreleasepool {
        assert_int_equal([MLAllComputeDevices() count], 3);
        MLGPUComputeDevice *gpu = [MLAllComputeDevices() objectAtIndex:1];
        assert_null([gpu metalDevice]);
        kit_faults("neural_engine = 0\n");
        assert_int_equal([MLAllComputeDevices() count], 2);
        for (id d in MLAllComputeDevices()) {
            assert_false([d isKindOfClass:[MLNeuralEngineComputeDevice class]]);
        }
        NSError *error = nil;
        MLComputePlan *p =
            plan(kit_compiled(kit_state, @"state"),
                 configuration(nil, MLComputeUnitsCPUAndNeuralEngine), &error);
        assert_int_equal(look(p, @"main").neural, 0);
        kit_faults("");
    }
    kit_no_objects();
}

int main(int argc, char **argv)
{
    static const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_plan),      cmocka_unit_test(test_structure),
        cmocka_unit_test(test_functions), cmocka_unit_test(test_wrong_plans),
        cmocka_unit_test(test_devices),
    };
    return kit_main(argc, argv, tests, countof(tests), NULL, 0);
}
