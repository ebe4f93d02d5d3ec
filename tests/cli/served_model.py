"""A running `moepack serve`, for tests of the command with a model."""

import http.client
import json
import os
import resource
import signal
import socket
import subprocess
import time
from pathlib import Path


class Served:
    """A running `moepack serve`; it has ended when it is left."""

    def __init__(self, program, model, *flags, context=512, max_file_bytes=None, env=None):
        def limit():
            signal.signal(signal.SIGXFSZ, signal.SIG_IGN)  # a write beyond the limit is an error then
            resource.setrlimit(resource.RLIMIT_FSIZE, (max_file_bytes, max_file_bytes))
        self.process = subprocess.Popen(
            [program, "serve", model, "--port", "0", "--backend", "cpu", "-c", str(context), *map(str, flags)],
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
            preexec_fn=None if max_file_bytes is None else limit, env={**os.environ, **(env or {})})
        self.line = self.process.stdout.readline()
        self.port = int(self.line.rsplit(":", 1)[1]) if ":" in self.line else 0

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.process.kill()
        self.process.communicate()

    def ask(self, method, path, body=None, headers=None):
        """(status, body)."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=60)
        data = None if body is None else json.dumps(body)
        connection.request(method, path, data, {"Content-Type": "application/json", **(headers or {})})
        answer = connection.getresponse()
        text = answer.read()
        connection.close()
        return answer.status, text

    def end(self):
        """(exit code, stderr)."""
        self.process.send_signal(signal.SIGINT)
        said = self.process.communicate(timeout=30)[1]
        return self.process.returncode, said

    def wait_until_ready(self):
        for _ in range(1200):
            if self.ask("GET", "/health")[0] == 200:
                return True
            time.sleep(0.05)
        return False

    def memory_kib(self):
        for line in Path(f"/proc/{self.process.pid}/status").read_text().splitlines():
            if line.startswith("VmRSS:"):
                return int(line.split()[1])
        return 0

    def descriptors(self):
        return len(list(Path(f"/proc/{self.process.pid}/fd").iterdir()))

    def metric(self, name, headers=None):
        for line in self.ask("GET", "/metrics", None, headers)[1].decode().splitlines():
            if line.startswith(f"moepack:{name} "):
                return float(line.rsplit(" ", 1)[1])
        return 0.0

    def wait_for_metric(self, name, value, seconds=10):
        """Whether a metric came to be `value`."""
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            if self.metric(name) == value:
                return True
            time.sleep(0.02)
        return False

    def send_completion(self, prompt, tokens, headers=""):
        """A connection on which a stream was asked for."""
        body = json.dumps({"prompt": prompt, "max_tokens": tokens, "stream": True, "ignore_eos": True, "temperature": 0})
        s = socket.create_connection(("127.0.0.1", self.port), 60)
        s.sendall(f"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
                  f"{headers}Content-Length: {len(body)}\r\n\r\n{body}".encode())
        return s

    def start_stream(self, tokens, headers=""):
        """A connection on which an answer has begun, and what came."""
        s = self.send_completion("Once", tokens, headers)
        received = b""
        while received.count(b"data: ") < 2:
            received += s.recv(65536)
        return s, received


def rest_of(s, received):
    try:
        while piece := s.recv(65536):
            received += piece
    except OSError:
        pass
    return received
