/* Answers with calls and thoughts, drawn: pieces of marks and JSON in any order,
 * and conversations of which the events are known. However an answer is cut,
 * its events are the same; what is no call and no thought is text, byte for
 * byte; and what was written as a call is read as that call. */
#include "draw.h"
#include "tests/unit/model/reply_events.h"

#define ANSWER_MAX KIB(64)

/* DeepSeek's marks. */
#define DS(s)      "<\xEF\xBD\x9Ctool\xE2\x96\x81" s "\xEF\xBD\x9C>"
#define DS_CALLS(s) DS("calls\xE2\x96\x81" s)
#define DS_CALL(s)  DS("call\xE2\x96\x81" s)

/* Templates of all forms, by what shows them. */
static const char *const templates[] = {
    "",
    "</think>",
    "<tool_call> <think>",
    "<|python_tag|>",
    "[func_name1(",
    "[TOOL_CALLS] [THINK]",
    ">>> recipient",
    DS_CALLS("begin") " <think>",
    "<|channel|><|message|>",
    "<|tool_call|>",
    "<|tool_call_start|>",
    "<start_of_turn>",
    "<|tool_call> <|channel>thought",
    "<|tool|><|/tool|>",
    "<|START_ACTION|> <|START_THINKING|>",
    "<|tool_calls_section_begin|>",
    "<minimax:tool_call>",
    "<seed:tool_call> <seed:think>",
};

/* What answers are made of. */
static const char *const parts[] = {
    "\n", " ", "a", "Hi there. ", "{", "}", "[", "]", "\"", "'", ",", ":", "=",
    "(", ")", "\\", "<", ">", "|", "`", ";", "1", "-2.5e3", "true", "None",
    "\xC3\xBC", "\xE2\x96\x81", "\xF0\x9F\x98\x80", "\\u00e9", "\\ud83d\\ude00",
    "\\ud83d", "\\n", "\\\"", "\\x41", "{\"name\": \"f\", \"arguments\": {",
    "\"name\"", "\"arguments\"", "\"parameters\"", "\"tool_name\"",
    "\"function\"", "{\"a\": 1}", "{\"name\": \"f\", \"parameters\": {}}", "f",
    "f(", "a=1", "b='x'", "print(", "'''", "<think>", "</think>", "[THINK]",
    "[/THINK]", "<tool_call>", "</tool_call>", "<function=", "<function=f>",
    "<parameter=a>", "</parameter>", "</function>", "<arg_key>", "</arg_key>",
    "<arg_value>", "</arg_value>", "<|python_tag|>", "<|python_start|>",
    "<|python_end|>", "[TOOL_CALLS]", "[ARGS]", "[CALL_ID]", ">>>", ">>>all\n",
    "functools",
    DS_CALLS("begin"),
    DS_CALLS("end"),
    DS_CALL("begin"),
    DS_CALL("end"),
    DS("sep"), "```json\n", "```",
    "```tool_code\n", "<|channel|>", "analysis", "final", "commentary", " to=",
    "functions.f", "<|message|>", "<|start|>assistant", "<|end|>", "<|call|>",
    "<|return|>", "<|tool_call|>", "<|/tool_call|>", "<|tool_call_start|>",
    "<|tool_call_end|>", "<|tool_call>call:", "<tool_call|>", "<|\"|>",
    "<|channel>thought\n", "<channel|>", "<|START_ACTION|>", "<|END_ACTION|>",
    "<|START_THINKING|>", "<|END_THINKING|>", "Action:",
    "<|tool_calls_section_begin|>", "<|tool_calls_section_end|>",
    "<|tool_call_begin|>", "<|tool_call_argument_begin|>", "<minimax:tool_call>",
    "</minimax:tool_call>", "<invoke name=\"", "<parameter name=\"", "\">",
    "</invoke>", "<seed:think>", "</seed:think>", "<seed:tool_call>",
    "</seed:tool_call>",
};

static const char *const tails[] = {"", "<think>\n", "[THINK]", ">>>",
                                    "<|channel>thought\n", "<think>x",
                                    "<|channel|>analysis<|message|>"};

