"""Our headers as clang understands them: types through libclang's own type tree (a macro after a type would hide its nullability
from its spelling), availability, attributes."""
import ctypes
import dataclasses
import os
import pathlib
import re

import clang.cindex as ci

import ctype
from ctype import NONNULL, NULLABLE, UNSPECIFIED, Type

INCLUDE = pathlib.Path(__file__).resolve().parents[1] / "include"
TARGET = "arm64-apple-macos15.0"
KEEP_NULLABILITY = 0x1000  # CXTranslationUnit_IncludeAttributedTypes
# Numbers of clang-c/Index.h, some of which the Python package does not know. Cursors:
STRUCT, ENUM, FIELD, CONSTANT, FUNCTION, VARIABLE, INTERFACE, PROTOCOL, PROPERTY = 2, 5, 6, 7, 8, 9, 11, 13, 14
METHOD, CLASS_METHOD, TYPEDEF, SUPER_REF, PROTOCOL_REF, CLASS_REF, RESTRICTED = 16, 17, 20, 40, 41, 42, 432
RETURNS_RETAINED, RETURNS_NOT_RETAINED = 420, 421
# Types:
MADE_OF_MACRO, POINTER, BLOCK, RECORD, ENUMERATION, ALIAS, CLASS, OBJECT_POINTER = 1, 101, 102, 105, 106, 107, 108, 109
ARRAY, OPEN_ARRAY, ELABORATED, OBJECT, PARAMETER, ATTRIBUTED = 112, 114, 119, 161, 162, 163
PROPERTY_WORDS = {0x01: "readonly", 0x04: "assign", 0x08: "readwrite", 0x10: "retain", 0x20: "copy", 0x40: "nonatomic",
                  0x400: "strong", 0x1000: "class"}
NULL_OF = {0: NONNULL, 1: NULLABLE, 2: UNSPECIFIED}
NOESCAPE = {"NS_NOESCAPE", "CF_NOESCAPE", "noescape"}
OWNED = {"CF_RETURNS_RETAINED", "cf_returns_retained"}


@dataclasses.dataclass
class Decl:
    """What all declarations have. where: FILE:LINE. introduced: "" for always; its own, not its class's."""
    name: str
    where: str
    introduced: str = ""
    deprecated: str = ""
    owned: bool = False


@dataclasses.dataclass
class Method(Decl):
    is_class: bool = False
    result: Type = None
    args: list = dataclasses.field(default_factory=list)
    required: bool = True
    accessor: bool = False  # stands for a property


@dataclasses.dataclass
class Property(Decl):
    type: Type = None
    words: set = dataclasses.field(default_factory=set)
    getter: str = ""


@dataclasses.dataclass
class Container(Decl):
    """A class, or a protocol."""
    protocol: bool = False
    super: str = ""
    protocols: list = dataclasses.field(default_factory=list)
    restricted: bool = False
    methods: list = dataclasses.field(default_factory=list)
    properties: list = dataclasses.field(default_factory=list)


@dataclasses.dataclass
class Enum(Decl):
    width: str = ""
    constants: dict = dataclasses.field(default_factory=dict)


@dataclasses.dataclass
class Function(Decl):
    result: Type = None
    args: list = dataclasses.field(default_factory=list)
    result_encoding: str = ""
    owned_out: set = dataclasses.field(default_factory=set)  # numbers, from 0, of arguments through which something owned comes out


@dataclasses.dataclass
class Variable(Decl):
    type: Type = None


@dataclasses.dataclass
class Typedef(Decl):
    type: Type = None


@dataclasses.dataclass
class Struct(Decl):
    encoding: str = ""
    fields: list = dataclasses.field(default_factory=list)  # (name, type)


class _Version(ctypes.Structure):
    _fields_ = [("major", ctypes.c_int), ("minor", ctypes.c_int), ("sub", ctypes.c_int)]

    def __str__(self):
        numbers = [self.major, *(n for n in (self.minor, self.sub) if n >= 0)]
        return ".".join(map(str, numbers)) if self.major > 0 else ""


