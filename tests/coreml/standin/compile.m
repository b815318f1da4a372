/* compile.m - compileModelAtURL: a .mlpackage becomes a .mlmodelc.
 *
 * Core ML's own holds coremldata.bin, model.mil and weights. This one holds the
 * package's files as they are, which the interpreter reads, and a
 * coremldata.bin of ours: the OS build, and the package that it was made from.
 */
#include <fcntl.h>
#include <string.h>
#include <unistd.h>

#include "base/file.h"
#import "standin.h"

#define MARK     "aned stand-in 1\n"
#define MARK_MAX 4096 /* bytes */

/* --- coremldata.bin --- */

static int write_mark(const char *dir, const char *source, const char *os_build,
                      struct err *e)
{
    char path[FAULT_PATH_MAX];
    struct buf b;
    buf_init(&b, MARK_MAX);
    buf_printf(&b, MARK "%s\n%s\n", os_build, source);
    int rc = 0;
    if (!buf_ok(&b) || !file_join(path, sizeof(path), dir, "coremldata.bin")) {
        rc = err_set(e, ERR_INVALID, "the path is too long");
    } else {
        rc = file_replace(path, b.p, b.n, e);
    }
    buf_fini(&b);
    return rc;
}

/* False: not what write_mark has written. */
static bool parse_mark(char *s, struct compiled *ret)
{
    size_t n = strlen(MARK);
    char *rest = NULL;
    if (strncmp(s, MARK, n) != 0) {
        return false;
    }
    const char *build = strtok_r(s + n, "\n", &rest);
    const char *source = strtok_r(NULL, "\n", &rest);
    return build != NULL && source != NULL &&
           snprintf(ret->os_build, sizeof(ret->os_build), "%s", build) > 0 &&
           snprintf(ret->source, sizeof(ret->source), "%s", source) > 0;
}

NSError *si_compiled_read(NSURL *url, struct compiled *ret)
{
    char path[FAULT_PATH_MAX];
    struct buf b = {0};
    struct err e = {0};
    NSString *p = [url isFileURL] ? [url path] : @"";
    int n = snprintf(ret->path, sizeof(ret->path), "%s", [p UTF8String]);
    bool ok = n > 0 && (size_t)n < sizeof(ret->path) &&
              file_join(path, sizeof(path), ret->path, "coremldata.bin") &&
              file_read(path, MARK_MAX, &b, &e) == 0 && b.n > 0 &&
              parse_mark(b.p, ret);
    buf_fini(&b);
    if (ok) {
        return nil;
    }
    return si_error(MLModelErrorIO,
                    @"Unable to load model: %@. Compile the model with "
                    @"Xcode or `MLModel.compileModel(at:)`. ",
                    [url absoluteString]);
}

/* --- compiling --- */

/* The package's files, below the folder `to`. */
static NSError *copy_files(NSString *from, NSString *to)
{
    NSFileManager *fm = [[[NSFileManager alloc] init] autorelease];
    for (NSString *name in @[ @"Manifest.json", @"Data" ]) {
        NSString *a = [from stringByAppendingPathComponent:name];
        NSString *b = [to stringByAppendingPathComponent:name];
        NSError *why = nil;
        if (![fm copyItemAtPath:a toPath:b error:&why]) {
            return si_error_because(why, MLModelErrorIO, @"Failed to copy %@",
                                    a);
        }
    }
    return nil;
}

/* aned's validator knows this trap; Core ML's compiler does not. */
static bool is_mixed(const struct mil_program *p)
{
    const char *fixed = NULL;
    const char *ranged = NULL;
    bool mixed = false;
    for (size_t i = 0; i < p->n_functions && !mixed; i++) {
        mixed = si_description_mixed(p->functions[i], &fixed, &ranged);
    }
    return mixed;
}

/* nil: a sound package. */
static NSError *check_package(NSString *path)
{
    struct mil_program *p = NULL;
    struct err e = {0};
    int rc = mil_read([path UTF8String], &p, &e);
    if (rc == 0 && !is_mixed(p)) {
        rc = mil_validate(p, &e);
    }
    mil_free(p);
    if (rc == 0) {
        return nil;
    }
    return si_error(MLModelErrorGeneric,
                    @"Failed to parse the model specification. Error: %s",
                    e.msg);
}

/* A new folder NAME.mlmodelc in a new temporary folder. */
static NSString *make_folder(NSString *package)
{
    NSString *tmp = [NSTemporaryDirectory()
        stringByAppendingPathComponent:@"coreml-XXXXXX"];
    char dir[FAULT_PATH_MAX];
    int n = snprintf(dir, sizeof(dir), "%s", [tmp UTF8String]);
    if (n < 0 || (size_t)n >= sizeof(dir) || mkdtemp(dir) == NULL) {
        return nil;
    }
    NSString *name =
        [[[package lastPathComponent] stringByDeletingPathExtension]
            stringByAppendingPathExtension:@"mlmodelc"];
    NSString *path = [[NSString stringWithUTF8String:dir]
        stringByAppendingPathComponent:name];
    struct err e = {0};
    return file_mkdirs([path UTF8String], 0700, &e) == 0 ? path : nil;
}

NSURL *si_compile_package(NSURL *url, NSError **error)
{
    struct fault_conf conf;
    NSString *package = [url path];
    const char *source = [package UTF8String];
    struct fault_target target = {.source = source};
    si_count_add(COUNT_COMPILES, 1);
    si_fault_conf(&conf);
    if (conf.prints) {
        (void)printf("# standin: compiling %s\n", source);
        (void)fflush(stdout);
    }
    if (si_fault_hit(FAULT_COMPILE_ERROR, &target, NULL)) {
        return si_fail(
            error, si_error(MLModelErrorGeneric, @"compiler error: injected"));
    }
    NSError *why = check_package(package);
    if (why != nil) {
        return si_fail(error, why);
    }
    NSString *to = make_folder(package);
    if (to == nil) {
        return si_fail(error, si_error(MLModelErrorIO, @"No temporary folder"));
    }
    struct err e = {0};
    why = copy_files(package, to);
    if (why == nil &&
        write_mark([to UTF8String], source, conf.os_build, &e) < 0) {
        why = si_error(MLModelErrorIO, @"%s", e.msg);
    }
    if (why != nil) {
        NSString *parent = [to stringByDeletingLastPathComponent];
        (void)!file_rmtree([parent UTF8String], &e);
        return si_fail(error, why);
    }
    return [NSURL fileURLWithPath:to isDirectory:YES];
}
