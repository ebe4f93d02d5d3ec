#!/usr/bin/env python3
"""Writes cases.json: schemas with values that satisfy them and values that do not.

The values come from the generator below; whether they satisfy a schema is what the package jsonschema
says. Left out is what runtime/constrain does differently on purpose (README.md).
"""

import json
import os
import random

import jsonschema

STRINGS = ["", "a", "abc", "Rome", "hello world", "x" * 12, "Zürich", "日本", "😀", "tab\there", 'quo"te',
           "back\\slash", "line\nend", "2026-11-23", "user@example.com", "true", "null", "12", "ab-12",
           "AB12", "\u0001", "</parameter>", "<|im_end|>"]
NUMBERS = [0, 1, -1, 2, 3, 5, 7, 9, 10, 12, 18, 42, 99, 100, 101, 120, 150, 255, 1000, 65535, -5, -10, -40,
           123456789, 0.5, 1.5, -0.5, 2.25, 3.14159, 99.9, 100.5, -40.25, 1e-07, 1e20, -3]


def wild():
    """Schemas as clients send them."""
    s = {"type": "string"}
    i = {"type": "integer"}
    n = {"type": "number"}
    b = {"type": "boolean"}
    obj = lambda props, required=None, **more: {"type": "object", "properties": props,
                                                **({"required": required} if required else {}), **more}
    yield True
    yield {}
    yield from (s, i, n, b, {"type": "null"}, {"type": "object"}, {"type": "array"})
    yield {"type": ["string", "null"]}
    yield {"type": ["integer", "string", "boolean"]}
    yield {"$schema": "http://json-schema.org/draft-07/schema#", **obj({"city": s}, ["city"])}
    yield {"$schema": "https://json-schema.org/draft/2020-12/schema",
           **obj({"command": {"type": "string", "description": "The command to execute"},
                  "timeout": {"type": "number", "description": "milliseconds", "maximum": 600000},
                  "description": s, "run_in_background": b}, ["command"], additionalProperties=False)}
    yield {"$schema": "https://json-schema.org/draft/2020-12/schema",
           **obj({"file_path": s, "old_string": s, "new_string": s,
                  "replace_all": {"type": "boolean", "default": False}},
                 ["file_path", "old_string", "new_string"], additionalProperties=False)}
    yield obj({"todos": {"type": "array", "items": obj(
        {"content": {"type": "string", "minLength": 1},
         "status": {"type": "string", "enum": ["pending", "in_progress", "completed"]}},
        ["content", "status"], additionalProperties=False)}}, ["todos"], additionalProperties=False)
    yield obj({"location": s, "unit": {"type": "string", "enum": ["celsius", "fahrenheit"]}}, ["location"])
    yield obj({"a": {"anyOf": [{"type": "string"}, {"type": "null"}], "default": None, "title": "A"},
               "b": {"anyOf": [{"type": "integer", "minimum": 0}, {"type": "null"}]}}, ["a", "b"],
              title="Model", additionalProperties=False)
    yield {"$defs": {"Color": {"enum": ["red", "green"], "type": "string"},
                     "Point": obj({"x": i, "y": i}, ["x", "y"])},
           **obj({"color": {"$ref": "#/$defs/Color"},
                  "path": {"type": "array", "items": {"$ref": "#/$defs/Point"}, "minItems": 1, "maxItems": 3}},
                 ["color", "path"])}
    yield {"$defs": {"Node": obj({"value": i, "next": {"anyOf": [{"$ref": "#/$defs/Node"}, {"type": "null"}]}},
                                 ["value", "next"], additionalProperties=False)},
           "$ref": "#/$defs/Node"}
    yield {"definitions": {"tree": obj({"name": s, "children": {"type": "array",
                                                                "items": {"$ref": "#/definitions/tree"}}},
                                       ["name"])}, "$ref": "#/definitions/tree"}
    yield obj({"self": {"$ref": "#"}, "v": i})
    yield {"type": "array", "items": {"$ref": "#"}}
    yield {"type": "array", "prefixItems": [s, i], "items": False}
    yield {"type": "array", "prefixItems": [s, i], "items": b, "minItems": 2, "maxItems": 4}
    yield {"type": "array", "prefixItems": [s, i], "minItems": 1}
    for low, high in ((0, 0), (0, 2), (1, None), (2, 3), (3, 3), (0, 1)):
        yield {"type": "array", "items": i, "minItems": low, **({} if high is None else {"maxItems": high})}
    yield {"type": "object", "additionalProperties": s}
    yield {"type": "object", "additionalProperties": obj({"n": n}, ["n"])}
    yield {"type": "object", "additionalProperties": False}
    yield obj({"name": s, "n": i}, ["name"], additionalProperties={"type": "integer"})
    yield obj({"name": s, "name2": i, "na\"me": b, "é": n}, additionalProperties=True)
    yield obj({"a": i}, ["a", "b"], additionalProperties=s)
    yield obj({"": i, "a b": s, "back\\slash": b, "日本": i}, ["", "日本"])
    yield obj({chr(97 + k): i for k in range(12)}, ["c", "f"])
    yield obj({f"field_{k}": s for k in range(30)})
    yield {"enum": ["a", "b", 1, 2.5, None, True, ["x", 1], {"k": "v"}, "ab", "a\"b"]}
    yield {"const": {"kind": "fixed", "n": [1, 2]}}
    yield {"const": "only"}
    yield {"enum": [1, 2, 3, 10, 100]}
    yield {"type": "string", "enum": ["a", "b", 1]}
    for low, high in ((0, 0), (1, None), (0, 3), (3, 3), (2, 12), (5, 300)):
        yield {"type": "string", "minLength": low, **({} if high is None else {"maxLength": high})}
    for pattern in (r"^[a-z]+$", r"^[A-Z]{2}\d{2}$", r"^\d{4}-\d{2}-\d{2}$", r"abc", r"^a", r"c$", r"^(yes|no)$",
                    r"^[^\s@]+@[^\s@]+\.[a-z]{2,}$", r"^[\w\-]{1,8}$", r"^(?:[a-z]{2}-)*[0-9]{2}$", r"^.{3,5}$",
                    r"^$", r"^a|b$", r"^[^\"]*$", r"^\"?\w+\"?$", r"^x{3,}$", r"o w", r"^\\?$", r"^[\u3040-\u9fff]+$",
                    r"^(a|ab)(c|bcd)?$", r"^\S+$"):
        yield {"type": "string", "pattern": pattern}
    yield {"type": "string", "pattern": "^[a-z]*$", "minLength": 2, "maxLength": 4}
    for limits in ({"minimum": 0}, {"minimum": 1, "maximum": 10}, {"minimum": -10, "maximum": 10}, {"maximum": -1},
                   {"minimum": 18, "maximum": 120}, {"exclusiveMinimum": 0, "exclusiveMaximum": 100},
                   {"minimum": 100}, {"maximum": 99}, {"minimum": 7, "maximum": 7}, {"minimum": -40, "maximum": -3},
                   {"minimum": 95, "maximum": 1005}, {"minimum": 0.5, "maximum": 9.5},
                   {"minimum": 0, "maximum": 65535}, {"exclusiveMinimum": -5, "maximum": 5}):
        yield {"type": "integer", **limits}
        yield {"type": "number", **limits}
    yield {"type": "number", "minimum": -0.5, "maximum": 1.5}
    yield {"type": "number", "exclusiveMinimum": 1.5, "maximum": 2.25}
    yield {"anyOf": [obj({"type": {"const": "a"}, "x": i}, ["type", "x"]),
                     obj({"type": {"const": "b"}, "y": s}, ["type", "y"])]}
    yield {"oneOf": [obj({"kind": {"const": "cat"}, "lives": i}, ["kind"], additionalProperties=False),
                     obj({"kind": {"const": "dog"}, "tricks": {"type": "array", "items": s}}, ["kind"],
                         additionalProperties=False)]}
    yield {"allOf": [obj({"a": i}, ["a"]), obj({"b": s}, ["b"])]}
    yield {"allOf": [{"type": "integer", "minimum": 5}, {"maximum": 12}]}
    yield {"allOf": [{"$ref": "#/$defs/base"}], "$defs": {"base": obj({"id": i}, ["id"])}, "title": "T"}
    yield {"allOf": [{"$ref": "#/$defs/base"}, obj({"extra": s}, ["extra"])],
           "$defs": {"base": obj({"id": i}, ["id"])}}
    yield obj({"a": i, "b": i}, anyOf=[{"required": ["a"]}, {"required": ["b"]}])
    yield {"anyOf": [{"type": "string", "maxLength": 3}, {"type": "integer"}], "allOf": [{"minLength": 1}],
           "type": ["string", "integer"]}
    yield {"anyOf": [{"type": "array", "items": s}, {"type": "array", "items": i}]}
    yield {"type": "string", "title": "date-time"}
    yield {"properties": {"q": s}, "required": ["q"]}
    deep = s
    for _ in range(12):
        deep = obj({"inner": deep}, ["inner"])
    yield deep
    deep = i
    for _ in range(10):
        deep = {"type": "array", "items": deep, "minItems": 1, "maxItems": 2}
    yield deep
    yield {"$defs": {"expr": {"anyOf": [{"type": "number"},
                                        obj({"op": {"enum": ["+", "-"]}, "l": {"$ref": "#/$defs/expr"},
                                             "r": {"$ref": "#/$defs/expr"}}, ["op", "l", "r"],
                                            additionalProperties=False)]}}, "$ref": "#/$defs/expr"}
    yield {"type": "object", "properties": {"x": False, "y": i}}
    yield {"$defs": {"a/b": i, "c~d": s, "e f": b},
           **obj({"x": {"$ref": "#/$defs/a~1b"}, "y": {"$ref": "#/$defs/c~0d"}, "z": {"$ref": "#/$defs/e%20f"}},
                 ["x", "y", "z"])}
    yield {"type": "array", "items": {"type": "array", "items": {"type": "array", "items": n}}}
    yield {"type": ["object", "null"], "properties": {"a": s}, "required": ["a"]}
    yield {"type": "array", "items": {"type": "object", "additionalProperties": {"type": ["integer", "null"]}}}