class _Availability(ctypes.Structure):
    _fields_ = [("platform", ci._CXString), ("introduced", _Version), ("deprecated", _Version), ("obsoleted", _Version),
                ("unavailable", ctypes.c_int), ("message", ci._CXString)]


def _bind(name, result, *args):
    """A function of libclang with types that its Python package has not, or wraps in what refuses a new kind."""
    address = ctypes.cast(getattr(ci.conf.lib, name), ctypes.c_void_p).value
    return ctypes.CFUNCTYPE(result, *args)(address)


_int, _unsigned, _pointer = ctypes.c_int, ctypes.c_uint, ctypes.c_void_p
NATIVE = {
    "getCursorPlatformAvailability": (_int, ci.Cursor, _pointer, _pointer, _pointer, _pointer, ctypes.POINTER(_Availability), _int),
    "getCString": (ctypes.c_char_p, ci._CXString),
    "Cursor_getObjCPropertyAttributes": (_unsigned, ci.Cursor, _unsigned),
    "Cursor_isObjCOptional": (_unsigned, ci.Cursor),
    "Type_getNullability": (_int, ci.Type),
    "Type_getModifiedType": (ci.Type, ci.Type),
    "Type_getObjCObjectBaseType": (ci.Type, ci.Type),
    "Type_getNumObjCTypeArgs": (_unsigned, ci.Type),
    "Type_getObjCTypeArg": (ci.Type, ci.Type, _unsigned),
    "Type_getNumObjCProtocolRefs": (_unsigned, ci.Type),
    "Type_getObjCProtocolDecl": (ci.Cursor, ci.Type, _unsigned),
    "getArrayElementType": (ci.Type, ci.Type),
    "getEnumConstantDeclValue": (ctypes.c_longlong, ci.Cursor),
    "getNumArgTypes": (_int, ci.Type),
    "getArgType": (ci.Type, ci.Type, _unsigned),
}


