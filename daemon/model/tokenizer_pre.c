/* tokenizer_pre.c - how a byte-level vocabulary cuts text into words, by the
 * name in tokenizer.ggml.pre.
 *
 * A name has one to six patterns. They are applied one after the other: every
 * match is a word, so is every gap between matches, and the next pattern cuts
 * the words of the one before. Most families have one pattern that matches
 * everything.
 *
 * The patterns are those the models were trained with (their tokenizer.json),
 * in PCRE2's syntax, UTF and UCP on. White space is spelled out because
 * PCRE2's \s also takes U+180E. JIT where the platform has it.
 */
#define PCRE2_CODE_UNIT_WIDTH 8

#include <pcre2.h>
#include <string.h>

#include "model/tokenizer_impl.h"

#define WS                                                                 \
    "\\t-\\r\\x20\\x85\\xA0\\x{1680}\\x{2000}-\\x{200A}\\x{2028}\\x{2029}" \
    "\\x{202F}\\x{205F}\\x{3000}"
#define S         "[" WS "]"
#define NOT_AHEAD "(?![^" WS "])" /* (?!\S) */

#define GPT2                                                                  \
    "'s|'t|'re|'ve|'m|'ll|'d| ?\\p{L}+| ?\\p{N}+| ?[^" WS "\\p{L}\\p{N}]+|" S \
    "+" NOT_AHEAD "|" S "+"

#define CONTRACTION  "(?:'[sS]|'[tT]|'[rR][eE]|'[vV][eE]|'[mM]|'[lL][lL]|'[dD])"
#define TAIL         S "*[\\r\\n]+|" S "+" NOT_AHEAD "|" S "+"
#define OTHERS(more) " ?[^" WS "\\p{L}\\p{N}]+[\\r\\n" more "]*|"

/* Llama 3 and those after it; they differ in how many digits go together. */
#define WORDS(digits) \
    "[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|" digits "|" OTHERS("") TAIL
#define LLAMA3 CONTRACTION "|" WORDS("\\p{N}{1,3}")
#define QWEN2  CONTRACTION "|" WORDS("\\p{N}")
#define QWEN35                                                          \
    CONTRACTION "|[^\\r\\n\\p{L}\\p{N}]?[\\p{L}\\p{M}]+|\\p{N}| ?[^" WS \
                "\\p{L}\\p{M}\\p{N}]+[\\r\\n]*|" TAIL

/* o200k and Tekken cut before a change of case. */
#define UPPER "[\\p{Lu}\\p{Lt}\\p{Lm}\\p{Lo}\\p{M}]"
#define LOWER "[\\p{Ll}\\p{Lm}\\p{Lo}\\p{M}]"
#define CASED(end)                                   \
    "[^\\r\\n\\p{L}\\p{N}]?" UPPER "*" LOWER "+" end \
    "|[^\\r\\n\\p{L}\\p{N}]?" UPPER "+" LOWER "*" end "|"
#define ENDING "(?i:'s|'t|'re|'ve|'m|'ll|'d)?"
#define O200K  CASED(ENDING) "\\p{N}{1,3}|" OTHERS("/") TAIL
#define TEKKEN CASED("") "\\p{N}|" OTHERS("/") TAIL
#define YOUTU  CASED(CONTRACTION "?") "\\p{N}|" OTHERS("/") TAIL

#define PUNCTUATED                                                          \
    "[!-/:-@\\[-`{-~][A-Za-z]+|[^\\r\\n\\p{L}\\p{P}\\p{S}]?[\\p{L}\\p{M}]+" \
    "| ?[\\p{P}\\p{S}]+[\\r\\n]*|" TAIL
#define HAN_KANA "[\\x{4E00}-\\x{9FA5}\\x{3040}-\\x{309F}\\x{30A0}-\\x{30FF}]+"

