/* The page of `anectl report`: nothing that a model's files or a daemon say
 * becomes a tag or an attribute, and what is missing or odd makes no page fail.
 */
#include "../unit.h"
#include "client/report.h"

#define HOSTILE \
    "</style><script>alert(1)</script>\\\"'><img src=x>&amp;\\u001b[31m"

static struct json *parsed(const char *text)
{
    struct json *j = NULL;
    struct err e = {0};
    unit_ok(json_parse(text, strlen(text), &j, &e), &e);
    return j;
}

static char *page(const char *model, const char *quality, const char *residency)
{
    struct json *of[3] = {parsed(model), parsed(quality), parsed(residency)};
    const struct report r = {of[0], of[1], of[2], "today"};
    struct buf b;
    buf_init(&b, REPORT_BYTES_MAX);
    report_html(&r, &b);
    assert_true(buf_ok(&b));
    char *text = strdup(b.p);
    must(text != NULL);
    assert_true(strstr(text, "</footer></body></html>") != NULL);
    buf_fini(&b);
    for (size_t i = 0; i < countof(of); i++) {
        json_free(of[i]);
    }
    return text;
}

static size_t count(const char *text, const char *what)
{
    size_t n = 0;
    for (const char *p = strstr(text, what); p != NULL;
         p = strstr(p + 1, what)) {
        n++;
    }
    return n;
}

static void texts_stay_texts(void **state)
{
    (void)state;
    char *p = page(
        "{\"name\":\"" HOSTILE "\",\"state\":\"" HOSTILE
        "\",\"reason\":\"" HOSTILE "\",\"quant\":\"" HOSTILE
        "\",\"architecture\":\"" HOSTILE
        "\",\"bytes\":1000,\"source\":{\"name\":\"" HOSTILE "\"},\"accepted\":"
        "[\"" HOSTILE "\"],\"fingerprint\":\"" HOSTILE
        "\",\"gates\":[{\"name\":"
        "\"" HOSTILE "\",\"verdict\":\"" HOSTILE "\",\"detail\":\"" HOSTILE
        "\",\"accepted\":true}]}",
        "{\"report\":{\"quant\":\"" HOSTILE "\",\"bars\":{\"reason\":\"" HOSTILE
        "\",\"cosine\":0.9},\"rungs\":[{\"name\":\"" HOSTILE "\",\"verdict\":"
        "\"" HOSTILE "\",\"detail\":\"" HOSTILE "\"}],\"layers\":"
        "[{\"cosine_mean\":0.99}],\"kl\":[0.1,0.2],\"logits\":{\"positions\":2}"
        "}}",
        "{\"predicted\":{\"machine\":\"" HOSTILE "\",\"verdict\":\"" HOSTILE
        "\",\"ops\":[{\"package\":\"" HOSTILE "\",\"device\":\"" HOSTILE
        "\",\"rule\":\"" HOSTILE "\",\"reason\":\"" HOSTILE
        "\",\"type\":\"" HOSTILE
        "\",\"count\":2}],\"report\":{\"functions\":[{\"package\":\"" HOSTILE
        "\",\"function\":\"" HOSTILE "\",\"kind\":\"" HOSTILE
        "\",\"weight_bytes\":900,\"findings\":[{\"rule\":\"" HOSTILE
        "\",\"verdict\":\"off\",\"reason\":\"" HOSTILE
        "\"}],\"map\":{\"rules\":"
        "[\"" HOSTILE "\"],\"groups\":[{\"layers\":[0],\"ops\":[[\"" HOSTILE
        "\",\"" HOSTILE "\",\"off\",0,900]]}]}}]}}}");
    assert_int_equal(count(p, "<script"), 0);
    assert_int_equal(count(p, "<img"), 0);
    assert_int_equal(count(p, "<style"), 1);
    assert_int_equal(count(p, "</style"), 1);
    assert_int_equal(count(p, "\x1b"), 0);
    assert_int_equal(count(p, "&amp;amp;"), count(p, "alert(1)"));
    assert_true(count(p, "alert(1)") > 20);
    assert_int_equal(count(p, "<td class=\"off\" title=\""), 1);
    assert_int_equal(count(p, "<circle"), 1);
    free(p);
}

static void what_is_not_there(void **state)
{
    (void)state;
    static const char *const odd[] = {
        "{}",
        "{\"report\":null,\"predicted\":null}",
        "{\"report\":[],\"predicted\":{\"report\":{\"functions\":{}}}}",
        "{\"report\":{\"layers\":[],\"kl\":[],\"bars\":null,\"rungs\":[null]},"
        "\"predicted\":{\"report\":{\"functions\":[null,1,{\"map\":null}]}}}",
        "{\"report\":{\"layers\":[1,null],\"kl\":[null,\"x\"],\"logits\":"
        "{\"positions\":2}},\"predicted\":{\"report\":{\"functions\":[{\"map\":"
        "{\"groups\":[null,{\"layers\":[-1,1e9,\"x\",2],\"ops\":[null,[],["
        "\"a\"],"
        "[\"a\",\"b\",\"on\",-1,1],[\"a\",\"b\",null,99,[1]],[1,2,3,4,5],"
        "[\"c\",\"d\",\"on\",0,[]]]}]}}]}}}",
        "{\"report\":{\"layers\":[{\"cosine_mean\":-1}],\"kl\":[0]},"
        "\"predicted\":{\"report\":{\"functions\":[{\"kind\":\"head\",\"map\":"
        "{\"groups\":[{\"layers\":[],\"ops\":[[\"logits\",\"conv\",\"on\",0,8]"
        "]}]}}]}}}",
    };
    for (size_t i = 0; i < countof(odd); i++) {
        char *p = page("{}", odd[i], odd[i]);
        assert_int_equal(count(p, "<section"), 7);
        assert_int_equal(count(p, "nan"), 0);
        free(p);
    }
    char *p = page("{\"bytes\":1e3,\"gates\":[]}", odd[4], odd[5]);
    assert_int_equal(count(p, "<td class=\"on\""), 1);
    assert_true(strstr(p, ">h0<") != NULL);
    free(p);
}

/* The axis is marked whatever the numbers are. */
static void plots(void **state)
{
    (void)state;
    static const struct {
        double v[3], lo, hi;
        size_t n;
    } t[] = {
        {{0, 0, 0},          0,    1,     3},
        {{1e-9, 2e-9, 3e-9}, 0,    3e-9,  3},
        {{1e9, 1, 0},        0,    1.1e9, 3},
        {{0.5, 0, 0},        -0.1, 1,     1},
    };
    for (size_t i = 0; i < countof(t); i++) {
        struct buf b;
        const struct plot p = {.title = "t",
                               .x = "x",
                               .y = "y",
                               .v = t[i].v,
                               .n = t[i].n,
                               .lo = t[i].lo,
                               .hi = t[i].hi,
                               .area = i % 2 == 0};
        buf_init(&b, KIB(64));
        plot_svg(&b, &p);
        assert_true(buf_ok(&b));
        assert_int_equal(count(b.p, p.area ? "<rect" : "<circle"), t[i].n);
        size_t lines = count(b.p, "class=\"grid\"");
        assert_true(lines >= 2 && lines <= 12);
        assert_int_equal(count(b.p, "nan") + count(b.p, "inf"), 0);
        buf_fini(&b);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(texts_stay_texts),
        cmocka_unit_test(what_is_not_there),
        cmocka_unit_test(plots),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
