/* The shard plan: profiles, the division, what is predicted of it. Pure. */
#include <math.h>

#include "../unit.h"
#include "base/num.h"
#include "convert/plan_input.h"

#define LAYERS_MAX 12u

/* A model made by hand: a row of equal layers. */
struct shape {
    struct plan_layer layers[64];
    struct plan_input in;
};

static struct plan_input *equal(struct shape *s, uint32_t n, uint64_t bytes,
                                uint32_t states, uint32_t vocab, uint64_t row)
{
    *s = (struct shape){0};
    for (uint32_t l = 0; l < n; l++) {
        s->layers[l] = (struct plan_layer){.bytes = bytes,
                                           .elements = bytes,
                                           .states = states,
                                           .state_bytes = states * 1000,
                                           .channels = 64,
                                           .kv_from = l};
    }
    s->in = (struct plan_input){
        .n_layers = n,
        .layers = s->layers,
        .vocab = vocab,
        .context = 4096,
        .row_bytes = row,
        .row_elements = row,
        .bits = 8,
        .n_widths = 2,
        .n_head_widths = 2,
        .widths = {1, 4}
    };
    return &s->in;
}

static struct plan_profile profile(const char *name)
{
    struct plan_profile p;
    struct err e = {0};
    unit_ok(plan_profile(name, &p, &e), &e);
    return p;
}

static void check_cover(const struct plan_range *r, uint32_t n, uint32_t all)
{
    uint32_t at = 0;
    for (uint32_t i = 0; i < n; i++) {
        assert_int_equal(r[i].first, at);
        assert_true(r[i].last > r[i].first);
        at = r[i].last;
    }
    assert_int_equal(at, all);
}

/* Layer l has no states and reads those of `owner`. */
static void share(struct shape *s, uint32_t l, uint32_t owner)
{
    s->layers[l].kv_from = owner;
    s->layers[l].states = 0;
    s->layers[l].state_bytes = 0;
}

/* Every limit of p holds. */
static void check_limits(const struct plan_profile *p,
                         const struct plan_input *in, const struct plan *plan)
{
    check_cover(plan->shards, plan->n_shards, in->n_layers);
    check_cover(plan->heads, plan->n_heads, in->vocab);
    for (uint32_t i = 0; i < plan->n_shards; i++) {
        assert_true(plan_shard_bytes(in, plan->shards[i]) <= p->program_bytes);
        assert_true(plan_shard_states(in, plan->shards[i]) <= p->states);
    }
    for (uint32_t i = 0; i < plan->n_heads; i++) {
        assert_true(plan_head_bytes(in, plan->heads[i]) <= p->program_bytes);
        assert_true(plan->heads[i].last - plan->heads[i].first <= p->head_rows);
    }
    assert_true(plan->n_shards * in->n_widths +
                    plan->n_heads * in->n_head_widths <=
                p->programs);
}

/* --- profiles --- */

static void every_profile_is_read(void **state)
{
    (void)state;
    struct plan_profile all[PLAN_PROFILES_MAX];
    size_t n = 0;
    struct err e = {0};
    unit_ok(plan_profiles(all, &n, &e), &e);
    assert_true(n >= 8);
    assert_string_equal(all[0].name, "law");
    for (size_t i = 0; i < n; i++) { /* law fits every chip */
        assert_true(all[0].program_bytes <= all[i].program_bytes);
        assert_true(all[0].states <= all[i].states);
        assert_true(all[0].head_rows <= all[i].head_rows);
        assert_true(all[0].channels <= all[i].channels);
        assert_true(all[0].axis <= all[i].axis);
        assert_true(all[0].programs <= all[i].programs);
        assert_true(all[0].fold_bits >= all[i].fold_bits);
        assert_true(all[0].resident_bytes.least <= all[i].resident_bytes.least);
        struct json *j = plan_profile_json(all[i].name);
        const struct json *f = json_get(json_get(j, "figures"), "axis");
        assert_int_equal((uint32_t)json_num(json_get(f, "value")), all[i].axis);
        assert_non_null(json_str(json_get(f, "source")));
        json_free(j);
    }
}

