/* job_options.c - the options of a job, and its source file. */
#include <string.h>

#include "base/file.h"
#include "base/num.h"
#include "convert/job.h"
#include "model/chat.h"

static const char *base_name(const char *path)
{
    const char *slash = strrchr(path, '/');
    return slash != NULL ? slash + 1 : path;
}

/* The model's name: the option, or the file's name without its suffix and
 * without the number of a part. Characters that a name must not have become
 * '-'. */
int convert_read_name(struct job *j, const char *path, struct err *e)
{
    const struct convert_options *o = j->o;
    struct span from = source_stem(path != NULL ? path : "model");
    if (o->name != NULL) {
        from = (struct span){o->name, strlen(o->name)};
    }
    size_t n = from.n;
    if (n == 0 || n > MODEL_NAME_MAX) {
        return err_set(e, ERR_INVALID, "a model name has 1 to %u characters",
                       MODEL_NAME_MAX);
    }
    memcpy(j->name, from.p, n);
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

int convert_choice(const char *what, const char *v, const char *a,
                   const char *b, bool *ret_b, struct err *e)
{
    if (v != NULL && strcmp(v, a) != 0 && strcmp(v, b) != 0) {
        return err_set(e, ERR_INVALID, "%s '%.32s': %s or %s", what, v, a, b);
    }
    *ret_b = v != NULL && strcmp(v, b) == 0;
    return 0;
}

/* A template that is not one is refused before any work. */
static int check_template(const char *text, struct err *e)
{
    struct chat_template *t = NULL;
    int rc = text != NULL ? chat_compile(text, &t, e) : 0;
    chat_free(t);
    return rc < 0 ? err_prefix(e, rc, "chat_template") : 0;
}

int convert_read_options(struct job *j, struct err *e)
{
    const struct convert_options *o = j->o;
    bool unused = false;
    RETERR(quant_choice_target(o->quant, o->target_bytes, o->target_kl, e));
    RETERR(quant_choice_init(&j->forms,
                             convert_has_target(j) ? "lut4" : o->quant,
                             o->head_quant, e));
    for (uint32_t i = 0; i < o->n_quant_for; i++) {
        RETERR(quant_choice_add(&j->forms, o->quant_for[i], e));
    }
    RETERR(shape_parse(o->shape, &j->emit.shape, e));
    RETERR(convert_choice("kv", o->kv, "state", "host", &j->emit.host, e));
    RETERR(experts_parse(o->experts, &j->experts, &j->expert_group, e));
    RETERR(convert_choice("output", o->output, "logits", "argmax",
                     &j->emit.argmax, e));
    RETERR(convert_choice("norm", o->norm, "scale", "max", &unused, e));
    RETERR(plan_profile(o->profile, &j->profile, e));
    RETERR(check_template(o->chat_template, e));
    if (o->out == NULL) { /* a question, and nothing to be named */
        (void)snprintf(j->name, sizeof(j->name), "%s", base_name(o->source));
        return 0;
    }
    RETERR(convert_read_name(j, o->source, e));
    return convert_read_out(j, e);
}

int convert_read_out(struct job *j, struct err *e)
{
    const struct convert_options *o = j->o;
    size_t n = strlen(o->out);
    while (n > 1 && o->out[n - 1] == '/') {
        n--; /* a folder may be named with its slash */
    }
    if (n == 0 || n >= sizeof(j->out)) {
        return err_set(e, ERR_INVALID, "the bundle's path has %zu bytes", n);
    }
    memcpy(j->out, o->out, n);
    j->out[n] = '\0';
    return o->keep_records || !file_exists(j->out)
               ? 0
               : err_set(e, ERR_EXISTS, "%s is already there", j->out);
}

/* Whichever part was named, the bundle's source is the first one; a folder's
 * name may have a slash behind it. */
static void source_name(struct job *j, const char *path)
{
    const char *name = base_name(path);
    struct span stem = source_stem(path);
    uint32_t no = 0;
    uint32_t count = 0;
    if (gguf_n_parts(j->g) > 1 && gguf_part_of(name, &no, &count)) {
        (void)snprintf(j->source_name, sizeof(j->source_name),
                       "%.*s-00001-of-%05u.gguf", (int)gguf_stem(name), name,
                       count);
    } else {
        size_t n = name[0] != '\0' ? strlen(name) : stem.n;
        name = name[0] != '\0' ? name : stem.p;
        (void)snprintf(j->source_name, sizeof(j->source_name), "%.*s", (int)n,
                       name);
    }
}

int convert_open_source(struct job *j, struct err *e)
{
    const struct convert_options *o = j->o;
    const char *path = o->source != NULL ? o->source : "source";
    int rc = o->files != NULL ? source_open_files(o->files, &j->g, e)
                              : source_open(path, &j->g, e);
    if (rc == 0) {
        source_name(j, path);
    }
    return rc;
}

int convert_check_source(const struct job *j, struct err *e)
{
    int rc = gguf_check_unchanged(j->g, e);
    return rc < 0 ? err_prefix(e, rc, "%s", j->source_name) : 0;
}

/* What one position costs a sequence. */
static uint64_t position_bytes(const struct decoder *d)
{
    uint64_t n = 0;
    for (uint32_t l = 0; l < d->n_layers; l++) {
        n += arch_position_bytes(d, l);
    }
    return n;
}

/* Without the option. *ret_by: plan_input.context_by */
static uint32_t default_context(const struct job *j, const char **ret_by)
{
    uint64_t most = MODEL_CONTEXT_DEFAULT;
    uint64_t each = position_bytes(&j->d);
    *ret_by = "default";
    if (!j->profile.chip && each > 0) {
        uint64_t room = j->o->memory_bytes / MODEL_CONTEXT_PARTS / each;
        bool less = room > most && room < MODEL_CONTEXT_LONG;
        *ret_by = less ? "memory" : "default";
        most = num_max(num_min(room, MODEL_CONTEXT_LONG), most);
    }
    if (j->d.context_train <= most) {
        *ret_by = "model";
        most = j->d.context_train;
    }
    return (uint32_t)(most >= 32 ? most / 32 * 32 : most);
}

/* What is read at once. With a window that reaches no farther, whatever the text's
 * length; without one it is the longest text: as asked, else what the source says
 * that the model is for. */
static int encoder_context(struct job *j, struct err *e)
{
    uint32_t want = j->o->context;
    uint64_t most = num_min(num_min(j->d.context_train, ENCODER_WHOLE_MAX),
                            shape_max(&j->emit.shape));
    j->context_by = want > 0 ? "asked" : "model";
    if (j->d.kinds[LAYER_GLOBAL].window > 0) {
        j->emit.context = ENCODER_ROWS_MAX;
        return 0;
    }
    if (want > most) {
        return err_set(e, ERR_INVALID,
                       "context %u; a text of at most %llu tokens is read at "
                       "once here",
                       want, (unsigned long long)most);
    }
    if (want == 0 && j->d.text_max > 0) {
        most = num_min(most, j->d.text_max);
    }
    j->emit.context = want > 0 ? want : (uint32_t)most;
    return 0;
}

/* S: the option, rounded up to a multiple of 32 where the model allows; else
 * what the model, the profile and the memory allow. */
int convert_choose_context(struct job *j, struct err *e)
{
    if (j->d.encoder) {
        return encoder_context(j, e);
    }
    uint32_t own = j->d.context_train;
    uint32_t want = j->o->context;
    if (want > own) {
        return err_set(e, ERR_INVALID, "context %u; the model was made for %u",
                       want, own);
    }
    uint32_t s = want;
    j->context_by = "asked";
    if (want == 0) {
        s = default_context(j, &j->context_by);
    } else if ((uint64_t)(want + 31) / 32 * 32 <= own) {
        s = (want + 31) / 32 * 32;
    }
    j->emit.context = s;
    return 0;
}

int convert_check_forms(struct job *j, struct err *e)
{
    /* Where the head is a tensor of its own, the embedding stays fp16. */
    bool tied = gguf_tensor(j->g, "output.weight") == NULL;
    for (size_t i = 0; i < gguf_n_tensors(j->g); i++) {
        const struct gguf_tensor *t = gguf_tensor_at(j->g, i);
        bool table = !tied && strcmp(t->name, "token_embd.weight") == 0;
        if (t->n_dims > 1 && !table) {
            quant_choice_note(&j->forms, t->name);
        }
    }
    return quant_choice_check(&j->forms, e);
}
