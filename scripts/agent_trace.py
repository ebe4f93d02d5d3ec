#!/usr/bin/env python3
"""Plays an agent's conversation with tools against a server and prints what each turn costs.

The requests have the shape of a coding agent's: a long system prompt whose first line changes with every
request, tools, a system message in the middle, calls and their results in a growing history, and short
requests for titles beside them. What the server answered goes back to it in the next turn. Any server that
speaks the protocol will do:

    scripts/agent_trace.py --url http://127.0.0.1:8080 --turns 30 --slice 512

Per turn: tokens of the prompt, of these from a kept state, computed, new since the turn before, seconds to
the first token and in all. With --slice N it ends with 1 if a turn behind the first computed more than the
new tokens and N.
"""

import argparse
import http.client
import json
import random
import sys
import threading
import time
import urllib.parse

WORDS = ("the file parser reads every line of a table and returns a list of rows with names types values errors "
         "test build commit branch merge index cache thread memory disk expert token layer state queue").split()


def prose(seed, words):
    rng = random.Random(seed)
    return " ".join(rng.choice(WORDS) for _ in range(words))


def tool(name, description, **properties):
    return {"name": name, "description": description, "parameters": {
        "type": "object", "properties": {k: {"type": "string", "description": v} for k, v in properties.items()},
        "required": list(properties), "additionalProperties": False}}


TOOLS = [tool("read_file", "Reads a file. " + prose(1, 60), path="Absolute path of the file"),
         tool("run_command", "Runs a command in a shell. " + prose(2, 90), command="The command line"),
         tool("search", "Searches files for a text. " + prose(3, 60), pattern="What is looked for", folder="Where")]


class Answer:
    def __init__(self):
        self.text, self.reasoning, self.calls = "", "", []
        self.partial = ""  # of a call that may never be whole
        self.prompt = self.cached = self.completion = 0
        self.first = self.seconds = 0.0

    def joined(self):
        return "".join([self.text, self.reasoning, self.partial, *(c["arguments"] for c in self.calls)])


class Messages:
    """Anthropic's protocol."""
    path = "/v1/messages"

    def __init__(self, model):
        self.model = model

    def body(self, system, history, options):
        tools = [{"name": t["name"], "description": t["description"], "input_schema": t["parameters"]} for t in TOOLS]
        head = {"type": "text", "text": f"x-anthropic-billing-header: cc_version=2; cch={random.getrandbits(20):05x};"}
        body = {"model": self.model, "max_tokens": options["max_tokens"], "temperature": 0, "stream": True,
                "system": [head, {"type": "text", "text": system, "cache_control": {"type": "ephemeral"}}],
                "messages": history}
        if options.get("tools"):
            body["tools"] = tools
            body["tool_choice"] = {"type": "any" if options["forced"] else "auto", "disable_parallel_tool_use": True}
        return body

    def user(self, text):
        return [{"role": "user", "content": [{"type": "text", "text": text}]}]

    def late_system(self, text):
        return [{"role": "system", "content": text}]

    def turn(self, answer, results):
        content = []
        if answer.reasoning:
            content.append({"type": "thinking", "thinking": answer.reasoning, "signature": "x"})
        if answer.text:
            content.append({"type": "text", "text": answer.text})
        for call in answer.calls:
            content.append({"type": "tool_use", "id": call["id"], "name": call["name"],
                            "input": json.loads(call["arguments"] or "{}")})
        items = [{"role": "assistant", "content": content or [{"type": "text", "text": "."}]}]
        if results:
            items.append({"role": "user", "content": [
                {"type": "tool_result", "tool_use_id": c["id"], "content": r} for c, r in zip(answer.calls, results)]})
        return items

    def take(self, event, answer):
        kind = event.get("type")
        if kind == "error":
            raise SystemExit(f"the server says: {event['error']}")
        if kind == "content_block_start" and event["content_block"]["type"] == "tool_use":
            answer.calls.append({"id": event["content_block"]["id"], "name": event["content_block"]["name"],
                                 "arguments": ""})
        elif kind == "content_block_delta":
            delta = event["delta"]
            answer.text += delta.get("text", "")
            answer.reasoning += delta.get("thinking", "")
            if "partial_json" in delta:
                answer.calls[-1]["arguments"] += delta["partial_json"]
        elif kind in ("message_start", "message_delta"):
            usage = event.get("usage") or event.get("message", {}).get("usage") or {}
            answer.cached = usage.get("cache_read_input_tokens", answer.cached) or 0
            if "input_tokens" in usage:
                answer.prompt = usage["input_tokens"] + answer.cached
            answer.completion = usage.get("output_tokens", answer.completion)


