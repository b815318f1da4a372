/* choice.h - which form each tensor of a model gets. */
#pragma once

#include "convert/quant.h"

struct quant_rule {
    char pattern[GGUF_NAME_MAX + 1]; /* '*' is any text, also none */
    struct quant_spec spec;
    bool used; /* it matched a matrix: quant_choice_note */
};

/* A form that was chosen for one tensor. */
struct quant_pick {
    const char *tensor; /* of the source */
    struct quant_spec spec;
};

/* What a rule says that matches the tensor's name in the source, of several
 * the last one, or that routers are fp16; else its pick; else `spec`. Zeroed:
 * int8, which needs
 * quant_choice_init. */
struct quant_choice {
    struct quant_spec spec;
    uint32_t n_picks;
    const struct quant_pick *picks; /* borrowed */
    uint32_t n_rules;
    struct quant_rule rules[QUANT_RULES_MAX];
};

/* quant: as quant_parse. head: the output projection's, also when it is the
 * embedding's tensor; NULL: int8 under palettes, which were not tried there,
 * and else `quant`. Errors: those of quant_parse. */
CHECKED int quant_choice_init(struct quant_choice *c, const char *quant,
                              const char *head, struct err *e);
/* Do a target and `quant` go together? 0 is no target. Errors: INVALID, which
 * says what to leave out or how large the target may be. */
CHECKED int quant_choice_target(const char *quant, uint64_t bytes, double kl,
                                struct err *e);
/* Add the rule "PATTERN=KIND". Errors: INVALID, TOO_BIG, those of quant_parse.
 */
CHECKED int quant_choice_add(struct quant_choice *c, const char *rule,
                             struct err *e);
struct quant_spec quant_choice_for(const struct quant_choice *c,
                                   const char *tensor);
/* What a rule says of the tensor; false: none does. */
bool quant_choice_rule(const struct quant_choice *c, const char *tensor,
                       struct quant_spec *ret);

/* Say that the source has a matrix of this name; when all were said, refuse a
 * rule that matched none of them. Errors: INVALID, which names the pattern. */
void quant_choice_note(struct quant_choice *c, const char *tensor);
CHECKED int quant_choice_check(const struct quant_choice *c, struct err *e);
