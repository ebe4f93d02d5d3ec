"""Plants unused data, unlisted sources and machine paths; scripts/check_tree.py must see each."""

import unittest

from planted_tree import PlantedTreeTest
import check_tree

WORK = "/wo" "rk/"
BESIDE = "../" "shared"


class CheckTreeTest(PlantedTreeTest):
    check = staticmethod(check_tree.check)

    def test_clean_tree(self):
        self.assert_clean()

    def test_unused_golden_data(self):
        self.assert_found({"tests/golden/orphan/x.f32": "x"}, "tests/golden/orphan", "no test")
        self.assert_found({"tests/golden/demo2/x.f32": "x"}, "tests/golden/demo2", "no test")

    def test_sources_outside_every_list(self):
        self.assert_found({"formats/lost.cpp": ""}, "formats/lost.cpp", "no CMakeLists.txt")
        self.assert_found({"tests/quant/status_test.cpp": "namespace status_test {\n"},
                          "tests/quant/status_test.cpp")
        self.assert_found({"tests/scripts/lost_test.py": ""}, "tests/scripts/lost_test.py")
        self.assert_found({"formats/lost.cpp": "",
                           "formats/CMakeLists.txt": "add(base/status.cpp) # lost.cpp\n"}, "lost.cpp")

    def test_lists_may_name_the_folder(self):
        here = "${CMAKE_CURRENT_SOURCE_DIR}/"
        self.assert_clean({"tests/cli/a_test.py": "", "tests/cli/CMakeLists.txt": f"x({here}a_test.py)"})
        self.assert_found({"tests/cli/a_test.py": "",
                           "tests/cli/CMakeLists.txt": f"x({here}b/a_test.py)"}, "a_test.py")

    def test_fuzz_targets_and_corpora_pair_up(self):
        self.assert_found({"tests/fuzz/corpus/gone/a": ""}, "corpus/gone", "no fuzz target")
        self.assert_found({}, "json has no corpus", removed=("tests/fuzz/corpus/json/one.json",))
        self.assert_found({"tests/fuzz/lost_fuzzer.cpp": ""}, "moepack_fuzzer(lost")

    def test_namespaces_of_tests(self):
        lists = {"tests/quant/CMakeLists.txt": "add(a_test.cpp)"}
        for text in ("", "namespace moepack {\n", "namespace moepack::b_test {\n",
                     "namespace moepack::a_test {\n}\nnamespace moepack {\n"):
            with self.subTest(text=text):
                self.assert_found({"tests/quant/a_test.cpp": text, **lists}, "moepack::a_test")
        self.assert_clean({"tests/quant/a_test.cpp": "namespace moepack::a_test {\nnamespace {\n", **lists})

    def test_machine_paths(self):
        for text in (f'open("{WORK}models")', f"cd {WORK}main", f"{WORK}x", "cp a /ro" "ot/x",
                     f"models={BESIDE}/models"):
            for name in ("docs/a.md", "scripts/a.sh", "formats/base/status.h"):
                with self.subTest(text=text, name=name):
                    self.assert_found({name: f"\n{text}\n"}, f"{name}:2")

    def test_other_paths_are_fine(self):
        self.assert_clean({"docs/a.md": "see net" + WORK + " and frame" + WORK + "x, root/x\n"})

    def test_ci_may_name_the_models(self):
        self.assert_clean({".ci/run": f"export MOEPACK_TEST_MODELS={BESIDE}/models\n"})
        self.assert_found({".ci/run": f"cp {BESIDE}/tool .\n"}, ".ci/run:1")


if __name__ == "__main__":
    unittest.main()
