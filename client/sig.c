#include <signal.h>
#include <string.h>

#include "client/client.h"

volatile sig_atomic_t interrupted;

static void on_sigint(int sig)
{
    (void)sig;
    interrupted = interrupted + 1;
}

static void catch_one(int sig)
{
    struct sigaction a;
    memset(&a, 0, sizeof(a));
    a.sa_handler = on_sigint; /* no SA_RESTART: a read that waits returns */
    (void)sigemptyset(&a.sa_mask);
    (void)sigaction(sig, &a, NULL);
}

void interrupt_catch(void)
{
    catch_one(SIGINT);
}

void interrupt_catch_all(void)
{
    catch_one(SIGINT);
    catch_one(SIGTERM);
    catch_one(SIGHUP);
}

void interrupt_clear(void)
{
    interrupted = 0;
}
