/* text.c - what is measured with: for the range, and for the quality. */
#include <string.h>

#include "convert/quality/quality.h"
#include "model/tokenizer.h"

/* English, code, numbers, lists, other languages and scripts: what a user may
 * say. The range is measured with its beginning; a bundle's bytes depend on
 * that, so text is added at the end only. */
const char quality_text[] =
    "The quick brown fox jumps over the lazy dog. Once upon a time, in 1984, "
    "there was a little girl named Lily who loved to play outside. She said: "
    "\"What is the capital of France?\" int main(void) { return x + 42; } "
    "Ein sch\xc3\xb6ner Tag, n'est-ce pas? 3.14159 * 2 = 6.28318\n\nThe answer "
    "is that neural engines multiply matrices quickly, because every value is "
    "small and every row is independent of the others."
    "\n\n# How to make tea\n\n1. Boil fresh water, about 250 ml a cup.\n"
    "2. Warm the pot, and pour that water away.\n3. Add one spoon of leaves "
    "for each person, and wait four minutes.\n\n- Milk: if you like.\n- Sugar: "
    "none, says my grandmother; two spoons, says my brother.\n\n"
    "def fibonacci(n):\n    a, b = 0, 1\n    for _ in range(n):\n        yield "
    "a\n        a, b = b, a + b\n\nprint(list(fibonacci(10)))  # [0, 1, 1, 2, "
    "3, 5, 8, 13, 21, 34]\n\n"
    "La pluie tombait depuis trois jours sur la ville, et personne ne se "
    "souvenait d'avoir vu le soleil. El tren sale a las ocho y media de la "
    "ma\xc3\xb1" "ana. \xe5\x8c\x97\xe4\xba\xac\xe6\x98\xaf\xe4\xb8\xad\xe5\x9b"
    "\xbd\xe7\x9a\x84\xe9\xa6\x96\xe9\x83\xbd\xe3\x80\x82 "
    "\xd0\x9c\xd0\xbe\xd1\x81\xd0\xba\xd0\xb2\xd0\xb0 \xe2\x80\x94 "
    "\xd1\x81\xd1\x82\xd0\xbe\xd0\xbb\xd0\xb8\xd1\x86\xd0\xb0.\n\n"
    "User: Why is the sky blue, and why is the evening sky red?\nAssistant: "
    "Sunlight is scattered by the molecules of the air, and short waves are "
    "scattered more than long ones. In the evening the light has come a longer "
    "way through the air, so most of the blue has been lost on its way, and "
    "what is left looks red. The effect was described by Lord Rayleigh in the "
    "nineteenth century.\nUser: Thank you! Could you give me a table of three "
    "planets with their distances from the Sun?\nAssistant: | Planet | Million "
    "km |\n|---|---|\n| Mercury | 57.9 |\n| Venus | 108.2 |\n| Earth | 149.6 "
    "|\n\nSELECT name, COUNT(*) FROM orders WHERE total > 100 GROUP BY name "
    "ORDER BY 2 DESC LIMIT 5;\n\nHe closed the book, looked at the fire for a "
    "long time, and said nothing more that night.";

uint32_t quality_tokens(const struct gguf *g, const char *vocab_file,
                        uint32_t vocab, int32_t *out, uint32_t max,
                        struct gguf_notes *notes)
{
    struct tokenizer *t = NULL;
    struct err ignored = {0};
    int32_t *ids = NULL;
    size_t n_ids = 0;
    uint32_t n = 0;
    int rc = tokenizer_open(vocab_file, &t, &ignored);
    if (rc < 0 && gguf_find(g, "tokenizer.ggml.tokens") != NULL) {
        gguf_note(notes, "text cannot be tokenised: %s: %s", err_name(rc),
                  ignored.msg);
    }
    if (rc == 0) {
        int32_t bos = tokenizer_bos(t);
        if (bos != TOKEN_NONE && (uint32_t)bos < vocab) {
            out[n++] = bos;
        }
        if (tokenizer_encode(t, quality_text, strlen(quality_text), false, &ids,
                             &n_ids, &ignored) < 0) {
            n_ids = 0;
        }
        for (size_t i = 0; i < n_ids && n < max; i++) {
            if (ids[i] >= 0 && (uint32_t)ids[i] < vocab) {
                out[n++] = ids[i];
            }
        }
        free(ids);
        tokenizer_close(t);
    }
    if (n >= 8) {
        return n;
    }
    uint32_t bos = 0;
    n = 0;
    if (gguf_get_u32(g, "tokenizer.ggml.bos_token_id", &bos) && bos < vocab) {
        out[n++] = (int32_t)bos;
    }
    for (uint32_t i = 0; n < max; i++) {
        out[n++] = (int32_t)((i * 7919u + 17u) % vocab);
    }
    return n;
}
