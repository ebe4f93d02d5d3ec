#!/usr/bin/env python3
"""Several clients at once against a server: tokens per second in all, and whether answers stay the same.

Each client asks its own questions greedily, first alone and then beside the others; the texts must be equal.
Every row has questions of its own, so that no prompt was seen in an earlier row. With --leave P a request is
broken off with this probability after some tokens. Any server with OpenAI's chat completions will do, or with
--completions one with OpenAI's completions of text:

    scripts/load_clients.py --url http://127.0.0.1:8080 --clients 1,4,8
"""

import argparse
import http.client
import json
import random
import sys
import threading
import time
import urllib.parse

FAILURES = (OSError, RuntimeError, http.client.HTTPException)  # of a request
TOPICS = "rivers bridges bread clocks islands winter stars letters gardens trains salt maps glass wolves tea kites".split()


def question(row, client, number, words):
    rng = random.Random(f"{row} {client} {number}")
    return (f"Row {row}, client {client}, question {number}: write about {rng.choice(TOPICS)}. "
            + " ".join(rng.choice(TOPICS) for _ in range(words)))


class Asked:
    def __init__(self):
        self.text, self.tokens, self.first, self.has_left = "", 0, 0.0, False


def piece_of(choice):
    if "delta" not in choice:
        return choice["text"]
    delta = choice["delta"]
    return (delta.get("reasoning_content") or "") + (delta.get("content") or "")


def ask(arguments, text, leave_after=None):
    place = urllib.parse.urlsplit(arguments.url)
    connection = http.client.HTTPConnection(place.hostname, place.port, timeout=arguments.timeout)
    body = {"model": "m", "max_tokens": arguments.max_tokens, "temperature": 0, "seed": 1, "stream": True,
            "ignore_eos": True, "stream_options": {"include_usage": True}}
    if arguments.completions:
        path, body["prompt"] = "/v1/completions", text
    else:
        path, body["messages"] = "/v1/chat/completions", [{"role": "user", "content": text}]
    asked, begun, pieces = Asked(), time.monotonic(), 0
    connection.request("POST", path, json.dumps(body), {"Content-Type": "application/json"})
    reply = connection.getresponse()
    if reply.status != 200:
        raise RuntimeError(f"status {reply.status}: {reply.read(500)!r}")
    for line in reply:
        if not line.startswith(b"data: ") or line.strip() == b"data: [DONE]":
            continue
        event = json.loads(line[6:])
        if "error" in event:
            raise RuntimeError(str(event["error"]))
        if event.get("usage"):
            asked.tokens = event["usage"]["completion_tokens"]
        for choice in event.get("choices", []):
            piece = piece_of(choice)
            asked.text += piece
            pieces += bool(piece)
        asked.first = asked.first or (time.monotonic() - begun if asked.text else 0.0)
        if leave_after is not None and pieces >= leave_after:
            asked.has_left = True
            break
    connection.close()
    return asked


class Load:
    def __init__(self, arguments):
        self.arguments, self.alone = arguments, {}
        self.problems = []

    def client(self, client, texts, results):
        rng = random.Random(client)
        for number, text in enumerate(texts):
            leave = rng.randrange(1, 9) if rng.random() < self.arguments.leave else None
            try:
                asked = ask(self.arguments, text, leave)
            except FAILURES as error:
                self.problems.append(f"client {client}, question {number}: {error}")
                continue
            results.append((text, asked))

    def texts(self, row, client):
        return [question(row, client, n, self.arguments.words) for n in range(self.arguments.requests)]

    def run(self, row, clients):
        """(tokens, seconds, mean seconds to the first token) of so many clients at once."""
        results = [[] for _ in range(clients)]
        threads = [threading.Thread(target=self.client, args=(c, self.texts(row, c), results[c]))
                   for c in range(clients)]
        begun = time.monotonic()
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        seconds = time.monotonic() - begun
        asked = [pair for each in results for pair in each]
        self.compare(asked)
        first = [a.first for _, a in asked if a.first]
        return sum(a.tokens for _, a in asked), seconds, sum(first) / len(first) if first else 0.0

    def compare(self, asked):
        for text, answer in asked:
            wanted = self.alone.get(text)
            if wanted is None:
                continue
            is_equal = wanted.startswith(answer.text) if answer.has_left else wanted == answer.text
            if not is_equal:
                self.problems.append(f"{text[:40]!r} is answered otherwise beside others: "
                                     f"{answer.text[:60]!r} instead of {wanted[:60]!r}")

    def ask_alone(self, row, clients):
        for client in range(clients):
            for text in self.texts(row, client):
                try:
                    self.alone[text] = ask(self.arguments, text).text
                except FAILURES as error:
                    self.problems.append(f"client {client} alone: {error}")


def print_rows(load, counts):
    rates = {}
    print(f"{'clients':>7} {'tokens':>7} {'seconds':>8} {'tokens/s':>9} {'first s':>8}")
    for row, clients in enumerate(counts):
        if load.arguments.compares:
            load.ask_alone(row, clients)
        tokens, seconds, first = load.run(row, clients)
        rates[clients] = tokens / seconds
        print(f"{clients:7} {tokens:7} {seconds:8.2f} {rates[clients]:9.2f} {first:8.3f}", flush=True)
    for clients in counts[1:]:
        if rates[counts[0]] > 0:
            print(f"{clients} clients together: {rates[clients] / rates[counts[0]]:.2f} times {counts[0]}")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--url", default="http://127.0.0.1:8080")
    parser.add_argument("--clients", default="1,4,8")
    parser.add_argument("--requests", type=int, default=3, help="of each client")
    parser.add_argument("--max-tokens", type=int, default=64)
    parser.add_argument("--words", type=int, default=20, help="of a question beside the fixed ones")
    parser.add_argument("--leave", type=float, default=0.0, help="probability that a request is broken off")
    parser.add_argument("--no-compare", dest="compares", action="store_false", help="do not ask alone first")
    parser.add_argument("--completions", action="store_true", help="ask /v1/completions, without a chat template")
    parser.add_argument("--warm-up", dest="warms_up", action="store_true",
                        help="first a round of most clients that does not count")
    parser.add_argument("--timeout", type=float, default=600)
    arguments = parser.parse_args()
    counts = [int(c) for c in arguments.clients.split(",")]
    load = Load(arguments)
    if arguments.warms_up:
        load.run("warm-up", max(counts))
    print_rows(load, counts)
    for problem in load.problems[:20]:
        print("FAILED:", problem)
    print(f"{len(load.problems)} problems")
    return 1 if load.problems else 0


if __name__ == "__main__":
    sys.exit(main())
