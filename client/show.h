/* show.h - prints jobs, models and sessions for a person. */
#pragma once

#include "client/client.h"
#include "proto/json.h"

/* A word with the colour of what it means: ready, failed, running ... */
void show_state(const struct client *c, const char *state, int width);
/* Milliseconds of Unix time as "3m ago"; "-" for none. */
void show_ago(const struct json *ms, char out[24]);
/* "structure passed, quality not run" lines, indented. */
void show_gates(const struct client *c, const struct json *gates);
/* The gates that failed and were accepted: "quality, exactness"; "" for none.
 */
void show_accepted(const struct json *model, char out[64]);
/* Print the warnings of a job's result on stderr, a line each. */
void show_warnings(const struct client *c, const struct json *warnings);
/* A job's priority: its word, or its number; "-" from an older daemon. */
void show_priority(const struct json *job, char out[16]);
/* Code and message of a job's error; false when there is none. */
bool show_job_error(const struct json *job, const char **code,
                    const char **message);
/* Print text from the daemon; control characters are replaced on a terminal. */
void show_text(const struct client *c, const char *s);

/* A list command: it prints a head and a line for each entry, or only one field
 * of each (--quiet). */
struct show_list {
    const char *path; /* GET */
    const char *key;  /* of the array in the answer */
    const char *none; /* printed for an empty list */
    const char *head; /* the line above */
    const char *id;   /* the field that --quiet prints */
    void (*row)(const struct client *c, const struct json *j);
};

/* Ask and print; with --json the answer as it is. Returns the exit code. */
int show_list(struct client *c, const struct show_list *l, bool quiet);
