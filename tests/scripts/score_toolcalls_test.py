"""Tests of scripts/score_toolcalls.py, with a stand-in for the program it runs."""

import contextlib
import importlib.util
import io
import json
import os
import pathlib
import sys
import tempfile
import unittest

SCRIPT = pathlib.Path(__file__).resolve().parents[2] / "scripts" / "score_toolcalls.py"
sys.dont_write_bytecode = True
SPEC = importlib.util.spec_from_file_location("score_toolcalls", SCRIPT)
score = importlib.util.module_from_spec(SPEC)
SPEC.loader.exec_module(score)

EXPECTED = {"name": "f", "arguments": {"a": 1, "b": [True, "x"]}}


def answer(body):
    return f"<tool_call>\n{body}\n</tool_call>"


class ParseCall(unittest.TestCase):
    def test_takes_the_first_call(self):
        text = "Sure. " + answer('{"name": "f", "arguments": {}}') + answer("broken")
        self.assertEqual(score.parse_call(text), ("f", {}))

    def test_refuses_what_is_no_call(self):
        for text in ["", "no call", "<tool_call>{}", answer(""), answer("[]"), answer("{"),
                     answer('{"name": "f"}'), answer('{"name": 1, "arguments": {}}'),
                     answer('{"name": "f", "arguments": []}'),
                     answer('{"name": "f", "arguments": {"x": NaN}}'),
                     answer("[" * 100000)]:
            self.assertIsNone(score.parse_call(text), text[:60])


class SameJson(unittest.TestCase):
    def test_numbers_by_value_and_booleans_apart(self):
        self.assertTrue(score.same_json({"a": 1.0, "b": None}, {"b": None, "a": 1}))
        for a, b in [(1, True), (0, False), (1, "1"), (None, False), ([1, 2], [2, 1]), ([1], [1, 1]),
                     ({"a": 1}, {"a": 1, "b": 2}), ({"a": [1]}, {"a": [True]}), ([], {})]:
            self.assertFalse(score.same_json(a, b), (a, b))
            self.assertFalse(score.same_json(b, a), (b, a))


class ScoreOne(unittest.TestCase):
    def check(self, text, valid, call, exact_text, reference=None):
        case = {"expected": EXPECTED}
        if reference is not None:
            case["reference_text"] = reference
        self.assertEqual(score.score_one(case, text), {
            "valid_json": valid, "exact_call": call, "exact_text": exact_text})

    def test_levels(self):
        good = answer('{"name": "f", "arguments": {"a": 1, "b": [true, "x"]}}')
        other_order = answer('{"arguments": {"b": [true, "x"], "a": 1}, "name": "f"}')
        self.check(good, True, True, None)
        self.check(good, True, True, True, good + "<|im_end|>")
        self.check(good + "<|im_end|>", True, True, True, good)
        self.check(good + "\n", True, True, False, good)
        self.check(other_order, True, True, False, good)
        self.check(answer('{"name": "g", "arguments": {"a": 1, "b": [true, "x"]}}'), True, False,
                   False, good)
        self.check(answer('{"name": "f", "arguments": {"a": 1, "b": [1, "x"]}}'), True, False, None)
        self.check("I cannot.", False, False, False, good)

    def test_only_end_tokens_are_ignored(self):
        self.assertFalse(score.same_text("a", "b"))
        self.assertFalse(score.same_text("a <|im_end|> b", "a"))
        self.assertFalse(score.same_text(" a", "a"))


# Answers prompt "ok…" with the expected call, "json…" with another call, all else with text.
STAND_IN = f"""#!{sys.executable}
import json, sys
argv = sys.argv[1:]
assert argv[:2] == ["run", "MODEL"], argv
if "--fail" in argv:
    sys.exit(2)
file = argv[argv.index("--prompts-file") + 1]
assert argv[argv.index("-n") + 1] == "96"
for line in open(file, encoding="utf-8"):
    prompt = json.loads(line)["prompt"]
    text = "no"
    if prompt.startswith("ok"):
        text = '<tool_call>{{"name": "f", "arguments": {{"a": 1, "b": [true, "x"]}}}}</tool_call>'
    if prompt.startswith("json"):
        text = '<tool_call>{{"name": "f", "arguments": {{}}}}</tool_call>'
    if "--lose-one" in argv and prompt == "ok2":
        continue
    print(json.dumps({{"prompt": prompt, "text": text, "tokens": []}}))
"""


class WholeScript(unittest.TestCase):
    def setUp(self):
        self.dir = tempfile.TemporaryDirectory()
        self.addCleanup(self.dir.cleanup)
        root = pathlib.Path(self.dir.name)
        self.moepack = root / "moepack"
        self.moepack.write_text(STAND_IN, encoding="utf-8")
        os.chmod(self.moepack, 0o755)
        self.file = root / "calls.jsonl"
        reference = answer(json.dumps(EXPECTED))
        self.write([{"prompt": p, "expected": EXPECTED, "reference_text": reference}
                    for p in ["ok1 é\n\"", "json", "text", "ok2"]])

    def write(self, cases):
        self.file.write_text("\n".join(map(json.dumps, cases)) + "\n\n", encoding="utf-8")

    def run_script(self, *options):
        out, err = io.StringIO(), io.StringIO()
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
            status = score.main(
                ["MODEL", str(self.file), "--moepack", str(self.moepack), *options])
        return status, out.getvalue(), err.getvalue()

    def test_counts(self):
        status, out, _ = self.run_script("--json", "--min-exact", "2")
        self.assertEqual(status, 0)
        self.assertEqual(json.loads(out), {"prompts": 4, "valid_json": 3, "exact_calls": 2,
                                           "with_reference": 4, "exact_texts": 0})

    def test_thresholds(self):
        self.assertEqual(self.run_script("--min-exact", "3")[0], 1)
        self.assertEqual(self.run_script("--min-text", "1")[0], 1)
        self.assertEqual(self.run_script("--limit", "1", "--min-exact", "1")[0], 0)

    def test_table_and_details(self):
        _, out, _ = self.run_script("-v")
        self.assertIn("exact call      2 of 4", out)
        self.assertIn("line 3: 'no'", out)

    def test_errors_are_one_line(self):
        for options, part in [(["--", "--fail"], "exit status 2"),
                              (["--", "--lose-one"], "3 answers came back for 4 prompts"),
                              (["--moepack", "/nonexistent/moepack"], "No such file")]:
            status, out, err = self.run_script(*options)
            self.assertEqual((status, out), (2, ""))
            self.assertIn(part, err)
            self.assertEqual(err.count("\n"), 1)

    def test_refuses_files_without_prompts_or_calls(self):
        for cases, part in [([{"expected": EXPECTED}], "no \"prompt\""),
                            ([{"prompt": "x", "expected": {"name": "f"}}], "no \"expected\""),
                            ([], "no prompts")]:
            self.write(cases)
            status, _, err = self.run_script()
            self.assertEqual(status, 2)
            self.assertIn(part, err)


if __name__ == "__main__":
    unittest.main()