static void what_nobody_published_is_not_known(void **state)
{
    (void)state;
    struct plan_profile p = profile("m5-max");
    assert_false(p.gbytes_per_s.known);
    struct shape s;
    struct plan_input *in = equal(&s, 4, 1000000, 2, 1000, 66);
    struct plan *plan = calloc(1, sizeof(*plan));
    struct err e = {0};
    struct buf b;
    assert_non_null(plan);
    unit_ok(plan_make(&p, in, plan, &e), &e);
    assert_false(plan_predict(&p, in, plan, 1).known);
    buf_init(&b, KIB(64));
    unit_ok(plan_explain(&p, in, plan, &b, &e), &e);
    assert_non_null(strstr(b.p, "gbytes_per_s is not known for m5-max"));
    buf_fini(&b);
    assert_true(profile("m5-pro").kv_ms.known);
    assert_false(profile("m4-max").kv_ms.known);
    free(plan);
}

static void unknown_names_are_told(void **state)
{
    (void)state;
    struct plan_profile p;
    struct err e = {0};
    assert_int_equal(plan_profile("m9", &p, &e), ERR_INVALID);
    assert_non_null(strstr(e.msg, "law"));
    assert_non_null(strstr(e.msg, "m5-max"));
    unit_ok(plan_profile(NULL, &p, &e), &e);
    assert_string_equal(p.name, "law");
}

/* --- the division --- */

static void plan_of_real_shapes(void **state)
{
    (void)state;
    static const struct {
        uint32_t n;
        uint64_t bytes;
        uint32_t states, vocab;
        uint64_t row;
        const char *profile;
        uint32_t shards, heads;
        const char *by_layers, *by_heads;
    } t[] = {
  /* gemma-3-270m int8, its vocabulary is the largest there is */
        {18, 5570560,   2, 262144, 642,  "law",    1, 8, "",                         "head_rows"             },
 /* Qwen2.5-0.5B int8: 24 layers of 14.9 MB */
        {24, 14909440,  2, 151936, 898,  "law",    2, 5, "program_bytes and states",
         "head_rows"                                                                                         },
        {24, 14909440,  2, 151936, 898,  "m4-max", 2, 3, "states",
         "head_rows and channels"                                                                            },
        {24, 14909440,  0, 151936, 898,  "m4-max", 1, 3, "",
         "head_rows and channels"                                                                            },
 /* Phi-4-mini int8 in the profile that it was measured on */
        {32, 100000000, 2, 200064, 3074, "m4-max", 2, 4,
         "program_bytes and states",                                                 "head_rows and channels"},
 /* 40 state tensors a program */
        {24, 1000,      2, 1000,   66,   "law",    2, 1, "states",                   ""                      },
        {24, 1000,      0, 1000,   66,   "law",    1, 1, "",                         ""                      },
 /* one layer a program */
        {7,  249000000, 2, 1000,   66,   "law",    7, 1, "program_bytes",            ""                      },
    };
    struct plan *plan = calloc(1, sizeof(*plan));
    assert_non_null(plan);
    for (size_t i = 0; i < countof(t); i++) {
        struct shape s;
        struct plan_profile p = profile(t[i].profile);
        struct plan_input *in =
            equal(&s, t[i].n, t[i].bytes, t[i].states, t[i].vocab, t[i].row);
        struct err e = {0};
        unit_ok(plan_make(&p, in, plan, &e), &e);
        assert_int_equal(plan->n_shards, t[i].shards);
        assert_int_equal(plan->n_heads, t[i].heads);
        check_limits(&p, in, plan);
        struct plan_bounds by = plan_bounds(&p, in, plan);
        assert_string_equal(by.layers, t[i].by_layers);
        assert_string_equal(by.heads, t[i].by_heads);
    }
    free(plan);
}

static uint32_t random_below(uint64_t *seed, uint32_t n)
{
    *seed = *seed * 6364136223846793005u + 1442695040888963407u;
    return (uint32_t)(*seed >> 33) % n;
}

