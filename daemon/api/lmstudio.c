/* lmstudio.c - /api/v0 of LM Studio: its list of models, which says what is
 * loaded and how long a context may be. Its completions are OpenAI's. */
#include <string.h>

#include "api/api.h"
#include "serve/engines/models.h"

/* As `id`, which may be an alias. */
static struct json *model_json(const struct model *m, const char *id)
{
    const struct bundle *b = m->bundle;
    bool up = m->state == MODEL_LOADED;
    struct json *o = json_object();
    json_add_str(o, "id", id);
    json_add_str(o, "object", "model");
    json_add_str(o, "type", "llm");
    json_add_str(o, "publisher", "aned");
    json_add_str(o, "arch", b->architecture);
    json_add_str(o, "compatibility_type", "mlpackage");
    json_add_str(o, "quantization", b->quant);
    json_add_str(o, "state", up ? "loaded" : "not-loaded");
    json_add_int(o, "max_context_length", (int64_t)b->context);
    if (up) {
        json_add_int(o, "loaded_context_length",
                     (int64_t)runner_ready(m->runner)->context);
    }
    return o;
}

static struct json *listed(const struct model *m, const char *name)
{
    return m->bundle != NULL ? model_json(m, name) : NULL;
}

void api_lms_models(struct http_req *r, const struct http_args *a)
{
    (void)a;
    struct json *o = json_object();
    json_add_str(o, "object", "list");
    api_list_models(r, "data", o, listed);
}

void api_lms_model(struct http_req *r, const struct http_args *a)
{
    struct model *m = NULL;
    if (api_model(r, a->v[0], &m) != 0) {
        return;
    }
    if (m->bundle == NULL) {
        api_fail(r, ERR_MODEL_FAILED, NULL, m->reason);
    } else {
        api_reply(r, 200, model_json(m, m->name));
    }
}
