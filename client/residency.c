#include "client/residency.h"

#include <time.h>

#include "proto/limits.h"
#include "proto/residency_text.h"

static const struct json *record(const struct json *j, const char *kind)
{
    const struct json *r = json_get(j, kind);
    return json_type(r) == JSON_OBJECT ? r : NULL;
}

void residency_show(const struct json *j)
{
    struct buf b;
    buf_init(&b, 2 * STORE_TEXT_MAX);
    residency_text(record(j, "measured"), record(j, "predicted"),
                   (int64_t)time(NULL) * 1000, &b);
    if (buf_ok(&b) && b.n > 0) {
        (void)fwrite(b.p, 1, b.n, stdout);
    }
    buf_fini(&b);
}
