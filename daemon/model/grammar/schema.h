/* schema.h - what the files for JSON and its schemas share.
 *
 * A schema is a conjunction of its words, so schemas that hold at once (allOf,
 * a $ref with words beside it, a branch of anyOf with words beside that) are a
 * view of several objects in which a word is looked up: schema.c makes views,
 * the others compile them. */
#pragma once

#include "model/grammar/grammar_impl.h"
#include "proto/json.h"

struct json_rules {
    uint32_t space, character, string, number, integer, value, object, array;
};
/* Make these rules. */
void json_rules(struct builder *b, struct json_rules *r);
/* From `from` to `to`: one character of a string in any spelling; decimal
 * digits, so many; white space. digits returns where they end. */
void json_character(struct builder *b, uint32_t from, uint32_t to);
uint32_t json_digits(struct builder *b, uint32_t from, unsigned min,
                     unsigned max);
uint32_t json_space(struct builder *b, const struct json_rules *r,
                    uint32_t from);

struct view {
    const struct json *part[GRAMMAR_PARTS_MAX];
    unsigned n;
};

struct schema_ref {
    const struct json *target;
    uint32_t rule;
};

struct schema {
    struct builder *b;
    const struct json_rules *json;
    const struct json *root;
    struct schema_ref *refs; /* (n_refs), compiled in this order */
    uint32_t n_refs, cap_refs;
    int depth;
    struct json_path path; /* of what is compiled */
};

/* What is valid by a schema, behind `from` up to `to`. r: json_rules made them
 * in this builder; other schemas may use them too. References lead into `root`.
 */
void build_schema(struct builder *b, const struct json_rules *r,
                  const struct json *root, uint32_t from, uint32_t to);

/* Set an error about a word at the present path. */
void schema_deny(struct schema *c, int code, const char *word,
                 const char *what);

/* Words of a schema that only describe, that bring in other schemas, that say
 * what is valid. */
enum word_kind { NOTE, JOIN, VALUE };
/* How many of a kind s has; a word that is not known is an error. */
unsigned schema_words(struct schema *c, const struct json *s,
                      enum word_kind kind);
/* The rule of what a reference leads to; it is compiled later. */
uint32_t schema_rule(struct schema *c, const struct json *target,
                     const char *name);

/* Sets of types. A number without a fraction is an integer. */
enum {
    T_NULL = 1,
    T_BOOL = 2,
    T_INTEGER = 4,
    T_NUMBER = 8,
    T_STRING = 16,
    T_ARRAY = 32,
    T_OBJECT = 64,
    T_ALL = 127,
};
/* Types that all parts allow; without `type`, those that its words are about.
 */
int schema_types(struct schema *c, const struct view *v);
/* The types of the values of const or enum. */
int schema_value_types(const struct json *s);
/* Are two values written alike? */
bool schema_same(const struct json *a, const struct json *b);
/* Where s leads that is nothing but a $ref, `most` times; else s. */
const struct json *schema_target(struct schema *c, const struct json *s,
                                 unsigned most);

/* The value of a word, NULL if no part has it. Parts that differ about it are an
 * error. */
const struct json *view_get(struct schema *c, const struct view *v,
                            const char *word);
/* It as a count, or `absent`. With BUILD_ANY for that the word is an upper
 * bound: beyond GRAMMAR_REPEAT_MAX it counts as that, which allows less. */
uint32_t view_count(struct schema *c, const struct view *v, const char *word,
                    uint32_t absent);
/* The part that has a word; NULL: none. */
const struct json *view_part(const struct view *v, const char *word);

/* Compile what is valid by a schema. */
void schema_value(struct schema *c, const struct json *s, uint32_t from,
                  uint32_t to);
/* What all of these schemas allow. */
void schema_join(struct schema *c, const struct view *schemas, uint32_t from,
                 uint32_t to);
/* The same of objects without $ref, allOf, anyOf, oneOf. */
void schema_all(struct schema *c, const struct view *v, uint32_t from,
                uint32_t to);

/* An error unless at most one branch of s's oneOf can hold. alone: no schema
 * but s holds for the same value. */
void schema_one(struct schema *c, const struct json *s, bool alone);

/* What a word says about a string. */
enum part_kind {
    PART_MUST,  /* it matches */
    PART_NEVER, /* no beginning of it matches */
    PART_NOT,   /* it does not match */
};
#define STRING_PARTS_MAX 6
struct string_part {
    enum part_kind kind;
    const char *word;    /* for errors */
    const char *pattern; /* [0..n), borrowed; NULL: a length */
    size_t n;
    uint32_t min, max; /* characters */
};
/* Strings of which all n parts (at most STRING_PARTS_MAX) hold. */
void schema_meet(struct schema *c, const struct string_part *parts, unsigned n,
                 uint32_t from, uint32_t to);

void schema_string(struct schema *c, const struct view *v, uint32_t from,
                   uint32_t to);
void schema_number(struct schema *c, const struct view *v, bool integer,
                   uint32_t from, uint32_t to);
void schema_array(struct schema *c, const struct view *v, uint32_t from,
                  uint32_t to);
void schema_object(struct schema *c, const struct view *v, uint32_t from,
                   uint32_t to);
