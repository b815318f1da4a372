/* grammar.h - a context-free grammar over bytes, for constrained output.
 *
 *   grammar_from_text, _gbnf, _schema, _regex, grammar_json
 *       -> match.h -> mask.h
 *
 * A grammar is compiled once; what it matches is UTF-8 text. Inside, each rule
 * is an automaton whose edges are ranges of bytes, nothing, or calls of rules
 * (grammar_impl.h).
 *
 *   build*.c        states, edges and rules; characters as bytes; repetition
 *   check.c         nullable rules, left recursion, states that never end
 *   compile.c       what was built as arrays
 *   gbnf.c          GBNF, as llama.cpp has it
 *   regex*.c        regular expressions, of ECMA 262 what is regular
 *   json_values.c   JSON values without a schema
 *   schema*.c       JSON schemas
 *   search.c        texts in which strings are looked for
 *   compose.c       all of these in one grammar, from a constraint's text
 *
 * Whatever the text, a state from which no end can be reached is left out: in a
 * text that matches so far something may always follow, or the text may end.
 *
 * Limits: GRAMMAR_* in proto/limits.h. Compiling needs less than 128 KiB of
 * stack, whatever the text.
 *
 * Thread: a grammar never changes; any number of threads may match with it.
 */
#pragma once

#include "base/err.h"

struct grammar;
struct json;

/* A constraint, which is JSON text. The forms of a constraint C:
 *
 *   {"schema": S}        JSON valid by the schema S, as grammar_from_schema
 *   {"object": true}     any JSON object
 *   {"gbnf": "..."}      as grammar_from_gbnf
 *   {"regex": "..."}     as grammar_from_regex
 *   {"text": "..."}      this text
 *   {"until": "..."}     text that ends where the string first occurs in it
 *   {"without": ["..."]} text in which none of these strings occurs; it may
 *                        stand beside "until". "without_first", beside either:
 *                        strings with which the text may not begin, white space
 *                        aside
 *   {"seq": [C..]}       one behind the other
 *   {"any": [C..]}       one of them
 *   {"repeat": C, "min": 0, "max": null, "between": C}
 *                        that many times, with `between` between two of them;
 *                        "max" null, or left out: any number
 *
 * Parts know nothing of each other: rules of GBNF and "#/.." of a schema are
 * those of their own part. Errors: JSON; INVALID and UNSUPPORTED with the path
 * in the text, or as the part's own function has it; TOO_BIG; NOMEM. */
CHECKED int grammar_from_text(const char *text, size_t n, struct grammar **ret,
                              struct err *e);

/* GBNF: rules `name ::= ...` of literals, classes, '.', groups, alternatives,
 * * + ? {m} {m,} {m,n}, names of rules, comments. `root` is where it begins.
 * Names may have '_' too. Refused: a rule that is not defined, or twice;
 * left recursion; llama.cpp's tokens (<...>). Errors: INVALID with the line,
 * and the rule where there is one; TOO_BIG; NOMEM. *ret is the caller's. */
CHECKED int grammar_from_gbnf(const char *text, size_t n, struct grammar **ret,
                              struct err *e);

/* Whole texts that a regular expression matches. Classes, groups, alternatives,
 * greedy and lazy quantifiers; ^ and $ only at the ends. \d and \w are ASCII.
 * Refused: \b \B, \p, look-around, references back. Errors: INVALID with the
 * byte, TOO_BIG, NOMEM. */
CHECKED int grammar_from_regex(const char *text, size_t n, struct grammar **ret,
                               struct err *e);

/* JSON texts of values that are valid by a schema. Not all of them: properties
 * come in the order of the schema, then others, if it allows them in words (so
 * do items behind prefixItems, or as many as minItems needs);
 * white space is none, one blank, or one or two ends of line and an
 * indentation of at most 20, and it stands only behind brackets, ',' and ':'
 * and before closing brackets; numbers have at most 16 digits on either side of
 * the point. A declared key never comes twice and has no second spelling; among
 * the others that is not looked at. oneOf is taken where it can be seen that no
 * two of its schemas hold at once (schema_one.c).
 *
 * Words that only describe are ignored; every other word that this cannot hold
 * is an error. Errors: INVALID (no schema, or nothing can be valid),
 * UNSUPPORTED, both with the word and its path; TOO_BIG; NOMEM. */
CHECKED int grammar_from_schema(const struct json *schema, struct grammar **ret,
                                struct err *e);

/* A word of a schema that only describes. */
bool grammar_schema_note(const char *word);

/* Any JSON object, without a schema. Errors: NOMEM. */
CHECKED int grammar_json(struct grammar **ret, struct err *e);

void grammar_free(struct grammar *g); /* NULL is fine */
/* Bytes that it takes, for caches. */
size_t grammar_bytes(const struct grammar *g);
