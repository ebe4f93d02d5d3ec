#!/usr/bin/env python3
"""Renders published chat templates over many conversations, with jinja2 and with ours.

Both must print the same bytes or both must fail. Templates that change lists, which transformers'
sandbox forbids and ours allows, are compared with jinja2's sandbox that allows it. Templates are *.jinja files anywhere below the
folders given, and below those that MOEPACK_TEST_MODELS and MOEPACK_TEST_TEMPLATES name. Exit status
77 (skipped) without jinja2. MOEPACK_TEST_TEMPLATES is a folder of your own: published templates
have licences of all kinds, and are no part of this project.
"""

import argparse
import hashlib
import json
import os
import pathlib
import subprocess
import sys
import warnings

try:
    import jinja2
except ImportError:
    print("SKIPPED: jinja2 is missing: pip install 'jinja2>=3.1.6' into the Python that "
          "MOEPACK_TEST_PYTHON names", file=sys.stderr)
    sys.exit(77)

import conversations
import jinja_oracle

CLOCK = 1_700_000_000


def found_templates(folders):
    """Texts of templates by name, each text once."""
    texts = {}
    for folder in folders:
        for path in sorted(pathlib.Path(folder).rglob("*.jinja")):
            text = path.read_text(encoding="utf-8")
            name = path.parent.name if path.stem == "chat_template" else path.stem
            texts.setdefault(hashlib.sha256(text.encode()).digest(), (name, text))
    return sorted(texts.values())


def answers(program, template, cases):
    lines = "".join(json.dumps({"template": template, "variables": v, "clock": CLOCK}) + "\n"
                    for _, v in cases)
    done = subprocess.run([program], input=lines.encode(), stdout=subprocess.PIPE, check=True,
                          env=dict(os.environ, LC_ALL="C.UTF-8"), timeout=600)
    return [json.loads(line) for line in done.stdout.decode().split("\n")[:-1]]


def expected(compiled, variables):
    """(text, None) or (None, what went wrong); `compiled`: in the sandbox, and in the laxer one."""
    try:
        try:
            text = compiled[0].render(**variables)
        except jinja2.exceptions.SecurityError:
            text = compiled[1].render(**json.loads(json.dumps(variables)))
        text.encode("utf-8")
        return text, None
    except Exception as error:  # whatever a template brings jinja2 or Python to raise
        return None, f"{type(error).__name__}: {error}"


def compare(program, environments, name, template, cases, show):
    """Counts (printed alike, failed in both, differ)."""
    compiled = [env.from_string(template) for env in environments]
    printed = failed = wrong = 0
    for (case, variables), ours in zip(cases, answers(program, template, cases)):
        text, error = expected(compiled, variables)
        if text is None and "error" in ours:
            failed += 1
        elif text is not None and ours.get("text") == text:
            printed += 1
        else:
            wrong += 1
            if wrong <= show:
                print(f"--- {name}: {case}\n{json.dumps(variables)}\n"
                      f"jinja2: {error if text is None else repr(text)}\nours:   {ours}")
    return printed, failed, wrong


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("program", help="the program jinja_cases")
    parser.add_argument("folders", nargs="*", help="where templates lie")
    parser.add_argument("--show", type=int, default=2, help="how many differences of a template to print")
    arguments = parser.parse_args()
    folders = arguments.folders + [os.environ[name] for name in
                                   ("MOEPACK_TEST_MODELS", "MOEPACK_TEST_TEMPLATES") if name in os.environ]
    templates = found_templates(folders)
    if "MOEPACK_TEST_TEMPLATES" not in os.environ and not arguments.folders[1:]:
        print("SKIPPED in part: MOEPACK_TEST_TEMPLATES names no folder of published *.jinja files; "
              f"compared here: {len(templates)} of this project's own", file=sys.stderr)
    warnings.simplefilter("ignore")
    environments = [jinja_oracle.environment(CLOCK), jinja_oracle.environment(CLOCK, mutable=True)]
    cases = list(conversations.variables())
    totals = [0, 0, 0]
    for name, template in templates:
        counts = compare(arguments.program, environments, name, template, cases, arguments.show)
        totals = [total + count for total, count in zip(totals, counts)]
        print(f"{name}: {counts[0]} printed alike, {counts[1]} failed in both, {counts[2]} differ",
              flush=True)
    print(f"jinja2 {jinja2.__version__}: {len(templates)} templates, {len(conversations.CONVERSATIONS)} "
          f"conversations, {len(cases)} renderings each: {totals[0]} printed alike, "
          f"{totals[1]} failed in both, {totals[2]} differ")
    return 1 if totals[2] else 0


if __name__ == "__main__":
    sys.exit(main())
