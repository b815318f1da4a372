/* noise.h - last bits that depend on the width of a prediction, as on the
 * Neural Engine: its T = 1 and T = 4 give different bits for the same row
 * (facts: ane.md 1.1). Thread: any.
 */
#pragma once

#include "mil/mil.h"

/* The axis of the rows of a call: the dimension that is open, or that differs
 * in another function of the program. -1: none. */
int si_noise_axis(const struct mil_program *p, const struct mil_value *v,
                  bool is_input);
/* Change the last bit of fp16 in some elements of a dense fp16 or fp32 array.
 * Which ones depends on the width, the name and the place of the element in its
 * row, not on which row it is: a row's bits are the same in every place of a
 * call. 0, 1 and what masks hold stay. */
void si_noise_add(void *p, enum mil_dtype t, const char *name,
                  const int64_t *dims, int rank, int axis, int64_t width);
