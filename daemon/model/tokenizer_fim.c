/* tokenizer_fim.c - which tokens a vocabulary has for filling in the middle. */
#include <string.h>

#include "model/tokenizer_impl.h"
#include "source/gguf.h"

#define KEY(name) "tokenizer.ggml." name

/* Keys of the tokens for filling in, newest first, and the texts that tell
 * where a file has none of them. */
static const struct {
    const char *key[2];
    const char *text[7]; /* NULL at the end */
} fim[FIM_TOKENS] = {
    [FIM_PRE] = {{KEY("fim_pre_token_id"), KEY("prefix_token_id")},
                 {"<|fim_prefix|>", "<fim-prefix>", "<fim_prefix>",
                  "<\xEF\xBD\x9C"
                  "fim\xE2\x96\x81"
                  "begin\xEF\xBD\x9C>",
                  "<PRE>", SPM_SPACE "<PRE>", "<|code_prefix|>"}                    },
    [FIM_SUF] = {{KEY("fim_suf_token_id"), KEY("suffix_token_id")},
                 {"<|fim_suffix|>", "<fim-suffix>", "<fim_suffix>",
                  "<\xEF\xBD\x9C"
                  "fim\xE2\x96\x81"
                  "hole\xEF\xBD\x9C>",
                  "<SUF>", SPM_SPACE "<SUF>", "<|code_suffix|>"}                    },
    [FIM_MID] = {{KEY("fim_mid_token_id"), KEY("middle_token_id")},
                 {"<|fim_middle|>", "<fim-middle>", "<fim_middle>",
                  "<\xEF\xBD\x9C"
                  "fim\xE2\x96\x81"
                  "end\xEF\xBD\x9C>",
                  "<MID>", SPM_SPACE "<MID>", "<|code_middle|>"}                    },
    [FIM_PAD] = {{KEY("fim_pad_token_id"), NULL},
                 {"<|fim_pad|>", "<fim-pad>", "<fim_pad>", "<PAD>"}                 },
    [FIM_REP] = {{KEY("fim_rep_token_id"), NULL},
                 {"<|fim_repo|>", "<|repo_name|>", "<fim-repo>", "<REPO>",
                  "<reponame>"}                                                     },
    [FIM_SEP] = {{KEY("fim_sep_token_id"), NULL},                   {"<|file_sep|>"}},
};

/* An id of the file; one outside of the vocabulary is none. */
static int32_t id_of(const struct gguf *g, const struct tokenizer *t,
                     const char *key)
{
    uint32_t id = UINT32_MAX;
    return key != NULL && gguf_get_u32(g, key, &id) && id < (uint32_t)t->n_vocab
               ? (int32_t)id
               : TOKEN_NONE;
}

void tokenizer_load_fim(const struct gguf *g, struct tokenizer *t)
{
    for (size_t i = 0; i < FIM_TOKENS; i++) {
        int32_t *id = &t->fim[i];
        *id = TOKEN_NONE;
        for (size_t k = 0; k < countof(fim[i].key) && *id == TOKEN_NONE; k++) {
            *id = id_of(g, t, fim[i].key[k]);
        }
        for (size_t k = 0; k < countof(fim[i].text) && *id == TOKEN_NONE &&
                           fim[i].text[k] != NULL;
             k++) {
            *id = tokenizer_find(t, fim[i].text[k], strlen(fim[i].text[k]));
        }
    }
}

int32_t tokenizer_fim(const struct tokenizer *t, enum tokenizer_fim which)
{
    return t->fim[which];
}
