/* tokenizer_patterns.c - how a byte-level vocabulary cuts text into words, by
 * the name in tokenizer.ggml.pre: the names that llama.cpp knows, but for those
 * of vocabularies that are no BPE (whitespace).
 *
 * A name has one to six patterns. They are applied one after the other: every
 * match is a word, so is every gap between matches, and the next pattern cuts
 * the words of the one before. Most families have one pattern that matches
 * everything.
 *
 * The patterns are those the models were trained with (their tokenizer.json),
 * in PCRE2's syntax, UTF and UCP on. White space is spelled out because
 * PCRE2's \s also takes U+180E.
 */
#include <string.h>

#include "model/tokenizer_impl.h"

/* Before a pattern: its match is cut again, in threes from its end. A
 * look-ahead that counts digits would read a long run of them once for each
 * three. */
#define THREES "\1"

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
#define LINES  "[^\\n]+|\\n+"
#define QWEN35                                                          \
    CONTRACTION "|[^\\r\\n\\p{L}\\p{N}]?[\\p{L}\\p{M}]+|\\p{N}| ?[^" WS \
                "\\p{L}\\p{M}\\p{N}]+[\\r\\n]*|" TAIL

/* o200k and Tekken cut before a change of case. */
#define UPPER "[\\p{Lu}\\p{Lt}\\p{Lm}\\p{Lo}\\p{M}]"
#define LOWER "[\\p{Ll}\\p{Lm}\\p{Lo}\\p{M}]"
#define CASED(end)                                   \
    "[^\\r\\n\\p{L}\\p{N}]?" UPPER "*" LOWER "+" end \
    "|[^\\r\\n\\p{L}\\p{N}]?" UPPER "+" LOWER "*" end "|"
/* the script; \p{Han} takes what other scripts use as well */
#define HAN          "\\p{sc:Han}"
#define NO_HAN(class) "(?:(?!" HAN ")" class ")"
#define ENDING        "(?i:'s|'t|'re|'ve|'m|'ll|'d)?"
#define O200K         CASED(ENDING) "\\p{N}{1,3}|" OTHERS("/") TAIL
#define TEKKEN        CASED("") "\\p{N}|" OTHERS("/") TAIL
#define YOUTU         CASED(CONTRACTION "?") "\\p{N}|" OTHERS("/") TAIL

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
    P_LINES,
    P_MINICPM5,
    P_JAIS2,
    P_SPARK,
    P_TINY_AYA,
    P_SUPERBPE,
    P_KIMI,
    P_AFMOE,
    P_LAGUNA,
    P_UFAKZEKA,
    P_EXAONE_MOE,
    P_N
};

