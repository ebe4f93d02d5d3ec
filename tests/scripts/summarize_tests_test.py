"""scripts/summarize_tests.py must count a skipped or missing test as what it is."""

import os
import sys
import unittest

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "scripts"))
import summarize_tests

PASSED = '<testcase name="a" status="run"><system-out>SKIPPED: not really</system-out></testcase>'
SKIPPED = ('<testcase name="b" status="notrun"><skipped message="SKIP_REGULAR_EXPRESSION_MATCHED"/>'
           "<system-out>x_test.cpp:3: Skipped\nSKIPPED: needs small-moe\n[  SKIPPED ] b</system-out>"
           "</testcase>")
PLAIN_SKIP = ('<testcase name="c" status="notrun"><skipped message="SKIP_RETURN_CODE=77"/>'
              "<system-out>x_test.cpp:3: Skipped\nno AVX-512 here\n</system-out></testcase>")
FAILED = '<testcase name="d" status="fail"><failure message=""/></testcase>'
MISSING = ('<testcase name="e" status="notrun"><skipped message="Unable to find executable"/>'
           "</testcase>")


def summarize(*cases):
    return summarize_tests.summarize(f"<testsuite>{''.join(cases)}</testsuite>")


class SummaryTest(unittest.TestCase):
    def test_counts(self):
        self.assertEqual(summarize(PASSED, PASSED), (["2 passed, 0 failed, 0 skipped"], 0))

    def test_skipped_tests_are_named_with_their_reason(self):
        lines, status = summarize(PASSED, SKIPPED, PLAIN_SKIP)
        self.assertEqual(status, 0)
        self.assertIn("SKIPPED b: needs small-moe", lines)
        self.assertIn("SKIPPED c: no AVX-512 here", lines)
        self.assertEqual(lines[-1], "1 passed, 0 failed, 2 skipped")

    def test_failures_and_missing_programs_fail(self):
        for case, name in ((FAILED, "d"), (MISSING, "e")):
            lines, status = summarize(PASSED, case)
            self.assertEqual(status, 1)
            self.assertEqual(lines, [f"FAILED {name}", "1 passed, 1 failed, 0 skipped"])

    def test_nothing_run_is_no_success(self):
        self.assertEqual(summarize()[1], 1)
        self.assertEqual(summarize(SKIPPED)[1], 1)


if __name__ == "__main__":
    unittest.main()
