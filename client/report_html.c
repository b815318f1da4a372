/* report_html.c - the page's words: escaped text, verdicts, sections. */
#include <string.h>

#include "client/report.h"
#include "client/term.h"

void html_text(struct buf *b, const char *s)
{
    for (; s != NULL && *s != '\0'; s++) {
        unsigned char c = (unsigned char)*s;
        switch (c) {
        case '<':
            buf_puts(b, "&lt;");
            break;
        case '>':
            buf_puts(b, "&gt;");
            break;
        case '&':
            buf_puts(b, "&amp;");
            break;
        case '"':
            buf_puts(b, "&quot;");
            break;
        case '\'':
            buf_puts(b, "&#39;");
            break;
        default:
            buf_u8(b, c < ' ' || c == 0x7f ? '?' : c);
            break;
        }
    }
}

void html_member(struct buf *b, const struct json *j, const char *key)
{
    html_text(b, json_str(json_get(j, key)));
}

void html_verdict(struct buf *b, const char *word)
{
    static const struct {
        const char *word, *kind, *mark;
    } rows[] = {
        {"passed",        "good", "&#10003;"},
        {"ready",         "good", "&#10003;"},
        {"loaded",        "good", "&#10003;"},
        {"failed",        "bad",  "&#10007;"},
        {"rejected",      "bad",  "&#10007;"},
        {"warned",        "warn", "!"       },
        {"accepted",      "warn", "!"       },
        {"neural_engine", "good", ""        },
        {"cpu",           "bad",  ""        },
        {"unknown",       "warn", ""        },
    };
    const char *kind = "none";
    const char *mark = "";
    word = word != NULL ? word : "unknown";
    for (size_t i = 0; i < countof(rows); i++) {
        if (strcmp(rows[i].word, word) == 0) {
            kind = rows[i].kind;
            mark = rows[i].mark;
        }
    }
    buf_printf(b, "<span class=\"tag %s\">", kind);
    if (mark[0] != '\0') {
        buf_printf(b, "<span aria-hidden=\"true\">%s</span> ", mark);
    }
    html_text(b, word);
    buf_puts(b, "</span>");
}

void html_bytes(struct buf *b, double bytes)
{
    char text[16];
    fmt_bytes(bytes > 0 ? (uint64_t)bytes : 0, text);
    buf_puts(b, text);
}

void html_section(struct buf *b, const char *id, const char *title)
{
    buf_printf(b, "<section aria-labelledby=\"%s\"><h2 id=\"%s\">%s</h2>\n", id,
               id, title);
}

void html_end(struct buf *b)
{
    buf_puts(b, "</section>\n");
}