struct answer {
    struct reply_forms forms;
    bool tools;
    const char *tail;
    const char *p;
    size_t n;
};

/* Pieces of sizes that d says (NULL: all at once, or of `step` bytes). */
static void run(const struct answer *a, struct draw *d, size_t step,
                bool characters, struct reply_events *v)
{
    *v = (struct reply_events){.characters = characters};
    buf_init(&v->b, 16 * ANSWER_MAX);
    buf_puts(&v->b, "");
    struct reply *r = reply_new(&a->forms, a->tools, a->tail, strlen(a->tail),
                                &events_sink, v);
    for (size_t i = 0; i < a->n;) {
        size_t take = d != NULL ? 1 + draw_below(d, 24) : step;
        take = take < a->n - i ? take : a->n - i;
        while (characters && i + take < a->n &&
               ((unsigned char)a->p[i + take] & 0xC0) == 0x80) {
            take++;
        }
        reply_put(r, a->p + i, take);
        i += take;
    }
    reply_end(r);
    reply_free(r);
    events_close(v);
    must(buf_ok(&v->b));
}

/* All cuts give what one piece gives, which is left in *ret. */
static void check_cuts(const struct answer *a, struct draw *d,
                       struct reply_events *ret)
{
    run(a, NULL, a->n + 1, false, ret);
    must(utf8_valid(a->p, a->n));
    for (int i = 0; i < 3; i++) {
        struct reply_events v;
        run(a, i == 0 ? NULL : d, 1, i == 2, &v);
        must(v.b.n == ret->b.n && memcmp(v.b.p, ret->b.p, v.b.n) == 0);
        buf_fini(&v.b);
    }
}

static bool has(const struct answer *a, const char *mark)
{
    size_t n = strlen(mark);
    for (size_t i = 0; i + n <= a->n; i++) {
        if (memcmp(a->p + i, mark, n) == 0) {
            return true;
        }
    }
    return false;
}

/* A mark that may vanish without a call. */
static bool has_silent(const struct answer *a)
{
    return has(a, "calls\xE2\x96\x81") || has(a, "_section_") ||
           has(a, ">>>") || has(a, "<|channel|>") || has(a, "<|start|>") ||
           has(a, "<|message|>") || has(a, "<|end|>") ||
           has(a, "<|call|>") || has(a, "<|return|>") ||
           (a->forms.open != NULL && has(a, a->forms.open));
}

/* Nothing is given twice, and what is no call is not lost. */
static void check_loss(const struct answer *a, const struct reply_events *v)
{
    size_t had[256] = {0};
    for (size_t i = 0; i < a->n; i++) {
        had[(unsigned char)a->p[i]]++;
    }
    for (size_t i = 0; i < countof(had); i++) {
        must(v->given[i] <= had[i]);
    }
    bool thoughts = a->forms.thoughts != REPLY_NO_THOUGHTS;
    bool calls = false;
    for (size_t i = 0; i + 1 < v->b.n; i++) { /* in text there may be one, too */
        calls = calls || memcmp(v->b.p + i, "C<", 2) == 0;
    }
    bool plain = !a->tools && !thoughts;
    if (!plain && (calls || has_silent(a) || a->tail[0] != '\0')) {
        return;
    }
    must(a->n == 0 ? v->b.n == 0 : v->b.n == a->n + 3);
    must(a->n == 0 || memcmp(v->b.p + 2, a->p, a->n) == 0);
}

/* --- any order of parts --- */

static void any_order(struct draw *d)
{
    struct buf text;
    struct answer a = {.tools = !draw_one_in(d, 8)};
    reply_forms_find(draw_of(d, templates), &a.forms);
    a.tail = draw_one_in(d, 4) ? draw_of(d, tails) : "";
    buf_init(&text, ANSWER_MAX);
    buf_puts(&text, "");
    while (d->n > 40) {
        unsigned kind = draw_byte(d);
        if (kind < 200) {
            buf_puts(&text, draw_of(d, parts));
        } else if (kind < 250) {
            buf_u8(&text, draw_byte(d) & 0x7F); /* the text is UTF-8 */
        } else {
            const char *part = draw_of(d, parts); /* seldom beyond a limit */
            bool many = kind == 255 && draw_one_in(d, 16);
            unsigned n = draw_below(d, many ? 20000 : 40);
            for (unsigned i = n; i > 0; i--) {
                buf_puts(&text, part);
            }
        }
    }
    a.p = text.p;
    a.n = text.n;
    struct reply_events v;
    check_cuts(&a, d, &v);
    check_loss(&a, &v);
    buf_fini(&v.b);
    buf_fini(&text);
}

