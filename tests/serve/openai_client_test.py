"""The real openai client against the server over a script: chat, streams, tools, errors."""

import json
import sys
import time

import test_packages

test_packages.require("openai")

import openai  # noqa: E402
from openai import OpenAI  # noqa: E402

from scripted import Expectations, ScriptedServer, events, program_from_arguments, user  # noqa: E402

CALL = [{"call": {"id": "call_a", "name": "get_weather"}}, {"arguments": '{"city":'},
        {"arguments": '"Rome"}'}, {"call_end": True}]
SECOND = [{"call": {"id": "call_b", "name": "now"}}, {"call_end": True}]
LOGPROBS = [{"token": "H", "logprob": -0.5, "top": [{"token": "H", "logprob": -0.5},
                                                    {"token": "Y", "logprob": -1.5}]},
            {"token": "i", "logprob": -0.25, "top": [{"token": "i", "logprob": -0.25}]}]
SCRIPT = {"model": {"id": "small/model", "context": 4096}, "answers": [
    {"match": "hello", "events": [
        {"queued": 2}, {"queued": 1}, {"started": {"prompt": 12, "cached": 4}},
        {"progress": {"total": 12, "cached": 4, "done": 8, "seconds": 0.5}},
        {"progress": {"total": 12, "cached": 4, "done": 12, "seconds": 1}},
        {"reasoning": "Let me "}, {"reasoning": "see."}, {"content": "Hi"}, {"content": " there, ü 漢"}]},
    {"match": "one call", "events": [{"reasoning": "Weather."}, *CALL]},
    {"match": "two calls", "events": [{"content": "Wait."}, *CALL, *SECOND]},
    {"match": "three calls", "events": [*CALL, *SECOND, {"call": {"id": "call_c", "name": "now"}},
                                        {"arguments": "{}"}, {"call_end": True}]},
    {"match": "logprobs", "events": [{"content": "Hi", "logprobs": LOGPROBS}]},
    {"match": "many", "events": [{"choice": 2, "content": "c"}, {"choice": 0, "content": "a"},
                                 {"choice": 1, "content": "b"}, {"choice": 2, "content": "C"}]},
    {"match": "cut", "events": [{"content": "abc"}, {"end": "length"}]},
    {"match": "full", "events": [{"content": "abc"}, {"end": "context"}]},
    {"match": "stopped", "events": [{"content": "abc"}, {"end": "stop_text"}]},
    {"match": "fails late", "events": [{"content": "abc"}, {"end": "error", "message": "the disk is gone"}]},
    {"match": "fails first", "events": [{"end": "error", "message": "the disk is gone"}]},
    {"match": "slow", "events": [{"delay": 1.2}, {"content": "at last"}]},
    {"match": "long queue", "events": [{"queued": 1}, {"delay": 1.2}, {"content": "at last"}]},
    {"match": "request", "events": [{"say_request": True}]},
    {"match": "too long", "refuse": {"kind": "context", "prompt_tokens": 5000, "context": 4096,
                                     "message": "the prompt has more tokens than the context length"}},
    {"match": "busy", "refuse": {"kind": "busy", "retry": 1, "message": "the queue is full"}},
    {"match": "template", "refuse": {"kind": "internal", "message": "the template fails in line 3"}},
    {"match": "ending", "refuse": {"kind": "ending", "message": "the server ends"}},
    {"match": "echoed", "events": [
        {"content": "echoed", "logprobs": [{"token": "echo", "logprob": -9999},
                                           {"token": "ed", "logprob": -2, "top": [{"token": "ed", "logprob": -2}]}]},
        {"content": " on", "logprobs": [{"token": " on", "logprob": -1, "top": [{"token": " on", "logprob": -1}]}]}]},
    {"events": [{"content": "other"}]}]}

TOOLS = [{"type": "function", "function": {
    "name": "get_weather", "description": "Weather of a city", "parameters": {
        "type": "object", "properties": {"city": {"type": "string", "minLength": 1}}, "required": ["city"]}}},
    {"type": "function", "function": {"name": "now"}}]