def drawn(r, depth):
    """A random schema."""
    kind = r.choice(["string", "integer", "number", "boolean", "null", "enum", "const", "types", "any"]
                    if depth == 0 else ["object", "object", "array", "array", "anyOf", "string", "integer", "enum"])
    if kind == "string":
        low = r.randrange(4)
        return r.choice([{"type": "string"}, {"type": "string", "minLength": low},
                         {"type": "string", "minLength": low, "maxLength": low + r.randrange(10)}])
    if kind in ("integer", "number"):
        low = r.choice(NUMBERS[:19] + NUMBERS[20:23]) if kind == "integer" else r.choice(NUMBERS[:32])
        return r.choice([{"type": kind}, {"type": kind, "minimum": low},
                         {"type": kind, "minimum": low, "maximum": low + r.choice([0, 1, 8, 95, 1000])},
                         {"type": kind, "maximum": low}])
    if kind == "enum":
        return {"enum": r.sample(STRINGS, 3) + r.sample(NUMBERS[:20], 2)}
    if kind == "const":
        return {"const": r.choice(STRINGS + NUMBERS[:20])}
    if kind == "types":
        return {"type": r.sample(["string", "integer", "null", "boolean", "array"], 2)}
    if kind == "any":
        return r.choice([True, {}])
    if kind == "array":
        low = r.randrange(3)
        schema = {"type": "array", "items": drawn(r, depth - 1)}
        if r.random() < 0.3:
            schema["prefixItems"] = [drawn(r, depth - 1) for _ in range(r.randrange(1, 3))]
        if r.random() < 0.5:
            schema["minItems"] = low
        if r.random() < 0.5:
            schema["maxItems"] = low + r.randrange(3)
        return schema
    if kind == "anyOf":
        return {"anyOf": [drawn(r, depth - 1) for _ in range(r.randrange(1, 4))]}
    if kind == "object":
        names = r.sample(["a", "b", "ab", "abc", "name", "na me", "ключ", "x\"y", "d"], r.randrange(0, 5))
        schema = {"type": "object", "properties": {name: drawn(r, depth - 1) for name in names},
                  "required": [name for name in names if r.random() < 0.5]}
        schema["additionalProperties"] = r.choice([False, False, True, {"type": "integer"}])
        return schema
    return {"type": kind}


