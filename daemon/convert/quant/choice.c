/* choice.c - patterns over the names of tensors. */
#include "convert/quant/choice.h"

#include <string.h>

/* The output projection: of its own, or the embedding's. */
static const char *const head_names[] = {"output.weight", "token_embd.weight"};

static bool matches(const char *pattern, const char *name)
{
    const char *star = NULL; /* the last one seen, and */
    const char *from = NULL; /* where its text may end next */
    while (*name != '\0') {
        if (*pattern == '*') {
            star = pattern++;
            from = name;
        } else if (*pattern == *name) {
            pattern++;
            name++;
        } else if (star != NULL) {
            pattern = star + 1;
            name = ++from;
        } else {
            return false;
        }
    }
    while (*pattern == '*') {
        pattern++;
    }
    return *pattern == '\0';
}

static int add(struct quant_choice *c, const char *pattern, size_t n,
               const char *kind, struct err *e)
{
    struct quant_rule *r = &c->rules[c->n_rules];
    if (c->n_rules == QUANT_RULES_MAX) {
        return err_set(e, ERR_TOO_BIG, "more than %u patterns of tensors",
                       QUANT_RULES_MAX);
    }
    if (n == 0 || n > GGUF_NAME_MAX) {
        return err_set(e, ERR_INVALID,
                       "a pattern of tensors has 1 to %u characters",
                       GGUF_NAME_MAX);
    }
    RETERR(quant_parse(kind, &r->spec, e));
    memcpy(r->pattern, pattern, n);
    r->pattern[n] = '\0';
    r->used = false;
    c->n_rules++;
    return 0;
}

int quant_choice_init(struct quant_choice *c, const char *quant,
                      const char *head, struct err *e)
{
    *c = (struct quant_choice){.n_rules = 0};
    RETERR(quant_parse(quant, &c->spec, e));
    if (head == NULL && quant_entries(c->spec.kind) > 0) {
        head = "int8";
    }
    for (size_t i = 0; head != NULL && i < countof(head_names); i++) {
        RETERR(add(c, head_names[i], strlen(head_names[i]), head, e));
        c->rules[i].used = true; /* a model has one of them */
    }
    return 0;
}

int quant_choice_target(const char *quant, uint64_t bytes, double kl,
                        struct err *e)
{
    bool has_kl = !(kl >= 0 && kl <= 0); /* NaN too */
    if (bytes == 0 && !has_kl) {
        return 0;
    }
    if (bytes > 0 && has_kl) {
        return err_set(e, ERR_INVALID,
                       "a target of bytes and one of KL: give one of them");
    }
    if (quant != NULL) {
        return err_set(e, ERR_INVALID,
                       "a target chooses the forms: leave out quant '%.32s', "
                       "or give a pattern of tensors that form",
                       quant);
    }
    if (bytes > TARGET_BYTES_MAX) {
        return err_set(e, ERR_INVALID, "a target of at most %llu bytes",
                       (unsigned long long)TARGET_BYTES_MAX);
    }
    return !has_kl || (kl >= TARGET_KL_MIN && kl <= TARGET_KL_MAX)
               ? 0
               : err_set(e, ERR_INVALID, "a target KL of %g to %g nats, not %g",
                         TARGET_KL_MIN, TARGET_KL_MAX, kl);
}

int quant_choice_add(struct quant_choice *c, const char *rule, struct err *e)
{
    const char *kind = strrchr(rule, '=');
    if (kind == NULL) {
        return err_set(e, ERR_INVALID,
                       "'%.64s': PATTERN=KIND, such as 'blk.*.ffn_down.*=int8'",
                       rule);
    }
    return add(c, rule, (size_t)(kind - rule), kind + 1, e);
}

/* Routers choose the same experts as the source's only with its own weights,
 * which are few. */
#define ROUTERS "blk.*.ffn_gate_inp*.weight"

bool quant_choice_rule(const struct quant_choice *c, const char *tensor,
                       struct quant_spec *ret)
{
    for (uint32_t i = c->n_rules; i-- > 0;) {
        if (matches(c->rules[i].pattern, tensor)) {
            *ret = c->rules[i].spec;
            return true;
        }
    }
    if (matches(ROUTERS, tensor)) {
        *ret = (struct quant_spec){QUANT_FP16, 1};
        return true;
    }
    return false;
}

struct quant_spec quant_choice_for(const struct quant_choice *c,
                                   const char *tensor)
{
    struct quant_spec s = c->spec;
    if (quant_choice_rule(c, tensor, &s)) {
        return s;
    }
    for (uint32_t i = 0; i < c->n_picks; i++) {
        if (strcmp(c->picks[i].tensor, tensor) == 0) {
            return c->picks[i].spec;
        }
    }
    return s;
}

void quant_choice_note(struct quant_choice *c, const char *tensor)
{
    for (uint32_t i = 0; i < c->n_rules; i++) {
        struct quant_rule *r = &c->rules[i];
        r->used = r->used || matches(r->pattern, tensor);
    }
}

int quant_choice_check(const struct quant_choice *c, struct err *e)
{
    for (uint32_t i = 0; i < c->n_rules; i++) {
        if (!c->rules[i].used) {
            return err_set(e, ERR_INVALID,
                           "no matrix of this model is named '%s' ('*' is any "
                           "text; `aned inspect FILE` lists the names)",
                           c->rules[i].pattern);
        }
    }
    return 0;
}
