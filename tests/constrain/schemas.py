"""The schemas of tests/constrain: by hand, by models.py, out of requests that clients sent, and of the public JSON-Schema-Test-
Suite."""
import json
import pathlib

import models

D7 = "http://json-schema.org/draft-07/schema#"
D2020 = "https://json-schema.org/draft/2020-12/schema"
WORD = {"type": "string", "maxLength": 6}


def record(properties, required=None, **more):
    """An object as most clients want one: these properties, all required unless it is said, no others."""
    return {"type": "object", "properties": properties, "required": list(properties) if required is None else required,
            "additionalProperties": False, **more}


def zod(schema):
    return {"$schema": D7, **schema}


# As zod 3 (zod-to-json-schema) and zod 4 (z.toJSONSchema) write them.
ZOD = {
    "zod object": zod(record({"name": {"type": "string", "maxLength": 8}, "age": {"type": "integer", "exclusiveMinimum": 0}})),
    "zod int": {"$schema": D2020, **record({"n": {"type": "integer", "minimum": -9007199254740991, "maximum": 9007199254740991}})},
    "zod positive": {"$schema": D2020, **record({"n": {"type": "integer", "exclusiveMinimum": 0, "maximum": 9007199254740991}})},
    "zod optional": zod(record({"a": {"type": "boolean"}, "b": {"type": "number"}}, ["a"])),
    "zod nullable": zod(record({"a": {"type": ["boolean", "null"]}, "b": {"anyOf": [{"type": "number"}, {"type": "null"}]}})),
    "zod record": zod({"type": "object", "additionalProperties": {"type": "number"}}),
    "zod record names": {"$schema": D2020, "type": "object", "propertyNames": {"type": "string"},
                         "additionalProperties": {"type": "boolean"}},
    "zod tuple": {"$schema": D2020, "type": "array", "prefixItems": [{"type": "boolean"}, {"type": "integer"}]},
    "zod literal": zod(record({"t": {"type": "string", "const": "x"}, "n": {"type": "number", "const": 4.5}})),
    "zod native enum": zod(record({"e": {"type": "number", "enum": [0, 1, 2]}})),
    "zod union": zod(record({"u": {"type": ["boolean", "integer"]}})),
    "zod discriminated": zod({"anyOf": [record({"type": {"type": "string", "const": "circle"}, "r": {"type": "number"}}),
                                        record({"type": {"type": "string", "const": "square"}, "side": {"type": "number"}})]}),
    "zod discriminated oneOf": {"$schema": D2020, "oneOf": [
        record({"type": {"type": "string", "const": "circle"}, "r": {"type": "integer"}}),
        record({"type": {"type": "string", "const": "square"}, "side": {"type": "integer"}})]},
    "zod lazy": zod({"type": "object", "properties": {"name": WORD, "children": {
        "type": "array", "maxItems": 2, "items": {"$ref": "#"}}}, "required": ["name", "children"], "additionalProperties": False}),
    "zod definitions": {"$ref": "#/definitions/node", "definitions": {"node": record({
        "v": {"type": "integer"}, "next": {"anyOf": [{"$ref": "#/definitions/node"}, {"type": "null"}]}})}, "$schema": D7},
    "zod reference by path": zod(record({"a": record({"x": {"type": "boolean"}}), "b": {"$ref": "#/properties/a"}})),
    "zod default": zod(record({"a": {"type": "boolean", "default": False}})),
    "zod uuid": zod(record({"id": {"type": "string", "format": "uuid"}})),
    "zod regex": zod(record({"v": {"type": "string", "pattern": "^v\\d+\\.\\d+$"}})),
    "zod passthrough": zod({"type": "object", "properties": {"a": {"type": "boolean"}}, "required": ["a"],
                            "additionalProperties": True}),
    "zod empty": zod(record({})),
    "zod any": zod(record({"a": {}})),
    "zod intersection": zod({"allOf": [
        {"type": "object", "properties": {"a": {"type": "boolean"}}, "required": ["a"]},
        {"type": "object", "properties": {"b": {"type": "integer"}}, "required": ["b"]}]}),
    "zod email 4": {"$schema": D2020, **record({"mail": {
        "type": "string", "format": "email",
        "pattern": "^(?!\\.)(?!.*\\.\\.)([A-Za-z0-9_'+\\-\\.]*)[A-Za-z0-9_+-]@([A-Za-z0-9][A-Za-z0-9\\-]*\\.)+[A-Za-z]{2,}$"}})},
    "zod date 4": {"$schema": D2020, **record({"day": {
        "type": "string", "format": "date",
        "pattern": "^(?:(?:\\d\\d[2468][048]|\\d\\d[13579][26]|\\d\\d0[48]|[02468][048]00|[13579][26]00)-02-29|\\d{4}-"
                   "(?:(?:0[13578]|1[02])-(?:0[1-9]|[12]\\d|3[01])|(?:0[469]|11)-(?:0[1-9]|[12]\\d|30)|(?:02)-(?:0[1-9]|1\\d|"
                   "2[0-8])))$"}})},
    "zod uuid 4": {"$schema": D2020, **record({"id": {
        "type": "string", "format": "uuid",
        "pattern": "^([0-9a-fA-F]{8}-[0-9a-fA-F]{4}-[1-8][0-9a-fA-F]{3}-[89abAB][0-9a-fA-F]{3}-[0-9a-fA-F]{12}|"
                   "00000000-0000-0000-0000-000000000000|ffffffff-ffff-ffff-ffff-ffffffffffff)$"}})},
    "zod long email": zod(record({"mail": {"type": "string", "format": "email", "maxLength": 254}})),
    "decimal": {"type": "string", "pattern": "^(?!^[-+.]*$)[+-]?0*\\d*\\.?\\d*$"},
    "no word": {"type": "string", "pattern": "^(?!.*password)[a-z0-9]{4,12}$"},
    "bounded uri": {"type": "string", "format": "uri", "minLength": 1, "maxLength": 40},
    "bounded search": {"type": "string", "pattern": "[0-9]", "minLength": 4, "maxLength": 9},
    "zod bounded pattern": zod(record({"code": {"type": "string", "minLength": 2, "maxLength": 4, "pattern": "^[a-z]+$"}})),
}

