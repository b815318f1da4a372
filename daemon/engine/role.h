/* role.h - what the children of this room have in common. */
#pragma once

/* A child's first call: no core files, no ^C of its own; on Linux it ends with
 * its parent. */
void die_with_parent(void);
