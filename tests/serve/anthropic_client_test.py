"""The real anthropic client against the server over a script: messages, streams, tools, thoughts, errors."""

import json
import sys
import time

import test_packages

test_packages.require("anthropic")

import anthropic  # noqa: E402
from anthropic import Anthropic  # noqa: E402

from scripted import Expectations, ScriptedServer, program_from_arguments  # noqa: E402

CALL = [{"call": {"id": "toolu_a", "name": "get_weather"}}, {"arguments": '{"city":'},
        {"arguments": '"Rome"}'}, {"call_end": True}]
SECOND = [{"call": {"id": "toolu_b", "name": "now"}}, {"call_end": True}]
THIRD = [{"call": {"id": "toolu_c", "name": "get_weather"}}, {"arguments": '{ "city": "Örebro", "n": [1.5, null] }'},
         {"call_end": True}]
SCRIPT = {"model": {"id": "small/model", "context": 4096}, "answers": [
    {"match": "hello", "events": [
        {"queued": 2}, {"queued": 1}, {"started": {"prompt": 412, "cached": 380}},
        {"progress": {"total": 412, "cached": 380, "done": 412, "seconds": 1}},
        {"content": "Hi"}, {"content": " there, ü 漢"}]},
    {"match": "think", "events": [{"started": {"prompt": 412, "cached": 380}}, {"reasoning": "I need"},
                                  {"reasoning": " time."}, {"content": "Done."}]},
    {"match": "one call", "events": [{"reasoning": "Weather."}, {"content": "Looking."}, *CALL]},
    {"match": "no arguments", "events": [*SECOND]},
    {"match": "three calls", "events": [{"content": "Wait."}, *CALL, *SECOND, *THIRD]},
    {"match": "text between", "events": [*CALL, {"content": "and"}, *SECOND, {"content": "so"}]},
    {"match": "broken call", "events": [{"call": {"id": "t", "name": "rm"}}, {"arguments": '{"path": "/x'},
                                        {"arguments": '" oh'}, {"call_end": True}]},
    {"match": "raw newline", "events": [{"call": {"id": "t", "name": "f"}}, {"arguments": '{"code": "a\n\tb'},
                                        {"arguments": '\\ud83d"}'}, {"call_end": True}]},
    {"match": "cut call", "events": [{"content": "I"}, {"call": {"id": "t", "name": "f"}},
                                     {"arguments": '{"code": "abc'}, {"end": "length"}]},
    {"match": "cut", "events": [{"content": "abc"}, {"end": "length"}]},
    {"match": "full", "events": [{"content": "abc"}, {"end": "context"}]},
    {"match": "stopped", "events": [{"content": "abc"}, {"end": "stop_text"}]},
    {"match": "fails late", "events": [{"content": "abc"}, {"end": "error", "message": "the disk is gone"}]},
    {"match": "slow queue", "events": [{"queued": 1}, {"delay": 1.5}, {"started": {"prompt": 50, "cached": 20}},
                                       {"content": "at last"}]},
    {"match": "slow thoughts", "events": [{"started": {"prompt": 50, "cached": 20}}, {"delay": 1.5},
                                          {"reasoning": "so"}, {"content": "at last"}]},
    {"match": "slow call", "events": [{"call": {"id": "t", "name": "f"}}, {"arguments": '{"a":'}, {"delay": 1.2},
                                      {"arguments": "1}"}, {"call_end": True}]},
    {"match": "endless", "events": [{"repeat": -1, "events": [{"content": "x"}, {"delay": 0.01}]}]},
    {"match": "request", "events": [{"say_request": True}]},
    {"match": "too long", "refuse": {"kind": "context", "prompt_tokens": 40000, "context": 32768, "message": "x"}},
    {"match": "busy", "refuse": {"kind": "busy", "retry": 1, "message": "the queue is full"}},
    {"match": "template", "refuse": {"kind": "internal", "message": "the template fails in line 3"}},
    {"match": "ending", "refuse": {"kind": "ending", "message": "the server ends"}},
    {"events": [{"content": "other"}]}]}

