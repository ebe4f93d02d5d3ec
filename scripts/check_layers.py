#!/usr/bin/env python3
"""Fails when an include or a link points up the layers (docs/architecture.md).

Every include of the project's own headers is written from the root ("formats/base/status.h"), names a
file that exists, and follows an arrow of ALLOWED; inside a library it follows an arrow of ROOMS.
CMake targets follow the arrows of ALLOWED too.
"""

import argparse
import os
import re
import sys

from source_tree import (CPP_SUFFIXES, GLSL_SUFFIXES, line_of, project_files, read_text,
                         without_comments)

# Which layers the files of a layer may include.
ALLOWED = {
    "formats": {"formats"},
    "quant": {"quant", "formats"},
    "runtime": {"runtime", "formats", "shaders"},
    "convert": {"convert", "quant", "formats"},
    "convert/cli": {"convert/cli", "convert", "runtime", "quant", "formats"},
    "shaders": {"shaders"},
    "tests": {"tests", "convert/cli", "convert", "runtime", "quant", "formats", "shaders"},
    "bench": {"bench", "convert/cli", "convert", "runtime", "quant", "formats", "shaders"},
}
# Which other rooms (folders) of its library the files of a room may include. A room of these
# libraries that is not named here is an error, and so is a circle.
ROOMS = {
    "formats": {
        "formats/base": set(),
        "formats/weights": {"formats/base"},
        "formats/gguf": {"formats/base", "formats/weights"},
        "formats/config": {"formats/base", "formats/weights"},
        "formats/checkpoint": {"formats/base", "formats/config"},
        "formats/pack": {"formats/base", "formats/weights", "formats/config"},
        "formats/calibration": {"formats/base", "formats/weights", "formats/gguf", "formats/pack"},
        "formats/flashmoe": {"formats/base", "formats/weights", "formats/config", "formats/pack",
                             "formats/calibration"},
        "formats": {"formats/base", "formats/config", "formats/pack", "formats/calibration",
                    "formats/flashmoe"},
    },
    "runtime": {
        "runtime/tokenizer": set(),
        "runtime/store": set(),
        "runtime/placement": set(),
        "runtime/replay": {"runtime/store"},
        "runtime/model": {"runtime/store"},
        "runtime/cpu": {"runtime/model"},
        "runtime/vulkan": {"runtime/store", "runtime/model", "runtime/placement"},
        "runtime/score": set(),
        "runtime": {"runtime/tokenizer", "runtime/store", "runtime/model", "runtime/score",
                    "runtime/placement", "runtime/vulkan"},
        "runtime/corpus": {"runtime/store", "runtime/model", "runtime/score"},
        "runtime/jinja": set(),
        "runtime/schema": set(),
        "runtime/chat": {"runtime/jinja", "runtime/tokenizer", "runtime/schema"},
        "runtime/constrain": {"runtime", "runtime/tokenizer", "runtime/chat", "runtime/schema"},
        "runtime/schedule": {"runtime", "runtime/model", "runtime/tokenizer"},
        "runtime/service": {"runtime", "runtime/tokenizer", "runtime/chat", "runtime/constrain",
                            "runtime/schedule", "runtime/store"},
        "runtime/http": set(),
        "runtime/serve": {"runtime", "runtime/http", "runtime/service", "runtime/chat"},
        "runtime/speed": {"runtime/store", "runtime/model", "runtime/cpu", "runtime"},
        "runtime/advice": {"runtime/store", "runtime/model", "runtime/cpu", "runtime",
                           "runtime/speed", "runtime/vulkan"},
    },
    "convert": {
        "convert/job": set(),
        "convert/source": set(),
        "convert/report": set(),
        "convert/pack": {"convert/job", "convert/source"},
        "convert/quantize": {"convert/job", "convert/source", "convert/report", "convert/pack"},
        "convert/overlay": {"convert/job", "convert/source", "convert/report", "convert/pack"},
        "convert/inspect": {"convert/job", "convert/source", "convert/report", "convert/pack"},
        "convert/export/flashmoe": {"convert/job", "convert/pack"},
        "convert/export/gguf": {"convert/job", "convert/source", "convert/pack",
                                "convert/export/flashmoe"},
        "convert/verify": {"convert/job", "convert/source", "convert/pack", "convert/overlay",
                           "convert/quantize", "convert/export/flashmoe"},
    },
}
# Shaders are compiled by glslang: of formats they can read nothing but numbers.
SHADER_HEADERS = {"formats/weights/qformat_defs.h"}
# Headers that the build makes; they exist in no checkout.
GENERATED = re.compile(r"^(?:shaders/[a-z0-9_]+_spv|runtime/serve/page_bytes)\.h$")

