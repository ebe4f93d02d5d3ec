"""docs_test.py must see a flag or command that only one side has."""

import os
import stat
import tempfile
import unittest

import docs_test

PROGRAM = """#!/bin/sh
case "$1" in
  --help) cat <<'END'
moepack
Usage: moepack [OPTIONS] SUBCOMMAND

Options:
  -h,--help                   Print this help message and exit
  --version                   Print the version

Subcommands:
  run                         Generate text, see --nothing
  convert                     Make a model
END
  ;;
  run) printf 'Options:\\n  -h,--help\\n  -n,--n-predict INT Excludes: --forever\\n  --forever\\n' ;;
  convert) printf 'Options:\\n  -h,--help\\n  -o,--output TEXT REQUIRED\\n' ;;
esac
"""
MANUAL = """# The command
## moepack
`--version` prints the version. `--nothing` too.
## moepack run
`-n N`, `--n-predict N`: tokens; a dash--dash or --outside of code is no flag.
```
moepack run MODEL --forever
```
## Exit codes
`--not-a-command`
## moepack convert
`-o`, `--output DIR`
"""


class DocsTest(unittest.TestCase):
    def problems(self, manual):
        with tempfile.TemporaryDirectory() as folder:
            program = os.path.join(folder, "moepack")
            with open(program, "w", encoding="utf-8") as file:
                file.write(PROGRAM)
            os.chmod(program, stat.S_IRWXU)
            return docs_test.differences(docs_test.documented(manual), docs_test.offered(program))

    def test_equal(self):
        self.assertEqual(self.problems(MANUAL), [])

    def test_each_difference(self):
        cases = {
            "--output is missing": MANUAL.replace("--output", "-x"),
            "--outpu is no flag": MANUAL.replace("`--output DIR`", "`--output` `--outpu`"),
            "## moepack convert": MANUAL.replace("## moepack convert", "## Other"),
            "does not offer": MANUAL + "## moepack chat\n",
            "--forever is missing": MANUAL.replace("--forever", ""),
        }
        for part, manual in cases.items():
            with self.subTest(part=part):
                problems = self.problems(manual)
                self.assertEqual(len(problems), 1, problems)
                self.assertIn(part, problems[0])


if __name__ == "__main__":
    unittest.main()
