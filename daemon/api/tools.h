/* tools.h - tools of a request, calls and results of earlier turns, from any
 * dialect's JSON to what chat templates know (model/chat.h): OpenAI's form,
 * with keys in the client's order. Arguments stay the text that they came as;
 * chat_render makes objects of them.
 *
 * What says nothing to a model is left out: null, cache_control, strict, which
 * is for the engine (tools_kwargs).
 *
 * Thread: any; they use only their arguments.
 */
#pragma once

#include "api/messages.h"
#include "api/params.h"

/* {"type": "function", "function": {"name", "description", "parameters"}}
 * (OpenAI, Ollama), or {"name", "description", "input_schema"} (Anthropic). */
enum tools_form { TOOLS_FUNCTIONS, TOOLS_SCHEMAS };

/* *ret: the JSON array, allocated in a; empty when v is absent, null or [].
 * Errors: INVALID, UNSUPPORTED, TOO_BIG, beginning with "tools". */
CHECKED int tools_read(struct arena *a, const struct json *v,
                       enum tools_form form, struct span *ret, struct err *e);

/* The calls of the last assistant message that has some. Results are for them:
 * some templates want the tool's name with its result, and all dialects but
 * Ollama's say an id only. Zeroed at the beginning of a conversation. */
struct calls {
    uint32_t made; /* ids made for calls that came without one */
    uint32_t n;
    struct {
        const char *id, *name; /* in the request's arena */
        bool answered;
    } call[CALLS_MAX];
};

struct call_said {
    const char *id; /* NULL: one is made, of 9 letters and digits, which
                       mistral's templates want */
    const char *name;
    const char *arguments; /* JSON text */
};

/* One call of a message: adds it to k, and to `list`, the value of tool_calls.
 * Errors: INVALID (too many, a name too long), TOO_BIG. */
CHECKED int calls_add(struct calls *k, struct arena *a, struct json *list,
                      const struct call_said *x, const char *where,
                      struct err *e);
/* v: the value of `tool_calls` in message m, OpenAI's or Ollama's (arguments
 * may be an object, id may be absent). NULL, null and [] are none. Fills
 * m->fields. Errors: INVALID, UNSUPPORTED, TOO_BIG. */
CHECKED int calls_read(struct calls *k, struct arena *a, const struct json *v,
                       const char *where, struct chat_message *m,
                       struct err *e);
/* {"tool_calls": list} becomes m->fields; list is freed. Errors: TOO_BIG. */
CHECKED int calls_done(struct arena *a, struct json *list,
                       struct chat_message *m, struct err *e);
/* m is a tool's result: m->fields gets tool_call_id and name. id and name may
 * be NULL: then those of the call that it answers. Errors: TOO_BIG. */
CHECKED int calls_answer(struct calls *k, struct arena *a, const char *id,
                         const char *name, struct chat_message *m,
                         struct err *e);

/* *ret: a JSON array of objects, as v has it, or empty. Errors: INVALID,
 * TOO_BIG. */
CHECKED int documents_read(struct arena *a, const struct json *v,
                           struct span *ret, struct err *e);
/* What the template is told beside the conversation: tools (none with
 * tool_choice none; p gets which are strict), and as JSON object, or empty, what the request says about
 * thinking and in chat_template_kwargs, which p then has no longer. Errors:
 * tools_read's. */
CHECKED int tools_kwargs(struct arena *a, const struct json *tools,
                         enum tools_form form, struct params *p,
                         struct span *ret_tools, struct span *ret_kwargs,
                         struct err *e);
