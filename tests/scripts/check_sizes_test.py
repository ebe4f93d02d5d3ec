"""Plants sources and functions that are too long; scripts/check_sizes.py must see each."""

import unittest

from planted_tree import PlantedTreeTest
import check_sizes


def function(lines, head="int f()"):
    """A C++ function of exactly `lines` lines."""
    return head + " {\n" + "  g();\n" * (lines - 2) + "}\n"


class CheckSizesTest(PlantedTreeTest):
    check = staticmethod(lambda root: check_sizes.check(root)[0])

    def test_clean_tree(self):
        self.assert_clean()

    def test_file_length(self):
        for name in ("formats/planted.h", "scripts/planted.py", "scripts/planted.sh",
                     "shaders/planted.comp", "quant/CMakeLists.txt"):
            with self.subTest(name=name):
                self.assert_clean({name: "\n" * 1000})
                self.assert_found({name: "\n" * 1001}, name, "1001 lines")
        self.assert_found({".ci/run": "#!/usr/bin/env bash\n" + "true\n" * 1000}, ".ci/run")

    def test_function_length(self):
        self.assert_clean({"formats/planted.cpp": "int x;\n" + function(120)})
        self.assert_found({"formats/planted.cpp": "int x;\n" + function(121)},
                          "formats/planted.cpp:2", "121 lines")

    def test_every_shape_of_function_is_measured(self):
        heads = [
            "TEST(Suite, Name)",
            "extern \"C\" int run(const char* data)",
            "template <typename T, typename U = std::vector<std::array<T, 3>>> T f(T x)",
            "auto f(int x) -> std::vector<int>",
            "static T f() requires Small<T>",
            "const auto kLambda = [](int x)",
            "bool operator()(int a) const& noexcept(true)",
            "Widget::Widget(int a) : first_{a, {1}}, second_(a), third_{a}",
            "void f() try",
            "int f(std::function<void()> g = [] { return; })",
            "[[nodiscard]] const char* text()",
        ]
        for head in heads:
            for before, after in (("", ""), ("namespace a::b {\nnamespace {\n", "}\n}\n"),
                                  ("struct alignas(64) S final : Base<int> {\n public:\n", "};\n")):
                with self.subTest(head=head, before=before):
                    tail = " catch (...) {}\n" if head.endswith("try") else ""
                    tail = ";\n" if "kLambda" in head else tail
                    text = before + function(121, head) + tail + after
                    self.assert_found({"formats/planted.cpp": text}, "121 lines")

    def test_braces_in_text_do_not_count(self):
        body = "char c = '{'; auto s = \"}}}\"; auto r = R\"x(}\")x\"; int n = 1'000; // }\n"
        self.assert_found({"formats/planted.cpp": "void f() {\n" + body * 119 + "}\n"}, "121 lines")

    def test_tables_are_no_functions(self):
        self.assert_clean({"formats/planted.cpp":
                           "constexpr Row kRows[] = {\n" + "  {f(1), 2},\n" * 300 + "};\n"})

    def test_unpaired_braces_are_reported(self):
        self.assert_found({"formats/planted.cpp": "void f() {\n"}, "cannot be measured")
        self.assert_found({"formats/planted.cpp": "}\n"}, "cannot be measured")

    def test_python_and_shell_functions(self):
        self.assert_found({"scripts/planted.py": "def long():\n" + "    pass\n" * 120},
                          "scripts/planted.py:1", "121 lines")
        self.assert_found({"scripts/planted.sh": "long() {\n" + "  true\n" * 119 + "}\n"},
                          "scripts/planted.sh:1", "121 lines")


if __name__ == "__main__":
    unittest.main()
