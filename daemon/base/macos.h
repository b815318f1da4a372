/* macos.h - what macOS expects of a program that nobody looks at. Pure: these
 * functions look at text alone, on any system. */
#pragma once

#include "base/base.h"

/* The identifier of launchd's agent, the log's subsystem, the bundle. */
#define MACOS_IDENTIFIER "dev.aned.daemon"

/* Whether launchd started this process as an agent or a daemon, by the value of
 * XPC_SERVICE_NAME (NULL: not set). What a terminal starts has "0" there, or
 * the name of the terminal's application. */
bool macos_is_service(const char *xpc_service_name);

/* The folder that macOS keeps from background programs until the user allows
 * it, if `path` (absolute) lies in one: a part of `home` (the user's; may be
 * NULL) such as "Documents", or "/Volumes". Static; NULL: none. A symbolic link
 * may lead there all the same. */
const char *macos_guarded(const char *path, const char *home);
