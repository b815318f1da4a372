"""What judges answers: Python's jsonschema, and the grammar of a schema without a model (walk.c)."""
import json
import re
import subprocess

import jsonschema
from jsonschema.validators import validator_for

from schemas import D2020

KEPT = ("date", "time", "date-time", "duration", "uuid", "ipv4", "ipv6", "hostname", "email", "uri")  # formats that aned writes


def validator(schema, draft):
    """By the schema's own $schema, else by `draft`."""
    kind = validator_for(schema, default=validator_for({"$schema": draft}))
    formats = jsonschema.FormatChecker(())
    formats.checkers = {f: kind.FORMAT_CHECKER.checkers[f] for f in KEPT if f in kind.FORMAT_CHECKER.checkers}
    return kind(schema, format_checker=formats)


def why_wrong(schema, text, draft=D2020):
    """None for a text of JSON that is valid; else what is wrong."""
    try:
        value = json.loads(text)
    except ValueError as e:
        return f"no JSON: {e}"
    found = next(validator(schema, draft).iter_errors(value), None)
    return found and f"{found.json_path}: {found.message}"[:300]


def refused_for(message):
    """The word that a schema was refused for, out of the error's text; None: it names none."""
    m = re.search(r"schema (?P<path>.*?): (?P<rest>.*)", message)
    if not m:
        return None
    # paths hold no blank unless a key does, words no ": "
    parts = message[message.index("schema ") + 7:].split(": ")
    return parts[1] if len(parts) > 1 else None


class Walker:
    """The program of walk.c."""

    def __init__(self, program):
        self.p = subprocess.Popen([str(program)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    def ask(self, schema, whole=(), begun=(), walks=0, seed=1):
        line = json.dumps({"schema": schema, "whole": list(whole), "begun": list(begun), "walks": walks, "seed": seed})
        self.p.stdin.write(line + "\n")
        self.p.stdin.flush()
        return json.loads(self.p.stdout.readline())

    def close(self):
        self.p.stdin.close()
        self.p.wait(timeout=30)
        self.p.stdout.close()
