"""Safetensors files read and written with the standard library alone, so that the commands are not
checked with the project's own readers; and the demo checkpoint in other layouts."""
import json
import shutil
import struct
from pathlib import Path

SHARD = "model.safetensors"
INDEX = "model.safetensors.index.json"
PROJECTIONS = ("gate_proj", "up_proj", "down_proj")
PARTS = ("weight", "scales", "biases")


def read_header(path):
    """The header of a file as a dictionary, and where its data section begins."""
    with open(path, "rb") as file:
        (size,) = struct.unpack("<Q", file.read(8))
        return json.loads(file.read(size)), 8 + size


def read_tensors(directory):
    """{name: (dtype, shape, bytes)} of all files of a directory."""
    tensors = {}
    for path in sorted(Path(directory).glob("*.safetensors")):
        header, start = read_header(path)
        data = path.read_bytes()
        for name, entry in header.items():
            if name == "__metadata__":
                continue
            begin, end = entry["data_offsets"]
            tensors[name] = (entry["dtype"], entry["shape"], data[start + begin:start + end])
    return tensors


def write_tensors(path, tensors, padding=""):
    """Writes a file; `padding` spaces behind the header move every tensor."""
    header, data = {}, bytearray()
    for name, (dtype, shape, content) in tensors.items():
        header[name] = {"dtype": dtype, "shape": shape,
                        "data_offsets": [len(data), len(data) + len(content)]}
        data += content
    text = json.dumps(header).encode() + padding.encode()
    Path(path).write_bytes(struct.pack("<Q", len(text)) + text + bytes(data))


def write_checkpoint(source, directory, tensors, shards=1):
    """The files of `source` with other tensors, in `shards` files whose data starts at odd
    offsets."""
    directory = Path(directory)
    directory.mkdir(parents=True)
    for path in Path(source).iterdir():
        if path.is_file() and not path.name.startswith(SHARD):
            shutil.copy(path, directory)
    if shards == 1:
        write_tensors(directory / SHARD, tensors, " ")
        return
    weight_map = {}
    names = list(tensors)
    for shard in range(shards):
        file = f"model-{shard + 1:05}-of-{shards:05}.safetensors"
        part = {name: tensors[name] for name in names[shard::shards]}
        write_tensors(directory / file, part, " " * (shard % 3))
        weight_map.update({name: file for name in part})
    (directory / INDEX).write_text(json.dumps({"metadata": {}, "weight_map": weight_map}))


def expert_bytes(tensors, layer, expert, projection, part):
    """One expert's component of a checkpoint in mlx-lm's layout."""
    name = f"language_model.model.layers.{layer}.mlp.switch_mlp.{projection}.{part}"
    _, shape, content = tensors[name]
    size = len(content) // shape[0]
    return content[expert * size:(expert + 1) * size]


def one_tensor_per_expert(tensors):
    """The same weights, stacked experts taken apart."""
    out = {}
    for name, (dtype, shape, content) in tensors.items():
        if ".switch_mlp." not in name:
            out[name] = (dtype, shape, content)
            continue
        size = len(content) // shape[0]
        for expert in range(shape[0]):
            out[name.replace("switch_mlp", f"experts.{expert}")] = (
                dtype, shape[1:], content[expert * size:(expert + 1) * size])
    return out


def fused_gate_up(tensors):
    """The same weights, the rows of gate and up of each expert in one tensor."""
    out = {}
    for name, (dtype, shape, content) in tensors.items():
        if ".switch_mlp.up_proj." in name:
            continue
        if ".switch_mlp.gate_proj." not in name:
            out[name] = (dtype, shape, content)
            continue
        up = tensors[name.replace("gate_proj", "up_proj")][2]
        size = len(content) // shape[0]
        joined = b"".join(half[e * size:(e + 1) * size]
                          for e in range(shape[0]) for half in (content, up))
        out[name.replace("gate_proj", "gate_up_proj")] = (
            dtype, [shape[0], 2 * shape[1], *shape[2:]], joined)
    return out


def bf16(content, index):
    return struct.unpack("<f", b"\0\0" + content[2 * index:2 * index + 2])[0]


def f32(value):
    return struct.unpack("<f", struct.pack("<f", value))[0]


def decode_affine(bits, group, codes, scales, biases):
    """Decodes whole rows, any number of them: code * scale + bias in float32."""
    stream = int.from_bytes(codes, "little")
    mask = (1 << bits) - 1
    words = [(stream >> shift) & mask for shift in range(0, len(codes) * 8, bits)] \
        if len(codes) < 1024 else None
    if words is None:
        words = []
        for at in range(0, len(codes), 4 * bits):
            block = int.from_bytes(codes[at:at + 4 * bits], "little")
            words += [(block >> (bits * i)) & mask for i in range(32)]
    return [f32(f32(code * bf16(scales, i // group)) + bf16(biases, i // group))
            for i, code in enumerate(words)]