FORMATS = {f"format {f}": record({"x": {"type": "string", "format": f}})
           for f in ("date", "time", "date-time", "duration", "uuid", "uuid4", "ipv4", "ipv6", "hostname", "email", "uri", "base64",
                     "password", "path", "binary")}

PATTERNS = {f"pattern {p}": record({"x": {"type": "string", "pattern": p}}) for p in (
    "^[a-z]{3}$", "^\\d{3}-\\d{4}$", "^(\\+\\d{1,3} )?\\(?\\d{3}\\)?$", "^[^@ ]{1,8}@[^@ ]{1,8}$", "^#[0-9a-fA-F]{6}$",
    "^(?:a|bc|def){1,3}$", "^\u00fc[\u4e00-\u4e20]{1,3}$", '^"[a-z]"$', "^\\\\w$", "^[\\s\\S]{2}$", "^a?b+c*?d$", "abc", "^x",
    "y$", "", "^$", "^\\w{2,4} [^a-z]$", "^(\\d+|[A-F]+)$", "^[A-Z]\\w{0,5}(\\.[a-z]{1,3})?$", "^\\u0041\\x42\\n$")}

NUMBERS = {f"number {json.dumps(n)}": record({"x": {"type": t, **n}}) for t, n in (
    ("integer", {"minimum": 0}), ("integer", {"maximum": -7}), ("integer", {"minimum": -12, "maximum": 12}),
    ("integer", {"minimum": 99, "maximum": 101}), ("integer", {"exclusiveMinimum": 9, "exclusiveMaximum": 11}),
    ("integer", {"minimum": 1.5, "maximum": 3.5}), ("integer", {"minimum": 1000000, "maximum": 123456789012}),
    ("number", {"minimum": 0}), ("number", {"minimum": 0, "maximum": 1}), ("number", {"exclusiveMinimum": 0, "exclusiveMaximum": 1}),
    ("number", {"minimum": -90, "maximum": 90}), ("number", {"exclusiveMaximum": -5}), ("number", {"minimum": 3, "maximum": 3}),
    ("number", {"minimum": 0.5, "maximum": 2.5}), ("number", {"minimum": -0.25}), ("integer", {"multipleOf": 5}))}

