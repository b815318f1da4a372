/* service_read.c - what an installed unit says. Only the forms that unit_fill
 * writes, and what people write by hand in their place; anything else counts as
 * not said. */
#include <string.h>

#include "client/service.h"

/* --- a plist --- */

/* The text of an element up to '<', without XML's escapes. */
static bool xml_text(const char *p, char *out, size_t size)
{
    static const struct {
        const char *name;
        char c;
    } escapes[] = {
        {"&amp;",  '&' },
        {"&lt;",   '<' },
        {"&gt;",   '>' },
        {"&quot;", '"' },
        {"&apos;", '\''}
    };
    size_t n = 0;
    while (*p != '<' && *p != '\0' && n + 1 < size) {
        size_t i = 0;
        size_t k = 1;
        char c = *p;
        while (c == '&' && i < countof(escapes) &&
               strncmp(p, escapes[i].name, strlen(escapes[i].name)) != 0) {
            i++;
        }
        if (c == '&') {
            if (i == countof(escapes)) {
                return false;
            }
            c = escapes[i].c;
            k = strlen(escapes[i].name);
        }
        out[n++] = c;
        p += k;
    }
    out[n] = '\0';
    return *p == '<';
}

bool unit_plist_option(const char *text, const char *option, char *out,
                       size_t size)
{
    char key[64];
    (void)snprintf(key, sizeof(key), "<string>%s</string>", option);
    const char *p = strstr(text, key);
    p = p != NULL ? strstr(p + strlen(key), "<string>") : NULL;
    return p != NULL && xml_text(p + strlen("<string>"), out, size);
}

/* --- a unit of systemd --- */

/* The next word of a command line, without quotes and escapes; NULL: the line
 * ends, or it has what only systemd can tell (%h, $HOME). */
static const char *exec_word(const char *p, char *out, size_t size)
{
    size_t n = 0;
    p += strspn(p, " \t");
    char quote = *p == '"' || *p == '\'' ? *p++ : '\0';
    const char *ends = quote != '\0' ? "\n" : " \t\n";
    if (*p == '\0' || *p == '\n') {
        return NULL;
    }
    for (; *p != '\0' && *p != quote && strchr(ends, *p) == NULL; p++) {
        bool twice = *p == '%' || *p == '$';
        if ((twice && p[1] != *p) || n + 1 >= size) {
            return NULL;
        }
        if (twice || (*p == '\\' && p[1] != '\0')) {
            p++;
        }
        out[n++] = *p;
    }
    out[n] = '\0';
    return quote == '\0' ? p : *p == quote ? p + 1 : NULL;
}

bool unit_exec_option(const char *text, const char *option, char *out,
                      size_t size)
{
    static const char key[] = "\nExecStart=";
    const char *p = strstr(text, key);
    p = p != NULL ? exec_word(p + sizeof(key) - 1, out, size) : NULL;
    while (p != NULL) {
        bool found = strcmp(out, option) == 0;
        p = exec_word(p, out, size);
        if (found) {
            return p != NULL;
        }
    }
    return false;
}
