#!/usr/bin/env python3
"""Score the calls of tools that a chat server answers with.

Sends the messages and tools of every line of a JSON-lines file to URL/v1/chat/completions, at
temperature 0, and counts the answers with a valid call (a tool that was offered, arguments that are a
JSON object) and those with the expected one. Lines are objects with "messages", "tools" and
"expected" {"name", "arguments"}.

  bench/score_chat_tools.py --url http://127.0.0.1:8080 calls.jsonl [--tool-choice required]
"""

import argparse
import concurrent.futures
import json
import sys
import urllib.error
import urllib.request


def ask(url, line, choice, most):
    body = {"messages": line["messages"], "tools": line["tools"], "temperature": 0, "max_tokens": most,
            "tool_choice": choice}
    request = urllib.request.Request(url + "/v1/chat/completions", json.dumps(body).encode(),
                                     {"Content-Type": "application/json"})
    with urllib.request.urlopen(request, timeout=600) as answer:
        return json.load(answer)["choices"][0]


def judge(line, answer):
    """(valid, exact) of an answer."""
    calls = answer["message"].get("tool_calls") or []
    offered = {tool["function"]["name"] for tool in line["tools"]}
    if not calls or answer["finish_reason"] != "tool_calls":
        return False, False
    call = calls[0]["function"]
    try:
        arguments = json.loads(call["arguments"])
    except ValueError:
        return False, False
    valid = isinstance(arguments, dict) and call["name"] in offered
    expected = line["expected"]
    return valid, valid and call["name"] == expected["name"] and arguments == expected["arguments"]


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("calls")
    parser.add_argument("--url", default="http://127.0.0.1:8080")
    parser.add_argument("--tool-choice", default="auto", choices=["auto", "required"])
    parser.add_argument("--lines", type=int, default=0, help="only so many")
    parser.add_argument("--max-tokens", type=int, default=200)
    parser.add_argument("--clients", type=int, default=4)
    flags = parser.parse_args()
    with open(flags.calls, encoding="utf-8") as file:
        lines = [json.loads(text) for text in file if text.strip()]
    lines = lines[: flags.lines or None]
    try:
        with concurrent.futures.ThreadPoolExecutor(flags.clients) as pool:
            answers = list(pool.map(
                lambda line: ask(flags.url, line, flags.tool_choice, flags.max_tokens), lines))
    except (OSError, ValueError, KeyError) as error:
        print(f"score_chat_tools: {flags.url}: {error}", file=sys.stderr)
        return 2
    judged = [judge(line, answer) for line, answer in zip(lines, answers)]
    print(f"{len(lines)} prompts, tool_choice {flags.tool_choice}: "
          f"{sum(valid for valid, _ in judged)} valid calls, {sum(exact for _, exact in judged)} as expected")
    for line, answer, (valid, _) in zip(lines, answers, judged):
        if not valid:
            text = answer["message"].get("content") or json.dumps(answer["message"].get("tool_calls"))
            print(f"  not valid ({answer['finish_reason']}): {text[:160]!r}", file=sys.stderr)
    return 0


if __name__ == "__main__":
    sys.exit(main())
