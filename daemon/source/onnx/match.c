/* match.c - small questions about a graph. */
#include "source/onnx/match.h"

#include <stdarg.h>
#include <string.h>

bool onnx_is(const struct onnx_node *n, const char *op)
{
    return n != NULL && strcmp(n->op, op) == 0 &&
           (n->domain[0] == '\0' || strcmp(n->domain, "com.microsoft") == 0);
}

struct onnx_node *onnx_made_by(const struct onnx_value *v, const char *op)
{
    return v != NULL && onnx_is(v->node, op) ? v->node : NULL;
}

int onnx_not(const struct onnx_node *n, struct err *e, const char *fmt, ...)
{
    char text[256];
    va_list ap;
    va_start(ap, fmt);
    (void)vsnprintf(text, sizeof(text), fmt, ap);
    va_end(ap);
    return n == NULL ? err_set(e, ERR_ONNX_GRAPH, "%s", text)
                     : err_set(e, ERR_ONNX_GRAPH, "node '%.100s' (%.40s): %s",
                               n->name[0] != '\0' || n->n_out == 0 ||
                                       n->out[0] == NULL
                                   ? n->name
                                   : n->out[0]->name,
                               n->op, text);
}

/* Is `name` one of the words of `list`? */
static bool among(const char *list, const char *name)
{
    size_t n = strlen(name);
    for (const char *at = list; *at != '\0';) {
        size_t word = strcspn(at, " ");
        if (word == n && memcmp(at, name, n) == 0) {
            return true;
        }
        at += word;
        at += *at == ' ';
    }
    return false;
}

int onnx_take(struct onnx_node *n, const char *attrs, size_t n_in,
              struct err *e)
{
    for (size_t i = 0; i < n->n_attrs; i++) {
        if (!among(attrs, n->attrs[i].name)) {
            return onnx_not(n, e, "attribute '%.40s' is not understood",
                            n->attrs[i].name);
        }
    }
    for (size_t i = n_in; i < n->n_in; i++) {
        if (n->in[i] != NULL) {
            return onnx_not(n, e, "input %zu '%.80s' is not understood", i,
                            n->in[i]->name);
        }
    }
    n->seen = true;
    return 0;
}

const struct onnx_attr *onnx_attr(const struct onnx_node *n, const char *name)
{
    for (size_t i = 0; i < n->n_attrs; i++) {
        if (strcmp(n->attrs[i].name, name) == 0) {
            return &n->attrs[i];
        }
    }
    return NULL;
}

int64_t onnx_attr_int(const struct onnx_node *n, const char *name,
                      int64_t absent)
{
    const struct onnx_attr *a = onnx_attr(n, name);
    if (a == NULL) {
        return absent;
    }
    return a->kind == ONNX_ATTR_INT ? a->i : INT64_MIN;
}

float onnx_attr_float(const struct onnx_node *n, const char *name, float absent)
{
    const struct onnx_attr *a = onnx_attr(n, name);
    if (a == NULL) {
        return absent;
    }
    return a->kind == ONNX_ATTR_FLOAT ? a->f : -1e30f;
}

bool onnx_attr_is(const struct onnx_node *n, const char *name,
                  const char *text, bool absent)
{
    const struct onnx_attr *a = onnx_attr(n, name);
    if (a == NULL) {
        return absent;
    }
    return a->kind == ONNX_ATTR_STRING && strcmp(a->s, text) == 0;
}

struct onnx_value *onnx_in(const struct onnx_node *n, size_t i)
{
    return i < n->n_in ? n->in[i] : NULL;
}

size_t onnx_const_ints(const struct onnx_value *v, int64_t *out, size_t max)
{
    const struct onnx_tensor *t = v != NULL ? v->init : NULL;
    if (t == NULL || t->elems == 0 || t->elems > max ||
        (t->type != ONNX_INT64 && t->type != ONNX_INT32)) {
        return 0;
    }
    for (size_t i = 0; i < t->elems; i++) {
        int32_t small = 0;
        if (t->type == ONNX_INT64) {
            memcpy(&out[i], t->data + i * 8, 8);
        } else {
            memcpy(&small, t->data + i * 4, 4);
            out[i] = small;
        }
    }
    return (size_t)t->elems;
}

bool onnx_const_number(const struct onnx_value *v, float *ret)
{
    const struct onnx_tensor *t = v != NULL ? v->init : NULL;
    if (t == NULL || t->elems != 1) {
        return false;
    }
    const struct onnx_grid g = {t->data, t->bytes, t->type, 0, 0};
    *ret = onnx_number(&g, 0);
    return true;
}

int onnx_unround(struct onnx_value *v, struct onnx_value **ret, struct err *e)
{
    for (unsigned i = 0; i < 4 && onnx_made_by(v, "Cast") != NULL; i++) {
        int64_t to = onnx_attr_int(v->node, "to", 0);
        if (to != ONNX_FLOAT && to != ONNX_FLOAT16 && to != ONNX_BFLOAT16) {
            break;
        }
        RETERR(onnx_take(v->node, "to saturate", 1, e));
        v = onnx_in(v->node, 0);
    }
    *ret = v;
    return 0;
}
