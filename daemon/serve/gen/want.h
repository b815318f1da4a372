/* want.h - from what a request wants of its answer to one constraint.
 *
 * What a model may write first (thoughts), and how it writes calls, depends on
 * its chat template (model/reply/constrain.h), so this is text work.
 */
#pragma once

#include "serve/gen/voc.h"

/* Fill w->constraint by w->want; w->out has the prompt of CHAT. It is compiled
 * once to see that it can be: what a schema has that is not known is an error
 * here, before anything is generated. Sets w->blame before it fails. Errors:
 * those of grammar_from_text and reply_constraint, in w->e. */
CHECKED int want_constraint(const struct voc *v, struct text_work *w);
