/* fuzz_import.c - any bytes as an ane-book manifest. What is read holds what
 * import_manifest_read promises: lists without gaps, paths that stay below. */
#include <string.h>

#include "base/file.h"
#include "convert/import/manifest.h"

int LLVMFuzzerTestOneInput(const uint8_t *p, size_t n);

static void check_list(const struct import_part *v, size_t n, uint32_t end)
{
    uint32_t at = 0;
    for (size_t i = 0; i < n; i++) {
        must(v[i].first == at && v[i].last > at);
        must(file_path_ok(v[i].path) &&
             strstr(v[i].path, ".mlpackage") != NULL);
        at = v[i].last;
    }
    must(n > 0 && at == end);
}

int LLVMFuzzerTestOneInput(const uint8_t *p, size_t n)
{
    static const char *const sets[] = {"d_ff=160", "rms_norm_eps=1e-5"};
    for (size_t n_sets = 0; n_sets <= 2; n_sets += 2) {
        struct import_manifest m;
        struct err e = {0};
        int rc = import_manifest_read((const char *)p, n, sets, n_sets, &m, &e);
        if (rc == 0) {
            check_list(m.parts, m.n_parts, m.n_layers);
            check_list(m.heads, m.n_heads_parts, m.vocab);
            must(file_path_ok(m.embed) && *m.family != '\0');
            must(m.rope_dim % 2 == 0 && m.rope_dim <= m.d_head && m.d_ff > 0);
        } else {
            must(e.code == rc && e.msg[0] != '\0');
        }
        import_manifest_fini(&m);
    }
    return 0;
}
