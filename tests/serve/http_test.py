"""The server against clients that misbehave: malformed, oversized, slow, half-open and leaving ones."""

import gzip
import json
import random
import resource
import socket
import sys
import threading
import time

from scripted import (Expectations, ScriptedServer, dechunked, events, parse, program_from_arguments,
                      read_all, user)

ENDLESS = {"repeat": -1, "events": [{"delay": 0.01, "content": "token "}]}
FLOOD = {"repeat": -1, "events": [{"content": "x" * 65536}]}
SCRIPT = {"answers": [
    {"match": "queue", "events": [{"queued": 1}, {"delay": 60}]},
    {"match": "prefill", "events": [{"started": {"prompt": 9}}, {"delay": 60}]},
    {"match": "decode", "events": [ENDLESS]},
    {"match": "flood", "events": [FLOOD]},
    {"match": "short", "events": [{"delay": 0.5}, {"content": "done"}]},
    {"events": [{"content": "fine"}]}]}
CHAT = "/v1/chat/completions"


def head(method="POST", path=CHAT, *headers, version="1.1"):
    lines = [f"{method} {path} HTTP/{version}", "Host: localhost", *headers]
    return ("\r\n".join(lines) + "\r\n\r\n").encode()


def chat_bytes(body, *headers):
    data = body if isinstance(body, bytes) else json.dumps(body).encode()
    return head("POST", CHAT, "Content-Type: application/json", f"Content-Length: {len(data)}", *headers) + data


