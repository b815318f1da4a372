"""A day of traffic, made up: what an editor, people who chat and programs ask of a daemon, with times.

day(seed, seconds, size) is a pure function: a list of events in the order of their times, which are seconds of the day. An
event is a dict:

  at      when it is sent (a turn of a chat: at the earliest, since its answerer must have answered the one before)
  kind    complete | chat | session
  body    fields of the request beside model and text (a chat's and a session's text depends on answers)
  prompt  of a completion: the text before the cursor
  client  what becomes of the client: {"does": "reads"}; {"does": "leaves", "s": N}, in the middle, N seconds later, because
          something else was typed; {"does": "vanishes"}, before it has sent all of it, or at once; {"does": "rests", "s": N},
          reads nothing for so long; {"does": "loses", "events": K, "s": N}, after K events, and takes the stream up again
          N seconds later

  of a chat      chat, turn: a name for what is said; parent: the turn it follows, None: the first; text: what the person says
  of a session   session: its name; do: create | append | generate | truncate | fork | delete; text; source: what a fork is of

Editors type in bursts: with each pause in typing the text before the cursor is sent, and given up when the next key comes.
The text grows, and is edited further up now and then. Chats have turns with think time, answers asked for again, turns that
go back and say something else, and are gone on with hours later. Batch work comes in heaps, as `flex`. In between are
stretches in which nobody is there.
"""
import random

NAMES = "buffer client cursor daemon engine frame index limit model offset prompt queue reader state stream token".split()
VERBS = "add check close count drop fetch find hold keep merge open parse read send skip split take trim write".split()
TALK = ("the a this that my your model prompt stream answer file daemon memory engine editor question window token is was has "
        "keeps needs writes reads finds loses ends waits why how what when slowly quickly again once never always and but or "
        "so with without before after inside").split()
EDITORS = ({"share": 0.45, "gap": (2, 7)}, {"share": 0.2, "gap": (3, 9)})  # of the day in bursts; seconds between pauses
CHATTERS = 3
BATCH_EVERY, SESSION_EVERY = 900, 1000


def rest_stretches(r, seconds):
    """Two stretches in which nobody is there, as (from, to)."""
    return [(seconds * (at := r.uniform(a, b)), seconds * (at + r.uniform(0.05, 0.08))) for a, b in ((0.3, 0.4), (0.6, 0.75))]


class Person:
    """Somebody with a clock and dice of their own; nothing said by one changes another's."""

    def __init__(self, seed, name, seconds, size, rests):
        self.r = random.Random(f"{seed} {name}")
        self.name, self.seconds, self.size, self.rests = name, seconds, size, rests
        self.now = self.r.uniform(0, min(60, seconds / 20))
        self.events = []

    def wait(self, low, high):
        """Time passes; nothing begins in a rest."""
        self.now += self.r.uniform(low, high)
        for a, b in self.rests:
            if a <= self.now < b:
                self.now = b + self.r.uniform(0, 30)
        return self.now < self.seconds

    def say(self, n):
        return " ".join(self.r.choices(TALK, k=n))

    def body(self, tokens, **more):
        return {"max_tokens": tokens, "temperature": self.r.choice((0, 0, 0.7, 1)), "seed": self.r.randrange(1 << 30), **more}

    def client(self, leaves=None):
        """What becomes of who asks; leaves: seconds until they want something else."""
        x = self.r.random()
        if x < 0.02:
            return {"does": "vanishes"}
        if leaves is not None:
            return {"does": "leaves", "s": round(leaves, 3)}
        if x < 0.06:
            return {"does": "leaves", "s": round(self.r.uniform(1, 12), 3)}
        if x < 0.16:
            return {"does": "loses", "events": self.r.randrange(1, 12), "s": round(self.r.uniform(1, 60), 3)}
        return {"does": "reads"}

    def put(self, kind, body, client, **more):
        self.events.append({"at": round(self.now, 3), "kind": kind, "body": body, "client": client, **more})


class Editor(Person):
    def __init__(self, share, gap, *args):
        super().__init__(*args)
        self.share, self.gap = share, gap
        self.lines, self.start = [], 0

    def line(self):
        """A line of code; some are nearly those of a while ago, as in code."""
        if len(self.lines) > 6 and self.r.random() < 0.35:
            return self.r.choice(self.lines[-12:]).replace(self.r.choice(NAMES), self.r.choice(NAMES))
        verb, a, b = self.r.choice(VERBS), self.r.choice(NAMES), self.r.choice(NAMES)
        return self.r.choice((f"def {verb}_{a}({b}, n):", f"    {a} = {b}.{verb}(n)", f"    if {a} is None:",
                              f"        return {verb}_{b}({a}, {self.r.randrange(100)})", f"    # {verb} the {a} of a {b}",
                              f"    for {a} in {b}:"))

    def text(self):
        """What is sent: from a place that moves seldom, so that a text begins as the one before."""
        whole = "\n".join(self.lines)
        if len(whole) - self.start > self.size.prefix:
            self.start = len(whole) - self.size.prefix // 2
        return whole[self.start:]

    def change_above(self):
        """The cursor goes up, something is renamed, and it comes back."""
        i = max(0, len(self.lines) - self.r.randrange(3, 14))
        self.lines[i] = self.lines[i].replace(self.r.choice(NAMES), self.r.choice(NAMES)) + "  # changed"

    def burst(self):
        """Lines are typed; each pause asks, and the next key gives it up."""
        for _ in range(self.r.randrange(4, 20)):
            whole, typed = self.line(), 0
            self.lines.append("")
            while typed < len(whole):
                typed = min(len(whole), typed + self.r.randrange(3, 16))
                self.lines[-1] = whole[:typed]
                self.put("complete", self.body(self.size.complete, stop=["\n\n"], stream=True), self.client(leaves=0),
                         prompt=self.text())
                asked, e = self.now, self.events[-1]
                awake = self.wait(*self.gap)
                if e["client"]["does"] == "leaves":
                    e["client"]["s"] = round(self.now - asked, 3)
                if not awake:
                    return False
            if self.r.random() < 0.08:
                self.change_above()
        more = self.body(self.size.complete * 2, stream=True)
        if self.r.random() < 0.5:  # a block is written anew: most of it stays
            more["prediction"] = {"type": "content", "content": "\n".join(self.lines[-4:])}
        self.put("complete", more, self.client(), prompt=self.text() + "\n")  # and looked at
        return True

    def live(self):
        while True:
            began = self.now
            if not self.burst():
                return
            typed = self.now - began
            if self.r.random() < 0.2:
                self.lines, self.start = [], 0  # another file
            if not self.wait(0.5 * typed * (1 - self.share) / self.share, 1.5 * typed * (1 - self.share) / self.share):
                return


