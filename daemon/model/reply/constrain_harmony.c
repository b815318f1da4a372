/* constrain_harmony.c - the constraint of an answer in harmony's messages
 * (harmony.c), behind <|start|>assistant:
 *
 *   { <|channel|>analysis<|message|> thought <|end|><|start|>assistant }
 *   ( <|channel|>final<|message|> answer | call )
 *
 * Beside calls, text for the user may come in commentary before them. A call
 * ends the answer, so there is one. Its recipient stands before or behind its
 * channel: models write the one, templates the other. */
#include <string.h>

#include "model/reply/constrain_impl.h"

/* Control tokens that may not stand in a message. */
#define IN_MESSAGE                                                     \
    "\"<|start|>\",\"<|channel|>\",\"<|message|>\",\"<|constrain|>\"," \
    "\"<|call|>\",\"<|return|>\""

static void rest_of_message(struct constrain *c)
{
    parts_raw(&c->p, "{\"until\":\"<|end|>\",\"without\":[" IN_MESSAGE "]}");
    parts_text(&c->p, "<|start|>assistant");
}

static void message(struct constrain *c, const char *header)
{
    parts_begin(&c->p, "seq");
    parts_text(&c->p, header);
    rest_of_message(c);
    parts_end(&c->p);
}

static void before_last(struct constrain *c)
{
    bool thoughts = !c->w->thoughts_off;
    bool text = c->w->kind == WANT_AUTO;
    if (thoughts && c->w->thoughts_open) {
        rest_of_message(c);
    }
    if (!thoughts && !text) {
        return;
    }
    parts_repeat(&c->p);
    parts_begin(&c->p, "any");
    if (thoughts) {
        message(c, "<|channel|>analysis<|message|>");
    }
    if (text) {
        message(c, "<|channel|>commentary<|message|>");
    }
    parts_end(&c->p);
    parts_repeat_end(&c->p, 0, 0, "");
}

static void final(struct constrain *c)
{
    parts_begin(&c->p, "seq");
    parts_text(&c->p, "<|channel|>final<|message|>");
    parts_raw(&c->p, c->w->answer != NULL
                         ? c->w->answer
                         : "{\"without\":[\"<|end|>\"," IN_MESSAGE "]}");
    parts_end(&c->p);
}

/* A header with the tool's name, and its arguments. */
static void call(struct constrain *c, const struct tool *t)
{
    static const char *const headers[][2] = {
        {"<|channel|>commentary to=functions.", ""                     },
        {" to=functions.",                      "<|channel|>commentary"},
    };
    char text[REPLY_NAME_MAX + 128];
    parts_begin(&c->p, "seq");
    parts_begin(&c->p, "any");
    for (size_t i = 0; i < countof(headers); i++) {
        (void)snprintf(text, sizeof(text), "%s%s%s", headers[i][0], t->name,
                       headers[i][1]);
        parts_text(&c->p, text);
    }
    parts_end(&c->p);
    parts_regex(&c->p, " (<\\|constrain\\|> ?)?json");
    parts_text(&c->p, "<|message|>");
    constrain_json_args(c, t);
    parts_end(&c->p);
}

int constrain_harmony(struct constrain *c)
{
    const struct json *at = NULL;
    struct tool t = {0};
    int rc = 0;
    unsigned n = 0;
    parts_begin(&c->p, "seq");
    before_last(c);
    parts_begin(&c->p, "any");
    if (c->w->kind != WANT_CALL) {
        final(c);
    }
    while (c->w->kind != WANT_ANSWER &&
           constrain_next_tool(c, NULL, &at, &t, &rc)) {
        call(c, &t);
        n++;
    }
    parts_end(&c->p);
    parts_end(&c->p);
    return rc == 0 && n == 0 && c->w->kind == WANT_CALL ? constrain_no_tool(c)
                                                        : rc;
}