/* --- answers of which the events are known --- */

/* How a form writes a call: before the name, behind it, a value, its end. */
struct writing {
    const char *tmpl;
    const char *begin, *before, *behind, *after, *between, *end;
    enum { JSON, PYTHON, GEMMA, TAGS, GLM } spelling;
    bool first; /* nothing may stand before it */
};

static const struct writing writings[] = {
    {"<tool_call>", "", "<tool_call>\n{\"name\": \"", "\", \"arguments\": ",
     "}\n</tool_call>", "\n", "", JSON, false},
    {"<tool_call>", "", "<tool_call>\n<function=", ">\n",
     "</function>\n</tool_call>", "\n", "", TAGS, false},
    {"<tool_call>", "", "<tool_call>", "\n", "</tool_call>", "\n", "", GLM,
     false},
    {"<|python_tag|>", "", "{\"name\": \"", "\", \"parameters\": ", "}", "; ",
     "", JSON, true},
    {"[TOOL_CALLS]", "[TOOL_CALLS][", "{\"name\": \"", "\", \"arguments\": ",
     "}", ", ", "]", JSON, false},
    {"[TOOL_CALLS]", "", "[TOOL_CALLS]", "[ARGS]", "", "", "", JSON, false},
    {DS_CALLS("begin"), DS_CALLS("begin"),
     DS_CALL("begin") "function" DS("sep"), "\n```json\n",
     "\n```" DS_CALL("end"), "\n", DS_CALLS("end"),
     JSON, false},
    {DS_CALLS("begin"), DS_CALLS("begin"),
     DS_CALL("begin"), DS("sep"), DS_CALL("end"),
     "", DS_CALLS("end"), JSON, false},
    {"<|tool_call|>", "<|tool_call|>[", "{\"name\": \"", "\", \"arguments\": ",
     "}", ", ", "]", JSON, false},
    {">>> recipient", "", ">>>", "\n", "", "", "", JSON, false},
    {"<|tool_call_start|>", "<|tool_call_start|>[", "", "(", ")", ", ",
     "]<|tool_call_end|>", PYTHON, false},
    {"[func_name1(", "[", "", "(", ")", ", ", "]", PYTHON, true},
    {"<start_of_turn>", "```tool_code\n", "", "(", ")", "\n", "\n```", PYTHON,
     false},
    {"<|tool_call>", "", "<|tool_call>call:", "{", "}<tool_call|>", "", "",
     GEMMA, false},
    {"<|tool_calls_section_begin|>", "<|tool_calls_section_begin|>",
     "<|tool_call_begin|>functions.", ":0<|tool_call_argument_begin|>",
     "<|tool_call_end|>", "", "<|tool_calls_section_end|>", JSON, false},
    {"<|START_ACTION|>", "<|START_ACTION|>[\n",
     "{\"tool_call_id\": \"0\", \"tool_name\": \"", "\", \"parameters\": ",
     "}", ",\n", "\n]<|END_ACTION|>", JSON, false},
    {"<seed:tool_call>", "", "<seed:tool_call>\n<function=", ">\n",
     "</function>\n</seed:tool_call>", "\n", "", TAGS, false},
};

