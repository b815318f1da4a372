/* error.m - what Core ML says when it fails, and what it means. Nearly all of
 * the Neural Engine's trouble has code 0 and a text that helps nobody. */
#include <string.h>

#import "engine/coreml/coreml.h"

#define TEXT_MAX   2048 /* of an error and its causes */
#define CAUSES_MAX 4

#define NO_PLAN                                                               \
    "the system could not make a plan for the Neural Engine: it refused the " \
    "program, or its memory is full; unload other models, or convert with "   \
    "smaller shards (--profile law) or --kv host"
#define NO_ROOM \
    "the disk is full; a compiled model takes as much as its package"

/* The first that fits; the more telling ones come first. */
static const struct {
    const char *says, *means;
} known[] = {
    {"ANECCompile",
     "the Neural Engine's compiler refused the program or ran out of memory; "
     "convert with smaller shards (--profile law)"                       },
    {"0x20004",
     "the Neural Engine has no room for this program; unload other models, or "
     "convert with smaller shards (--profile law)"                       },
    {"0xe00002c2",
     "the Neural Engine refused a request of this width; convert with --shape "
     "functions, or again with a newer aned"                             },
    {"0xe00002e2",
     "the system does not let this program use the Neural Engine; install a "
     "signed aned, and do not run it in a container or under Rosetta"    },
    {"Program Inference error",
     "the Neural Engine failed while it ran the program; when it stays so, "
     "convert with --kv host"                                            },
    {"com.apple.appleneuralengine",
     "the Neural Engine did not answer the request, as may happen after sleep; "
     "it is tried again"                                                 },
    {"error code: -14",             NO_PLAN                              },
    {"error code: 14",              NO_PLAN                              },
    {"compiler error",
     "Core ML's compiler refused the package; `aned inspect` looks at it"},
    {"No space left",               NO_ROOM                              },
    {"out of space",                NO_ROOM                              },
};

/* The texts of an error and of what caused it. */
static void put_text(NSError *error, char *text, size_t size)
{
    size_t n = 0;
    text[0] = '\0';
    for (int i = 0; error != nil && i < CAUSES_MAX && n < size; i++) {
        const char *s = [[error localizedDescription] UTF8String];
        const char *domain = [[error domain] UTF8String];
        int k =
            snprintf(text + n, size - n, "%s%s (%s %ld)", i > 0 ? ": " : "",
                     s != NULL ? s : "no text",
                     domain != NULL ? domain : "no domain", (long)[error code]);
        n += k > 0 ? (size_t)k : 0;
        id cause = [[error userInfo] objectForKey:NSUnderlyingErrorKey];
        error = [cause isKindOfClass:[NSError class]] ? cause : nil;
    }
}

/* Its number in known; countof(known): nobody has met it. */
static size_t find(const char *text)
{
    size_t i = 0;
    while (i < countof(known) && strstr(text, known[i].says) == NULL) {
        i++;
    }
    return i;
}

/* What it means stands first: long texts, with paths in them, are cut. */
int coreml_error(struct err *e, NSError *error, const char *what)
{
    char text[TEXT_MAX];
    put_text(error, text, sizeof(text));
    if (error == nil) {
        (void)snprintf(text, sizeof(text), "nothing");
    }
    size_t i = find(text);
    if (i == countof(known)) {
        return err_set(e, ERR_BACKEND, "%s failed: Core ML says: %s", what,
                       text);
    }
    return err_set(e, ERR_BACKEND, "%s failed: %s (%s). Core ML says: %s", what,
                   known[i].means, known[i].says, text);
}

int coreml_raised(struct err *e, NSException *x, const char *what)
{
    const char *name = [[x name] UTF8String];
    const char *reason = [[x reason] UTF8String];
    return err_set(e, ERR_BACKEND, "%s failed: Core ML raised %s: %s", what,
                   name != NULL ? name : "an exception",
                   reason != NULL ? reason : "no reason given");
}
