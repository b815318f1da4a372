#!/usr/bin/env python3
"""Prove every declaration of tests/coreml/include against two generated sources of Apple's own headers.

    prove.py [--include DIR]     what it needs fetch.py fetches

PyObjC's metadata gives C types, values, availability; objc2's crates give nullability, ownership and types again. A declaration
that differs from either, or that a source lacks without a reason in exceptions.py, is a finding; findings make it exit 1."""
import argparse
import dataclasses
import pathlib
import re
import sys

import ctype
import exceptions
import fetch
import objc2
import ours
import pyobjc
from ctype import NOT_STATED, same_c, same_rust


@dataclasses.dataclass
class Finding:
    name: str
    question: str
    text: str
    where: str

    def __str__(self):
        return f"{self.where}: {self.name}: {self.question}: {self.text}"


class Proof:
    def __init__(self, headers: ours.Headers, metadata: pyobjc.PyObjC, crates: objc2.Objc2 | None, system: set):
        """crates: None where they cannot be had; then half the proof is left out, and said so. system: libSystem's symbols."""
        self.headers, self.metadata, self.crates, self.system = headers, metadata, crates, system
        self.findings, self.used, self.checked = [], set(), 0
        self.typedefs = {d.name: d.type for d in headers.decls if isinstance(d, ours.Typedef)}
        self.enums = {d.name: d for d in headers.decls if isinstance(d, ours.Enum)}

    def ask(self, decl, name: str, question: str, good: bool, text: str) -> None:
        """One question about one declaration. An exception answers it, too."""
        self.checked += 1
        if good:
            return
        if (name, question) in exceptions.EXCEPTIONS:
            self.used.add((name, question))
        else:
            self.findings.append(Finding(name, question, text, decl.where))

    def run(self) -> None:
        for d in self.headers.decls:
            if d.where.split(":")[0] not in exceptions.SYMBOLS_ONLY:
                getattr(self, type(d).__name__.lower())(d)
            elif isinstance(d, (ours.Function, ours.Variable)):
                self.ask(d, d.name, "libSystem", "_" + d.name in self.system, "no such symbol")
        for key, reason in exceptions.EXCEPTIONS.items():
            needs_crates = key[1].startswith("objc2")
            if key not in self.used and (self.crates or not needs_crates):
                self.findings.append(Finding(key[0], key[1], f"an exception that nothing needs: {reason}", "exceptions.py"))

    # --- questions that several kinds of declarations share -------------------------------------------------------------------

    def c_type(self, d, name: str, part: str, mine: ctype.Type, theirs: ctype.Type) -> None:
        self.ask(d, name, f"PyObjC {part}", same_c(mine, theirs), f"ours {mine}, PyObjC {theirs}")

    def rust_type(self, d, name: str, part: str, mine: ctype.Type, theirs: ctype.Type) -> None:
        self.ask(d, name, f"objc2 {part}", same_rust(mine, theirs, self.typedefs), f"ours {mine}, objc2 {theirs}")

    def said(self, d, name: str, part: str, t: ctype.Type) -> None:
        """Ours says of each pointer whether it may be nil: a header without that would agree with everything."""
        pointer = t.kind in ("pointer", "block") or t.kind == "name" and t.name in ("id", "instancetype", "Class")
        self.ask(d, name, f"nullability of {part}", not pointer or t.null != NOT_STATED, f"ours {t} does not state it")

    def since(self, d, name: str, theirs: str) -> None:
        self.ask(d, name, "introduced", d.introduced == theirs, f"ours {d.introduced or 'always'}, PyObjC {theirs or 'always'}")

    def arguments(self, d, name: str, mine: list, theirs: list, compare, source: str) -> None:
        self.ask(d, name, f"{source} arguments", len(mine) == len(theirs), f"ours {len(mine)}, {source} {len(theirs)}")
        for i, (a, b) in enumerate(zip(mine, theirs), 1):
            compare(d, name, f"argument {i}", a, b)

    # --- kinds -----------------------------------------------------------------------------------------------------------------

    def container(self, d) -> None:
        kind = "formal_protocols" if d.protocol else "classes"
        entry = self.metadata.entry(kind, d.name)
        self.ask(d, d.name, "PyObjC", entry is not None, "no such class or protocol")
        if entry is None:
            return
        if not d.protocol:
            self.ask(d, d.name, "superclass", entry.get("super") == d.super, f"ours {d.super}, PyObjC {entry.get('super')}")
            self.ask(d, d.name, "subclassing", bool(entry.get("final")) == d.restricted, "ours and PyObjC differ on final")
        self.since(d, d.name, self.metadata.since(d.name, d.protocol))
        inherited = set(entry.get("implements" if d.protocol else "protocols", []))
        for p in d.protocols:
            self.ask(d, f"{d.name} <{p}>", "PyObjC", p in inherited, "does not conform")
        if self.crates:
            self.rust_container(d)
        for m in d.methods:
            if not m.accessor:
                self.method(d, m)
        for p in d.properties:
            self.property(d, p)

    def rust_container(self, d) -> None:
        if d.protocol:
            known = d.name in self.crates.protocols
            supers = self.crates.protocols.get(d.name, [])
            conforms = set(supers)
        else:
            known = d.name in self.crates.classes
            supers = self.crates.classes.get(d.name, [""])
            conforms = self.crates.conforms.get(d.name, set())
            if known:
                self.ask(d, d.name, "objc2 superclass", supers[0] == d.super, f"ours {d.super}, objc2 {supers[0]}")
        self.ask(d, d.name, "objc2", known, "no such class or protocol")
        for p in d.protocols if known else []:
            self.ask(d, f"{d.name} <{p}>", "objc2", p in conforms, "does not conform")

    def method(self, owner, m) -> None:
        name = f"{'+' if m.is_class else '-'}[{owner.name} {m.name}]"
        self.said(m, name, "the result", m.result)
        for i, a in enumerate(m.args, 1):
            self.said(m, name, f"argument {i}", a)
        theirs = self.metadata.method(owner.name, owner.protocol, m.is_class, m.name)
        self.ask(m, name, "PyObjC", theirs is not None, "no such selector")
        if theirs is not None:
            self.c_type(m, name, "result", m.result, theirs.result)
            self.arguments(m, name, m.args, theirs.args, self.c_type, "PyObjC")
            self.since(m, name, max(theirs.introduced, owner.introduced, key=number))
            self.ask(m, name, "deprecated", m.deprecated == theirs.deprecated, f"ours {m.deprecated}, PyObjC {theirs.deprecated}")
            if owner.protocol:
                self.ask(m, name, "required", m.required == theirs.required, f"ours {m.required}, PyObjC {theirs.required}")
        if self.crates:
            self.rust_method(owner, m, name)

    def rust_method(self, owner, m, name: str) -> None:
        theirs = self.crates.method(owner.name, m.is_class, m.name)
        self.ask(m, name, "objc2", theirs is not None, "no such selector")
        if theirs is None:
            return
        self.rust_type(m, name, "result", m.result, theirs.result)
        self.arguments(m, name, m.args, theirs.args, self.rust_type, "objc2")
        owned = theirs.family in ("new", "alloc", "copy", "mutableCopy", "init")
        self.ask(m, name, "ownership", m.owned == owned, f"ours {'owned' if m.owned else 'borrowed'}, objc2 family {theirs.family}")
        self.ask(m, name, "objc2 deprecated", bool(m.deprecated) == theirs.deprecated,
                 f"ours {m.deprecated or 'no'}, objc2 {theirs.deprecated}")
        if owner.protocol:
            self.ask(m, name, "objc2 required", m.required != theirs.optional, f"ours {m.required}, objc2 {not theirs.optional}")

    def property(self, owner, p) -> None:
        name, is_class = f"{owner.name}.{p.name}", "class" in p.words
        self.said(p, name, "the property", p.type)
        found = self.metadata.property(owner.name, owner.protocol, p.name, is_class)
        self.ask(p, name, "PyObjC", found is not None, "no such property")
        if found is None:
            return
        theirs, words = found
        self.c_type(p, name, "type", p.type, theirs)
        getter = next((w.split("=")[1] for w in words if w.startswith("getter=")), p.name)
        self.ask(p, name, "getter", p.getter == getter, f"ours {p.getter}, PyObjC {getter}")
        mine, those = meaning(p.words), meaning({w for w in words if "=" not in w})
        self.ask(p, name, "attributes", mine == those, f"ours {sorted(mine)}, PyObjC {sorted(those)}")
        method = self.metadata.method(owner.name, owner.protocol, is_class, getter)
        self.since(p, name, max(method.introduced, owner.introduced, key=number) if method else owner.introduced)
        deprecated = method.deprecated if method else ""
        self.ask(p, name, "deprecated", p.deprecated == deprecated, f"ours {p.deprecated}, PyObjC {deprecated}")
        if not self.crates:
            return
        get = self.crates.method(owner.name, is_class, getter)
        self.ask(p, name, "objc2", get is not None, "no such property")
        if get is not None:
            self.rust_type(p, name, "type", p.type, get.result)
            self.ask(p, name, "ownership", get.family == "none", f"objc2 family {get.family}")
        put = self.crates.method(owner.name, is_class, "set" + p.name[0].upper() + p.name[1:] + ":")
        self.ask(p, name, "objc2 setter", (put is None) == ("readonly" in p.words), "ours and objc2 differ on readonly")
        if put is not None and put.args:
            self.rust_type(p, name, "setter", p.type, put.args[0])

    def enum(self, d) -> None:
        widths = {"long": "q", "unsigned long": "Q", "int": "i", "unsigned int": "I", "long long": "q", "unsigned long long": "Q"}
        if d.name:
            entry = self.metadata.entry("enum_type", d.name)
            self.ask(d, d.name, "PyObjC", entry is not None, "no such enum")
            if entry:
                self.ask(d, d.name, "PyObjC width", entry["type"] == widths[d.width], f"ours {d.width}, PyObjC {entry['type']}")
        if d.name and self.crates:
            width = self.crates.widths.get(d.name)
            self.ask(d, d.name, "objc2", width is not None, "no such enum")
            if width:
                self.ask(d, d.name, "objc2 width", ctype.WIDTH[d.width] == ctype.WIDTH[width], f"ours {d.width}, objc2 {width}")
        for constant, value in d.constants.items():
            entry = self.metadata.entry("enum", constant)
            self.ask(d, constant, "PyObjC", entry is not None, "no such constant")
            if entry:
                self.ask(d, constant, "PyObjC value", (entry["value"], entry.get("enum", "")) == (value, d.name),
                         f"ours {value} of {d.name or 'no enum'}, PyObjC {entry['value']} of {entry.get('enum', 'no enum')}")
            if self.crates:
                theirs = self.crates.enums.get(constant)
                self.ask(d, constant, "objc2", theirs is not None, "no such constant")
                if theirs:
                    good = theirs[0] == value and (not d.name or theirs[1] == d.name)
                    self.ask(d, constant, "objc2 value", good,
                             f"ours {value} of {d.name or 'no enum'}, objc2 {theirs[0]} of {theirs[1]}")

    def function(self, d) -> None:
        self.said(d, d.name, "the result", d.result)
        for i, a in enumerate(d.args, 1):
            self.said(d, d.name, f"argument {i}", a)
        found = self.metadata.function(d.name)
        self.ask(d, d.name, "PyObjC", found is not None, "no such function")
        if found:
            args, result, entry = found
            mine = pyobjc.encoding(d.result_encoding)
            self.ask(d, d.name, "PyObjC result", mine == result, f"ours {mine}, PyObjC {result}")
            self.arguments(d, d.name, d.args, args, self.c_type, "PyObjC")
            self.since(d, d.name, pyobjc.version(entry.get("introduced")))
            owned = entry["retval"].get("already_cfretained", False)
            self.ask(d, d.name, "PyObjC ownership", owned == d.owned, f"ours {d.owned}, PyObjC {owned}")
            out = self.metadata.owned_out(d.name)
            self.ask(d, d.name, "ownership of what comes out", out == d.owned_out, f"ours arguments {d.owned_out}, PyObjC {out}")
        if self.crates:
            theirs = self.crates.function(d.name)
            self.ask(d, d.name, "objc2", theirs is not None, "no such function")
            if theirs:
                self.rust_type(d, d.name, "result", d.result, theirs.result)
                self.arguments(d, d.name, d.args, theirs.args, self.rust_type, "objc2")
                self.ask(d, d.name, "objc2 ownership", theirs.owned == d.owned, f"ours {d.owned}, objc2 {theirs.owned}")

    def variable(self, d) -> None:
        entry = self.metadata.entry("externs", d.name)
        self.ask(d, d.name, "PyObjC", entry is not None, "no such constant")
        if entry:
            self.c_type(d, d.name, "type", d.type, ctype.parse(entry["type_name"]))
            self.since(d, d.name, pyobjc.version(entry.get("introduced")))
        if self.crates:
            theirs = self.crates.static(d.name)
            self.ask(d, d.name, "objc2", theirs is not None, "no such constant")
            if theirs:
                self.rust_type(d, d.name, "type", d.type, theirs)

    def typedef(self, d) -> None:
        if d.name in self.enums or d.type.name == d.name:
            return  # NS_ENUM's own, and a struct's other name: read there
        theirs = self.metadata.entry("typedefs", d.name)
        self.ask(d, d.name, "PyObjC", theirs is not None, "no such type")
        if theirs:
            self.c_type(d, d.name, "type", d.type, ctype.parse(theirs))
        if self.crates:
            self.rust_typedef(d)

    def rust_typedef(self, d) -> None:
        if d.name in self.crates.structs:
            return  # the other name of a struct: asked there
        bare = d.name.removesuffix("Ref")
        struct = self.crates.cf_structs.get(bare) or self.crates.cf_structs.get(d.name)
        alias = self.crates.aliases.get(d.name) or self.crates.aliases.get(bare)
        self.ask(d, d.name, "objc2", bool(struct or alias), "no such type")
        if struct:
            target = d.type.args[0].name if d.type.args else d.type
            self.ask(d, d.name, "objc2 type", target == struct, f"ours {d.type}, objc2 a pointer to {struct}")
        elif alias:
            theirs = self.crates.type(alias)
            if d.name.endswith("Ref"):
                theirs = dataclasses.replace(theirs, name=theirs.name + "Ref")
            elif d.type.kind == "pointer" and theirs.kind == "name":  # Rust has no stars for objects
                theirs = ctype.Type("pointer", args=(theirs,))
            self.ask(d, d.name, "objc2 type", same_rust(d.type, theirs, self.typedefs), f"ours {d.type}, objc2 {theirs}")

    def struct(self, d) -> None:
        entry = self.metadata.entry("structs", d.name.lstrip("_"))
        self.ask(d, d.name, "PyObjC", entry is not None, "no such struct")
        if entry:
            theirs = pyobjc.encoding(entry["typestr"])
            self.ask(d, d.name, "PyObjC layout", pyobjc.encoding(d.encoding) == theirs, f"ours {d.encoding}, PyObjC {theirs}")
            names = [name for name, _ in d.fields]
            self.ask(d, d.name, "PyObjC fields", names == entry["fieldnames"], f"ours {names}, PyObjC {entry['fieldnames']}")
        if self.crates:
            theirs = self.crates.structs.get(d.name.lstrip("_"))
            self.ask(d, d.name, "objc2", theirs is not None, "no such struct")
            for (name, t), (their_name, their_type) in zip(d.fields, theirs or []):
                good = name == their_name and same_rust(t, self.crates.type(their_type), self.typedefs)
                self.ask(d, f"{d.name}.{name}", "objc2 type", good, f"ours {name} {t}, objc2 {their_name}: {their_type}")


