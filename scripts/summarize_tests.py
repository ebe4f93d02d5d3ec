#!/usr/bin/env python3
"""Prints what a ctest run really did: every skipped and failed test by name, then the counts.

ctest itself counts a skipped test among the passed ones. Exits 1 when a test failed or none ran.
"""

import argparse
import re
import sys
import xml.etree.ElementTree as ElementTree


def reason_of(output):
    """What a skipped test said: the text after its SKIPPED marker, on one line."""
    match = re.search(r"(?:SKIPPED: *|: Skipped\n)(.+)", output or "")
    return match.group(1).removeprefix("SKIPPED: ").strip() if match else "no reason given"


def summarize(junit_xml):
    """(lines to print, exit status) of ctest's JUnit file."""
    passed, failed, skipped = 0, [], []
    for case in ElementTree.fromstring(junit_xml).iter("testcase"):
        # CMake writes "Suite.Test/Param  # GetParam() = …" for parameterised tests.
        name = case.get("name").split("  # ", 1)[0]
        status, mark = case.get("status"), case.find("skipped")
        if status == "run":
            passed += 1
        # "notrun" alone may also mean that the program was never built: that is a failure.
        elif mark is not None and (mark.get("message") or "").startswith("SKIP_"):
            skipped.append((name, reason_of(case.findtext("system-out"))))
        else:
            failed.append(name)
    lines = []
    if skipped:
        lines.append(f"!!! {len(skipped)} tests were SKIPPED and have shown nothing:")
        lines += [f"SKIPPED {name}: {reason}" for name, reason in skipped]
    lines += [f"FAILED {name}" for name in failed]
    lines.append(f"{passed} passed, {len(failed)} failed, {len(skipped)} skipped")
    return lines, 1 if failed or passed == 0 else 0


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("junit", help="file that ctest --output-junit wrote")
    with open(parser.parse_args().junit, encoding="utf-8", errors="replace") as file:
        lines, status = summarize(file.read())
    print("\n".join(lines))
    return status


if __name__ == "__main__":
    sys.exit(main())
