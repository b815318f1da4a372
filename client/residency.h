/* residency.h - prints a model's reports, for residency and probe. */
#pragma once

#include "client/model_call.h"

/* j: the answer of /aned/v1/models/NAME/residency. */
void residency_show(const struct json *j);
