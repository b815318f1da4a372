/* doc.h - proto/api.json, made from the tables of routes and fields.
 *
 * The tables have: paths, methods, whose they are, what they do, and the fields
 * of requests for text. What a person wrote stays as it is: longer
 * descriptions, parameters, answers, and the requests of other routes. */
#pragma once

#include "proto/json.h"

struct fields;

/* The document, with what `old` (the document as it is) says by hand. Routes
 * and fields that the tables do not have are left out. */
struct json *doc_make(const struct json *old);
/* The rows of all tables of fields, each once: for (i = 0; (f = doc_fields(i))
 * != NULL; i++). */
const struct fields *doc_fields(size_t i);
/* "get" of HTTP_M_GET. */
const char *doc_method(unsigned method);
