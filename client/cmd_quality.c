/* cmd_quality.c - how far a model is from the one it was made of. */
#include "client/model_call.h"
#include "proto/limits.h"
#include "proto/quality_text.h"

static void show(const struct json *j)
{
    const struct json *r = json_get(j, "report");
    struct buf b;
    if (json_type(r) != JSON_OBJECT) {
        printf("not run: no report of this model is kept; `aned quality BUNDLE "
               "SOURCE` measures one\n");
        return;
    }
    buf_init(&b, STORE_TEXT_MAX);
    quality_report_text(r, &b);
    if (buf_ok(&b) && b.n > 0) {
        (void)fwrite(b.p, 1, b.n, stdout);
    }
    buf_fini(&b);
}

static int run(struct client *c, const struct args *a)
{
    struct json *j = NULL;
    int code = model_call(c, "GET", a->pos[0], "/quality", &j);
    if (code == EXIT_SUCCESS && !c->json) {
        show(j);
    }
    json_free(j);
    return code;
}

const struct command cmd_quality = {
    .name = "quality",
    .args = "NAME",
    .summary = "how far a model is from its source",
    .about =
        "What the conversion measured: the model in fp32 beside its packages,\n"
        "run with every result rounded to fp16. Five rungs, the first that\n"
        "fails says where to look; then the logits, each package and layer:\n"
        "likeness (cosine), KL in nats, the share of positions with the same\n"
        "likeliest token, of the five likeliest tokens, and |differences|.\n",
    .examples = "  anectl quality gemma\n"
                "  anectl quality gemma --json\n",
    .pos_min = 1,
    .pos_max = 1,
    .takes = "model",
    .run = run,
};
