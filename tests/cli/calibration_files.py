"""Calibrations read with the standard library and libzstd's plainest call, so that they are not
checked with the project's own reader. Layout: docs/calibration-format.md."""
import array
import ctypes
import json
import struct
from pathlib import Path

PLANE_VALUES = 524288
FRAME_BYTES = 1 << 20


def zstd_frames(data):
    """The contents of zstd frames, one after another."""
    lib = ctypes.CDLL("libzstd.so.1")
    lib.ZSTD_findFrameCompressedSize.restype = ctypes.c_size_t
    lib.ZSTD_findFrameCompressedSize.argtypes = [ctypes.c_char_p, ctypes.c_size_t]
    lib.ZSTD_decompress.restype = ctypes.c_size_t
    lib.ZSTD_decompress.argtypes = [ctypes.c_char_p, ctypes.c_size_t, ctypes.c_char_p,
                                    ctypes.c_size_t]
    out = ctypes.create_string_buffer(FRAME_BYTES)
    contents = bytearray()
    while data:
        frame = lib.ZSTD_findFrameCompressedSize(data, len(data))
        if frame > len(data):
            raise ValueError("not a zstd frame")
        size = lib.ZSTD_decompress(out, FRAME_BYTES, data[:frame], frame)
        if size > FRAME_BYTES:
            raise ValueError("a damaged frame")
        contents += out.raw[:size]
        data = data[frame:]
    return bytes(contents)


def bf16(value):
    return struct.unpack("<f", struct.pack("<I", value << 16))[0]


def read_manifest(directory):
    return json.loads((Path(directory) / "calibration.json").read_text())


def read_layer(directory, layer):
    """(inputs [tokens][hidden] as floats, experts [tokens][K], weights [tokens][K])."""
    m = read_manifest(directory)
    tokens, hidden, top_k = m["tokens"], m["hidden_size"], m["experts_per_token"]
    raw = zstd_frames((Path(directory) / m["layers"][layer]["file"]).read_bytes())
    count, uses = tokens * hidden, tokens * top_k
    if len(raw) != 2 * count + 6 * uses:
        raise ValueError(f"layer {layer} holds {len(raw)} bytes")
    values = []
    for first in range(0, count, PLANE_VALUES):
        run = min(PLANE_VALUES, count - first)
        low, high = raw[2 * first:2 * first + run], raw[2 * first + run:2 * first + 2 * run]
        values += [bf16(a + 256 * b) for a, b in zip(low, high)]
    experts = array.array("H", raw[2 * count:2 * count + 2 * uses])
    weights = array.array("f", raw[2 * count + 2 * uses:])

    def rows(flat, width):
        return [list(flat[i * width:(i + 1) * width]) for i in range(tokens)]
    return rows(values, hidden), rows(experts, top_k), rows(weights, top_k)