UNICODE = {
    "enum unicode": {"enum": ["\u00e9t\u00e9", "\u65e5\u672c\u8a9e", "\U0001f600", "a\u0301", "\u2028"]},
    "enum escapes": {"enum": ['say "hi"', "back\\slash", "tab\there", "line\nend", "\x01\x1f", "\x7f", "</script>", "a/b"]},
    "enum kinds": {"enum": [None, True, False, 0, -1, 1.5, 1e100, "", "null", [], {}, [1, "a", [None]], {"k": {"l": [True]}}]},
    "enum long": {"enum": [f"option number {i:04d} of a long list" for i in range(300)]},
    "enum prefixes": {"enum": ["a", "ab", "abc", "abcd", "b", "bc"]},
    "enum typed": {"type": ["string", "null"], "enum": ["x", "y", None]},
    "const object": {"const": {"a": [1, 2, {"b": "\u00fc"}], "c": None}},
    "const text": record({"version": {"const": "1.0"}, "kind": {"const": "\u00b5"}}),
    "keys quotes": record({'a "quoted" key': {"type": "boolean"}, "back\\slash": {"type": "boolean"}, "": {"type": "boolean"},
                           " ": {"type": "boolean"}, "tab\t": {"type": "boolean"}}),
    "keys unicode": record({"Stra\u00dfe": {"type": "boolean"}, "\u540d\u524d": {"type": "integer"}, "\U0001f600": {"type": "null"},
                            "a/b~c%d": {"type": "boolean"}}),
    "keys of words": record({"type": {"type": "boolean"}, "$ref": {"type": "boolean"}, "properties": {"type": "null"},
                             "required": {"type": "integer"}, "enum": {"const": 1}}),
    "keys alike": {"type": "object", "properties": {"ab": {"type": "boolean"}, "abc": {"type": "boolean"}, "a": {"type": "null"},
                                                    "\u00fcb": {"type": "null"}}, "additionalProperties": {"type": "integer"}},
}

OBJECTS = {
    "object any": {"type": "object"},
    "object of objects": {"type": "object", "additionalProperties": {"type": "object", "additionalProperties": {"type": "boolean"}}},
    "object optional": record({c: {"type": "boolean"} for c in "abcdef"}, []),
    "object last required": record({c: {"type": "integer"} for c in "abcd"}, ["d"]),
    "object required only": {"type": "object", "required": ["x", "y"]},
    "object names pattern": {"type": "object", "propertyNames": {"pattern": "^[a-c]{1,2}$"}, "additionalProperties": {"type": "null"}},
    "object names length": {"type": "object", "propertyNames": {"minLength": 2, "maxLength": 3}, "additionalProperties": {"type": "null"}},
    "object names enum": {"type": "object", "propertyNames": {"enum": ["left", "right"]}, "additionalProperties": {"type": "boolean"}},
    "object many": record({f"field_{i}": {"type": "boolean"} for i in range(25)}),
    "object deep": (lambda f: f(f, 12))(lambda f, n: record({"d": f(f, n - 1)}) if n else {"type": "boolean"}),
    "object false": {"type": "object", "properties": {"a": False, "b": {"type": "boolean"}, "c": True}, "required": ["b"]},
    "object or null": {"type": ["object", "null"], "properties": {"a": {"type": "boolean"}}, "required": ["a"],
                       "additionalProperties": False},
    "object no type": {"properties": {"a": {"type": "integer"}}, "required": ["a"]},
}

