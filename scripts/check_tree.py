#!/usr/bin/env python3
"""Fails when the tree holds something nobody uses, or something that works on one machine only.

* Golden data under tests/golden and fuzz corpora are named by a test or a fuzz target.
* Every C++ source stands in a CMake source list; every script test is registered.
* A C++ test opens one named namespace, of the file's name: tests are compiled several together.
* No file names a path of somebody's machine. Only .ci/run may say where the models lie there.
"""

import argparse
import os
import re
import sys

from source_tree import line_of, project_files, read_text

# Written in pieces, or this file would find itself.
MACHINE_PATH = re.compile(r"(?<![\w.\-])/(?:wo" r"rk|ro" r"ot)/")
BESIDE_CHECKOUT = "../" "shared"
CI_MODELS = re.compile(r"^\s*#|\bMOEPACK_TEST_MODELS=")

TEST_CODE = (".cpp", ".h", ".py", ".sh", ".txt")


def check_machine_paths(root, files):
    problems = []
    for path in files:
        text = read_text(root, path)
        if text is None:
            continue
        for match in MACHINE_PATH.finditer(text):
            problems.append(f"{path}:{line_of(text, match.start())}: "
                            f"a path of one machine: {match.group()}…")
        for number, line in enumerate(text.splitlines(), 1):
            if BESIDE_CHECKOUT in line and not (path == ".ci/run" and CI_MODELS.search(line)):
                problems.append(f"{path}:{number}: {BESIDE_CHECKOUT} exists only in CI, "
                                "and only .ci/run may set MOEPACK_TEST_MODELS to it")
    return problems


def check_golden(root, files):
    """Finds entries directly under tests/golden that the code of no test names."""
    prefix = "tests/golden/"
    entries = sorted({f[len(prefix):].split("/", 1)[0] for f in files if f.startswith(prefix)})
    tests = "\n".join(read_text(root, f) or "" for f in files
                      if f.startswith("tests/") and not f.startswith(prefix)
                      and f.endswith(TEST_CODE))
    return [f"{prefix}{entry}: no test names it" for entry in entries
            if entry != "README.md" and not re.search(rf"(?<![\w\-]){re.escape(entry)}(?![\w\-])",
                                                      tests)]


def check_corpora(root, files):
    """Finds fuzz targets without a corpus, and corpora without a target."""
    prefix = "tests/fuzz/corpus/"
    corpora = {f[len(prefix):].split("/", 1)[0] for f in files if f.startswith(prefix)}
    lists = read_text(root, "tests/fuzz/CMakeLists.txt") if "tests/fuzz/CMakeLists.txt" in files else ""
    targets = set(re.findall(r"^moepack_fuzzer\((\w+)", lists, re.MULTILINE))
    problems = [f"{prefix}{name}: no fuzz target of that name" for name in corpora - targets]
    problems += [f"tests/fuzz/CMakeLists.txt: fuzz target {name} has no corpus in {prefix}{name}"
                 for name in targets - corpora]
    return sorted(problems)


def _listed(path, lists):
    """Whether a CMakeLists.txt at or above `path` names it relative to itself."""
    for folder, text in lists.items():
        inside = path if folder == "" else path[len(folder) + 1:]
        if folder != "" and not path.startswith(folder + "/"):
            continue
        if re.search(rf"(?<![\w/.\-}}])(?:\$\{{CMAKE_CURRENT_SOURCE_DIR\}}/)?"
                     rf"{re.escape(inside)}(?![\w/.\-])", text):
            return True
    return False


def check_source_lists(root, files):
    """Finds sources in no list. Lists are explicit, so nobody would build or run such a file."""
    lists = {}
    for path in files:
        if os.path.basename(path) == "CMakeLists.txt":
            lists[os.path.dirname(path)] = re.sub(r"#[^\n]*", "", read_text(root, path) or "")
    problems = []
    for path in files:
        if path.startswith("tests/golden/"):
            continue
        if path.startswith("tests/fuzz/") and path.endswith("_fuzzer.cpp"):
            target = os.path.basename(path)[:-len("_fuzzer.cpp")]
            if f"moepack_fuzzer({target}" not in lists.get("tests/fuzz", ""):
                problems.append(f"{path}: no moepack_fuzzer({target} …) in tests/fuzz/CMakeLists.txt")
        elif path.endswith((".cpp", ".comp")) or re.match(r"tests/.*test\.py$", path):
            if not _listed(path, lists):
                problems.append(f"{path}: stands in no CMakeLists.txt")
    return problems


def check_test_namespaces(root, files):
    """Finds tests whose names could meet those of another file."""
    problems = []
    for path in files:
        if not re.match(r"tests/(?!golden/).*_test\.cpp$", path):
            continue
        stem = os.path.basename(path)[:-len(".cpp")]
        opened = re.findall(r"^namespace (\S+) \{", read_text(root, path) or "", re.MULTILINE)
        if len(opened) != 1 or opened[0].split("::")[-1] != stem:
            problems.append(f"{path}: its one namespace is not moepack::{stem}")
    return problems


def check(root):
    files = project_files(root)
    return (check_machine_paths(root, files) + check_golden(root, files)
            + check_corpora(root, files) + check_source_lists(root, files)
            + check_test_namespaces(root, files))


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("root", nargs="?", default=os.path.join(os.path.dirname(__file__), ".."))
    problems = check(os.path.abspath(parser.parse_args().root))
    for problem in problems:
        print(problem)
    print(f"tree: {len(problems)} problems")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
