/* job_work.c - what an earlier run of the same conversion left, and what this
 * one leaves.
 *
 * The key is of all that decides the bytes of the weights: the source's
 * identity, the options as they were given, the versions. The number of threads
 * and the model's name do not: a name is only in bundle.json, which is written
 * last. What is measured decides too, but later: convert_bind_work.
 */
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/file.h"
#include "base/log.h"
#include "convert/job.h"

#define KEY_TEXT_MAX KIB(16)

static void put_word(struct buf *b, const char *name, const char *v)
{
    buf_printf(b, "%s %s\n", name, v != NULL ? v : "-");
}

/* A text to calibrate with, by its digest. */
static void put_text(struct buf *b, const char *text, size_t n)
{
    struct sha256 s;
    uint8_t d[SHA256_BYTES];
    char hex[SHA256_HEX];
    if (text == NULL) {
        return;
    }
    sha256_init(&s);
    sha256_add(&s, text, n);
    sha256_end(&s, d);
    sha256_hex(d, hex);
    put_word(b, "text", hex);
}

/* A file is the same while its number, size and time of writing are: no byte is
 * read for it. Its device is left out, for numbers of devices change when the
 * system starts. */
static int put_source(const struct job *j, struct buf *b, struct err *e)
{
    for (size_t i = 0; i < gguf_n_parts(j->g); i++) {
        struct stat st;
        if (fstat(gguf_part_fd(j->g, i), &st) != 0) {
            return err_set(e, ERR_IO, "the source cannot be looked at");
        }
        buf_printf(b, "source %llu %lld %lld\n", (unsigned long long)st.st_ino,
                   (long long)st.st_size, (long long)file_mtime_ns(&st));
    }
    return 0;
}

static int make_key(const struct job *j, char key[SHA256_HEX], struct err *e)
{
    const struct convert_options *o = j->o;
    struct buf b;
    struct sha256 s;
    uint8_t d[SHA256_BYTES];
    buf_init(&b, KEY_TEXT_MAX);
    put_word(&b, "version", ANED_VERSION);
    buf_printf(&b, "bundle %d\n", BUNDLE_FORMAT);
    int rc = put_source(j, &b, e);
    put_word(&b, "quant", o->quant);
    put_word(&b, "head", o->head_quant);
    for (uint32_t i = 0; i < o->n_quant_for; i++) {
        put_word(&b, "for", o->quant_for[i]);
    }
    put_word(&b, "shape", o->shape);
    put_word(&b, "kv", o->kv);
    put_word(&b, "experts", o->experts);
    put_word(&b, "output", o->output);
    put_word(&b, "profile", j->profile.name);
    put_word(&b, "norm", o->norm);
    buf_printf(&b, "scale %a\ncontext %u\n", o->residual_scale, o->context);
    put_word(&b, "calibrate", o->calibrate);
    put_text(&b, o->calibration, o->calibration_bytes);
    buf_printf(&b, "target %llu %a\n", (unsigned long long)o->target_bytes,
               o->target_kl);
    if (rc == 0 && !buf_ok(&b)) {
        rc = err_set(e, ERR_TOO_BIG, "the options are too long");
    }
    if (rc == 0) {
        sha256_init(&s);
        sha256_add(&s, b.p, b.n);
        sha256_end(&s, d);
        sha256_hex(d, key);
    }
    buf_fini(&b);
    return rc;
}

/* The folder that `out` will stand in. */
static void parent_of(const struct job *j, char to[PARENT_ROOM])
{
    file_parent(j->out, to, PARENT_ROOM);
}

uint64_t convert_work_bytes(const struct job *j)
{
    char key[SHA256_HEX];
    char parent[PARENT_ROOM];
    char dir[WORK_ROOM];
    struct err e = {0};
    parent_of(j, parent);
    return make_key(j, key, &e) == 0 && work_place(parent, key, dir, &e) == 0
               ? work_tree_bytes(dir)
               : 0;
}

static void fill_kept(struct job *j)
{
    j->kept = (struct job_kept){.tables = work_bytes(j->work, "embed"),
                                .layers = work_bytes(j->work, "layers_"),
                                .head = work_bytes(j->work, "head_")};
    convert_costs(j);
}

