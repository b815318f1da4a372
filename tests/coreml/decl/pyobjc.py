"""What PyObjC's source distributions say of Apple's frameworks: JSON that its author made from the SDK's headers with clang. It
knows selectors, C types, values, and when something was introduced or deprecated; of nullability only what is inside a type."""
import dataclasses
import json
import pathlib
import re

import ctype
from ctype import Type

# Which distribution has which framework, and in which folder of its metadata (the SDK's number is in the file's name)
FRAMEWORKS = {
    "CoreML": ("pyobjc-framework-CoreML", "raw"),
    "Foundation": ("pyobjc-framework-Cocoa", "raw.Foundation"),
    "CoreFoundation": ("pyobjc-framework-Cocoa", "raw.CoreFoundation"),
    "CoreVideo": ("pyobjc-framework-Quartz", "raw.CoreVideo"),
    "IOSurface": ("pyobjc-framework-IOSurface", "raw"),
}
NEVER = "100000"  # "will be deprecated": no compiler warns yet


@dataclasses.dataclass
class Method:
    result: Type
    args: list
    introduced: str  # "" where it was always there
    deprecated: str
    required: bool  # of a protocol
    owned: bool


def version(text: str | None) -> str:
    """10.0 and nothing mean always; "100000.-1" is NEVER."""
    text = (text or "").removesuffix(".-1")
    return "" if text == "10.0" else text


class PyObjC:
    """found(kind, name): the metadata's entry, and the framework that has it."""

    def __init__(self, folder: pathlib.Path):
        self.frameworks, self.added, self.sdk = {}, {}, {}
        for framework, (package, raw) in FRAMEWORKS.items():
            files = sorted((folder / package / raw).glob("arm64-*.fwinfo"))
            if not files:
                raise FileNotFoundError(f"no {folder}/{package}/{raw}/arm64-*.fwinfo: fetch.py brings them")
            text = files[-1].read_text()
            self.frameworks[framework] = json.loads(text[text.index("{"):])["definitions"]
            self.sdk[framework] = files[-1].stem.split("-")[1]
            # what the author adds by hand, since no header says it
            text = (folder / package / f"{framework}.fwinfo").read_text()
            self.added[framework] = json.loads(text[text.index("{"):])["definitions"]

    def found(self, kind: str, name: str):
        for framework, definitions in self.frameworks.items():
            if name in definitions.get(kind, {}):
                return definitions[kind][name], framework
        return None, None

    def entry(self, kind: str, name: str):
        return self.found(kind, name)[0]

    def methods(self, owner: str, protocol: bool) -> list:
        """All of a class, its categories (the metadata has them in it) and its protocols, or of a protocol and what it takes in."""
        entry = self.entry("formal_protocols" if protocol else "classes", owner)
        if entry is None:
            return []
        own = list(entry["methods"])
        for inherited in entry.get("implements" if protocol else "protocols", []):
            own += self.methods(inherited, True)
        return own

    def method(self, owner: str, protocol: bool, is_class: bool, selector: str) -> Method | None:
        for m in self.methods(owner, protocol):
            if m["selector"] == selector and m["class_method"] == is_class:
                return Method(ctype.parse(m["retval"]["type_name"]), [ctype.parse(a["type_name"]) for a in m["args"]],
                              version(m.get("introduced")), version(m.get("deprecated")), m.get("required", True),
                              m["retval"].get("already_retained", False))
        return None

    def since(self, owner: str, protocol: bool) -> str:
        """When a class came: with its oldest member."""
        entry = self.entry("formal_protocols" if protocol else "classes", owner)
        versions = [version(m.get("introduced")) for m in entry["methods"]] if entry else []
        if not versions or "" in versions:
            return ""
        return min(versions, key=lambda v: [int(n) for n in v.split(".")])

    def property(self, owner: str, protocol: bool, name: str, is_class: bool):
        """(type, attributes) or None. Attributes are words, and getter=NAME."""
        entry = self.entry("formal_protocols" if protocol else "classes", owner)
        for p in entry["properties"] if entry else []:
            attributes = {a if isinstance(a, str) else "=".join(a) for a in p["attributes"]}
            if p["name"] == name and ("class" in attributes) == is_class:
                return ctype.parse(p["type_name"]), attributes
        return None

    def function(self, name: str):
        """(types of the arguments, encoding of the result, entry) or None. The metadata has no name of a result's type."""
        entry = self.entry("functions", name)
        if entry is None:
            return None
        args = [a for a in entry["args"] if a["typestr"] != "v"]  # (void)
        return [ctype.parse(a["type_name"]) for a in args], encoding(entry["retval"]["typestr"]), entry


    def owned_out(self, name: str) -> set:
        """The arguments, from 0, through which a function gives something that its caller releases."""
        for definitions in self.added.values():
            args = definitions.get("functions", {}).get(name, {}).get("args", {})
            if args:
                return {int(i) for i, a in args.items() if a.get("already_cfretained")}
        return set()


def encoding(text: str) -> str:
    """An @encode string without what PyObjC adds or C leaves open: BOOL is Z there, CFTypeRef an object, a struct's own name."""
    text = re.sub(r"\{\w*=", "{=", re.sub(r"^[rnNoORV]+", "", text))
    return text.replace("Z", "B").replace("^{=}", "^v").replace("@", "^v")
