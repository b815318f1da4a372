"""Mistakes planted into copies of source files. What they change is compiled again by the arm64 build's own commands, and put
before the libraries where a program is linked: no file of the project and no object of the build is touched."""
import json
import shlex
import subprocess

import machine

TOP = machine.BUILD.parents[1]


def edit(folder, path, *changes):
    """A copy of TOP/path in folder. A change is a pair: what must be there once, and what is in its place."""
    text = (TOP / path).read_text()
    for old, new in changes:
        assert text.count(old) == 1, f"{path}: '{old}' is there {text.count(old)} times: the planted mistake is out of date"
        text = text.replace(old, new)
    copy = folder / path
    copy.parent.mkdir(parents=True, exist_ok=True)
    copy.write_text(text)


def compile(folder, library, source, *flags):
    """The object of TOP/source as `library` has it, of what folder has in its place; with more flags."""
    entries = json.loads((machine.BUILD / "compile_commands.json").read_text())
    found = [e for e in entries if e["output"].startswith(library + ".p/") and
             (machine.BUILD / e["file"]).resolve() == TOP / source]
    assert len(found) == 1, (library, source)
    words = shlex.split(found[0]["command"])
    target = folder / (source.replace("/", "_") + ".o")
    words[words.index("-o") + 1] = str(target)
    if (folder / source).exists():
        words[words.index("-c") + 1] = str(folder / source)
    for dependencies in ("-MQ", "-MF"):
        del words[words.index(dependencies):words.index(dependencies) + 2]
    words.remove("-MD")
    compiler = next(i for i, w in enumerate(words) if w.endswith("clang")) + 1
    words[compiler:compiler] = [f"-I{folder}/daemon", f"-I{folder}"]
    subprocess.run([*words, *flags], cwd=machine.BUILD, check=True, capture_output=True)
    return target


def link(folder, program, *objects):
    """The program with these objects: the linker does not look in a library for what it has already."""
    r = subprocess.run(["ninja", "-t", "commands", program], cwd=machine.BUILD, check=True, capture_output=True, text=True)
    words = shlex.split(r.stdout.splitlines()[-1])
    at = words.index("-o") + 1
    assert words[at] == program
    target = folder / program.replace("/", "_")
    words[at:at + 1] = [str(target), *map(str, objects)]
    subprocess.run(words, cwd=machine.BUILD, check=True, capture_output=True)
    return target
