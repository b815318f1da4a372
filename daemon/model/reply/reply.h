/* reply.h - what the text of an answer consists of: text for the reader, what
 * the model thought before it, and calls of tools.
 *
 *   reply_forms_find (once a model, from its chat template)
 *   reply_new (once a choice) -> reply_put ... reply_end -> reply_free
 *
 * reply_forms.marks go to text_stream_marks (model/text.h).
 *
 * Models write both in forms of their own: <think> and its kin; a JSON object
 * between <tool_call> tags, [TOOL_CALLS], <|python_tag|>, channels and others.
 * The chat template shows which, because it writes earlier turns in the same
 * form.
 *
 * The parser takes text in pieces of any size and gives events in the order of
 * the text; how the text was cut changes nothing but how text, reasoning and
 * arguments are cut, and pieces that are valid UTF-8 give pieces that are.
 * Nothing is lost: what looked like a call and is none is given as text. It
 * holds back only what may be the beginning of a mark, at most REPLY_HELD_MAX
 * bytes; more than that is text.
 *
 * Three things are no text: marks that stand where they may; white space
 * before a mark, between calls and around a thought; blank lines behind a call
 * or a thought. Templates write that white space themselves, so an answer that
 * is sent back becomes the text that the engine has already.
 *
 * A call whose arguments break has, as they are, the bytes up to the break; in
 * JSON forms, up to where its brackets end, or the call's closing mark. Its end
 * says that it is not whole; what follows it is text again.
 *
 * Thread: any; a parser belongs to one at a time. Forms do not change.
 */
#pragma once

#include "base/base.h"
#include "base/err.h"

enum reply_tools {
    REPLY_NO_TOOLS, /* the template shows no form that is known */
    REPLY_HERMES,   /* <tool_call>{"name": .., "arguments": {..}}</tool_call>,
                       also with <function=f><parameter=a> (Qwen 3 coder) or
                       f<arg_key>a</arg_key> (GLM) inside */
    REPLY_LLAMA3,   /* {"name": .., "parameters": {..}}, also after
                       <|python_tag|> */
    REPLY_PYTHONIC, /* [f(a=1), g(b="x")] */
    REPLY_MISTRAL,  /* [TOOL_CALLS][{..}] and [TOOL_CALLS]f[ARGS]{..} */
    REPLY_FUNCTIONARY, /* >>>f\n{..} and <function=f>{..}</function> */
    REPLY_DEEPSEEK, /* <|tool_calls_begin|> .. (with its own bars) */
    REPLY_HARMONY,  /* <|channel|>commentary to=functions.f .. <|call|> */
    REPLY_GRANITE,  /* <|tool_call|>[{..}] or <tool_call>[{..}] */
    REPLY_LFM2,     /* <|tool_call_start|>[f(a=1)]<|tool_call_end|> */
    REPLY_GEMMA,    /* gemma 4's call:f{..}; before it, whose templates show no
                       tools: a ```tool_code or ```json block, or either
                       without a fence */
    REPLY_PHI,      /* <|tool_call|>[{..}]<|/tool_call|> */
    REPLY_COMMAND,  /* Command-R's Action: and <|START_ACTION|>[{..}] */
    REPLY_KIMI,     /* <|tool_call_begin|>functions.f:0 .. */
    REPLY_MINIMAX,  /* <minimax:tool_call><invoke name="f"> .. */
    REPLY_SEED,     /* <seed:tool_call><function=f> .. */
    REPLY_N_TOOLS
};

enum reply_thoughts {
    REPLY_NO_THOUGHTS,
    REPLY_THINK,          /* <think> .. </think> and kin, see open, close */
    REPLY_CHANNEL,        /* harmony's analysis channel */
};

struct reply_spelling;

struct reply_forms {
    enum reply_tools tools;
    /* How the template writes a call, for constrain.h; NULL: not known. */
    const struct reply_spelling *spelling;
    enum reply_thoughts thoughts;
    const char *open, *close; /* of REPLY_THINK: static texts */
    /* Texts of control tokens that the parser has to see, NULL at the end; a
     * static list. Other control tokens are no text. */
    const char *const *marks;
};

/* The forms of a chat template (NULL: a model without one). */
void reply_forms_find(const char *tmpl, struct reply_forms *ret);

struct reply_sink {
    void (*text)(void *ctx, const char *p, size_t n);
    void (*reasoning)(void *ctx, const char *p, size_t n);
    /* A call begins; its name is valid UTF-8 and has no NUL. */
    void (*call)(void *ctx, const char *name, size_t n);
    /* The next piece of its arguments: JSON text of one object, the same bytes
     * as the model wrote where the form is JSON. */
    void (*arguments)(void *ctx, const char *json, size_t n);
    /* It ends. whole: its arguments are one valid JSON object; false: the model
     * broke off. */
    void (*call_end)(void *ctx, bool whole);
};

struct reply;

/* The prompt's end has opened a thought, or has closed one. Of REPLY_THINK. */
bool reply_opens_thought(const struct reply_forms *f, const char *prompt_tail,
                         size_t n);
bool reply_closes_thought(const struct reply_forms *f, const char *prompt_tail,
                          size_t n);

/* tools: look for calls; else what looks like one is text. prompt_tail: the
 * last bytes of the prompt, which may have opened a thought (many templates end
 * with "<think>\n"). sink and f must outlive the parser. */
struct reply *reply_new(const struct reply_forms *f, bool tools,
                        const char *prompt_tail, size_t n,
                        const struct reply_sink *sink, void *ctx);
void reply_free(struct reply *r); /* NULL is fine */
/* The next n bytes of the answer, valid UTF-8 over all pieces. */
void reply_put(struct reply *r, const char *p, size_t n);
/* The answer has ended: what was held back is given, an open call ends. */
void reply_end(struct reply *r);

/* Forms with tags write strings without quotes: 1 may be a number or a string,
 * {"a": 1} an object or the text of a file. Whether parameter key of tool name
 * is a string, as the request's schema has it. Without this function, what
 * reads as a JSON number, object, list or constant is one. Call it before the
 * first reply_put; ctx must outlive the parser. */
typedef bool (*reply_string_fn)(void *ctx, const char *name, size_t n,
                                const char *key, size_t key_n);
void reply_strings(struct reply *r, reply_string_fn is_string, void *ctx);
