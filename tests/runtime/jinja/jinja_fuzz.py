#!/usr/bin/env python3
"""Compares the template interpreter with jinja2 over random templates and conversations.

Both must print the same bytes or both must fail. A case that our interpreter refuses by name
(limits, filters that chat templates do not use) and output that names addresses are left out and
counted. Exit status 77 (skipped) without jinja2.
"""

import argparse
import json
import os
import resource
import signal
import subprocess
import sys
import warnings

try:
    import jinja2
except ImportError:
    print("SKIPPED: jinja2 is missing: pip install 'jinja2>=3.1.6' into the Python that "
          "MOEPACK_TEST_PYTHON names", file=sys.stderr)
    sys.exit(77)

import jinja_oracle
from chat_generator import ChatGenerator
from jinja_generator import Generator

UNSUPPORTED = 4  # StatusCode::kUnsupported
BATCH = 200
CLOCK = 1_700_000_000
KINDS = {"both": None, "anything": Generator, "chat": ChatGenerator}


def lift_memory_limit():
    """jinja2's limit is not our program's: sanitizers map more than any machine has."""
    hard = resource.getrlimit(resource.RLIMIT_AS)[1]
    resource.setrlimit(resource.RLIMIT_AS, (hard, hard))


def answers(program, cases):
    lines = "".join(json.dumps({"template": t, "variables": v, "clock": CLOCK}) + "\n"
                    for t, v in cases)
    done = subprocess.run([program], input=lines.encode(), stdout=subprocess.PIPE, check=True,
                          env=dict(os.environ, LC_ALL="C.UTF-8"), timeout=600,
                          preexec_fn=lift_memory_limit)
    return [json.loads(line) for line in done.stdout.decode().split("\n")[:-1]]


def too_long(*_):
    raise TimeoutError("jinja2 takes too long")


def has_address(text):
    """Whether Python printed where an object lies, which no other program prints alike."""
    letters = "".join(c for c in text.lower() if c.isalnum())
    return "<class '" in text or "<function " in text or any(
        word in letters for word in ("builtinmethod", "boundmethod")) or (
            "object" in letters and "at0x" in letters)


def difference(ours, text, error):
    """What differs, "" for nothing, None where the case says nothing."""
    if ours.get("code") == UNSUPPORTED:
        return None
    if text is not None and has_address(text):
        return None
    if "text" in ours and has_address(ours["text"]) and error is not None:
        return None
    # A method of Python's that templates do not use, taken as a value: ours is undefined.
    if "builtin_function_or_method" in str(error):
        return None
    if text is None:
        return "" if "error" in ours else f"jinja2 fails: {error}\nours: {ours['text']!r}"
    if "error" in ours:
        return f"ours fails: {ours['error']}\njinja2: {text!r}"
    return "" if ours["text"] == text else f"jinja2: {text!r}\nours:   {ours['text']!r}"


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("program", help="the program jinja_cases")
    parser.add_argument("--cases", type=int, default=4000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--kind", choices=KINDS, default="both",
                        help="anything: expressions and statements at random; chat: what looks like a chat template")
    parser.add_argument("--show", type=int, default=5, help="how many differences to print")
    arguments = parser.parse_args()
    env = jinja_oracle.environment(CLOCK)
    warnings.simplefilter("ignore")
    resource.setrlimit(resource.RLIMIT_AS, (4 << 30, resource.getrlimit(resource.RLIMIT_AS)[1]))
    signal.signal(signal.SIGALRM, too_long)
    counts = {"printed": 0, "failed": 0, "left out": 0}
    wrong = 0
    for first in range(0, arguments.cases, BATCH):
        cases = []
        for number in range(first, min(first + BATCH, arguments.cases)):
            kind = KINDS[arguments.kind] or (Generator, ChatGenerator)[number % 2]
            generator = kind(f"{arguments.seed}/{number}")
            cases.append((generator.template(), generator.variables()))
        ours = answers(arguments.program, cases)
        for (template, variables), answer in zip(cases, ours):
            signal.alarm(20)
            text, error = jinja_oracle.render(env, template, variables)
            signal.alarm(0)
            found = difference(answer, text, error)
            if found is None:
                counts["left out"] += 1
            elif found == "":
                counts["printed" if text is not None else "failed"] += 1
            else:
                wrong += 1
                if wrong <= arguments.show:
                    print(f"--- template: {template!r}\nvariables: {json.dumps(variables)}\n{found}")
    print(f"jinja2 {jinja2.__version__}: {arguments.cases} cases of seed {arguments.seed}: "
          f"{counts['printed']} printed alike, {counts['failed']} failed in both, "
          f"{counts['left out']} left out, {wrong} differ")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