struct best {
    bool found;
    uint32_t programs;
    uint64_t copies, squares;
};

/* What layers [from, to) have, by the definition: the states of each layer that
 * one of them reads, once. */
static uint32_t states_of(const struct plan_input *in, uint32_t from,
                          uint32_t to, uint64_t *copies)
{
    uint32_t states = 0;
    *copies = 0;
    for (uint32_t owner = 0; owner < to; owner++) {
        bool read = false;
        for (uint32_t l = from; l < to; l++) {
            read = read || in->layers[l].kv_from == owner;
        }
        states += read ? in->layers[owner].states : 0;
        *copies += read && owner < from ? in->layers[owner].state_bytes : 0;
    }
    return states;
}

static bool better(struct best a, struct best b)
{
    if (a.programs != b.programs) {
        return a.programs < b.programs;
    }
    return a.copies != b.copies ? a.copies < b.copies : a.squares < b.squares;
}

/* Every division of n layers: bit l of `cuts` begins a program at layer l + 1.
 * Shares nothing with plan.c but the definition of "best". */
static struct best brute_force(const struct plan_profile *p,
                               const struct plan_input *in)
{
    struct best b = {0};
    for (uint32_t cuts = 0; cuts < 1u << (in->n_layers - 1); cuts++) {
        struct best now = {.found = true};
        uint64_t bytes = 0;
        uint32_t from = 0;
        for (uint32_t l = 0; now.found && l < in->n_layers; l++) {
            bytes += in->layers[l].bytes;
            if ((cuts >> l & 1) != 0 || l + 1 == in->n_layers) {
                uint64_t copies = 0;
                uint32_t states = states_of(in, from, l + 1, &copies);
                now.found = bytes <= p->program_bytes && states <= p->states;
                now.copies += copies;
                now.squares += bytes * bytes;
                now.programs++;
                bytes = 0;
                from = l + 1;
            }
        }
        if (now.found && (!b.found || better(now, b))) {
            b = now;
        }
    }
    return b;
}

/* A random model, and a profile of which some refuse it. */
static void random_case(uint64_t *seed, struct shape *s, struct plan_profile *p)
{
    uint32_t n = 1 + random_below(seed, LAYERS_MAX);
    equal(s, n, 1, 2, 700, 1);
    for (uint32_t l = 0; l < n; l++) {
        s->layers[l].bytes = 1 + random_below(seed, 100);
        s->layers[l].states = random_below(seed, 4);
        s->layers[l].state_bytes = random_below(seed, 50);
    }
    uint32_t shared = random_below(seed, 3) == 0 ? random_below(seed, n) : 0;
    for (uint32_t l = n - shared; l < n; l++) {
        share(s, l, random_below(seed, n - shared));
    }
    *p = profile("law");
    p->program_bytes = 64 + random_below(seed, 300);
    p->states = 2 + random_below(seed, 12);
    p->programs = UINT32_MAX;
}

static void no_division_is_better(void **state)
{
    (void)state;
    uint64_t seed = 7;
    unsigned refused = 0;
    unsigned cut = 0;
    unsigned copied = 0;
    struct plan *plan = calloc(1, sizeof(*plan));
    assert_non_null(plan);
    for (int i = 0; i < 3000; i++) {
        struct shape s;
        struct plan_profile p;
        struct err e = {0};
        random_case(&seed, &s, &p);
        struct best want = brute_force(&p, &s.in);
        bool made = plan_make(&p, &s.in, plan, &e) == 0;
        assert_int_equal(made, want.found);
        if (!made) {
            refused++;
            continue;
        }
        uint64_t squares = 0;
        uint64_t copies = 0;
        check_limits(&p, &s.in, plan);
        for (uint32_t k = 0; k < plan->n_shards; k++) {
            struct plan_range r = plan->shards[k];
            uint64_t bytes = plan_shard_bytes(&s.in, r);
            uint64_t more = 0;
            assert_int_equal(plan_shard_states(&s.in, r),
                             states_of(&s.in, r.first, r.last, &more));
            assert_int_equal(plan_shard_copies(&s.in, r), more);
            squares += bytes * bytes;
            copies += more;
        }
        copied += copies > 0;
        assert_int_equal(plan->n_shards, want.programs);
        assert_int_equal(copies, want.copies);
        assert_int_equal(squares, want.squares);
        cut += plan->n_shards > 1;
    }
    assert_true(refused > 100 && cut > 1000 && copied > 300); /* all seen */
    free(plan);
}

