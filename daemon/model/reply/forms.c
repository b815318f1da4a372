/* forms.c - the tables: which marks a form has and what follows them, which
 * control tokens are among them, and which template shows which form.
 */
#include <string.h>

#include "model/reply/constrain_impl.h"
#include "model/reply/reply_marks.h"

/* --- tags --- */

static const struct reply_tags qwen_tags = {
    "<function=", ">", "<parameter=", ">", NULL, "</parameter>", "</function>"};

static const struct reply_tags glm_tags = {
    .key = "<arg_key>",
    .key_end = "</arg_key>",
    .value = "<arg_value>",
    .value_end = "</arg_value>",
};

static const struct reply_tags minimax_tags = {
    "<invoke name=\"", "\">", "<parameter name=\"", "\">",
    NULL, "</parameter>", "</invoke>"};

/* --- rows --- */

/* Calls that stand in the text without a mark: only at its beginning. */
#define OBJECT_ROW                                                      \
    {                                                                   \
        .mark = "{", .at_start = true, .needs_args = true,              \
        .open = reply_open_object                                       \
    }
#define LIST_ROW                                                        \
    {                                                                   \
        .mark = "[", .at_start = true, .needs_args = true,              \
        .open = reply_open_list                                         \
    }
#define FUNCTION_ROW                                                    \
    {                                                                   \
        .mark = "<function=", .tags = &qwen_tags,                       \
        .open = reply_open_tagged_name                                  \
    }

static const struct reply_row hermes[] = {
    {.mark = "<tool_call>",
     .close = "</tool_call>",
     .open = reply_open_any,
     .tags = &qwen_tags,
     .word = reply_open_tagged_word,
     .word_tags = &glm_tags},
    FUNCTION_ROW, /* Qwen 3 coder forgets what should be around it */
};

static const struct reply_row llama3[] = {
    {.mark = "<|python_tag|>",
     .open = reply_open_any,
     .word = reply_open_python},
    OBJECT_ROW,
    LIST_ROW,
    FUNCTION_ROW,
};

static const struct reply_row pythonic[] = {
    LIST_ROW,
    {.mark = "<|python_start|>",
     .close = "<|python_end|>",
     .open = reply_open_any,
     .word = reply_open_python},
};

static const struct reply_row mistral[] = {
    {.mark = "[TOOL_CALLS]",
     .open = reply_open_any,
     .word = reply_open_named,
     .sep = "[ARGS]",
     .skip_to_sep = "[CALL_ID]"},
};

/* The first row is what a prompt may end with. */
static const struct reply_row functionary[] = {
    {.mark = ">>>", .open = reply_open_named, .sep = "\n"},
    {.mark = "functools", .open = reply_open_any},
    FUNCTION_ROW,
};

static const struct reply_row deepseek[] = {
    {.mark = DS(DS_CALLS "begin"), .open = reply_open_silent},
    {.mark = DS(DS_CALL "begin"),
     .close = DS(DS_CALL "end"),
     .open = reply_open_named,
     .sep = DS_SEP},
    {.mark = DS(DS_CALLS "end"), .open = reply_open_silent},
};

static const struct reply_row granite[] = {
    {.mark = "<|tool_call|>", .open = reply_open_any},
    {.mark = "<tool_call>", .close = "</tool_call>", .open = reply_open_any},
};

static const struct reply_row lfm2[] = {
    {.mark = "<|tool_call_start|>",
     .close = "<|tool_call_end|>",
     .open = reply_open_any,
     .word = reply_open_python},
};

static const struct reply_row gemma[] = {
    {.mark = "<|tool_call>call:",
     .close = "<tool_call|>",
     .open = reply_open_gemma},
    {.mark = "```tool_code",
     .close = "```",
     .open = reply_open_any,
     .word = reply_open_python},
    {.mark = "```json",
     .close = "```",
     .needs_args = true,
     .open = reply_open_any},
    OBJECT_ROW,
    LIST_ROW,
};

static const struct reply_row phi[] = {
    {.mark = "<|tool_call|>",
     .close = "<|/tool_call|>",
     .open = reply_open_any},
    {.mark = "functools", .open = reply_open_any},
};

static const struct reply_row command[] = {
    {.mark = "<|START_ACTION|>",
     .close = "<|END_ACTION|>",
     .open = reply_open_any},
    {.mark = "Action:", .close = "```", .open = reply_open_any},
};