class HttpTest(Expectations):
    def __init__(self, server):
        super().__init__()
        self.server = server

    def status_of(self, data, wanted, text, **kwargs):
        status, headers, body = parse(self.server.raw(data, **kwargs))
        self.expect(status in wanted if isinstance(wanted, tuple) else status == wanted,
                    f"{text}: status {status}, not {wanted}: {body[:200]!r}")
        if status >= 400:
            try:
                error = json.loads(body)["error"]
                self.expect(isinstance(error["message"], str) and error["message"], f"{text}: no message")
                self.expect("x-request-id" in headers, f"{text}: no x-request-id")
            except (ValueError, KeyError) as error:
                self.expect(False, f"{text}: the body is no error: {body[:200]!r} ({error})")
        return status, headers, body

    def is_well(self, text):
        status, _, body = self.server.post(CHAT, user("hello"))
        self.expect(status == 200 and b"fine" in body, f"after {text}: {status} {body[:100]!r}")

    def test_paths(self):
        for path in ("/health", "/v1/health", "/v1/models", "/models", "/v1/models/", "/props", "/metrics"):
            self.equal(self.server.get(path)[0], 200, path)
        self.equal(self.server.post("/chat/completions", user("x"))[0], 200, "without /v1")
        self.equal(self.server.post(CHAT + "?beta=true", user("x"))[0], 200, "with a query")
        for path in ("/nothing", "/v1/../etc/passwd", "/%2e%2e/x", "/v1", "/v1/chat", "*"):
            self.equal(self.server.get(path)[0], 404, path)
        status, headers, body = self.server.get(CHAT)
        self.equal((status, headers.get("allow")), (405, "POST"), "GET of a chat")
        self.expect("type" not in json.loads(body), "an error in OpenAI's form")
        self.equal(self.server.request("DELETE", "/health")[0], 405, "DELETE of health")
        for method, path, wanted in (("GET", "/v1/messages", 405), ("POST", "/v1/messages/batches", 404)):
            status, _, body = self.server.request(method, path)
            self.equal((status, json.loads(body).get("type")), (wanted, "error"), f"{method} {path} in Anthropic's form")
        for path in ("/infill", "/v1/embeddings", "/rerank"):
            self.equal(self.server.post(path, {})[0], 501, path)
        self.equal(self.server.get("/slots")[0], 501, "slots are not shown")
        status, headers, body = self.server.request("HEAD", "/health")
        self.equal((status, body, headers["content-length"]), (200, b"", "15"), "HEAD")

    def test_text_routes(self):
        got = json.loads(self.server.post("/tokenize", {"content": "ab\u00fc", "with_pieces": True})[2])
        self.equal(got["tokens"][1:3], [{"id": 98, "piece": "b"}, {"id": 0xC3, "piece": [0xC3]}], "pieces")
        got = json.loads(self.server.post("/tokenize", {"prompt": "ab", "return_token_strs": True, "add_special_tokens": False})[2])
        self.equal((got["tokens"], got["count"], got["token_strs"], got["max_model_len"]),
                   ([97, 98], 2, ["a", "b"], 4096), "vLLM's shape")
        got = json.loads(self.server.post("/tokenize", user("hi"))[2])
        self.equal(got["count"], len("<user>hi\n"), "tokens of messages")
        # What stands before a text: llama.cpp's name and default, and vLLM's.
        for body, begins in (({"content": "a"}, False), ({"content": "a", "add_special": True}, True),
                             ({"prompt": "a"}, True), ({"prompt": "a", "add_special_tokens": False}, False),
                             ({"content": "a", "add_special_tokens": True}, True)):
            got = json.loads(self.server.post("/tokenize", body)[2])
            self.equal(got["tokens"], [0, 97] if begins else [97], f"tokenize {body}")
        self.equal(self.server.post("/tokenize", {"content": "a", "add_special": 1})[0], 400, "add_special")
        got = json.loads(self.server.post("/detokenize", {"tokens": [97, 98]})[2])
        self.equal((got["content"], got["prompt"]), ("ab", "ab"), "detokenize")
        for tokens in ([256], [-1], ["a"], 7, None, [1.5]):
            self.equal(self.server.post("/detokenize", {"tokens": tokens})[0], 400, f"tokens {tokens}")
        got = json.loads(self.server.post("/apply-template", user("hi"))[2])
        self.equal((got["prompt"], len(got["tokens"])), ("<user>hi\n", 9), "apply-template")
        got = json.loads(self.server.post(CHAT + "/input_tokens", user("hi"))[2])
        self.equal(got["input_tokens"], 9, "input_tokens")
        for name in ("../x", "a/b", ".hidden", "", "a\\b", "x" * 200, "a\u0000b"):
            self.equal(self.server.post("/slots/0?action=save", {"filename": name})[0], 400, f"file {name!r}")
        self.equal(self.server.post("/slots/0?action=save", {"filename": "a.bin"})[0], 200, "save")
        self.equal(self.server.post("/slots/0?action=restore", {"filename": "absent"})[0], 404, "restore")
        status, _, body = self.server.post("/slots/0?action=erase", b"")
        self.equal((status, json.loads(body)["n_erased"]), (200, 7), "erase")
        self.equal(self.server.post("/slots/x?action=erase", b"")[0], 400, "a slot without a number")

    def test_lane_routes(self):
        """The hot experts of a GPU: profiles that come over HTTP, and those that are none."""
        get, post = self.server.get, self.server.post
        status, _, body = get("/moe-hot-cache")
        self.equal((status, json.loads(body)["hot_experts"]), (200, 5), "GET /moe-hot-cache")
        status, _, body = get("/moe-layer-perf")
        self.equal((status, json.loads(body)["schema"]), (200, "llama.cpp.moe_layer_opt_perf.v1"), "GET /moe-layer-perf")
        perf = {"schema": "llama.cpp.moe_layer_perf.v1", "n_expert": 16, "n_expert_used": 2,
                "layers": [{"layer": 1, "hot_experts": [[3, 9]], "cold_experts": [[0, 4]]}]}
        for more in ({}, {"save_to_disk": False}):
            status, _, body = post("/moe-hot-cache", {**perf, **more})
            done = json.loads(body)
            self.equal((status, done.get("success"), done.get("active"), done.get("exchanged")), (200, True, True, 3), "a profile")
        self.equal(set(done), {"success", "active", "update_rate", "exchanged", "candidates", "max_exchange", "hot_experts",
                               "layers_changed"}, "the keys of the answer")
        wrong = [{}, {"save_to_disk": True}, {**perf, "save_to_disk": True}, {**perf, "save_to_disk": 1}, {**perf, "schema": "other"},
                 {**perf, "n_expert": 17}, {**perf, "layers": 1}, {**perf, "layers": [{"layer": 4, "hot_experts": [[0, 1]]}]},
                 {**perf, "layers": [{"layer": -1}]}, {**perf, "layers": [{"layer": 0, "hot_experts": [[16, 1]]}]},
                 {**perf, "layers": [{"layer": 0, "hot_experts": [[0, -1]]}]}, {**perf, "layers": [{"layer": 0, "hot_experts": "a"}]},
                 {**perf, "layers": []}, {"0": {"17": 1}}, {"tokens": 1, "K": 2, "layers": "x"}, {"format": "moepack.profile"}]
        for body in wrong:
            self.equal(post("/moe-hot-cache", body)[0], 400, f"profile {json.dumps(body)[:90]}")
        text = json.dumps(perf).encode()
        for body in (b"", b"[]", b"null", b"{", text[:-1], text + text, text[:30] + b"\xff" + text[30:], b"[" * 100000,
                     b'{"layers":' * 100000, b'{"n_expert":1e999}'):
            self.equal(post("/moe-hot-cache", body)[0], 400, f"body {body[:40]!r}")
            self.equal(post("/moe-layer-perf", body)[0], 400, f"mode {body[:40]!r}")
        for mode in ("full", "update", "off"):
            self.equal(post("/moe-layer-perf", {"mode": mode})[0], 200, f"mode {mode}")
        for mode in ("", "on", 1, None, ["full"], {}):
            self.equal(post("/moe-layer-perf", {"mode": mode})[0], 400, f"mode {mode!r}")
        self.equal(self.server.request("DELETE", "/moe-hot-cache")[0], 405, "DELETE of the hot experts")
        self.is_well("profiles")

    def test_framing(self):
        body = json.dumps(user("x")).encode()
        both = head("POST", CHAT, "Content-Type: application/json", "Transfer-Encoding: chunked",
                    f"Content-Length: {len(body)}")
        self.status_of(both + b"%x\r\n%s\r\n0\r\n\r\n" % (len(body), body), 400, "both lengths")
        twice = head("POST", CHAT, f"Content-Length: {len(body)}", "Content-Length: 3")
        self.status_of(twice + body, 400, "two lengths")
        for length in ("-1", "0x10", "1e3", "abc", "99999999999999999999", "+5", ""):
            self.status_of(head("POST", CHAT, f"Content-Length: {length}") + body, (400, 413), f"length {length!r}")
        self.status_of(head("POST", CHAT, "Transfer-Encoding: gzip") + body, (400, 501), "an unknown encoding")
        chunked = head("POST", CHAT, "Content-Type: application/json", "Transfer-Encoding: chunked",
                       "Connection: close")
        pieces = b"".join(b"%x;name=v\r\n%s\r\n" % (len(body[i:i + 7]), body[i:i + 7])
                          for i in range(0, len(body), 7))
        self.status_of(chunked + pieces + b"0\r\nTrailer: x\r\n\r\n", 200, "chunks with extensions and a trailer")
        for bad in (b"zz\r\nabc\r\n", b"-5\r\nabc\r\n", b"5\r\nabcdefgh\r\n", b"fffffffffffffffff\r\nabc",
                    b"5 \rabc", b"\r\n\r\n"):
            self.status_of(chunked + bad, (400, 413), f"chunks {bad!r}", finish=True)
        self.status_of(chunked + b"5;" + b"x" * 300000 + b"\r\n", (400, 431), "a chunk with a long extension")
        self.is_well("bad framing")

    def test_heads(self):
        for data, wanted, text in (
                (b"GARBAGE\r\n\r\n", 400, "garbage"),
                (b"\x16\x03\x01\x02\x00\x01\x00", (0, 400), "a TLS hello"),
                (b"GET / HTTP/9.9\r\n\r\n", (400, 505), "a version"),
                (b"GET /health HTTP/2.0\r\nHost: a\r\n\r\n", (400, 505), "HTTP/2"),
                (b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", (400, 505), "HTTP/2 without asking"),
                (b"GET  /health HTTP/1.1\r\nHost: localhost\r\n\r\n", 400, "two spaces"),
                (b"GET /health\r\n\r\n", 400, "HTTP/0.9"),
                (b"GET /health HTTP/1.1\r\nHost localhost\r\n\r\n", 400, "a header without colon"),
                (b"GET /health HTTP/1.1\r\nHost: localhost\r\nA\x00B: c\r\n\r\n", 400, "a NUL in a header"),
                (b"GET /health HTTP/1.1\r\n\r\n", 400, "no Host"),
                (b"GET /health HTTP/1.1\r\nHost: localhost\r\nHost: localhost\r\n\r\n", 400, "two Hosts"),
                (b"GET /" + b"a" * 9000 + b" HTTP/1.1\r\nHost: localhost\r\n\r\n", 414, "a long path"),
                (head("GET", "/health", "X: " + "y" * 70000), 431, "a long header"),
                (head("GET", "/health", *[f"X-{i}: y" for i in range(3000)]), 431, "many headers"),
                (head("GET", "/health", *[f"X-{i}: y" for i in range(150)]), 431, "150 headers")):
            self.status_of(data, wanted, text, finish=True)
        # No end in sight: it is answered before its end, and the connection closed.
        with self.server.connect() as s:
            try:
                s.sendall(b"GET /health HTTP/1.1\r\nHost: localhost\r\n")
                for _ in range(300):
                    s.sendall(b"X: " + b"y" * 1000 + b"\r\n")
            except OSError:
                pass
            self.equal(parse(read_all(s))[0], 431, "headers without end")
        self.is_well("bad heads")

    def test_malformed_bodies(self):
        """At least 200 kinds, none of which is answered with anything but 400."""
        bodies = malformed_bodies()
        self.expect(len(set(bodies.values())) >= 200, f"{len(set(bodies.values()))} kinds of malformed bodies")
        for text, body in bodies.items():
            self.status_of(chat_bytes(body, "Connection: close"), 400, f"malformed: {text}")
        self.is_well("malformed bodies")

    def test_odd_but_right(self):
        """What must be taken all the same."""
        message = {"role": "user", "content": "x"}
        for text, fields in {
                "nulls": {k: None for k in ("model", "tools", "stop", "n", "temperature", "response_format",
                                            "stream", "max_tokens", "logit_bias", "tool_choice", "seed", "stream_options")},
                "unknown fields": {"store": True, "prediction": {"a": []}, "verbosity": "low", "x" * 500: 1},
                "limits": {"max_tokens": -1, "temperature": 0, "top_p": 1, "n": 1, "stop": []},
                "no limit": {"max_tokens": 0}, "a whole float": {"max_tokens": 10.0},
                "16 stops": {"stop": [str(i) for i in range(16)]}, "a large seed": {"seed": 2 ** 63 - 1},
                "no tools": {"tools": []}, "custom tools": {"tools": [{"type": "custom", "custom": {"name": "x"}}]},
                "a tool without parameters": {"tools": [{"type": "function", "function": {"name": "f"}}]},
                "functions": {"functions": [{"name": "f"}], "function_call": "auto"},
                "none": {"tools": [], "tool_choice": "none"},
                "text": {"response_format": {"type": "text"}},
                "json_object": {"response_format": {"type": "json_object"}},
                "thinking": {"thinking": {"type": "disabled"}, "reasoning_effort": "none"}}.items():
            status, _, body = self.server.post(CHAT, {"messages": [message], **fields})
            self.expect(status == 200, f"{text}: {status} {body[:200]!r}")
        for messages in ([{"role": "developer", "content": "a"}, message],
                         [{"role": "user", "content": [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]}],
                         [message, {"role": "assistant", "content": None, "tool_calls": [
                             {"id": "1", "type": "function", "function": {"name": "f", "arguments": "{not json"}}]},
                          {"role": "tool", "content": "r"}],
                         [message, {"role": "function", "name": "f", "content": "r"}],
                         [message, {"role": "assistant", "content": "goes on"}],
                         [message, {"role": "assistant", "content": "", "reasoning_content": "r", "refusal": None}, message]):
            status, _, body = self.server.post(CHAT, {"messages": messages})
            self.expect(status == 200, f"{messages}: {status} {body[:200]!r}")
        data = json.dumps(user("x")).encode("utf-8")
        for kind in ("application/json", "application/json; charset=utf-8", "Application/JSON", "application/x+json"):
            got = self.server.request("POST", CHAT, data, f"Content-Type: {kind}")[0]
            self.equal(got, 200, f"type {kind}")
        self.equal(self.server.request("POST", CHAT, data)[0], 200, "no type")
        for kind in ("text/plain", "application/x-www-form-urlencoded", "multipart/form-data; boundary=x", "json"):
            self.equal(self.server.request("POST", CHAT, data, f"Content-Type: {kind}")[0], 415, f"type {kind}")
        for encoding in ("identity", "Identity", ""):
            got = self.server.request("POST", CHAT, data, f"Content-Encoding: {encoding}")[0]
            self.equal(got, 200, f"encoding {encoding!r}")
        for encoding in ("gzip", "br", "identity, gzip"):
            status, _, body = self.server.request("POST", CHAT, gzip.compress(data), f"Content-Encoding: {encoding}")
            self.expect(status == 415 and f'\\"{encoding}\\"'.encode() in body, f"encoding {encoding}: {status} {body}")

    def test_expect_and_large(self):
        data = json.dumps(user("x" * 300000)).encode()
        with self.server.connect() as s:
            s.sendall(head("POST", CHAT, "Content-Type: application/json", f"Content-Length: {len(data)}",
                           "Expect: 100-continue", "Connection: close"))
            self.equal(s.recv(100), b"HTTP/1.1 100 Continue\r\n\r\n", "100-continue")
            s.sendall(data)
            self.equal(parse(read_all(s))[0], 200, "the answer after 100-continue")
        self.status_of(head("POST", CHAT, "Content-Length: 9000000", "Expect: 100-continue"), 413,
                       "a body that is too large, announced")
        self.status_of(head("POST", CHAT, "Content-Length: 10", "Expect: magic") + b"x" * 10, 417, "an expectation")
        self.status_of(chat_bytes(b" " * 9000000), 413, "a body that is too large, sent")
        chunked = head("POST", CHAT, "Content-Type: application/json", "Transfer-Encoding: chunked")
        self.status_of(chunked + (b"100000\r\n" + b" " * 0x100000 + b"\r\n") * 9, 413, "chunks that are too large")
        self.is_well("large bodies")

    def test_hosts_and_origins(self):
        port = self.server.port
        for host, wanted in (("localhost", 200), (f"localhost:{port}", 200), ("127.0.0.1", 200), ("[::1]:80", 200),
                             ("192.168.1.7:8080", 200), ("LocalHost", 200), ("friend.example:80", 200),
                             ("evil.example", 403), ("localhost.evil.example", 403), ("", 403), ("127.0.0.1.evil.example", 403)):
            self.equal(self.server.get("/v1/models", f"Host: {host}")[0], wanted, f"Host: {host}")
        own = f"http://localhost:{port}"
        for origin, wanted, is_shared in ((own, 200, False), ("https://page.example", 200, True),
                                          ("https://evil.example", 403, False), ("null", 403, False),
                                          ("http://page.example", 403, False)):
            status, headers, _ = self.server.get("/v1/models", f"Host: localhost:{port}", f"Origin: {origin}")
            self.equal(status, wanted, f"Origin: {origin}")
            shared = headers.get("access-control-allow-origin")
            self.equal(shared, origin if is_shared else None, f"CORS of {origin}")
        status, headers, _ = self.server.request("OPTIONS", CHAT, b"", "Origin: https://page.example",
                                                 "Access-Control-Request-Headers: authorization")
        self.equal((status, headers.get("access-control-allow-headers")), (204, "authorization"), "a preflight")
        status, headers, _ = self.server.request("OPTIONS", CHAT)
        self.equal((status, headers.get("access-control-allow-origin")), (204, None), "OPTIONS")
        self.equal(self.server.request("OPTIONS", CHAT, b"", "Origin: https://evil.example")[0], 403, "OPTIONS of others")

    def test_connections(self):
        with self.server.connect() as s:  # keep-alive
            for i in range(5):
                s.sendall(chat_bytes(user("x")))
                self.equal(read_answer(s)[0], 200, f"request {i} of a connection")
        with self.server.connect() as s:  # pipelined, two of them answered late
            s.sendall(chat_bytes(user("short")) + head("GET", "/health") + chat_bytes(user("x"))
                      + head("GET", "/v1/models", "Connection: close"))
            answers = split_answers(read_all(s))
            self.equal([a[0] for a in answers], [200] * 4, "pipelined requests")
            self.expect(b"done" in answers[0][2] and answers[1][2] == b'{"status":"ok"}' and b"fine" in answers[2][2],
                        "the order of pipelined answers")
        with self.server.connect() as s:  # line ends behind a body that are none of it
            s.sendall(b"\r\n" + chat_bytes(user("x")) + b"\r\n\r\n" + chat_bytes(user("x")) + b"\r\n")
            self.equal([read_answer(s)[0] for _ in range(2)], [200, 200], "empty lines before requests")
            s.sendall(head("GET", "/health", "Connection: close"))
            self.equal(parse(read_all(s))[0], 200, "a request behind an empty line")
        data = chat_bytes(user("x"), "Connection: close")
        with self.server.connect() as s:  # byte by byte
            for i in range(len(data)):
                s.sendall(data[i:i + 1])
            self.equal(parse(read_all(s))[0], 200, "byte by byte")
        got = self.server.raw(b"GET /health HTTP/1.0\r\n\r\n")
        self.equal(parse(got)[0], 200, "HTTP/1.0")
        self.expect(b"Connection: close" in got, "HTTP/1.0 closes")
        body = json.dumps(user("hello", stream=True)).encode()
        got = self.server.raw(f"POST {CHAT} HTTP/1.0\r\nContent-Length: {len(body)}\r\n\r\n".encode() + body)
        self.expect(b"chunked" not in got and got.endswith(b"data: [DONE]\n\n"), "a stream over HTTP/1.0")
        # A client that sends no more but reads: its reply is whole.
        self.equal(parse(self.server.raw(head("GET", "/health"), finish=True))[0], 200, "a half-closed client")
        self.status_of(chat_bytes(user("x"))[:-5], 400, "half a body, then the end", finish=True)
        self.status_of(head()[:-10], (0, 400), "half a head, then the end", finish=True)

    def test_leaving(self):
        """Whoever leaves in the queue, in the prefill or while tokens come, frees the model at once."""
        for text in ("queue", "prefill", "decode"):
            for stream in (True, False):
                before = self.server.metric('request_success_total{finished_reason="cancelled"}')
                clients = [self.server.connect() for _ in range(8)]
                for s in clients:
                    s.sendall(chat_bytes(user(text, stream=stream)))
                name = "requests_deferred" if text == "queue" else "requests_processing"
                self.expect(self.server.wait_for_metric(name, 8), f"{text}: eight requests run")
                for i, s in enumerate(clients):
                    if i % 2:  # a reset
                        s.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\x01\0\0\0\0\0\0\0")
                    s.close()
                self.expect(self.server.wait_for_metric(name, 0, 2), f"{text}, stream {stream}: still running")
                self.expect(self.server.wait_for_metric(
                    'request_success_total{finished_reason="cancelled"}', before + 8, 2), f"{text}: cancelled")
        # Bytes that come while it answers are no leaving.
        with self.server.connect() as s:
            s.sendall(chat_bytes(user("short")))
            time.sleep(0.1)
            s.sendall(head("GET", "/health", "Connection: close"))
            self.equal([a[0] for a in split_answers(read_all(s))], [200, 200], "a request sent early")
        self.is_well("clients that left")

    def test_slow_reader(self):
        with self.server.connect() as s:
            cancelled = 'request_success_total{finished_reason="cancelled"}'
            before = self.server.metric(cancelled)
            s.sendall(chat_bytes(user("flood", stream=True)))
            self.expect(self.server.wait_for_metric(cancelled, before + 1, 20), "a reader that reads nothing")
            if self.server.is_measured:
                self.expect(self.server.memory_kib() < 400000, f"{self.server.memory_kib()} KiB for a slow reader")
            # What is left ends without [DONE] and without the last chunk.
            rest = read_all(s)
            self.expect(not rest.endswith(b"0\r\n\r\n"), "a stream that was cut looks whole")
        self.is_well("a slow reader")

    def test_fast_readers(self):
        """Four that read a flood as fast as it comes: none of them stands still, and nobody waits for them."""
        gaps = []

        def read(s):
            last, longest, end = time.monotonic(), 0.0, time.monotonic() + 3
            while time.monotonic() < end:
                if not s.recv(1 << 20):
                    return gaps.append(None)  # closed: it was not fast enough
                longest, last = max(longest, time.monotonic() - last), time.monotonic()
            return gaps.append(longest)

        clients = [self.server.connect(30) for _ in range(4)]
        for s in clients:
            s.sendall(chat_bytes(user("flood", stream=True)))
        threads = [threading.Thread(target=read, args=(s,)) for s in clients]
        for thread in threads:
            thread.start()
        while threads[0].is_alive():
            begun = time.monotonic()
            self.is_well("a flood beside it")
            self.expect(time.monotonic() - begun < 2, f"{time.monotonic() - begun:.1f} s for an answer beside floods")
        for thread in threads:
            thread.join()
        for s in clients:
            s.close()
        self.expect(len(gaps) == 4 and all(gap is None or gap < 2 for gap in gaps), f"floods stood still for {gaps} s")
        self.expect(self.server.wait_for_metric("requests_processing", 0, 10), "floods go on without readers")

    def test_half_open(self):
        """1,000 connections at a time that say nothing, or half of something, and stay; the others are answered."""
        soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        resource.setrlimit(resource.RLIMIT_NOFILE, (min(max(soft, 1200), hard), hard))
        data = chat_bytes(user("hello" * 100))
        starts = (b"", b"P", data[:40], data[:-400], data[:-1], b"GET /health HTTP/1.1\r\nHost: local")
        memory = []
        for _ in range(4):  # the first time buffers are made
            self.server.wait_for_metric("http_connections", 1)
            files = self.server.descriptors()
            clients = []
            for i in range(1000):
                clients.append(self.server.connect())
                clients[-1].sendall(starts[i % len(starts)])
            self.expect(self.server.wait_for_metric("http_connections", 1001), "1,000 half-open connections")
            self.is_well("1,000 half-open connections")
            for i, s in enumerate(clients):
                if i % 2:
                    s.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\x01\0\0\0\0\0\0\0")
                s.close()
            self.expect(self.server.wait_for_metric("http_connections", 1, 10), "half-open connections are left")
            self.expect(abs(self.server.descriptors() - files) <= 1, "descriptors of half-open connections are left")
            memory.append(self.server.memory_kib())
        # What a connection leaves behind shows after every thousand; pages that come and go (a sanitizer's quarantine,
        # a system that reclaims) show after some.
        if not self.server.is_measured:
            return
        growth = [after - before for before, after in zip(memory[1:], memory[2:])]
        self.expect(min(growth) < memory[1] * 0.02 + 512, f"memory after each 1,000 half-open connections: {memory} KiB")

    def test_many(self):
        """400 streams at once, others in between."""
        clients = [self.server.connect(30) for _ in range(400)]
        for s in clients:
            s.sendall(chat_bytes(user("short", stream=True), "Connection: close"))
        self.is_well("400 connections")
        answers = [parse(read_all(s)) for s in clients]
        for s in clients:
            s.close()
        good = sum(a[0] == 200 and events(a[2])[-1] == "[DONE]" for a in answers)
        self.equal(good, 400, "streams at once")

    def test_disorder(self):
        """1,000 clients that leave, send rubbish or stop reading at random; nothing is left behind."""
        self.server.wait_for_metric("http_connections", 1)
        files = self.server.descriptors()
        self.disorder(250, 1)
        before = self.server.memory_kib()
        self.disorder(1000, 2)
        self.expect(self.server.wait_for_metric("requests_processing", 0, 10), "requests still run")
        self.expect(self.server.wait_for_metric("http_connections", 1, 10), "connections are left")
        after = self.server.memory_kib()
        if self.server.is_measured:
            self.expect(after < before * 1.02 + 1024, f"memory: {before} KiB before, {after} KiB after")
        self.expect(abs(self.server.descriptors() - files) <= 1, "descriptors are left")
        self.is_well("disorder")

    def disorder(self, count, seed):
        rng = random.Random(seed)
        bodies = list(malformed_bodies().values())
        plan = [(rng.choice(("leave", "half", "rubbish", "malformed", "whole", "reset")), rng.random(), rng.randrange(1 << 30))
                for _ in range(count)]
        threads = [threading.Thread(target=self.misbehave, args=(plan[i::16], bodies)) for i in range(16)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()

    def misbehave(self, plan, bodies):
        for kind, fraction, number in plan:
            try:
                with self.server.connect() as s:
                    self.misbehave_once(s, kind, fraction, number, bodies)
            except OSError:
                pass

    def misbehave_once(self, s, kind, fraction, number, bodies):
        rng = random.Random(number)
        stream = rng.random() < 0.5
        if kind == "rubbish":
            s.sendall(rng.randbytes(rng.randrange(1, 3000)))
        elif kind == "malformed":
            s.sendall(chat_bytes(rng.choice(bodies), "Connection: close"))
            read_all(s)
        elif kind == "whole":
            s.sendall(chat_bytes(user("hello", stream=stream), "Connection: close"))
            self.expect(b"fine" in read_all(s), "another client was disturbed")
        elif kind == "half":
            data = chat_bytes(user("hello"))
            s.sendall(data[:int(len(data) * fraction)])
        else:
            s.sendall(chat_bytes(user(rng.choice(("queue", "prefill", "decode", "hello")), stream=stream)))
            time.sleep(fraction * 0.05)
            if kind == "reset":
                s.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\x01\0\0\0\0\0\0\0")


def malformed_bodies():
    """Name -> body: what must be refused with 400."""
    good = {"messages": [{"role": "user", "content": "hello"}]}
    text = json.dumps(good).encode()
    bodies = {f"cut at {i}": text[:i] for i in range(1, len(text))}
    for i in range(0, len(text), 2):
        bodies[f"a bad byte at {i}"] = text[:i] + b"\xff" + text[i:]
    bodies.update({f"not an object: {v!r}": json.dumps(v).encode() for v in (1, "a", [], None, True, 1.5, [good])})
    bodies.update({"two documents": text + text, "a NUL": text[:-1] + b"\x00}", "deep": b"[" * 100000,
                   "deep objects": b'{"a":' * 100000, "deep messages": b'{"messages":' + b"[" * 65 + b"]" * 65 + b"}",
                   "a key twice": b'{"messages":1,"messages":[{"role":"user","content":"x"}]}',
                   "NaN": text[:-1] + b',"temperature":NaN}', "a comment": text[:-1] + b'/* */}', "a comma": text[:-1] + b",}",
                   "half a surrogate": b'{"messages":[{"role":"user","content":"\\ud800"}]}', "single quotes": b"{'a':1}",
                   "a large number": text[:-1] + b',"temperature":1e999}', "nothing but spaces": b"   ",
                   "utf-16": json.dumps(good).encode("utf-16"), "a BOM twice": b"\xef\xbb\xbf\xef\xbb\xbf" + text})
    wrong = {"messages": [None, 1, "a", {}, [], [1], [None], [[]], [{}], [{"role": "king", "content": "x"}], [{"role": 1}],
                          [{"role": "user", "content": 1}], [{"role": "user", "content": {}}], [{"role": "user", "content": [1]}],
                          [{"role": "user", "content": [{"type": "image_url", "image_url": {"url": "x"}}]}],
                          [{"role": "user", "content": [{"type": "input_audio"}]}],
                          [{"role": "user", "content": [{"type": "text", "text": 1}]}],
                          [{"role": "assistant", "tool_calls": 1}], [{"role": "assistant", "tool_calls": [1]}],
                          [{"role": "assistant", "tool_calls": [{}]}],
                          [{"role": "assistant", "tool_calls": [{"function": {}}]}],
                          [{"role": "user", "content": "a"}, {"role": "assistant", "content": "b"}, {"role": "assistant", "content": "c"}]],
             "temperature": [-1, "a", True, [], 101], "top_p": [-0.1, 1.1, "a"], "min_p": [-1, 2], "top_k": [-2, 1.5, "a"],
             "frequency_penalty": [-3, 3], "presence_penalty": ["a", 9], "repeat_penalty": [0, -1], "seed": [1.5, "a"],
             "n": [0, -1, 1.5, 1000, "a"], "max_tokens": [-5, 1.5, "a", []], "max_completion_tokens": ["a", {}],
             "stop": [1, {}, [1], [None], [str(i) for i in range(100)]], "stream": ["yes", 1, []],
             "stream_options": [1, "a", {"include_usage": 1}], "logprobs": [1, "a"], "top_logprobs": [-1, 21, "a", 5],
             "logit_bias": [1, "a", {"a": 1}, {"1": "a"}, {"-1": 1}, [1], [[1]], [["a", 1]], {"1": 1e30}],
             "tools": [1, "a", {}, [1], [{}], [{"type": "function"}], [{"type": "function", "function": {}}],
                       [{"type": "function", "function": {"name": 1}}], [{"type": "function", "function": {"name": "f", "parameters": 1}}]],
             "tool_choice": [1, "maybe", "required", {"type": "function", "function": {"name": "absent"}}, {"type": "nonsense"}],
             "parallel_tool_calls": [1, "a"], "response_format": [1, "a", {"type": "xml"}, {"type": "json_schema"},
                                                                 {"type": "json_schema", "json_schema": {}},
                                                                 {"type": "json_schema", "json_schema": {"schema": 1}}],
             "grammar": ["root ::= x"], "chat_template": ["{{ x }}"], "chat_template_kwargs": [1, [], {"enable_thinking": "yes"}],
             "reasoning_effort": [1, []], "thinking_budget": ["a", -2], "enable_thinking": ["a"],
             "continue_final_message": [True, 1], "structured_outputs": [1, {"regex": "x"}], "return_progress": [1]}
    for field, values in wrong.items():
        for value in values:
            bodies[f"{field}: {json.dumps(value)[:60]}"] = json.dumps({**good, field: value}).encode()
    bodies["no messages"] = b"{}"
    return bodies


def read_answer(s):
    """One answer with Content-Length."""
    data = b""
    while b"\r\n\r\n" not in data:
        data += s.recv(1)
    length = int(parse(data)[1]["content-length"])
    while len(data.partition(b"\r\n\r\n")[2]) < length:
        data += s.recv(length)
    return parse(data)


def split_answers(data):
    answers = []
    while data:
        status, headers, body = parse(data)
        length = int(headers.get("content-length", len(body)))
        answers.append((status, headers, body[:length]))
        data = body[length:]
    return answers


class TimeTest(HttpTest):
    """With short limits of time."""

    def test_slowloris(self):
        begun = time.monotonic()
        with self.server.connect() as s:
            s.sendall(b"GET /health HTTP/1.1\r\n")
            s.settimeout(0.1)
            got = b""
            while time.monotonic() - begun < 5:
                try:
                    s.sendall(b"X: y\r\n")
                    got = s.recv(1000)
                    break
                except socket.timeout:
                    pass
                except OSError:
                    break
        self.expect(0.5 < time.monotonic() - begun < 3, f"{time.monotonic() - begun:.1f} s of slow headers")
        self.expect(got.startswith(b"HTTP/1.1 408 ") or not got, f"slow headers: {got[:80]!r}")
        self.status_of(b"GET /hea", 408, "half a line")
        self.status_of(chat_bytes(user("x"))[:-3], 408, "half a body")
        for _ in range(3):
            begun = time.monotonic()
            self.equal(self.server.raw(b""), b"", "an idle connection is closed without a word")
            self.expect(time.monotonic() - begun < 3, "an idle connection")

    def test_cap(self):
        clients = [self.server.connect() for _ in range(20)]
        time.sleep(0.2)
        status, headers, body = parse(self.server.raw(head("GET", "/health")))
        self.equal((status, headers.get("retry-after")), (503, "1"), "one connection too many")
        json.loads(body)
        for s in clients:
            s.close()
        time.sleep(0.2)
        self.equal(self.server.get("/health")[0], 200, "after too many connections")


def run_all(test, names):
    for name in names:
        try:
            begun = time.monotonic()
            getattr(test, name)()
            print(f"{name}: {time.monotonic() - begun:.1f} s", flush=True)
        except Exception as error:  # pylint: disable=broad-except
            test.expect(False, f"{name}: {type(error).__name__}: {error}")


def test_loading(program, test):
    with ScriptedServer(program, SCRIPT, "--loading-seconds", "1") as server:
        status, headers, body = server.get("/health")
        test.equal((status, headers.get("retry-after")), (503, "5"), "health while it loads")
        test.equal(json.loads(body)["error"]["type"], "unavailable_error", "type while it loads")
        test.equal(server.post(CHAT, user("x"))[0], 503, "a chat while it loads")
        server.wait_until_ready()
        test.equal(server.post(CHAT, user("x"))[0], 200, "a chat when it is there")


def test_ending(program, test):
    """What runs is told, what waits too; a stream does not end silently."""
    server = ScriptedServer(program, SCRIPT, "--grace-seconds", "1")
    with server:
        running, waiting, short = server.connect(), server.connect(), server.connect()
        running.sendall(chat_bytes(user("decode", stream=True)))
        waiting.sendall(chat_bytes(user("queue")))
        server.wait_for_metric("requests_deferred", 1)
        short.sendall(chat_bytes(user("short")))
        server.wait_for_metric("requests_processing", 2)
        begun = time.monotonic()
        server.process.stdin.close()
        status, _, body = parse(read_all(waiting))
        test.equal(status, 503, f"what waits when the server ends: {body[:100]!r}")
        test.expect(time.monotonic() - begun < 0.9, "what waits is not told at once")
        test.equal(parse(read_all(short))[0], 200, "what ends within the grace")
        said = events(parse(read_all(running))[2])
        test.expect("error" in said[-1], f"the last event of a stream that is cut: {said[-1]}")
        for s in (running, waiting, short):
            s.close()
        test.expect(server.process.wait(5) == 0, "exit code")
        test.expect(time.monotonic() - begun < 4, f"{time.monotonic() - begun:.1f} s to end")


def main():
    program = program_from_arguments(__doc__)
    with ScriptedServer(program, SCRIPT, "--cors-origins", "https://page.example", "--allow-host", "friend.example",
                        "--max-body", 8000000) as server:
        test = HttpTest(server)
        run_all(test, [n for n in dir(HttpTest) if n.startswith("test_")])
    with ScriptedServer(program, SCRIPT, "--header-seconds", 1, "--body-seconds", 1, "--idle-seconds", 1,
                        "--max-connections", 20) as server:
        timed = TimeTest(server)
        run_all(timed, ["test_slowloris", "test_cap"])
    for extra in (test_loading, test_ending):
        extra(program, test)
    test.checks += timed.checks
    test.failures += timed.failures
    return test.conclude("http")


if __name__ == "__main__":
    sys.exit(main())
