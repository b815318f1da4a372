/* info_plist.c - what macOS knows the daemon by (design 2). */
#include "base/info_plist.h"

INFO_PLIST("dev.aned.daemon", "aned");
