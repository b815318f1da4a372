/* grammar_impl.h - what the files of this folder share: a grammar while it is
 * built, and as match.c reads it. */
#pragma once

#include "base/arena.h"
#include "model/grammar/grammar.h"
#include "proto/limits.h"

#define NO_STATE UINT32_MAX
#define NO_RULE  UINT32_MAX

/* --- compiled --- */

struct byte_edge {
    uint32_t to;
    uint8_t lo, hi; /* both within */
};

struct move {      /* without a byte */
    uint32_t to;   /* where it goes, or comes back to; NO_STATE: the caller has
                      nothing to do behind it (a tail call) */
    uint32_t call; /* first state of a rule; NO_STATE: no call */
};

struct gram_state {
    uint32_t bytes; /* first of its byte edges, up to the next state's */
    uint32_t moves; /* first of its moves, up to the next state's */
};

struct grammar {
    struct gram_state *states; /* (n_states + 1) */
    struct byte_edge *bytes;
    struct move *moves;
    bool *ends; /* (n_states): a rule may end here */
    uint32_t n_states, n_bytes, n_moves;
    uint32_t start;
    /* Bytes that no edge tells apart are one class. */
    uint8_t class_of[256];
    uint8_t byte_of[256]; /* (n_classes): one byte of each class */
    uint16_t class_size[256];
    uint32_t n_classes;
};

/* --- while it is built --- */

enum edge_kind { EDGE_BYTES, EDGE_EMPTY, EDGE_CALL };

struct edge {
    uint32_t to;
    uint32_t next; /* edge of the same state, 1-based; 0: none */
    uint32_t call; /* rule, of EDGE_CALL */
    uint8_t kind, lo, hi;
};

struct build_state {
    uint32_t edges; /* 1-based; 0: none */
    uint32_t rule;  /* that it belongs to */
};

struct build_rule {
    uint32_t start, end; /* NO_STATE until it is defined */
    const char *name;    /* in the arena; of a part of a rule that rule's */
    uint32_t line;       /* of its definition, else of its first use; 0: none */
};

/* The first error stays: all functions do nothing behind it and return 0. So
 * callers may look at rc once. */
struct builder {
    struct build_state *states;
    struct edge *edges; /* edges[0] is unused */
    struct build_rule *rules;
    uint32_t n_states, cap_states;
    uint32_t n_edges, cap_edges;
    uint32_t n_rules, cap_rules;
    uint32_t rule; /* to which new states belong */
    struct arena arena;
    int rc;
    struct err *e;
};

/* Part of an automaton: nothing enters `start` and nothing leaves `end`. */
struct frag {
    uint32_t start, end;
};

void build_init(struct builder *b, struct err *e);
void build_fini(struct builder *b);
/* Set the first error; returns it. */
int build_fail(struct builder *b, int code, const char *fmt, ...)
    PRINTF_LIKE(3, 4);

uint32_t build_state(struct builder *b);
void build_bytes(struct builder *b, uint32_t from, unsigned lo, unsigned hi,
                 uint32_t to);
void build_empty(struct builder *b, uint32_t from, uint32_t to);
void build_call(struct builder *b, uint32_t from, uint32_t rule, uint32_t to);
/* A text behind `from`; returns where it ends. */
uint32_t build_text(struct builder *b, uint32_t from, const char *p, size_t n);

/* A rule without states yet; name is copied. */
uint32_t build_rule(struct builder *b, const char *name, uint32_t line);
/* Begin its states, which gives start and end; new states are its own until
 * build_close, which takes what build_open returned. */
uint32_t build_open(struct builder *b, uint32_t rule);
void build_close(struct builder *b, uint32_t before);

/* f min to max times; max BUILD_ANY: any number. *first: the number of states
 * before those of f were made; it grows when they become a rule of their own, so
 * that repetitions of repetitions do not look at them again. */
#define BUILD_ANY UINT32_MAX
struct frag build_repeat(struct builder *b, struct frag f, uint32_t *first,
                         uint32_t min, uint32_t max);
/* A rule min to max times behind `from`; returns where that ends. */
uint32_t build_repeat_rule(struct builder *b, uint32_t from, uint32_t rule,
                           uint32_t min, uint32_t max);

/* --- where a part stands in a JSON text, for errors --- */

struct json_path {
    char text[GRAMMAR_PATH_MAX]; /* "#/properties/a", cut where it is longer */
    size_t n;
};

void path_begin(struct json_path *p, const char *root);
/* Go into a member, `name` of it unless NULL, and back to the length that this
 * returned. */
size_t path_enter(struct json_path *p, const char *word, const char *name);
void path_leave(struct json_path *p, size_t n);

/* --- characters --- */

#define CHAR_MAX_CODE 0x10FFFFu

struct char_range {
    uint32_t lo, hi;
};

struct chars {
    struct char_range *r; /* in the builder's arena */
    size_t n, cap;
};

void chars_add(struct builder *b, struct chars *c, uint32_t lo, uint32_t hi);
/* Sorted, without overlaps. */
void chars_sort(struct chars *c);
/* All other characters; sorts. */
struct chars chars_not(struct builder *b, struct chars *c);
bool chars_has(const struct chars *c, uint32_t code);

/* One character of c as UTF-8; sorts. Surrogates have no UTF-8. */
void build_chars(struct builder *b, uint32_t from, struct chars *c,
                 uint32_t to);
/* The same as a part of a JSON string: each character in one spelling. */
void build_json_chars(struct builder *b, uint32_t from, struct chars *c,
                      uint32_t to);

/* --- the whole --- */

/* Look for left recursion and drop states that never end; `root` must be
 * defined. */
CHECKED int build_check(struct builder *b, uint32_t root);
CHECKED int build_compile(struct builder *b, uint32_t root,
                          struct grammar **ret);
/* Both of them, and the end of the builder. */
CHECKED int build_finish(struct builder *b, uint32_t root,
                         struct grammar **ret);

/* --- languages inside others --- */

/* A string that is looked for in a text: of whole characters, not empty. */
struct search_string {
    struct span s;
    bool ends;  /* the text is over behind it; false: it may not occur */
    bool first; /* only where the text begins, white space aside */
};
/* Texts behind `from` in which strings are looked for; where some are `first`,
 * none begins with white space. A text is over at
 * `found` when the first has occurred that ends it; at `absent`, if none has;
 * NO_STATE: there are no such texts. */
void build_search(struct builder *b, const struct search_string *strings,
                  size_t n, uint32_t from, uint32_t found, uint32_t absent);

/* GBNF: makes its rules and returns `root`, to be called. Its names are its
 * own: rules that are there already are not seen, nor are these later. */
uint32_t build_gbnf(struct builder *b, const char *text, size_t n);

/* text[0..n) behind `from`, up to `to`; json: its characters are those of a
 * JSON string. search: ^ and $ count, and where they are absent anything may
 * stand before, or behind; else the whole text must match. `any` is a rule of
 * one character, used only to search. */
void build_regex(struct builder *b, const char *text, size_t n, bool json,
                 bool search, uint32_t any, uint32_t from, uint32_t to);
