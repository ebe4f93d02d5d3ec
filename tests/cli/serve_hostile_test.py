"""A server with a model is asked what is made to take its time or its memory: a hundred bodies, each within limits,
and after each of them the next client is answered as ever.
"""
import http.client
import json
import os
import sys
import tempfile
import time
from pathlib import Path

from cli_runner import CliRunner, conclude, options
from hostile_bodies import hostile_requests
from served_model import Served

# Of one request: processor seconds of the server, and MiB beyond what it had before: the body of at most 64, what the
# HTTP library reads it into, its JSON and what that says.
MOST_SECONDS = 6.0
MOST_MIB = 450


def cpu_seconds(process):
    fields = Path(f"/proc/{process}/stat").read_text().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def status_mib(process, key):
    for line in Path(f"/proc/{process}/status").read_text().splitlines():
        if line.startswith(key + ":"):
            return int(line.split()[1]) / 1024
    return 0.0


def forget_peak(process):
    """VmHWM begins anew; False where that is not allowed."""
    try:
        Path(f"/proc/{process}/clear_refs").write_text("5", encoding="ascii")
        return True
    except OSError:
        return False


class HostileTest(CliRunner):
    def __init__(self, *args):
        super().__init__(*args)
        self.server, self.rows = None, []

    def post(self, path, body):
        """The status and the answer's beginning; 0 where the server closed the connection."""
        connection = http.client.HTTPConnection("127.0.0.1", self.server.port, timeout=240)
        try:
            connection.request("POST", path, body, {"Content-Type": "application/json"})
            reply = connection.getresponse()
            return reply.status, reply.read()
        except (ConnectionError, http.client.HTTPException):
            return 0, b""
        finally:
            connection.close()

    def measured(self, name, path, body):
        process = self.server.process.pid
        has_peak = forget_peak(process)
        before, seconds, begun = status_mib(process, "VmRSS"), cpu_seconds(process), time.monotonic()
        status, answer = self.post(path, body)
        took = cpu_seconds(process) - seconds
        peak = status_mib(process, "VmHWM") - before if has_peak else 0.0
        self.rows.append((peak, took, time.monotonic() - begun, name, len(body), status, len(answer), answer[:90]))
        self.expect(self.server.process.poll() is None, f"{name}: the server ended")
        self.expect(status in (200, 400, 413), f"{name}: status {status}: {answer[:200]!r}")
        if self.is_sanitized:
            return
        self.expect(took <= MOST_SECONDS, f"{name}: {took:.1f} s of the processor")
        self.expect(peak <= MOST_MIB, f"{name}: {peak:.0f} MiB more")

    def text(self):
        status, answer = self.post("/v1/completions", json.dumps(
            {"prompt": "Once upon a time", "max_tokens": 8, "temperature": 0, "ignore_eos": True}).encode())
        return json.loads(answer)["choices"][0]["text"] if status == 200 else answer[:200]

    def play(self, model, only):
        with Served(self.program, model, "--parallel", 2, "--checkpoint-mb", 0) as self.server:
            self.server.wait_until_ready()
            alone = self.text()
            for name, make in hostile_requests():
                if only and only not in name:
                    continue
                self.measured(name, *make())
                if self.server.process.poll() is not None:
                    break
                self.expect(self.text() == alone, f"after {name!r} others get another answer")
            for peak, took, wall, name, size, status, answered, begin in sorted(self.rows, reverse=True):
                print(f"{peak:7.0f} MiB {took:6.2f} s cpu {wall:6.2f} s  {name:32} {size / 2**20:6.1f} MiB -> {status}"
                      f" {answered} {begin!r}")
            code, said = self.server.end()
            self.expect(code == 0, f"exit code {code}: {said[-300:]}")


def main():
    parser = options(__doc__)
    parser.add_argument("--sanitized", action="store_true", help="its time and memory are not judged")
    parser.add_argument("--only", help="names with this text")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as scratch:
        test = HostileTest(args.program, Path(scratch))
        test.is_sanitized = args.sanitized
        model = Path(scratch) / "model"
        test.succeeds("convert", args.checkpoint, "-o", model)
        test.play(model, args.only)
    return conclude(test.failures, f"serve hostile: {len(test.rows)} bodies, {test.checks} checks, ")


if __name__ == "__main__":
    sys.exit(main())
