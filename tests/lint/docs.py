#!/usr/bin/env python3
"""Fail when a README names a file that is not there, or README.md is not what a newcomer should meet first.

Checked are the links of all *.md files and the words between backquotes that look like a file of the project: those with a
suffix of ours, '*' standing for any characters. A path is looked for from the file's folder, the room, and the top."""
import fnmatch
import pathlib
import re
import sys

SUFFIX = r"\.(?:c|h|m|py|md|json|proto|conf|sh|build|plist|service|socket|txt|gguf)"
WORD = re.compile(r"`([A-Za-z0-9_./*-]+(?:" + SUFFIX + r"|/))`")
LINK = re.compile(r"\]\((?!https?:)([^)#]+)\)")
# Files of a bundle, of a user's home, and a notation.
NOT_OURS = {"bundle.json", "tokenizer.gguf", "golden/"}
LINES = 120  # of README.md
ROOM_README = ["daemon", "proto", "client", "conf", "launchd", "tests", "tests/bench"]
TOP = {"meson.build", "daemon", "client", "proto", "conf", "tests", "launchd", "README.md", "LICENSE",
       "CONTRIBUTING.md", "SECURITY.md", "dev"}


def exists(top, doc, name, names):
    if "/" not in name:  # a name alone: some file or folder has it
        return any(fnmatch.fnmatch(n, name) for n in names)
    bases = [doc.parent, top, top / "daemon", top / "daemon/serve", top / "daemon/engine/cpu", top / "tests"]
    return any(next(b.glob(name), None) is not None for b in bases)


def check(top):
    bad = []
    docs = [p for p in sorted(top.rglob("*.md")) if not any(x.startswith(".") for x in p.relative_to(top).parts)]
    names = TOP | {p.name for room in TOP for p in top.joinpath(room).rglob("*")}
    for doc in docs:
        rel = doc.relative_to(top)
        if doc.name in ("NOTES.md", "OPS.md"):
            continue  # decisions name the files of their day; OPS.md is made
        text = doc.read_text()
        for name in LINK.findall(text):
            if not (doc.parent / name).exists():
                bad.append(f"{rel}: links to {name}, which is not there")
        for name in WORD.findall(text):
            if name in NOT_OURS or name.startswith(("*", "/", "HOME/")) or re.search("[A-Z]{4}", name.split("/")[-1].split(".")[0]):
                continue
            if not exists(top, doc, name.rstrip("/"), names):
                bad.append(f"{rel}: `{name}` is not there")
    readme = (top / "README.md").read_text().splitlines()
    if len(readme) > LINES:
        bad.append(f"README.md: {len(readme)} lines, more than {LINES}")
    first = [line.split()[0:2] for line in readme if line.startswith("    ")][:2]
    if first != [["./dev", "demo"], ["./dev", "test"]]:
        bad.append("README.md does not open with ./dev demo and ./dev test")
    for room in ROOM_README:
        if not (top / room / "README.md").exists():
            bad.append(f"{room} has no README.md")
        elif room != "tests/bench" and f"({room}/README.md)" not in "\n".join(readme):
            bad.append(f"README.md does not lead to {room}/README.md")
    for p in top.iterdir():
        if not p.name.startswith(".") and p.name not in TOP:
            bad.append(f"{p.name}: not one of the agreed rooms")
    return bad


def main():
    bad = check(pathlib.Path(sys.argv[1]))
    print("\n".join(bad) or "docs: ok")
    return bool(bad)


if __name__ == "__main__":
    sys.exit(main())