/* The letters DeepSeek LLM's pattern names one by one. */
#define DEEPSEEK_LETTERS                                                   \
    "A-Za-z\\x{B5}\\x{C0}-\\x{D6}\\x{D8}-\\x{F6}\\x{F8}-\\x{1BA}"          \
    "\\x{1BC}-\\x{1BF}\\x{1C4}-\\x{293}\\x{295}-\\x{2AF}\\x{370}-\\x{373}" \
    "\\x{376}\\x{377}\\x{37B}-\\x{37D}\\x{37F}\\x{386}\\x{388}-\\x{38A}"   \
    "\\x{38C}\\x{38E}-\\x{3A1}\\x{3A3}-\\x{3F5}\\x{3F7}-\\x{481}"          \
    "\\x{48A}-\\x{52F}\\x{531}-\\x{556}\\x{10A0}-\\x{10C5}"                \
    "\\x{13A0}-\\x{13F5}\\x{13F8}-\\x{13FD}\\x{1C90}-\\x{1CBA}"            \
    "\\x{1CBD}-\\x{1CBF}\\x{1D00}-\\x{1D2B}\\x{1D6B}-\\x{1D77}"            \
    "\\x{1D79}-\\x{1D9A}\\x{1E00}-\\x{1F15}\\x{1F18}-\\x{1F1D}"            \
    "\\x{1F20}-\\x{1F45}\\x{1F48}-\\x{1F4D}\\x{1F50}-\\x{1F57}\\x{1F59}"   \
    "\\x{1F5B}\\x{1F5D}\\x{1F5F}-\\x{1F7D}\\x{1F80}-\\x{1FB4}"             \
    "\\x{1FB6}-\\x{1FBC}\\x{1FBE}\\x{1FC2}-\\x{1FC4}\\x{1FC6}-\\x{1FCC}"   \
    "\\x{1FD0}-\\x{1FD3}\\x{1FD6}-\\x{1FDB}\\x{1FE0}-\\x{1FEC}"            \
    "\\x{1FF2}-\\x{1FF4}\\x{1FF6}-\\x{1FFC}\\x{2102}\\x{2107}"             \
    "\\x{210A}-\\x{2113}\\x{2115}\\x{2119}-\\x{211D}\\x{2124}\\x{2126}"    \
    "\\x{2128}\\x{212A}-\\x{212D}\\x{212F}-\\x{2134}\\x{2139}"             \
    "\\x{213C}-\\x{213F}\\x{2145}-\\x{2149}\\x{214E}\\x{2183}\\x{2184}"    \
    "\\x{2C00}-\\x{2C7B}\\x{2C7E}-\\x{2CE4}\\x{2CEB}-\\x{2CEE}\\x{2CF2}"   \
    "\\x{2CF3}\\x{A640}-\\x{A66D}\\x{A680}-\\x{A69B}\\x{A722}-\\x{A76F}"   \
    "\\x{A771}-\\x{A787}\\x{A78B}-\\x{A78E}\\x{AB70}-\\x{ABBF}"            \
    "\\x{FB00}-\\x{FB06}\\x{FB13}-\\x{FB17}\\x{FF21}-\\x{FF3A}"            \
    "\\x{FF41}-\\x{FF5A}\\x{10400}-\\x{1044F}\\x{104B0}-\\x{104D3}"        \
    "\\x{104D8}-\\x{104FB}\\x{10C80}-\\x{10CB2}\\x{10CC0}-\\x{10CF2}"      \
    "\\x{118A0}-\\x{118DF}\\x{1E900}-\\x{1E943}"
#define DEEPSEEK_CJK \
    "[\\x{4E00}-\\x{9FA5}\\x{800}-\\x{4E00}\\x{AC00}-\\x{D7FF}]+"

#define BLOOM                                                              \
    " ?[^(" WS "|.,!?\\x{2026}\\x{3002}\\x{FF0C}\\x{3001}\\x{964}\\x{6D4}" \
    "\\x{60C})]+"

#define PATTERNS_MAX 6