ARRAYS = {
    "array any": {"type": "array", "maxItems": 4},
    "array bounds": {"type": "array", "items": {"type": "boolean"}, "minItems": 2, "maxItems": 5},
    "array exact": {"type": "array", "items": {"type": "integer"}, "minItems": 3, "maxItems": 3},
    "array nested": {"type": "array", "maxItems": 2, "items": {"type": "array", "maxItems": 2, "items": {
        "type": "array", "maxItems": 2, "items": {"type": "null"}}}},
    "array prefix": {"type": "array", "prefixItems": [{"type": "boolean"}, WORD, {"enum": [1, 2]}], "items": False},
    "array prefix rest": {"type": "array", "prefixItems": [{"type": "null"}], "items": {"type": "integer"}, "maxItems": 4},
    "array prefix needed": {"type": "array", "prefixItems": [{"type": "null"}, {"type": "boolean"}], "minItems": 2},
    "array empty": {"type": "array", "items": False},
    "array of records": {"type": "array", "minItems": 1, "maxItems": 3, "items": record({"id": {"type": "integer"}, "w": WORD})},
    "array of either": {"type": "array", "maxItems": 5, "items": {"anyOf": [{"type": "null"}, {"type": "boolean"}, {"enum": ["x"]}]}},
    "array large": {"type": "array", "items": {"enum": [0, 1]}, "minItems": 30, "maxItems": 40},
}

JOINS = {
    "allOf bounds": {"allOf": [{"type": "integer"}, {"minimum": 3}, {"maximum": 8}]},
    "allOf objects": {"allOf": [{"$ref": "#/$defs/base"}, {"properties": {"b": {"type": "integer"}}, "required": ["b"]}],
                      "$defs": {"base": {"type": "object", "properties": {"a": {"type": "boolean"}}, "required": ["a"]}}},
    "ref beside": {"$defs": {"n": {"type": "integer", "minimum": 0}}, "$ref": "#/$defs/n", "maximum": 5, "description": "small"},
    "ref of ref": {"$defs": {"a": {"$ref": "#/$defs/b"}, "b": {"enum": ["z"]}}, "$ref": "#/$defs/a"},
    "ref escaped": {"$defs": {"a/b": {"enum": [1]}, "c~d": {"enum": [2]}, "e f": {"enum": [3]}, "\u00fc": {"enum": [4]}},
                    "anyOf": [{"$ref": "#/$defs/a~1b"}, {"$ref": "#/$defs/c~0d"}, {"$ref": "#/$defs/e%20f"}, {"$ref": "#/$defs/\u00fc"}]},
    "anyOf types": {"anyOf": [{"type": "integer"}, {"type": "boolean"}, {"type": "array", "items": {"type": "null"}, "maxItems": 2}]},
    "anyOf beside": {"type": "object", "properties": {"k": WORD}, "required": ["k"], "anyOf": [
        {"properties": {"a": {"type": "boolean"}}, "required": ["a"]}, {"properties": {"b": {"type": "null"}}, "required": ["b"]}]},
    "oneOf types": {"oneOf": [{"type": "string", "maxLength": 4}, {"type": "integer"}, {"type": "null"}]},
    "oneOf tag": {"type": "object", "oneOf": [
        {"properties": {"op": {"const": "add"}, "n": {"type": "integer"}}, "required": ["op", "n"]},
        {"properties": {"op": {"enum": ["del", "rm"]}, "key": WORD}, "required": ["op", "key"]}]},
    "oneOf in array": {"type": "array", "maxItems": 3, "items": {"oneOf": [
        record({"t": {"const": 1}, "v": {"type": "boolean"}}), record({"t": {"const": 2}, "w": {"type": "null"}})]}},
    "oneOf refs": {"oneOf": [{"$ref": "#/$defs/a"}, {"$ref": "#/$defs/b"}], "discriminator": {"propertyName": "t"}, "$defs": {
        "a": record({"t": {"const": "a"}}), "b": record({"t": {"const": "b"}, "n": {"type": "integer"}})}},
    "tree": {"$ref": "#/$defs/t", "$defs": {"t": record({"v": {"type": "integer"}, "kids": {
        "type": "array", "maxItems": 2, "items": {"$ref": "#/$defs/t"}}})}},
    "linked list": record({"head": {"$ref": "#/$defs/n"}}, **{"$defs": {"n": {"anyOf": [
        {"type": "null"}, record({"v": {"type": "boolean"}, "next": {"$ref": "#/$defs/n"}})]}}}),
    "mutual": {"$ref": "#/$defs/e", "$defs": {
        "e": {"anyOf": [{"type": "integer"}, {"$ref": "#/$defs/s"}]},
        "s": record({"op": {"enum": ["+", "-", "*"]}, "l": {"$ref": "#/$defs/e"}, "r": {"$ref": "#/$defs/e"}})}},
    "json of json": {"$ref": "#/$defs/j", "$defs": {"j": {"anyOf": [
        {"type": ["boolean", "null", "integer"]}, {"type": "array", "items": {"$ref": "#/$defs/j"}, "maxItems": 3},
        {"type": "object", "additionalProperties": {"$ref": "#/$defs/j"}}]}}},
}