def number(version: str) -> list:
    return [int(n) for n in version.split(".")] if version else [0]


def meaning(words: set) -> set:
    """A property's attributes without those that say what holds anyway."""
    made = {"strong" if w == "retain" else w for w in words} - {"assign", "readwrite"}
    return made - {"strong"} if "readonly" in made else made


def prove(include: pathlib.Path) -> Proof:
    """Errors: fetch.Missing, fetch.Changed; ValueError when the headers do not parse."""
    wheel = fetch.wheel()
    headers = ours.read(include, wheel)
    system = set(re.findall(r"[\w$]+", (wheel / "libc/darwin/libSystem.tbd").read_text()))
    proof = Proof(headers, pyobjc.PyObjC(fetch.source("pyobjc")), objc2.Objc2(fetch.source("objc2")), system)
    proof.run()
    return proof


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--include", type=pathlib.Path, default=ours.INCLUDE)
    include = parser.parse_args().include
    try:
        proof = prove(include)
    except (fetch.Missing, fetch.Changed, ValueError) as e:
        sys.exit(f"prove: {e}")
    for finding in proof.findings:
        print(finding)
    for name, question in sorted(proof.used):
        print(f"not proven: {name}: {question}: {exceptions.EXCEPTIONS[name, question]}")
    for header, reason in exceptions.SYMBOLS_ONLY.items():
        print(f"not proven: {header}: all but the symbols: {reason}")
    print(f"{len(proof.headers.decls)} declarations, {proof.checked} questions, {len(proof.findings)} findings, "
          f"{len(proof.used)} exceptions")
    return bool(proof.findings)


if __name__ == "__main__":
    sys.exit(main())
