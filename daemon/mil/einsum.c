/* einsum.c - equations of einsum: "nchw,nwhu->nchu". */
#include <ctype.h>
#include <string.h>

#include "mil/mil.h"

/* Labels of one term up to something that is no letter, numbered by names. A
 * label stands once in a term. */
static const char *term(const char *s, char *names, int *n_labels, int *rank,
                        int *labels)
{
    for (; isalpha((unsigned char)*s); s++) {
        const char *at = memchr(names, *s, (size_t)*n_labels);
        int label = at != NULL ? (int)(at - names) : *n_labels;
        if (*rank == (int)MIL_RANK_MAX || label == MIL_EINSUM_LABELS) {
            return NULL;
        }
        for (int k = 0; k < *rank; k++) {
            if (labels[k] == label) {
                return NULL;
            }
        }
        if (at == NULL) {
            names[(*n_labels)++] = *s;
        }
        labels[(*rank)++] = label;
    }
    return s;
}

bool mil_einsum_parse(const char *equation, struct mil_einsum *ret)
{
    struct mil_einsum p;
    char names[MIL_EINSUM_LABELS];
    memset(&p, 0, sizeof(p));
    const char *s = term(equation, names, &p.n_labels, &p.rank[0], p.in[0]);
    if (s == NULL || *s != ',') {
        return false;
    }
    s = term(s + 1, names, &p.n_labels, &p.rank[1], p.in[1]);
    if (s == NULL || strncmp(s, "->", 2) != 0) {
        return false;
    }
    int known = p.n_labels;
    s = term(s + 2, names, &p.n_labels, &p.out_rank, p.out);
    if (s == NULL || *s != '\0' || p.n_labels != known) {
        return false;
    }
    *ret = p;
    return true;
}
