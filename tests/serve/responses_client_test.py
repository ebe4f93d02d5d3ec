"""The real openai client's Responses API against the server over a script: items, streams, tools, errors."""

import json
import sys

import test_packages

test_packages.require("openai", "pydantic")

import openai  # noqa: E402
from openai import OpenAI  # noqa: E402
from pydantic import BaseModel  # noqa: E402

from scripted import Expectations, ScriptedServer, program_from_arguments  # noqa: E402

CALL = [{"call": {"id": "call_a", "name": "get_weather"}}, {"arguments": '{"city":'},
        {"arguments": '"Rome"}'}, {"call_end": True}]
SECOND = [{"call": {"id": "call_b", "name": "now"}}, {"call_end": True}]
LOGPROBS = [{"token": "H", "logprob": -0.5, "top": [{"token": "H", "logprob": -0.5},
                                                    {"token": "Y", "logprob": -1.5}]}]
SCRIPT = {"model": {"id": "small/model", "context": 4096}, "answers": [
    {"match": "hello", "events": [
        {"queued": 1}, {"started": {"prompt": 412, "cached": 380}},
        {"progress": {"total": 412, "cached": 380, "done": 412, "seconds": 1}},
        {"reasoning": "Let me "}, {"reasoning": "see."}, {"content": "Hi"}, {"content": " there, ü 漢"}]},
    {"match": "one call", "events": [{"reasoning": "Weather."}, *CALL]},
    {"match": "three calls", "events": [{"content": "Wait."}, *CALL, *SECOND, {"call": {"id": "call_c", "name": "now"}},
                                        {"arguments": "{}"}, {"call_end": True}]},
    {"match": "schema", "events": [{"content": '{"city":"Rome",'}, {"content": '"degrees":21}'}]},
    {"match": "logprobs", "events": [{"content": "H", "logprobs": LOGPROBS}]},
    {"match": "cut call", "events": [{"content": "I"}, {"call": {"id": "t", "name": "now"}},
                                     {"arguments": '{"a": "b'}, {"end": "length"}]},
    {"match": "cut", "events": [{"content": "abc"}, {"end": "length"}]},
    {"match": "full", "events": [{"content": "abc"}, {"end": "context"}]},
    {"match": "fails late", "events": [{"content": "abc"}, {"end": "error", "message": "the disk is gone"}]},
    {"match": "slow queue", "events": [{"queued": 1}, {"delay": 1.2}, {"content": "at last"}]},
    {"match": "slow", "events": [{"started": {"prompt": 5}}, {"delay": 1.2}, {"content": "at"}, {"delay": 0.8},
                                 {"content": " last"}]},
    {"match": "endless", "events": [{"repeat": -1, "events": [{"content": "x"}, {"delay": 0.01}]}]},
    {"match": "request", "events": [{"say_request": True}]},
    {"match": "too long", "refuse": {"kind": "context", "prompt_tokens": 5000, "context": 4096,
                                     "message": "the prompt has more tokens than the context length"}},
    {"match": "busy", "refuse": {"kind": "busy", "retry": 1, "message": "the queue is full"}},
    {"events": [{"content": "other"}]}]}

TOOLS = [{"type": "function", "name": "get_weather", "description": "Weather of a city", "strict": True, "parameters": {
    "type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"], "additionalProperties": False}},
    {"type": "function", "name": "now", "strict": False, "parameters": {"type": "object", "properties": {}}}]


class Weather(BaseModel):
    city: str
    degrees: int


