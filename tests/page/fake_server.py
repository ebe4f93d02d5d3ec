"""A server that plays scripts: the page is tested against it, without a model.

What it answers follows from the last message: its text names one of SCRIPTS. The members of `Fake` say
what it does beside that, and keep what it was asked.
"""

import base64
import hashlib
import http.server
import json
import re
import threading
import time

MARKDOWN = """## A heading

Some **bold**, *slanted*, ~~gone~~ and `code with <b>`. A [link](https://example.org/a_b?c=1) and https://example.org/bare.

1. first
2. second
   - inner *one*
   - inner two

- [x] done
- [ ] open

| name | value |
|:-----|------:|
| a    | 1     |
| b    | 22    |

> quoted **text**

```python
def f(x):  # a comment
    return "text" * 3
```

After the code.
"""

HOSTILE = """<script>window.hacked = 1</script>
<img src=x onerror="window.hacked = 2"> <b>not bold</b>

[click](javascript:window.hacked=3) [data](data:text/html,<script>1</script>) [vb](  JaVaScRiPt:alert(1))
![picture](https://example.org/p.png) ![bad](javascript:alert(1))
<https://example.org/ok> <javascript:alert(1)> [quote](https://example.org/"onmouseover="window.hacked=4)

| <i>x</i> | `<u>` |
|---|---|
| <svg onload=window.hacked=5> | [x](vbscript:1) |

```html"><img src=x onerror=window.hacked=6>
</code></pre><script>window.hacked = 7</script>
```

# <a href="javascript:1">head</a>
"""

LONG = "\n\n".join(f"Paragraph {number} of a long answer, with words enough to fill a line or two of the column."
                   for number in range(30))


def words(text):
    """Pieces as a model would send them."""
    return re.findall(r"\s*\S+|\s+$", text) or [text]


def usage(prompt, cached, tokens):
    return {"prompt_tokens": prompt, "completion_tokens": tokens, "total_tokens": prompt + tokens,
            "prompt_tokens_details": {"cached_tokens": cached}}


TIMINGS = {"cache_n": 380, "prompt_n": 32, "prompt_ms": 910.5, "prompt_per_second": 35.1,
           "predicted_n": 37, "predicted_ms": 5300.0, "predicted_per_second": 6.98}


