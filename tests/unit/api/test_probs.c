/* test_probs.c - log-probabilities that were given back: an answer is dropped
 * when all answers together take too much (NOTES 48), also when some of its
 * choices have ended, and what was held of them is gone when it is written. */
#include <string.h>

#include "../unit.h"
#include "api/call_impl.h"
#include "api/openai.h"

/* A choice as whole_release finds it: entries that are sure, and one that is
 * not. */
static void hold(struct probs *p)
{
    static const char sure[] = ",{\"token\":\"a\",\"logprob\":-0.5},"
                               "{\"token\":\"b\",\"logprob\":-0.25}";
    probs_init(p);
    for (size_t i = 0; i < PROBS_LISTS; i++) {
        buf_puts(&p->list[i].text, sure);
    }
    probs_confirm(p);
    buf_puts(&p->list[0].text, ",{}");
}

static void check_empty(struct probs *p, bool chat)
{
    struct call c = {.d = chat ? &openai_chat : &openai_completion};
    struct buf b;
    c.p.logprobs = true;
    buf_init(&b, KIB(4));
    probs_write(&b, &c, p);
    assert_true(buf_ok(&b));
    assert_string_equal(b.p, chat ? "[]"
                                  : "{\"tokens\":[],\"token_logprobs\":[],"
                                    "\"top_logprobs\":[],\"text_offset\":[]}");
    buf_fini(&b);
}

/* Ended before, dropped at a stop string afterwards, or confirmed. */
static void test_given_back(void **state)
{
    (void)state;
    for (int chat = 0; chat < 2; chat++) {
        for (int end = 0; end < 3; end++) {
            struct probs p;
            hold(&p);
            assert_true(probs_bytes(&p) > 64);
            probs_fini(&p);
            assert_int_equal(probs_bytes(&p), 0);
            if (end == 1) {
                probs_drop(&p);
            } else if (end == 2) {
                probs_confirm(&p);
            }
            assert_int_equal(probs_bytes(&p), 0);
            check_empty(&p, chat != 0);
            probs_fini(&p);
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_given_back),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