static const struct reply_row kimi[] = {
    {.mark = "<|tool_calls_section_begin|>", .open = reply_open_silent},
    {.mark = "<|tool_call_begin|>",
     .close = "<|tool_call_end|>",
     .open = reply_open_named,
     .sep = "<|tool_call_argument_begin|>"},
    {.mark = "<|tool_calls_section_end|>", .open = reply_open_silent},
};

static const struct reply_row minimax[] = {
    {.mark = "<minimax:tool_call>",
     .close = "</minimax:tool_call>",
     .open = reply_open_any,
     .tags = &minimax_tags},
};

static const struct reply_row seed[] = {
    {.mark = "<seed:tool_call>",
     .close = "</seed:tool_call>",
     .open = reply_open_any,
     .tags = &qwen_tags},
};

/* --- what belongs to a form --- */

#define THINK "<think>", "</think>"

static const char *const no_marks[] = {NULL};
static const char *const think_marks[] = {
    THINK,      "[THINK]",      "[/THINK]",
    "<thought>", "</thought>", "<seed:think>", "</seed:think>",
    "<|START_THINKING|>", "<|END_THINKING|>", "<|channel>", "<channel|>", NULL};
static const char *const hermes_marks[] = {THINK, "<tool_call>", "</tool_call>",
                                           NULL};
static const char *const llama3_marks[] = {THINK, "<|python_tag|>", NULL};
static const char *const pythonic_marks[] = {THINK, "<|python_start|>",
                                             "<|python_end|>", NULL};
static const char *const mistral_marks[] = {
    THINK, "[THINK]", "[/THINK]", "[TOOL_CALLS]", "[ARGS]", "[CALL_ID]", NULL};
static const char *const functionary_marks[] = {THINK, NULL};
static const char *const deepseek_marks[] = {
    THINK,
    DS(DS_CALLS "begin"),
    DS(DS_CALLS "end"),
    DS(DS_CALL "begin"),
    DS(DS_CALL "end"),
    DS_SEP,
    NULL};
static const char *const harmony_marks[] = {
    "<|channel|>", "<|start|>", "<|message|>", "<|end|>", "<|constrain|>",
    "<|call|>", "<|return|>", NULL};
static const char *const granite_marks[] = {
    THINK, "<|tool_call|>", "<tool_call>", "</tool_call>", NULL};
static const char *const lfm2_marks[] = {THINK, "<|tool_call_start|>",
                                         "<|tool_call_end|>", NULL};
static const char *const gemma_marks[] = {"<|channel>", "<channel|>",
                                          "<|tool_call>", "<tool_call|>",
                                          "<|\"|>", NULL};
static const char *const phi_marks[] = {THINK, "<|tool_call|>",
                                        "<|/tool_call|>", NULL};
static const char *const command_marks[] = {
    "<|START_THINKING|>", "<|END_THINKING|>", "<|START_ACTION|>",
    "<|END_ACTION|>", NULL};
static const char *const kimi_marks[] = {THINK,
                                         "<|tool_calls_section_begin|>",
                                         "<|tool_calls_section_end|>",
                                         "<|tool_call_begin|>",
                                         "<|tool_call_end|>",
                                         "<|tool_call_argument_begin|>",
                                         NULL};
static const char *const minimax_marks[] = {THINK, "<minimax:tool_call>",
                                            "</minimax:tool_call>", NULL};
static const char *const seed_marks[] = {
    "<seed:think>", "</seed:think>", "<seed:tool_call>", "</seed:tool_call>",
    NULL};

#define FORM(name)                                \
    {                                             \
        name, countof(name), name##_marks         \
    }

static const struct {
    const struct reply_row *rows;
    size_t n;
    const char *const *marks;
} forms[REPLY_N_TOOLS] = {
    [REPLY_NO_TOOLS] = {NULL, 0, no_marks},
    [REPLY_HERMES] = FORM(hermes),
    [REPLY_LLAMA3] = FORM(llama3),
    [REPLY_PYTHONIC] = FORM(pythonic),
    [REPLY_MISTRAL] = FORM(mistral),
    [REPLY_FUNCTIONARY] = FORM(functionary),
    [REPLY_DEEPSEEK] = FORM(deepseek),
    [REPLY_HARMONY] = {NULL, 0, harmony_marks},
    [REPLY_GRANITE] = FORM(granite),
    [REPLY_LFM2] = FORM(lfm2),
    [REPLY_GEMMA] = FORM(gemma),
    [REPLY_PHI] = FORM(phi),
    [REPLY_COMMAND] = FORM(command),
    [REPLY_KIMI] = FORM(kimi),
    [REPLY_MINIMAX] = FORM(minimax),
    [REPLY_SEED] = FORM(seed),
};

