/* cost.c - see cost.h. */
#include "sched/cost.h"

#define EXACT 8u /* rows with a slot of their own */

static uint32_t slot_of(uint32_t rows)
{
    uint32_t octave = 0;
    if (rows <= EXACT) {
        return rows;
    }
    while (rows >> (octave + 4) != 0) {
        octave++;
    }
    /* rows is in [8 << octave, 16 << octave) */
    uint32_t i = EXACT + 4 * octave + ((rows >> (octave + 1)) & 3u);
    return i < COST_SLOTS ? i : COST_SLOTS - 1;
}

/* One measurement far above the others is the machine, not the step; one below
 * them is nothing else than the step. */
static double blend(double was, double now)
{
    double v = now < 2 * was ? now : 2 * was;
    double weight = now < was ? COST_LOWER : COST_HIGHER;
    return was > 0 ? was + weight * (v - was) : now;
}

void cost_note(struct cost *c, uint32_t sampled, uint32_t prompt, double us)
{
    if (us <= 0 || (sampled == 0 && prompt == 0)) {
        return;
    }
    if (prompt == 0) {
        uint32_t i = slot_of(sampled);
        c->us[i] = blend(c->us[i], us);
        c->rows[i] += c->rows[i] > 0 ? 0.2 * (sampled - c->rows[i]) : sampled;
        return;
    }
    /* Prompt rows are charged with what is beyond a step without them, if that
     * leaves anything like a cost, and forgotten as others follow: two rows
     * say little of what many will cost. */
    double n = prompt;
    double least = us / 4;
    double more = us - cost_of(c, sampled > 0 ? sampled : 1);
    double keep = COST_KEPT / (COST_KEPT + n);
    double row = cost_prompt(c);
    more = more > least ? more : least;
    if (row > 0 && more > 4 * row * n) {
        more = 4 * row * n;
    }
    c->us_prompt = c->us_prompt * keep + more;
    c->n_prompt = c->n_prompt * keep + n;
}

double cost_of(const struct cost *c, uint32_t sampled)
{
    uint32_t at = slot_of(sampled);
    uint32_t lo = at;
    uint32_t hi = at;
    double n = sampled;
    if (c->us[at] > 0) {
        return c->us[at];
    }
    while (lo > 0 && c->us[lo] <= 0) {
        lo--;
    }
    while (hi < COST_SLOTS - 1 && c->us[hi] <= 0) {
        hi++;
    }
    bool below = c->us[lo] > 0;
    bool above = c->us[hi] > 0;
    if (below && above) {
        double part = (n - c->rows[lo]) / (c->rows[hi] - c->rows[lo]);
        return c->us[lo] + part * (c->us[hi] - c->us[lo]);
    }
    if (below) {
        return c->us[lo] * (1 + (n - c->rows[lo]) / COST_GUESS);
    }
    return above ? c->us[hi] / (1 + (c->rows[hi] - n) / COST_GUESS) : 0;
}

double cost_prompt(const struct cost *c)
{
    return c->n_prompt > 0 ? c->us_prompt / c->n_prompt : 0;
}