class Chat:
    """OpenAI's chat completions. The line that changes is left out: these agents have none."""
    path = "/v1/chat/completions"

    def __init__(self, model):
        self.model = model

    def body(self, system, history, options):
        body = {"model": self.model, "max_tokens": options["max_tokens"], "temperature": 0, "stream": True,
                "stream_options": {"include_usage": True},
                "messages": [{"role": "system", "content": system}, *history]}
        if options.get("tools"):
            body["tools"] = [{"type": "function", "function": t} for t in TOOLS]
            body["tool_choice"] = "required" if options["forced"] else "auto"
            body["parallel_tool_calls"] = False
        return body

    def user(self, text):
        return [{"role": "user", "content": text}]

    def late_system(self, text):
        return [{"role": "user", "content": f"<system-reminder>\n{text}\n</system-reminder>"}]

    def turn(self, answer, results):
        message = {"role": "assistant", "content": answer.text}
        if answer.reasoning:
            message["reasoning_content"] = answer.reasoning
        if answer.calls:
            message["tool_calls"] = [{"id": c["id"], "type": "function", "function": {
                "name": c["name"], "arguments": c["arguments"]}} for c in answer.calls]
        return [message, *({"role": "tool", "tool_call_id": c["id"], "content": r}
                           for c, r in zip(answer.calls, results))]

    def take(self, event, answer):
        if "error" in event:
            raise SystemExit(f"the server says: {event['error']}")
        if usage := event.get("usage"):
            answer.prompt, answer.completion = usage["prompt_tokens"], usage["completion_tokens"]
            answer.cached = (usage.get("prompt_tokens_details") or {}).get("cached_tokens", answer.cached)
        if timings := event.get("timings"):
            answer.cached = timings.get("cache_n", answer.cached)
        for choice in event.get("choices", []):
            delta = choice.get("delta", {})
            answer.text += delta.get("content") or ""
            answer.reasoning += delta.get("reasoning_content") or ""
            for call in delta.get("tool_calls") or []:
                if call.get("id"):
                    answer.calls.append({"id": call["id"], "name": call["function"]["name"], "arguments": ""})
                answer.calls[-1]["arguments"] += call["function"].get("arguments") or ""


class Responses(Chat):
    """OpenAI's Responses."""
    path = "/v1/responses"

    def body(self, system, history, options):
        body = {"model": self.model, "max_output_tokens": options["max_tokens"], "temperature": 0, "stream": True,
                "store": False, "instructions": system, "input": history}
        if options.get("tools"):
            body["tools"] = [{"type": "function", **t} for t in TOOLS]
            body["tool_choice"] = "required" if options["forced"] else "auto"
            body["parallel_tool_calls"] = False
        return body

    def late_system(self, text):
        return [{"role": "developer", "content": text}]

    def turn(self, answer, results):
        items = []
        if answer.reasoning:
            items.append({"type": "reasoning", "summary": [],
                          "content": [{"type": "reasoning_text", "text": answer.reasoning}]})
        if answer.text or not answer.calls:
            items.append({"type": "message", "role": "assistant",
                          "content": [{"type": "output_text", "text": answer.text}]})
        items += [{"type": "function_call", "call_id": c["id"], "name": c["name"], "arguments": c["arguments"]}
                  for c in answer.calls]
        return items + [{"type": "function_call_output", "call_id": c["id"], "output": r}
                        for c, r in zip(answer.calls, results)]

    def take(self, event, answer):
        kind = event.get("type", "")
        if kind in ("error", "response.failed"):
            raise SystemExit(f"the server says: {event}")
        if kind == "response.output_text.delta":
            answer.text += event["delta"]
        elif kind == "response.reasoning_text.delta":
            answer.reasoning += event["delta"]
        elif kind == "response.function_call_arguments.delta":
            answer.partial += event["delta"]
        elif kind == "response.output_item.done" and event["item"]["type"] == "function_call":
            item = event["item"]
            answer.calls.append({"id": item["call_id"], "name": item["name"], "arguments": item["arguments"]})
        elif kind in ("response.completed", "response.incomplete"):
            usage = event["response"]["usage"]
            answer.prompt, answer.completion = usage["input_tokens"], usage["output_tokens"]
            answer.cached = usage["input_tokens_details"]["cached_tokens"]


PROTOCOLS = {"messages": Messages, "chat": Chat, "responses": Responses}


