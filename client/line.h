/* line.h - a line with editing and history (libedit). */
#pragma once

#include "base/err.h"

struct line;

/* Reads the terminal on stdin. History is kept in a private file below
 * $ANED_HOME, else $XDG_STATE_HOME/aned, else ~/.local/state/aned; without any
 * it lasts as long as the program. */
struct line *line_open(void);
void line_close(struct line *l); /* saves the history; NULL is fine */
/* The next line without its end, borrowed until the next call; NULL at the
 * end of input. After Ctrl-C an empty line, and *stopped. */
const char *line_read(struct line *l, const char *prompt, bool *stopped);
