/* tokenizer_impl.h - what the files of tokenizer.h share.
 *
 *   tokenizer.c          the public calls and what one text goes through
 *   tokenizer_load.c     a GGUF's vocabulary into the tables below
 *   tokenizer_fim.c      tokens for filling in the middle
 *   tokenizer_pieces.c   pieces of running text, special tokens
 *   tokenizer_table.c    text -> id, pair of ids -> merge, special tokens' trie
 *   tokenizer_patterns.c pre-tokenizer patterns by name
 *   tokenizer_pre.c      text into words, by patterns
 *   tokenizer_merge.c    the merge loop of both kinds
 *   tokenizer_bpe.c      byte-level BPE
 *   tokenizer_spm.c      SentencePiece-style BPE
 *   tokenizer_ugm.c      SentencePiece's Unigram
 *   tokenizer_norm.c     what it does with a text before (tokenizer_norm.h)
 *   tokenizer_charsmap.c SentencePiece's table of characters
 *   tokenizer_wpm.c      WordPiece
 *
 * All bytes of the vocabulary are copied into one blob: no file stays mapped.
 */
#pragma once

#include "base/buf.h"
#include "model/tokenizer.h"

/* tokenizer.ggml.token_type */
enum token_type {
    TOKEN_NORMAL = 1,
    TOKEN_UNKNOWN = 2,
    TOKEN_CONTROL = 3,
    TOKEN_USER = 4,
    TOKEN_UNUSED = 5,
    TOKEN_BYTE = 6,
};

enum tokenizer_kind {
    TOKENIZER_BPE,
    TOKENIZER_SPM,
    TOKENIZER_UGM,
    TOKENIZER_WPM
};

struct token {
    uint32_t text_at;  /* in blob: as in the vocabulary */
    uint32_t piece_at; /* in blob: as in running text */
    uint16_t text_n, piece_n;
    uint8_t type;     /* enum token_type */
    bool eog;         /* ends a generation */
    bool strip_right; /* swallows white space after it */
    bool strip_left;  /* swallows white space before it */
    uint32_t key;     /* SPM: merge order, low is first */
};

/* Secret key of the hash of texts: the author of a file cannot know it. */
struct text_key {
    uint64_t a, b, c;
};

/* Text -> id, open addressing. */
struct text_slot {
    uint32_t hash;
    int32_t id; /* TOKEN_NONE: free */
};
struct text_map {
    struct text_slot *slots;
    size_t mask; /* slots - 1 */
    size_t n;
    struct text_key key;
};

/* Pair of ids -> merge, open addressing. */
struct merge_slot {
    uint64_t key; /* left << 32 | right; UINT64_MAX: free */
    uint32_t rank;
    int32_t id; /* of the two together */
};
struct merge_map {
    struct merge_slot *slots;
    size_t mask;
    size_t n;
    uint64_t seed;
};

/* Texts of special tokens: (node, byte) -> node, open addressing. */
struct trie_slot {
    uint64_t key; /* node << 8 | byte; UINT64_MAX: free */
    uint32_t node;
};
struct trie {
    struct trie_slot *slots;
    size_t mask;
    size_t n;
    uint64_t seed;
    int32_t *ends; /* by node: id that ends there or TOKEN_NONE */
    size_t n_nodes, nodes_cap;
    bool first[256]; /* some text begins with this byte */
};

#define SPM_SPACE "\xE2\x96\x81" /* U+2581 stands for a space */

#define SPECIAL_TEXT_MAX 256u /* longer ones are not looked for in text */
#define UGM_TOKEN_MAX    256u /* bytes of a token of a Unigram vocabulary */

struct gguf;
struct pre; /* tokenizer_patterns.c: patterns and habits of one name */