class ClientTest(Expectations):
    def __init__(self, server):
        super().__init__()
        self.server = server
        self.client = OpenAI(base_url=server.url + "/v1", api_key="unused", max_retries=0)

    def chat(self, text, **fields):
        return self.client.chat.completions.create(
            model="small/model", messages=[{"role": "user", "content": text}], **fields)

    def understood(self, **fields):
        """The request as the service got it."""
        return json.loads(self.chat("request", **fields).choices[0].message.content)

    def refused(self, kind, text, **fields):
        try:
            self.chat(text, **fields)
        except openai.APIStatusError as error:
            self.expect(isinstance(error, kind), f"{text}: {type(error).__name__}, not {kind.__name__}")
            return error
        self.expect(False, f"{text} {fields}: no {kind.__name__}")
        return None

    def test_chat(self):
        answer = self.chat("hello")
        choice = answer.choices[0]
        self.equal(choice.message.content, "Hi there, ü 漢", "content")
        self.equal(choice.message.reasoning_content, "Let me see.", "reasoning")
        self.equal(choice.message.tool_calls, None, "no calls: no list")
        self.equal(choice.finish_reason, "stop", "finish_reason")
        usage = answer.usage
        self.equal((usage.prompt_tokens, usage.completion_tokens, usage.total_tokens), (12, 4, 16), "usage")
        self.equal(usage.prompt_tokens_details.cached_tokens, 4, "cached tokens are part of the prompt")
        self.equal(usage.completion_tokens_details.reasoning_tokens, 2, "reasoning tokens")
        self.equal(answer.timings["prompt_n"], 8, "timings")
        self.equal(answer.object, "chat.completion", "object")
        self.expect(answer.id.startswith("chatcmpl-"), "id")
        self.equal(answer.model, "small/model", "model")
        self.expect(abs(answer.created - time.time()) < 60, "created")
        for reason, text in (("length", "cut"), ("length", "full"), ("stop", "stopped")):
            self.equal(self.chat(text).choices[0].finish_reason, reason, f"finish_reason of {text}")

    def test_stream(self):
        chunks = list(self.chat("hello", stream=True))
        self.equal("".join(c.choices[0].delta.content or "" for c in chunks), "Hi there, ü 漢", "stream")
        # Traps 3 and 7: one role, and no chunk without choices unless it was asked for.
        self.equal([c.choices[0].delta.role for c in chunks if c.choices[0].delta.role], ["assistant"], "roles")
        self.expect(all(c.choices for c in chunks), "a chunk without choices")
        self.expect(all(c.usage is None for c in chunks), "usage without being asked")
        self.equal([c.choices[0].finish_reason for c in chunks if c.choices[0].finish_reason], ["stop"], "finish")
        self.equal(len({c.id for c in chunks}), 1, "one id")
        chunks = list(self.chat("hello", stream=True, stream_options={"include_usage": True}))
        self.equal((chunks[-1].choices, chunks[-1].usage.total_tokens), ([], 16), "usage is the last chunk")
        self.expect(all(c.usage is None for c in chunks[:-1]), "usage before the last chunk")

    def test_stream_bytes(self):
        body = self.server.post("/v1/chat/completions", user("hello", stream=True))[2].decode()
        self.expect(body.endswith("data: [DONE]\n\n"), "the end of a stream")
        # Traps 1 and 2: comments and data lines only.
        lines = [line for line in body.split("\n") if line]
        self.expect(all(line.startswith((": ", "data: ")) for line in lines), f"lines: {lines[:5]}")
        self.expect(": queued, 2 before" in lines, "the place in the queue")
        status, headers, body = self.server.post(
            "/chat/completions", user("hello", stream=True, return_progress=True),
            "Accept: application/json", "Accept-Encoding: gzip, deflate")  # trap 10
        self.equal(status, 200, "status")
        self.equal(headers["content-type"], "text/event-stream", "type")
        self.equal(headers.get("content-encoding"), None, "encoding")
        progress = [e["prompt_progress"] for e in events(body) if "prompt_progress" in e]
        self.equal(progress[-1], {"total": 12, "cache": 4, "processed": 12, "time_ms": 1000.0}, "progress")

    def test_helper(self):
        with self.client.chat.completions.stream(
                model="m", messages=[{"role": "user", "content": "two calls"}], tools=TOOLS,
                stream_options={"include_usage": True}) as stream:
            kinds = {event.type for event in stream}
            final = stream.get_final_completion()
        message = final.choices[0].message
        self.expect("tool_calls.function.arguments.done" in kinds, f"events of the helper: {kinds}")
        self.equal(message.role, "assistant", "trap 3: the role of the helper")
        self.equal([c.id for c in message.tool_calls], ["call_a", "call_b"], "trap 4: ids")
        self.equal([c.function.name for c in message.tool_calls], ["get_weather", "now"], "trap 4: names")
        self.equal([c.function.arguments for c in message.tool_calls], ['{"city":"Rome"}', "{}"],
                   "trap 6: arguments")
        self.equal(final.usage.prompt_tokens, len("two calls"), "trap 7: the usage of the helper")

    def test_calls(self):
        for text, count in (("one call", 1), ("two calls", 2), ("three calls", 3)):
            choice = self.chat(text, tools=TOOLS).choices[0]
            self.equal(choice.finish_reason, "tool_calls", text)
            self.equal(len(choice.message.tool_calls), count, text)
            self.equal(choice.message.content, "Wait." if count == 2 else None, f"content of {text}")
            for call in choice.message.tool_calls:
                json.loads(call.function.arguments)
            deltas = [d for c in self.chat(text, tools=TOOLS, stream=True)
                      for d in c.choices[0].delta.tool_calls or []]
            firsts = [d for d in deltas if d.id]
            self.equal([d.index for d in firsts], list(range(count)), f"trap 5: indices of {text}")
            self.equal([d.function.arguments for d in firsts], [""] * count, "trap 6: first arguments")
            self.expect(all(d.type is None and d.function.name is None for d in deltas if not d.id),
                        "trap 4: type and name again")
            for i in range(count):
                json.loads("".join(d.function.arguments for d in deltas if d.index == i))

    def test_choices(self):
        chunks = list(self.chat("many", n=3, stream=True))
        self.equal([c.choices[0].index for c in chunks[:3]], [0, 1, 2], "trap 8: choice 0 first")
        texts = {0: "", 1: "", 2: ""}
        for chunk in chunks:
            texts[chunk.choices[0].index] += chunk.choices[0].delta.content or ""
        self.equal(texts, {0: "a", 1: "b", 2: "cC"}, "texts of three choices")
        answer = self.chat("many", n=3)
        self.equal([c.message.content for c in answer.choices], ["a", "b", "cC"], "three choices")
        self.equal(answer.usage.prompt_tokens, len("many"), "the prompt counts once")

    def test_logprobs(self):
        content = self.chat("logprobs", logprobs=True, top_logprobs=2).choices[0].logprobs.content
        self.equal([(t.token, t.logprob, t.bytes) for t in content], [("H", -0.5, [72]), ("i", -0.25, [105])],
                   "logprobs")
        self.equal([t.token for t in content[0].top_logprobs], ["H", "Y"], "top logprobs")
        self.equal(self.chat("logprobs").choices[0].logprobs, None, "logprobs that nobody asked for")
        chunks = list(self.chat("logprobs", logprobs=True, top_logprobs=2, stream=True))
        tokens = [t.token for c in chunks if c.choices[0].logprobs for t in c.choices[0].logprobs.content or []]
        self.equal(tokens, ["H", "i"], "logprobs of a stream")
        self.refused(openai.BadRequestError, "logprobs", top_logprobs=2)

    def test_request(self):
        schema = {"type": "object", "properties": {"z": {"minimum": -5}, "a": {"type": "number"}}}
        got = self.understood(
            response_format={"type": "json_schema", "json_schema": {"name": "x", "schema": schema, "strict": True}},
            tools=TOOLS, tool_choice="required", parallel_tool_calls=False, stop=["\n", "END"],
            max_completion_tokens=77, temperature=0.25, top_p=0.5, seed=7, n=1, logit_bias={"15": -100},
            frequency_penalty=0.5, presence_penalty=-0.5, store=True, metadata={"a": "b"}, user="me",
            reasoning_effort="high",
            extra_body={"top_k": 5, "min_p": 0.125, "repeat_penalty": 1.5, "ignore_eos": True,
                        "chat_template_kwargs": {"enable_thinking": False}, "unknown": {"a": [1]}})
        self.equal(got["format"], {"kind": "json_schema", "schema": schema}, "schema")
        self.equal(list(got["format"]["schema"]["properties"]), ["z", "a"], "the order of keys")
        self.equal([t["wire"] for t in got["conversation"]["tools"]], TOOLS, "tools as they were sent")
        self.equal(got["tool_choice"], {"kind": "required", "allowed": [], "is_parallel": False}, "tool_choice")
        options = got["options"]
        wanted = {"stop": ["\n", "END"], "max_tokens": 77, "temperature": 0.25, "top_p": 0.5, "seed": 7,
                  "top_k": 5, "min_p": 0.125, "repetition_penalty": 1.5, "frequency_penalty": 0.5,
                  "presence_penalty": -0.5, "logit_bias": [[15, -100.0]], "ignores_end": True, "choices": 1}
        self.equal({k: options[k] for k in wanted}, wanted, "options")
        self.equal(got["thinks"], False, "thinking")
        self.equal(got["conversation"]["template_arguments"],
                   {"enable_thinking": False, "reasoning_effort": "high"}, "template arguments")
        forced = self.understood(tools=TOOLS, tool_choice={"type": "function", "function": {"name": "now"}})
        self.equal(forced["tool_choice"]["allowed"], ["now"], "a forced tool")
        self.expect(self.understood()["options"]["seed"] != self.understood()["options"]["seed"], "random seeds")

    def test_errors(self):
        error = self.refused(openai.BadRequestError, "too long")
        self.equal((error.code, error.body["type"]), ("context_length_exceeded", "exceed_context_size_error"),
                   "context error")
        self.expect("context length" in error.message, "words that agents look for")
        self.equal((error.body["n_prompt_tokens"], error.body["n_ctx"]), (5000, 4096), "its numbers")
        error = self.refused(openai.RateLimitError, "busy")
        self.equal(error.response.headers["retry-after"], "1", "Retry-After")
        error = self.refused(openai.InternalServerError, "template")
        self.equal(error.response.headers["x-should-retry"], "false", "x-should-retry")
        self.equal(error.body["type"], "server_error", "type")
        self.equal(self.refused(openai.InternalServerError, "ending").status_code, 503, "the server ends")
        error = self.refused(openai.InternalServerError, "fails first")
        self.expect("the disk is gone" in error.message and error.request_id, "what failed")
        error = self.refused(openai.BadRequestError, "hello", temperature=-1)
        self.equal(error.param, "temperature", "param")
        for text in ("too long", "busy", "template"):  # before a stream has begun, too
            self.refused(openai.APIStatusError, text, stream=True)
        retrying = self.client.with_options(max_retries=2)
        before = self.server.metric('http_replies_total{status="500"}')
        try:
            retrying.chat.completions.create(model="m", messages=[{"role": "user", "content": "template"}])
        except openai.InternalServerError:
            pass
        self.equal(self.server.metric('http_replies_total{status="500"}'), before + 1, "needless retries")

    def test_error_in_stream(self):
        pieces = []
        try:
            for chunk in self.chat("fails late", stream=True):
                pieces.append(chunk.choices[0].delta.content or "")
            self.expect(False, "trap 9: a failed stream passed for success")
        except openai.APIError as error:
            self.expect("the disk is gone" in error.message, f"the error of the stream: {error}")
        self.equal("".join(pieces), "abc", "what came before the error")
        body = self.server.post("/v1/chat/completions", user("fails late", stream=True))[2]
        self.expect(b"[DONE]" not in body and b'"finish_reason":"stop"' not in body, "trap 9: bytes")

    def test_keep_alive(self):
        for text in ("slow", "long queue"):
            answer = "".join(c.choices[0].delta.content or "" for c in self.chat(text, stream=True))
            self.equal(answer, "at last", f"a stream with keep-alives, {text}")
            body = self.server.post("/v1/chat/completions", user(text, stream=True))[2]
            count = body.count(b": keep-alive\n\n")
            self.expect(2 <= count <= 8, f"{count} keep-alives in 1.2 s at 0.3 s")

    def test_completions(self):
        answer = self.client.completions.create(model="m", prompt="echoed", echo=True, logprobs=1, max_tokens=1)
        choice = answer.choices[0]
        self.equal(choice.text, "echoed on", "completion")
        self.equal(choice.logprobs.tokens, ["echo", "ed", " on"], "tokens")
        self.equal(choice.logprobs.token_logprobs, [None, -2, -1], "token logprobs")
        self.equal(choice.logprobs.top_logprobs, [None, {"ed": -2}, {" on": -1}], "top logprobs")
        self.equal(choice.logprobs.text_offset, [0, 4, 6], "offsets")
        self.equal(answer.object, "text_completion", "object")
        chunks = list(self.client.completions.create(model="m", prompt="echoed", stream=True))
        self.equal("".join(c.choices[0].text for c in chunks), "echoed on", "stream")
        answer = self.client.completions.create(model="m", prompt=["echoed", "hello", "many"], n=2)
        self.equal([c.index for c in answer.choices], list(range(6)), "choices of three prompts")
        self.equal(answer.usage.prompt_tokens, len("echoed") + 12 + len("many"), "three prompts count once each")
        got = json.loads(self.client.completions.create(
            model="m", prompt="request", suffix="end", max_tokens=0, echo=True).choices[0].text)
        self.equal((got["suffix"], got["options"]["max_tokens"], got["echo"]), ("end", 0, True), "request")
        ids = self.client.completions.create(model="m", prompt=[1, 2, 3])
        self.equal(ids.choices[0].text, "other", "a prompt of ids")
        try:
            self.client.completions.create(model="m", prompt=["hello", "busy"])
            self.expect(False, "one refused prompt of two")
        except openai.RateLimitError:
            pass

    def test_models(self):
        models = list(self.client.models.list())
        self.equal([m.id for m in models], ["small/model"], "models")
        self.equal(self.client.models.retrieve("small/model").max_model_len, 4096, "a model with a slash")
        try:
            self.client.models.retrieve("absent")
            self.expect(False, "a model that is not there")
        except openai.NotFoundError:
            pass


def test_keys(server_program):
    test = Expectations()
    with ScriptedServer(server_program, SCRIPT, "--api-key", "s3cret", "--api-key", "other") as server:
        for key, wanted in (("s3cret", True), ("other", True), ("wrong", False), ("s3cre", False), ("s3crets", False)):
            client = OpenAI(base_url=server.url + "/v1", api_key=key, max_retries=0)
            try:
                client.chat.completions.create(model="m", messages=[{"role": "user", "content": "x"}])
                test.expect(wanted, f"the key {key} was taken")
            except openai.AuthenticationError as error:
                test.expect(not wanted, f"the key {key} was refused")
                test.equal(error.body["type"], "authentication_error", "type")
            test.equal([m.id for m in client.models.list()], ["small/model"], "models are free")
        test.equal(server.post("/tokenize", {"content": "a"}, "X-Api-Key: s3cret")[0], 200, "X-Api-Key")
        test.equal(server.get("/health")[0], 200, "health is free")
        for path in ("/metrics", "/props", "/slots", "/nothing"):
            test.equal(server.get(path)[0], 401, f"{path} without a key")
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
    return test.conclude("openai client")


if __name__ == "__main__":
    sys.exit(main())
