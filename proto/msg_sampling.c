/* msg_sampling.c - what a draw is asked for, apart from its bytes (msg.c). */
#include "proto/msg.h"

void msg_sampling_init(struct msg_sampling *s)
{
    *s = (struct msg_sampling){
        .top_p = 1,
        .repeat_penalty = 1,
        .typical_p = 1,
        .top_n_sigma = -1,
        .dynatemp_exponent = 1,
        .xtc_threshold = 0.1F,
        .dry_base = 1.75F,
        .dry_allowed_length = 2,
        .mirostat_tau = 5,
        .mirostat_eta = 0.1F,
    };
}

const char *msg_sampler_name(enum msg_sampler k)
{
    static const char *const names[SAMPLER_KINDS] = {
        [SAMPLER_PENALTIES] = "penalties",
        [SAMPLER_DRY] = "dry",
        [SAMPLER_TOP_N_SIGMA] = "top_n_sigma",
        [SAMPLER_TOP_K] = "top_k",
        [SAMPLER_TYPICAL_P] = "typ_p",
        [SAMPLER_TOP_P] = "top_p",
        [SAMPLER_MIN_P] = "min_p",
        [SAMPLER_XTC] = "xtc",
        [SAMPLER_TEMPERATURE] = "temperature",
    };
    must(k < SAMPLER_KINDS);
    return names[k];
}

uint32_t msg_sampling_order(const struct msg_sampling *s, const uint8_t **ret)
{
    /* llama.cpp's, but for the temperature, which has always come first here */
    static const uint8_t ours[] = {
        SAMPLER_PENALTIES,   SAMPLER_DRY,   SAMPLER_TOP_N_SIGMA,
        SAMPLER_TEMPERATURE, SAMPLER_TOP_K, SAMPLER_TYPICAL_P,
        SAMPLER_TOP_P,       SAMPLER_MIN_P, SAMPLER_XTC,
    };
    static const uint8_t alone[] = {SAMPLER_TEMPERATURE};
    if (s->mirostat != 0) {
        *ret = alone;
        return countof(alone);
    }
    *ret = s->n_chain > 0 ? s->chain : ours;
    return s->n_chain > 0 ? s->n_chain : countof(ours);
}

float msg_sampling_mu(const struct msg_sampling *s)
{
    return s->mirostat != 0 ? 2 * s->mirostat_tau : 0; /* llama.cpp's */
}

static bool is_dynamic(const struct msg_sampling *s)
{
    return s->dynatemp_range > 0 && s->mirostat == 0;
}

bool msg_sampling_greedy(const struct msg_sampling *s)
{
    return !(s->temperature > 0) && !is_dynamic(s);
}

static bool has_penalties(const struct msg_sampling *s)
{
    bool repeat = s->repeat_penalty < 1 || s->repeat_penalty > 1;
    return (repeat && s->repeat_last_n > 0) || s->frequency_penalty < 0 ||
           s->frequency_penalty > 0 || s->presence_penalty < 0 ||
           s->presence_penalty > 0;
}

bool msg_sampling_asks(const struct msg_sampling *s, enum msg_sampler k)
{
    switch (k) {
    case SAMPLER_PENALTIES:
        return has_penalties(s);
    case SAMPLER_DRY:
        return s->dry_multiplier > 0 && s->dry_base >= 1 && s->dry_last_n > 0;
    case SAMPLER_TOP_N_SIGMA:
        return s->top_n_sigma > 0;
    case SAMPLER_TOP_K:
        return s->top_k > 0;
    case SAMPLER_TYPICAL_P:
        return s->typical_p < 1;
    case SAMPLER_TOP_P:
        return s->top_p < 1;
    case SAMPLER_MIN_P:
        return s->min_p > 0;
    case SAMPLER_XTC:
        return s->xtc_probability > 0 && s->xtc_threshold <= 0.5F;
    case SAMPLER_TEMPERATURE:
        return s->temperature < 1 || s->temperature > 1 || is_dynamic(s);
    case SAMPLER_KINDS:
        break;
    }
    must(false);
    return false;
}

bool msg_sampling_uses(const struct msg_sampling *s, enum msg_sampler k)
{
    const uint8_t *order = NULL;
    uint32_t n = msg_sampling_order(s, &order);
    bool listed = false;
    for (uint32_t i = 0; i < n; i++) {
        listed = listed || order[i] == k;
    }
    return listed && msg_sampling_asks(s, k);
}

const char *msg_sampling_beyond_top(const struct msg_sampling *s)
{
    bool any = msg_sampling_uses(s, SAMPLER_PENALTIES);
    bool repeat = s->repeat_penalty < 1 || s->repeat_penalty > 1;
    bool presence = s->presence_penalty < 0 || s->presence_penalty > 0;
    bool frequency = s->frequency_penalty < 0 || s->frequency_penalty > 0;
    bool dry = msg_sampling_uses(s, SAMPLER_DRY);
    bool typical = msg_sampling_uses(s, SAMPLER_TYPICAL_P);
    bool xtc = msg_sampling_uses(s, SAMPLER_XTC);
    const struct {
        bool set;
        const char *name;
    } of[] = {
        {s->temperature > 0,                "temperature"      },
        {s->dynatemp_range > 0,             "dynatemp_range"   },
        {any && repeat,                     "repeat_penalty"   },
        {any && presence,                   "presence_penalty" },
        {any && frequency,                  "frequency_penalty"},
        {s->mirostat != 0,                  "mirostat"         },
        {dry,                               "dry_multiplier"   },
        {typical,                           "typical_p"        },
        {xtc,                               "xtc_probability"  },
        {s->n_bias > 0,                     "logit_bias"       },
        {s->logprobs > 0 || !s->no_logprob, "logprobs"         },
    };
    for (size_t i = 0; i < countof(of); i++) {
        if (of[i].set) {
            return of[i].name;
        }
    }
    return NULL;
}

/* Reads n and then that many numbers; false: they are not all there. */
static bool take_counted(const struct msg_sampling *s, uint32_t *at,
                         uint32_t *n, const int32_t **ret)
{
    if (*at >= s->n_breaks || s->breaks[*at] < 0 ||
        (uint32_t)s->breaks[*at] > s->n_breaks - *at - 1) {
        return false;
    }
    *n = (uint32_t)s->breaks[*at];
    *ret = s->breaks + *at + 1;
    *at += 1 + *n;
    return true;
}

bool msg_breaker_next(const struct msg_sampling *s, uint32_t *at,
                      struct msg_breaker *ret)
{
    uint32_t i = *at;
    if (!take_counted(s, &i, &ret->n_tail, &ret->tail) ||
        ret->n_tail > DRY_TAIL_MAX ||
        !take_counted(s, &i, &ret->n_heads, &ret->heads) || ret->n_heads == 0) {
        return false;
    }
    *at = i;
    return true;
}

bool msg_breaker_has(const struct msg_breaker *g, int32_t id)
{
    uint32_t low = 0;
    uint32_t high = g->n_heads;
    while (low < high) {
        uint32_t mid = low + (high - low) / 2;
        if (g->heads[mid] < id) {
            low = mid + 1;
        } else {
            high = mid;
        }
    }
    return low < g->n_heads && g->heads[low] == id;
}
