#include "client/submit.h"

#include <errno.h>
#include <string.h>
#include <sys/stat.h>

#include "base/file.h"
#include "client/follow.h"
#include "proto/limits.h"

int submit_path(const char *file, char **ret, struct err *e)
{
    struct stat st;
    char *path = realpath(file, NULL);
    if (path == NULL || stat(path, &st) < 0) {
        int rc = errno == ENOENT || errno == ENOTDIR ? ERR_NOT_FOUND : ERR_IO;
        free(path);
        return err_set(e, rc, "%s: %s", file, strerror(errno));
    }
    if (!S_ISREG(st.st_mode)) {
        free(path);
        return err_set(e, ERR_NOT_FOUND, "%s is not a regular file", file);
    }
    *ret = path;
    return 0;
}

/* The name of a file says what form a model has, so a link to one is not
 * followed here: only the folder that it stands in is resolved. */
int submit_source(const char *file, char **ret, struct err *e)
{
    char parent[PATH_BYTES_MAX];
    char path[PATH_BYTES_MAX];
    struct stat st;
    const char *slash = strrchr(file, '/');
    if (stat(file, &st) < 0 || S_ISDIR(st.st_mode)) {
        *ret = realpath(file, NULL);
        return *ret != NULL ? 0
                            : err_set(e, ERR_NOT_FOUND, "%s: %s", file,
                                      strerror(errno));
    }
    if (!S_ISREG(st.st_mode)) {
        return err_set(e, ERR_NOT_FOUND, "%s is not a regular file", file);
    }
    file_parent(file, parent, sizeof(parent));
    char *full = realpath(parent, NULL);
    bool fits = full != NULL && file_join(path, sizeof(path), full,
                                          slash != NULL ? slash + 1 : file);
    free(full);
    *ret = fits ? strdup(path) : NULL;
    return *ret != NULL ? 0
                        : err_set(e, ERR_INVALID, "%s: the path is too long",
                                  file);
}

void submit_strings(struct json *body, const struct args *a,
                    const struct submit_str *list, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        if (a->opt[list[i].opt].set) {
            json_add_str(body, list[i].key, a->opt[list[i].opt].str);
        }
    }
}

void submit_list(struct json *body, const struct opt_value *v, const char *key)
{
    struct json *list = v->set ? json_add_array(body, key) : NULL;
    for (size_t i = 0; i < v->n_list; i++) {
        json_add_str(list, NULL, v->list[i]);
    }
}

void submit_accepted(struct json *body, const struct opt_value *v)
{
    struct json *list = v->set ? json_add_array(body, "accept") : NULL;
    for (size_t i = 0; i < v->n_list; i++) {
        const char *at = v->list[i];
        for (size_t n = 0; *at != '\0'; at += n + (at[n] == ',' ? 1 : 0)) {
            char name[64];
            n = strcspn(at, ",");
            (void)snprintf(name, sizeof(name), "%.*s", (int)n, at);
            json_add_str(list, NULL, name);
        }
    }
}

int submit_wait(struct client *c, const char *id)
{
    struct json *end = NULL;
    struct err e = {0};
    int code = EXIT_SUCCESS;

    interrupt_catch();
    if (follow_job(c, id, false, &end, &e) < 0) {
        code = ask_fail(c, &e);
        if (code == EXIT_INTERRUPTED) {
            (void)fprintf(stderr,
                          "the job goes on; look again: anectl job %s "
                          "--follow, end it: anectl cancel %s\n",
                          id, id);
        }
        return code;
    }
    if (c->json) {
        (void)ask_print(end);
        code = follow_exit(end);
    } else {
        code = follow_end(c, end);
    }
    json_free(end);
    return code;
}

int submit_post(struct client *c, struct json *body, bool no_wait,
                char id[JOB_ID_MAX], char name[MODEL_NAME_MAX + 1])
{
    struct json *j = NULL;
    struct err e = {0};
    int rc = ask(c, "POST", "/aned/v1/jobs", body, &j, &e);
    json_free(body);
    if (rc < 0) {
        return ask_fail(c, &e);
    }
    (void)snprintf(id, JOB_ID_MAX, "%s", ask_str(j, "id"));
    if (name != NULL) {
        (void)snprintf(name, MODEL_NAME_MAX + 1, "%s", ask_str(j, "name"));
    }
    if (no_wait && c->json) {
        (void)ask_print(j);
    } else if (no_wait) {
        printf("%s\n", id);
    }
    json_free(j);
    return EXIT_SUCCESS;
}

int submit_job(struct client *c, struct json *body, bool no_wait)
{
    char id[JOB_ID_MAX];
    int code = submit_post(c, body, no_wait, id, NULL);
    return code != EXIT_SUCCESS || no_wait ? code : submit_wait(c, id);
}