/* More room never gives more programs or a longer step. */
static void plans_are_monotone(void **state)
{
    (void)state;
    uint64_t seed = 11;
    struct plan *small = calloc(1, sizeof(*small));
    struct plan *large = calloc(1, sizeof(*large));
    assert_true(small != NULL && large != NULL);
    unsigned seen = 0;
    for (int i = 0; i < 2000; i++) {
        struct shape s;
        struct plan_profile p;
        struct err e = {0};
        random_case(&seed, &s, &p);
        if (plan_make(&p, &s.in, small, &e) != 0) {
            continue;
        }
        struct plan_profile q = p;
        q.program_bytes += random_below(&seed, 200);
        q.states += random_below(&seed, 6);
        q.head_rows += random_below(&seed, 100);
        unit_ok(plan_make(&q, &s.in, large, &e), &e);
        assert_true(large->n_shards <= small->n_shards);
        assert_true(large->n_heads <= small->n_heads);
        struct plan_time a = plan_predict(&p, &s.in, small, 1);
        struct plan_time b = plan_predict(&q, &s.in, large, 1);
        assert_true(a.known && b.known && a.least_ms <= a.most_ms);
        assert_true(b.least_ms <= a.least_ms + 1e-9 &&
                    b.most_ms <= a.most_ms + 1e-9);
        seen++;
    }
    assert_true(seen > 1000);
    free(small);
    free(large);
}

/* --- experts --- */

/* The same input divided for the sparse form: at every router, and once more behind
 * the last experts; its time is what the other form said of it. */
static void sparse_form(const struct plan_profile *p, struct plan_input *in,
                        struct plan_time want)
{
    static const struct plan_range cuts[] = {
        {0, 3}, {3, 4}, {4, 5}, {5, 6}, {6, 6}};
    struct plan *plan = calloc(1, sizeof(*plan));
    struct err e = {0};
    assert_non_null(plan);
    in->sparse = true;
    unit_ok(plan_grouping(p, 0, in, &e), &e);
    assert_int_equal(in->group, EXPERT_GROUP);
    assert_int_equal(plan_groups(in), 4 * 4);
    unit_ok(plan_make(p, in, plan, &e), &e);
    assert_int_equal(plan->n_shards, countof(cuts));
    uint64_t programs = 0;
    for (size_t i = 0; i < countof(cuts); i++) {
        assert_int_equal(plan->shards[i].first, cuts[i].first);
        assert_int_equal(plan->shards[i].last, cuts[i].last);
        programs += plan_shard_bytes(in, plan->shards[i]);
    }
    assert_int_equal(plan_shard_bytes(in, plan->shards[0]), 29000000);
    assert_int_equal(plan_shard_bytes(in, plan->shards[1]), 10000000);
    assert_int_equal(plan_shard_bytes(in, plan->shards[4]), 1000000);
    assert_int_equal(programs, 60000000);
    assert_int_equal(plan_layers_bytes(in), 60000000 + 4 * 96000000);
    assert_string_equal(plan_bounds(p, in, plan).layers, PLAN_BY_EXPERTS);
    struct plan_time t = plan_predict(p, in, plan, 1);
    assert_true(fabs(t.least_ms - want.least_ms) < 1e-6);
    assert_true(fabs(t.most_ms - want.most_ms) < 1e-6);
    assert_false(plan_predict(p, in, plan, 4).known); /* which they choose is not */
    assert_int_equal(plan_forms(p, in, plan).dense_runs, 1);
    struct plan_profile small = *p;
    small.program_bytes = 10000000;
    unit_ok(plan_grouping(&small, 0, in, &e), &e);
    assert_int_equal(in->group, 3); /* as many as such a program has */
    assert_int_equal(plan_grouping(&small, 4, in, &e), ERR_CONVERT);
    assert_non_null(strstr(e.msg, "program_bytes"));
    assert_int_equal(plan_grouping(p, MIL_FUNCTIONS_MAX, in, &e), ERR_INVALID);
    in->sparse = false;
    free(plan);
}

