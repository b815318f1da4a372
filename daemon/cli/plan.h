/* plan.h - prints what a conversion would make, for `plan` and `convert`. */
#pragma once

#include "convert/convert.h"

/* Forecast and print, as text or as one object; returns the exit code. */
int cli_plan_of(const struct convert_options *o, bool json);
