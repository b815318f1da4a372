/* metrics.c - /metrics: the Prometheus text format 0.0.4. */
#include "api/api.h"
#include "serve/engines/cache.h"
#include "serve/engines/residency.h"

static void value(struct buf *b, const char *name, const char *type,
                  const char *help, double v)
{
    buf_printf(b, "# HELP aned_%s %s\n# TYPE aned_%s %s\naned_%s %.17g\n", name,
               help, name, type, name, v);
}

static void counter(struct buf *b, const char *name, const char *help,
                    uint64_t v)
{
    value(b, name, "counter", help, (double)v);
}

static void gauge(struct buf *b, const char *name, const char *help, double v)
{
    value(b, name, "gauge", help, v);
}

static void histogram(struct buf *b, const char *name, const char *help,
                      const struct hist *h)
{
    uint64_t n = 0;
    buf_printf(b, "# HELP aned_%s %s\n# TYPE aned_%s histogram\n", name, help,
               name);
    for (size_t i = 0; i < HIST_BUCKETS; i++) {
        n += h->count[i];
        buf_printf(b, "aned_%s_bucket{le=\"%g\"} %llu\n", name, hist_bounds[i],
                   (unsigned long long)n);
    }
    buf_printf(b, "aned_%s_bucket{le=\"+Inf\"} %llu\n", name,
               (unsigned long long)h->n);
    buf_printf(b, "aned_%s_sum %.9g\naned_%s_count %llu\n", name, h->sum, name,
               (unsigned long long)h->n);
}

/* Verified rows by the number of their drafts that were right. */
static void acceptance(struct buf *b, const struct stats *t)
{
    const char *name = "speculation_accepted_per_row";
    uint64_t n = 0;
    buf_printf(b,
               "# HELP aned_%s Right drafts of a row that had some.\n"
               "# TYPE aned_%s histogram\n",
               name, name);
    for (size_t i = 0; i <= ENGINE_DRAFTS_MAX; i++) {
        n += t->accepted[i];
        buf_printf(b, "aned_%s_bucket{le=\"%zu\"} %llu\n", name, i,
                   (unsigned long long)n);
    }
    buf_printf(b,
               "aned_%s_bucket{le=\"+Inf\"} %llu\naned_%s_sum %llu\n"
               "aned_%s_count %llu\n",
               name, (unsigned long long)n, name,
               (unsigned long long)t->accepted_tokens, name,
               (unsigned long long)n);
}

/* What came over which kind of socket. */
static void put_transports(struct buf *b, const struct server *s)
{
    static const char *const name[] = {"unix", "tcp"};
    uint64_t conns[countof(name)] = {0}, open[countof(name)] = {0},
             requests[countof(name)] = {0};
    for (size_t i = 0; i < s->n_http; i++) {
        struct http_stats x = {0};
        size_t k = http_tcp_name(s->http[i]) != NULL;
        http_get_stats(s->http[i], &x);
        conns[k] += x.conns;
        open[k] += x.conns_open;
        requests[k] += x.requests;
    }
    const struct {
        const char *name, *type, *help;
        const uint64_t *v;
    } rows[] = {
        {"connections_total", "counter", "Connections accepted", conns   },
        {"connections_open",  "gauge",   "Connections open",     open    },
        {"requests_total",    "counter", "Requests",             requests},
    };
    for (size_t i = 0; i < countof(rows); i++) {
        buf_printf(b,
                   "# HELP aned_http_transport_%s %s, by kind of socket.\n"
                   "# TYPE aned_http_transport_%s %s\n",
                   rows[i].name, rows[i].help, rows[i].name, rows[i].type);
        for (size_t k = 0; k < countof(name); k++) {
            buf_printf(b, "aned_http_transport_%s{transport=\"%s\"} %llu\n",
                       rows[i].name, name[k],
                       (unsigned long long)rows[i].v[k]);
        }
    }
}