class ClientTest(Expectations):
    def __init__(self, server):
        super().__init__()
        self.server = server
        self.client = OpenAI(base_url=server.url + "/v1", api_key="unused", max_retries=0)

    def create(self, given, **fields):
        return self.client.responses.create(model="small/model", input=given, **fields)

    def helper(self, given, **fields):
        """(the response that the helper makes of a stream, its events)."""
        with self.client.responses.stream(model="small/model", input=given, **fields) as stream:
            events = list(stream)
            return stream.get_final_response(), events

    def raw(self, given, **fields):
        return list(self.create(given, stream=True, **fields))

    def understood(self, given="request", **fields):
        return json.loads(self.create(given, **fields).output_text)

    def refused(self, kind, given, **fields):
        found = None
        for stream in (False, True):
            try:
                self.create(given, stream=stream, **fields)
            except openai.APIStatusError as error:
                self.expect(isinstance(error, kind), f"{given}: {type(error).__name__}, not {kind.__name__}")
                found = error
            else:
                self.expect(False, f"{given} {fields}: no {kind.__name__}")
        return found

    def test_plain(self):
        response = self.create("hello", instructions="Be brief.", metadata={"k": "v"})
        self.equal((response.status, response.object, response.model, response.output_text),
                   ("completed", "response", "small/model", "Hi there, ü 漢"), "response")
        self.equal([i.type for i in response.output], ["reasoning", "message"], "items")
        self.equal(response.output[0].content[0].text, "Let me see.", "thoughts")
        self.equal((response.error, response.incomplete_details, response.instructions, response.metadata),
                   (None, None, "Be brief.", {"k": "v"}), "rest")
        usage = response.usage
        self.equal((usage.input_tokens, usage.input_tokens_details.cached_tokens, usage.output_tokens,
                    usage.output_tokens_details.reasoning_tokens, usage.total_tokens), (412, 380, 4, 2, 416), "usage")

    def test_stream_and_whole_are_one(self):
        for given in ("hello", "one call", "three calls", "schema", "other"):
            whole = self.create(given, tools=TOOLS)
            streamed, _ = self.helper(given, tools=TOOLS)
            plain = [i.model_dump(exclude={"id", "parsed_arguments"}) for i in whole.output]
            kept = [i.model_dump(exclude={"id", "parsed_arguments"}) for i in streamed.output]
            for item in kept + plain:
                for part in item.get("content") or []:
                    part.pop("parsed", None)
            self.equal(kept, plain, f"{given}: output")
            self.equal(streamed.usage.model_dump(), whole.usage.model_dump(), f"{given}: usage")

    def test_events(self):
        events = self.raw("three calls")
        self.equal([e.sequence_number for e in events], list(range(len(events))), "sequence_number")
        self.equal((events[0].type, events[1].type, events[-1].type),
                   ("response.created", "response.in_progress", "response.completed"), "frame")
        added = [e for e in events if e.type == "response.output_item.added"]
        done = [e for e in events if e.type == "response.output_item.done"]
        self.equal([e.output_index for e in added], [0, 1, 2, 3], "added")
        self.equal([e.output_index for e in done], [0, 1, 2, 3], "done")
        self.equal([e.item.id for e in added], [e.item.id for e in done], "ids")
        for event in events:
            if event.type.startswith("response.output_text") or event.type.startswith("response.content_part"):
                self.equal((event.content_index, event.item_id), (0, added[event.output_index].item.id), event.type)
        self.equal([e.item.arguments for e in done[1:]], ['{"city":"Rome"}', "{}", "{}"], "arguments")
        _, headers, body = self.server.post("/v1/responses", {"input": "hello", "stream": True})
        self.expect(headers["content-type"].startswith("text/event-stream"), "type")
        for block in body.decode().strip().split("\n\n"):
            name, data = block.split("\n")
            self.equal(name, "event: " + json.loads(data[6:])["type"], "event lines")
        self.expect("[DONE]" not in body.decode(), "no [DONE]")

    def test_tools(self):
        response, events = self.helper("one call", tools=TOOLS)
        call = response.output[1]
        self.equal((call.type, call.call_id, call.name, call.arguments, call.status, call.parsed_arguments),
                   ("function_call", "call_a", "get_weather", '{"city":"Rome"}', "completed", {"city": "Rome"}), "call")
        snapshots = [e.snapshot for e in events if e.type == "response.function_call_arguments.delta"]
        self.equal(snapshots, ['{"city":', '{"city":"Rome"}'], "snapshots")
        self.equal([t.name for t in response.tools], ["get_weather", "now"], "tools are told again")
        for choice, wanted in (("auto", ("auto", [])), ("none", ("none", [])), ("required", ("required", [])),
                               ({"type": "function", "name": "now"}, ("required", ["now"])),
                               ({"type": "allowed_tools", "mode": "auto", "tools": [
                                   {"type": "function", "name": "now"}]}, ("auto", ["now"]))):
            got = self.understood(tools=TOOLS, tool_choice=choice, parallel_tool_calls=False)["tool_choice"]
            self.equal((got["kind"], got["allowed"], got["is_parallel"]), (*wanted, False), str(choice))
        self.refused(openai.BadRequestError, "x", tools=TOOLS, tool_choice={"type": "function", "name": "absent"})

    def test_schema(self):
        response = self.client.responses.parse(model="m", input="schema", text_format=Weather)
        self.equal(response.output_parsed, Weather(city="Rome", degrees=21), "parsed")
        streamed, _ = self.helper("schema", text_format=Weather)
        self.equal(streamed.output_parsed, Weather(city="Rome", degrees=21), "parsed of a stream")
        got = self.understood(text={"format": {"type": "json_schema", "name": "n", "schema": {"type": "object"}}})
        self.equal((got["format"]["kind"], got["format"]["schema"]), ("json_schema", {"type": "object"}), "format")

    def test_logprobs(self):
        response = self.create("logprobs", top_logprobs=2, include=["message.output_text.logprobs"])
        token = response.output[0].content[0].logprobs[0]
        self.equal((token.token, token.logprob, token.bytes, [t.token for t in token.top_logprobs]),
                   ("H", -0.5, [72], ["H", "Y"]), "logprobs")
        delta = [e for e in self.raw("logprobs", top_logprobs=2) if e.type == "response.output_text.delta"][0]
        self.equal(delta.logprobs[0].logprob, -0.5, "of a stream")
        self.equal(self.understood(top_logprobs=2)["options"]["top_logprobs"], 2, "request")

    def test_requests_are_understood(self):
        first = self.create("one call", tools=TOOLS)
        history = [{"role": "developer", "content": "Rules."}, {"role": "user", "content": "one call"},
                   *[i.model_dump(exclude_none=True) for i in first.output],
                   {"type": "function_call_output", "call_id": "call_a", "output": "sun"},
                   {"role": "user", "content": [{"type": "input_text", "text": "request"}]}]
        got = self.understood(history, instructions="You code.", tools=[{"type": "web_search"}, *TOOLS],
                              reasoning={"effort": "high"}, max_output_tokens=77, temperature=0,
                              store=False, include=["reasoning.encrypted_content"], prompt_cache_key="k")
        messages = got["conversation"]["messages"]
        self.equal([(m["role"], m["content"]) for m in messages],
                   [("system", "You code.\n\nRules."), ("user", "one call"), ("assistant", ""), ("tool", "sun"),
                    ("user", "request")], "messages")
        self.equal((messages[2]["reasoning"], messages[2]["calls"]),
                   ("Weather.", [{"id": "call_a", "name": "get_weather", "arguments": '{"city":"Rome"}'}]), "one turn")
        self.equal([t["name"] for t in got["conversation"]["tools"]], ["get_weather", "now"], "tools")
        self.equal((got["options"]["max_tokens"], got["options"]["temperature"]), (77, 0), "options")
        self.equal(got["conversation"]["template_arguments"], {"reasoning_effort": "high"}, "effort")
        self.equal(self.understood(reasoning={"effort": "none"})["thinks"], False, "no thoughts")

    def test_ends(self):
        for given in ("cut", "full", "cut call"):
            response = self.create(given)
            self.equal((response.status, response.incomplete_details.reason, len(response.output)),
                       ("incomplete", "max_output_tokens", 1), given)
            events = self.raw(given)
            self.equal(events[-1].type, "response.incomplete", f"{given}: stream")
            self.equal(len(events[-1].response.output), 1, f"{given}: output")
            done = [e.item.type for e in events if e.type == "response.output_item.done"]
            self.equal(done, ["message"], f"{given}: a call that was cut off is never done")

    def test_errors(self):
        error = self.refused(openai.BadRequestError, "too long")
        self.equal(error.code, "context_length_exceeded", "length")
        self.expect("context length" in str(error), "words")
        error = self.refused(openai.RateLimitError, "busy")
        self.equal(error.response.headers["retry-after"], "1", "busy")
        for fields, parameter in (({"previous_response_id": "resp_1"}, "previous_response_id"),
                                  ({"max_output_tokens": -1}, "max_output_tokens"),
                                  ({"extra_body": {"conversation": "c"}}, "conversation"),
                                  ({"tools": [{"type": "function"}]}, "tools[0].name")):
            error = self.refused(openai.BadRequestError, "x", **fields)
            self.equal(error.param, parameter, "the parameter is named")
            self.expect(parameter in error.body["message"], "and in the message")
        error = self.refused(openai.BadRequestError, [{"role": "user", "content": [
            {"type": "input_image", "image_url": "data:image/png;base64,"}]}])
        self.equal(error.param, "input[0].content[0].type", "images")
        last = self.raw("fails late")[-1]
        self.equal((last.type, last.response.status, last.response.error.code, last.response.error.message),
                   ("response.failed", "failed", "server_error", "the disk is gone"), "in a stream")
        try:
            self.create("fails late")
            self.expect(False, "no error")
        except openai.InternalServerError as error:
            self.expect("the disk is gone" in str(error), "whole")
        try:
            self.client.responses.retrieve("resp_1")
            self.expect(False, "nothing is kept")
        except openai.NotFoundError:
            pass

    def test_counts(self):
        short = self.client.responses.input_tokens.count(model="m", input="hi")
        long = self.client.responses.input_tokens.count(model="m", input="hi", instructions="Be brief.", tools=TOOLS)
        self.equal(short.object, "response.input_tokens", "object")
        self.expect(0 < short.input_tokens < long.input_tokens, f"{short} {long}")

    def test_waiting_clients_see_events(self):
        for given in ("slow queue", "slow"):
            events = self.raw(given)
            waits = [e for e in events[2:] if e.type == "response.in_progress"]
            self.expect(len(waits) >= 2, f"{given}: {len(waits)} events while it waits")
            self.equal([e.sequence_number for e in events], list(range(len(events))), "sequence_number")
            response, _ = self.helper(given)
            self.equal(response.output_text, "at last", given)

    def test_disconnects(self):
        for _ in range(20):
            with self.client.responses.stream(model="m", input="endless") as stream:
                for number, _ in enumerate(stream):
                    if number > 5:
                        break
        self.expect(self.server.wait_for_metric("requests_processing", 0), "nothing goes on for nobody")
        self.equal(self.create("hello").output_text, "Hi there, ü 漢", "after that")


def main():
    program = program_from_arguments(__doc__)
    with ScriptedServer(program, SCRIPT, "--ping-seconds", "0.3") as server:
        test = ClientTest(server)
        for name in [n for n in dir(test) if n.startswith("test_")]:
            try:
                getattr(test, name)()
            except Exception as error:  # pylint: disable=broad-except
                test.expect(False, f"{name}: {type(error).__name__}: {error}")
    return test.conclude("responses client")


if __name__ == "__main__":
    sys.exit(main())