class Values:
    """Draws values that mostly satisfy a schema."""

    def __init__(self, r, root):
        self.r, self.root = r, root

    def any(self, depth=2):
        r = self.r
        k = r.randrange(7 if depth else 5)
        if k < 5:
            return [None, True, False, r.choice(NUMBERS), r.choice(STRINGS)][k]
        if k == 5:
            return [self.any(depth - 1) for _ in range(r.randrange(3))]
        return {r.choice(STRINGS): self.any(depth - 1) for _ in range(r.randrange(3))}

    def of(self, s, depth=6):
        r = self.r
        if s is True or s is False or s == {} or depth < -30:
            return self.any()
        if "$ref" in s:
            target = self.root
            for part in s["$ref"].split("/")[1:]:
                target = target[part.replace("%20", " ").replace("~1", "/").replace("~0", "~")]
            return self.of(target, depth - 1)
        if "allOf" in s:
            parts = [self.of(part, depth) for part in s["allOf"]]
            if all(isinstance(part, dict) for part in parts):
                return {k: v for part in parts for k, v in part.items()}
            return r.choice(parts)
        for key in ("anyOf", "oneOf"):
            if key in s:
                flat = [way for way in s[key] if way is True or not {"$ref", "properties", "items"} & set(way)]
                way = r.choice(s[key] if depth > 0 or not flat else flat)
                return self.of({**{k: v for k, v in s.items() if k != key}, **way} if way is not True else way, depth)
        if "const" in s:
            return s["const"]
        if "enum" in s:
            return r.choice(s["enum"])
        kind = s.get("type", "object" if "properties" in s else None)
        if isinstance(kind, list):
            kind = r.choice(kind)
        if kind == "string":
            return self.string(s)
        if kind in ("integer", "number"):
            return self.number(s, kind)
        if kind == "array":
            return self.array(s, depth)
        if kind == "object":
            return self.object(s, depth)
        return {"boolean": r.random() < 0.5, "null": None}.get(kind, self.any())

    def string(self, s):
        r = self.r
        pattern = s.get("pattern")
        if pattern:
            return r.choice(STRINGS + ["yes", "no", "aa-12", "abc", "a", "b", "ab", "abcd", "xxxx", '"ab"', "\\",
                                       "あ漢字", "acbcd", "zz-aa-07", "x@y.org", "AB99", "-_", "hello"])
        text = r.choice(STRINGS)
        while len(text) < s.get("minLength", 0):
            text += r.choice(STRINGS)
        return text[:s.get("maxLength", 400)]

    def number(self, s, kind):
        r = self.r
        low = s.get("minimum", s.get("exclusiveMinimum"))
        high = s.get("maximum", s.get("exclusiveMaximum"))
        draws = [r.choice(NUMBERS), low, high]
        if low is not None and high is not None:
            draws.append(round(r.uniform(low, high), r.randrange(4)))
        value = r.choice([d for d in draws if d is not None])
        value += r.choice([0, 0, 0, 1, -1])
        return int(value) if kind == "integer" and abs(value) < 1e15 else value

    def array(self, s, depth):
        r = self.r
        prefix = s.get("prefixItems", [])
        count = r.randrange(s.get("minItems", 0), s.get("maxItems", s.get("minItems", 0) + 3) + 1)
        if depth <= 0:
            count = s.get("minItems", 0)
        return [self.of(prefix[k] if k < len(prefix) else s.get("items", True), depth - 1) for k in range(count)]

    def object(self, s, depth):
        r = self.r
        value = {}
        required = s.get("required", [])
        others = s.get("additionalProperties", True if not s.get("properties") else False)
        for name, of_name in s.get("properties", {}).items():
            if name in required or (of_name is not False and depth > 0 and r.random() < 0.5):
                value[name] = self.of(of_name, depth - 1)
        for name in required:
            if name not in value:
                value[name] = self.of(others, depth - 1)
        if others is not False and r.random() < 0.6:
            for name in r.sample(STRINGS, 2):
                # Control characters in keys that are not named: README.md.
                if name not in s.get("properties", {}) and name not in value and "\u0001" not in name:
                    value[name] = self.of(others, depth - 1)
        return value

    def damaged(self, value):
        """The value with one thing changed somewhere."""
        r = self.r
        if isinstance(value, dict) and value and r.random() < 0.8:
            value = dict(value)
            name = r.choice(list(value))
            if r.random() < 0.4:
                del value[name]
            else:
                value[name] = self.damaged(value[name])
            return value
        if isinstance(value, list) and value and r.random() < 0.8:
            value = list(value)
            k = r.randrange(len(value))
            if r.random() < 0.4:
                value.append(value[k])
            else:
                value[k] = self.damaged(value[k])
            return value
        return r.choice([None, True, r.choice(NUMBERS), r.choice(STRINGS), [], {}, {"zz": 1}, [1, "a"]])


