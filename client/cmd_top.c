/* cmd_top.c - what the daemon does, again and again. Rates are differences of
 * the daemon's counters over its own clock. */
#include <string.h>
#include <time.h>

#include "client/engines.h"
#include "client/show.h"

enum { O_INTERVAL, O_ONCE };
static const struct opt opts[] = {
    [O_INTERVAL] = {"interval", 'i', OPT_NUM,  "S",  "seconds between two looks",
                    0.1,                                                                3600},
    [O_ONCE] = {"once",     0,   OPT_FLAG, NULL, "look once, over one interval", 0,
                    0                                                                       },
};

/* Of one interval. */
struct rates {
    double seconds;
    double output, prompt, steps; /* a second */
    double per_step;              /* tokens drawn in a step */
    double cached, accepted;      /* shares, 0..1; < 0: nothing to share */
};

static double counter(const struct json *status, const char *key)
{
    return json_num(json_get(json_get(status, "counters"), key));
}

static double grown(const struct json *was, const struct json *is,
                    const char *key)
{
    double d = counter(is, key) - counter(was, key);
    return d > 0 ? d : 0; /* another daemon counts from 0 */
}

static double share(double part, double of)
{
    return of > 0 ? part / of : -1;
}

static void compute(const struct json *was, const struct json *is,
                    struct rates *r)
{
    double ms = json_num(json_get(is, "uptime_ms")) -
                json_num(json_get(was, "uptime_ms"));
    double s = ms > 0 ? ms / 1000 : 1;
    double output = grown(was, is, "output_tokens");
    double prompt = grown(was, is, "prompt_tokens");
    double steps = grown(was, is, "steps");
    *r = (struct rates){
        .seconds = s,
        .output = output / s,
        .prompt = prompt / s,
        .steps = steps / s,
        .per_step = steps > 0 ? output / steps : 0,
        .cached = share(grown(was, is, "cached_tokens"), prompt),
        .accepted = share(grown(was, is, "accepted_tokens"),
                          grown(was, is, "drafted_tokens")),
    };
}

static void percent(double share, char out[16])
{
    if (share < 0) {
        (void)snprintf(out, 16, "-");
    } else {
        (void)snprintf(out, 16, "%.0f%%", 100 * share);
    }
}

static void show(const struct client *c, const struct json *j,
                 const struct rates *r)
{
    char up[16], cached[16], always[16], accepted[16], memory[48];
    fmt_seconds(json_num(json_get(j, "uptime_ms")) / 1000, up);
    percent(r->cached, cached);
    percent(share(counter(j, "cached_tokens"), counter(j, "prompt_tokens")),
            always);
    percent(r->accepted, accepted);
    engines_memory(j, memory);
    printf("aned %s ", ask_str(j, "version"));
    show_state(c, ask_str(j, "status"), 0);
    printf(", up %s, %.0f connections\n", up,
           json_num(json_get(j, "connections")));
    printf("sessions  %.0f running, %.0f waiting (limit %.0f)\n",
           json_num(json_get(j, "running")), json_num(json_get(j, "queued")),
           json_num(json_get(j, "queue_limit")));
    printf("tokens    %.1f/s drawn, %.1f/s of prompts; %.1f steps/s, %.2f a "
           "step\n",
           r->output, r->prompt, r->steps, r->per_step);
    printf("drafts    %s accepted\n", accepted);
    printf("cache     %s of the prompt tokens were warm, %s since the start\n",
           cached, always);
    printf("memory    %s, %.0f signs of pressure\n\n", memory,
           json_num(json_get(json_get(j, "memory"), "pressure_signs")));
    engines_show(c, j);
}

static void put_share(struct json *o, const char *key, double v)
{
    if (v < 0) {
        json_add_null(o, key);
    } else {
        json_add_num(o, key, v);
    }
}

/* The status with the rates in it, one line. */
static void print(const struct json *j, const struct rates *r)
{
    struct json *all = json_copy(j);
    struct json *o = json_object();
    json_add_num(o, "seconds", r->seconds);
    json_add_num(o, "output_tokens_per_second", r->output);
    json_add_num(o, "prompt_tokens_per_second", r->prompt);
    json_add_num(o, "steps_per_second", r->steps);
    json_add_num(o, "output_tokens_per_step", r->per_step);
    put_share(o, "cached_share", r->cached);
    put_share(o, "accepted_share", r->accepted);
    json_add_tree(all, "rates", o);
    (void)ask_print(all);
    json_free(all);
}

/* false: Ctrl-C. */
static bool wait_for(double s)
{
    struct timespec t = {.tv_sec = (time_t)s,
                         .tv_nsec = (long)((s - (double)(time_t)s) * 1e9)};
    return nanosleep(&t, NULL) == 0 && interrupted == 0;
}

static int run(struct client *c, const struct args *a)
{
    double every = a->opt[O_INTERVAL].set ? a->opt[O_INTERVAL].num : 1;
    bool once = a->opt[O_ONCE].set;
    bool screen = c->term.out_tty && !once && !c->json;
    struct json *was = NULL, *is = NULL;
    struct err e = {0};
    struct rates r;

    interrupt_catch();
    int rc = ask(c, "GET", "/aned/v1/status", NULL, &was, &e);
    if (rc == 0 && screen) {
        printf("\033[?1049h\033[?25l"); /* a page of its own, no cursor */
    }
    while (rc == 0 && wait_for(every)) {
        rc = ask(c, "GET", "/aned/v1/status", NULL, &is, &e);
        if (rc != 0) {
            break;
        }
        compute(was, is, &r);
        if (c->json) {
            print(is, &r);
        } else {
            printf("%s", screen ? "\033[H\033[J" : "");
            show(c, is, &r);
        }
        json_free(was);
        was = is;
        is = NULL;
        if (fflush(stdout) != 0 || once) {
            break;
        }
    }
    if (screen) {
        printf("\033[?25h\033[?1049l");
    }
    json_free(was);
    return rc == 0 || rc == ERR_CANCELLED ? EXIT_SUCCESS : ask_fail(c, &e);
}

const struct command cmd_top = {
    .name = "top",
    .args = "",
    .summary = "what the daemon does, live",
    .about =
        "Sessions, queue, tokens a second, accepted drafts, cache, memory,\n"
        "until Ctrl-C. Without a terminal each look is printed below the\n"
        "one before; with --json it is one line, the status and `rates`.\n",
    .examples = "  anectl top\n"
                "  anectl top --once --json --interval 5\n",
    .opts = opts,
    .n_opts = countof(opts),
    .run = run,
};