class Headers:
    """Everything that the headers below `include` declare, as the list `decls`."""

    def __init__(self, include: pathlib.Path, apple: pathlib.Path, builtin: pathlib.Path):
        self.include = os.path.realpath(include)
        self.clang = {name: _bind("clang_" + name, *types) for name, types in NATIVE.items()}
        args = ["-target", TARGET, "-x", "objective-c", "-fno-objc-arc", "-fblocks", "-nostdlibinc", "-isystem", str(apple),
                "-isystem", str(builtin), "-I", str(include), "-I", str(pathlib.Path(include) / "mac")]
        text = "".join(f"#import <{h}>\n" for h in self.names(include))
        self.unit = ci.Index.create().parse("all.m", args=args, unsaved_files=[("all.m", text)], options=KEEP_NULLABILITY)
        errors = [str(d) for d in self.unit.diagnostics if d.severity >= ci.Diagnostic.Warning]
        if errors:
            raise ValueError("our headers do not parse:\n" + "\n".join(errors[:10]))
        self.decls = []
        for cursor in self.unit.cursor.get_children():
            if self.mine(cursor):
                self.read(cursor)

    @staticmethod
    def names(include: pathlib.Path) -> list:
        files = [f.relative_to(include) for f in sorted(pathlib.Path(include).rglob("*.h"))]
        return [str(f.relative_to("mac") if f.parts[0] == "mac" else f) for f in files]

    def mine(self, cursor) -> bool:
        file = cursor.location.file
        return file is not None and os.path.realpath(file.name).startswith(self.include + os.sep)

    def where(self, cursor) -> dict:
        """The fields that all declarations have."""
        rows, always = (_Availability * 8)(), ctypes.c_int()
        introduced = deprecated = ""
        for row in rows[:self.clang["getCursorPlatformAvailability"](cursor, None, None, ctypes.byref(always), None, rows, 8)]:
            platform = self.clang["getCString"](row.platform)
            if platform in (b"macos", b"macosx"):
                introduced, deprecated = str(row.introduced), str(row.deprecated)
        file = os.path.relpath(os.path.realpath(cursor.location.file.name), self.include)
        return {"name": cursor.spelling, "where": f"{file}:{cursor.location.line}",
                "introduced": "" if introduced == "10.0" else introduced, "deprecated": deprecated}

    def read(self, c) -> None:
        kind = c._kind_id
        if kind in (INTERFACE, PROTOCOL):
            self.decls.append(self.container(c))
        elif kind == ENUM:
            if c.is_definition():
                values = {k.spelling: self.clang["getEnumConstantDeclValue"](k) for k in c.get_children() if k._kind_id == CONSTANT}
                common = self.where(c) | ({"name": ""} if c.is_anonymous() else {})
                self.decls.append(Enum(**common, width=c.enum_type.get_canonical().spelling, constants=values))
        elif kind == FUNCTION:
            encoded = re.match(r"[rnNoORV]*(\^*(?:\{[^}]*\}|.\??))", c.objc_type_encoding)[1]
            args = [self.parameter(p) for p in c.get_arguments()]
            self.decls.append(Function(**self.where(c), result=self.type(c.result_type), args=args, result_encoding=encoded))
            outside, inside = words(c)
            self.decls[-1].owned = bool(OWNED & outside)
            self.decls[-1].owned_out = {i for i, part in enumerate(inside) if OWNED & part}
        elif kind == VARIABLE:
            self.decls.append(Variable(**self.where(c), type=self.type(c.type)))
        elif kind == TYPEDEF:
            self.decls.append(Typedef(**self.where(c), type=self.type(c.underlying_typedef_type)))
        elif kind == STRUCT:
            if c.is_definition():
                fields = [(f.spelling, self.type(f.type)) for f in c.get_children() if f._kind_id == FIELD]
                inside = "".join(f.objc_type_encoding for f in c.get_children() if f._kind_id == FIELD)
                self.decls.append(Struct(**self.where(c), encoding="{=" + inside + "}", fields=fields))
        elif kind not in (CLASS_REF, PROTOCOL_REF):  # forward declarations
            raise ValueError(f"{self.where(c)['where']}: no rule for a declaration of kind {kind}: {c.spelling}")

    def container(self, c) -> Container:
        protocol = c._kind_id == PROTOCOL
        made = Container(**self.where(c), protocol=protocol)
        for k in c.get_children():
            kind = k._kind_id
            if kind == SUPER_REF:
                made.super = k.spelling
            elif kind == PROTOCOL_REF:
                made.protocols.append(k.spelling)
            elif kind == RESTRICTED:
                made.restricted = True
            elif kind == PROPERTY:
                made.properties.append(self.property(k))
            elif kind in (METHOD, CLASS_METHOD):
                made.methods.append(self.method(k, kind == CLASS_METHOD))
        for p in made.properties:
            setter = "set" + p.name[0].upper() + p.name[1:] + ":"
            for m in made.methods:
                if m.is_class == ("class" in p.words) and m.name in (p.getter, setter):
                    m.accessor = True
        return made

    def method(self, c, is_class: bool) -> Method:
        kinds = {k._kind_id for k in c.get_children()}
        made = Method(**self.where(c), is_class=is_class, result=self.type(c.result_type),
                      args=[self.parameter(p) for p in c.get_arguments()], required=not self.clang["Cursor_isObjCOptional"](c))
        returns_object = made.result.kind == "pointer" or made.result.name in ("id", "instancetype")
        made.owned = returns_object and family(c.spelling) != "none"
        if RETURNS_RETAINED in kinds or RETURNS_NOT_RETAINED in kinds:
            made.owned = RETURNS_RETAINED in kinds
        return made

    def property(self, c) -> Property:
        bits = self.clang["Cursor_getObjCPropertyAttributes"](c, 0)
        words = {word for bit, word in PROPERTY_WORDS.items() if bits & bit}
        tokens = [t.spelling for t in c.get_tokens()]
        getter = tokens[tokens.index("getter") + 2] if "getter" in tokens else c.spelling
        return Property(**self.where(c), type=self.type(c.type), words=words, getter=getter)

    def parameter(self, c) -> Type:
        t = self.type(c.type)
        if t.kind == "block":
            t.noescape = bool(NOESCAPE & {token.spelling for token in c.get_tokens()})
        return t

    def ask(self, question: str, *args):
        """A type or cursor from libclang; the Python package's methods ask it for its translation unit."""
        found = self.clang[question](*args)
        found._tu = self.unit
        return found

    def type(self, t) -> Type:
        made = self.bare(t)
        null = NULL_OF.get(self.clang["Type_getNullability"](t), "")
        return dataclasses.replace(made, null=null or made.null, const=made.const or t.is_const_qualified())

    def bare(self, t) -> Type:
        kind = t._kind_id
        if kind == ATTRIBUTED:
            return self.type(self.ask("Type_getModifiedType", t))
        if kind == ELABORATED:
            return self.bare(t.get_named_type())
        if kind in (POINTER, BLOCK):
            target = t.get_pointee()
            result = target.get_result()
            if result._kind_id != 0:
                given = [self.type(self.ask("getArgType", target, i)) for i in range(self.clang["getNumArgTypes"](target))]
                return Type("block" if kind == BLOCK else "function", args=(self.type(result), *given))
            return Type("pointer", args=(self.type(target),))
        if kind == ARRAY:
            return Type("array", name=str(t.element_count), args=(self.type(self.ask("getArrayElementType", t)),))
        if kind == OPEN_ARRAY:
            return Type("pointer", args=(self.type(self.ask("getArrayElementType", t)),))
        if kind == OBJECT_POINTER:
            return self.object(t.get_pointee())
        if kind == MADE_OF_MACRO:  # "API_AVAILABLE(macos(13.0)) NSString *"
            return ctype.parse(re.sub(r"^\w+\((?:[^()]|\([^()]*\))*\) ", "", t.spelling))
        if kind == ALIAS:
            return Type("name", t.get_declaration().spelling)
        return Type("name", re.sub(r"\b(const|struct|enum|_Nonnull|_Nullable|_Null_unspecified) ?", "", t.spelling).strip())

    def object(self, t) -> Type:
        if t._kind_id == CLASS:
            return Type("pointer", args=(Type("name", t.spelling),))
        base = self.ask("Type_getObjCObjectBaseType", t).spelling
        if base in ("id", "Class"):
            count = self.clang["Type_getNumObjCProtocolRefs"](t)
            return Type("name", base, protocols=tuple(self.ask("Type_getObjCProtocolDecl", t, i).spelling for i in range(count)))
        count = self.clang["Type_getNumObjCTypeArgs"](t)
        args = tuple(self.type(self.ask("Type_getObjCTypeArg", t, i)) for i in range(count))
        return Type("pointer", args=(Type("name", base, args=args),))


def read(include: pathlib.Path, wheel: pathlib.Path) -> Headers:
    """wheel: fetch.wheel(), whose headers are Apple's. Errors: ValueError when ours do not parse."""
    return Headers(include, wheel / "libc/include/any-macos-any", wheel / "include")


def words(c) -> tuple:
    """The words of a function's declaration: those outside brackets, which speak of its result, and of each argument."""
    depth, outside, inside = 0, set(), [set()]
    for token in c.get_tokens():
        depth += (token.spelling == "(") - (token.spelling == ")")
        if depth == 0:
            outside.add(token.spelling)
        elif depth == 1 and token.spelling == ",":
            inside.append(set())
        else:
            inside[-1].add(token.spelling)
    return outside, inside


def family(selector: str) -> str:
    """The method family by its name, as the language defines it: who owns the result."""
    first = selector.split(":")[0].lstrip("_")
    for name in ("alloc", "copy", "init", "mutableCopy", "new"):
        if first.startswith(name) and not first[len(name):len(name) + 1].islower():
            return name
    return "none"
