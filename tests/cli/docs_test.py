"""docs/cli.md against the program's own --help: the same commands, and in each the same long flags.

In docs/cli.md a command is a heading "## moepack NAME"; its flags are the words in code that begin
with -- between that heading and the next of its level. Flags of all commands (--help, --version)
stand under "## moepack".
"""

import argparse
import re
import subprocess
import sys

# Every command has these; the manual says so once.
COMMON = {"--help"}

FLAG = re.compile(r"(?<![\w-])--[a-z0-9][a-z0-9-]*")


def documented(text):
    """{command: flags} of the manual; the program itself is the command ""."""
    commands = {}
    for section in re.split(r"^## ", text, flags=re.MULTILINE)[1:]:
        heading = re.match(r"moepack(?: ([a-z]+))?\s*$", section.split("\n", 1)[0])
        if heading is None:
            continue
        body = section.split("\n", 1)[1]
        code = re.findall(r"^```.*?^```|`[^`\n]+`", body, flags=re.DOTALL | re.MULTILINE)
        commands[heading.group(1) or ""] = set(FLAG.findall("\n".join(code)))
    return commands


def subcommands(help_text):
    """The names under "Subcommands:" of CLI11's help."""
    match = re.search(r"^Subcommands:\n((?:[ \t]+.*\n?|\n)*)", help_text, re.MULTILINE)
    return re.findall(r"^  ([a-z]+)\b", match.group(1), re.MULTILINE) if match else []


def offered(program):
    """{command: flags} of the program."""

    def help_of(*words):
        done = subprocess.run([program, *words, "--help"], capture_output=True, text=True, timeout=60)
        if done.returncode != 0:
            raise SystemExit(f"{' '.join([program, *words])} --help: exit {done.returncode}")
        return done.stdout

    overview = help_of()
    commands = {"": set(FLAG.findall(overview))}
    for name in subcommands(overview):
        commands[name] = set(FLAG.findall(help_of(name)))
    return commands


def differences(manual, program):
    problems = []
    for name in sorted(manual.keys() | program.keys()):
        title = f"moepack {name}".strip()
        if name not in program:
            problems.append(f"docs/cli.md describes {title}, which the program does not offer")
            continue
        if name not in manual:
            problems.append(f'docs/cli.md has no section "## {title}"')
            continue
        for flag in sorted(program[name] - manual[name] - COMMON):
            problems.append(f"docs/cli.md, {title}: {flag} is missing")
        for flag in sorted(manual[name] - program[name] - COMMON):
            problems.append(f"docs/cli.md, {title}: {flag} is no flag of the program")
    return problems


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--program", required=True)
    parser.add_argument("--docs", required=True)
    args = parser.parse_args()
    with open(args.docs, encoding="utf-8") as file:
        manual = documented(file.read())
    problems = differences(manual, offered(args.program))
    for problem in problems:
        print(problem)
    print(f"cli docs: {len(manual)} sections, {len(problems)} differences")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
