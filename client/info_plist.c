/* info_plist.c - what macOS knows anectl by. */
#include "base/info_plist.h"

INFO_PLIST("dev.aned.anectl", "anectl");
