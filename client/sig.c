#include <signal.h>
#include <string.h>

#include "client/client.h"

volatile sig_atomic_t interrupted;

static void on_sigint(int sig)
{
    (void)sig;
    interrupted = interrupted + 1;
}

void interrupt_catch(void)
{
    struct sigaction a;
    memset(&a, 0, sizeof(a));
    a.sa_handler = on_sigint; /* no SA_RESTART: a read that waits returns */
    (void)sigemptyset(&a.sa_mask);
    (void)sigaction(SIGINT, &a, NULL);
}

void interrupt_clear(void)
{
    interrupted = 0;
}
