/* job_quality.c - the report of the quality gate, on its way from the worker to
 * the store, and which of the gates a request accepts to fail. */
#include <string.h>

#include "base/log.h"
#include "convert/accept.h"
#include "serve/jobs/jobs_impl.h"

/* --- the report --- */

int job_quality_take(struct jobs *js, const struct json *report)
{
    static const char *const verdicts[] = {"passed", "failed", "not run"};
    const char *v = json_str(json_get(report, "verdict"));
    for (size_t i = 0; v != NULL && i < countof(verdicts); i++) {
        if (strcmp(v, verdicts[i]) == 0 && js->quality == NULL) {
            js->quality = json_copy(report);
            return 0;
        }
    }
    return ERR_FRAME;
}

static void on_stored(void *ctx, int status, const struct err *e)
{
    (void)ctx;
    if (status != 0) {
        log_warn("quality_not_stored", "error=%s: %s, continuing",
                 err_name(status), e != NULL ? e->msg : "");
    }
}

void job_quality_save(const struct jobs *js)
{
    struct store_quality r = {.created_ms = server_unix_ms()};
    struct buf b;
    if (js->quality == NULL) {
        return;
    }
    buf_init(&b, STORE_TEXT_MAX);
    json_write(js->quality, false, &b);
    (void)snprintf(r.fingerprint, sizeof(r.fingerprint), "%s", js->fingerprint);
    (void)snprintf(r.verdict, sizeof(r.verdict), "%s",
                   json_str(json_get(js->quality, "verdict")));
    r.report = b.p;
    int rc = buf_ok(&b) ? store_quality_put(js->srv->store, &r, on_stored, NULL)
                        : ERR_TOO_BIG;
    if (rc != 0) {
        on_stored(NULL, rc, NULL);
    }
    buf_fini(&b);
}

/* --- acceptance --- */

int job_accept_check(const struct json *list, struct err *e)
{
    if (list == NULL || json_type(list) == JSON_NULL) {
        return 0;
    }
    if (json_type(list) != JSON_ARRAY) {
        return err_set(e, ERR_INVALID, "accept: a list of gates");
    }
    for (const struct json *g = json_first(list); g != NULL; g = json_next(g)) {
        if (json_str(g) == NULL) {
            return err_set(e, ERR_INVALID, "accept: a list of gates");
        }
        RETERR(accept_gate(json_str(g), e));
    }
    return 0;
}

bool job_accepts(const struct json *spec, const char *gate)
{
    const struct json *list = json_get(spec, "accept");
    for (const struct json *g = json_first(list); g != NULL; g = json_next(g)) {
        if (json_str(g) != NULL && strcmp(json_str(g), gate) == 0) {
            return true;
        }
    }
    return false;
}
