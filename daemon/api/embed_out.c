/* embed_out.c - embeddings as each dialect has them. On the text thread: a long
 * list of vectors is megabytes of digits. */
#include <math.h>
#include <string.h>

#include "api/embed.h"
#include "base/base64.h"

void embed_normalize(float *v, size_t n)
{
    double squares = 0;
    for (size_t i = 0; i < n; i++) {
        squares += (double)v[i] * (double)v[i];
    }
    if (!(squares > 0)) {
        return;
    }
    double by = 1.0 / sqrt(squares);
    for (size_t i = 0; i < n; i++) {
        v[i] = (float)((double)v[i] * by);
    }
}

static void put_numbers(struct buf *b, const float *v, size_t n)
{
    buf_puts(b, "[");
    for (size_t i = 0; i < n; i++) {
        buf_puts(b, i > 0 ? "," : "");
        json_put_float(b, v[i]);
    }
    buf_puts(b, "]");
}

/* Little-endian, as their bytes lie in a buf. */
static void put_base64(struct buf *b, const float *v, size_t n)
{
    struct buf bytes;
    buf_init(&bytes, n * sizeof(*v));
    for (size_t i = 0; i < n; i++) {
        buf_f32(&bytes, v[i]);
    }
    char *to = buf_ok(&bytes) ? buf_grow(b, BASE64_CHARS(bytes.n) + 2) : NULL;
    if (to != NULL) {
        to[0] = '"';
        base64_encode(bytes.p, bytes.n, to + 1);
        to[BASE64_CHARS(bytes.n) + 1] = '"';
    } else {
        b->over = true;
    }
    buf_fini(&bytes);
}

uint32_t embed_width(const struct embed_call *c)
{
    return c->p.embed.dimensions > 0 ? c->p.embed.dimensions
                                     : c->x.m->bundle->d_model;
}

static void put_vector(struct embed_call *c, size_t i)
{
    const struct embed_text *t = &c->x.texts[i];
    uint32_t n = embed_width(c);
    if (!c->p.embed.raw) {
        embed_normalize(t->vector, n);
    }
    if (c->p.embed.base64) {
        put_base64(&c->out, t->vector, n);
    } else {
        put_numbers(&c->out, t->vector, n);
    }
}

static void put_model(struct buf *b, const char *name)
{
    buf_puts(b, "\"model\":");
    json_put_string(b, name, strlen(name));
}

void embed_put_openai(struct embed_call *c)
{
    struct buf *b = &c->out;
    buf_puts(b, "{\"object\":\"list\",");
    put_model(b, c->x.m->name);
    buf_puts(b, ",\"data\":[");
    for (size_t i = 0; i < c->x.n_texts; i++) {
        buf_printf(b, "%s{\"object\":\"embedding\",\"index\":%zu,"
                      "\"embedding\":", i > 0 ? "," : "", i);
        put_vector(c, i);
        buf_puts(b, "}");
    }
    buf_printf(b, "],\"usage\":{\"prompt_tokens\":%llu,"
                  "\"total_tokens\":%llu}}",
               (unsigned long long)c->x.n_tokens,
               (unsigned long long)c->x.n_tokens);
}

/* An entry has a row for each vector of its text: one, since they are pooled. */
void embed_put_llamacpp(struct embed_call *c)
{
    struct buf *b = &c->out;
    buf_puts(b, "[");
    for (size_t i = 0; i < c->x.n_texts; i++) {
        buf_printf(b, "%s{\"index\":%zu,\"embedding\":[", i > 0 ? "," : "", i);
        put_vector(c, i);
        buf_puts(b, "]}");
    }
    buf_puts(b, "]");
}

void embed_put_ollama(struct embed_call *c)
{
    struct buf *b = &c->out;
    uint64_t now = server_now_us();
    buf_puts(b, "{");
    put_model(b, c->x.m->name);
    buf_puts(b, ",\"embeddings\":[");
    for (size_t i = 0; i < c->x.n_texts; i++) {
        buf_puts(b, i > 0 ? "," : "");
        put_vector(c, i);
    }
    buf_printf(b, "],\"total_duration\":%llu,\"load_duration\":%llu,"
                  "\"prompt_eval_count\":%llu}",
               (unsigned long long)(now - c->arrived_us) * 1000,
               (unsigned long long)(c->loaded_us - c->arrived_us) * 1000,
               (unsigned long long)c->x.n_tokens);
}

void embed_put_ollama_old(struct embed_call *c)
{
    buf_puts(&c->out, "{\"embedding\":");
    if (c->x.n_texts > 0) {
        put_vector(c, 0);
    } else {
        buf_puts(&c->out, "[]");
    }
    buf_puts(&c->out, "}");
}
