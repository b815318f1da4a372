/* verify.h - the verify role: are a bundle's files still those that were
 * published? One bundle, then the end; frames on fd 3:
 *
 *   FRAME_VERIFY {"bundle": folder, "known": stamp, "gentle": bool}
 *   PROGRESS {"fraction"}, then
 *   VERIFY_DONE {"stamp", "hashed"} or ERROR
 *
 * Nothing is hashed when the files' stamp (bundle_stamp) is the known one.
 * gentle: at the lowest priority and a quarter of the time, for a model that is
 * being used meanwhile. stamp is "" when somebody wrote to a file meanwhile.
 * Returns the exit code. */
#pragma once

int verify_role(int argc, char **argv);
