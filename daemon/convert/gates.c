#include "convert/gates.h"

#include <assert.h>
#include <stdarg.h>
#include <string.h>

#include "convert/accept.h"
#include "mil/mil.h"

int gate_structure(const char *dir, const char *package,
                   struct mil_program **ret, struct err *e)
{
    char path[2048];
    struct mil_program *p = NULL;
    if (!file_join(path, sizeof(path), dir, package)) {
        return err_set(e, ERR_STRUCTURE, "%s: the path is too long", package);
    }
    struct err why = {0};
    int rc = 0;
    CHECK(mil_read(path, &p, &why));
    CHECK(mil_validate(p, &why));
    *ret = p;
    p = NULL;
out:
    mil_free(p);
    return rc == 0 ? 0
                   : err_set(e, ERR_STRUCTURE, "%s: %s: %s", package,
                             err_name(rc), why.msg);
}

int gate_residency(const struct mil_program *p, const char *package,
                   const char *kind, const struct convert_options *o,
                   struct predict_total *total, struct err *e)
{
    struct prediction v = {0};
    int rc = 0;
    predict_program(p, 0, &total->limits, &v);
    predict_total_add(total, package, &v);
    for (size_t i = 0; i < v.n && o->report != NULL && rc == 0; i++) {
        rc = o->report(o->ctx, predict_function_json(&v, i, package, kind), e);
    }
    predict_free(&v);
    return rc;
}

int gate_residency_end(struct convert_result *r,
                       const struct convert_options *o,
                       struct predict_total *total, struct err *e)
{
    char line[ERR_MSG_MAX];
    const char *verdict = predict_judge(total);
    predict_line(total, line, sizeof(line));
    gate_set(r, "residency", verdict, "%s", line);
    return o->report != NULL ? o->report(o->ctx, predict_summary_json(total), e)
                             : 0;
}

int gate_vocabulary(const struct gguf *g, struct gguf_notes *notes,
                    struct err *e)
{
    return gguf_find(g, "tokenizer.ggml.tokens") != NULL
               ? gguf_check_vocab(g, notes, e)
               : 0;
}

void gates_init(struct convert_result *r)
{
    static const char *const names[] = {"structure", "range", "residency",
                                        "quality", "exactness"};
    static_assert(countof(names) == countof(r->gates), "a row a gate");
    r->n_gates = countof(names);
    for (size_t i = 0; i < countof(names); i++) {
        r->gates[i] =
            (struct convert_gate){.name = names[i], .verdict = "not run"};
    }
}

void gate_set(struct convert_result *r, const char *name, const char *verdict,
              const char *fmt, ...)
{
    for (size_t i = 0; i < r->n_gates; i++) {
        struct convert_gate *g = &r->gates[i];
        if (strcmp(g->name, name) != 0) {
            continue;
        }
        g->verdict = verdict;
        va_list ap;
        va_start(ap, fmt);
        (void)vsnprintf(g->detail, sizeof(g->detail), fmt, ap);
        va_end(ap);
        return;
    }
    must(false);
}

const struct convert_gate *gates_rejecting(const struct convert_result *r,
                                           size_t from, const char *accept)
{
    for (size_t i = from; i < r->n_gates; i++) {
        const struct convert_gate *g = &r->gates[i];
        if (strcmp(g->verdict, "failed") == 0 && !accept_has(accept, g->name)) {
            return g;
        }
    }
    return NULL;
}