TOOLS = [{"name": "get_weather", "description": "Weather of a city", "input_schema": {
    "type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}},
    {"name": "now", "input_schema": {"type": "object", "properties": {}}}]


def user(text):
    return [{"role": "user", "content": text}]


class ClientTest(Expectations):
    def __init__(self, server):
        super().__init__()
        self.server = server
        self.client = Anthropic(base_url=server.url, api_key="unused", max_retries=0)

    def create(self, text, **fields):
        fields.setdefault("max_tokens", 100)
        return self.client.messages.create(model="claude-any", messages=user(text), **fields)

    def accumulated(self, text, **fields):
        """(the message that the helper makes of a stream, the types of its events)."""
        fields.setdefault("max_tokens", 100)
        with self.client.messages.stream(model="claude-any", messages=user(text), **fields) as stream:
            types = [event.type for event in stream]
            return stream.get_final_message(), types

    def raw(self, text, **fields):
        """The events of a stream as they are."""
        return list(self.create(text, stream=True, **fields))

    def understood(self, messages=None, **fields):
        fields.setdefault("max_tokens", 100)
        answer = self.client.messages.create(model="m", messages=messages or user("request"), **fields)
        return json.loads(answer.content[-1].text)

    def refused(self, kind, text, **fields):
        for stream in (False, True):
            try:
                self.create(text, stream=stream, **fields)
            except anthropic.APIStatusError as error:
                self.expect(isinstance(error, kind), f"{text}: {type(error).__name__}, not {kind.__name__}")
                self.equal(error.body["type"], "error", "shape")
                self.expect(error.body["request_id"] == error.response.headers["request-id"], "request-id")
                found = error
            else:
                self.expect(False, f"{text} {fields}: no {kind.__name__}")
                return None
        return found

    def test_plain(self):
        answer = self.create("hello")
        self.equal([b.type for b in answer.content], ["text"], "blocks")
        self.equal(answer.content[0].text, "Hi there, ü 漢", "text")
        self.equal((answer.stop_reason, answer.stop_sequence, answer.model, answer.role),
                   ("end_turn", None, "claude-any", "assistant"), "message")
        self.expect(answer.id.startswith("msg_"), "id")
        usage = answer.usage
        self.equal((usage.input_tokens, usage.cache_read_input_tokens, usage.cache_creation_input_tokens,
                    usage.output_tokens), (32, 380, 0, 2), "input_tokens leave out the cached ones")

    def test_stream_and_whole_are_one(self):
        for text in ("hello", "think", "one call", "no arguments", "three calls", "text between", "raw newline",
                     "cut", "full", "stopped", "other"):
            whole = self.create(text)
            streamed, types = self.accumulated(text)
            self.equal(streamed.content and [b.model_dump(exclude={"parsed_output"}) for b in streamed.content],
                       [b.model_dump() for b in whole.content], f"{text}: content")
            self.equal((streamed.stop_reason, streamed.stop_sequence),
                       (whole.stop_reason, whole.stop_sequence), f"{text}: end")
            self.equal(streamed.usage.model_dump(), whole.usage.model_dump(), f"{text}: usage")
            self.equal(types[0], "message_start", f"{text}: first")
            self.equal(types[-1], "message_stop", f"{text}: last")

    def test_one_block_at_a_time(self):
        opened, expected = None, 0
        for event in self.raw("three calls"):
            if event.type == "content_block_start":
                self.expect(opened is None, "two blocks are open")
                self.equal(event.index, expected, "indices without a gap")
                opened, expected = event.index, expected + 1
            elif event.type == "content_block_stop":
                self.equal(event.index, opened, "what stops is open")
                opened = None
        self.equal(expected, 4, "blocks")

    def test_event_lines_are_named(self):
        _, headers, body = self.server.post("/v1/messages", {"max_tokens": 9, "stream": True, "model": "m",
                                                             "messages": user("think")})
        self.expect(headers["content-type"].startswith("text/event-stream"), "type")
        blocks = body.decode().strip().split("\n\n")
        for block in blocks:
            name, data = block.split("\n")
            self.equal(name, "event: " + json.loads(data[6:])["type"], "name")
        usage = [json.loads(b.split("data: ")[1]) for b in blocks if "message_delta" in b][0]["usage"]
        self.equal((usage["input_tokens"], usage["cache_read_input_tokens"], usage["output_tokens"]), (32, 380, 3),
                   "message_delta has all counts")

    def test_thinking(self):
        answer = self.create("think", thinking={"type": "enabled", "budget_tokens": 1024}, max_tokens=2048)
        self.equal([b.type for b in answer.content], ["thinking", "text"], "blocks")
        self.equal((answer.content[0].thinking, bool(answer.content[0].signature)), ("I need time.", True), "thoughts")
        self.equal(answer.usage.output_tokens_details.thinking_tokens, 2, "tokens of thoughts")
        events = [e.type for e in self.raw("think")]
        self.equal(events.count("content_block_stop"), 2, "blocks stop")

    def test_tools(self):
        answer = self.create("one call", tools=TOOLS)
        self.equal([b.type for b in answer.content], ["thinking", "text", "tool_use"], "blocks")
        call = answer.content[2]
        self.equal((call.id, call.name, call.input), ("toolu_a", "get_weather", {"city": "Rome"}), "call")
        self.equal(answer.stop_reason, "tool_use", "reason")
        answer, _ = self.accumulated("three calls", tools=TOOLS)
        self.equal([b.input for b in answer.content if b.type == "tool_use"],
                   [{"city": "Rome"}, {}, {"city": "Örebro", "n": [1.5, None]}], "inputs")
        self.equal(self.create("no arguments").content[0].input, {}, "no arguments")
        joined = [e.delta.partial_json for e in self.raw("no arguments") if e.type == "content_block_delta"]
        self.equal("".join(joined), "{}", "no arguments are an object too")
        answer, _ = self.accumulated("raw newline")
        self.equal(answer.content[0].input, {"code": "a\n\tb\ufffd"}, "control characters in texts")

    def test_forced_tools(self):
        for choice, kind, allowed, parallel in (
                ({"type": "auto"}, "auto", [], True), ({"type": "any"}, "required", [], True),
                ({"type": "none"}, "none", [], True),
                ({"type": "tool", "name": "now", "disable_parallel_tool_use": True}, "required", ["now"], False)):
            got = self.understood(tools=TOOLS, tool_choice=choice)["tool_choice"]
            self.equal((got["kind"], got["allowed"], got["is_parallel"]), (kind, allowed, parallel), str(choice))
        self.refused(anthropic.BadRequestError, "request", tools=TOOLS, tool_choice={"type": "tool", "name": "x"})

    def test_broken_calls_never_look_whole(self):
        for run in (lambda: self.create("broken call"), lambda: self.accumulated("broken call")):
            try:
                run()
                self.expect(False, "a broken call was taken")
            except anthropic.APIError as error:
                self.expect("no whole JSON object" in str(error), f"error: {error}")
        cut = self.create("cut call")
        self.equal([b.type for b in cut.content], ["text"], "a call that was cut off is left out")
        streamed, _ = self.accumulated("cut call")
        self.equal((streamed.stop_reason, cut.stop_reason), ("max_tokens", "max_tokens"), "reason")

    def test_ends(self):
        for text, reason, stop in (("cut", "max_tokens", None), ("full", "model_context_window_exceeded", None),
                                   ("stopped", "stop_sequence", "")):
            answer = self.create(text)
            self.equal((answer.stop_reason, answer.stop_sequence), (reason, stop), text)

    def test_requests_are_understood(self):
        history = [
            {"role": "user", "content": [{"type": "text", "text": "a", "cache_control": {"type": "ephemeral"}}]},
            {"role": "assistant", "content": [{"type": "thinking", "thinking": "hm", "signature": "moepack"},
                                              {"type": "tool_use", "id": "t1", "name": "now", "input": {"x": 1}}]},
            {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "t1", "content": "noon"},
                                         {"type": "text", "text": "request"}]}]
        got = self.understood(
            history, system=[{"type": "text", "text": "x-anthropic-billing-header: cch=1;"},
                             {"type": "text", "text": "You code."}],
            tools=[{"type": "web_search_20250305", "name": "web_search"}, *TOOLS],
            thinking={"type": "enabled", "budget_tokens": 1500}, max_tokens=2000,
            output_config={"effort": "low", "format": {"type": "json_schema", "schema": {"type": "object"}}},
            stop_sequences=["END"], extra_body={"temperature": 0.5, "top_k": 7, "chat_template_kwargs": {"k": 1}},
            extra_query={"beta": "true"}, extra_headers={"anthropic-beta": "x,y"})
        messages = got["conversation"]["messages"]
        self.equal([(m["role"], m["content"]) for m in messages],
                   [("system", "You code."), ("user", "a"), ("assistant", ""), ("tool", "noon"), ("user", "request")],
                   "messages")
        self.equal((messages[2]["reasoning"], messages[2]["calls"][0]["arguments"]), ("hm", '{"x":1}'), "history")
        self.equal([t["name"] for t in got["conversation"]["tools"]], ["get_weather", "now"], "tools")
        self.equal((got["thinks"], got["thinking_budget"], got["cache_hints"]), (True, 1500, [1]), "thoughts, hints")
        self.equal((got["options"]["max_tokens"], got["options"]["stop"], got["options"]["temperature"],
                    got["options"]["top_k"]), (2000, ["END"], 0.5, 7), "options")
        self.equal((got["format"]["kind"], got["format"]["schema"]), ("json_schema", {"type": "object"}), "format")
        self.equal(got["conversation"]["template_arguments"], {"reasoning_effort": "low", "k": 1}, "arguments")
        self.equal(self.understood()["thinks"], False, "no thoughts unless they are asked for")

    def test_count_tokens(self):
        short = self.client.messages.count_tokens(model="m", messages=user("hi")).input_tokens
        long = self.client.messages.count_tokens(model="m", messages=user("hi"), tools=TOOLS,
                                                 system="Be brief.").input_tokens
        self.expect(0 < short < long, f"tools and system count: {short} {long}")
        billed = [self.client.messages.count_tokens(
            model="m", messages=user("hi"),
            system=[{"type": "text", "text": f"x-anthropic-billing-header: cch={n};"}]).input_tokens for n in (1, 99)]
        self.equal(billed, [short, short], "the billing line is none of the prompt")
        with self.client.messages.stream(model="m", max_tokens=9, messages=user("endless")) as stream:
            next(iter(stream))
            begun = time.monotonic()
            self.client.messages.count_tokens(model="m", messages=user("hi"))
            self.expect(time.monotonic() - begun < 1, "counting waits for nobody")

    def test_errors(self):
        error = self.refused(anthropic.BadRequestError, "too long")
        self.equal(error.body["error"], {"type": "invalid_request_error",
                                         "message": "prompt is too long: 40000 tokens > 32768 maximum"}, "length")
        error = self.refused(anthropic.RateLimitError, "busy")
        self.equal((error.body["error"]["type"], error.response.headers["retry-after"]), ("rate_limit_error", "1"),
                   "busy")
        error = self.refused(anthropic.InternalServerError, "template")
        self.equal((error.body["error"]["type"], error.response.headers["x-should-retry"]), ("api_error", "false"),
                   "what fails again")
        error = self.refused(anthropic.InternalServerError, "ending")
        self.equal(error.body["error"]["type"], "overloaded_error", "ending")
        error = self.refused(anthropic.BadRequestError, "x", tools=[{"name": ""}])
        self.expect("tools[0].name" in error.body["error"]["message"], "the member is named")
        error = self.refused(anthropic.BadRequestError, "x", extra_body={"max_tokens": None})
        self.expect("max_tokens" in error.body["error"]["message"], "a missing member is named")
        status, _, body = self.server.post("/v1/messages", b"{nonsense")
        self.equal((status, json.loads(body)["type"]), (400, "error"), "no JSON")
        status, _, body = self.server.get("/v1/messages")
        self.equal((status, json.loads(body)["error"]["type"]), (405, "invalid_request_error"), "GET")

    def test_error_in_a_stream(self):
        seen = []
        try:
            for event in self.raw_iterator("fails late"):
                seen.append(event.type)
            self.expect(False, "no error")
        except anthropic.APIError as error:
            self.expect("the disk is gone" in str(error), f"error: {error}")
        self.expect("content_block_delta" in seen and "message_stop" not in seen, f"events: {seen}")
        try:
            self.create("fails late")
            self.expect(False, "no error")
        except anthropic.InternalServerError as error:
            self.equal(error.body["error"]["type"], "api_error", "whole")

    def raw_iterator(self, text):
        yield from self.create(text, stream=True)

    def test_waiting_clients_see_life(self):
        _, _, body = self.server.post("/v1/messages", {"max_tokens": 9, "stream": True, "messages": user("slow queue")})
        names = [b.split("\n")[0][7:] for b in body.decode().strip().split("\n\n")]
        self.equal(names[:2], ["message_start", "ping"], "life in the queue")
        self.expect(names.count("ping") >= 2 and names.count("message_start") == 1, f"pings: {names}")
        for text in ("slow queue", "slow thoughts", "slow call"):
            answer, _ = self.accumulated(text, thinking={"type": "adaptive"})
            whole = self.create(text)
            kept = [b.model_dump(exclude={"parsed_output"}) for b in answer.content
                    if b.type == "tool_use" or getattr(b, "text", "") or getattr(b, "thinking", "")]
            self.equal(kept, [b.model_dump() for b in whole.content], f"{text}: content")
            self.equal(answer.usage.input_tokens, whole.usage.input_tokens, f"{text}: the true counts at the end")

    def test_disconnects(self):
        for _ in range(20):
            with self.client.messages.stream(model="m", max_tokens=9, messages=user("endless")) as stream:
                for number, _ in enumerate(stream):
                    if number > 3:
                        break
        self.expect(self.server.wait_for_metric("requests_processing", 0), "nothing goes on for nobody")
        self.equal(self.create("hello").content[0].text, "Hi there, ü 漢", "after that")


