/* job_target.c - a conversion whose forms are chosen (target/target.h). */
#include <string.h>

#include "convert/calibrate/writer.h"
#include "convert/job.h"
#include "convert/quality/quality.h"

bool convert_has_target(const struct job *j)
{
    return j->o->target_bytes > 0 || j->o->target_kl > 0;
}

static void use_picks(struct job *j)
{
    j->forms.picks = j->target.picks;
    j->forms.n_picks = j->target.n_picks;
}

int convert_list_target(struct job *j, struct err *e)
{
    if (!convert_has_target(j)) {
        return 0;
    }
    RETERR(target_list(&j->d, &j->forms, &j->target, e));
    use_picks(j);
    return 0;
}

int convert_check_target(const struct job *j, struct err *e)
{
    uint64_t least = convert_weight_bytes(j);
    return j->o->target_bytes == 0 || j->o->target_bytes >= least
               ? 0
               : err_set(e, ERR_CONVERT,
                         "the programs' weights have %llu bytes with the "
                         "smallest form of each matrix; the target is %llu. A "
                         "larger one, or a smaller --head-quant",
                         (unsigned long long)least,
                         (unsigned long long)j->o->target_bytes);
}

/* --- the choice --- */

/* "31 lut4, 66 lut6 and so on: 5.2 bits a weight of the layers, KL ..." */
static void tell_choice(struct job *j)
{
    const struct target *t = &j->target;
    char forms[128] = "";
    size_t at = 0;
    uint64_t bytes = 0;
    uint64_t weights = 0;
    unsigned counts[TARGET_FORMS] = {0};
    static const enum quant kinds[] = {QUANT_LUT4, QUANT_LUT6, QUANT_INT8,
                                       QUANT_FP16};
    for (uint32_t i = 0; i + 1 < t->n_matrices; i++) { /* the last: the head */
        const struct target_matrix *m = &t->matrices[i];
        const struct target_cost *c = &m->costs[m->chosen];
        bytes += c->bytes;
        weights += m->weights;
        for (size_t k = 0; k < countof(kinds); k++) {
            counts[k] += c->spec.kind == kinds[k] ? 1 : 0;
        }
    }
    for (size_t k = 0; k < countof(kinds); k++) {
        char name[QUANT_TEXT_MAX];
        quant_text((struct quant_spec){kinds[k], 1}, name);
        name[strcspn(name, ":")] = '\0';
        if (counts[k] > 0) {
            at += (size_t)snprintf(forms + at, sizeof(forms) - at, "%s%u %s",
                                   at > 0 ? ", " : "", counts[k], name);
        }
    }
    (void)snprintf(j->result.target, sizeof(j->result.target),
                   "%s: %.2f bits a weight of the layers; KL %.4f in fp32, "
                   "of %u positions that the model wrote",
                   forms, (double)bytes * 8 / (double)weights, t->reached,
                   t->positions);
}

static struct target_conf conf_of(struct job *j)
{
    return (struct target_conf){
        /* what no choice changes has its bytes already */
        .bytes = j->o->target_bytes > 0
                     ? j->o->target_bytes -
                           (convert_weight_bytes(j) - j->target.bytes)
                     : 0,
        .kl = j->o->target_kl,
        .feedback = j->calibrates,
        .weights = &j->emit.weights,
        .text = j->text,
    };
}

static int make_text(struct job *j, struct err *e)
{
    char vocab[PATH_ROOM];
    int32_t ids[QUALITY_TOKENS] = {0};
    RETERR(convert_staged(j, "tokenizer.gguf", vocab, e));
    const struct target_text_conf conf = {
        .threads = j->o->threads,
        .progress = &j->progress,
        .ids = ids,
        .n = quality_tokens(j->g, vocab, j->d.vocab, ids, QUALITY_TOKENS, NULL),
        .bos = writer_bos(&j->d, vocab),
        .context = j->emit.context,
    };
    return target_text_make(&j->d, &conf, &j->text, e);
}

int convert_choose(struct job *j, struct err *e)
{
    if (!convert_has_target(j)) {
        return 0;
    }
    RETERR(make_text(j, e));
    const struct target_conf conf = conf_of(j);
    RETERR(target_choose(&j->d, &conf, &j->target, e));
    use_picks(j);
    plan_input_fini(&j->in);
    RETERR(convert_make_plan(j, e));
    RETERR(convert_check_target(j, e));
    RETERR(convert_check_fit(j, e));
    return convert_check_room(j, e);
}

int convert_verify_target(struct job *j, struct err *e)
{
    if (!convert_has_target(j)) {
        return 0;
    }
    j->target.reached = j->target.measured;
    if (j->calibrates) {
        const struct target_conf conf = conf_of(j);
        RETERR(target_verify(&j->d, &conf, calibration_rows, j->calibration,
                             &j->target.reached, e));
    }
    tell_choice(j);
    return 0;
}

/* --- bundle.json --- */

void convert_name_forms(struct job *j)
{
    if (convert_has_target(j)) {
        (void)snprintf(j->quant, sizeof(j->quant), "mixed");
    } else {
        quant_text(j->forms.spec, j->quant);
    }
}

void convert_describe_forms(struct job *j)
{
    const struct target *t = &j->target;
    struct bundle *b = &j->b;
    if (!convert_has_target(j)) {
        return;
    }
    b->forms = arena_array(&b->arena, t->n_matrices, sizeof(*b->forms));
    must(b->forms != NULL);
    for (uint32_t i = 0; i < t->n_matrices; i++) {
        char text[QUANT_TEXT_MAX];
        const struct target_matrix *m = &t->matrices[i];
        quant_text(m->costs[m->chosen].spec, text);
        b->forms[i].tensor = m->tensor;
        b->forms[i].quant = arena_str(&b->arena, text);
        must(b->forms[i].quant != NULL);
    }
    b->n_forms = t->n_matrices;
    b->target = (struct bundle_target){
        .present = true,
        .bytes = j->o->target_bytes,
        .kl = j->o->target_kl,
        .measured_kl = t->measured,
        .expected_kl = t->expected,
        .reached_kl = t->reached,
        .positions = t->positions,
    };
}