/* The same value in JSON and in the other spellings. */
static const char *const values[][4] = {
    {"1", "1", "1", "1"},
    {"-2.5", "-2.5", "-2.5", "-2.5"},
    {"true", "True", "true", "True"},
    {"null", "None", "null", "None"},
    {"\"\"", "''", "<|\"|><|\"|>", ""},
    {"\"x y\"", "\"x y\"", "<|\"|>x y<|\"|>", "x y"},
    {"\"it's <b>\\\"\xC3\xBC\\\"</b>\\n\"", "'it\\'s <b>\"\xC3\xBC\"</b>\\n'",
     "<|\"|>it's <b>\"\xC3\xBC\"</b>\n<|\"|>", "it's <b>\"\xC3\xBC\"</b>\n"},
    {"[1,\"a\",[]]", "[1, 'a', []]", "[1,<|\"|>a<|\"|>,[]]", "[1,\"a\",[]]"},
    {"{\"k\":{}}", "{'k': {}}", "{k:{}}", "{\"k\":{}}"},
};

static void write_call(struct draw *d, const struct writing *w, unsigned id,
                       struct buf *text, struct buf *want)
{
    static const char *const pair[][2] = {
        {"\"", "\":"}, {"", "="}, {"", ":"}, {"<parameter=", ">\n"},
        {"<arg_key>", "</arg_key>\n<arg_value>"}};
    const bool tags = w->spelling == TAGS || w->spelling == GLM;
    buf_puts(text, w->before);
    buf_printf(text, "f%u%s%s", id, w->behind,
               w->spelling == JSON ? "{" : "");
    buf_printf(want, "C<f%u>A<{", id);
    for (unsigned i = 0, n = draw_below(d, 4); i < n; i++) {
        const char *const *v = draw_of(d, values);
        buf_puts(text, i > 0 && !tags ? "," : "");
        buf_printf(text, "%sk%u%s%s", pair[w->spelling][0], i,
                   pair[w->spelling][1], v[tags ? 3 : (int)w->spelling]);
        buf_puts(text, w->spelling == TAGS  ? "\n</parameter>\n"
                       : w->spelling == GLM ? "</arg_value>\n"
                                            : "");
        buf_printf(want, "%s\"k%u\":%s", i > 0 ? "," : "", i, v[0]);
    }
    buf_puts(text, w->spelling == JSON ? "}" : "");
    buf_puts(text, w->after);
    buf_puts(want, "}>+");
}

static void known(struct draw *d)
{
    const struct writing *w = &draw_of(d, writings);
    struct answer a = {.tools = true, .tail = ""};
    struct buf text;
    struct buf want;
    unsigned id = 0;
    buf_init(&text, ANSWER_MAX);
    buf_init(&want, ANSWER_MAX);
    buf_puts(&text, "");
    buf_puts(&want, "");
    reply_forms_find(w->tmpl, &a.forms);
    for (unsigned turns = draw_below(d, 4); turns > 0; turns--) {
        if (!w->first && !draw_one_in(d, 3)) {
            unsigned n = draw_byte(d);
            buf_printf(&text, "%sSay %u < more.\n", text.n > 0 ? "\n" : "", n);
            buf_printf(&want, "T<Say %u < more.>", n);
        }
        unsigned n = 1 + draw_below(d, 3);
        if (w->first && text.n > 0) {
            break;
        }
        buf_puts(&text, w->begin);
        for (unsigned i = 0; i < n; i++) {
            buf_puts(&text, i > 0 ? w->between : "");
            write_call(d, w, id++, &text, &want);
        }
        buf_puts(&text, w->end);
    }
    if (!w->first && id > 0 && draw_one_in(d, 2)) {
        buf_puts(&text, "\nSo.");
        buf_puts(&want, "T<So.>");
    }
    a.p = text.p;
    a.n = text.n;
    struct reply_events v;
    check_cuts(&a, d, &v);
    if (v.b.n != want.n || memcmp(v.b.p, want.p, want.n) != 0) {
        (void)fprintf(stderr, "%s\n  got  %s\n  want %s\n", text.p, v.b.p,
                      want.p);
        abort();
    }
    buf_fini(&v.b);
    buf_fini(&text);
    buf_fini(&want);
}

int LLVMFuzzerTestOneInput(const uint8_t *p, size_t n);
int LLVMFuzzerTestOneInput(const uint8_t *p, size_t n)
{
    struct draw d = {p, n};
    if (draw_one_in(&d, 3)) {
        known(&d);
    } else {
        any_order(&d);
    }
    return 0;
}
