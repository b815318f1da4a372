/* job_options.c - the options of a job, and its source file. */
#include <errno.h>
#include <fcntl.h>
#include <string.h>

#include "base/file.h"
#include "convert/job.h"

static const char *base_name(const char *path)
{
    const char *slash = strrchr(path, '/');
    return slash != NULL ? slash + 1 : path;
}

/* The model's name: the option, or the file's name without its suffix.
 * Characters that a name must not have become '-'. */
static int choose_name(struct job *j, struct err *e)
{
    const struct convert_options *o = j->o;
    const char *from = o->name;
    if (from == NULL) {
        from = o->source != NULL ? base_name(o->source) : "model";
    }
    size_t n = strlen(from);
    if (o->name == NULL && n > 5 && strcmp(from + n - 5, ".gguf") == 0) {
        n -= 5;
    }
    if (n == 0 || n > MODEL_NAME_MAX) {
        return err_set(e, ERR_INVALID, "a model name has 1 to %u characters",
                       MODEL_NAME_MAX);
    }
    memcpy(j->name, from, n);
    j->name[n] = '\0';
    for (char *c = j->name; o->name == NULL && *c != '\0'; c++) {
        bool ok = (*c >= 'a' && *c <= 'z') || (*c >= 'A' && *c <= 'Z') ||
                  (*c >= '0' && *c <= '9') || *c == '.' || *c == '_' ||
                  *c == '-';
        *c = ok ? *c : '-';
    }
    if (!file_name_ok(j->name)) {
        return err_set(e, ERR_INVALID, "'%s' cannot be a model's name",
                       j->name);
    }
    return 0;
}

static int choice_of(const char *what, const char *v, const char *a,
                     const char *b, bool *ret_b, struct err *e)
{
    if (v != NULL && strcmp(v, a) != 0 && strcmp(v, b) != 0) {
        return err_set(e, ERR_INVALID, "%s '%.32s': %s or %s", what, v, a, b);
    }
    *ret_b = v != NULL && strcmp(v, b) == 0;
    return 0;
}

int convert_read_options(struct job *j, struct err *e)
{
    const struct convert_options *o = j->o;
    bool unused = false;
    RETERR(quant_parse(o->quant, &j->emit.weights.quant, e));
    RETERR(choice_of("shape", o->shape, "ranged", "functions",
                     &j->emit.functions, e));
    RETERR(choice_of("kv", o->kv, "state", "host", &j->emit.host, e));
    RETERR(choice_of("norm", o->norm, "scale", "max", &unused, e));
    RETERR(plan_profile(o->profile, &j->profile, e));
    if (o->out == NULL) { /* a question, and nothing to be named */
        (void)snprintf(j->name, sizeof(j->name), "%s", base_name(o->source));
        return 0;
    }
    RETERR(choose_name(j, e));
    size_t n = strlen(o->out);
    while (n > 1 && o->out[n - 1] == '/') {
        n--; /* a folder may be named with its slash */
    }
    if (n == 0 || n >= sizeof(j->out)) {
        return err_set(e, ERR_INVALID, "the bundle's path has %zu bytes", n);
    }
    memcpy(j->out, o->out, n);
    j->out[n] = '\0';
    return !file_exists(j->out)
               ? 0
               : err_set(e, ERR_EXISTS, "%s is already there", j->out);
}

int convert_open_source(struct job *j, struct err *e)
{
    const struct convert_options *o = j->o;
    const char *name = o->source != NULL ? o->source : "source";
    j->fd = o->source_fd >= 0
                ? fcntl(o->source_fd, F_DUPFD_CLOEXEC, 0)
                : open(o->source, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (j->fd < 0) {
        return err_errno(e, errno, name);
    }
    if (fstat(j->fd, &j->st) < 0) {
        return err_errno(e, errno, name);
    }
    (void)snprintf(j->source_name, sizeof(j->source_name), "%s",
                   base_name(name));
    return gguf_open_fd(j->fd, &j->g, e);
}

int convert_check_source(const struct job *j, struct err *e)
{
    struct stat st = {0};
    if (fstat(j->fd, &st) < 0) {
        return err_errno(e, errno, j->source_name);
    }
    if (!file_unwritten(&j->st, &st)) {
        return err_set(e, ERR_SOURCE_CHANGED,
                       "%s was written to while it was converted",
                       j->source_name);
    }
    return 0;
}

/* S: the option, rounded up to a multiple of 32 where the model allows; else
 * the model's own context, at most the default. */
int convert_choose_context(struct job *j, struct err *e)
{
    uint32_t own = j->d.context_train;
    uint32_t want = j->o->context;
    if (want > own) {
        return err_set(e, ERR_INVALID, "context %u; the model was made for %u",
                       want, own);
    }
    uint32_t s = want;
    if (want == 0) {
        s = own < MODEL_CONTEXT_DEFAULT ? own : MODEL_CONTEXT_DEFAULT;
        s = s >= 32 ? s / 32 * 32 : s;
    } else if ((uint64_t)(want + 31) / 32 * 32 <= own) {
        s = (want + 31) / 32 * 32;
    }
    j->emit.context = s;
    return 0;
}
