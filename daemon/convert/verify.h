/* verify.h - the verify role: checks that a bundle's files are still those that
 * were published. One bundle a process; frames on fd 3:
 *
 *   FRAME_VERIFY {"bundle": folder, "known": stamp, "gentle": bool,
 *                 "busy": bool}
 *   FRAME_BUSY {"busy": bool}, when that changes, if gentle
 *   PROGRESS {"fraction"}, then
 *   VERIFY_DONE {"stamp", "hashed"} or ERROR
 *
 * Nothing is hashed when the files' stamp (bundle_stamp) is `known`. gentle:
 * run at the lowest priority, and only a quarter of the time, because the model
 * is in use. busy: tokens are being computed; hash four pieces a second and no
 * more. `stamp` is "" when a file was written meanwhile. Returns the exit
 * code. */
#pragma once

int verify_role(int argc, char **argv);
