/* chat.h - from messages to prompt text, for known families of chat templates.
 *
 * The family is recognised in the template's text: ChatML, Llama 2, Llama 3,
 * Gemma, Phi (3 and 4) and Zephyr. Other templates are refused with an error
 * that says what was found (TEMPLATE). The output is byte for byte what the
 * template renders under Jinja2 for plain text messages. Tokenise it with
 * special = true; when it begins with the BOS text, add no other BOS.
 */
#pragma once

#include "base/buf.h"

struct chat_message {
    const char *role; /* "system", "developer", "user", "assistant" */
    const char *content;
    size_t content_n;
};

enum chat_family {
    CHAT_NONE,
    CHAT_CHATML,
    CHAT_LLAMA2,
    CHAT_LLAMA3,
    CHAT_GEMMA,
    CHAT_PHI3,
    CHAT_PHI4,
    CHAT_ZEPHYR
};

/* tmpl: the Jinja text (NULL when the model has none: TEMPLATE). */
CHECKED int chat_detect(const char *tmpl, enum chat_family *ret, struct err *e);
const char *chat_family_name(enum chat_family f);

/* Append the prompt to b, with the generation prompt after it when
 * add_generation. bos/eos: texts of those tokens ("" when absent). tmpl is the
 * same text as given to chat_detect (small variations inside a family depend on
 * it). Errors: TEMPLATE_INPUT (roles that do not fit), TOO_BIG. */
CHECKED int chat_render(enum chat_family f, const char *tmpl, const char *bos,
                        const char *eos, const struct chat_message *m, size_t n,
                        bool add_generation, struct buf *b, struct err *e);

/* The same at a time given in seconds since 1970: some templates (Llama 3.2)
 * write today's date, in the local time zone. */
CHECKED int chat_render_at(const char *tmpl, const char *bos, const char *eos,
                           const struct chat_message *m, size_t n,
                           bool add_generation, int64_t now, struct buf *b,
                           struct err *e);
