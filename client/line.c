/* line.c - see line.h. libedit's own reader tries again after a signal, so a
 * Ctrl-C would do nothing: this file gives libedit another reader. */
#include "client/line.h"

#include <errno.h>
#include <fcntl.h>
#include <histedit.h>
#include <limits.h>
#include <string.h>
#include <unistd.h>
#include <wchar.h>

#include "base/file.h"
#include "client/client.h"

enum { HISTORY_MAX = 1000 };

struct line {
    EditLine *el;
    History *history;
    HistEvent event;
    const char *prompt;
    char path[PATH_MAX]; /* of the history; "" when it has no file */
    char *text;          /* owned: the line given out */
};

static char *prompt_of(EditLine *el)
{
    struct line *l = NULL;
    (void)el_get(el, EL_CLIENTDATA, &l);
    return (char *)(uintptr_t)(l != NULL ? l->prompt : "");
}

/* One character in the user's encoding; -1 on a signal, 0 at the end. */
static int read_char(EditLine *el, wchar_t *ret)
{
    mbstate_t state;
    (void)el;
    memset(&state, 0, sizeof(state));
    for (;;) {
        char c = 0;
        ssize_t n = read(STDIN_FILENO, &c, 1);
        if (n <= 0) {
            return n == 0 ? 0 : -1;
        }
        size_t k = mbrtowc(ret, &c, 1, &state);
        if (k == (size_t)-1) { /* no character: skip the byte */
            memset(&state, 0, sizeof(state));
        } else if (k != (size_t)-2) {
            return 1;
        }
    }
}

static bool history_folder(char *out, size_t size)
{
    const char *home = getenv("ANED_HOME");
    const char *state = getenv("XDG_STATE_HOME");
    const char *user = getenv("HOME");
    if (home != NULL && home[0] == '/') {
        return snprintf(out, size, "%s", home) < (int)size;
    }
    if (state != NULL && state[0] == '/') {
        return file_join(out, size, state, "aned");
    }
    return user != NULL && user[0] == '/' &&
           file_join(out, size, user, ".local/state/aned");
}

/* Prompts are private: the file is made 0600 before libedit writes it. */
static void find_history(struct line *l)
{
    char dir[PATH_MAX];
    struct err e = {0};
    if (!history_folder(dir, sizeof(dir)) || file_mkdirs(dir, 0700, &e) < 0 ||
        !file_join(l->path, sizeof(l->path), dir, "anectl_history")) {
        l->path[0] = '\0';
        return;
    }
    int fd = open(l->path, O_WRONLY | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
    if (fd < 0) {
        l->path[0] = '\0';
        return;
    }
    (void)close(fd);
    (void)history(l->history, &l->event, H_LOAD, l->path);
}

struct line *line_open(void)
{
    struct line *l = calloc(1, sizeof(*l));
    must(l != NULL);
    l->prompt = "";
    l->el = el_init("anectl", stdin, stdout, stderr);
    l->history = history_init();
    must(l->el != NULL && l->history != NULL);
    (void)history(l->history, &l->event, H_SETSIZE, HISTORY_MAX);
    (void)history(l->history, &l->event, H_SETUNIQUE, 1);
    find_history(l);
    (void)el_set(l->el, EL_CLIENTDATA, l);
    (void)el_set(l->el, EL_PROMPT, prompt_of);
    (void)el_set(l->el, EL_EDITOR, "emacs");
    (void)el_set(l->el, EL_HIST, history, l->history);
    (void)el_set(l->el, EL_GETCFN, read_char);
    (void)el_source(l->el, NULL); /* the user's ~/.editrc */
    return l;
}

void line_close(struct line *l)
{
    if (l == NULL) {
        return;
    }
    if (l->path[0] != '\0') {
        (void)history(l->history, &l->event, H_SAVE, l->path);
    }
    history_end(l->history);
    el_end(l->el);
    free(l->text);
    free(l);
}

const char *line_read(struct line *l, const char *prompt, bool *stopped)
{
    int n = 0;
    *stopped = false;
    l->prompt = prompt;
    interrupt_clear();
    el_resize(l->el);
    const char *text = el_gets(l->el, &n);
    if (interrupted != 0) {
        interrupt_clear();
        *stopped = true;
        (void)el_set(l->el, EL_UNBUFFERED, 0);
        el_reset(l->el);
        (void)putchar('\n');
        return "";
    }
    if (text == NULL || n <= 0) {
        return NULL;
    }
    size_t len = strcspn(text, "\r\n");
    if (len > 0) {
        (void)history(l->history, &l->event, H_ENTER, text);
    }
    free(l->text);
    l->text = strndup(text, len);
    must(l->text != NULL);
    return l->text;
}