def test_keys(program):
    test = Expectations()
    with ScriptedServer(program, SCRIPT, "--api-key", "s3cret") as server:
        for arguments, wanted in (({"api_key": "s3cret"}, True), ({"auth_token": "s3cret"}, True),
                                  ({"api_key": "wrong"}, False)):
            client = Anthropic(base_url=server.url, max_retries=0, **arguments)
            try:
                client.messages.create(model="m", max_tokens=9, messages=user("x"))
                test.expect(wanted, f"{arguments} was taken")
            except anthropic.AuthenticationError as error:
                test.expect(not wanted, f"{arguments} was refused")
                test.equal(error.body.get("error", {}).get("type"), "authentication_error", "type")
        test.equal(server.post("/v1/messages", {"max_tokens": 9, "messages": user("x")}, "x-api-key: s3cret")[0], 200,
                   "x-api-key")
    return test


def main():
    program = program_from_arguments(__doc__)
    with ScriptedServer(program, SCRIPT, "--ping-seconds", "0.3") as server:
        test = ClientTest(server)
        for name in [n for n in dir(test) if n.startswith("test_")]:
            try:
                getattr(test, name)()
            except Exception as error:  # pylint: disable=broad-except
                test.expect(False, f"{name}: {type(error).__name__}: {error}")
    keys = test_keys(program)
    test.checks += keys.checks
    test.failures += keys.failures
    return test.conclude("anthropic client")


if __name__ == "__main__":
    sys.exit(main())
