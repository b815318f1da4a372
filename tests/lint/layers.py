#!/usr/bin/env python3
"""Fail when a file includes what its room may not know (design 3). Rules are data."""
import pathlib
import re
import sys

# A room may include itself and the rooms listed below it.
BELOW = {
    "base": [],
    "proto": ["base"],
    "source": ["base", "proto"],
    "mil": ["base", "proto"],
    "model": ["base", "proto", "source", "mil"],
    "sched": ["base", "proto", "source", "mil", "model"],
}
BELOW["engine"] = BELOW["sched"] + ["sched"]
BELOW["convert"] = BELOW["engine"] + ["engine"]
BELOW["store"] = BELOW["convert"] + ["convert"]
BELOW["http"] = BELOW["convert"] + ["convert"]
BELOW["serve"] = BELOW["store"] + ["store", "http"]
BELOW["api"] = BELOW["serve"] + ["serve"]
BELOW["cli"] = BELOW["api"] + ["api"]
BELOW["main"] = BELOW["cli"] + ["cli"]
BELOW["client"] = ["base", "proto"]

ONLY = {  # third-party header -> rooms that may include it
    "sqlite3.h": {"store"},
    "llhttp.h": {"http", "client"},
    "cjson/cJSON.h": {"proto"},
    "cJSON.h": {"proto"},
    "protobuf-c/protobuf-c.h": {"mil", "source"},
    "pcre2.h": {"model"},
    "utf8proc.h": {"model"},
    "ini.h": {"serve"},
    "uv.h": {"store", "http", "serve", "api", "cli", "main"},
}
BANNED = re.compile(
    r"\b(strcpy|strcat|sprintf|strtok|atoi|atol|atof|gets|alloca|rand|srand|"
    r"cJSON_GetObjectItem)\s*\(")
INC = re.compile(r'^#\s*include\s+([<"])([^>"]+)[>"]', re.M)
COMMENT = re.compile(r"/\*.*?\*/|//[^\n]*", re.S)


def room_of(rel: pathlib.PurePath) -> str:
    if rel.parts[0] == "daemon":
        return rel.parts[1] if len(rel.parts) > 2 else "main"
    return rel.parts[0]


def check(root: pathlib.Path) -> list:
    bad = []
    for top in ("daemon", "client", "proto"):
        for f in sorted(root.joinpath(top).rglob("*")):
            if f.suffix not in (".c", ".h", ".m"):
                continue
            rel = f.relative_to(root)
            me = room_of(rel)
            if me not in BELOW:
                bad.append(f"{rel}: no such room in the design: {me}")
                continue
            text = f.read_text()
            for kind, inc in INC.findall(text):
                if inc in ONLY and me not in ONLY[inc]:
                    bad.append(f"{rel}: <{inc}> is not for room {me}")
                if kind != '"' or "/" not in inc:
                    continue
                room = inc.split("/")[0]
                if room != me and room not in BELOW[me]:
                    bad.append(f"{rel}: room {me} may not include {inc}")
            for m in BANNED.finditer(COMMENT.sub("", text)):
                bad.append(f"{rel}: banned call {m.group(1)}")
            if me != "main" and f.suffix == ".c" and re.search(
                    r"(?<![_\w])exit\s*\(", COMMENT.sub("", text)) and top == "daemon":
                bad.append(f"{rel}: exit() belongs to main.c")
    for room in sorted(p.name for p in root.joinpath("daemon").iterdir() if p.is_dir()):
        if room not in BELOW:
            bad.append(f"daemon/{room}: not a room of the design")
    for t in sorted(root.glob("tests/unit/*/test_*.c")):
        listed = t.parent.joinpath("meson.build").read_text()
        if f"'{t.stem[5:]}'" not in listed:
            bad.append(f"{t.relative_to(root)}: not listed in its meson.build")
    return bad


def main() -> int:
    bad = check(pathlib.Path(sys.argv[1]))
    print("\n".join(bad) or "layers: ok")
    return bool(bad)


if __name__ == "__main__":
    sys.exit(main())
