/* type.c - dtypes, tensor types, names, opsets. Tables and arithmetic only. */
#include <string.h>

#include "base/num.h"
#include "mil/impl.h"

static const struct {
    enum mil_dtype t;
    unsigned bits;
    const char *name;
} dtypes[] = {
    {MIL_BOOL,   8,  "bool"  },
    {MIL_STRING, 0,  "string"},
    {MIL_FP16,   16, "fp16"  },
    {MIL_FP32,   32, "fp32"  },
    {MIL_FP64,   64, "fp64"  },
    {MIL_BF16,   16, "bf16"  },
    {MIL_INT8,   8,  "int8"  },
    {MIL_INT16,  16, "int16" },
    {MIL_INT32,  32, "int32" },
    {MIL_INT64,  64, "int64" },
    {MIL_INT4,   4,  "int4"  },
    {MIL_UINT8,  8,  "uint8" },
    {MIL_UINT16, 16, "uint16"},
    {MIL_UINT32, 32, "uint32"},
    {MIL_UINT64, 64, "uint64"},
    {MIL_UINT4,  4,  "uint4" },
    {MIL_UINT2,  2,  "uint2" },
    {MIL_UINT1,  1,  "uint1" },
    {MIL_UINT6,  6,  "uint6" },
    {MIL_UINT3,  3,  "uint3" },
};

unsigned mil_dtype_bits(enum mil_dtype t)
{
    for (size_t i = 0; i < countof(dtypes); i++) {
        if (dtypes[i].t == t) {
            return dtypes[i].bits;
        }
    }
    return 0;
}

bool mil_dtype_known(int32_t number)
{
    for (size_t i = 0; i < countof(dtypes); i++) {
        if ((int32_t)dtypes[i].t == number) {
            return true;
        }
    }
    return false;
}

const char *mil_dtype_name(enum mil_dtype t)
{
    for (size_t i = 0; i < countof(dtypes); i++) {
        if (dtypes[i].t == t) {
            return dtypes[i].name;
        }
    }
    return "none";
}

enum mil_dtype mil_dtype_parse(const char *s)
{
    for (size_t i = 0; i < countof(dtypes); i++) {
        if (s != NULL && strcmp(dtypes[i].name, s) == 0) {
            return dtypes[i].t;
        }
    }
    return MIL_NONE;
}

bool mil_dtype_bytes(enum mil_dtype t, uint64_t n, uint64_t *ret)
{
    uint64_t bits = 0;
    unsigned width = mil_dtype_bits(t);
    if (width == 0 || !num_mul(n, width, &bits) || !num_add(bits, 7, &bits)) {
        return false;
    }
    *ret = bits / 8;
    return true;
}

bool mil_type_count(const struct mil_type *t, uint64_t *ret)
{
    uint64_t n = 1;
    for (int i = 0; i < t->rank; i++) {
        if (t->dims[i] < 0 || !num_mul(n, (uint64_t)t->dims[i], &n)) {
            return false;
        }
    }
    *ret = n;
    return true;
}

bool mil_type_equal(const struct mil_type *a, const struct mil_type *b)
{
    if (a->dtype != b->dtype || a->state != b->state || a->rank != b->rank) {
        return false;
    }
    for (int i = 0; i < a->rank; i++) {
        if (a->dims[i] != b->dims[i]) {
            return false;
        }
    }
    return true;
}

void mil_type_print(const struct mil_type *t, char *out, size_t size)
{
    char dims[MIL_RANK_MAX * 24] = "";
    size_t at = 0;
    for (int i = 0; i < t->rank; i++) {
        int n = 0;
        const char *sep = i > 0 ? "," : "";
        if (t->dims[i] < 0) {
            n = snprintf(dims + at, sizeof(dims) - at, "%s?", sep);
        } else {
            n = snprintf(dims + at, sizeof(dims) - at, "%s%lld", sep,
                         (long long)t->dims[i]);
        }
        at += (size_t)n; /* 24 bytes a dimension always suffice */
    }
    (void)snprintf(out, size, "%s%s%s%s%s%s", t->state ? "state<" : "",
                   mil_dtype_name(t->dtype), t->rank > 0 ? "[" : "", dims,
                   t->rank > 0 ? "]" : "", t->state ? ">" : "");
}

const char *mil_opset(int spec_version)
{
    static const char *const names[] = {"CoreML5", "CoreML6", "CoreML7",
                                        "CoreML8", "CoreML9"};
    if (spec_version < 6 || spec_version > 10) {
        return NULL;
    }
    return names[spec_version - 6];
}

static bool is_alpha(char c)
{
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_';
}

bool mil_name_ok(const char *s)
{
    if (!is_alpha(s[0])) {
        return false;
    }
    for (const char *p = s; *p != '\0'; p++) {
        if (!is_alpha(*p) && !(*p >= '0' && *p <= '9') && *p != '@') {
            return false;
        }
    }
    return true;
}

bool mil_name_reserved(const char *s)
{
    static const char *const words[] = {
        "any",   "bool",  "program", "func",   "tensor", "list",
        "dict",  "tuple", "true",    "false",  "string", "bf16",
        "fp16",  "fp32",  "fp64",    "int8",   "int16",  "int32",
        "int64", "uint8", "uint16",  "uint32", "uint64", "state",
    };
    for (size_t i = 0; i < countof(words); i++) {
        if (strcmp(words[i], s) == 0) {
            return true;
        }
    }
    return false;
}
