/* spelling.c - how calls are written, as chat templates write those of earlier
 * turns: that is what models were trained to write. Where templates of one form
 * differ, a text of the template tells the row. */
#include <string.h>

#include "model/reply/constrain_impl.h"
#include "model/reply/reply_marks.h"

#define T(text) \
    {           \
        PIECE_TEXT, text \
    }
#define R(regex) \
    {            \
        PIECE_REGEX, regex \
    }
#define NAME \
    {        \
        PIECE_NAME, NULL \
    }
#define ARGS \
    {        \
        PIECE_ARGS, NULL \
    }

static const struct value_tags qwen_values = {
    "<parameter=", ">\n", "", "", "\n", "</parameter>", "\n"};
static const struct value_tags seed_values = {
    "<parameter=", ">", "", "", "", "</parameter>", "\n"};
static const struct value_tags minimax_values = {
    "<parameter name=\"", "\">", "", "", "", "</parameter>", "\n"};
/* Some of its kin break lines between tags, others do not. */
static const struct value_tags glm_values = {
    "<arg_key>", "</arg_key>", "\n?", "<arg_value>", "", "</arg_value>",
    "\n?"};

static const struct reply_spelling spellings[] = {
    {.tools = REPLY_HERMES,
     .has = "<function=",
     .mark = "<tool_call>",
     .call = {T("\n<function="), NAME, T(">\n"), ARGS,
              T("</function>\n</tool_call>")},
     .between = "\n<tool_call>",
     .plain_name = true,
     .values = VALUES_TAGS,
     .tags = &qwen_values},
    {.tools = REPLY_HERMES,
     .has = "<arg_key>",
     .mark = "<tool_call>",
     .call = {NAME, R("\n?"), ARGS, T("</tool_call>")},
     .between = "\n?<tool_call>",
     .plain_name = true,
     .values = VALUES_TAGS,
     .tags = &glm_values},
    {.tools = REPLY_HERMES,
     .mark = "<tool_call>",
     .call = {T("\n{\"name\": \""), NAME, T("\", \"arguments\": "), ARGS,
              T("}\n</tool_call>")},
     .between = "\n<tool_call>"},
    {.tools = REPLY_LLAMA3, /* its templates refuse a second call */
     .call = {T("{\"name\": \""), NAME, T("\", \"parameters\": "), ARGS,
              T("}")}},
    {.tools = REPLY_MISTRAL,
     .has = "[ARGS]",
     .mark = "[TOOL_CALLS]",
     .call = {NAME, R("(\\[CALL_ID\\][A-Za-z0-9]{9})?"), T("[ARGS]"), ARGS},
     .between = "\\[TOOL_CALLS\\]",
     .plain_name = true},
    {.tools = REPLY_MISTRAL,
     .mark = "[TOOL_CALLS]",
     .open = {R(" ?\\[")},
     .call = {T("{\"name\": \""), NAME, T("\", \"arguments\": "), ARGS,
              R("(, \"id\": \"[A-Za-z0-9]{9}\")?"), T("}")},
     .between = ", ",
     .close = "]"},
    {.tools = REPLY_GRANITE,
     .has = "<|tool_call|>",
     .mark = "<|tool_call|>",
     .open = {T("[")},
     .call = {T("{\"name\": \""), NAME, T("\", \"arguments\": "), ARGS,
              T("}")},
     .between = ", ",
     .close = "]"},
    {.tools = REPLY_GRANITE,
     .mark = "<tool_call>",
     .call = {T("\n{\"name\": \""), NAME, T("\", \"arguments\": "), ARGS,
              T("}\n</tool_call>")},
     .between = "\n<tool_call>"},
    {.tools = REPLY_PHI,
     .mark = "<|tool_call|>",
     .open = {T("[")},
     .call = {T("{\"name\": \""), NAME, T("\", \"arguments\": "), ARGS,
              T("}")},
     .between = ", ",
     .close = "]<|/tool_call|>"},
    {.tools = REPLY_DEEPSEEK,
     .has = "```json",
     .mark = DS(DS_CALLS "begin"),
     .call = {T(DS(DS_CALL "begin") "function" DS_SEP), NAME,
              T("\n```json\n"), ARGS, T("\n```" DS(DS_CALL "end"))},
     .between = "\n",
     .close = DS(DS_CALLS "end"),
     .plain_name = true},
    {.tools = REPLY_DEEPSEEK,
     .mark = DS(DS_CALLS "begin"),
     .call = {T(DS(DS_CALL "begin")), NAME, T(DS_SEP), ARGS,
              T(DS(DS_CALL "end"))},
     .between = "",
     .close = DS(DS_CALLS "end"),
     .plain_name = true},
    {.tools = REPLY_KIMI,
     .mark = "<|tool_calls_section_begin|>",
     .call = {T("<|tool_call_begin|>functions."), NAME, R(":[0-9]{1,3}"),
              T("<|tool_call_argument_begin|>"), ARGS, T("<|tool_call_end|>")},
     .between = "",
     .close = "<|tool_calls_section_end|>",
     .plain_name = true},
    {.tools = REPLY_FUNCTIONARY, /* the prompt ends with >>> */
     .has = ">>>",
     .mark = ">>>",
     .say = "all\n",
     .call = {NAME, T("\n"), ARGS},
     .between = ">>>",
     .plain_name = true},
    {.tools = REPLY_FUNCTIONARY,
     .has = "functools[",
     .mark = "functools",
     .open = {T("[")},
     .call = {T("{\"name\": \""), NAME, T("\", \"arguments\": "), ARGS,
              T("}")},
     .between = ", ",
     .close = "]"},
    {.tools = REPLY_FUNCTIONARY,
     .mark = "<function=",
     .call = {NAME, T(">"), ARGS, T("</function>")},
     .between = "<function=",
     .plain_name = true},
    {.tools = REPLY_GEMMA,
     .has = "<|tool_call>",
     .mark = "<|tool_call>call:",
     .call = {NAME, T("{"), ARGS, T("}<tool_call|>")},
     .between = "<\\|tool_call>call:",
     .plain_name = true,
     .values = VALUES_GEMMA},
    {.tools = REPLY_GEMMA, /* what prompts ask of those without tools */
     .mark = "```json",
     .open = {T("\n")},
     .call = {T("{\"name\": \""), NAME, T("\", \"parameters\": "), ARGS,
              T("}")},
     .between = "\n",
     .close = "\n```"},
    {.tools = REPLY_COMMAND,
     .has = "<|START_ACTION|>",
     .mark = "<|START_ACTION|>",
     .open = {T("[\n")},
     .call = {T("    {\"tool_call_id\": \""), R("[0-9]{1,3}"),
              T("\", \"tool_name\": \""), NAME, T("\", \"parameters\": "), ARGS,
              T("}")},
     .between = ",\n",
     .close = "\n]<|END_ACTION|>"},
    {.tools = REPLY_COMMAND,
     .mark = "Action:",
     .open = {T("\n```json\n[\n")},
     .call = {T("    {\n        \"tool_name\": \""), NAME,
              T("\",\n        \"parameters\": "), ARGS, T("\n    }")},
     .between = ",\n",
     .close = "\n]```"},
    {.tools = REPLY_MINIMAX,
     .mark = "<minimax:tool_call>",
     .open = {T("\n")},
     .call = {T("<invoke name=\""), NAME, T("\">\n"), ARGS, T("</invoke>\n")},
     .between = "",
     .close = "</minimax:tool_call>",
     .plain_name = true,
     .values = VALUES_TAGS,
     .tags = &minimax_values},
    {.tools = REPLY_SEED,
     .mark = "<seed:tool_call>",
     .call = {T("\n<function="), NAME, T(">\n"), ARGS,
              T("</function>\n</seed:tool_call>")},
     .between = "\n<seed:tool_call>",
     .plain_name = true,
     .values = VALUES_TAGS,
     .tags = &seed_values},
    {.tools = REPLY_LFM2,
     .mark = "<|tool_call_start|>",
     .open = {T("[")},
     .call = {NAME, T("("), ARGS, T(")")},
     .between = ", ",
     .close = "]<|tool_call_end|>",
     .plain_name = true,
     .values = VALUES_PYTHON},
    {.tools = REPLY_PYTHONIC,
     .open = {T("[")},
     .call = {NAME, T("("), ARGS, T(")")},
     .between = ", ",
     .close = "]",
     .plain_name = true,
     .values = VALUES_PYTHON},
};

const struct reply_spelling *spelling_find(enum reply_tools tools,
                                           const char *tmpl)
{
    for (size_t i = 0; i < countof(spellings); i++) {
        const struct reply_spelling *s = &spellings[i];
        if (s->tools == tools &&
            (s->has == NULL || strstr(tmpl, s->has) != NULL)) {
            return s;
        }
    }
    return NULL;
}
