/* test_error.m - the texts of ane.md's list, as people will meet them. */
#include "../../unit/unit.h"
#import "engine/coreml/coreml.h"

/* An error of Core ML's, with a cause if that is not nil. */
static NSError *error_of(NSString *text, NSError *cause)
{
    NSMutableDictionary *info = [NSMutableDictionary dictionary];
    [info setObject:text forKey:NSLocalizedDescriptionKey];
    if (cause != nil) {
        [info setObject:cause forKey:NSUnderlyingErrorKey];
    }
    return [NSError errorWithDomain:MLModelErrorDomain code:0 userInfo:info];
}

static void test_meanings(void **state)
{
    static const struct {
        const char *text, *means, *next;
    } of[] = {
        {"Failed to build the model execution plan using a model architecture "
         "file '/x/model.mil' with error code: -14.",             "could not make a plan",           "--kv host"          },
        {"Failed to build the model execution plan with error code: 14.",
         "could not make a plan",                                                                             "--kv host"          },
        {"MILCompilerForANE error: failed to compile ANE model using ANEF. "
         "Error=_ANECompiler : ANECCompile() FAILED (11)",        "compiler refused the program",    "smaller shards"     },
        {"createProgramInstanceForModel: Program load failure (0x20004)",
         "has no room",                                                                                       "unload other models"},
        {"status=0x1d statusType=0x9: Program Inference error",
         "failed while it ran",                                                                               "--kv host"          },
        {"evaluate failed with 0xe00002c2",                                "refused a request of this width",
         "--shape functions"                                                                                                       },
        {"evaluate failed with 0xe00002e2",                                "does not let this program",
         "signed"                                                                                                                  },
        {"The volume is out of space.",                                    "disk is full",                    "as its package"     },
        {"Error Domain=com.apple.appleneuralengine Code=8 processRequest",
         "did not answer",                                                                                    "tried again"        },
    };
    (void)state;
    for (size_t i = 0; i < countof(of); i++) {
        @autoreleasepool {
            struct err e = {0};
            NSString *text = [NSString stringWithUTF8String:of[i].text];
            assert_int_equal(coreml_error(&e, error_of(text, nil), "loading"),
                             ERR_BACKEND);
            if (strncmp(e.msg, "loading failed: ", 16) != 0 ||
                strstr(e.msg, of[i].means) == NULL ||
                strstr(e.msg, of[i].next) == NULL) {
                fail_msg("%s", e.msg);
            }
        }
    }
}

/* The cause says what the error itself does not. */
static void test_causes(void **state)
{
    (void)state;
    @autoreleasepool {
        struct err e = {0};
        NSError *deep = error_of(@"ANECCompile() FAILED (11)", nil);
        NSError *top = error_of(@"Error in declaring network",
                                error_of(@"something", deep));
        assert_int_equal(coreml_error(&e, top, "loading"), ERR_BACKEND);
        assert_non_null(strstr(e.msg, "compiler refused the program"));
        assert_non_null(strstr(e.msg, "Error in declaring network"));
    }
}

static void test_without(void **state)
{
    (void)state;
    @autoreleasepool {
        struct err e = {0};
        assert_int_equal(coreml_error(&e, nil, "planning"), ERR_BACKEND);
        assert_string_equal(e.msg, "planning failed: Core ML says: nothing");
        assert_int_equal(coreml_error(&e, error_of(@"unheard of", nil), "x"),
                         ERR_BACKEND);
        assert_string_equal(
            e.msg, "x failed: Core ML says: unheard of (com.apple.CoreML 0)");
        assert_int_equal(coreml_error(NULL, nil, "x"), ERR_BACKEND);
        NSString *longer = [@"" stringByPaddingToLength:5000
                                             withString:@"x"
                                        startingAtIndex:0];
        assert_int_equal(coreml_error(&e, error_of(longer, nil), "x"),
                         ERR_BACKEND);
        NSException *x = [NSException exceptionWithName:@"Odd"
                                                 reason:@"a reason"
                                               userInfo:nil];
        assert_int_equal(coreml_raised(&e, x, "x"), ERR_BACKEND);
        assert_string_equal(e.msg, "x failed: Core ML raised Odd: a reason");
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_meanings),
        cmocka_unit_test(test_causes),
        cmocka_unit_test(test_without),
    };
    return cmocka_run_group_tests_name("coreml error", tests, NULL, NULL);
}
