/* fuzz_residency.c - durations of requests, and the kernel's pressure file. */
#include <stdlib.h>
#include <string.h>

#include "serve/engines/pressure.h"
#include "serve/engines/residency.h"

int LLVMFuzzerTestOneInput(const uint8_t *p, size_t n);

int LLVMFuzzerTestOneInput(const uint8_t *p, size_t n)
{
    char *text = malloc(n + 1); /* its end is where the sanitizer looks */
    struct err e = {0};
    int64_t ms = -7;
    uint64_t us = 7;
    must(text != NULL);
    if (n > 0) {
        memcpy(text, p, n);
    }
    text[n] = '\0';
    if (keep_alive_text(text, &ms, &e) == 0) {
        must(ms == KEEP_FOREVER || (ms >= 0 && ms <= 31536000000));
    } else {
        must(ms == -7 && e.code == ERR_INVALID && e.msg[0] != '\0');
    }
    if (pressure_total(text, &us) == 0) {
        must(strncmp(text, "some ", 5) == 0 && strstr(text, "total=") != NULL);
    } else {
        must(us == 7);
    }
    free(text);
    return 0;
}
