#!/usr/bin/env python3
"""A scheduler as it must not be: mutate.py NAME SOURCES... OUT writes the source file that NAME is about with one thing
changed, and fails when that thing is not there (then the table below has to follow the source)."""
import pathlib
import sys

MUTANTS = {  # name: (file, what stands there once, what the mutant has instead)
    "ageing": ("order.c", "waited >= s->conf.age_us", "waited >= UINT64_MAX"),
    "fairness": ("order.c", "const struct sched_peer *pb = b->account;\n    if (a->cls",
                 "const struct sched_peer *pb = a->account;\n    if (a->cls"),
    "overtaking": ("order.c", "(!v->kept && v->cls > x->cls)", "(!v->kept && v->cls > x->cls + 1)"),
    "paused": ("form.c", "bool none = x->paused || ", "bool none = "),
    "budget": ("form.c", "double fit = (goal - base) / row;", "double fit = 2 * (goal + base) / row;"),
    "displacing": ("admit.c", "!x->stays && (int)x->cls > cls", "(int)x->cls > cls"),
    "begun": ("order.c", "x->request->stays = true;", "x->request->stays = false;"),
    "equals": ("admit.c", "!x->stays && (int)x->cls > cls", "!x->stays && (int)x->cls >= cls"),
    "youngest": ("admit.c", "x->cls >= last->cls", "x->cls > last->cls"),
    "queue": ("sched.c", "s->n_waiting + s->n_running >= s->conf.queue", "s->n_waiting + s->n_running > s->conf.queue"),
    "drafts": ("sched.c", "x->ahead = r->accepted;", "x->ahead = 0;"),
    "list_late": ("place.c", "!sched_long(s, q->n))", "!sched_long(s, q->n - 1))"),
    "list_shared": ("place.c", "q->long_list != sched_long(s, n_line)", "sched_long(s, 0)"),
    "list_drafts": ("form.c", "q->long_list ? s->conf.context : s->conf.short_max", "s->conf.context"),
    "room": ("room.c", "if (taken(s, q, keep, false) + cost > s->conf.positions) {", "if (cost > s->conf.positions) {"),
    "room_drafts": ("form.c", "end = (uint32_t)num_min(end, q->room);", "end = (uint32_t)num_min(end, s->conf.context);"),
    "room_top": ("room.c", "room_set(s, q, q->top);", "room_set(s, q, q->n);"),
    "room_wait": ("order.c", "others + need <= s->conf.positions", "2 * (others + need) <= s->conf.positions"),
    "scores_warm": ("place.c", "if (sched_scores(x)) {", "if (x->n_scored > 0) {"),
    "scores_twice": ("form.c", "sched_scores(x) && at >= x->n_scored;", "sched_scores(x);"),
    "pool_goes_on": ("place.c", "(x->reuse || x->line != NULL) && !x->pool;", "x->reuse || x->line != NULL;"),
    "pool_stays": ("place.c", "q->failed || nothing || q->pooled;", "q->failed || nothing;"),
    "pool_ends": ("form.c", "r->give = x->pool && q->computed + n == q->n;", "r->give = x->pool && n > 1 && q->computed + n == q->n;"),
    "cut_anywhere": ("place.c", "return seq_cut_at(s, q, n);", "return n;"),
    "cut_marks": ("place.c", "if (q->marks[i] <= n) {", "if (q->marks[i] <= n + 1) {"),
    "prefix": ("place.c", "while (n < max && q->tokens[n] == line[n]) {",
               "while (n < max && (q->tokens[n] == line[n] || n % 32 == 31)) {"),
}

if __name__ == "__main__":
    if sys.argv[1:] == ["--list"]:
        print(*(f"{name}:{row[0]}" for name, row in MUTANTS.items()))
        sys.exit(0)
    name, source, out = sys.argv[1:]
    text = pathlib.Path(source).read_text()
    file, old, new = MUTANTS[name]
    if pathlib.Path(source).name != file or text.count(old) != 1:
        sys.exit(f"mutant {name}: {file} has {text.count(old)} times: {old}")
    pathlib.Path(out).write_text(text.replace(old, new))