def text_of(value):
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


def is_writable(value):
    """False where Python writes an exponent, as in 1e-07, which not every number may have: README.md."""
    if isinstance(value, dict):
        return all(map(is_writable, value.values()))
    if isinstance(value, list):
        return all(map(is_writable, value))
    return not isinstance(value, float) or "e" not in repr(value)


def case(schema, r):
    jsonschema.Draft202012Validator.check_schema(schema)
    validator = jsonschema.Draft202012Validator(schema)
    values = Values(r, schema)
    valid, invalid = {}, {}
    for _ in range(60):
        value = values.of(schema)
        for v, may_be_valid in ((value, True), (values.damaged(value), False), (values.any(), False)):
            if len(text_of(v)) > 600:
                continue
            if not validator.is_valid(v):
                invalid[text_of(v)] = True
            elif may_be_valid and is_writable(v) and ("\\w" not in text_of(schema) or text_of(v).isascii()):
                valid[text_of(v)] = True
    return {"schema": schema, "valid": list(valid)[:6], "invalid": list(invalid)[:8]}


FORMATS = {
    "date": ["2024-02-29", "2000-02-29", "2023-12-31", "1999-04-30", "2023-02-28", "2023-02-29", "1900-02-29",
             "2023-04-31", "2023-13-01", "2023-00-10", "2023-1-01", "today", "2023-01-32"],
    "ipv4": ["127.0.0.1", "255.255.255.0", "1.20.199.249", "256.0.0.1", "1.2.3", "01.2.3.4", "1.2.3.4.5", ""],
    "uuid": ["123e4567-e89b-12d3-a456-426614174000", "FFFFFFFF-0000-4000-8000-00000000000a",
             "123e4567e89b12d3a456426614174000", "g23e4567-e89b-12d3-a456-426614174000", "123e4567-e89b"],
    "email": ["ada@example.org", "a.b+c@d-e.fr", "ada", ""],
}