static void put_http(struct buf *b, const struct server *s)
{
    struct http_stats t = {0};
    for (size_t i = 0; i < s->n_http; i++) {
        struct http_stats x = {0};
        http_get_stats(s->http[i], &x);
        t.conns += x.conns;
        t.conns_open += x.conns_open;
        t.requests += x.requests;
        t.responses_4xx += x.responses_4xx;
        t.responses_5xx += x.responses_5xx;
        t.bytes_in += x.bytes_in;
        t.bytes_out += x.bytes_out;
        t.streams_open += x.streams_open;
        t.streams_stalled += x.streams_stalled;
        t.refused_uid += x.refused_uid;
        t.refused_key += x.refused_key;
        t.refused_web += x.refused_web;
        t.bytes_queued += x.bytes_queued;
    }
    counter(b, "http_connections_total", "Connections accepted.", t.conns);
    gauge(b, "http_connections_open", "Connections open.",
          (double)t.conns_open);
    counter(b, "http_requests_total", "Requests.", t.requests);
    counter(b, "http_responses_4xx_total", "Answers 400 to 499.",
            t.responses_4xx);
    counter(b, "http_responses_5xx_total", "Answers 500 to 599.",
            t.responses_5xx);
    counter(b, "http_received_bytes_total", "Bytes read.", t.bytes_in);
    counter(b, "http_sent_bytes_total", "Bytes written.", t.bytes_out);
    gauge(b, "http_queued_bytes", "Bytes that wait for their readers.",
          (double)t.bytes_queued);
    counter(b, "http_streams_total", "Streams begun.", t.streams_open);
    counter(b, "http_streams_stalled_total",
            "Streams cut off because the client did not read.",
            t.streams_stalled);
    counter(b, "http_refused_uid_total", "Connections of other users.",
            t.refused_uid);
    counter(b, "http_refused_key_total", "TCP requests without the key.",
            t.refused_key);
    counter(b, "http_refused_web_total",
            "TCP requests as only a web page sends them: Host, Origin, "
            "Sec-Fetch-Site, Content-Type.",
            t.refused_web);
    put_transports(b, s);
}

static void put_work(struct buf *b, const struct stats *t)
{
    counter(b, "generations_total", "Requests for text.", t->generations);
    counter(b, "generations_failed_total", "Of them answered with an error.",
            t->generations_failed);
    counter(b, "generations_cancelled_total", "Of them left by their client.",
            t->generations_cancelled);
    counter(b, "generations_late_total", "Of them ended by their deadline.",
            t->generations_late);
    counter(b, "embeddings_total", "Requests for embeddings.", t->embeddings);
    counter(b, "embeddings_failed_total", "Of them answered with an error.",
            t->embeddings_failed);
    counter(b, "embedded_texts_total", "Texts made into vectors.",
            t->embedded_texts);
    counter(b, "embedded_tokens_total", "Their tokens.", t->embedded_tokens);
    counter(b, "refused_busy_total", "Requests answered 503: a queue is full.",
            t->refused_busy);
    counter(b, "prompt_tokens_total", "Tokens of prompts.", t->prompt_tokens);
    counter(b, "cached_tokens_total", "Of them found warm.", t->cached_tokens);
    counter(b, "output_tokens_total", "Tokens drawn.", t->output_tokens);
    counter(b, "labelled_texts_total", "Texts that encoders labelled.",
            t->labelled_texts);
    counter(b, "labelled_tokens_total", "Their tokens.", t->labelled_tokens);
    counter(b, "steps_total", "Engine steps.", t->steps);
    counter(b, "step_sequences_total", "Sequences in those steps.",
            t->step_rows);
    counter(b, "speculation_drafted_tokens_total", "Drafts verified.",
            t->drafted_tokens);
    counter(b, "speculation_accepted_tokens_total", "Of them accepted.",
            t->accepted_tokens);
    acceptance(b, t);
    counter(b, "engine_starts_total", "Engines started.", t->engine_starts);
    counter(b, "engine_restarts_total",
            "Engines started again after a crash, with streams open.",
            t->engine_restarts);
    counter(b, "engine_failures_total", "Models given up after crashes.",
            t->engine_failures);
    counter(b, "engine_packages_reopened_total",
            "Packages opened anew after their device failed.",
            t->packages_reopened);
    counter(b, "engine_packages_on_cpu_total",
            "Packages moved to the CPU backend after their device failed.",
            t->packages_on_cpu);
    counter(b, "models_evicted_total",
            "Idle models that left for another or under memory pressure.",
            t->models_evicted);
    counter(b, "states_shed_total",
            "Warm sequences given up under memory pressure.", t->states_shed);
    counter(b, "memory_pressure_total", "Signs of memory pressure.",
            t->memory_signs);
    counter(b, "jobs_created_total", "Conversion jobs.", t->jobs_created);
    counter(b, "jobs_done_total", "Of them done.", t->jobs_done);
    counter(b, "jobs_failed_total", "Of them failed.", t->jobs_failed);
    counter(b, "jobs_cancelled_total", "Of them cancelled.", t->jobs_cancelled);
    histogram(b, "time_to_first_token_seconds", "From request to first token.",
              &t->first_token);
    histogram(b, "time_between_tokens_seconds", "Between a choice's tokens.",
              &t->between_tokens);
    histogram(b, "queue_wait_seconds", "From request to its first step.",
              &t->queue_wait);
    histogram(b, "step_seconds", "One step in the engine.", &t->step);
}

