/* job_calibrate.c - whether a conversion calibrates, and when it does: between
 * the measuring and the writing. Its files stand in a folder beside the bundle
 * that is being made, so a later run of the same conversion finds them. */
#include <string.h>

#include "base/crew.h"
#include "base/file.h"
#include "convert/job.h"

#define FOLDER "calibration"

/* Has a matrix that is stored so few bits? */
static bool has_few_bits(const struct job *j)
{
    bool few = false;
    const struct decoder *d = &j->d;
    const struct part *head = arch_head(d);
    few = quant_entries(quant_choice_for(&j->forms, head->t->name).kind) > 0;
    for (uint32_t l = 0; l < d->n_layers; l++) {
        for (unsigned s = SLOT_LAYER; s < SLOT_COUNT; s++) {
            const struct part *p = arch_matrix(d, l, (enum arch_slot)s);
            few =
                few ||
                (p != NULL &&
                 quant_bits(quant_choice_for(&j->forms, p->t->name).kind) < 8);
        }
    }
    return few;
}

int convert_choose_calibration(struct job *j, struct err *e)
{
    const struct convert_options *o = j->o;
    const char *want = o->calibrate;
    uint32_t sequences = 0;
    if (want != NULL && strcmp(want, "on") != 0 && strcmp(want, "off") != 0) {
        return err_set(e, ERR_INVALID, "calibrate '%.32s': on or off", want);
    }
    bool off = want != NULL && strcmp(want, "off") == 0;
    if (o->calibration != NULL && off) {
        return err_set(e, ERR_INVALID,
                       "a calibration text is of no use with --calibrate off");
    }
    if (o->calibration != NULL) {
        RETERR(calibrate_check_text(o->calibration, o->calibration_bytes, e));
    }
    bool asked = (want != NULL && !off) || o->calibration != NULL;
    j->calibrates =
        !j->d.encoder && (asked || (!off && has_few_bits(j)));
    if (!j->calibrates) {
        return 0;
    }
    int rc = calibrate_fit(&j->d, &j->forms, &sequences, e);
    if (rc == ERR_UNSUPPORTED && !asked) {
        gguf_note(&j->result.notes, "not calibrated: %.300s", e->msg);
        j->calibrates = false;
        return 0;
    }
    return rc;
}

/* Where the codes stand. */
static int folder(const struct job *j, char out[PATH_ROOM], struct err *e)
{
    return file_join(out, PATH_ROOM, work_dir(j->work), FOLDER)
               ? 0
               : err_set(e, ERR_INVALID, "the path of the bundle is too long");
}

static int open_heads(struct job *j, struct err *e)
{
    j->heads = calloc(j->plan.n_heads, sizeof(*j->heads));
    if (j->heads == NULL) {
        return err_set(e, ERR_NOMEM, "no memory for the head's slices");
    }
    for (uint32_t i = 0; i < j->plan.n_heads; i++) {
        j->heads[i] = (struct calibrate_slice){j->plan.heads[i].first,
                                               j->plan.heads[i].last};
    }
    return 0;
}

int convert_calibrate(struct job *j, struct err *e)
{
    char dir[PATH_ROOM];
    char vocab[PATH_ROOM];
    const struct convert_options *o = j->o;
    if (!j->calibrates) {
        return 0;
    }
    RETERR(open_heads(j, e));
    RETERR(folder(j, dir, e));
    RETERR(convert_staged(j, "tokenizer.gguf", vocab, e));
    double cost = calibrate_cost(&j->d, &j->forms, o->calibration == NULL);
    RETERR(progress_stage(&j->progress, "calibrating", (uint64_t)cost, e));
    const struct calibrate_conf conf = {.threads = o->threads,
                                        .progress = &j->progress,
                                        .forms = &j->forms,
                                        .dir = dir,
                                        .vocab = vocab,
                                        .source = j->digest.hex,
                                        .text = o->calibration,
                                        .text_bytes = o->calibration_bytes,
                                        .heads = j->heads,
                                        .n_heads = j->plan.n_heads};
    RETERR(calibrate_run(&j->d, &conf, &j->calibration, e));
    j->emit.weights.codes = calibration_codes;
    j->emit.weights.ctx = j->calibration;
    return 0;
}

int convert_end_calibration(struct job *j, struct err *e)
{
    char dir[PATH_ROOM];
    if (!j->calibrates) {
        return 0;
    }
    RETERR(folder(j, dir, e));
    return file_rmtree(dir, e);
}
