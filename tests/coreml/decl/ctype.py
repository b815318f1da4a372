"""Types of C and Objective-C as trees, from three spellings: C's own (PyObjC's metadata), Rust's (objc2, in objc2.py), clang's
(our headers, in ours.py). And what it means that two of them are the same."""
import dataclasses
import re

NONNULL, NULLABLE, UNSPECIFIED, NOT_STATED = "nonnull", "nullable", "unspecified", ""


@dataclasses.dataclass
class Type:
    """kind: name (a class without its star, a typedef, a scalar, id, instancetype, a type parameter), pointer (args[0] is the
    target), block or function (args[0] is the result, the others the arguments), array. Of a name, args are the types between
    < and > of a class, protocols those of an id. noescape: None where the source cannot tell."""
    kind: str
    name: str = ""
    args: tuple = ()
    protocols: tuple = ()
    null: str = NOT_STATED
    const: bool = False
    noescape: bool | None = None

    def __str__(self) -> str:
        null = f" {self.null}" if self.null in (NONNULL, NULLABLE) else ""
        const = "const " if self.const else ""
        if self.kind == "pointer":
            return f"{self.args[0]} *{' const' if self.const else ''}{null}"
        if self.kind in ("block", "function"):
            mark = "^" if self.kind == "block" else "*"
            escape = " noescape" if self.noescape else ""
            return f"{self.args[0]} ({mark}{null}{escape})({', '.join(map(str, self.args[1:]))})"
        inner = [*self.protocols, *map(str, self.args)]
        return f"{const}{self.name}{'<' + ', '.join(inner) + '>' if inner else ''}{null}"


VOID = Type("name", "void")
# How wide a scalar is on arm64 macOS: what another language can say of it. C's names are compared as they are (same_c).
WIDTHS = {
    "i8": "i8 c_schar", "u8": "u8 c_uchar Boolean", "i16": "i16 c_short", "u16": "u16 c_ushort unichar",
    "i32": "i32 c_int int32_t CVReturn kern_return_t", "u32": "u32 c_uint uint32_t OSType",
    "i64": "i64 isize c_long c_longlong NSInteger int64_t", "char": "c_char",
    "u64": "u64 usize c_ulong c_ulonglong NSUInteger CVOptionFlags size_t uint64_t",
    "f32": "c_float float", "f64": "c_double double", "bool": "bool BOOL", "void": "void c_void",
}
WIDTH = {name: width for width, names in WIDTHS.items() for name in names.split()}
WIDTH |= {"char": "char", "signed char": "i8", "unsigned char": "u8", "short": "i16", "unsigned short": "u16", "int": "i32",
          "unsigned int": "u32", "long": "i64", "unsigned long": "u64", "long long": "i64", "unsigned long long": "u64"}

TOKEN = re.compile(r"\s*(?:([A-Za-z_]\w*)|(\d+)|(\.\.\.|[*^()<>,\[\]]))")
QUALIFIERS = {"__strong", "__autoreleasing", "__unsafe_unretained", "__kindof", "oneway", "struct", "enum", "volatile"}
NULLS = {"_Nonnull": NONNULL, "_Nullable": NULLABLE, "_Null_unspecified": UNSPECIFIED}
WORDS = {"unsigned", "signed", "long", "short", "int", "char"}  # make one name together