/* The sparse form is chosen where the figures leave no doubt. */
static void sparse_where_it_is_faster(void **state)
{
    (void)state;
    struct shape s;
    struct plan_profile p = profile("m4");
    struct plan *plan = calloc(1, sizeof(*plan));
    struct err e = {0};
    struct plan_input *in = equal(&s, 2, 10000000, 2, 64, 64);
    assert_non_null(plan);
    s.layers[1].bytes += 1800000000;
    s.layers[1].expert_bytes = 1800000000;
    s.layers[1].experts = 4;
    s.layers[1].top = 1;
    s.layers[1].one_bytes = 450000000;
    p.program_bytes = 2000000000;
    p.efficiency = (struct plan_span){true, 1, 1};
    unit_ok(plan_make(&p, in, plan, &e), &e);
    struct plan_forms f = plan_forms(&p, in, plan);
    assert_true(f.dense.known && f.sparse.known);
    assert_true(plan_experts(&p, in, plan).loads);
    assert_int_equal(plan_wants_sparse(&p, in, plan),
                     f.sparse.most_ms < f.dense.least_ms);
    assert_true(plan_wants_sparse(&p, in, plan)); /* a quarter of the bytes */
    s.layers[1].top = 4; /* it saves nothing */
    assert_false(plan_wants_sparse(&p, in, plan));
    s.layers[1].top = 1;
    p.programs = 8; /* the experts alone are as many, at two widths */
    assert_false(plan_wants_sparse(&p, in, plan));
    free(plan);
}

/* Four layers of 10 MB beside 96 MB of 32 experts, of which a token takes 4. */
static void both_forms_of_experts_are_predicted(void **state)
{
    (void)state;
    struct shape s;
    struct plan_profile p = profile("m4");
    struct plan *plan = calloc(1, sizeof(*plan));
    struct err e = {0};
    struct buf b;
    struct plan_input *in = equal(&s, 6, 10000000, 2, 64, 64);
    assert_non_null(plan);
    for (uint32_t l = 2; l < 6; l++) {
        s.layers[l].bytes += 96000000;
        s.layers[l].expert_bytes = 96000000;
        s.layers[l].one_bytes = 3000000;
        s.layers[l].behind_bytes = 1000000;
        s.layers[l].experts = 32;
        s.layers[l].top = 4;
    }
    unit_ok(plan_make(&p, in, plan, &e), &e);
    assert_int_equal(plan->n_shards, 1);
    struct plan_experts x = plan_experts(&p, in, plan);
    assert_int_equal(x.layers, 4);
    assert_int_equal(x.bytes, 4 * 96000000);
    assert_int_equal(x.taken, 4 * 12000000);
    assert_int_equal(x.runs, 5 + 4 * 4); /* in place of one */
    assert_int_equal(x.functions, 4 * 32 * in->n_widths);
    assert_false(x.loads); /* as many as no process has */
    assert_false(plan_wants_sparse(&p, in, plan));
    struct plan_time dense = plan_forms(&p, in, plan).dense;
    struct plan_time sparse = plan_forms(&p, in, plan).sparse;
    assert_true(dense.known && sparse.known);
    assert_int_equal(plan_forms(&p, in, plan).dense_runs, 1);
    assert_int_equal(plan_forms(&p, in, plan).sparse_runs, x.runs);
    assert_true(dense.least_ms == plan_predict(&p, in, plan, 1).least_ms);
    double fewer = 4 * 84000000 / (p.gbytes_per_s.most * 1e6);
    double want = dense.least_ms - fewer + 20 * p.boundary_ms.least;
    assert_true(fabs(sparse.least_ms - want) < 1e-6);
    fewer = 4 * 84000000 /
            (p.gbytes_per_s.least * p.efficiency.least * 1e6);
    want = dense.most_ms - fewer +
           20 * (p.boundary_ms.most + p.program_ms.most);
    assert_true(fabs(sparse.most_ms - want) < 1e-6);
    buf_init(&b, KIB(64));
    unit_ok(plan_explain(&p, in, plan, &b, &e), &e);
    assert_non_null(strstr(b.p, "experts in 4 layers, 384.0 MB, in dense form; "
                                "a token takes 48.0 MB"));
    assert_non_null(strstr(b.p, "21 predictions of layers in place of 1"));
    assert_non_null(strstr(b.p, "functions of experts stayed loaded"));
    buf_fini(&b);
    sparse_form(&p, in, sparse);
    s.layers[3].bytes = 251000000; /* one program, where no chip has to load it */
    p = profile("cpu");
    unit_ok(plan_make(&p, in, plan, &e), &e);
    assert_int_equal(plan->n_shards, 3); /* 126, 251 and 212 MB */
    in = equal(&s, 6, 10000000, 2, 64, 64);
    assert_int_equal(plan_experts(&p, in, plan).runs, 0);
    free(plan);
}

