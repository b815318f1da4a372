/* anthropic_models.c - /v1/models as Anthropic's clients read it: the path is
 * OpenAI's, too, and the header that only they send tells the two apart. */
#include "api/anthropic.h"
#include "api/ollama.h"

bool anthropic_asks(const struct http_req *r)
{
    return http_header(r, "anthropic-version") != NULL;
}

/* As `id`, which may be an alias. What has no bundle serves nobody, which their
 * form cannot say. */
static struct json *model_json(const struct model *m, const char *id)
{
    struct buf b;
    if (m->bundle == NULL) {
        return NULL;
    }
    struct json *o = json_object();
    json_add_str(o, "type", "model");
    json_add_str(o, "id", id);
    json_add_str(o, "display_name", id);
    buf_init(&b, 64);
    ollama_put_time(&b, m->created_ms);
    json_add_strn(o, "created_at", b.p, b.n);
    buf_fini(&b);
    json_add_str(o, "lifecycle", "active");
    json_add_int(o, "max_input_tokens", (int64_t)m->bundle->context);
    json_add_int(o, "max_tokens", (int64_t)m->bundle->context);
    return o;
}

/* One page has them all, so nobody asks for the ids around it. */
void anthropic_models(struct http_req *r)
{
    struct json *o = json_object();
    json_add_bool(o, "has_more", false);
    json_add_null(o, "first_id");
    json_add_null(o, "last_id");
    api_list_models(r, "data", o, model_json);
}

void anthropic_model(struct http_req *r, const char *name)
{
    struct model *m = NULL;
    if (api_model(r, name, &m) != 0) {
        return;
    }
    struct json *o = model_json(m, m->name);
    if (o == NULL) {
        api_fail(r, ERR_MODEL_FAILED, NULL, m->reason);
    } else {
        api_reply(r, 200, o);
    }
}