static void put_now(struct buf *b, struct server *s)
{
    double waiting = 0, running = 0, warm = 0, loaded = 0;
    for (struct model *m = models_first(s->models); m != NULL;
         m = models_next(m)) {
        if (m->runner == NULL) {
            continue;
        }
        const struct sched *x = runner_sched(m->runner);
        loaded += runner_state(m->runner) == RUNNER_UP ? 1 : 0;
        if (x->seqs != NULL) {
            waiting += x->n_waiting;
            running += x->n_running;
            warm += sched_warm(x);
        }
    }
    gauge(b, "models", "Models.", (double)models_count(s->models));
    gauge(b, "models_loaded", "Engines that are up.", loaded);
    gauge(b, "queue_depth", "Choices waiting for an engine.", waiting);
    gauge(b, "streams_running", "Choices being generated.", running);
    gauge(b, "sequences_warm", "Warm sequences nobody uses.", warm);
    gauge(b, "text_queue_depth", "Texts waiting to be tokenised.",
          (double)workq_depth(s->text));
    gauge(b, "jobs_waiting", "Conversion jobs waiting.",
          (double)jobs_waiting(s->jobs));
    gauge(b, "jobs_running", "Conversion jobs running.",
          jobs_running(s->jobs) ? 1 : 0);
    gauge(b, "memory_budget_bytes", "Weights, states and scratch may take.",
          (double)models_budget(s->models));
    gauge(b, "memory_used_bytes", "Of it counted for engines.",
          (double)models_bytes(s->models));
    gauge(b, "uptime_seconds", "Since the start.",
          (double)(server_now_us() - s->stats.started_us) / 1e6);
}

static void put_cache(struct buf *b, const struct server *s)
{
    struct cache_stats c = {0};
    if (s->cache != NULL) {
        cache_get_stats(s->cache, &c);
    }
    gauge(b, "states_files", "Saved states on disk.", (double)c.files);
    gauge(b, "states_bytes", "Their bytes.", (double)c.bytes);
    counter(b, "states_loads_total", "Prompts continued from saved states.",
            c.hits);
    counter(b, "states_load_failures_total", "Loads that brought nothing.",
            c.misses);
    counter(b, "states_loaded_tokens_total", "Positions read.",
            c.loaded_tokens);
    counter(b, "states_read_bytes_total", "Bytes read.", c.loaded_bytes);
    counter(b, "states_saves_total", "States saved.", c.saved_files);
    counter(b, "states_written_bytes_total", "Bytes written.", c.saved_bytes);
    counter(b, "states_refused_budget_total",
            "Saves that a budget did not allow.", c.refused_budget);
    counter(b, "states_damaged_total", "Files removed because not sound.",
            c.refused_damaged);
    counter(b, "states_evicted_total", "Files removed for others.",
            c.evicted_files);
}

static void put_loop(struct buf *b, const struct server *s)
{
    histogram(b, "loop_lag_seconds",
              "From the end of a poll to the next, in whole milliseconds.",
              &s->meter.lag);
    gauge(b, "loop_cpu_max_seconds",
          "Most CPU time of the loop thread between two polls.",
          (double)s->meter.cpu_max_ns / 1e9);
    counter(b, "loop_cpu_over_total",
            "How often that was more than 20 ms.", s->meter.n_over);
    gauge(b, "answers_held_bytes",
          "Held by answers that are sent when they are whole.",
          (double)s->answer_bytes);
}

void api_metrics(struct http_req *r, const struct http_args *a)
{
    struct server *s = http_ctx(r);
    struct buf b;
    (void)a;
    buf_init(&b, KIB(256));
    put_http(&b, s);
    put_work(&b, &s->stats);
    put_loop(&b, s);
    put_cache(&b, s);
    put_now(&b, s);
    must(buf_ok(&b)); /* a fixed list of numbers */
    http_reply(r, 200, "text/plain; version=0.0.4", b.p, b.n);
    buf_fini(&b);
}