class _Parser:
    """A type without a variable's name, as PyObjC spells it."""

    def __init__(self, text: str):
        self.text = text
        self.tokens = [next(g for g in m.groups() if g) for m in TOKEN.finditer(text)]
        if "".join(self.tokens) != re.sub(r"\s", "", text):
            raise ValueError(f"not a C type: {text}")
        self.at = 0

    def peek(self) -> str:
        return self.tokens[self.at] if self.at < len(self.tokens) else ""

    def take(self, want: str = "") -> str:
        token = self.peek()
        if not token or want and token != want:
            raise ValueError(f"{self.text}: {token or 'the end'} where {want or 'more'} was expected")
        self.at += 1
        return token

    def qualify(self, t: Type) -> bool:
        """Takes one qualifier of `t`; false when there is none."""
        token = self.peek()
        if token == "const":
            t.const = True
        elif token in NULLS:
            t.null = NULLS[token]
        elif token not in QUALIFIERS:
            return False
        self.at += 1
        return True

    def base(self) -> Type:
        t = Type("name")
        words = []
        while re.match(r"\w", self.peek() or " "):
            if not self.qualify(t):
                if words and not (self.peek() in WORDS or words[-1] in WORDS):
                    break
                words.append(self.take())
        t.name = " ".join(words)
        if self.peek() == "<":
            self.take()
            inner = [self.type()]
            while self.peek() == ",":
                self.take()
                inner.append(self.type())
            self.take(">")
            if t.name == "id":
                t.protocols = tuple(i.name for i in inner)
            else:
                t.args = tuple(inner)
        while self.qualify(t):
            pass
        return t

    def type(self) -> Type:
        t = self.base()
        while self.peek() in ("*", "(", "["):
            token = self.take()
            if token == "*":
                t = Type("pointer", args=(t,))
                while self.qualify(t):
                    pass
            elif token == "(":
                mark = self.take()
                made = Type("block" if mark == "^" else "function")
                while self.qualify(made):
                    pass
                self.take(")")
                self.take("(")
                params = [] if self.peek() == ")" else [self.type()]
                while self.peek() == ",":
                    self.take()
                    params.append(self.type())
                self.take(")")
                made.args = (t, *(p for p in params if p != VOID))
                t = made
            else:
                t = Type("pointer", args=(t,))
                while self.qualify(t):
                    pass
                self.take("]")
        return t


def parse(text: str) -> Type:
    """The tree of `text`, such as "void (^)(NSError * _Nullable)"."""
    p = _Parser(text)
    t = p.type()
    if p.peek():
        raise ValueError(f"{text}: {p.peek()} is left over")
    return t


def typeless(t: Type) -> Type:
    """A pointer to a name of a class stays; K, V and T are what some of Apple's headers call type parameters."""
    return dataclasses.replace(t, name={"K": "KeyType", "V": "ObjectType", "T": "ObjectType"}.get(t.name, t.name))


def same_c(ours: Type, theirs: Type, inner: bool = False) -> bool:
    """`theirs` comes from C: names and const are the same, and nullability where it is stated below the outermost level."""
    ours, theirs = typeless(ours), typeless(theirs)
    if inner and theirs.null in (NONNULL, NULLABLE) and ours.null != theirs.null:
        return False
    # the constness of an argument itself is the callee's matter
    if (ours.kind, ours.protocols) != (theirs.kind, theirs.protocols) or inner and ours.const != theirs.const:
        return False
    if ours.name != theirs.name or len(ours.args) != len(theirs.args):
        return False
    # what stands between < and > has no nullability
    return all(same_c(a, b, inner=ours.kind != "name") for a, b in zip(ours.args, theirs.args))


def same_rust(ours: Type, theirs: Type, typedefs: dict, place: str = "argument") -> bool:
    """`theirs` comes from Rust, which knows widths instead of C's names and spells `const` for raw pointers only. A nullable
    pointer of theirs may be one of which Apple does not say: ours is nullable or says nothing, too. place: argument, result,
    or element (between < and >, where nothing is said of null)."""
    ours, theirs = typeless(ours), typeless(theirs)
    if place != "element" and _pointer(theirs):
        if theirs.null == NONNULL and ours.null != NONNULL or theirs.null == NULLABLE and ours.null == NONNULL:
            return False
    if theirs.noescape is not None and ours.kind == "block" and ours.noescape is not None and ours.noescape != theirs.noescape:
        return False
    if ours.kind == "name" and ours.name in typedefs and ours.name != theirs.name and theirs.kind != "name":
        return same_rust(dataclasses.replace(typedefs[ours.name], null=ours.null), theirs, typedefs, place)
    if ours.kind != theirs.kind or ours.protocols != theirs.protocols:
        return False
    if ours.kind == "name" and ours.name != theirs.name:
        width = WIDTH.get(ours.name)
        if width is None or width != WIDTH.get(theirs.name):
            return False
    if len(ours.args) != len(theirs.args):  # a bare NSDictionary * is one of anything
        return not ours.args and all(a.name == "id" for a in theirs.args)
    inner = "element" if ours.kind == "name" else "argument"
    return all(same_rust(a, b, typedefs, inner) for a, b in zip(ours.args, theirs.args))


def _pointer(t: Type) -> bool:
    return t.null != NOT_STATED