/* --- refusals --- */

static void refuses(const struct plan_profile *p, const struct plan_input *in,
                    const char *limit, const char *where)
{
    struct plan *plan = calloc(1, sizeof(*plan));
    struct err e = {0};
    assert_non_null(plan);
    assert_int_equal(plan_make(p, in, plan, &e), ERR_CONVERT);
    if (strstr(e.msg, limit) == NULL || strstr(e.msg, where) == NULL ||
        strstr(e.msg, p->name) == NULL) {
        fail_msg("'%s' does not name %s, %s and %s", e.msg, limit, where,
                 p->name);
    }
    free(plan);
}

static void refusals_name_limit_and_layer(void **state)
{
    (void)state;
    struct shape s;
    struct plan_profile p = profile("law");
    struct plan_input *in = equal(&s, 20, 1000, 2, 100, 66);
    s.layers[7].bytes = 251000000;
    refuses(&p, in, "program_bytes 250000000", "layer 7 has 251000000");
    in = equal(&s, 20, 1000, 2, 100, 66);
    s.layers[3].states = 41;
    refuses(&p, in, "states 40", "layer 3 has 41");
    in = equal(&s, 20, 1000, 2, 100, 66);
    s.layers[9].channels = 65537;
    refuses(&p, in, "channels 65536", "layer 9 has 65537");
    in = equal(&s, 20, 1000, 2, 100, 66);
    in->context = 20000;
    refuses(&p, in, "axis 16384", "20000");
    in = equal(&s, 20, 1000, 40, 100, 66); /* a copy counts as a state */
    share(&s, 9, 4);
    s.layers[4].states = 41;
    refuses(&p, in, "states 40", "layer 4 has 41");
    in = equal(&s, 62, 240000000, 2, 100, 66);
    refuses(&p, in, "programs 121", "63 programs");
    in = equal(&s, 2, 1000, 2, 100, 4000000);
    refuses(&p, in, "program_bytes 250000000", "64 rows of the head");
}

/* Layers of `first` whose keys the last of `n` read: of two, as E models have
 * them. *in: bytes of an own layer, of one that reads. */
static void e_model(struct shape *s, uint32_t n, uint32_t first, uint64_t own,
                    uint64_t reads, uint32_t every, uint64_t local,
                    uint64_t global)
{
    equal(s, n, own, 2, 262144, 1538);
    for (uint32_t l = 0; l < n; l++) {
        bool is_global = (l + 1) % every == 0;
        s->layers[l].state_bytes = is_global ? global : local;
        if (l >= first) {
            share(s, l, is_global ? first - 1 : first - 2);
            s->layers[l].bytes = reads;
        }
    }
}

/* The models that people have: Gemma 4 E2B and E4B as int8, by the default
 * profile. What cannot stand in one program is divided anywhere. */
