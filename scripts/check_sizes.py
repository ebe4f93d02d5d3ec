#!/usr/bin/env python3
"""Fails when a source passes 1,000 lines or a function 120.

C++ and GLSL functions are measured by their braces, from the first line of the signature to the
closing brace, both included; lambdas and local classes count as part of the function around them.
Python functions are measured by the parser, shell functions by `name() {` and `}` at the margin.
"""

import argparse
import ast
import os
import re
import sys

from source_tree import (CPP_SUFFIXES, GLSL_SUFFIXES, line_of, project_files, read_text,
                         without_comments_and_literals)

MAX_FILE_LINES = 1000
MAX_FUNCTION_LINES = 120

SCOPE = re.compile(r"^(?:inline\s+)?namespace\b|^extern$")
# A class head may carry template parameters, attributes and bases, but no parameter list.
CLASS = re.compile(r"\b(?:class|struct|union|enum)\b[^()=]*$")
ACCESS = re.compile(r"(?:\s|\b(?:public|protected|private)\s*:(?!:))*")
NOT_PARAMETERS = re.compile(
    r"\[\[.*?\]\]"
    r"|\b(?:alignas|noexcept|__attribute__|decltype|requires)\s*\((?:[^()]|\([^()]*\))*\)"
    r"|\btemplate\s*<(?:[^<>]|<(?:[^<>]|<[^<>]*>)*>)*>", re.DOTALL)


def _kind(head):
    """What a brace at namespace or class scope opens: scope, function or value.

    In doubt a function: a table taken for one fails only when it is long, and loudly.
    """
    head = NOT_PARAMETERS.sub("", head[ACCESS.match(head).end():])
    while re.search(r"\{[^{}]*\}", head):  # members initialised with braces look like calls
        head = re.sub(r"\{[^{}]*\}", "()", head)
    head = head.strip()
    if SCOPE.match(head) or CLASS.search(head):
        return "scope"
    if ")" not in head or head.endswith(("=", ",", "(", "[")):
        return "value"
    # `Name(int x) : first_(x), second_` before a brace: the braces initialise second_.
    initialisers = re.search(r"\)\s*(?:noexcept\s*)?:(?!:)", head)
    if initialisers and re.search(r"[:,]\s*[A-Za-z_]\w*(?:<[^()]*>)?$", head):
        return "value"
    return "function"


def brace_functions(text):
    """[(first line, lines, signature)] of C-like text; raises ValueError when braces don't pair."""
    code = without_comments_and_literals(text)
    code = re.sub(r"^[ \t]*#(?:[^\n\\]|\\(?:\n|.))*",
                  lambda match: re.sub(r"[^\n]", " ", match.group()), code, flags=re.MULTILINE)
    found = []
    stack = []          # kind of each open brace, with where its head began
    head_start = 0      # where the text that may become a head begins
    parens = 0
    for match in re.finditer(r"[{}();]", code):
        at, char = match.start(), match.group()
        inside = any(kind != "scope" for kind, _ in stack)
        if char in "()":
            parens += 1 if char == "(" else -1
        elif char == "{":
            kind = "value" if inside or parens > 0 else _kind(code[head_start:at])
            stack.append((kind, ACCESS.match(code, head_start).end()))
            if kind == "scope":
                head_start = at + 1
        elif char == "}":
            if not stack:
                raise ValueError(f"line {line_of(code, at)}: a closing brace without its opening")
            kind, start = stack.pop()
            if kind == "function":
                first = line_of(code, start)
                signature = re.sub(r"\s+", " ", code[start:code.index("{", start)]).strip()
                found.append((first, line_of(code, at) - first + 1, signature))
            if kind != "value":
                head_start = at + 1
        elif not inside and parens == 0:
            head_start = at + 1
    if stack or parens != 0:
        raise ValueError("brackets do not pair (each branch of an #if must pair on its own)")
    return found


def python_functions(text):
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
            yield node.lineno, node.end_lineno - node.lineno + 1, node.name


def shell_functions(text):
    start = name = None
    for number, line in enumerate(text.splitlines(), 1):
        opening = re.match(r"(?:function\s+)?([A-Za-z_]\w*)\s*\(\)\s*[{(]\s*$", line)
        if opening:
            start, name = number, opening.group(1)
        elif start is not None and re.match(r"[})]", line):
            yield start, number - start + 1, name
            start = None


def measure(path, text):
    """The functions of a file as (first line, lines, name), or None when it is no source."""
    if path.endswith(CPP_SUFFIXES + GLSL_SUFFIXES):
        return brace_functions(text)
    if path.endswith(".py") or re.match(r"#!.*\bpython", text):
        return list(python_functions(text))
    if path.endswith(".sh") or re.match(r"#!.*\b(?:ba)?sh\b", text):
        return list(shell_functions(text))
    if path.endswith(".cmake") or os.path.basename(path) == "CMakeLists.txt":
        return []
    return None


def check(root):
    problems, sources, longest = [], 0, 0
    for path in project_files(root):
        if path.startswith("tests/golden/"):
            continue
        text = read_text(root, path)
        if text is None:
            continue
        try:
            functions = measure(path, text)
        except (ValueError, SyntaxError) as error:
            problems.append(f"{path}: cannot be measured: {error}")
            continue
        if functions is None:
            continue
        sources += 1
        lines = len(text.splitlines())
        if lines > MAX_FILE_LINES:
            problems.append(f"{path}: {lines} lines, more than {MAX_FILE_LINES}")
        for first, length, name in functions:
            longest = max(longest, length)
            if length > MAX_FUNCTION_LINES:
                problems.append(f"{path}:{first}: {name[:80]}: {length} lines, "
                                f"more than {MAX_FUNCTION_LINES}")
    return problems, f"sizes: {sources} sources, longest function {longest} lines"


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("root", nargs="?", default=os.path.join(os.path.dirname(__file__), ".."))
    parser.add_argument("--list", action="store_true", help="print every function with its length")
    args = parser.parse_args()
    root = os.path.abspath(args.root)
    if args.list:
        for path in project_files(root):
            text = read_text(root, path)
            for first, length, name in (measure(path, text) if text is not None else None) or []:
                print(f"{length:5d} {path}:{first}: {name[:100]}")
        return 0
    problems, summary = check(root)
    for problem in problems:
        print(problem)
    print(f"{summary}; {len(problems)} too long")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
