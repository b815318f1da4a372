/* compile.m - from a package to a compiled model at a path that stays. */
#include <string.h>
#include <unistd.h>

#include "base/file.h"
#import "engine/coreml/coreml.h"

static NSString *path_of(const char *path)
{
    return [[NSFileManager defaultManager]
        stringWithFileSystemRepresentation:path
                                    length:strlen(path)];
}

NSURL *folder_url(const char *path)
{
    return [NSURL fileURLWithPath:path_of(path) isDirectory:YES];
}

/* What Core ML has put into a temporary folder, moved away from there or not
 * wanted any more. The folder may have been made for it alone. */
static void clean(NSURL *made)
{
    struct err e = {0};
    const char *tmp = getenv("TMPDIR"); /* NOLINT: nobody sets it */
    NSString *path = [made path];
    NSString *folder = [path stringByDeletingLastPathComponent];
    NSString *shared =
        [[NSString stringWithUTF8String:tmp != NULL ? tmp : "/tmp"]
            stringByAppendingPathComponent:@"x"];
    (void)!file_rmtree([path fileSystemRepresentation], &e);
    if (![folder isEqualToString:[shared stringByDeletingLastPathComponent]]) {
        (void)rmdir([folder fileSystemRepresentation]); /* when it is empty */
    }
}

/* Core ML writes a line to stdout meanwhile. It is left alone: descriptor 1 is
 * the whole process's. *ret is autoreleased. */
static int compile(const char *pkg, const struct backend_watch *watch,
                   NSURL **ret, struct err *e)
{
    CoreMLAnswer *answer = [[[CoreMLAnswer alloc] init] autorelease];
    @try {
        [MLModel compileModelAtURL:folder_url(pkg)
                 completionHandler:^(NSURL *made, NSError *error) {
                   if (![answer giveValue:made error:error] && made != nil) {
                       clean(made);
                   }
                 }];
    } @catch (NSException *x) {
        return coreml_raised(e, x, "compiling the package");
    }
    return [answer take:ret watch:watch what:"compiling the package" error:e];
}

/* Core ML's temporary folder may be on another disk than the cache. */
static int move(NSURL *made, const struct cache_entry *x, struct err *e)
{
    char part[COREML_PATH_MAX];
    NSError *error = nil;
    NSString *from = [made path];
    if (from == nil) {
        return err_set(e, ERR_BACKEND, "Core ML compiled to no path");
    }
    RETERR(cache_part(x, part, sizeof(part), e));
    BOOL moved = [[NSFileManager defaultManager] moveItemAtPath:from
                                                         toPath:path_of(part)
                                                          error:&error];
    return moved ? 0 : coreml_error(e, error, "keeping the compiled model");
}

/* With the lock. */
static int fill(struct backend_model *m, const struct backend_conf *conf,
                struct err *e)
{
    NSURL *made = nil;
    RETERR(cache_tidy(&m->compiled, e));
    if (file_is_dir(m->compiled.path)) {
        return 0; /* another process was faster */
    }
    RETERR(cache_remove(&m->compiled, e)); /* it is no folder */
    RETERR(compile(m->compiled.source, &conf->watch, &made, e));
    int rc = move(made, &m->compiled, e);
    if (rc == 0) {
        rc = cache_publish(&m->compiled, e);
    }
    clean(made);
    m->counts.compiled = rc == 0;
    return rc;
}

int compile_find(struct backend_model *m, const char *pkg,
                 const struct backend_conf *conf, struct err *e)
{
    char path[PATH_BYTES_MAX];
    int fd = -1;
    const char *cache = conf->cache;
    if (cache == NULL) {
        RETERR(cache_temporary(path, sizeof(path), e));
        m->temporary = true;
        cache = path;
    }
    RETERR(cache_entry_init(&m->compiled, cache, pkg, system_build(), e));
    if (file_is_dir(m->compiled.path)) {
        return 0;
    }
    RETERR(cache_lock(&m->compiled, &conf->watch, &fd, e));
    int rc = fill(m, conf, e);
    cache_unlock(fd);
    return rc;
}

int compile_again(struct backend_model *m, uint64_t stamp,
                  const struct backend_conf *conf, struct err *e)
{
    int fd = -1;
    RETERR(cache_lock(&m->compiled, &conf->watch, &fd, e));
    int rc =
        cache_stamp(&m->compiled) == stamp ? cache_remove(&m->compiled, e) : 0;
    if (rc == 0) {
        rc = fill(m, conf, e);
    }
    cache_unlock(fd);
    return rc;
}

void compile_drop(struct backend_model *m)
{
    if (m->temporary) {
        cache_temporary_drop();
        m->temporary = false;
    }
}
