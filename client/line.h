/* line.h - a line with editing and history (libedit). */
#pragma once

#include "base/err.h"

struct line;

/* Open the terminal on stdin. The history is a private file below $ANED_HOME,
 * else $XDG_STATE_HOME/aned, else ~/.local/state/aned; without such a folder it
 * is lost when the program ends. */
struct line *line_open(void);
void line_close(struct line *l); /* saves the history; NULL is fine */
/* The next line without its newline, borrowed until the next call; NULL at the
 * end of input. After Ctrl-C the line is empty and *stopped is set. */
const char *line_read(struct line *l, const char *prompt, bool *stopped);
