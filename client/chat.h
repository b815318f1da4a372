/* chat.h - a conversation on the terminal. */
#pragma once

#include "client/gen.h"

/* One question, one answer on stdout. A model without a chat template gets
 * the text as it is. Returns the exit code. */
int chat_once(struct client *c, const char *model, const char *system,
              const char *prompt, const struct args *a);
/* Questions from the terminal until Ctrl-D. Returns the exit code. */
int chat_loop(struct client *c, const char *model, const char *system,
              const struct args *a);
