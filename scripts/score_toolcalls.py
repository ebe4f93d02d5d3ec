#!/usr/bin/env python3
"""Score a model's tool calls.

Feeds every prompt of a JSON-lines file to `moepack run MODEL --prompts-file` (greedy, one process
for all) and compares the answers:

  valid JSON   the answer holds a <tool_call>…</tool_call> whose inside is a JSON object with a
               string "name" and an object "arguments"
  exact call   its name and arguments equal the expected call's, as JSON values (1 and 1.0 are equal,
               1 and true are not; the order of keys does not matter)
  exact text   the whole answer equals the reference answer, where the file has one; end tokens at
               the end of either do not count

Lines are objects with "prompt" and "expected" {"name", "arguments"}, and optionally
"reference_text". Prints a table, or one JSON object with --json. Exit status: 0 done, 1 fewer exact
calls than --min-exact (or exact texts than --min-text), 2 an error.
"""

import argparse
import json
import re
import subprocess
import sys
import tempfile

TOOL_CALL = re.compile(r"<tool_call>(.*?)</tool_call>", re.DOTALL)
END_TOKENS = re.compile(r"(?:<\|[^|<>]*\|>)+\Z")


class ScoreError(Exception):
    """Something that makes scoring impossible; shown as one line."""


def refuse_constant(name):
    raise ValueError(name + " is not JSON")


def parse_call(text):
    """The first tool call in an answer as (name, arguments), or None."""
    found = TOOL_CALL.search(text)
    if found is None:
        return None
    try:
        call = json.loads(found.group(1), parse_constant=refuse_constant)
    except (ValueError, RecursionError):
        return None
    if not isinstance(call, dict):
        return None
    name, arguments = call.get("name"), call.get("arguments")
    if not isinstance(name, str) or not isinstance(arguments, dict):
        return None
    return name, arguments


def same_json(a, b):
    """Whether two JSON values are equal; Python alone would take True for 1."""
    if isinstance(a, bool) or isinstance(b, bool):
        return isinstance(a, bool) and isinstance(b, bool) and a == b
    if isinstance(a, dict) and isinstance(b, dict):
        return a.keys() == b.keys() and all(same_json(a[k], b[k]) for k in a)
    if isinstance(a, list) and isinstance(b, list):
        return len(a) == len(b) and all(map(same_json, a, b))
    return type(a) in (int, float) and type(b) in (int, float) and a == b or (
        type(a) is type(b) and a == b)


def same_text(answer, reference):
    return END_TOKENS.sub("", answer) == END_TOKENS.sub("", reference)


def score_one(case, answer):
    """-> {"valid_json", "exact_call", "exact_text" (None without a reference)}"""
    call = parse_call(answer)
    expected = case["expected"]
    exact = (call is not None and call[0] == expected["name"]
             and same_json(call[1], expected["arguments"]))
    reference = case.get("reference_text")
    text = None if reference is None else same_text(answer, reference)
    return {"valid_json": call is not None, "exact_call": exact, "exact_text": text}


def summarize(scores):
    texts = [s["exact_text"] for s in scores if s["exact_text"] is not None]
    return {
        "prompts": len(scores),
        "valid_json": sum(s["valid_json"] for s in scores),
        "exact_calls": sum(s["exact_call"] for s in scores),
        "with_reference": len(texts),
        "exact_texts": sum(texts),
    }


def read_json_lines(text, name):
    lines = []
    for number, line in enumerate(text.split("\n"), 1):
        if not line.strip():
            continue
        try:
            value = json.loads(line)
        except (ValueError, RecursionError) as error:
            raise ScoreError(f"{name} line {number}: {error}") from None
        if not isinstance(value, dict):
            raise ScoreError(f"{name} line {number}: is no object")
        value["line"] = number
        lines.append(value)
    return lines