int convert_open_work(struct job *j, struct err *e)
{
    char key[SHA256_HEX];
    char parent[PARENT_ROOM];
    parent_of(j, parent);
    RETERR(make_key(j, key, e));
    RETERR(work_open(parent, key, j->o->keep_records ? j->out : NULL, &j->work,
                     e));
    work_sweep(parent, strrchr(work_dir(j->work), '/') + 1);
    (void)snprintf(j->staging, sizeof(j->staging), "%s", work_bundle(j->work));
    j->emit.work = j->work;
    j->emit.dir = j->staging;
    fill_kept(j);
    if (work_worth(j->work)) {
        log_info("work_found", "dir=%s tables=%llu layers=%llu head=%llu",
                 work_dir(j->work), (unsigned long long)j->kept.tables,
                 (unsigned long long)j->kept.layers,
                 (unsigned long long)j->kept.head);
    }
    return 0;
}

int convert_bind_work(struct job *j, struct err *e)
{
    char text[64];
    bool same = false;
    (void)snprintf(text, sizeof(text), "%a %s", (double)j->choice.alpha,
                   j->choice.norm == NORM_MAX ? "max" : "scale");
    RETERR(work_note(j->work, "range", text, &same, e));
    if (same) {
        return 0;
    }
    log_info("work_dropped", "dir=%s: another range", work_dir(j->work));
    RETERR(work_forget(j->work, e));
    fill_kept(j);
    RETERR(work_note(j->work, "range", text, &same, e));
    must(same);
    return 0;
}

int convert_bind_source(struct job *j, struct err *e)
{
    bool same = false;
    RETERR(work_note(j->work, "source", j->digest.hex, &same, e));
    return same ? 0
                : err_set(e, ERR_SOURCE_CHANGED,
                          "%s has other bytes than when this conversion began, "
                          "and the same size and time; convert it again",
                          j->source_name);
}

/* Is the file the one on record? */
static bool still_there(const char *path, const struct work_record *r)
{
    char hex[SHA256_HEX];
    uint64_t bytes = 0;
    struct err e = {0};
    return sha256_file(path, hex, &bytes, &e) == 0 && bytes == r->bytes &&
           strcmp(hex, r->sha256) == 0;
}

int convert_write_table(struct job *j, const struct gguf_tensor *t,
                        const char *name, struct err *e)
{
    char path[PATH_ROOM];
    struct weights_hash h;
    const struct work_record *r = work_find(j->work, name);
    RETERR(convert_staged(j, name, path, e));
    if (r == NULL || !still_there(path, r)) {
        RETERR(file_rmtree(path, e));
        RETERR(weights_file(&j->emit.weights, t, path, &h, e));
        RETERR(work_put(j->work, name, h.bytes, h.sha256, e));
    }
    convert_known(j, name);
    return 0;
}

void convert_known(struct job *j, const char *path)
{
    const struct work_record *r =
        j->work != NULL ? work_find(j->work, path) : NULL;
    if (r == NULL) {
        return; /* bundle_write reads it */
    }
    if (j->known == NULL) {
        j->known = calloc(BUNDLE_FILES_MAX, sizeof(*j->known));
        must(j->known != NULL);
    }
    if (j->n_known < BUNDLE_FILES_MAX) {
        struct bundle_file *f = &j->known[j->n_known++];
        f->path = arena_str(&j->b.arena, path);
        must(f->path != NULL);
        f->bytes = r->bytes;
        memcpy(f->sha256, r->sha256, SHA256_HEX);
    }
}

/* Not the fault of the file or of the request: the same may go on later. */
static bool can_go_on(int rc)
{
    return rc == ERR_CANCELLED || rc == ERR_NO_SPACE || rc == ERR_IO ||
           rc == ERR_NOMEM;
}

static void say_what_lacks(const struct job *j, bool keep, struct err *e)
{
    struct err own = *e;
    struct err ignored = {0};
    uint64_t there = 0;
    bool known = false;
    uint64_t need = convert_bundle_bytes(j);
    uint64_t made = work_tree_bytes(work_dir(j->work));
    need -= made < need ? made : need;
    if (convert_free_bytes(j->out, &known, &there, &ignored) == 0 && known) {
        (void)err_set(e, own.code,
                      "%.200s; %.1f MB are still to be written and %.1f MB "
                      "are free: make room, and convert again%s",
                      own.msg, (double)need / 1e6, (double)there / 1e6,
                      keep ? "; what is done is kept and gone on with" : "");
    }
}

void convert_close_work(struct job *j, int rc, struct err *e)
{
    if (j->work == NULL) {
        return;
    }
    bool keep = rc == 0 ? j->o->keep_records
                        : can_go_on(rc) && work_worth(j->work);
    if (rc == ERR_NO_SPACE) {
        say_what_lacks(j, keep, e);
    }
    work_close(j->work, keep);
    j->work = NULL;
}