static const char *const patterns[P_N][PATTERNS_MAX] = {
    [P_DEFAULT] = {"[\\p{P}$+<=>^~|]+",                                       GPT2, "\\p{N}+", "[0-9][0-9][0-9]"},
    [P_GPT2] = {GPT2                                               },
    [P_DIGITS_GPT2] = {"\\p{N}",                                                         GPT2},
    [P_LLAMA3] = {LLAMA3         },
    [P_QWEN2] = {QWEN2},
    [P_QWEN35] = {QWEN35                                                   },
    [P_O200K] = {O200K                                                    },
    [P_TEKKEN] = {TEKKEN                                                   },
    [P_YOUTU] =
        {"[\\x{AC00}-\\x{D7A3}\\x{3131}-\\x{318E}]+|[!\\x{2026}\\x{201C}"
         "\\x{201D}\\x{2018}\\x{2019}\\x{2014}\\x{FF1A}\\x{FF1B}"
         "\\x{FF0C}\\x{3001}-\\x{303F}\\x{FE30}-\\x{FE4F}]+|"
         "[\\x{3105}-\\x{312F}]+|" HAN_KANA,
                   YOUTU},
    [P_FALCON] = {"[\\p{P}$+<=>^~|`]+",                                                    GPT2, "[0-9][0-9][0-9]"},
 /* The look-behind keeps the search for trailing white space linear: a
  * match can only begin where a run begins. */
    [P_DEEPSEEK_LLM] = {"[\\r\\n]",               S "?[" DEEPSEEK_LETTERS "]+",
                   S "?[!-/:-~\\x{FF01}-\\x{FF0F}\\x{FF1A}-\\x{FF5E}"
                          "\\x{2018}-\\x{201F}\\x{3000}-\\x{3002}]+", "(?<!" S ")" S "+\\z", DEEPSEEK_CJK, "\\p{N}+"},
    [P_DEEPSEEK_CODER] = {"[\\r\\n]",                                                         S "?\\p{L}+", S "?\\p{P}+", DEEPSEEK_CJK,
                   "\\p{N}"},
    [P_DEEPSEEK_V3] = {"\\p{N}{1,3}",  HAN_KANA, PUNCTUATED},
    [P_CHAMELEON] = {"<sentinel:[0-9]+>",                                                         "IMGIMG[A-I]{1,4}Z",
                   "[\\t\\n]|    |  ", "\\p{N}", "[\\p{P}!-/:-@\\[-`{-~]",
                   GPT2},
    [P_BLOOM] = {BLOOM              },
    [P_VIKING] = {BLOOM,                                    "\\p{N}"},
    [P_BAILING] = {"'(?:[sSdDmMtT]|[lL][lL]|[vV][eE]|[rR][eE])|"
                   "[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|\\p{N}|" OTHERS("") S
                   "*[\\r\\n]|" S "+" NOT_AHEAD "|" S "+"                                               },
    [P_SEED_CODER] = {CONTRACTION
                      "|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|\\p{N}| ?[^" WS
                      "\\p{L}\\p{N}\\r\\n]+|" TAIL                                               },
    [P_LINES] = {LINES                                            },
    [P_MINICPM5] = {"\\p{N}{1,3}",                                                  CONTRACTION "|" WORDS("\\p{N}+")},
 /* what Llama 3 takes for one run of white space, in powers of two; a run
  * with an end of line stays whole */
    [P_JAIS2] = {LLAMA3,                                             "\\A[\\s\\S]*[\\r\\n]\\z(*SKIP)(*FAIL)|(?:" S
                         "{512}|" S "{256}|" S "{128}|" S "{64}|" S "{32}|" S
                         "{16}|" S "{8}|" S "{4}|" S "{1,2})" NOT_AHEAD},
    [P_SPARK] = {"\\p{N}{1,3}",                                               HAN_KANA,
                   "[!-/:-@\\[-`{-~][A-Za-z]+|[^\\r\\n\\p{L}\\p{P}\\p{S}]?"
                 "[\\p{L}\\p{M}]+| ?[\\p{P}\\p{S}]+|[\\r\\n]|" S "+" NOT_AHEAD
                 "|" S "+",
                   "\\p{N}"},
    [P_TINY_AYA] = {THREES "(?<!\\d)\\d++(?![\\p{L}\\p{M}\\p{Pc}])",                                       O200K},
    [P_SUPERBPE] = {"\\p{N}+",                                        THREES "(?<!\\d)\\d++"},
    [P_KIMI] = {HAN "+|[^\\r\\n\\p{L}\\p{N}]?" NO_HAN(UPPER) "*" NO_HAN(
        LOWER) "+" ENDING
               "|[^\\r\\n\\p{L}\\p{N}]?" NO_HAN(UPPER) "+" NO_HAN(
                   LOWER) "*" ENDING "|\\p{N}{1,3}|" OTHERS("") TAIL                                },
    [P_AFMOE] = {THREES "\\p{N}++",
                   "[\\x{4E00}-\\x{9FFF}\\x{3400}-\\x{4DBF}\\x{F900}-\\x{FAFF}"
                 "\\x{3040}-\\x{30FF}\\x{FF65}-\\x{FF9F}\\x{2F00}-\\x{2FDF}"
                 "\\x{E40}-\\x{EFF}\\x{1780}-\\x{17FF}\\x{1000}-\\x{109F}"
                 "\\x{AA60}-\\x{AA7F}\\x{A9E0}-\\x{A9FF}\\x{AC00}-\\x{D7AF}"
                 "\\x{1100}-\\x{11FF}]+", PUNCTUATED},
    [P_LAGUNA] = {LINES,                                           QWEN2},
    [P_UFAKZEKA] = {WORDS("\\p{N}")             },
 /* Its words may hold spaces. Nothing follows the possessive part. */
    [P_EXAONE_MOE] = {CONTRACTION
                      "|[^\\r\\n\\p{L}\\p{N}]?(?:\\p{L}\\p{M}*+(?: \\p{L}"
                      "\\p{M}*+)*+)++|\\p{N}| ?[^" WS "\\p{L}\\p{N}]+"
                      "[\\r\\n/]?|" S "*[\\r\\n]|" S "+" NOT_AHEAD "|" S "+"},
};