def read_cases(path, limit):
    try:
        with open(path, encoding="utf-8") as file:
            cases = read_json_lines(file.read(), path)
    except (OSError, UnicodeDecodeError) as error:
        raise ScoreError(f"{path}: {error}") from None
    for case in cases:
        expected = case.get("expected")
        if not isinstance(case.get("prompt"), str):
            raise ScoreError(f"{path} line {case['line']}: has no \"prompt\"")
        if (not isinstance(expected, dict) or not isinstance(expected.get("name"), str)
                or not isinstance(expected.get("arguments"), dict)):
            raise ScoreError(f"{path} line {case['line']}: has no \"expected\" call")
    if not cases:
        raise ScoreError(f"{path}: holds no prompts")
    return cases[:limit] if limit else cases


def run_model(arguments, cases):
    """The answers' texts, one per case."""
    with tempfile.NamedTemporaryFile("w", suffix=".jsonl", encoding="utf-8") as prompts:
        for case in cases:
            prompts.write(json.dumps({"prompt": case["prompt"]}) + "\n")
        prompts.flush()
        command = [arguments.moepack, "run", arguments.model, "--prompts-file", prompts.name,
                   "-n", str(arguments.predict), *arguments.extra]
        try:
            # The model's own messages go straight to our stderr.
            done = subprocess.run(command, stdout=subprocess.PIPE, check=False)
        except OSError as error:
            raise ScoreError(f"{arguments.moepack}: {error}") from None
    if done.returncode != 0:
        raise ScoreError(f"{' '.join(command[:3])} ended with exit status {done.returncode}")
    try:
        answers = read_json_lines(done.stdout.decode("utf-8"), "answers")
    except UnicodeDecodeError as error:
        raise ScoreError(f"answers: {error}") from None
    if len(answers) != len(cases):
        raise ScoreError(f"{len(answers)} answers came back for {len(cases)} prompts")
    for case, answer in zip(cases, answers):
        if answer.get("prompt") != case["prompt"] or not isinstance(answer.get("text"), str):
            raise ScoreError(f"answer {answer['line']} does not belong to its prompt")
    return [answer["text"] for answer in answers]


def print_report(summary, cases, answers, scores, verbose):
    if verbose:
        for case, answer, score in zip(cases, answers, scores):
            if not score["exact_call"] or score["exact_text"] is False:
                print(f"line {case['line']}: {answer!r}")
    prompts = summary["prompts"]
    print(f"valid JSON  {summary['valid_json']:5d} of {prompts}")
    print(f"exact call  {summary['exact_calls']:5d} of {prompts}")
    if summary["with_reference"]:
        print(f"exact text  {summary['exact_texts']:5d} of {summary['with_reference']}")


def parse_arguments(argv):
    parser = argparse.ArgumentParser(
        description="Score a model's tool calls (see the head of this file).",
        epilog="Arguments behind -- go to `moepack run`, e.g. -- --backend reference")
    parser.add_argument("model", help="model directory")
    parser.add_argument("file", help="JSON lines with prompt, expected and maybe reference_text")
    parser.add_argument("--moepack", default="moepack", help="the program (default: from PATH)")
    parser.add_argument("-n", "--predict", type=int, default=96, help="most new tokens (96)")
    parser.add_argument("--limit", type=int, default=0, help="only the first N prompts")
    parser.add_argument("--min-exact", type=int, default=0, help="exit 1 below N exact calls")
    parser.add_argument("--min-text", type=int, default=0, help="exit 1 below N exact texts")
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    parser.add_argument("-v", "--verbose", action="store_true", help="show answers that differ")
    own, extra = argv, []
    if "--" in argv:
        own, extra = argv[:argv.index("--")], argv[argv.index("--") + 1:]
    arguments = parser.parse_args(own)
    arguments.extra = extra
    return arguments


def main(argv):
    arguments = parse_arguments(argv)
    try:
        cases = read_cases(arguments.file, arguments.limit)
        answers = run_model(arguments, cases)
    except ScoreError as error:
        print(f"score_toolcalls: {error}", file=sys.stderr)
        return 2
    scores = [score_one(case, answer) for case, answer in zip(cases, answers)]
    summary = summarize(scores)
    if arguments.json:
        print(json.dumps(summary))
    else:
        print_report(summary, cases, answers, scores, arguments.verbose)
    enough = (summary["exact_calls"] >= arguments.min_exact
              and summary["exact_texts"] >= arguments.min_text)
    return 0 if enough else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
