"""Writes GGUF files from the words of the format's specification; shares no code with the project.

A file is written together with a list of its fields, so that tests can damage each of them.
"""
import struct
from dataclasses import dataclass

U8, I8, U16, I16, U32, I32, F32, BOOL, STRING, ARRAY, U64, I64, F64 = range(13)
CODES = {U8: "B", I8: "b", U16: "H", I16: "h", U32: "I", I32: "i", F32: "f", BOOL: "B", U64: "Q",
         I64: "q", F64: "d"}


@dataclass
class Field:
    kind: str  # what the number means: "count", "length", "type", "dimension" …
    owner: str  # the key or tensor it belongs to
    offset: int
    size: int
    value: int


@dataclass
class Tensor:
    name: str
    ne: list  # contiguous dimension first, as in the file
    type: int
    data: bytes  # in the file's byte order


class Writer:
    def __init__(self, version=3, big_endian=False, alignment=32):
        self.order = ">" if big_endian else "<"
        self.version = version
        self.alignment = alignment
        self.head = bytearray()
        self.fields = []

    def number(self, code, value, kind="", owner=""):
        packed = struct.pack(self.order + code, value)
        if kind:
            self.fields.append(Field(kind, owner, len(self.head), len(packed), value))
        self.head += packed

    def string(self, text, kind, owner):
        data = text if isinstance(text, bytes) else text.encode()
        self.number("Q", len(data), kind, owner)
        self.head += data

    def value(self, kind, value, owner):
        if kind == STRING:
            self.string(value, "string length", owner)
        else:
            self.number(CODES[kind], value, "bool" if kind == BOOL else "", owner)

    def key(self, name, kind, value):
        self.string(name, "key length", name)
        if isinstance(kind, tuple):  # (ARRAY, element)
            self.number("I", ARRAY, "value type", name)
            self.number("I", kind[1], "element type", name)
            self.number("Q", len(value), "array length", name)
            for element in value:
                self.value(kind[1], element, name)
        else:
            self.number("I", kind, "value type", name)
            self.value(kind, value, name)

    def padded(self, size):
        return -(-size // self.alignment) * self.alignment

    def write(self, keys, tensors):
        """The file's bytes. `keys`: (name, type, value)."""
        self.head += b"GGUF"
        self.fields.append(Field("magic", "", 0, 4, 0))
        self.number("I", self.version, "version")
        self.number("Q", len(tensors), "tensor count")
        self.number("Q", len(keys), "key count")
        for name, kind, value in keys:
            self.key(name, kind, value)
        offset = 0
        for tensor in tensors:
            self.string(tensor.name, "name length", tensor.name)
            self.number("I", len(tensor.ne), "dimensions", tensor.name)
            for dimension in tensor.ne:
                self.number("Q", dimension, "dimension", tensor.name)
            self.number("I", tensor.type, "tensor type", tensor.name)
            self.number("Q", offset, "offset", tensor.name)
            offset += self.padded(len(tensor.data))
        data = bytes(self.head)
        if tensors:
            data = data.ljust(self.padded(len(data)), b"\0")
        for tensor in tensors:
            data += tensor.data.ljust(self.padded(len(tensor.data)), b"\0")
        return data


def split_keys(number, count, tensors):
    return [("split.no", U16, number), ("split.count", U16, count),
            ("split.tensors.count", I32, tensors)]


def part_name(prefix, number, count):
    return f"{prefix}-{number + 1:05d}-of-{count:05d}.gguf"


def read_head(path):
    """{name: (ne, type, absolute offset)} of a little-endian file. Reads no values of keys but the
    alignment; knows no more than it needs."""
    data = path.read_bytes()
    at = 8

    def take(code):
        nonlocal at
        (value,) = struct.unpack_from("<" + code, data, at)
        at += struct.calcsize("<" + code)
        return value

    def text():
        nonlocal at
        size = take("Q")
        at += size
        return data[at - size:at].decode()

    def value(kind):
        if kind == STRING:
            return text()
        if kind == ARRAY:
            element, count = take("I"), take("Q")
            return [value(element) for _ in range(count)]
        return take(CODES[kind])

    tensors, keys = take("Q"), take("Q")
    metadata = {}
    for _ in range(keys):
        name = text()
        metadata[name] = value(take("I"))
    infos = []
    for _ in range(tensors):
        name = text()
        ne = [take("Q") for _ in range(take("I"))]
        infos.append((name, ne, take("I"), take("Q")))
    alignment = metadata.get("general.alignment", 32)
    start = -(-at // alignment) * alignment
    return metadata, {name: (ne, kind, start + offset) for name, ne, kind, offset in infos}
