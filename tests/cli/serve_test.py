"""moepack serve with a model: from the first listening to the end by signals, keys, and what is refused.

Protocols, limits and misbehaving clients are tested over a script (tests/serve); here is what only the
command has.
"""

import json
import re
import shutil
import signal
import socket
import sys
import tempfile
import time
from pathlib import Path

from cli_runner import CliRunner, conclude, options
from served_model import Served, rest_of


class ServeTest(CliRunner):
    def answers(self, model):
        with Served(self.program, model, "--alias", "my/model", "--slots") as server:
            self.expect(server.line.startswith("listening on http://127.0.0.1:"), f"first line: {server.line!r}")
            status, _ = server.ask("GET", "/health")
            self.expect(status in (200, 503), f"health at once: {status}")
            self.expect(server.wait_until_ready(), "never ready")
            status, text = server.ask("GET", "/v1/models")
            self.expect(json.loads(text)["data"][0]["id"] == "my/model", f"models: {text}")
            body = {"prompt": "Once upon a time", "max_tokens": 8, "temperature": 0, "seed": 1}
            status, text = server.ask("POST", "/v1/completions", body)
            self.expect(status == 200, f"completion: {status} {text}")
            first = json.loads(text)["choices"][0]["text"]
            run = self.run("run", model, "--backend", "cpu", "-p", "Once upon a time", "-n", "8", "--json")
            self.expect(json.loads(run.stdout)["text"] == first, f"serve says {first!r}, run {run.stdout!r}")
            ids = json.loads(server.ask("POST", "/tokenize", {"content": "Once upon a time"})[1])["tokens"]
            text = json.loads(server.ask("POST", "/detokenize", {"tokens": ids})[1])["content"]
            self.expect(text == "Once upon a time", f"there and back: {text!r}")
            status, text = server.ask("POST", "/v1/completions", {"prompt": ids * 200, "max_tokens": 1})
            self.expect(status == 400 and b"context_length_exceeded" in text, f"too long: {status} {text}")
            self.expect(server.ask("GET", "/slots")[0] == 200, "slots")
            # A client that leaves frees the model.
            s, _ = server.start_stream(500)
            s.close()
            end = time.monotonic() + 10
            while server.metric("requests_processing") > 0 and time.monotonic() < end:
                time.sleep(0.02)
            self.expect(server.metric("requests_processing") == 0, "a client has left, its answer goes on")
            server.process.send_signal(signal.SIGINT)
            self.expect(server.process.wait(20) == 0, f"exit code {server.process.returncode} after SIGINT")

    def without_template(self, model):
        """A base model completes texts; whoever wants to chat is told so in the words of the protocol."""
        base = without_chat_template(model, self.scratch / "base")
        user = {"messages": [{"role": "user", "content": "Hi"}], "max_tokens": 3}
        with Served(self.program, base) as server:
            self.expect(server.wait_until_ready(), "never ready")
            body = {"prompt": "Once upon a time", "max_tokens": 3, "ignore_eos": True}
            status, text = server.ask("POST", "/v1/completions", body)
            self.expect(status == 200 and json.loads(text)["usage"]["completion_tokens"] == 3, f"{status} {text}")
            self.expect(server.ask("POST", "/tokenize", {"content": "Hi"})[0] == 200, "tokenize")
            meta = json.loads(server.ask("GET", "/v1/models")[1])["data"][0]["meta"]
            self.expect(meta["has_chat_template"] is False, f"models: {meta}")
            props = json.loads(server.ask("GET", "/props")[1])
            self.expect(props["has_chat_template"] is False and props["chat_template"] == "", f"props: {props}")
            for path, body in (("/v1/chat/completions", user), ("/v1/chat/completions", {**user, "stream": True}),
                               ("/v1/chat/completions/input_tokens", user), ("/apply-template", user),
                               ("/tokenize", user), ("/v1/responses", {"input": "Hi"}),
                               ("/v1/responses/input_tokens", {"input": "Hi"}), ("/v1/messages", user),
                               ("/v1/messages/count_tokens", user)):
                status, text = server.ask("POST", path, body)
                answer = json.loads(text)
                self.expect(status == 400 and answer["error"]["type"] == "invalid_request_error"
                            and "no chat template" in answer["error"]["message"]
                            and ("messages" not in path or answer.get("type") == "error"), f"{path}: {status} {text}")
            code, said = server.end()
            lines = [x for x in said.splitlines() if "no chat template" in x]
            self.expect(code == 0 and len(lines) == 1, f"exit code {code}, said of the template: {lines}")
        (base / "chat_template.jinja").write_text("{% for %}")
        result = self.run("serve", base, "--port", "0", "--backend", "cpu", "-c", "512")
        self.expect(result.returncode == 2 and "listening" not in result.stdout and "chat_template.jinja" in result.stderr,
                    f"a broken template: {result}")

    def ends(self, model):
        with Served(self.program, model, "--shutdown-grace", "30") as server:
            server.wait_until_ready()
            s, received = server.start_stream(100)
            server.process.send_signal(signal.SIGTERM)
            received = rest_of(s, received)
            self.expect(b"data: [DONE]" in received, "an answer within the grace is not whole")
            self.expect(server.process.wait(20) == 0, "exit code after a grace")
        with Served(self.program, model, "--shutdown-grace", "0") as server:
            server.wait_until_ready()
            s, received = server.start_stream(500)
            server.process.send_signal(signal.SIGTERM)
            received = rest_of(s, received)
            self.expect(b'"error"' in received and b"[DONE]" not in received, f"the end of a stream: {received[-300:]}")
            self.expect(server.process.wait(20) == 0, "exit code without a grace")
        with Served(self.program, model, "--shutdown-grace", "600") as server:
            server.wait_until_ready()
            s, received = server.start_stream(500)
            server.process.send_signal(signal.SIGTERM)
            time.sleep(0.2)
            server.process.send_signal(signal.SIGTERM)
            code = server.process.wait(20)
            self.expect(code in (0, 143), f"exit code {code} after two signals")
            s.close()

    def queue(self, model):
        """As many wait as may, at every moment: the next is told 429, and none too few."""
        body = {"prompt": "x", "max_tokens": 2, "ignore_eos": True}
        with Served(self.program, model, "--queue", 0) as server:
            server.wait_until_ready()
            for i in range(20):  # each as soon as the one before is answered
                status, text = server.ask("POST", "/v1/completions", body)
                self.expect(status == 200, f"request {i} of one client after another: {status} {text}")
            s, _ = server.start_stream(500)
            status, text = server.ask("POST", "/v1/completions", body)
            self.expect(status == 429 and json.loads(text)["error"]["type"] == "rate_limit_error", f"{status} {text}")
            s.close()
        with Served(self.program, model, "--queue", 2) as server:
            server.wait_until_ready()
            s, _ = server.start_stream(500)
            waiting = [server.send_completion("y", 200) for _ in range(2)]  # too many tokens to run beside it
            self.expect(server.wait_for_metric("requests_deferred", 2), "two wait")
            self.expect(server.ask("POST", "/v1/completions", body)[0] == 429, "a third one waits")
            for other in (s, *waiting):
                other.close()

    def traces(self, model):
        """The trace has all that was computed; where its end cannot be written, the command says so."""
        trace = self.scratch / "t.trace"
        body = {"prompt": "Once upon a time", "max_tokens": 6, "temperature": 0, "ignore_eos": True}
        with Served(self.program, model, "--trace", trace) as server:
            server.wait_until_ready()
            answer = json.loads(server.ask("POST", "/v1/completions", body)[1])
            code, said = server.end()
            self.expect(code == 0, f"exit code {code}: {said}")
        replay = self.succeeds("bench", "--replay", trace, "--cache-mb", 0, "--cache-policy", "lru", "-o", "json")
        self.expect("killed" not in replay.stderr, f"the trace has no end: {replay.stderr}")
        row = json.loads(replay.stdout)[0]
        wanted = answer["usage"]["completion_tokens"] - 1, answer["usage"]["prompt_tokens"]
        self.expect((row["decode"]["tokens"], row["prompt"]["tokens"]) == wanted, f"{row} has not {wanted} tokens")
        size = trace.stat().st_size
        trace.unlink()
        with Served(self.program, model, "--trace", trace, max_file_bytes=size // 2) as server:
            server.wait_until_ready()
            server.ask("POST", "/v1/completions", body)
            code, said = server.end()
            last = said.splitlines()[-1]
            self.expect(code == 2 and str(trace) in last, f"a trace that is lost: exit code {code}, {said[-300:]}")
        trace.unlink(missing_ok=True)

    def notes(self, model):
        """A line for each request, and nothing of what was said."""
        chat = {"messages": [{"role": "user", "content": "secretword"}], "max_tokens": 5}
        with Served(self.program, model, "--verbose", "--api-key", "secretkey") as server:
            server.wait_until_ready()
            key = {"Authorization": "Bearer secretkey"}
            usage = json.loads(server.ask("POST", "/v1/completions?q=secretquery",
                                          {"prompt": ["secretword", "two"], "n": 2, "max_tokens": 5}, key)[1])["usage"]
            server.ask("POST", "/v1/chat/completions", {**chat, "stream": True}, key)
            server.ask("POST", "/v1/completions", {"prompt": 7}, key)
            server.ask("POST", "/v1/completions", {"prompt": "secretword"})
            server.ask("GET", "/nothing", None, key)
            with socket.create_connection(("127.0.0.1", server.port), 10) as s:
                s.sendall(b"secretrubbish\r\n\r\n")
                rest_of(s, b"")
            s, _ = server.start_stream(400, "Authorization: Bearer secretkey\r\n")
            s.close()
            end = time.monotonic() + 10
            while server.metric("requests_processing", key) > 0 and time.monotonic() < end:
                time.sleep(0.02)
            code, said = server.end()
        self.expect(code == 0 and "secret" not in said, f"exit code {code}, {said}")
        lines = [x for x in said.splitlines() if "/health" not in x and "/metrics" not in x]
        whole = f"prompt {usage['prompt_tokens']}(| \\(\\d+ kept\\)), answer {usage['completion_tokens']}, length"
        for wanted in (f"POST /v1/completions 200 \\d+ ms, {whole}",
                       "POST /v1/chat/completions 200 \\d+ ms, prompt \\d+, answer \\d, (length|stop)",
                       "POST /v1/completions 400 \\d+ ms", "POST /v1/completions 401 \\d+ ms", "GET /nothing 404 \\d+ ms",
                       "- - 400 \\d+ ms", "POST /v1/completions 200 \\d+ ms, prompt \\d+, answer \\d+, cancelled"):
            found = [x for x in lines if re.fullmatch("moepack: " + wanted, x)]
            self.expect(len(found) == 1, f"{len(found)} lines are {wanted!r} in {lines}")

    def keys(self, model):
        file = self.scratch / "keys"
        file.write_text("# mine\n  first  \n\nsecond\n")
        with Served(self.program, model, "--api-key-file", file, "--api-key", "third") as server:
            self.expect(server.ask("GET", "/health")[0] in (200, 503), "health is free")
            for key, wanted in (("first", 200), ("second", 200), ("third", 200), ("# mine", 401), ("", 401)):
                server.wait_until_ready()
                status, _ = server.ask("GET", "/props", None, {"Authorization": f"Bearer {key}"})
                self.expect(status == wanted, f"key {key!r}: {status}")
        file.unlink()

    def refused(self, model):
        with socket.create_server(("127.0.0.1", 0)) as taken:
            port = taken.getsockname()[1]
            self.refuses("a port that is taken", ["cannot listen", str(port), "--port"], "serve", model, "--port", port)
        self.refuses("a host that is none", ["cannot listen", "no.such.host.invalid"], "serve", model, "--port", "0",
                     "--host", "no.such.host.invalid")
        self.refuses("no model", ["absent"], "serve", self.scratch / "absent", "--port", "0")
        self.refuses("no key file", ["absent"], "serve", model, "--port", "0", "--api-key-file", self.scratch / "absent")
        self.refuses("a parser that is none", ["--tool-parser", "nonsense"], "serve", model, "--port", "0",
                     "--tool-parser", "nonsense")
        self.refuses("no directory of slots", ["absent", "--slot-save-path"], "serve", model, "--port", "0",
                     "--slot-save-path", self.scratch / "absent")
        for flag, value in (("--port", "65536"), ("--parallel", "0"), ("--ping-seconds", "-1"), ("--max-body-mb", "0"),
                            ("--shutdown-grace", "x"), ("-c", "-5")):
            self.refuses(f"{flag} {value}", [flag.lstrip("-")], "serve", model, flag, value)
        empty = self.scratch / "empty"
        empty.write_text("# nothing\n")
        self.refuses("no keys", ["empty", "no key"], "serve", model, "--port", "0", "--api-key-file", empty)
        empty.unlink()


def without_chat_template(model, copy):
    """A copy of the model directory as a base model has it."""
    shutil.copytree(model, copy)
    for name in ("chat_template.jinja", "chat_template.json"):
        (copy / name).unlink(missing_ok=True)
    config = copy / "tokenizer_config.json"
    if config.exists():
        members = json.loads(config.read_text())
        members.pop("chat_template", None)
        config.write_text(json.dumps(members))
    return copy


def main():
    args = options(__doc__).parse_args()
    with tempfile.TemporaryDirectory() as scratch:
        test = ServeTest(args.program, Path(scratch))
        model = Path(scratch) / "model"
        test.succeeds("convert", args.checkpoint, "-o", model)
        for part in (test.answers, test.without_template, test.ends, test.queue, test.traces, test.notes, test.keys, test.refused):
            part(model)
    return conclude(test.failures, f"serve: {test.checks} checks, ")


if __name__ == "__main__":
    sys.exit(main())
