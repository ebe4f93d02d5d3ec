#!/usr/bin/env python3
"""Fails when an include or a link points up the layers (docs/architecture.md).

Every include of the project's own headers is written from the root ("formats/status.h"), names a
file that exists, and follows an arrow of ALLOWED. CMake targets follow the same arrows.
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
# Shaders are compiled by glslang: of formats they can read nothing but numbers.
SHADER_HEADERS = {"formats/qformat_defs.h"}
# Headers that the build makes; they exist in no checkout.
GENERATED = re.compile(r"^shaders/[a-z0-9_]+_spv\.h$")

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
        return f'"{name}": write includes from the root, as "formats/status.h"; libraries in <>'
    if match.group(2) is not None:
        return f'<{name}>: the project\'s own headers stand in quotes'
    if os.path.normpath(name) != name:
        return f'"{name}": write the path without . and ..'
    if layer == "shaders" and own == "formats" and name in SHADER_HEADERS:
        return None
    if own not in ALLOWED[layer]:
        return f'"{name}": {layer} must not include {own}'
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
    problems = []
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
