/* show.h - how jobs, models and sessions look to a person. */
#pragma once

#include "client/client.h"
#include "proto/json.h"

/* A word with the colour of what it means: ready, failed, running ... */
void show_state(const struct client *c, const char *state, int width);
/* Milliseconds of Unix time as "3m ago"; "-" for none. */
void show_ago(const struct json *ms, char out[24]);
/* "structure passed, quality not run" lines, indented. */
void show_gates(const struct client *c, const struct json *gates);
/* What a job's result warns of, a line each on stderr. */
void show_warnings(const struct client *c, const struct json *warnings);
/* Code and message of a job's error; false when there is none. */
bool show_job_error(const struct json *job, const char **code,
                    const char **message);
/* Bytes from the daemon as text for the terminal. */
void show_text(const struct client *c, const char *s);

/* What a list command prints: a head and a line each, or one field each. */
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