enum pattern {
    P_DEFAULT,
    P_GPT2,
    P_DIGITS_GPT2,
    P_LLAMA3,
    P_QWEN2,
    P_QWEN35,
    P_O200K,
    P_TEKKEN,
    P_YOUTU,
    P_FALCON,
    P_DEEPSEEK_LLM,
    P_DEEPSEEK_CODER,
    P_DEEPSEEK_V3,
    P_CHAMELEON,
    P_BLOOM,
    P_VIKING,
    P_BAILING,
    P_SEED_CODER,
    P_N
};

static const char *const patterns[P_N][PATTERNS_MAX] = {
    [P_DEFAULT] = {"[\\p{P}$+<=>^~|]+",                         GPT2, "\\p{N}+", "[0-9][0-9][0-9]"},
    [P_GPT2] = {GPT2                                 },
    [P_DIGITS_GPT2] = {"\\p{N}",                                           GPT2},
    [P_LLAMA3] = {LLAMA3         },
    [P_QWEN2] = {QWEN2},
    [P_QWEN35] = {QWEN35                                     },
    [P_O200K] = {O200K                                      },
    [P_TEKKEN] = {TEKKEN                                     },
    [P_YOUTU] =
        {"[\\x{AC00}-\\x{D7A3}\\x{3131}-\\x{318E}]+|[!\\x{2026}\\x{201C}"
         "\\x{201D}\\x{2018}\\x{2019}\\x{2014}\\x{FF1A}\\x{FF1B}"
         "\\x{FF0C}\\x{3001}-\\x{303F}\\x{FE30}-\\x{FE4F}]+|"
         "[\\x{3105}-\\x{312F}]+|" HAN_KANA,
                   YOUTU},
    [P_FALCON] = {"[\\p{P}$+<=>^~|`]+",                                      GPT2, "[0-9][0-9][0-9]"},
 /* The look-behind keeps the search for trailing white space linear: a
  * match can only begin where a run begins. */
    [P_DEEPSEEK_LLM] = {"[\\r\\n]", S "?[" DEEPSEEK_LETTERS "]+",
                   S "?[!-/:-~\\x{FF01}-\\x{FF0F}\\x{FF1A}-\\x{FF5E}"
                          "\\x{2018}-\\x{201F}\\x{3000}-\\x{3002}]+", "(?<!" S ")" S "+\\z", DEEPSEEK_CJK, "\\p{N}+"},
    [P_DEEPSEEK_CODER] = {"[\\r\\n]",                                           S "?\\p{L}+", S "?\\p{P}+", DEEPSEEK_CJK,
                   "\\p{N}"},
    [P_DEEPSEEK_V3] = {"\\p{N}{1,3}",  HAN_KANA, PUNCTUATED},
    [P_CHAMELEON] = {"<sentinel:[0-9]+>",                                           "IMGIMG[A-I]{1,4}Z",
                   "[\\t\\n]|    |  ", "\\p{N}", "[\\p{P}!-/:-@\\[-`{-~]",
                   GPT2},
    [P_BLOOM] = {BLOOM              },
    [P_VIKING] = {BLOOM,                      "\\p{N}"},
    [P_BAILING] = {"'(?:[sSdDmMtT]|[lL][lL]|[vV][eE]|[rR][eE])|"
                   "[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|\\p{N}|" OTHERS("") S
                   "*[\\r\\n]|" S "+" NOT_AHEAD "|" S "+"                                 },
    [P_SEED_CODER] = {CONTRACTION
                      "|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|\\p{N}| ?[^" WS
                      "\\p{L}\\p{N}\\r\\n]+|" TAIL                                 },
};

struct pre {
    const char *name;
    enum pattern pattern;
    bool ignore_merges; /* a word that is a token is taken whole */
    bool add_bos;       /* unless the file says otherwise */
    bool nfc;           /* text is normalised first */
};

