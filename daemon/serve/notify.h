/* notify.h - tells the service manager how the daemon is, where it wants to
 * know (systemd's sd_notify protocol: a datagram to $NOTIFY_SOCKET). */
#pragma once

#include "base/base.h"

/* Send "KEY=value" lines. Nothing happens when nobody asked, or when the
 * message cannot be sent. Thread: any. */
void notify(const char *fmt, ...) PRINTF_LIKE(1, 2);
