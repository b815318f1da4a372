/* chat.h - from messages to prompt text, by a model's own chat template.
 *
 * The template is compiled once (model/jinja/jinja.h) and rendered many times.
 * The prompt is byte for byte what transformers' apply_chat_template makes of
 * the same input. Tokenise it with special = true; when it begins with the BOS
 * text, add no other BOS.
 *
 * What is not plain text comes as JSON text: it belongs to no thread, and it
 * keeps what a tree of doubles loses (1 and 1.0 are printed differently).
 *
 * Thread: a compiled template never changes; any number of threads may render
 * it at the same time.
 */
#pragma once

#include "base/buf.h"

struct chat_message {
    const char *role; /* "system", "developer", "user", "assistant", "tool" */
    const char *content; /* NULL: as `fields` has it, or none */
    size_t content_n;
    /* A JSON object with further members of the message: tool_calls,
     * tool_call_id, name, reasoning_content, content as a list of parts. Empty:
     * none. A member `role`, or `content` beside content, is an error. */
    struct span fields;
    /* What the assistant thought before it said that, NULL: nothing. The
     * template gets it by the names that it mentions, of reasoning_content,
     * reasoning and thinking; else it is dropped. */
    const char *reasoning;
    size_t reasoning_n;
};

struct chat_request {
    const struct chat_message *messages;
    size_t n_messages;
    bool add_generation; /* begin the assistant's turn */
    /* Where the last message is the assistant's, go on with it in place of
     * beginning a turn: chat_continue.h. Only with add_generation. */
    bool go_on;
    bool join;  /* where the template refuses these messages, try again with
                   neighbours of one role as one: many demand that user and
                   assistant alternate, and clients send what they have */
    bool parse; /* arguments of tool_calls that are a text are what its JSON
                   says, if that is an object: OpenAI's clients send texts, and
                   templates go through members. Where the template refuses
                   that, try again with the texts. */
    struct span tools;     /* a JSON array, or empty: none */
    struct span documents; /* the same */
    /* A JSON object with further variables, OpenAI's chat_template_kwargs:
     * {"enable_thinking": false}. It may replace those above. Empty: none. */
    struct span kwargs;
    const char *bos, *eos; /* texts of those tokens, "" when absent */
    int64_t now;    /* seconds since 1970: some templates write today's date, in
                       the local time zone */
    uint32_t steps; /* at most, see jinja_render; 0: JINJA_STEPS_MAX; each try
                       has as many */
};

struct chat_template;

/* A template that is a file of text. *text is the caller's: buf_fini; after an
 * error nothing is owned. Errors: NOT_FOUND, IO, TEMPLATE (more than
 * JINJA_TEXT_MAX bytes, or a NUL byte). */
CHECKED int chat_read(const char *path, struct buf *text, struct err *e);
/* tmpl: the Jinja text (NULL when the model has none: TEMPLATE). Errors: those
 * of jinja_compile. *ret is the caller's: chat_free(). */
CHECKED int chat_compile(const char *tmpl, struct chat_template **ret,
                         struct err *e);
void chat_free(struct chat_template *t); /* NULL is fine */

/* Whether the template mentions this name at all, as a variable or an
 * attribute: a template without "tools" cannot show any. */
bool chat_mentions(const struct chat_template *t, const char *name);

/* Append the prompt to b, which is untouched on failure. A template that does
 * not know the role developer gets such a message as a system message. Errors:
 * TEMPLATE_INPUT (the template refuses these messages: its own text; or it does
 * not show the last one, which is to be continued),
 * TEMPLATE (it uses what aned does not have), JSON, INVALID (content that is
 * not UTF-8), TOO_BIG. */
CHECKED int chat_render(const struct chat_template *t,
                        const struct chat_request *q, struct buf *b,
                        struct err *e);

/* The same with all variables as one JSON object, for `aned template`:
 * messages, add_generation_prompt, tools, bos_token and what else the template
 * knows; with continue_final_message the prompt ends inside the last message.
 * tools and documents are none where it does not name them. bos and eos,
 * which may be NULL, are used where it has no bos_token and eos_token. */
CHECKED int chat_render_json(const struct chat_template *t, struct span vars,
                             const char *bos, const char *eos, int64_t now,
                             struct buf *b, struct err *e);
