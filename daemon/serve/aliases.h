/* aliases.h - names that clients ask for, and the models that answer: the
 * section [aliases] of aned.conf.
 *
 *   [aliases]
 *   gpt-4o-mini = gemma
 *   claude-* = gemma
 *
 * A key is a name or a pattern of fnmatch(3): '*', '?', '[a-z]'. A ':' would
 * end the key in an INI file: '?' stands for it. The first line that fits
 * counts; a model of that very name comes before any line, and what a line
 * names is a model, never another alias.
 *
 * Thread: any; plain data.
 */
#pragma once

#include "base/err.h"
#include "proto/limits.h"

struct alias {
    char pattern[MODEL_NAME_MAX + 1];
    char model[MODEL_NAME_MAX + 1];
};

struct aliases {
    size_t n;
    struct alias row[ALIASES_MAX];
};

/* A line more. Errors: CONFIG: an empty or too long part, a pattern that is
 * there already, too many; the message names no file. */
CHECKED int aliases_add(struct aliases *a, const char *pattern,
                        const char *model, struct err *e);
/* The model of the first line that fits name, or NULL; lives as long as *a. */
const char *aliases_find(const struct aliases *a, const char *name);
/* Is it a name, which a listing can show, and no pattern? */
bool alias_is_name(const struct alias *a);
bool aliases_same(const struct aliases *a, const struct aliases *b);
