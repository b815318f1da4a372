/* chat_continue.h - a prompt that ends inside its last message, so that the
 * model goes on with it.
 *
 * The rule is transformers' continue_final_message: a mark is put behind the
 * message's text, the template is rendered, and the prompt is cut where the
 * mark stands. The mark has transformers' own letters, because there are
 * templates that look for it.
 *
 * Thread: any; the functions use only their arguments.
 */
#pragma once

#include "model/jinja/value.h"

/* Whether these variables end with a message of the assistant that can be
 * continued: it has a text and no calls of tools. A message whose text is empty
 * or white space is taken off the list, unless it is the only one: a new turn
 * is what continues it. */
bool continue_wanted(struct val_dict *vars);

/* Put the mark behind the text of the last message: its content, or the last
 * part of the content that has a text. *ret is that text without the mark and
 * without white space around it. Errors: TEMPLATE_INPUT (no such text),
 * TOO_BIG. */
CHECKED int continue_mark(struct arena *a, struct val_dict *vars,
                          struct span *ret, struct err *e);

/* Cut b, which holds the rendered prompt from `from` on, where the last mark
 * stands; where the template trims the text, white space before it goes, too.
 * Errors: TEMPLATE_INPUT: the mark is not there, or something else than `text`
 * stands before it. */
CHECKED int continue_cut(struct buf *b, size_t from, struct span text,
                         struct err *e);
