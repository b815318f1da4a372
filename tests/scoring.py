"""How likely texts are, from the logits that `aned logits` writes: what the daemon's log-probabilities, lm_eval and `anectl
eval` are held to. Plain numpy, float64."""
import json
import pathlib
import re
import subprocess

import numpy as np

DATA = pathlib.Path(__file__).parent / "lmeval"


def log_softmax(x):
    x = x.astype(np.float64)
    top = x.max(axis=-1, keepdims=True)
    return x - top - np.log(np.exp(x - top).sum(axis=-1, keepdims=True))


def lines(name):
    return [json.loads(x) for x in (DATA / name).read_text().splitlines()]


class Reference:
    """A bundle, without any daemon."""

    def __init__(self, aned, bundle, tmp):
        self.aned, self.bundle, self.tmp = aned, pathlib.Path(bundle), tmp
        self.known = {}

    def encode(self, text, bos=False):
        r = subprocess.run([self.aned, "tokenize", self.bundle, "--special", *(["--bos"] if bos else [])], input=text.encode(),
                           capture_output=True, check=True)
        return [int(x) for x in r.stdout.split()]

    def logprobs(self, ids):
        """[n, vocab]: row i is about the token after ids[i]."""
        key = tuple(ids)
        if key not in self.known:
            np.save(self.tmp / "tokens.npy", np.array(ids, dtype=np.int32))
            subprocess.run([self.aned, "logits", self.bundle, self.tmp / "tokens.npy", self.tmp / "logits.npy"], check=True)
            self.known[key] = log_softmax(np.load(self.tmp / "logits.npy"))
        return self.known[key]

    def score(self, ids, start):
        """The sum of the log-probabilities of ids[start:], and whether each is the likeliest."""
        rows = self.logprobs(ids)[start - 1:-1]
        got = rows[np.arange(len(rows)), ids[start:]]
        return got.sum(), bool((got == rows.max(axis=-1)).all())

    def rolling(self, text, prefix, window, stride=None):
        """A text after `prefix`, in requests of window - 1 tokens: all that the first holds, then `stride` tokens at a time
        with as many before them as there is room for."""
        ids = [prefix, *self.encode(text)]
        room, done, total = window - 1, 1, 0.0
        while done < len(ids):
            end = min(len(ids), done + (room - 1 if done == 1 or stride is None else stride))
            begin = max(0, end - room)
            total += self.score(ids[begin:end], done - begin)[0]
            done = end
        return total, len(ids) - 1

    def choices(self, context, choices, bos=False):
        """[(sum, greedy)] of each choice after the context and a space."""
        before = self.encode(context.rstrip(), bos)
        return [self.score(self.encode(f"{context} {x}", bos), len(before)) for x in choices]


def words(text):
    return len(re.split(r"\s+", text))


def perplexities(sums, texts, tokens):
    """What a file's texts come to, of their log-probabilities."""
    total = sum(sums)
    n_bytes = sum(len(t.encode()) for t in texts)
    return {"loglikelihood": total, "perplexity": np.exp(-total / sum(tokens)), "word_perplexity": np.exp(-total / sum(map(words, texts))),
            "byte_perplexity": np.exp(-total / n_bytes), "bits_per_byte": -total / n_bytes / np.log(2)}


def picks(scores, choices):
    """Which choice is taken by its sum, its characters, its bytes."""
    sums = np.array([s for s, _ in scores])
    return {"acc": int(sums.argmax()), "acc_norm": int((sums / [len(c) for c in choices]).argmax()),
            "acc_bytes": int((sums / [len(c.encode()) for c in choices]).argmax())}