class Chatter(Person):
    rested = 0

    def turn(self, chat, k, parent):
        n = self.r.randrange(*self.size.answer)
        stream = self.r.random() < 0.9
        body = self.body(n, stream=True) if stream else self.body(n)
        client = self.client() if stream else {"does": "reads"}
        if stream and self.r.random() < 0.04:  # long, with much beside the text, and not looked at for a while
            body.update(max_tokens=self.size.long, n=self.size.choices, rich=True)
            self.rested += 1
            client = {"does": "rests", "s": 100000 if self.rested % 2 else 60}  # for good, or for a minute
        text = self.say(self.r.randrange(*self.size.words)) + "?"
        self.put("chat", body, client, chat=chat, turn=k, parent=parent, text=text)

    def talk(self, c):
        """Some turns of chat c; False: the day is over."""
        for k in range(c["next"], c["next"] + self.r.randrange(2, self.size.turns + 1)):
            c["next"] = k + 1
            self.turn(c["chat"], k, c["turns"][-1] if c["turns"] else None)
            x = self.r.random()
            if c["turns"] and x < 0.15:  # the same again, with other dice
                again = dict(self.events[-1], body=dict(self.events[-1]["body"], seed=self.r.randrange(1 << 30)))
                if not self.wait(15, 60):
                    return False
                self.events.append(dict(again, at=round(self.now, 3), turn=f"{k} again"))
            if len(c["turns"]) > 1 and x > 0.9:  # back, and something else
                c["turns"].pop()
            else:
                c["turns"].append(k)
            if not self.wait(20, 120):
                return False
        return True

    def live(self):
        chats = []
        while self.wait(20, 240):
            if len(chats) < 2 or self.r.random() < 0.6:
                chats.append({"chat": f"{self.name} {len(chats)}", "turns": [], "next": 0})
                c = chats[-1]
            else:
                c = self.r.choice(chats[:-1])  # one of earlier is gone on with
            if not self.talk(c):
                return


class Batch(Person):
    def live(self):
        text = self.say(self.size.words[1] * 2)
        while self.wait(BATCH_EVERY * 0.5, BATCH_EVERY * 1.5):
            for _ in range(self.r.randrange(3, 8)):
                self.put("complete", self.body(self.r.randrange(*self.size.answer), service_tier="flex"), {"does": "reads"},
                         prompt=f"{text}: {self.say(self.r.randrange(*self.size.words))}")


class Program(Person):
    """Something that keeps texts by name."""

    def op(self, do, session, low=1, high=30, **more):
        self.put("session", more.pop("body", {}), more.pop("client", {"does": "reads"}), session=session, do=do, **more)
        return self.wait(low, high)

    def live(self):
        n = 0
        while self.wait(SESSION_EVERY * 0.3, SESSION_EVERY):
            a, b = f"{n} a", f"{n} b"
            n += 1
            steps = [("create", a, {"text": self.say(self.size.words[1] * 2)}), ("generate", a, {}),
                     ("append", a, {"text": " " + self.say(self.size.words[0])}), ("generate", a, {}),
                     ("fork", b, {"source": a}), ("truncate", a, {}), ("generate", a, {}), ("generate", b, {}),
                     ("delete", a, {}), ("delete", b, {})]
            for do, name, more in steps:
                if do == "generate":
                    more["body"] = self.body(self.size.complete, stream=True)
                if not self.op(do, name, **more):
                    return


def day(seed, seconds, size):
    """The events of a day of so many seconds; size: see Size in day.py."""
    rests = rest_stretches(random.Random(f"{seed} rests"), seconds)
    people = [Editor(e["share"], e["gap"], seed, f"editor {i}", seconds, size, rests) for i, e in enumerate(EDITORS)]
    people += [Chatter(seed, f"chatter {i}", seconds, size, rests) for i in range(CHATTERS)]
    people += [Batch(seed, "batch", seconds, size, rests), Program(seed, "program", seconds, size, rests)]
    for p in people:
        p.live()
    return sorted((e for p in people for e in p.events), key=lambda e: e["at"])