const struct reply_row *reply_rows(enum reply_tools tools, size_t *ret_n)
{
    *ret_n = forms[tools].n;
    return forms[tools].rows;
}

/* --- templates --- */

/* What a template has in it, the first row that fits counts. `also`: beside it;
 * "" asks for nothing. Marks that others' templates mention come later. */
static const struct {
    const char *has, *also;
    enum reply_tools tools;
} shown[] = {
    {"<|channel|>", "<|message|>", REPLY_HARMONY},
    {"<|tool_call>", "", REPLY_GEMMA},
    {"[TOOL_CALLS]", "", REPLY_MISTRAL},
    {DS(DS_CALLS "begin"), "", REPLY_DEEPSEEK},
    {"<|tool_calls_section_begin|>", "", REPLY_KIMI},
    {"<|START_ACTION|>", "", REPLY_COMMAND},
    {"Action:", "```json", REPLY_COMMAND},
    {"<seed:tool_call>", "", REPLY_SEED},
    {"<minimax:tool_call>", "", REPLY_MINIMAX},
    {"<|tool_call_start|>", "", REPLY_LFM2},
    {"<|tool_list_start|>", "", REPLY_LFM2},
    {"<|tool|>", "<|/tool|>", REPLY_PHI},
    {"<|/tool_call|>", "", REPLY_PHI},
    {"<|tool_call|>", "", REPLY_GRANITE},
    {"<tool_call>", "<|start_of_role|>", REPLY_GRANITE},
    {"<tool_call>", "", REPLY_HERMES},
    {"functools[", "", REPLY_FUNCTIONARY},
    {">>>", "recipient", REPLY_FUNCTIONARY},
    {"<function=", "", REPLY_FUNCTIONARY},
    {"<|python_start|>", "", REPLY_PYTHONIC},
    {"[func_name1(", "", REPLY_PYTHONIC},
    {"<|python_tag|>", "", REPLY_LLAMA3},
    {"<|start_header_id|>", "\"parameters\": ", REPLY_LLAMA3},
    {"<start_of_turn>", "", REPLY_GEMMA},
};

/* The same for thoughts: a template may show only their end, because it cuts
 * them out of earlier turns. */
static const struct {
    const char *has;
    const char *open, *close;
} thoughts[] = {
    {"<|channel>thought", "<|channel>thought", "<channel|>"},
    {"[THINK]", "[THINK]", "[/THINK]"},
    {"<seed:think>", "<seed:think>", "</seed:think>"},
    {"<|START_THINKING|>", "<|START_THINKING|>", "<|END_THINKING|>"},
    {"<think>", "<think>", "</think>"},
    {"</think>", "<think>", "</think>"},
    {"<thought>", "<thought>", "</thought>"},
};

void reply_forms_find(const char *tmpl, struct reply_forms *ret)
{
    struct reply_forms f = {.marks = no_marks};
    const char *t = tmpl != NULL ? tmpl : "";
    for (size_t i = 0; i < countof(shown) && f.tools == REPLY_NO_TOOLS; i++) {
        if (strstr(t, shown[i].has) != NULL &&
            strstr(t, shown[i].also) != NULL) {
            f.tools = shown[i].tools;
        }
    }
    f.marks = forms[f.tools].marks;
    f.spelling = spelling_find(f.tools, t);
    if (f.tools == REPLY_HARMONY) {
        f.thoughts = REPLY_CHANNEL;
        *ret = f;
        return;
    }
    for (size_t i = 0;
         i < countof(thoughts) && f.thoughts == REPLY_NO_THOUGHTS; i++) {
        if (strstr(t, thoughts[i].has) != NULL) {
            f.thoughts = REPLY_THINK;
            f.open = thoughts[i].open;
            f.close = thoughts[i].close;
        }
    }
    if (f.tools == REPLY_NO_TOOLS && f.thoughts == REPLY_THINK) {
        f.marks = think_marks;
    }
    *ret = f;
}