static void shared_keys_go_from_program_to_program(void **state)
{
    (void)state;
    static const struct {
        const char *name;
        uint32_t n, first, every, programs;
        uint64_t own, reads, most;
    } t[] = {
  /* d_model 1536, heads 8, d_ff 6144, then 12288 */
        {"E2B", 35, 15, 5, 9,  36500000, 64500000,  245000000},
 /* d_model 2560, heads 8, d_ff 10240 */
        {"E4B", 42, 24, 6, 21, 91500000, 90200000,  245000000},
    };
    struct plan_profile p = profile("law");
    struct plan *plan = calloc(1, sizeof(*plan));
    assert_non_null(plan);
    for (size_t i = 0; i < countof(t); i++) {
        struct shape s;
        struct err e = {0};
        struct buf b;
        uint64_t copies = 0;
        e_model(&s, t[i].n, t[i].first, t[i].own, t[i].reads, t[i].every,
                4096 * 256 * 4, 4096 * 512 * 4);
        unit_ok(plan_make(&p, &s.in, plan, &e), &e);
        check_limits(&p, &s.in, plan);
        assert_int_equal(plan->n_shards, t[i].programs);
        for (uint32_t k = 0; k < plan->n_shards; k++) {
            copies += plan_shard_copies(&s.in, plan->shards[k]);
            assert_true(plan_shard_bytes(&s.in, plan->shards[k]) <= t[i].most);
        }
        assert_true(copies > 0);
        buf_init(&b, KIB(64));
        unit_ok(plan_explain(&p, &s.in, plan, &b, &e), &e);
        assert_non_null(strstr(b.p, "take the keys and values of layers in "
                                    "earlier ones"));
        buf_fini(&b);
    }
    free(plan);
}

static void programs_that_do_not_stay_are_told(void **state)
{
    (void)state;
    struct shape s;
    struct plan_profile p = profile("m4-max");
    struct plan *plan = calloc(1, sizeof(*plan));
    struct err e = {0};
    static const struct {
        uint64_t bytes;
        enum plan_fit fit;
        bool known;
    } t[] = {
        {29000000,  PLAN_FITS,    true }, /* 32 layers of them: 0.9 GB */
        {100000000, PLAN_EDGE,    true }, /* Phi-4-mini, which ran */
        {220000000, PLAN_TOO_BIG, false},
    };
    assert_non_null(plan);
    for (size_t i = 0; i < countof(t); i++) {
        struct plan_input *in = equal(&s, 32, t[i].bytes, 2, 1000, 3074);
        unit_ok(plan_make(&p, in, plan, &e), &e);
        assert_int_equal(plan_fit(&p, in, plan), t[i].fit);
        assert_int_equal(plan_predict(&p, in, plan, 1).known, t[i].known);
    }
    /* M1 keeps int8 as fp16: the same layers are twice as much there */
    struct plan_input *in = equal(&s, 32, 50000000, 0, 64, 64);
    struct plan_profile m1 = profile("m1");
    unit_ok(plan_make(&m1, in, plan, &e), &e);
    assert_int_equal(plan_resident_bytes(&m1, in, plan),
                     2 * (32ull * 50000000 + 64 * 64));
    unit_ok(plan_make(&p, in, plan, &e), &e);
    assert_int_equal(plan_resident_bytes(&p, in, plan),
                     32ull * 50000000 + 64 * 64);
    free(plan);
}

/* --- predictions --- */

/* What the public record measured lies in the span that is predicted; the
 * figures are those of its shapes. */