def format_case(name, texts):
    schema = {"type": "string", "format": name}
    checker = jsonschema.Draft202012Validator.FORMAT_CHECKER
    validator = jsonschema.Draft202012Validator(schema, format_checker=checker)
    return {"schema": schema, "valid": [text_of(t) for t in texts if validator.is_valid(t)],
            "invalid": [text_of(t) for t in texts if not validator.is_valid(t)]}


def main():
    r = random.Random(19)
    schemas = list(wild()) + [drawn(r, r.choice([0, 1, 1, 2, 2, 3])) for _ in range(130)]
    cases = [case(schema, r) for schema in schemas]
    empty = [c["schema"] for c in cases if not c["valid"]]
    cases = [c for c in cases if c["valid"]] + [format_case(name, texts) for name, texts in FORMATS.items()]
    path = os.path.join(os.path.dirname(os.path.abspath(__file__)), "cases.json")
    with open(path, "w", encoding="utf-8") as file:
        file.write("[\n" + ",\n".join(json.dumps(c, ensure_ascii=False) for c in cases) + "\n]\n")
    print(len(cases), "schemas,", sum(len(c["valid"]) for c in cases), "valid and",
          sum(len(c["invalid"]) for c in cases), "invalid values; without valid values:", empty)


if __name__ == "__main__":
    main()
