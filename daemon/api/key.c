/* key.c - /aned/v1/key: a new key for loopback TCP. No answer has the key: who
 * may know it reads the file. */
#include <stdlib.h>
#include <string.h>

#include "api/api.h"
#include "serve/tcp.h"

struct rotation { /* waits for the file thread */
    struct work work;
    struct server *s;
    struct http_req
        *r; /* NULL: the client left; the key changes all the same */
    struct home home;
    uint8_t key[HTTP_KEY_DIGEST];
    int rc;
    struct err e;
};

static void rotation_run(struct work *w) /* file thread */
{
    struct rotation *x = container_of(w, struct rotation, work);
    x->rc = tcp_new_key(&x->home, x->key, &x->e);
}

static void rotation_done(struct work *w)
{
    struct rotation *x = container_of(w, struct rotation, work);
    if (x->rc == 0) {
        memcpy(x->s->guard.key, x->key, sizeof(x->key));
    }
    if (x->r != NULL && x->rc == 0) {
        struct json *o = json_object();
        json_add_str(o, "key_file", x->home.key);
        api_reply(x->r, 200, o);
    } else if (x->r != NULL) {
        http_reply_error(x->r, x->rc, x->e.msg);
    }
    free(x);
}

static void rotation_gone(struct http_req *r, void *user)
{
    (void)r;
    ((struct rotation *)user)->r = NULL;
}

void api_key_new(struct http_req *r, const struct http_args *a)
{
    struct server *s = http_ctx(r);
    (void)a;
    if (http_is_tcp(r)) { /* who has stolen a key must not lock its owner out */
        http_reply_error(r, ERR_FORBIDDEN,
                         "the key is changed over the Unix socket only: "
                         "anectl key --new");
        return;
    }
    struct rotation *x = calloc(1, sizeof(*x));
    must(x != NULL);
    x->work = (struct work){.run = rotation_run, .done = rotation_done};
    x->s = s;
    x->r = r;
    x->home = s->home;
    if (workq_put(s->files, &x->work) != 0) {
        free(x);
        http_reply_error(r, ERR_BUSY, NULL);
        return;
    }
    http_on_gone(r, rotation_gone, x);
}
