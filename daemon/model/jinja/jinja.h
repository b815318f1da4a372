/* jinja.h - the template language of chat templates: Jinja as transformers
 * sets it up.
 *
 * A template is compiled once and rendered many times. What it writes is byte
 * for byte what jinja2's ImmutableSandboxedEnvironment writes with trim_blocks,
 * lstrip_blocks, the loop controls, {% generation %}, and the `tojson`,
 * `strftime_now` and `raise_exception` of transformers. What needs a loader
 * (include, import, extends, block) is refused when the template is compiled;
 * so is autoescape. Integers have 64 bits: what leaves them is an error.
 *
 *   lex.c     text into tokens, white space control
 *   parse*.c  tokens into a tree (ast.h)
 *   names.c   which names of a scope begin undefined
 *   run.c     compiling; limits and names of a rendering
 *   eval.c    the tree into text; eval_expr.c, call.c, arith.c its values
 *   value.c   values (value.h): dictionaries, equality, order
 *   print.c   str() and repr(); json_out.c and json_in.c: JSON
 *   filters*.c, tests.c, methods*.c, functions.c: what templates call;
 *   strings*.c, format.c, text.c: what these share
 *
 * Limits (proto/limits.h, JINJA_*): text, nodes and nesting of a template; of a
 * rendering its steps, depth, bytes of values, and the caller's buffer.
 *
 * Thread: a compiled template never changes; any number of threads may render
 * it at the same time.
 */
#pragma once

#include "base/arena.h"
#include "base/buf.h"

struct jinja; /* a compiled template */
struct val_dict;

/* Errors: TEMPLATE (it is not a template, or uses what is refused), TOO_BIG,
 * NOMEM. *ret is the caller's: jinja_free(). */
CHECKED int jinja_compile(const char *text, size_t n, struct jinja **ret,
                          struct err *e);
void jinja_free(struct jinja *t); /* NULL is fine */

/* Append what the template writes to out. `vars` are its variables; `a` holds
 * them and gets all values of the rendering, so its limit is theirs. `now`,
 * seconds since 1970, is the time of strftime_now, in the local time zone. A
 * rendering has at most `steps` steps, JINJA_STEPS_MAX where that is 0.
 * Errors: TEMPLATE_INPUT (the template raised its own text with
 * raise_exception, or a value does not fit), TEMPLATE (it uses what is not
 * there), TOO_BIG (a limit). out is untouched on failure. */
CHECKED int jinja_render(const struct jinja *t, struct arena *a,
                         const struct val_dict *vars, int64_t now,
                         uint32_t steps, struct buf *out, struct err *e);
