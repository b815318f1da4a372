/* fuzz_chat.c - any bytes as a chat template of a known family. */
#include <string.h>

#include "model/chat.h"

int LLVMFuzzerTestOneInput(const uint8_t *p, size_t n);

int LLVMFuzzerTestOneInput(const uint8_t *p, size_t n)
{
    static const struct chat_message talk[] = {
        {"system",    "S",      1},
        {"user",      " a\nb ", 5},
        {"assistant", "",       0}
    };
    struct err e = {0};
    struct buf b;
    char *tmpl = malloc(n + 32);
    if (tmpl == NULL) {
        return 0;
    }
    memcpy(tmpl, p, n);
    memcpy(tmpl + n, "<|im_start|>", 13); /* the mark of a family */
    enum chat_family f = CHAT_NONE;
    buf_init(&b, 1 << 16);
    if (chat_detect(tmpl, &f, &e) == 0) {
        (void)!chat_render(f, tmpl, "<s>", "</s>", talk, 3, true, &b, &e);
    }
    buf_fini(&b);
    free(tmpl);
    return 0;
}