INCLUDE = re.compile(r"^[ \t]*#[ \t]*include(?:_next)?\b[ \t]*(.*)$", re.MULTILINE)
LINK = re.compile(r"target_link_libraries\s*\(\s*(moepack_\w+|moepack)\b([^)]*)\)")
TARGET_LAYER = {
    "moepack_formats": "formats",
    "moepack_quant": "quant",
    "moepack_runtime": "runtime",
    "moepack_convert": "convert",
    "moepack_cli": "convert/cli",
    "moepack": "convert/cli",
    "moepack_shaders": "shaders",
}


def layer_of(path):
    """The layer a path from the root belongs to, or None."""
    if path.startswith("convert/cli/"):
        return "convert/cli"
    first = path.split("/", 1)[0]
    return first if first in ALLOWED and "/" in path else None


def check_room(path, layer, name):
    """An arrow between two folders of one library; returns what is wrong with it, or None."""
    rooms = ROOMS.get(layer)
    room, other = os.path.dirname(path), os.path.dirname(name)
    if rooms is None or layer_of(name) != layer or room == other:
        return None
    if room not in rooms:
        return f"the room {room} is not named in ROOMS"
    return None if other in rooms[room] else f'"{name}": {room} must not include {other}'


def check_rooms_have_no_circle():
    """Every room of ROOMS can be put below the rooms that may include it."""
    problems = []
    for layer, rooms in ROOMS.items():
        placed = set()
        while ready := [r for r in rooms if r not in placed and rooms[r] <= placed]:
            placed.update(ready)
        if len(placed) < len(rooms):
            circle = ", ".join(sorted(set(rooms) - placed))
            problems.append(f"scripts/check_layers.py: {layer}: a circle, or a room unknown: {circle}")
    return problems


def check_include(path, layer, target, root):
    """One include operand; returns what is wrong with it, or None."""
    match = re.match(r'^(?:"([^"]+)"|<([^>]+)>)', target)
    if match is None:
        return f"computed include {target!r}: write the header's name"
    name = match.group(1) or match.group(2)
    own = layer_of(name)
    if own is None:
        if match.group(1) is None:
            return None
        return f'"{name}": write includes from the root, as "formats/base/status.h"; libraries in <>'
    if match.group(2) is not None:
        return f'<{name}>: the project\'s own headers stand in quotes'
    if os.path.normpath(name) != name:
        return f'"{name}": write the path without . and ..'
    if layer == "shaders" and own == "formats" and name in SHADER_HEADERS:
        return None
    if own not in ALLOWED[layer]:
        return f'"{name}": {layer} must not include {own}'
    problem = check_room(path, layer, name)
    if problem is not None:
        return problem
    if not GENERATED.match(name) and not os.path.isfile(os.path.join(root, name)):
        return f'"{name}" does not exist'
    return None


def check_source(root, path):
    layer = layer_of(path)
    if layer is None:
        return [f"{path}: lies in no layer; known are {', '.join(sorted(ALLOWED))}"]
    text = read_text(root, path)
    if text is None:
        return [f"{path}: not UTF-8"]
    text = without_comments(text)
    problems = []
    for match in INCLUDE.finditer(text):
        problem = check_include(path, layer, match.group(1).strip(), root)
        if problem is not None:
            problems.append(f"{path}:{line_of(text, match.start())}: {problem}")
    return problems


def check_links(root, path):
    text = re.sub(r"#[^\n]*", "", read_text(root, path) or "")
    problems = []
    for match in LINK.finditer(text):
        layer = TARGET_LAYER.get(match.group(1))
        if layer is None:
            continue
        for name in match.group(2).split():
            linked = TARGET_LAYER.get(name)
            if linked is not None and linked not in ALLOWED[layer]:
                line = line_of(text, match.start())
                problems.append(f"{path}:{line}: {match.group(1)} must not link {name}")
    return problems


def check(root):
    problems = check_rooms_have_no_circle()
    for path in project_files(root):
        if path.endswith(CPP_SUFFIXES + GLSL_SUFFIXES):
            problems += check_source(root, path)
        elif os.path.basename(path) == "CMakeLists.txt":
            problems += check_links(root, path)
    return problems


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("root", nargs="?", default=os.path.join(os.path.dirname(__file__), ".."))
    problems = check(os.path.abspath(parser.parse_args().root))
    for problem in problems:
        print(problem)
    print(f"layers: {len(problems)} wrong arrows")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
