"""An evaluator of what aned uses of Apple's sandbox profile language: the last rule that matches an operation decides.

It refuses what it does not know, so that a misspelt word, which macOS would refuse when a child starts, is found here."""
import re

OPERATIONS = {
    "default", "file-read*", "file-read-data", "file-read-metadata", "file-write*", "file-write-create", "file-write-data",
    "file-write-unlink", "iokit-open", "mach-lookup", "network*", "network-bind", "network-outbound", "process-exec*",
    "process-exec", "process-fork", "signal", "sysctl-read",
}
FILTERS = {"literal", "subpath", "global-name", "target"}


def parse(text):
    """The expressions as nested lists; strings keep their quotes."""
    stack = [[]]
    for token in re.findall(r'"[^"]*"|[()]|[^\s()"]+', text):
        if token == "(":
            stack.append([])
        elif token == ")":
            done = stack.pop()
            if not stack:
                raise ValueError("a parenthesis too many")
            stack[-1].append(done)
        else:
            stack[-1].append(token)
    if len(stack) != 1:
        raise ValueError("a parenthesis is open")
    return stack[0]


class Profile:
    """`parameters`: the values of (param "NAME")."""

    def __init__(self, text, parameters):
        self.parameters, self.used = parameters, set()
        rows = parse(text)
        if rows[0] != ["version", "1"]:
            raise ValueError("(version 1) comes first")
        self.rules = [self._rule(row) for row in rows[1:]]
        if set(parameters) < self.used:
            raise ValueError(f"no value for {self.used - set(parameters)}")

    def _rule(self, row):
        verdict, operations = row[0], [w for w in row[1:] if isinstance(w, str)]
        filters = [(f[0], self._value(f[1])) for f in row[1:] if isinstance(f, list)]
        if verdict not in ("allow", "deny") or not operations:
            raise ValueError(f"no rule: {row}")
        unknown = set(operations) - OPERATIONS | {f for f, _ in filters} - FILTERS
        if unknown:
            raise ValueError(f"unknown: {unknown}")
        return verdict == "allow", operations, filters

    def _value(self, word):
        if isinstance(word, list):
            if word[0] != "param":
                raise ValueError(f"unknown: {word}")
            self.used.add(word[1].strip('"'))
            return self.parameters[word[1].strip('"')]
        return word.strip('"')

    def allows(self, operation, what=None) -> bool:
        verdict = None
        for allowed, operations, filters in self.rules:
            if any(covers(o, operation) for o in operations) and (not filters or any(matches(f, v, what) for f, v in filters)):
                verdict = allowed
        return bool(verdict)


def covers(pattern, operation):
    return pattern in ("default", operation) or pattern.endswith("*") and operation.startswith(pattern[:-1])


def matches(name, value, what):
    if name == "subpath":
        return what == value or str(what).startswith(value + "/")
    return what == value