struct tokenizer {
    enum tokenizer_kind kind;
    const char *kind_name; /* tokenizer.ggml.model */
    bool raw;              /* BPE: PRE_RAW */
    bool lowers, strips;   /* WPM: text is lowered, has no accents */
    char pre_name[64];
    const struct pre *pre; /* BPE */
    struct pre_code *code; /* BPE: compiled patterns */
    int32_t n_vocab;       /* ids < n_vocab are the model's */
    int32_t n_tokens;      /* BPE: parts of merges that are no token follow */
    size_t tokens_cap;
    struct token *tokens;
    struct buf blob;
    struct text_map texts;
    struct merge_map merges; /* BPE */
    struct trie special;
    int32_t byte_id[256]; /* the token of a single byte, or TOKEN_NONE */
    size_t longest;       /* bytes of the longest token text */
    int32_t bos, eos, unk;
    int32_t fim[FIM_TOKENS];
    bool add_bos, add_eos;
    struct ugm *ugm;     /* UGM; owned */
    bool space_prefix;   /* SPM, UGM, WPM, and BPE of text as it is */
    bool joins[256];     /* SPM, UGM: some token has a U+2581 after this byte */
    char *chat_template; /* owned; NULL when absent */
};

void tokenizer_load_fim(const struct gguf *g, struct tokenizer *t);

static inline struct span token_text(const struct tokenizer *t, int32_t id)
{
    const struct token *k = &t->tokens[id];
    return (struct span){t->blob.p + k->text_at, k->text_n};
}

/* tokenizer_load.c */
CHECKED int tokenizer_load(const struct gguf *g, struct tokenizer *t,
                           struct err *e);

int tokenizer_too_much(struct err *e); /* NOMEM: "the vocabulary" */

/* tokenizer_pieces.c: fill the tokens' pieces; enter special tokens into the
 * trie; apply exceptions of families that only general.name identifies. */
CHECKED int tokenizer_pieces(struct tokenizer *t, struct err *e);
CHECKED int tokenizer_specials(struct tokenizer *t, struct err *e);
void tokenizer_habits(struct tokenizer *t, struct span name);

/* tokenizer_table.c. Adding returns false when memory is out. */
uint32_t text_hash(const struct text_key *k, const char *p, size_t n);
CHECKED bool text_map_put(struct tokenizer *t, int32_t id); /* last one wins */
int32_t text_map_get(const struct tokenizer *t, const char *p, size_t n);
CHECKED bool merge_map_reserve(struct merge_map *m, size_t n);
void merge_map_put(struct merge_map *m, int32_t left, int32_t right,
                   uint32_t rank, int32_t id); /* first one wins */
const struct merge_slot *merge_map_get(const struct merge_map *m, int32_t left,
                                       int32_t right);
CHECKED bool trie_put(struct trie *r, struct span text, int32_t id);
void trie_fini(struct trie *r);

/* The longest special token at the beginning of p[0..n): only user-defined
 * tokens, or all special tokens with `special`. TOKEN_NONE: there is none. */
int32_t special_at(const struct tokenizer *t, const char *p, size_t n,
                   bool special);

/* tokenizer_patterns.c */
enum pre_flag {
    PRE_WHOLE = 1,      /* a word that is a token is taken whole */
    PRE_BOS = 2,        /* add_bos_token, unless the file says otherwise */
    PRE_BOS_ALWAYS = 4, /* whatever it says */
    PRE_NFC = 8,        /* text is normalised first */
    /* Tokens are written as they are, spaces as U+2581; what is no token
     * falls apart into <0xHH>. Else bytes are written as characters. */
    PRE_RAW = 16,
};
#define PATTERNS_MAX 6
const struct pre *pre_find(const char *name); /* NULL: unknown */
const char *pre_name(const struct pre *p);
bool pre_has(const struct pre *p, enum pre_flag f);
/* Pattern i, NULL after the last one. threes: a match is cut again, in threes
 * of characters from its end. */
const char *pre_pattern(const struct pre *p, size_t i, bool *ret_threes);

/* tokenizer_pre.c */
CHECKED int pre_compile(const struct pre *p, struct pre_code **ret,
                        struct err *e);
void pre_code_free(struct pre_code *c); /* NULL is fine */

/* One symbol of a word while it is merged. */
struct sym {
    int32_t id;     /* TOKEN_NONE: no token has this text */
    uint32_t at, n; /* bytes of the word; n 0: merged away */
    int32_t prev, next;
};

#define CAND_NONE UINT32_MAX
/* What two neighbours would become. */
struct cand {
    uint32_t key; /* low is merged first; CAND_NONE: they do not merge */
    int32_t id;
};

