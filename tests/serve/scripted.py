"""What tests of the server share: a server over a script, and requests byte by byte."""

import argparse
import json
import socket
import subprocess
import tempfile
import time
from pathlib import Path


class Expectations:
    """Counts what is expected, and keeps what failed."""

    def __init__(self):
        self.failures = []
        self.checks = 0

    def expect(self, condition, text):
        self.checks += 1
        if not condition:
            self.failures.append(text)
        return condition

    def equal(self, found, wanted, text):
        return self.expect(found == wanted, f"{text}: {found!r} instead of {wanted!r}")

    def conclude(self, name):
        for failure in self.failures[:50]:
            print("FAILED:", failure)
        print(f"{name}: {self.checks} checks, {len(self.failures)} failures")
        return 1 if self.failures else 0


def program_from_arguments(description):
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("--server", required=True, type=Path)
    parser.add_argument("--sanitized", action="store_true", help="its memory is not measured")
    arguments = parser.parse_args()
    ScriptedServer.is_measured = not arguments.sanitized
    return arguments.server


class ScriptedServer:
    """The server over a script, while it is entered. `flags`: as scripted_server has them."""

    is_measured = True  # sanitizers keep freed memory for a while

    def __init__(self, program, script, *flags):
        self.program, self.script, self.flags = program, script, flags
        self.process = None
        self.port = 0

    def __enter__(self):
        with tempfile.NamedTemporaryFile("w", suffix=".json", delete=False) as file:
            json.dump(self.script, file)
        self.file = Path(file.name)
        self.process = subprocess.Popen(
            [self.program, "--script", file.name, *map(str, self.flags)],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        line = self.process.stdout.readline()
        self.port = int(line.rsplit(":", 1)[1])
        if "--loading-seconds" not in self.flags:
            self.wait_until_ready()
        return self

    def __exit__(self, *_):
        try:
            self.process.stdin.close()
            self.exit_code = self.process.wait(30)
        finally:
            self.process.kill()
            self.process.stdout.close()
            self.file.unlink()

    def wait_until_ready(self):
        for _ in range(200):
            if self.get("/health")[0] == 200:
                return
            time.sleep(0.02)
        raise SystemExit("the server is not ready after 4 s")

    @property
    def url(self):
        return f"http://127.0.0.1:{self.port}"

    def memory_kib(self):
        for line in Path(f"/proc/{self.process.pid}/status").read_text().splitlines():
            if line.startswith("VmRSS:"):
                return int(line.split()[1])
        return 0

    def descriptors(self):
        return len(list(Path(f"/proc/{self.process.pid}/fd").iterdir()))

    def connect(self, timeout=10):
        return socket.create_connection(("127.0.0.1", self.port), timeout)

    def raw(self, data, timeout=10, finish=False):
        """Sends bytes; returns all that comes until the server closes or nothing comes any more."""
        with self.connect(timeout) as s:
            try:
                s.sendall(data)
                if finish:
                    s.shutdown(socket.SHUT_WR)
            except OSError:
                pass  # it has answered before it read everything
            return read_all(s)

    def get(self, path, *headers):
        return self.request("GET", path, b"", *headers)

    def post(self, path, body, *headers):
        data = body if isinstance(body, bytes) else json.dumps(body).encode()
        return self.request("POST", path, data, "Content-Type: application/json", *headers)

    def request(self, method, path, body=b"", *headers):
        """(status, headers, body) of one request on a connection of its own."""
        lines = [f"{method} {path} HTTP/1.1", "Connection: close", *headers]
        if not any(h.lower().startswith("host:") for h in headers):
            lines.append("Host: localhost")
        if body or method == "POST":
            lines.append(f"Content-Length: {len(body)}")
        return parse(self.raw("\r\n".join(lines).encode() + b"\r\n\r\n" + body), method == "HEAD")

    def metric(self, name):
        """The value of a line of /metrics."""
        for line in self.get("/metrics")[2].decode().splitlines():
            if line.startswith(f"moepack:{name} "):
                return float(line.rsplit(" ", 1)[1])
        return 0.0

    def wait_for_metric(self, name, value, seconds=5):
        """Whether a metric came to be `value`."""
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            if self.metric(name) == value:
                return True
            time.sleep(0.02)
        return False


def read_all(s):
    data = b""
    try:
        while piece := s.recv(1 << 16):
            data += piece
    except OSError:  # a timeout, or a reset after the answer
        pass
    return data


def dechunked(data):
    body = b""
    while data:
        size, _, data = data.partition(b"\r\n")
        count = int(size, 16)
        if count == 0:
            return body
        body, data = body + data[:count], data[count + 2:]
    return body + b"<cut>"


def parse(data, is_head=False):
    """(status, {header: value}, body) of an answer; status 0 where there is none."""
    head, _, body = data.partition(b"\r\n\r\n")
    lines = head.decode("latin-1").split("\r\n")
    words = lines[0].split(" ", 2)
    if len(words) < 2 or not words[1].isdigit():
        return 0, {}, data
    if words[1] == "100":
        return parse(body, is_head)
    headers = {k.strip().lower(): v.strip() for k, _, v in (x.partition(":") for x in lines[1:])}
    if headers.get("transfer-encoding") == "chunked" and not is_head:
        body = dechunked(body)
    return int(words[1]), headers, body


def events(body):
    """The JSON of each data line of an event stream; "[DONE]" as it is."""
    found = []
    for line in body.decode().split("\n"):
        if line.startswith("data: "):
            found.append(line[6:] if line == "data: [DONE]" else json.loads(line[6:]))
    return found


def user(text, **fields):
    return {"messages": [{"role": "user", "content": text}], **fields}