static const struct pre pres[] = {
    {"",                 P_DEFAULT,        false, false, false}, /* files before the key existed */
    {"default",          P_DEFAULT,        false, false, false},
    {"gpt-2",            P_GPT2,           false, false, false},
    {"phi-2",            P_GPT2,           false, false, false},
    {"mpt",              P_GPT2,           false, false, false},
    {"olmo",             P_GPT2,           false, false, false},
    {"jais",             P_GPT2,           false, false, false},
    {"trillion",         P_GPT2,           false, false, false},
    {"granite-docling",  P_GPT2,           false, false, false},
    {"gigachat",         P_GPT2,           false, false, false},
    {"exaone4",          P_GPT2,           false, false, false},
    {"a.x-4.0",          P_GPT2,           false, false, false},
    {"mellum",           P_GPT2,           false, false, false},
    {"modern-bert",      P_GPT2,           false, false, false},
    {"roberta-bpe",      P_GPT2,           false, false, false},
    {"jina-es",          P_GPT2,           false, false, false},
    {"jina-de",          P_GPT2,           false, false, false},
    {"jina-v2-es",       P_GPT2,           false, false, false},
    {"jina-v2-de",       P_GPT2,           false, false, false},
    {"jina-v1-en",       P_GPT2,           false, false, false},
    {"jina-v2-code",     P_GPT2,           false, false, false},
    {"starcoder",        P_DIGITS_GPT2,    false, false, false},
    {"refact",           P_DIGITS_GPT2,    false, false, false},
    {"command-r",        P_DIGITS_GPT2,    false, false, false},
    {"smollm",           P_DIGITS_GPT2,    false, false, false},
    {"codeshell",        P_DIGITS_GPT2,    false, false, false},
    {"exaone",           P_DIGITS_GPT2,    false, false, false},
    {"minerva-7b",       P_DIGITS_GPT2,    false, false, false},
    {"mellum2",          P_DIGITS_GPT2,    false, false, false},
    {"llama3",           P_LLAMA3,         true,  true,  false},
    {"llama-v3",         P_LLAMA3,         true,  true,  false},
    {"llama-bpe",        P_LLAMA3,         true,  true,  false},
    {"falcon3",          P_LLAMA3,         true,  true,  false},
    {"falcon-h1",        P_LLAMA3,         true,  true,  false},
    {"pixtral",          P_LLAMA3,         true,  true,  false},
    {"midm-2.0",         P_LLAMA3,         true,  true,  false},
    {"lfm2",             P_LLAMA3,         true,  true,  false},
    {"dbrx",             P_LLAMA3,         false, false, false},
    {"smaug-bpe",        P_LLAMA3,         false, false, false},
    {"glm4",             P_LLAMA3,         false, false, false},
    {"chatglm-bpe",      P_LLAMA3,         false, false, false},
    {"qwen2",            P_QWEN2,          false, false, true },
    {"deepseek-r1-qwen", P_QWEN2,          false, false, false},
    {"stablelm2",        P_QWEN2,          false, false, false},
    {"megrez",           P_QWEN2,          false, false, false},
    {"hunyuan",          P_QWEN2,          false, false, false},
    {"solar-open",       P_QWEN2,          false, false, false},
    {"kormo",            P_QWEN2,          false, false, false},
    {"grok-2",           P_QWEN2,          false, false, false},
    {"qwen35",           P_QWEN35,         false, false, true },
    {"gpt-4o",           P_O200K,          false, false, false},
    {"llama4",           P_O200K,          false, false, false},
    {"kanana2",          P_O200K,          false, false, false},
    {"minimax-m2",       P_O200K,          false, false, false},
    {"tekken",           P_TEKKEN,         true,  true,  false},
    {"youtu",            P_YOUTU,          true,  false, false},
    {"falcon",           P_FALCON,         false, false, false},
    {"deepseek-llm",     P_DEEPSEEK_LLM,   false, false, false},
    {"deepseek-coder",   P_DEEPSEEK_CODER, false, false, false},
    {"deepseek-v3",      P_DEEPSEEK_V3,    false, false, false},
    {"hunyuan-dense",    P_DEEPSEEK_V3,    false, false, false},
    {"chameleon",        P_CHAMELEON,      false, true,  false},
    {"bloom",            P_BLOOM,          false, false, false},
    {"poro-chat",        P_BLOOM,          false, false, false},
    {"gpt3-finnish",     P_BLOOM,          false, false, false},
    {"viking",           P_VIKING,         false, false, false},
    {"bailingmoe",       P_BAILING,        false, false, false},
    {"bailingmoe2",      P_BAILING,        false, false, false},
    {"llada-moe",        P_BAILING,        false, false, false},
    {"seed-coder",       P_SEED_CODER,     false, false, false},
};

