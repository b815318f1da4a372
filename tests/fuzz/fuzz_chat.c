/* fuzz_chat.c - any bytes as a chat template; what stands behind a NUL is the
 * JSON of further fields of a message. */
#include <string.h>

#include "model/chat.h"

int LLVMFuzzerTestOneInput(const uint8_t *p, size_t n);

int LLVMFuzzerTestOneInput(const uint8_t *p, size_t n)
{
    struct chat_message talk[] = {
        {.role = "system", .content = "S", .content_n = 1},
        {.role = "user",                .content = " a\nb ",                 .content_n = 5},
        {.role = "assistant",  .content = NULL},
    };
    struct chat_request q = {.messages = talk,
                             .n_messages = 3,
                             .add_generation = true,
                             .bos = "<s>",
                             .eos = "</s>",
                             .now = 1736933400};
    struct err e = {0};
    struct buf b;
    struct chat_template *t = NULL;
    char *tmpl = malloc(n + 1);
    if (tmpl == NULL) {
        return 0;
    }
    memcpy(tmpl, p, n);
    tmpl[n] = '\0';
    size_t text = strlen(tmpl);
    if (text < n) {
        talk[2].fields = (struct span){tmpl + text + 1, n - text - 1};
        q.tools = talk[2].fields;
    }
    buf_init(&b, 1 << 16);
    if (chat_compile(tmpl, &t, &e) == 0 && chat_render(t, &q, &b, &e) != 0) {
        q.tools = (struct span){NULL, 0}; /* it may have been no array */
        (void)!chat_render(t, &q, &b, &e);
    }
    chat_free(t);
    buf_fini(&b);
    free(tmpl);
    return 0;
}
