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
    uint32_t i = EXACT + 1 + 4 * octave + ((rows >> (octave + 1)) & 3u);
    return i < COST_SLOTS ? i : COST_SLOTS - 1;
}

/* A measurement far above the average is noise of the machine, so it counts
 * little; one below the average is the step itself. */
static double blend(double was, double now)
{
    double v = now < 2 * was ? now : 2 * was;
    double weight = now < was ? COST_LOWER : COST_HIGHER;
    return was > 0 ? was + weight * (v - was) : now;
}

static void forget_wider(struct cost *c, uint32_t slot)
{
    for (uint32_t i = slot + 1; i < COST_SLOTS; i++) {
        if (c->us[i] > 0 && c->steps - c->step[i] >= COST_STALE) {
            c->us[i] = 0;
            c->rows[i] = 0;
        }
    }
}

void cost_note(struct cost *c, uint32_t sampled, uint32_t prompt, double us)
{
    if (us <= 0 || (sampled == 0 && prompt == 0)) {
        return;
    }
    if (prompt == 0) {
        uint32_t i = slot_of(sampled);
        double guess = 4 * cost_of(c, sampled); /* nor is the first one sure */
        double first = guess > 0 && us > guess ? guess : us;
        c->us[i] = c->us[i] > 0 ? blend(c->us[i], us) : first;
        c->rows[i] += c->rows[i] > 0 ? 0.2 * (sampled - c->rows[i]) : sampled;
        c->step[i] = ++c->steps;
        forget_wider(c, i);
        return;
    }
    /* Prompt rows are charged with what is beyond a step without them, at least
     * with a quarter of an average row's part of it (steps vary by more than
     * what few rows add), and forgotten as others follow: two rows say little
     * of what many will cost. */
    double n = prompt;
    double least = us / 4 * n / (n + sampled);
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

/* The next known slot from i on (by is 1 or -1); COST_SLOTS: none. */
static uint32_t known(const struct cost *c, uint32_t i, int by)
{
    while (i < COST_SLOTS && c->us[i] <= 0) {
        i = (uint32_t)((int)i + by); /* below 0: very large */
    }
    return i < COST_SLOTS ? i : COST_SLOTS;
}

/* What lies beyond the last known slot: on with what the last two say, never
 * less than a quarter of it; a guess with one. */
static double beyond(const struct cost *c, uint32_t near, int by, double n)
{
    uint32_t far = known(c, (uint32_t)((int)near + by), by);
    double slope = c->us[near] / COST_GUESS;
    if (far < COST_SLOTS) {
        slope = (c->us[far] - c->us[near]) / (c->rows[far] - c->rows[near]);
        slope = slope > 0 ? slope : 0;
    }
    double us = c->us[near] + slope * (n - c->rows[near]);
    return us > c->us[near] / 4 ? us : c->us[near] / 4;
}

double cost_of(const struct cost *c, uint32_t sampled)
{
    uint32_t at = slot_of(sampled);
    uint32_t lo = known(c, at, -1);
    uint32_t hi = known(c, at, 1);
    if (lo == at) {
        return c->us[at];
    }
    if (lo < COST_SLOTS && hi < COST_SLOTS) {
        double part = (sampled - c->rows[lo]) / (c->rows[hi] - c->rows[lo]);
        return c->us[lo] + part * (c->us[hi] - c->us[lo]);
    }
    if (lo == COST_SLOTS && hi == COST_SLOTS) {
        return 0;
    }
    return lo < COST_SLOTS ? beyond(c, lo, -1, sampled)
                           : beyond(c, hi, 1, sampled);
}

bool cost_known(const struct cost *c, uint32_t sampled)
{
    return known(c, slot_of(sampled), -1) < COST_SLOTS;
}

double cost_most(const struct cost *c)
{
    uint32_t i = known(c, COST_SLOTS - 1, -1);
    return i < COST_SLOTS ? c->rows[i] : 0;
}

double cost_prompt(const struct cost *c)
{
    return c->n_prompt > 0 ? c->us_prompt / c->n_prompt : 0;
}
