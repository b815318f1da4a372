/* msg_sampling.c - what a draw is asked for, apart from its bytes (msg.c). */
#include "proto/msg.h"

void msg_sampling_init(struct msg_sampling *s)
{
    *s = (struct msg_sampling){.top_p = 1, .repeat_penalty = 1};
}

const char *msg_sampling_beyond_top(const struct msg_sampling *s)
{
    const struct {
        bool set;
        const char *name;
    } of[] = {
        {s->temperature > 0,                                  "temperature"      },
        {s->repeat_penalty < 1 || s->repeat_penalty > 1,      "repeat_penalty"   },
        {s->presence_penalty < 0 || s->presence_penalty > 0,  "presence_penalty" },
        {s->frequency_penalty < 0 || s->frequency_penalty > 0,
         "frequency_penalty"                                                     },
        {s->n_bias > 0,                                       "logit_bias"       },
        {s->logprobs > 0 || !s->no_logprob,                   "logprobs"         },
    };
    for (size_t i = 0; i < countof(of); i++) {
        if (of[i].set) {
            return of[i].name;
        }
    }
    return NULL;
}