static void the_record_is_in_the_span(void **state)
{
    (void)state;
    static const struct {
        const char *profile;
        uint32_t layers;
        uint64_t bytes; /* of a layer */
        uint32_t vocab;
        uint64_t row;
        unsigned bits;
        uint32_t context;
        double tok_s;
    } t[] = {
  /* ane-book: Phi-4-mini int8, 53.0 ms of layers and 5.1 of head */
        {"m4-max", 32, 100000000, 200064, 3074, 8,  1024, 17.2},
 /* ane-book: Qwen2.5-0.5B int8 */
        {"m4-max", 24, 14909440,  151936, 898,  8,  1024, 160 },
 /* cadamcat: Qwen3-4B fp16 with a graph of about 500 positions */
        {"m5-pro", 36, 201700000, 151936, 5120, 16, 512,  15.0},
    };
    struct plan *plan = calloc(1, sizeof(*plan));
    assert_non_null(plan);
    for (size_t i = 0; i < countof(t); i++) {
        struct shape s;
        struct plan_profile p = profile(t[i].profile);
        struct err e = {0};
        struct plan_input *in =
            equal(&s, t[i].layers, t[i].bytes, 2, t[i].vocab, t[i].row);
        in->bits = t[i].bits;
        in->context = t[i].context;
        unit_ok(plan_make(&p, in, plan, &e), &e);
        struct plan_time x = plan_predict(&p, in, plan, 1);
        double ms = 1000 / t[i].tok_s;
        assert_true(x.known);
        if (ms < x.least_ms * 0.9 || ms > x.most_ms) {
            fail_msg("%s: %.1f ms measured, %.1f to %.1f predicted",
                     t[i].profile, ms, x.least_ms, x.most_ms);
        }
    }
    free(plan);
}

static void a_step_is_the_sum_that_it_says(void **state)
{
    (void)state;
    struct shape s;
    struct plan *plan = calloc(1, sizeof(*plan));
    struct err e = {0};
    struct plan_input *in = equal(&s, 4, 250000000, 2, 64, 1000000);
    struct plan_profile p = {
        .name = "x",
        .program_bytes = 500000000,
        .states = 100,
        .head_rows = 64,
        .channels = 1000,
        .axis = 4096,
        .programs = 100,
        .gbytes_per_s = {true, 100,  200},
        .efficiency = {true, 0.5,  1  },
        .boundary_ms = {true, 0.25, 0.5},
        .program_ms = {true, 1,    2  },
        .rows = 4,
        .rows_factor = {true, 1,    1.5},
    };
    assert_non_null(plan);
    unit_ok(plan_make(&p, in, plan, &e), &e);
    assert_int_equal(plan->n_shards, 2);
    struct plan_time t = plan_predict(&p, in, plan, 1);
    /* 1 GB of layers, 64 MB of head, three programs, two of layers */
    assert_true(fabs(t.least_ms - (5 + 0.32 + 0.75)) < 1e-9);
    assert_true(fabs(t.most_ms - (20 + 0.64 + 1.5 + 4)) < 1e-9);
    struct plan_time four = plan_predict(&p, in, plan, 4);
    assert_true(fabs(four.most_ms - 1.5 * t.most_ms) < 1e-9);
    assert_false(plan_predict(&p, in, plan, 5).known); /* nobody measured */
    p.kv_ms = (struct plan_span){true, 0.5, 1};
    t = plan_predict(&p, in, plan, 1); /* 4 layers, 4096 positions */
    assert_true(fabs(t.least_ms - (5 + 0.32 + 0.75 + 8)) < 1e-9);
    free(plan);
}

int main(void)
{
    const struct CMUnitTest t[] = {
        cmocka_unit_test(every_profile_is_read),
        cmocka_unit_test(what_nobody_published_is_not_known),
        cmocka_unit_test(unknown_names_are_told),
        cmocka_unit_test(plan_of_real_shapes),
        cmocka_unit_test(no_division_is_better),
        cmocka_unit_test(plans_are_monotone),
        cmocka_unit_test(both_forms_of_experts_are_predicted),
        cmocka_unit_test(sparse_where_it_is_faster),
        cmocka_unit_test(refusals_name_limit_and_layer),
        cmocka_unit_test(shared_keys_go_from_program_to_program),
        cmocka_unit_test(programs_that_do_not_stay_are_told),
        cmocka_unit_test(the_record_is_in_the_span),
        cmocka_unit_test(a_step_is_the_sum_that_it_says),
    };
    return cmocka_run_group_tests(t, NULL, NULL);
}