const struct pre *pre_find(const char *name)
{
    for (size_t i = 0; i < countof(pres); i++) {
        if (strcmp(pres[i].name, name) == 0) {
            return &pres[i];
        }
    }
    return NULL;
}

bool pre_ignore_merges(const struct pre *p)
{
    return p->ignore_merges;
}

bool pre_add_bos(const struct pre *p)
{
    return p->add_bos;
}

bool pre_nfc(const struct pre *p)
{
    return p->nfc;
}

struct pre_code {
    size_t n;
    bool jit[PATTERNS_MAX];
    pcre2_code *re[PATTERNS_MAX];
};

int pre_compile(const struct pre *p, struct pre_code **ret, struct err *e)
{
    struct pre_code *c = calloc(1, sizeof(*c));
    if (c == NULL) {
        return err_set(e, ERR_NOMEM, "tokenizer patterns");
    }
    const char *const *texts = patterns[p->pattern];
    while (c->n < PATTERNS_MAX && texts[c->n] != NULL) {
        int code = 0;
        PCRE2_SIZE at = 0;
        pcre2_code *re =
            pcre2_compile((PCRE2_SPTR)texts[c->n], PCRE2_ZERO_TERMINATED,
                          PCRE2_UTF | PCRE2_UCP, &code, &at, NULL);
        if (re == NULL) {
            size_t i = c->n;
            pre_code_free(c);
            return err_set(e, ERR_INTERNAL, "pattern %zu of '%s': %d at %zu", i,
                           p->name, code, (size_t)at);
        }
        c->re[c->n] = re;
        c->jit[c->n] = pcre2_jit_compile(re, PCRE2_JIT_COMPLETE) == 0;
        c->n++;
    }
    *ret = c;
    return 0;
}

void pre_code_free(struct pre_code *c)
{
    if (c == NULL) {
        return;
    }
    for (size_t i = 0; i < c->n; i++) {
        pcre2_code_free(c->re[i]);
    }
    free(c);
}

#define JIT_STACK_MIN KIB(64)
#define JIT_STACK_MAX MIB(8)

struct pre_match {
    pcre2_match_data *data;
    pcre2_match_context *context;
    pcre2_jit_stack *stack; /* NULL: the 32 KiB that PCRE2 takes of the
                               thread's own; nearly no text needs more */
};

void pre_match_free(struct pre_match *m)
{
    if (m == NULL) {
        return;
    }
    pcre2_match_data_free(m->data);
    pcre2_match_context_free(m->context);
    pcre2_jit_stack_free(m->stack);
    free(m);
}

static int make_match(struct encoder *c, struct err *e)
{
    if (c->match != NULL) {
        return 0;
    }
    struct pre_match *m = calloc(1, sizeof(*m));
    if (m != NULL) {
        m->data = pcre2_match_data_create(1, NULL);
        m->context = pcre2_match_context_create(NULL);
    }
    if (m == NULL || m->data == NULL || m->context == NULL) {
        pre_match_free(m);
        return err_set(e, ERR_NOMEM, "tokenizer patterns");
    }
    c->match = m;
    return 0;
}

