/* constrain.h - the constraint of an answer: a text of model/grammar/grammar.h
 * (grammar_from_text) that holds a model to an answer, or to calls of tools, in
 * the form in which it writes them.
 *
 *   reply_forms_find -> reply_constraint -> grammar_from_text
 *
 * What the constraint lets through, the parser (reply.h) reads as what it is
 * meant to be: calls are whole, of tools that there are, and text is text. Two
 * exceptions: a mark that ends a value inside a string of arguments (between
 * tags and in harmony, where the parser takes it for one), and a key that
 * stands twice in any object. The parser has to know which parameters are of
 * type string (reply_strings). Control tokens of reply_forms.marks are text for
 * the constraint; texts that end the generation are no part of it.
 *
 * Arguments keep to the schemas of the tools where `kind` says so below. A tool
 * without parameters, or with {}, takes no arguments: that is what OpenAI says
 * of tools without, and a model given any object would invent some. Other
 * schemas must be of objects.
 *
 * Thread: any.
 */
#pragma once

#include "base/buf.h"
#include "model/reply/reply.h"
#include "proto/json.h"

struct reply_want {
    /* In OpenAI's form: a list of {"type": "function", "function": {"name",
     * "parameters", "strict"}}. NULL: the parser looks for none. */
    const struct json *tools;
    enum {
        WANT_ANSWER, /* no call */
        WANT_AUTO,   /* text or calls, or both. Arguments of strict tools keep
                        to their schemas, others' are any objects */
        WANT_CALL,   /* at least one call and no text. All arguments keep to
                        their schemas; where a schema cannot be held, those of
                        tools that are not strict are any objects */
    } kind;
    const char *name; /* WANT_CALL: only this tool; NULL: any of them */
    bool parallel;    /* several calls may follow each other, where the form
                         writes them so */
    /* A constraint that the text keeps to when there is no call, without the
     * thought; NULL: any text. */
    const char *answer;
    bool thoughts_open; /* the prompt has opened a thought */
    bool thoughts_off;  /* no thought may come: the prompt has closed it */
};

/* Append the constraint to out; after an error that is as it was. Thoughts are
 * free, but must end. In harmony the prompt ends with <|start|>assistant, or
 * inside analysis; Functionary's that have >>> end with it.
 *
 * WANT_AUTO: text that is no call may not have the marks of calls in it, nor
 * begin as calls do that have no mark. Errors: UNSUPPORTED (the model's form,
 * or a strict tool's schema, which is named with the word and its path);
 * INVALID (no such tool, no tools, a name or a schema that no call can have);
 * TOO_BIG; NOMEM. */
CHECKED int reply_constraint(const struct reply_forms *f,
                             const struct reply_want *w, struct buf *out,
                             struct err *e);
