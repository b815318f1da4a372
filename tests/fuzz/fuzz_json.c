/* Request JSON: whatever passes the validator is written and read back the
 * same. */
#include <string.h>

#include "proto/json.h"
#include "proto/limits.h"

int LLVMFuzzerTestOneInput(const uint8_t *p, size_t n);
int LLVMFuzzerTestOneInput(const uint8_t *p, size_t n)
{
    struct json *j = NULL;
    struct json *k = NULL;
    if (json_parse((const char *)p, n, &j, NULL) < 0) {
        return 0;
    }
    struct buf a;
    struct buf b;
    buf_init(&a, HTTP_CHAT_BODY_MAX * 6);
    buf_init(&b, HTTP_CHAT_BODY_MAX * 6);
    json_write(j, false, &a);
    must(buf_ok(&a));
    must(json_parse(a.p, a.n, &k, NULL) == 0);
    json_write(k, false, &b);
    must(a.n == b.n && memcmp(a.p, b.p, a.n) == 0);
    buf_fini(&a);
    buf_fini(&b);
    json_free(j);
    json_free(k);
    return 0;
}