/* A stack of our own, on first need: it is mapped, and to unmap it again
 * interrupts every other core that runs a thread of ours. */
static bool more_stack(struct pre_match *m)
{
    if (m->stack != NULL) {
        return false;
    }
    m->stack = pcre2_jit_stack_create(JIT_STACK_MIN, JIT_STACK_MAX, NULL);
    if (m->stack != NULL) {
        pcre2_jit_stack_assign(m->context, NULL, m->stack);
    }
    return m->stack != NULL;
}

static int add_end(struct encoder *c, int which, size_t end, struct err *e)
{
    size_t n = c->n_ends[which];
    if (n == c->ends_cap[which]) {
        size_t cap = n == 0 ? 256 : n * 2;
        uint32_t *p = realloc(c->ends[which], cap * sizeof(*p));
        if (p == NULL) {
            return err_set(e, ERR_NOMEM, "splitting the text");
        }
        c->ends[which] = p;
        c->ends_cap[which] = cap;
    }
    c->ends[which][c->n_ends[which]++] = (uint32_t)end;
    return 0;
}

/* First match of pattern i in p[0..n) from `at`; false when there is none. */
static int match_from(struct encoder *c, size_t i, const char *p, size_t n,
                      size_t at, size_t *ret_from, size_t *ret_to,
                      struct err *e)
{
    const struct pre_code *code = c->t->code;
    struct pre_match *m = c->match;
    int rc = PCRE2_ERROR_JIT_STACKLIMIT;
    bool again = code->jit[i];
    while (again) {
        rc = pcre2_jit_match(code->re[i], (PCRE2_SPTR)p, n, at, 0, m->data,
                             m->context);
        again = rc == PCRE2_ERROR_JIT_STACKLIMIT && more_stack(m);
    }
    if (rc == PCRE2_ERROR_JIT_STACKLIMIT) {
        rc =
            pcre2_match(code->re[i], (PCRE2_SPTR)p, n, at,
                        PCRE2_NO_UTF_CHECK | PCRE2_NO_JIT, m->data, m->context);
    }
    if (rc == PCRE2_ERROR_NOMATCH) {
        *ret_from = *ret_to = n;
        return 0;
    }
    if (rc < 0) {
        return err_set(e, ERR_TOO_BIG, "splitting the text: PCRE2 error %d",
                       rc);
    }
    const PCRE2_SIZE *v = pcre2_get_ovector_pointer(m->data);
    *ret_from = v[0];
    *ret_to = v[1];
    return 0;
}

/* Cut text[at..end) with pattern i. The pattern sees nothing outside. */
static int split_word(struct encoder *c, size_t i, const char *text, size_t at,
                      size_t end, int which, struct err *e)
{
    const char *p = text + at;
    size_t n = end - at;
    size_t done = 0;
    while (done < n) {
        size_t from = 0;
        size_t to = 0;
        RETERR(match_from(c, i, p, n, done, &from, &to, e));
        if (from > done) {
            RETERR(add_end(c, which, at + from, e));
        }
        if (to > from) {
            RETERR(add_end(c, which, at + to, e));
        }
        must(to > done); /* no pattern matches the empty string */
        done = to;
    }
    return 0;
}

int pre_split(struct encoder *c, const char *text, size_t n, int *ret_which,
              struct err *e)
{
    int which = 0;
    RETERR(make_match(c, e));
    c->n_ends[0] = 0;
    RETERR(add_end(c, 0, n, e));
    for (size_t i = 0; i < c->t->code->n; i++) {
        size_t at = 0;
        c->n_ends[!which] = 0;
        for (size_t k = 0; k < c->n_ends[which]; k++) {
            size_t end = c->ends[which][k];
            RETERR(split_word(c, i, text, at, end, !which, e));
            at = end;
        }
        which = !which;
    }
    *ret_which = which;
    return 0;
}
