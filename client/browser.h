/* browser.h - shows a page in the user's browser. */
#pragma once

#include "client/client.h"

/* Is there somebody who would see a window? */
bool browser_has_display(const struct client *c);
/* Give a file's path or a URL to the system's opener (xdg-open, open), and do
 * not wait for it: it ends, or becomes the browser. Errors: as run_start. */
CHECKED int browser_open(const char *what, struct err *e);