class Fake:
    def __init__(self, page, port=0):
        self.page = page
        self.loading = False
        self.gone = False        # closes what it is asked for
        self.key = None
        self.requests = []       # bodies of chat requests
        self.broken = 0          # streams that the client left
        self.failures_left = 0   # of script "flaky"
        self.has_map = True
        self.started = time.monotonic()
        self.maps = 0            # that were asked for
        self.map_size = 12, 64   # layers, experts
        self.pace = 0.002        # seconds between pieces
        self.release = threading.Event()
        fake = self

        class Handler(http.server.BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def log_message(self, *_):
                pass

            def do_GET(self):
                if fake.gone:
                    self.close_connection = True
                else:
                    try:
                        fake.get(self)
                    except OSError:
                        self.close_connection = True

            def do_POST(self):
                if fake.gone:
                    self.close_connection = True
                else:
                    fake.post(self)

        self.server = http.server.ThreadingHTTPServer(("127.0.0.1", port), Handler)
        self.server.daemon_threads = True
        self.url = f"http://127.0.0.1:{self.server.server_address[1]}/"
        threading.Thread(target=self.server.serve_forever, args=(0.01,), daemon=True).start()

    def close(self):
        self.release.set()
        self.server.shutdown()
        self.server.server_close()

    # --- answers ---

    def policy(self):
        def digest(tag):
            text = re.search(rf"<{tag}>(.*?)</{tag}>", self.page, re.DOTALL).group(1)
            return base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()
        return (f"default-src 'none'; script-src 'sha256-{digest('script')}'; "
                f"style-src 'sha256-{digest('style')}'; connect-src 'self'; img-src data:; "
                "base-uri 'none'; form-action 'none'; frame-ancestors 'none'")

    @staticmethod
    def reply(handler, status, body, kind="application/json", headers=()):
        data = body.encode() if isinstance(body, str) else json.dumps(body).encode()
        handler.send_response(status)
        handler.send_header("Content-Type", kind)
        handler.send_header("Content-Length", str(len(data)))
        for name, value in headers:
            handler.send_header(name, value)
        handler.end_headers()
        handler.wfile.write(data)

    def error(self, handler, status, message, headers=()):
        self.reply(handler, status, {"error": {"message": message, "type": "error", "code": status}},
                   headers=headers)

    def is_allowed(self, handler):
        return self.key is None or handler.headers.get("Authorization") == f"Bearer {self.key}"

    def get(self, handler):
        path = handler.path.split("?")[0].removeprefix("/below")
        if path == "/":
            self.reply(handler, 200, self.page, "text/html; charset=utf-8",
                       [("Content-Security-Policy", self.policy())])
        elif path == "/health":
            if self.loading:
                self.error(handler, 503, "Loading model")
            else:
                self.reply(handler, 200, {"status": "ok"})
        elif path == "/v1/models":
            self.reply(handler, 200, {"object": "list", "data": [
                {"id": "qwen3.5-35b-a3b", "object": "model", "context_length": 32768}]})
        elif path == "/expert-map" and self.has_map:
            if self.is_allowed(handler):
                self.reply(handler, 200, self.expert_map())
            else:
                self.error(handler, 401, "Wrong key")
        else:
            self.error(handler, 404, "Not found")

    def expert_map(self):
        layers, experts = self.map_size
        self.maps += 1
        steps = int((time.monotonic() - self.started) * 2)
        warmth, resident = bytearray(), bytearray(layers * experts // 8)
        for at in range(layers * experts):
            mixed = (at * 2654435761 ^ (at * 40503) >> 3) & 0xffffffff
            mixed = (mixed ^ mixed >> 13) * 1540483477 & 0xffffffff
            rank = (mixed >> 9) % 997 / 997
            now = ((mixed >> 3) + steps * 37) % 211 < 16
            warmth.append(min(255, int(255 * (1 - rank) ** 9) + (70 if now else 0)))
            if rank < 0.55 or now:
                resident[at >> 3] |= 1 << (at & 7)
        return {"layers": layers, "experts": experts, "warmth": base64.b64encode(warmth).decode(),
                "resident": base64.b64encode(resident).decode(), "hits": 9000 + 300 * self.maps,
                "misses": 1000 + 20 * self.maps, "bytes_read": 2000000000 + 40000000 * steps,
                "read_seconds": 1.0 + 0.018 * steps, "tokens_per_second": 7.0}

    # --- chat ---

    def post(self, handler):
        body = json.loads(handler.rfile.read(int(handler.headers["Content-Length"])))
        self.requests.append(body)
        if not self.is_allowed(handler):
            self.error(handler, 401, "This server wants an API key")
            return
        last = body["messages"][-1]
        name = "after_tool" if last["role"] == "tool" else str(last["content"]).strip().split("\n")[-1].split(" ")[0]
        if name == "busy":
            self.error(handler, 429, "The queue is full", [("Retry-After", "7")])
        elif name == "flaky" and self.failures_left > 0:
            self.failures_left -= 1
            self.error(handler, 500, "The template failed at line 3")
        else:
            self.stream(handler, name, body)

    def stream(self, handler, name, body):
        handler.send_response(200)
        handler.send_header("Content-Type", "text/event-stream")
        handler.send_header("Transfer-Encoding", "chunked")
        handler.end_headers()

        def raw(text):
            data = text.encode()
            handler.wfile.write(f"{len(data):x}\r\n".encode() + data + b"\r\n")
            handler.wfile.flush()

        def send(delta=None, **members):
            reason = members.pop("finish_reason", None)
            chunk = {"id": "c", "object": "chat.completion.chunk", "created": 1, "model": "m",
                     "choices": [{"index": 0, "delta": delta or {}, "finish_reason": reason}], **members}
            if "logprobs" in members:
                chunk["choices"][0]["logprobs"] = chunk.pop("logprobs")
            raw(f"data: {json.dumps(chunk)}\n\n")

        try:
            script = getattr(self, f"play_{name}", self.play_hello)
            if script(send, raw, body) == "cut":
                handler.close_connection = True
                handler.connection.close()
                return
            raw("data: [DONE]\n\n")
            handler.wfile.write(b"0\r\n\r\n")
        except OSError:
            self.broken += 1
            handler.close_connection = True

    def say(self, send, text, member="content"):
        for piece in words(text):
            send({member: piece})
            time.sleep(self.pace)

    def end(self, send, raw, reason="stop", tokens=37):
        send(finish_reason=reason, timings=TIMINGS)
        raw(f"data: {json.dumps({'choices': [], 'usage': usage(412, 380, tokens)})}\n\n")

    def play_hello(self, send, raw, body):
        send({"role": "assistant", "content": ""})
        self.say(send, f"Hello number {len(self.requests)}. You said: {body['messages'][-1]['content'][:200]}")
        self.end(send, raw)

    def play_markdown(self, send, raw, body):
        send({"role": "assistant", "content": ""})
        for at in range(0, len(MARKDOWN), 7):
            send({"content": MARKDOWN[at:at + 7]})
            time.sleep(self.pace)
        self.end(send, raw)

    def play_hostile(self, send, raw, body):
        for at in range(0, len(HOSTILE), 5):
            send({"content": HOSTILE[at:at + 5]})
        self.end(send, raw)

    def play_think(self, send, raw, body):
        self.say(send, "First I consider the **question**. Then I weigh it.", "reasoning_content")
        self.release.wait(10)
        self.say(send, "The answer is 42.")
        self.end(send, raw)

    def play_stall(self, send, raw, body):
        self.say(send, "It begins and then it")
        for _ in range(200):
            if self.release.wait(0.05):
                break
            raw(": ping\n\n")
        self.end(send, raw)

    def play_long(self, send, raw, body):
        for piece in words(LONG):
            send({"content": piece})
        self.end(send, raw)

    def play_progress(self, send, raw, body):
        raw(": queued, 2 before\r\n\r\n")
        self.release.wait(10)
        self.release.clear()
        send(prompt_progress={"total": 8200, "cache": 0, "processed": 3100, "time_ms": 75600})
        self.release.wait(10)
        self.say(send, "Read it all.")
        self.end(send, raw)

    def play_tool(self, send, raw, body):
        call = {"index": 0, "id": "call_1", "type": "function",
                "function": {"name": "get_weather", "arguments": ""}}
        send({"tool_calls": [call]})
        for piece in ('{"city":', '"Rome",', '"days":3}'):
            send({"tool_calls": [{"index": 0, "function": {"arguments": piece}}]})
            time.sleep(self.pace)
        self.end(send, raw, "tool_calls")

    def play_after_tool(self, send, raw, body):
        self.say(send, f"The tool said: {body['messages'][-1]['content']}")
        self.end(send, raw)

    def play_fail(self, send, raw, body):
        self.say(send, "Half an answer")
        raw('data: {"error": {"message": "The disk went away", "type": "server_error", "code": 500}}\n\n')
        time.sleep(0.1)
        return "cut"

    def play_cut(self, send, raw, body):
        self.say(send, "This one breaks")
        time.sleep(0.1)  # a browser drops what it has not handed on when the connection breaks
        return "cut"

    def play_This(self, send, raw, body):
        self.say(send, " on it goes.")
        self.end(send, raw)

    def play_limit(self, send, raw, body):
        self.say(send, "This one is too long and")
        self.end(send, raw, "length")

    def play_crlf(self, send, raw, body):
        chunk = json.dumps({"choices": [{"index": 0, "delta": {"content": "Größe 漢字 ok"}, "finish_reason": None}]},
                           ensure_ascii=False)
        text = f": comment\r\ndata: {chunk}\r\n\r\ndata: {{\"choices\":\r\ndata: []}}\r\n\r\n"
        for char in text:
            raw(char)
        self.end(send, raw)

    def play_probable(self, send, raw, body):
        for piece, share in ((" Yes", -0.1), (" maybe", -2.3), (".", -4.6)):
            send({"content": piece}, logprobs={"content": [
                {"token": piece, "logprob": share, "top_logprobs": [
                    {"token": piece, "logprob": share}, {"token": " no", "logprob": -3.0}]}]})
        self.end(send, raw)