PLAIN = {
    "empty": {}, "true": True, "string": {"type": "string"}, "integer": {"type": "integer"}, "number": {"type": "number"},
    "boolean": {"type": "boolean"}, "null": {"type": "null"}, "types": {"type": ["string", "integer", "null"]},
    "lengths": {"type": "string", "minLength": 3, "maxLength": 10}, "long text": {"type": "string", "minLength": 60, "maxLength": 80},
    "described": record({"city": {"type": "string", "maxLength": 10, "description": "a city", "examples": ["Bonn"], "title": "City"},
                         "days": {"type": "integer", "default": 3, "minimum": 1, "maximum": 7}}, title="Weather", description="d",
                        **{"$schema": D2020, "$id": "https://example.org/weather", "$comment": "c"}),
    "ordered": record({"b": {"type": "boolean"}, "a": {"type": "boolean"}}, propertyOrdering=["b", "a"]),
    "nullable": record({"a": {"type": "boolean", "x-note": 1}}),
}

GROUPS = (PLAIN, OBJECTS, ARRAYS, NUMBERS, UNICODE, JOINS, FORMATS, PATTERNS, ZOD)
HAND = {name: s for group in GROUPS for name, s in group.items()}


def ours():
    return {**HAND, **models.schemas()}


def of_clients(shared):
    """Each schema of answers, and of tools' parameters, in the requests that real clients sent."""
    found = {}

    def look(x, file, inside):
        if isinstance(x, list):
            for y in x:
                look(y, file, inside)
        if not isinstance(x, dict):
            return
        for k, v in x.items():
            here = k in ("parameters", "input_schema", "schema", "format", "value") and isinstance(v, dict)
            if here and not inside and (isinstance(v.get("type"), str) and v["type"] in ("object", "array", "string")
                                        or "properties" in v) and "schema" not in v:
                found.setdefault(json.dumps(v, sort_keys=True), (file, v))
                look(v, file, True)
            elif not inside:
                look(v, file, inside)
    for path in sorted(pathlib.Path(shared).glob("data/clients/*.json")):
        look(json.loads(path.read_text()), path.stem, False)
    count = {}
    out = {}
    for file, schema in found.values():
        count[file] = count.get(file, 0) + 1
        out[f"client {file} {count[file]}"] = schema
    return out


def of_suite(folder, draft):
    """(schema, its instances as (value, valid)) by name, of one draft of the public suite."""
    out = {}
    for path in sorted([*pathlib.Path(folder).glob("*.json"), *pathlib.Path(folder).glob("optional/format/*.json")]):
        for case in json.loads(path.read_text()):
            out[f"{draft} {path.stem}: {case['description']}"] = (
                case["schema"], [(t["data"], t["valid"]) for t in case["tests"]])
    return out
