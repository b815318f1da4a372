/* accept_tokens.c - tokens of Core ML against those of the CPU backend. Core ML
 * has another arithmetic (fp16, and sums in an order of its own), so a token is
 * only sure where the CPU's likeliest leads by more than ACCEPT_LEAD. */
#include <string.h>

#include "client/accept.h"

#define MODEL_TOKENS 48u /* of a prompt of ours */

/* Up to the first that differs; there the CPU's own lead says whether it had
 * to be the same. Returns the tokens that were. */
static uint32_t agree(struct accept *a, size_t which, const struct draw *cpu,
                      const struct draw *core)
{
    uint32_t i = cpu->n_prompt;
    while (i < cpu->n && i < core->n && cpu->ids[i] == core->ids[i]) {
        i++;
    }
    uint32_t n = i - cpu->n_prompt;
    if (core->on_cpu) {
        accept_fail(a, "prompt %zu: a package had left Core ML", which);
    }
    if (i == cpu->n) {
        accept_pass(a, "prompt %zu: the same %u tokens", which, n);
    } else if (cpu->lead[n] > ACCEPT_LEAD) {
        accept_fail(a,
                    "prompt %zu: token %u differs, where the CPU's likeliest "
                    "leads by %.4f",
                    which, n, cpu->lead[n]);
    } else {
        accept_note(a,
                    "prompt %zu: %u tokens are the same; then the two best "
                    "are %.4f apart, and either may be drawn",
                    which, n, cpu->lead[n]);
    }
    return n;
}

static const char *const texts[] = {
    "The first time that people saw the sea from the top of the pass, they",
    "A compiler reads a program and writes another one. To do so, it",
    "On Monday we agreed on three things. The first was that",
    "#include <stdio.h>\n\nint main(void)\n{\n",
};

/* The demo's recorded prompts, or texts of ours. */
static const char *prompt_at(const struct accept *a, bool demo, size_t i,
                             uint32_t *ret_n)
{
    struct draw want;
    const char *prompt = NULL;
    *ret_n = MODEL_TOKENS;
    if (!demo) {
        return i < countof(texts) ? texts[i] : NULL;
    }
    if (i >= ACCEPT_RUNS_MAX || !draw_expected(a, i, &prompt, &want)) {
        return NULL;
    }
    *ret_n = want.n - want.n_prompt;
    return prompt;
}

/* All prompts on one backend, n of them. */
static int draw_all(struct accept *a, const char *model, bool coreml,
                    struct draw *to, size_t *n, struct err *e)
{
    RETERR(box_backend(a, coreml, 0, e));
    for (*n = 0; *n < ACCEPT_RUNS_MAX; (*n)++) {
        uint32_t tokens = 0;
        const char *prompt =
            prompt_at(a, strcmp(model, "demo") == 0, *n, &tokens);
        const struct draw_wish w = {
            .model = model, .prompt = prompt, .n = tokens};
        if (prompt == NULL) {
            break;
        }
        RETERR(draw(a, &w, &to[*n], e));
    }
    return 0;
}

static void tokens(struct accept *a, const char *model)
{
    struct draw *cpu = calloc(2 * ACCEPT_RUNS_MAX, sizeof(*cpu));
    struct draw *core = cpu + ACCEPT_RUNS_MAX;
    struct err e = {0};
    size_t n = 0;
    double same = 0;
    double ms = 0;
    double drawn = 0;
    must(cpu != NULL);
    if (draw_all(a, model, false, cpu, &n, &e) < 0 ||
        draw_all(a, model, true, core, &n, &e) < 0) {
        accept_error(a, "tokens", &e);
        n = 0;
    }
    for (size_t i = 0; i < n; i++) {
        same += agree(a, i, &cpu[i], &core[i]);
        ms += core[i].ms;
        drawn += core[i].n - core[i].n_prompt;
    }
    if (n > 0) {
        accept_number(a, "tokens_compared", same);
        accept_number(a, "coreml_tokens_per_second",
                      ms > 0 ? 1000 * drawn / ms : 0);
    }
    if (n > 0 && same == 0) {
        accept_fail(a, "no token could be compared");
    }
    free(cpu);
}

void step_coreml_tokens(struct doctor *d)
{
    tokens(accept_of(d), "demo");
}

void step_model_tokens(struct doctor *d)
{
    tokens(accept_of(d), "model");
}