struct pre {
    const char *name;
    enum pattern pattern;
    unsigned flags; /* enum pre_flag */
};

static const struct pre pres[] = {
    {"",                         P_DEFAULT,        0                                 }, /* files before the key existed */
    {"default",                  P_DEFAULT,        0                                 },
    {"gpt-2",                    P_GPT2,           0                                 },
    {"phi-2",                    P_GPT2,           0                                 },
    {"mpt",                      P_GPT2,           0                                 },
    {"olmo",                     P_GPT2,           0                                 },
    {"jais",                     P_GPT2,           0                                 },
    {"trillion",                 P_GPT2,           0                                 },
    {"granite-docling",          P_GPT2,           0                                 },
    {"gigachat",                 P_GPT2,           0                                 },
    {"exaone4",                  P_GPT2,           0                                 },
    {"a.x-4.0",                  P_GPT2,           0                                 },
    {"mellum",                   P_GPT2,           0                                 },
    {"modern-bert",              P_GPT2,           0                                 },
    {"roberta-bpe",              P_GPT2,           0                                 },
    {"jina-es",                  P_GPT2,           0                                 },
    {"jina-de",                  P_GPT2,           0                                 },
    {"jina-v2-es",               P_GPT2,           0                                 },
    {"jina-v2-de",               P_GPT2,           0                                 },
    {"jina-v1-en",               P_GPT2,           0                                 },
    {"jina-v2-code",             P_GPT2,           0                                 },
    {"starcoder",                P_DIGITS_GPT2,    0                                 },
    {"refact",                   P_DIGITS_GPT2,    0                                 },
    {"command-r",                P_DIGITS_GPT2,    0                                 },
    {"smollm",                   P_DIGITS_GPT2,    0                                 },
    {"codeshell",                P_DIGITS_GPT2,    0                                 },
    {"exaone",                   P_DIGITS_GPT2,    0                                 },
    {"minerva-7b",               P_DIGITS_GPT2,    0                                 },
    {"mellum2",                  P_DIGITS_GPT2,    0                                 },
    {"llama3",                   P_LLAMA3,         PRE_WHOLE | PRE_BOS               },
    {"llama-v3",                 P_LLAMA3,         PRE_WHOLE | PRE_BOS               },
    {"llama-bpe",                P_LLAMA3,         PRE_WHOLE | PRE_BOS               },
    {"falcon3",                  P_LLAMA3,         PRE_WHOLE | PRE_BOS               },
    {"falcon-h1",                P_LLAMA3,         PRE_WHOLE | PRE_BOS               },
    {"pixtral",                  P_LLAMA3,         PRE_WHOLE | PRE_BOS               },
    {"midm-2.0",                 P_LLAMA3,         PRE_WHOLE | PRE_BOS               },
    {"lfm2",                     P_LLAMA3,         PRE_WHOLE | PRE_BOS               },
    {"jina-v5-nano",             P_LLAMA3,         PRE_WHOLE | PRE_BOS               },
    {"dbrx",                     P_LLAMA3,         0                                 },
    {"smaug-bpe",                P_LLAMA3,         0                                 },
    {"glm4",                     P_LLAMA3,         0                                 },
    {"chatglm-bpe",              P_LLAMA3,         0                                 },
    {"qwen2",                    P_QWEN2,          PRE_NFC                           },
    {"f2llmv2",                  P_QWEN2,          PRE_NFC                           },
    {"deepseek-r1-qwen",         P_QWEN2,          0                                 },
    {"stablelm2",                P_QWEN2,          0                                 },
    {"megrez",                   P_QWEN2,          0                                 },
    {"hunyuan",                  P_QWEN2,          0                                 },
    {"solar-open",               P_QWEN2,          0                                 },
    {"kormo",                    P_QWEN2,          0                                 },
    {"grok-2",                   P_QWEN2,          0                                 },
    {"qwen35",                   P_QWEN35,         PRE_NFC                           },
    {"gpt-4o",                   P_O200K,          0                                 },
    {"llama4",                   P_O200K,          0                                 },
    {"kanana2",                  P_O200K,          0                                 },
    {"talkie",                   P_O200K,          0                                 },
    {"minimax-m2",               P_O200K,          0                                 },
    {"granite-embed-multi-97m",  P_O200K,          PRE_WHOLE                         },
    {"tekken",                   P_TEKKEN,         PRE_WHOLE | PRE_BOS               },
    {"youtu",                    P_YOUTU,          PRE_WHOLE                         },
    {"falcon",                   P_FALCON,         0                                 },
    {"deepseek-llm",             P_DEEPSEEK_LLM,   0                                 },
    {"deepseek-coder",           P_DEEPSEEK_CODER, 0                                 },
    {"deepseek-v3",              P_DEEPSEEK_V3,    0                                 },
    {"hunyuan-dense",            P_DEEPSEEK_V3,    0                                 },
    {"joyai-llm",                P_DEEPSEEK_V3,    0                                 },
    {"hy_v4",                    P_DEEPSEEK_V3,    0                                 },
    {"chameleon",                P_CHAMELEON,      PRE_BOS                           },
    {"bloom",                    P_BLOOM,          0                                 },
    {"poro-chat",                P_BLOOM,          0                                 },
    {"gpt3-finnish",             P_BLOOM,          0                                 },
    {"viking",                   P_VIKING,         0                                 },
    {"bailingmoe",               P_BAILING,        0                                 },
    {"bailingmoe2",              P_BAILING,        0                                 },
    {"llada-moe",                P_BAILING,        0                                 },
    {"seed-coder",               P_SEED_CODER,     0                                 },
    {"gemma4",                   P_LINES,          PRE_RAW | PRE_BOS | PRE_BOS_ALWAYS},
    {"granite-embed-multi-311m", P_LINES,          PRE_RAW | PRE_BOS | PRE_BOS_ALWAYS},
    {"sarvam-moe",               P_LINES,          PRE_RAW                           },
    {"minicpm5",                 P_MINICPM5,       PRE_WHOLE                         },
    {"jais-2",                   P_JAIS2,          0                                 },
    {"spark2_5",                 P_SPARK,          0                                 },
    {"tiny_aya",                 P_TINY_AYA,       0                                 },
    {"cohere2moe",               P_TINY_AYA,       0                                 },
    {"superbpe",                 P_SUPERBPE,       0                                 },
    {"kimi-k2",                  P_KIMI,           0                                 },
    {"afmoe",                    P_AFMOE,          0                                 },
    {"laguna",                   P_LAGUNA,         0                                 },
    {"ufakzeka",                 P_UFAKZEKA,       0                                 },
    {"exaone-moe",               P_EXAONE_MOE,     0                                 },
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

bool pre_has(const struct pre *p, enum pre_flag f)
{
    return (p->flags & f) != 0;
}

const char *pre_name(const struct pre *p)
{
    return p->name;
}

const char *pre_pattern(const struct pre *p, size_t i, bool *ret_threes)
{
    const char *text = i < PATTERNS_MAX ? patterns[p->pattern][i] : NULL;
    *ret_threes = text != NULL && text[0] == THREES[0];
    return *ret_threes ? text + 1 : text;
}