struct heap_item {
    uint32_t key;
    int32_t left; /* index of the left symbol; ties go to the lowest */
    int32_t right;
    int32_t id;
    uint32_t n; /* bytes of both when it was pushed */
};

#define CACHE_WORD 26 /* bytes */
#define CACHE_IDS  8
struct cache_entry {
    uint32_t hash;
    uint8_t n, n_ids; /* n 0: free */
    char word[CACHE_WORD];
    int32_t ids[CACHE_IDS];
};

#define CACHE_ENTRIES 4096u
struct tokenizer_words {
    struct cache_entry entry[CACHE_ENTRIES]; /* by hash; a new one replaces */
};

/* Everything that one tokenizer_encode call writes. The tokenizer itself does
 * not change, so calls may run at the same time. */
struct encoder {
    const struct tokenizer *t;
    int32_t *ids; /* the result */
    size_t n_ids, ids_cap;
    struct sym *syms;
    size_t syms_cap;
    struct heap_item *heap;
    size_t n_heap, heap_cap;
    struct buf text;   /* the fragment, escaped or repaired */
    struct buf other;  /* UGM: text is changed from one to the other */
    struct ugm_best *best; /* UGM */
    size_t best_cap;
    bool begins, ends_text; /* the fragment is at an end of the text */
    uint32_t *ends[2]; /* word ends of a fragment, two passes */
    size_t n_ends[2], ends_cap[2];
    struct tokenizer_words *words; /* NULL: every word is new */
    struct pre_match *match;   /* PCRE2's own scratch, made on first use */
    const char *word;          /* the bytes the syms point into */
};

CHECKED int encoder_emit(struct encoder *c, int32_t id, struct err *e);
/* Room for n symbols. */
CHECKED int encoder_syms(struct encoder *c, size_t n, struct err *e);

/* Split the valid UTF-8 text[0..n) by all patterns of the tokenizer; the word
 * ends are in c->ends[*ret_which]. */
CHECKED int pre_split(struct encoder *c, const char *text, size_t n,
                      int *ret_which, struct err *e);
void pre_match_free(struct pre_match *m); /* NULL is fine */

/* tokenizer_merge.c: merge c->syms[0..n), all linked, until nothing merges.
 * The result is the list that begins at symbol 0. */
typedef struct cand (*merge_pair_fn)(const struct encoder *c,
                                     const struct sym *l, const struct sym *r);
CHECKED int merge_run(struct encoder *c, size_t n, merge_pair_fn pair,
                      struct err *e);

/* One fragment of raw text between special tokens. */
CHECKED int bpe_fragment(struct encoder *c, const char *p, size_t n,
                         bool prefix, struct err *e);
CHECKED int spm_fragment(struct encoder *c, const char *p, size_t n,
                         bool prefix, struct err *e);
CHECKED int wpm_fragment(struct encoder *c, const char *p, size_t n,
                         struct err *e);
bool wpm_lowers(const struct tokenizer *t);
CHECKED int ugm_fragment(struct encoder *c, const char *p, size_t n,
                         struct err *e);
/* tokenizer_spm.c: end of the word that begins at `at`: the next U+2581 after
 * another character, unless some token has one after such a byte. */
size_t spm_word_end(const struct tokenizer *t, const char *p, size_t n,
                    size_t at);
/* tokenizer_ugm.c. The tokens' texts do not move afterwards. */
CHECKED int ugm_load(const struct gguf *g, struct tokenizer *t, struct err *e);
void ugm_free(struct ugm *u); /* NULL is fine */

/* A word through the cache: miss() is called for words that are not in it. */
typedef int (*encode_word_fn)(struct encoder *c, const char *p, size_t n,
                              struct err *e);
CHECKED int encoder_word(struct encoder *c, const char *p, size_t n,
                         encode_word_fn miss, struct err *e);

/* From a byte to the character that stands for it in a byte-level vocabulary,
 * and back. bpe_char_bytes gives the UTF-8 of the character, 1 or 2 bytes, and
 * returns how many. bpe_decode turns a token's text into bytes; characters that
 * stand for no byte are copied. */
size_t bpe_char_bytes(uint8_t byte, char out[2]);
void bpe_decode(struct span text, struct buf *out);
