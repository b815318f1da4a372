/* submit.h - gives the daemon a job and follows it. */
#pragma once

#include "client/client.h"
#include "proto/json.h"
#include "proto/limits.h"

#define JOB_ID_MAX 64

/* Rows of options that the commands share which make a model. */
#define SUBMIT_ACCEPT_OPT                                                   \
    {                                                                       \
        "accept", 0, OPT_LIST, "G",                                         \
            "gates that may fail: quality, exactness; commas between", 0, 0 \
    }
#define SUBMIT_FORCE_OPT                                                     \
    {                                                                        \
        "force", 'f', OPT_GONE, NULL,                                        \
            "name the gates that may fail: --accept quality,exactness", 0, 0 \
    }
#define SUBMIT_PRIORITY_OPT                                          \
    {                                                                \
        "priority", 0, OPT_STR, "P",                                 \
            "low, normal (default) or high: which job is next", 0, 0 \
    }
#define SUBMIT_NO_WAIT_OPT                                                   \
    {                                                                        \
        "no-wait", 0, OPT_FLAG, NULL, "only queue the job and print its id", \
            0, 0                                                             \
    }

/* A member of the request, and the command's option that gives it. */
struct submit_str {
    int opt;
    const char *key;
};

/* Add the options that were given, as strings. */
void submit_strings(struct json *body, const struct args *a,
                    const struct submit_str *list, size_t n);
/* Add the option's list as it is. */
void submit_list(struct json *body, const struct opt_value *v, const char *key);
/* Add the gates of --accept; each value may name several, and the daemon knows
 * which there are. */
void submit_accepted(struct json *body, const struct opt_value *v);

/* The daemon has another working folder: it needs the absolute path of a
 * regular file; *ret is the caller's. An error here can name the path as the
 * user wrote it. Errors: NOT_FOUND, IO. */
CHECKED int submit_path(const char *file, char **ret, struct err *e);
/* The same of a model: a file by its own name, or a folder. */
CHECKED int submit_source(const char *file, char **ret, struct err *e);
/* POST body, which is used up, as a job; id and name (NULL is fine) are those
 * of the job and of its model. Prints the id where no_wait. EXIT_SUCCESS, or
 * the exit code of an error that was printed. */
int submit_post(struct client *c, struct json *body, bool no_wait,
                char id[JOB_ID_MAX], char name[MODEL_NAME_MAX + 1]);
/* Follow a job to its end, which is printed. Returns the exit code. */
int submit_wait(struct client *c, const char *id);
/* POST body, which is used up, as a job; print its id, or follow it to its end.
 * Returns the exit code. */
int submit_job(struct client *c, struct json *body, bool no_wait);
