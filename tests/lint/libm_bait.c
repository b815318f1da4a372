/* Breaks the rule of libm.py, which must see it. */
#include <math.h>

float libm_bait(float x);

float libm_bait(float x)
{
    return expf(x) + powf(x, x);
}
