#!/usr/bin/env python3
"""Each family's form of chat template and calls, through `serve` and `chat`: the template is taken,
the parser that it tells is chosen, a call that is asked for comes out as a call, and its result goes
back through the template. The templates are small ones of our own (tests/golden/templates), the
model is the demo, whose answers are forced into the form by the grammar."""
import argparse
import json
import subprocess
import sys
import tempfile
from pathlib import Path

from cli_runner import conclude
from served_model import Served

CALLS = ("hermes", "qwen-xml", "harmony", "deepseek", "dsml", "glm", "kimi", "minimax")
CITY = {"type": "string", "enum": ["Oslo", "Rome"]}
DAYS = {"type": "integer", "enum": [1, 22]}
TOOLS = [{"type": "function", "function": {
    "name": "forecast", "description": "Weather to come.",
    "parameters": {"type": "object", "properties": {"city": CITY, "days": DAYS},
                   "required": ["city", "days"], "additionalProperties": False}}}]


class Checks:
    def __init__(self):
        self.failures, self.count = [], 0

    def expect(self, condition, text):
        self.count += 1
        if not condition:
            self.failures.append(text)
        return condition


def ask(served, messages, **more):
    status, body = served.ask("POST", "/v1/chat/completions", {
        "messages": messages, "max_tokens": 400, "temperature": 0, "tools": TOOLS,
        "parallel_tool_calls": False, **more})
    return status, json.loads(body)


def check_call(checks, name, served):
    question = [{"role": "user", "content": "How will the weather be?"}]
    status, answer = ask(served, question, tool_choice="required")
    if not checks.expect(status == 200, f"{name}: {status} {answer}"):
        return
    choice = answer["choices"][0]
    calls = choice["message"].get("tool_calls") or []
    if not checks.expect(choice["finish_reason"] == "tool_calls" and len(calls) == 1,
                         f"{name}: {choice}"):
        return
    call = calls[0]["function"]
    given = json.loads(call["arguments"])
    checks.expect(call["name"] == "forecast" and given["city"] in CITY["enum"] and
                  given["days"] in DAYS["enum"] and len(given) == 2, f"{name}: {call}")
    checks.expect(not choice["message"].get("content"), f"{name}: content beside the call: {choice}")
    history = question + [choice["message"],
                          {"role": "tool", "tool_call_id": calls[0]["id"], "content": "mild, 17"}]
    status, again = ask(served, history, tool_choice="none", max_tokens=8)
    checks.expect(status == 200 and
                  again["usage"]["prompt_tokens"] > answer["usage"]["prompt_tokens"] + 10,
                  f"{name}: with the result: {status} {again}")
    # Cut anywhere: a call that is not whole is no call.
    for limit in range(8, answer["usage"]["completion_tokens"], 9):
        status, cut = ask(served, question, tool_choice="required", max_tokens=limit)
        choice = cut["choices"][0]
        made = [json.loads(c["function"]["arguments"])
                for c in choice["message"].get("tool_calls") or []]
        # Towards the limit the grammar takes the shortest way to an end.
        checks.expect(status == 200 and
                      all(m.keys() == given.keys() and m["city"] in CITY["enum"] and
                          m["days"] in DAYS["enum"] for m in made) and
                      choice["finish_reason"] == ("tool_calls" if made else "length"),
                      f"{name}, {limit} tokens: {choice}")
    # The same call in a stream: the pieces are those of the whole.
    status, body = served.ask("POST", "/v1/chat/completions", {
        "messages": question, "max_tokens": 400, "temperature": 0, "tools": TOOLS,
        "parallel_tool_calls": False, "tool_choice": "required", "stream": True})
    pieces, names = "", []
    for line in body.decode().splitlines():
        if not line.startswith("data: {"):
            continue
        for part in json.loads(line[6:])["choices"]:
            for delta in part["delta"].get("tool_calls") or []:
                names += [delta["function"]["name"]] if delta["function"].get("name") else []
                pieces += delta["function"].get("arguments") or ""
    checks.expect(names == ["forecast"] and json.loads(pieces or "0") == given,
                  f"{name}: stream {names} {pieces!r}")


def check_chat(checks, program, model, name, template, scratch):
    tools = scratch / "tools.json"
    tools.write_text(json.dumps(TOOLS))
    offered = [] if name == "plain" else ["--tools", tools, "--allow-tool", "forecast=cat"]
    done = subprocess.run([program, "chat", model, "-p", "Hello", "-n", "8", "--temp", "0",
                           "--chat-template-file", template, *offered], capture_output=True,
                          timeout=120, check=False, stdin=subprocess.DEVNULL)
    checks.expect(done.returncode == 0 and done.stderr == b"",
                  f"{name}: chat: {done.returncode} {done.stdout[:200]} {done.stderr[:300]}")


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--program", required=True)
    parser.add_argument("--checkpoint", required=True, type=Path)
    parser.add_argument("--templates", required=True, type=Path)
    args = parser.parse_args()
    checks = Checks()
    with tempfile.TemporaryDirectory(prefix="moepack-templates-") as name:
        scratch = Path(name)
        model = scratch / "model"
        subprocess.run([args.program, "convert", args.checkpoint, "-o", model, "--quiet"], check=True)
        found = {path.stem for path in args.templates.glob("*.jinja")}
        checks.expect(found == {*CALLS, "plain"}, f"templates {sorted(found)}")
        for form in (*CALLS, "plain"):
            template = args.templates / f"{form}.jinja"
            check_chat(checks, args.program, model, form, template, scratch)
            # The vocabulary of the demo knows marks of calls, those of these families do not.
            no_calls = ("--tool-parser", "none") if form == "plain" else ()
            with Served(args.program, model, "--chat-template-file", template, *no_calls,
                        context=2048) as served:
                if not checks.expect(served.wait_until_ready(), f"{form}: serve does not start"):
                    continue
                if form != "plain":
                    check_call(checks, form, served)
                    continue
                status, body = served.ask("POST", "/v1/chat/completions", {
                    "messages": [{"role": "user", "content": "Hello"}], "max_tokens": 4})
                checks.expect(status == 200, f"plain: {status} {body}")
                status, answer = ask(served, [{"role": "user", "content": "Hello"}],
                                     tool_choice="required")
                checks.expect(status == 400, f"plain, a call demanded: {status} {answer}")
    return conclude(checks.failures, f"{checks.count} checks, ")


if __name__ == "__main__":
    sys.exit(main())