def ask(url, protocol, body, timeout):
    place = urllib.parse.urlsplit(url)
    connection = http.client.HTTPConnection(place.hostname, place.port, timeout=timeout)
    answer, begun = Answer(), time.monotonic()
    headers = {"Content-Type": "application/json", "Authorization": "Bearer x", "anthropic-version": "2023-06-01"}
    connection.request("POST", protocol.path, json.dumps(body), headers)
    reply = connection.getresponse()
    if reply.status != 200:
        raise SystemExit(f"the server answers {reply.status}: {reply.read(2000).decode(errors='replace')}")
    for line in reply:
        if not line.startswith(b"data: ") or line.strip() == b"data: [DONE]":
            continue
        protocol.take(json.loads(line[6:]), answer)
        if not answer.first and answer.joined():
            answer.first = time.monotonic() - begun
    answer.seconds = time.monotonic() - begun
    connection.close()
    return answer


def keep_whole_calls(answer):
    """Calls that a limit cut off do not go back."""
    def is_whole(text):
        try:
            return isinstance(json.loads(text or "{}"), dict)
        except ValueError:
            return False
    answer.calls = [c for c in answer.calls if is_whole(c["arguments"])]


class Titles:
    """Short requests beside the conversation, as agents send them."""

    def __init__(self, arguments, protocol):
        self.arguments, self.protocol, self.threads = arguments, protocol, []
        self.failures = []

    def ask(self, body):
        try:
            ask(self.arguments.url, self.protocol, body, self.arguments.timeout)
        except (SystemExit, OSError, ValueError, http.client.HTTPException) as failure:  # of a thread: nobody sees it
            self.failures.append(failure)

    def send(self, number):
        body = self.protocol.body("Write a title of three words.", self.protocol.user(prose(number, 30)),
                                  {"max_tokens": 8})
        thread = threading.Thread(target=self.ask, args=(body,))
        thread.start()
        self.threads.append(thread)

    def join(self):
        for thread in self.threads:
            thread.join()
        if self.failures:
            raise SystemExit(f"{len(self.failures)} short requests failed: {self.failures[0]}")


def play(arguments):
    protocol = PROTOCOLS[arguments.protocol](arguments.model)
    system = "You are an agent that works on source code. " + prose(0, arguments.system_words)
    history = protocol.user("Please look at this project. " + prose(10, 60))
    titles, rows, before = Titles(arguments, protocol), [], None
    print(f"{'turn':>4} {'prompt':>7} {'cached':>7} {'computed':>8} {'new':>6} {'first s':>8} {'all s':>7}  kind")
    for turn in range(arguments.turns):
        # Two turns of three want a tool; forced, so that small models make calls too.
        forced = turn % 3 != 2
        if arguments.titles and turn % 5 == 1:
            titles.send(turn)
        options = {"tools": True, "forced": forced, "max_tokens": arguments.max_tokens}
        answer = ask(arguments.url, protocol, protocol.body(system, history, options), arguments.timeout)
        keep_whole_calls(answer)
        new = answer.prompt - before if before is not None else answer.prompt
        computed = answer.prompt - answer.cached
        rows.append((computed, new))
        print(f"{turn + 1:4} {answer.prompt:7} {answer.cached:7} {computed:8} {new:6} {answer.first:8.3f} "
              f"{answer.seconds:7.3f}  {'call' if answer.calls else 'text'}", flush=True)
        before = answer.prompt
        history += protocol.turn(answer, [prose(100 + turn, arguments.result_words) for _ in answer.calls])
        if turn == arguments.turns // 2:
            history += protocol.late_system("The date has changed. " + prose(7, 20))
        if not answer.calls:
            history += protocol.user("Go on: " + prose(200 + turn, 30))
    titles.join()
    return rows


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--url", default="http://127.0.0.1:8080")
    parser.add_argument("--protocol", choices=PROTOCOLS, default="messages")
    parser.add_argument("--model", default="m")
    parser.add_argument("--turns", type=int, default=30)
    parser.add_argument("--system-words", type=int, default=1500)
    parser.add_argument("--result-words", type=int, default=120)
    parser.add_argument("--max-tokens", type=int, default=48)
    parser.add_argument("--no-titles", dest="titles", action="store_false", help="no short requests beside it")
    parser.add_argument("--timeout", type=float, default=600)
    parser.add_argument("--slice", type=int, help="tokens that a turn may compute beside the new ones")
    arguments = parser.parse_args()
    random.seed(1)
    begun = time.monotonic()
    rows = play(arguments)
    later = rows[1:]
    print(f"after the first turn: computed {sum(c for c, _ in later)}, new {sum(n for _, n in later)}, "
          f"most beyond the new ones {max(c - n for c, n in later) if later else 0}; "
          f"{len(rows)} turns in {time.monotonic() - begun:.0f} s")
    if arguments.slice is not None and any(c > n + arguments.slice for c, n in later):
        print(f"FAILED: a turn computed more than its new tokens and {arguments.slice}")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
