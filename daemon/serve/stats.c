#include "serve/stats.h"

const double hist_bounds[HIST_BUCKETS] = {
    0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1,
    0.25,   0.5,   1,      2.5,   5,    10,    30,   60,
};

void hist_add_us(struct hist *h, uint64_t us)
{
    double s = (double)us / 1e6;
    size_t i = 0;
    while (i < HIST_BUCKETS && s > hist_bounds[i]) {
        i++;
    }
    h->count[i]++;
    h->n++;
    h->sum += s;
}
