#include "cli/bar.h"

#include <signal.h>
#include <unistd.h>

#include "cli/cli.h"
#include "convert/accept.h"
#include "convert/gates.h"

static volatile sig_atomic_t interrupted;

static void on_signal(int sig)
{
    (void)sig;
    interrupted = 1; /* the next progress call ends it and cleans up */
}

static bool on_progress(void *ctx, const char *stage, double fraction)
{
    struct cli_bar *b = ctx;
    if (interrupted) {
        return false;
    }
    if (!b->terminal) {
        return true;
    }
    char line[33];
    int full = (int)(fraction * 32);
    for (int i = 0; i < 32; i++) {
        line[i] = i < full ? '#' : '.';
    }
    line[32] = '\0';
    b->stage = stage;
    (void)fprintf(stderr, "\r%-10s [%s] %3d %%", stage, line,
                  (int)(fraction * 100));
    (void)fflush(stderr);
    return true;
}

void cli_bar_begin(struct cli_bar *b, struct convert_options *o)
{
    *b = (struct cli_bar){.terminal = isatty(STDERR_FILENO) != 0};
    o->progress = on_progress;
    o->ctx = b;
    (void)signal(SIGINT, on_signal);
    (void)signal(SIGTERM, on_signal);
}

int cli_accept(const char *usage, const char *text, struct convert_options *o)
{
    struct err e = {0};
    o->accept = text;
    return accept_check(text, &e) == 0 ? 0 : cli_usage(usage, "--%s", e.msg);
}

/* 0, or the exit code of a rejected bundle. */
static int tell_rejected(const struct convert_options *o,
                         const struct convert_result *r)
{
    const struct convert_gate *g = gates_rejecting(r, 0, o->accept);
    if (g == NULL) {
        return EXIT_SUCCESS;
    }
    (void)fprintf(stderr,
                  "rejected: %s failed a gate; where: aned quality %s; if it "
                  "may fail: --accept ",
                  o->out, o->out);
    while (g != NULL) {
        const struct convert_gate *next =
            gates_rejecting(r, (size_t)(g - r->gates) + 1, o->accept);
        (void)fprintf(stderr, "%s%s", g->name, next != NULL ? "," : "\n");
        g = next;
    }
    return EXIT_DATA;
}

int cli_bar_end(const struct cli_bar *b, int rc,
                const struct convert_options *o, const struct convert_result *r,
                const struct err *e)
{
    if (b->terminal && b->stage != NULL) {
        (void)fprintf(stderr, "\r%60s\r", "");
    }
    if (rc < 0) {
        return err_print(e);
    }
    for (size_t i = 0; i < r->notes.n; i++) {
        (void)fprintf(stderr, "warning: %s\n", r->notes.text[i]);
    }
    printf("%s: %.1f MB, %u layer shards, %u head slices, %.1f s\n", o->out,
           (double)r->bundle_bytes / 1e6, r->n_shards, r->n_heads,
           (double)r->ms / 1e3);
    if (r->target[0] != '\0') {
        printf("  %-10s %s\n", "chosen", r->target);
    }
    if (r->shared_bytes > 0) {
        printf("  %.1f MB of it shared with the bundle it is made of\n",
               (double)r->shared_bytes / 1e6);
    }
    for (size_t i = 0; i < r->n_gates; i++) {
        const struct convert_gate *g = &r->gates[i];
        printf("  %-10s %s%s%s\n", g->name, g->verdict,
               g->detail[0] != '\0' ? ": " : "", g->detail);
    }
    return tell_rejected(o, r);
}

int cli_convert_run(convert_fn *run, struct convert_options *o)
{
    struct convert_result r = {0};
    struct err e = {0};
    struct cli_bar bar;
    cli_bar_begin(&bar, o);
    int rc = run(o, &r, &e);
    return cli_bar_end(&bar, rc, o, &r, &e);
}
