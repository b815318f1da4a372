/* kind.c - the forms, their names and their sizes. */
#include <string.h>

#include "base/parse.h"
#include "convert/quant.h"

static const struct {
    const char *name;
    unsigned bits;
    unsigned entries;
    uint32_t group; /* of a spec that names none */
    double ns;      /* quant_encode_ns */
} kinds[] = {
    [QUANT_INT8] = {"int8",        8,  0,  1,  0.2 },
    [QUANT_FP16] = {"fp16",        16, 0,  1,  0.05},
    [QUANT_INT8_TENSOR] = {"int8-tensor", 8,  0,  1,  0.6 },
    [QUANT_INT4] = {"int4",        4,  0,  1,  1.0 },
    [QUANT_LUT4] = {"lut4",        4,  16, 1,  40  },
    [QUANT_LUT6] = {"lut6",        6,  64, 16, 18  },
};

/* GGUF's names for blocks along a row: q4_0, q4_k_m, iq4_xs, mxfp4 ... */
static bool block_name(const char *s)
{
    static const char *const heads[] = {"q", "Q", "iq", "IQ", "mxfp", "MXFP"};
    for (size_t i = 0; i < countof(heads); i++) {
        size_t n = strlen(heads[i]);
        if (strncmp(s, heads[i], n) == 0 && s[n] >= '1' && s[n] <= '8') {
            return true;
        }
    }
    return false;
}

int quant_parse(const char *text, struct quant_spec *ret, struct err *e)
{
    text = text != NULL ? text : "int8";
    size_t n = strcspn(text, ":");
    for (size_t i = 0; i < countof(kinds); i++) {
        if (strlen(kinds[i].name) != n ||
            strncmp(text, kinds[i].name, n) != 0) {
            continue;
        }
        uint64_t group = kinds[i].group;
        if (text[n] == ':' &&
            (kinds[i].entries == 0 ||
             !parse_u64(text + n + 1, QUANT_GROUP_MAX, &group) || group == 0)) {
            return err_set(e, ERR_INVALID,
                           "quant '%.32s': after ':' stands how many rows "
                           "share a palette, 1 to %u, of lut4 or lut6",
                           text, QUANT_GROUP_MAX);
        }
        *ret = (struct quant_spec){(enum quant)i, (uint32_t)group};
        return 0;
    }
    if (block_name(text)) {
        return err_set(e, ERR_UNSUPPORTED,
                       "quant '%.32s': scales in blocks along a row put every "
                       "product on the CPU (the Neural Engine takes one scale "
                       "or palette for whole rows); lut4 is as good at 4 bits",
                       text);
    }
    return err_set(e, ERR_INVALID,
                   "quant '%.32s': int8, fp16, int8-tensor, int4, lut4 or lut6",
                   text);
}

void quant_text(struct quant_spec s, char out[QUANT_TEXT_MAX])
{
    if (s.group == kinds[s.kind].group) {
        (void)snprintf(out, QUANT_TEXT_MAX, "%s", kinds[s.kind].name);
    } else {
        (void)snprintf(out, QUANT_TEXT_MAX, "%s:%u", kinds[s.kind].name,
                       (unsigned)s.group);
    }
}

unsigned quant_bits(enum quant k)
{
    return kinds[k].bits;
}

unsigned quant_entries(enum quant k)
{
    return kinds[k].entries;
}

double quant_encode_ns(enum quant k)
{
    return kinds[k].ns;
}

struct quant_spec quant_fit(struct quant_spec s, uint64_t rows)
{
    while (s.group > 1 && rows % s.group != 0) {
        s.group--;
    }
    return s;
}

uint64_t quant_params(struct quant_spec s, uint64_t rows)
{
    switch (s.kind) {
    case QUANT_FP16:
        return 0;
    case QUANT_INT8_TENSOR:
        return 1;
    case QUANT_INT8:
    case QUANT_INT4:
        return rows;
    case QUANT_LUT4:
    case QUANT_LUT6:
        break;
    }
    must(rows % s.group == 0);
    return rows / s.group * kinds[s.kind].entries;
}

uint64_t quant_bytes(struct quant_spec s, uint64_t rows, uint64_t cols)
{
    s = quant_fit(s, rows);
    return (rows * cols * kinds[s.kind].bits + 7) / 8 +
           quant_params(s, rows) * sizeof(uint16_t);
}

int quant_check(struct quant_spec s, uint64_t cols, struct err *e)
{
    uint64_t unit = kinds[s.kind].bits == 6 ? 4 : 8 / kinds[s.kind].bits;
    if (unit > 1 && cols % unit != 0) {
        return err_set(e, ERR_UNSUPPORTED,
                       "%s needs rows whose length is a multiple of %llu, not "
                       "%llu; int8 takes any",
                       kinds[s.kind].name, (unsigned long long)unit,
                       (unsigned long long)cols);
    }
    return 0;
}
