/* tokenizer_charsmap.c - SentencePiece's table of characters: the bytes of a
 * double array (a unit has an offset, a label and whether a text ends there),
 * then the texts that stand in their places.
 */
#include <stdlib.h>
#include <string.h>

#include "base/utf8.h"
#include "model/tokenizer_norm.h"

static uint32_t load_u32(const uint8_t *p)
{
    return (uint32_t)p[0] | (uint32_t)p[1] << 8 | (uint32_t)p[2] << 16 |
           (uint32_t)p[3] << 24;
}

int charsmap_open(struct charsmap *m, const void *p, size_t n, struct err *e)
{
    const uint8_t *b = p;
    *m = (struct charsmap){.n_units = 0};
    if (n == 0) {
        return 0;
    }
    size_t trie = n >= 4 ? load_u32(b) : 0;
    bool fits = n >= 9 && trie > 0 && trie % 4 == 0 && trie <= n - 5;
    const char *texts = (const char *)b + (fits ? 4 + trie : 0);
    if (!fits || b[n - 1] != '\0' || !utf8_valid(texts, n - 4 - trie)) {
        return err_set(e, ERR_TOKENIZER,
                       "the table of characters is malformed: %zu bytes, %zu of "
                       "them its tree",
                       n, trie);
    }
    m->n_units = trie / 4;
    m->n_texts = n - 4 - trie;
    m->units = malloc(trie);
    m->texts = malloc(m->n_texts);
    if (m->units == NULL || m->texts == NULL) {
        charsmap_fini(m);
        return err_set(e, ERR_NOMEM, "the table of characters");
    }
    for (size_t i = 0; i < m->n_units; i++) {
        m->units[i] = load_u32(b + 4 + 4 * i);
    }
    memcpy(m->texts, texts, m->n_texts);
    return 0;
}

void charsmap_fini(struct charsmap *m)
{
    free(m->units);
    free(m->texts);
    *m = (struct charsmap){.n_units = 0};
}

static uint32_t offset_of(uint32_t unit)
{
    return (unit >> 10) << ((unit & (1u << 9)) >> 6);
}

/* Is p[at] where a character begins, or the end? */
static bool begins(const char *p, size_t at, size_t n)
{
    return at >= n || ((uint8_t)p[at] & 0xC0u) != 0x80u;
}

size_t charsmap_find(const struct charsmap *m, const char *p, size_t n,
                     bool longest, struct span *ret)
{
    size_t found = 0;
    if (m->n_units == 0) {
        return 0;
    }
    uint32_t at = offset_of(m->units[0]);
    for (size_t i = 0; i < n && p[i] != '\0'; i++) {
        at ^= (uint8_t)p[i];
        if (at >= m->n_units) {
            break;
        }
        uint32_t unit = m->units[at];
        if ((unit & (0x80000000u | 0xFFu)) != (uint8_t)p[i]) {
            break;
        }
        at ^= offset_of(unit);
        if (at >= m->n_units) {
            break;
        }
        uint32_t text = m->units[at] & 0x7FFFFFFFu;
        if ((unit >> 8 & 1) != 0 && text < m->n_texts &&
            begins(p, i + 1, n) && begins(m->texts, text, m->n_texts)) {
            *ret = (struct span){m->texts + text, strlen(m->texts + text)};
            found = i + 1;
            if (!longest) {
                break;
            }
        }
    }
    return found;
}
