#!/usr/bin/env python3
"""Fail when a man page and the program it is about name different commands or options, or a document lacks a family.

usage: manpages.py TOP ANED ANECTL. What the programs print with --help and --print-config is the truth.
"""
import pathlib
import re
import subprocess
import sys

OPTION = re.compile(r"^  (?:-(\w), )?--([a-z][a-z-]*)", re.M)  # in a --help
COMMAND = re.compile(r"^  ([a-z]+) ", re.M)
FLAG = re.compile(r"\bFl (-?[A-Za-z][\w-]*)")  # in a page: `Fl -name` is --name, `Fl n` is -n
GENERAL = {"-help", "h", "-version", "V", "-json", "-socket", "-url", "-key-file"}  # told once, before the commands


def says(*command) -> str:
    return subprocess.run(command, check=True, capture_output=True, text=True, stdin=subprocess.DEVNULL).stdout


def flags(text: str) -> set:
    """Options of a --help, as a page writes them."""
    usage = re.findall(r"-(-[a-z][a-z-]*)", text.split("\n\n")[0])
    return {f for letter, name in OPTION.findall(text) for f in ("-" + name, letter) if f} | set(usage)


def entries(page: str, commands: list) -> dict:
    """Command -> its part of the page; of several that share an item, each has it."""
    found = {}
    here = []
    for line in page.split("\n"):
        if line.startswith(".Sh"):
            here = []
        item = re.match(r"\.It Cm (.*)", line)
        names = re.findall(r"(?:^|, Cm )([a-z]+)", item.group(1)) if item else []
        if names and set(names) <= set(commands):
            here = names
        for name in here:
            found[name] = found.get(name, "") + line + "\n"
    for name, text in found.items():  # "Options as for run"
        for other in re.findall(r"[Aa]s for\n\.Cm (\w+)", text):
            found[name] += found.get(other, "")
    return found


def check_commands(path: pathlib.Path, exe: str) -> list:
    page = path.read_text()
    overview = says(exe, "--help")
    commands = COMMAND.findall(overview.split("\nfirst steps")[0])
    parts = entries(page, commands)
    bad = [] if commands else [f"{exe} --help names no command"]
    for name in commands:
        if name not in parts:
            bad.append(f"{path}: command {name} is missing")
            continue
        want = flags(says(exe, name, "--help"))
        have = set(FLAG.findall(parts[name]))
        bad += [f"{path}: {name}: -{f} is missing" for f in sorted(want - have - GENERAL)]
        if "s for\n.Cm" not in parts[name]:
            bad += [f"{path}: {name}: there is no -{f}" for f in sorted(have - want - GENERAL)]
    return bad


def check_conf(path: pathlib.Path, exe: str) -> list:
    """Each option stands in its section, with the help, range and default that --print-config prints."""
    page = path.read_text()
    sections = dict(re.findall(r"^\.Ss \[(\w+)\]\n(.*?)(?=^\.S[sh])", page, re.M | re.S))
    bad = []
    section, note, listed = "", [], set()
    for line in says(exe, "serve", "--print-config").split("\n"):
        if line.startswith("# "):
            note.append(line[2:])
            continue
        head = re.match(r"\[(\w+)\]", line)
        key, is_option, default = line.partition(" =")
        if head:
            section = head.group(1)
        elif is_option:
            entry = re.search(rf"^\.It Ic {key}\n(.*?)(?=^\.It|^\.El)", sections.get(section, ""), re.M | re.S)
            text = " ".join(entry.group(1).split()) if entry else ""
            bounds = note.pop() if re.match(r"-?\d+ to |one of: ", note[-1]) else ""
            wants = [" ".join(note), default.strip()]
            wants += bounds[8:].split() if bounds.startswith("one of") else [bounds]
            bad += [f"{path}: [{section}] {key}: does not say '{w}'" for w in wants if w not in text]
            listed.add((section, key))
        note = []
    for name, text in sections.items():
        for key in re.findall(r"^\.It Ic (\w+)", text, re.M):
            if (name, key) not in listed:
                bad.append(f"{path}: [{name}] {key}: there is no such option")
    return bad if listed else bad + [f"{exe} serve --print-config prints no option"]


def check_families(path: pathlib.Path, exe: str) -> list:
    """It names each architecture that `aned convert --help` lists."""
    listed = says(exe, "convert", "--help").partition("\nArchitectures:\n")[2].replace(",", " ").split()
    words = set(re.findall(r"[\w-]+", path.read_text()))
    bad = [f"{path}: architecture {name} is missing" for name in listed if name not in words]
    return bad if listed else [f"{exe} convert --help lists no architecture"]


def main() -> int:
    top, aned, anectl = pathlib.Path(sys.argv[1]), sys.argv[2], sys.argv[3]
    bad = check_commands(top / "daemon" / "aned.1", aned)
    bad += check_commands(top / "client" / "anectl.1", anectl)
    bad += check_conf(top / "conf" / "aned.conf.5", aned)
    bad += [line for doc in ("daemon/aned.1", "README.md") for line in check_families(top / doc, aned)]
    print("\n".join(bad) or "man pages: ok")
    return bool(bad)


if __name__ == "__main__":
    sys.exit(main())
