"""A small project tree in a temporary folder, for tests that plant a violation in it."""

import os
import sys
import tempfile
import unittest

SCRIPTS = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "scripts")
sys.path.insert(0, SCRIPTS)

CLEAN = {
    "formats/CMakeLists.txt": "add_library(moepack_formats STATIC\n  base/status.cpp\n)\n",
    "formats/base/status.h": "#pragma once\n#include <string>\n",
    "formats/base/status.cpp": '#include "formats/base/status.h"\nint f() {\n  return 1;\n}\n',
    "formats/weights/qformat_defs.h": "#define MOE_A 1\n",
    "quant/CMakeLists.txt": "add_library(moepack_quant INTERFACE)\n"
                            "target_link_libraries(moepack_quant INTERFACE moepack_formats)\n",
    "quant/rtn.h": '#pragma once\n#include "formats/base/status.h"\n',
    "runtime/engine.h": '#pragma once\n#include "formats/base/status.h"\n',
    "convert/pack/plan.h": '#pragma once\n#include "quant/rtn.h"\n',
    "convert/cli/table.h": '#pragma once\n#include "runtime/engine.h"\n#include "convert/pack/plan.h"\n',
    "shaders/CMakeLists.txt": "shader(copy.comp)\n",
    "shaders/copy.comp": '#include "formats/weights/qformat_defs.h"\nvoid main() {}\n',
    "tests/CMakeLists.txt": "t(formats/status_test.cpp)\n",
    "tests/formats/status_test.cpp":
        '#include "convert/cli/table.h"\n// golden/demo\nnamespace a::status_test {\n}\n',
    "tests/golden/demo/weights.bin": "x",
    "tests/fuzz/CMakeLists.txt": "moepack_fuzzer(json moepack_formats)\n",
    "tests/fuzz/json_fuzzer.cpp": "int g();\n",
    "tests/fuzz/corpus/json/one.json": "{}",
}


class PlantedTreeTest(unittest.TestCase):
    """Subclasses set `check`: a function from a root to its list of problems."""

    def problems_with(self, planted=None, removed=()):
        files = {**CLEAN, **(planted or {})}
        with tempfile.TemporaryDirectory() as root:
            for name, text in files.items():
                if name in removed:
                    continue
                path = os.path.join(root, name)
                os.makedirs(os.path.dirname(path), exist_ok=True)
                with open(path, "w", encoding="utf-8") as file:
                    file.write(text)
            return type(self).check(root)

    def assert_clean(self, planted=None):
        self.assertEqual(self.problems_with(planted), [])

    def assert_found(self, planted, *parts, removed=()):
        """Exactly one problem, and its line holds all `parts`."""
        problems = self.problems_with(planted, removed)
        self.assertEqual(len(problems), 1, problems)
        for part in parts:
            self.assertIn(part, problems[0])
