"""Plants arrows that point up the layers; scripts/check_layers.py must see each."""

import unittest

from planted_tree import PlantedTreeTest
import check_layers


class CheckLayersTest(PlantedTreeTest):
    check = staticmethod(check_layers.check)

    def test_clean_tree(self):
        self.assert_clean()

    def test_every_forbidden_arrow(self):
        headers = {"formats": "formats/base/status.h", "quant": "quant/rtn.h",
                   "runtime": "runtime/engine.h", "convert": "convert/pack/plan.h",
                   "convert/cli": "convert/cli/table.h"}
        forbidden = {"formats": ["quant", "runtime", "convert", "convert/cli"],
                     "quant": ["runtime", "convert", "convert/cli"],
                     "runtime": ["quant", "convert", "convert/cli"],
                     "convert": ["runtime", "convert/cli"],
                     "shaders": ["formats", "quant", "runtime", "convert", "convert/cli"]}
        for layer, targets in forbidden.items():
            for target in targets:
                with self.subTest(layer=layer, target=target):
                    planted = f"{layer}/planted.{'comp' if layer == 'shaders' else 'h'}"
                    self.assert_found({planted: f'// first\n#include "{headers[target]}"\n'},
                                      f"{planted}:2", f"{layer} must not include {target}")

    def test_every_forbidden_arrow_between_rooms(self):
        for path, header in (("formats/base/planted.h", "formats/weights/qformat_defs.h"),
                             ("formats/base/planted.inc", "formats/weights/qformat_defs.h")):
            with self.subTest(path=path):
                self.assert_found({path: f'// first\n#include "{header}"\n'}, f"{path}:2",
                                  "formats/base must not include formats/weights")

    def test_rooms_are_named(self):
        self.assert_found({"formats/attic/planted.h": '#include "formats/base/status.h"\n'},
                          "formats/attic is not named in ROOMS")

    def test_nothing_hides_an_include(self):
        for line in ("  #  include   \"runtime/engine.h\"", "/* a */ \n#include \"runtime/engine.h\"",
                     "const char* s = \"/*\";\n#include \"runtime/engine.h\""):
            with self.subTest(line=line):
                self.assert_found({"quant/planted.h": line + "\n"}, "must not include runtime")

    def test_comments_are_no_includes(self):
        self.assert_clean({"quant/planted.h": '/*\n#include "runtime/engine.h"\n*/\n'
                                              '// x \\\n#include "runtime/engine.h"\n'})

    def test_includes_are_written_from_the_root(self):
        self.assert_found({"quant/planted.h": '#include "rtn.h"\n'}, "from the root")
        self.assert_found({"quant/planted.h": '#include "../runtime/engine.h"\n'}, "from the root")
        self.assert_found({"quant/planted.h": '#include "quant/../runtime/engine.h"\n'}, "..")
        self.assert_found({"quant/planted.h": "#include <runtime/engine.h>\n"}, "quotes")
        self.assert_found({"quant/planted.h": "#include MOE_HEADER\n"}, "computed")
        self.assert_found({"quant/planted.h": '#include "formats/gone.h"\n'}, "does not exist")

    def test_files_lie_in_a_layer(self):
        self.assert_found({"util/misc.h": "\n"}, "util/misc.h", "no layer")

    def test_links_follow_the_same_arrows(self):
        self.assert_found(
            {"quant/CMakeLists.txt": "target_link_libraries(moepack_quant\n  PUBLIC moepack_runtime)\n"},
            "quant/CMakeLists.txt:1", "must not link moepack_runtime")


if __name__ == "__main__":
    unittest.main()
