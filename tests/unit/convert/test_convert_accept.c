/* Gates whose failure a user takes, and what then still rejects a bundle. */
#include <string.h>

#include "../unit.h"
#include "convert/accept.h"
#include "convert/gates.h"

static void only_what_can_run(void **state)
{
    (void)state;
    static const struct {
        const char *list, *says; /* NULL: it is right */
    } cases[] = {
        {"quality",            NULL           },
        {"exactness,quality",  NULL           },
        {"",                   NULL           },
        {"quality,",           NULL           },
        {"structure",          "cannot run"   },
        {"quality,range",      "cannot run"   },
        {"residency",          "never rejects"},
        {"quality,,exactness", "no gate ''"   },
        {"quality exactness",  "no gate 'qual"},
        {"Quality",            "no gate 'Qual"},
    };
    char many[300];
    memset(many, 'q', sizeof(many) - 1);
    many[sizeof(many) - 1] = '\0';
    struct err e = {0};
    for (size_t i = 0; i < countof(cases); i++) {
        int rc = accept_check(cases[i].list, &e);
        assert_int_equal(rc, cases[i].says == NULL ? 0 : ERR_INVALID);
        assert_true(cases[i].says == NULL ||
                    strstr(e.msg, cases[i].says) != NULL);
    }
    assert_int_equal(accept_check(many, &e), ERR_INVALID);
}

static void a_whole_name_is_meant(void **state)
{
    (void)state;
    assert_true(accept_has("exactness,quality", "quality"));
    assert_true(accept_has("quality", "quality"));
    assert_false(accept_has("quality", "qualit"));
    assert_false(accept_has("qualit", "quality"));
    assert_false(accept_has("", "quality"));
    assert_false(accept_has(NULL, "quality"));
}

static void what_rejects(void **state)
{
    (void)state;
    struct convert_result r = {0};
    gates_init(&r);
    gate_set(&r, "structure", "passed", "%s", "");
    gate_set(&r, "residency", "warned", "%s", "");
    assert_null(gates_rejecting(&r, 0, NULL));
    gate_set(&r, "quality", "failed", "%s", "");
    gate_set(&r, "exactness", "failed", "%s", "");
    const struct convert_gate *first = gates_rejecting(&r, 0, NULL);
    assert_string_equal(first->name, "quality");
    assert_string_equal(
        gates_rejecting(&r, (size_t)(first - r.gates) + 1, NULL)->name,
        "exactness");
    assert_string_equal(gates_rejecting(&r, 0, "quality")->name, "exactness");
    assert_string_equal(gates_rejecting(&r, 0, "exactness")->name, "quality");
    assert_null(gates_rejecting(&r, 0, "exactness,quality"));
    assert_null(gates_rejecting(&r, r.n_gates, NULL));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(only_what_can_run),
        cmocka_unit_test(a_whole_name_is_meant),
        cmocka_unit_test(what_rejects),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
