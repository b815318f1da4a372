/* pooling.h - how the hidden states of a text's tokens become one vector. */
#pragma once

#include "base/base.h"

/* The mean of all, the first one, or the last one. Frames have the numbers. */
enum pooling { POOL_NONE, POOL_MEAN, POOL_CLS, POOL_LAST, POOLINGS };

const char *pooling_name(enum pooling k); /* "mean"; "none" */
/* POOL_NONE: no such name, or NULL. */
enum pooling pooling_parse(const char *name);
