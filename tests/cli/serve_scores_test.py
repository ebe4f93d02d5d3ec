"""Completions that score prompts, as evaluation harnesses ask for them: echo, logprobs and one token or none.

What each token of a text is worth must be what `moepack perplexity` and `moepack logits` find. With
MOEPACK_TEST_MODELS for small-moe too.
"""

import array
import json
import math
import os
import random
import sys
import tempfile
from pathlib import Path

from cli_runner import CliRunner, conclude, options
from served_model import Served

WINDOW = 192
WAYS = {"exact": ("--activations", "f32", "--kv-cache-type", "f32"),
        "bytes": ("--activations", "i8", "--kv-cache-type", "bf16")}


def log_softmax(row):
    top = max(row)
    return top + math.log(sum(math.exp(x - top) for x in row))


def harness_scores(answer, lengths):
    """(sum, whether greedy) of what follows each context, as lm-eval's local-completions reads an answer:
    choices by index, and of each list all behind the context but the last, which it takes for generated."""
    found = []
    for choice, context in zip(sorted(answer["choices"], key=lambda c: c["index"]), lengths, strict=True):
        logprobs = choice["logprobs"]["token_logprobs"][context:-1]
        top = choice["logprobs"]["top_logprobs"][context:-1]
        found.append((sum(logprobs), all(p == max(t.values()) for p, t in zip(logprobs, top))))
    return found


class ScoresTest(CliRunner):
    def ask(self, server, body):
        status, text = server.ask("POST", "/v1/completions", body)
        self.expect(status == 200, f"{json.dumps(body)[:200]}: {status} {text[:300]}")
        return json.loads(text)

    def choice(self, server, **body):
        return self.ask(server, {"echo": True, "max_tokens": 0, "temperature": 0, **body})["choices"][0]

    def logits(self, model, ids, flags):
        """Rows of the logits behind each token."""
        (self.scratch / "ids.json").write_text(json.dumps(ids))
        self.succeeds("logits", model, "--backend", "cpu", "--token-ids", self.scratch / "ids.json",
                      "-o", self.scratch / "out.f32", *flags)
        values = array.array("f", (self.scratch / "out.f32").read_bytes())
        width = len(values) // len(ids)
        return [values[i * width:(i + 1) * width] for i in range(len(ids))]

    def windows(self, server, model, ids, flags):
        """Every token of every window against perplexity's mean, and of one against the logits."""
        windows = [ids[i:i + WINDOW] for i in range(0, len(ids) - WINDOW + 1, WINDOW)]
        worst = 0.0
        for number, window in enumerate(windows):
            logprobs = self.choice(server, prompt=window, logprobs=number % 5 + 1)["logprobs"]
            self.expect(logprobs["token_logprobs"][0] is None and logprobs["top_logprobs"][0] is None,
                        "the first token follows nothing")
            self.expect(len(logprobs["token_logprobs"]) == len(logprobs["tokens"]) == len(window), "one for each token")
            # Tokens with the same text are one alternative.
            self.expect(max(len(t) for t in logprobs["top_logprobs"][1:]) == number % 5 + 1, "as many as were asked for")
            (self.scratch / "window.json").write_text(json.dumps(window))
            report = json.loads(self.succeeds(
                "perplexity", model, "--backend", "cpu", "--token-ids", self.scratch / "window.json", "-c", WINDOW,
                "--all-positions", "--json", *flags).stdout)
            self.expect(report["tokens_scored"] == WINDOW - 1, f"{report}")
            mean = -sum(logprobs["token_logprobs"][1:]) / (WINDOW - 1)
            worst = max(worst, abs(mean - report["mean_nll"]))
            self.expect(abs(mean - report["mean_nll"]) < 1e-4,
                        f"{flags}, window {number}: mean {mean}, perplexity {report['mean_nll']}")
        print(f"{model.name} {flags[1]}: {len(windows)} windows, means within {worst:.1e} of perplexity's")
        found = self.choice(server, prompt=windows[0], logprobs=5)["logprobs"]
        rows = self.logits(model, windows[0], flags)
        for i in range(1, WINDOW):
            row, norm = rows[i - 1], log_softmax(rows[i - 1])
            wanted = row[windows[0][i]] - norm
            got = found["token_logprobs"][i]
            self.expect(abs(got - wanted) < 1e-4, f"{flags}: token {i}: {got}, the logits say {wanted}")
            top = sorted((x - norm for x in row), reverse=True)[:5]
            alternatives = sorted(found["top_logprobs"][i].values(), reverse=True)
            self.expect(abs(alternatives[0] - top[0]) < 1e-4 and all(min(abs(a - t) for t in top) < 1e-4 for a in alternatives),
                        f"{flags}: alternatives of token {i}: {alternatives}, not {top}")

    def texts(self, server):
        """Texts and ids give the same; offsets count characters; a list is answered in its order."""
        texts = ["Once upon a time", "The na\u00efve caf\u00e9 \u2014 \U0001f600 \u4f60\u597d!", "x", "  spaces\n\nand lines"]
        prompts = [json.loads(server.ask("POST", "/tokenize", {"content": t})[1])["tokens"] for t in texts]
        single = [self.choice(server, prompt=t, logprobs=2) for t in texts]
        for text, ids, one in zip(texts, prompts, single):
            self.expect(one["text"] == text and one["finish_reason"] == "length", f"{one['text']!r} echoes {text!r}")
            offsets = one["logprobs"]["text_offset"]
            self.expect(offsets[0] == 0 and offsets == sorted(offsets) and len(offsets) == len(ids), f"{offsets}")
            for at, token in zip(offsets, one["logprobs"]["tokens"]):
                if not token.startswith("bytes:"):
                    self.expect(text[at:at + len(token)] == token, f"{token!r} does not stand at {at} of {text!r}")
            same = self.choice(server, prompt=ids, logprobs=2)
            self.expect(same["logprobs"] == one["logprobs"], f"ids of {text!r} give something else")
        for batch in (texts, prompts):
            body = {"prompt": batch, "echo": True, "max_tokens": 0, "logprobs": 2, "temperature": 0}
            answer = self.ask(server, body)
            self.expect([c["index"] for c in answer["choices"]] == list(range(len(texts))), "order of the choices")
            self.expect([c["logprobs"] for c in answer["choices"]] == [c["logprobs"] for c in single], "a batch")
            self.expect(answer["usage"]["prompt_tokens"] == sum(map(len, prompts)), f"{answer['usage']}")
            self.expect(answer["usage"]["completion_tokens"] == 0, f"{answer['usage']}")
        plain = self.choice(server, prompt=texts[0])
        self.expect(plain["text"] == texts[0] and plain["logprobs"] is None, "an echo without logprobs")

    def harness(self, server, model, ids, flags):
        """Requests and answers as lm-eval has them: one token is generated and dropped, whatever it is."""
        pairs = [(ids[i:i + 20], ids[i + 20:i + 20 + 1 + i % 7]) for i in range(0, 160, 20)]
        body = {"model": "m", "prompt": [a + b for a, b in pairs], "temperature": 0, "max_tokens": 1, "logprobs": 1,
                "seed": 1234, "echo": True}
        scores = harness_scores(self.ask(server, body), [len(a) for a, _ in pairs])
        for (context, rest), (total, is_greedy) in zip(pairs, scores):
            rows = self.logits(model, context + rest, flags)
            behind = rows[len(context) - 1:-1]
            wanted = sum(row[i] - log_softmax(row) for row, i in zip(behind, rest))
            self.expect(abs(total - wanted) < 1e-4 * len(rest), f"{flags}: {total} of {len(rest)} tokens, not {wanted}")
            self.expect(is_greedy == all(row[i] == max(row) for row, i in zip(behind, rest)), f"{flags}: greedy {is_greedy}")
        # What the model says itself is greedy.
        said = self.ask(server, {"prompt": ids[:30], "max_tokens": 8, "temperature": 0, "ignore_eos": True})
        context = json.loads(server.ask("POST", "/detokenize", {"tokens": ids[:30]})[1])["content"]
        whole = json.loads(server.ask("POST", "/tokenize", {"content": context + said["choices"][0]["text"]})[1])["tokens"]
        if whole[:30] == ids[:30]:
            [(_, is_greedy)] = harness_scores(self.ask(server, {**body, "prompt": [whole]}), [30])
            self.expect(is_greedy, f"{flags}: its own answer is not greedy")

    def ends(self, server, size):
        """The generated token is told even where it ends the text, so that its place is never a prompt's."""
        rng = random.Random(3)
        prompts = [[rng.randrange(size) for _ in range(3 + i % 9)] for i in range(30)]
        config = json.loads(server.ask("GET", "/props")[1])
        for marker in (config.get("eos_token"), config.get("bos_token")):
            if not marker:
                continue
            ids = json.loads(server.ask("POST", "/tokenize", {"content": f"a{marker}b{marker}"})[1])["tokens"]
            prompts += [ids, ids[:-1], ids[-1:]]
        for ids in prompts:
            logprobs = self.choice(server, prompt=ids, logprobs=1, max_tokens=1)["logprobs"]
            self.expect({len(x) for x in logprobs.values()} == {len(ids) + 1}, f"{ids}: {logprobs}")
            five = self.choice(server, prompt=ids, logprobs=5, max_tokens=1)["logprobs"]
            for top, one in zip(five["top_logprobs"][1:], logprobs["top_logprobs"][1:]):
                self.expect(max(top.values()) == max(one.values()), f"{ids}: the best of {top} is not {one}")

    def refused(self, server, size):
        for prompt in ([size], [-1], [], [[1], []], [1, "a"], [[1], "a", 2], [1.5], {}, None):
            status, text = server.ask("POST", "/v1/completions", {"prompt": prompt, "echo": True, "logprobs": 1})
            self.expect(status == 400 and json.loads(text)["error"]["message"], f"{prompt}: {status} {text[:200]}")

    def large_batches(self, model, ids):
        """More prompts than the queue has room for; alone they are answered, and leave nothing when their client goes."""
        prompts = [ids[i:i + 8] for i in range(24)]
        body = {"prompt": prompts, "echo": True, "max_tokens": 1, "logprobs": 1, "temperature": 0}
        with Served(self.program, model, "--queue", 2) as server:
            server.wait_until_ready()
            answer = self.ask(server, body)
            single = [self.choice(server, prompt=p, max_tokens=1, logprobs=1) for p in prompts]
            self.expect([c["logprobs"] for c in answer["choices"]] == [c["logprobs"] for c in single], "a large batch")
            self.expect(answer["usage"]["completion_tokens"] == len(prompts), f"{answer['usage']}")
            status, text = server.ask("POST", "/v1/completions", {**body, "stream": True})
            said = [json.loads(x[6:]) for x in text.decode().split("\n") if x.startswith("data: {")]
            ended = [c["index"] for x in said for c in x["choices"] if c["finish_reason"]]
            self.expect(status == 200 and sorted(ended) == list(range(24)) and b"[DONE]" in text, f"a stream: {ended}")
            status, text = server.ask("POST", "/v1/completions", {**body, "prompt": [*prompts, [10 ** 6]]})
            self.expect(status >= 400 and b"error" in text, f"a wrong id behind many: {status} {text[:200]}")
            s = server.send_completion([p * 4 for p in prompts], 200)
            server.wait_for_metric("requests_processing", 1)
            s.close()
            self.expect(server.wait_for_metric("requests_processing", 0) and server.metric("requests_deferred") == 0,
                        "a batch whose client has gone")
            self.expect(server.wait_for_metric("http_connections", 1), "its connection is left")
            self.ask(server, body)

    def begins(self, model):
        """A tokenizer that puts a token before texts: run, perplexity and completions of texts have it, once."""
        marker, text = "<|im_start|>", "Once upon a time there was a small house at the end of a long road. " * 3
        (self.scratch / "text.txt").write_text(text)
        (self.scratch / "marked.txt").write_text(marker + text)
        plain = self.run_tokens(model, text)
        path = model / "tokenizer.json"
        tokenizer = json.loads(path.read_text())
        begin = next(t["id"] for t in tokenizer["added_tokens"] if t["content"] == marker)
        tokenizer["post_processor"] = {
            "type": "TemplateProcessing", "single": [{"SpecialToken": {"id": marker}}, {"Sequence": {"id": "A"}}],
            "special_tokens": {marker: {"id": marker, "ids": [begin], "tokens": [marker]}}}
        path.unlink()
        path.write_text(json.dumps(tokenizer))
        self.expect(self.run_tokens(model, text) == plain + 1, "run: no token before the text")
        self.expect(self.run_tokens(model, marker + text) == plain + 1, "run: the token is there twice")
        flags = WAYS["exact"]
        with Served(self.program, model, *flags) as server:
            server.wait_until_ready()
            ids = [begin] + json.loads(server.ask("POST", "/tokenize", {"content": text})[1])["tokens"]
            one = self.choice(server, prompt=text, logprobs=2)
            self.expect(one["logprobs"] == self.choice(server, prompt=ids, logprobs=2)["logprobs"], "scores of a text")
            self.expect(self.choice(server, prompt=text)["text"] == text, "nobody wrote what stands before the text")
            for body, expected in (({"content": text}, ids[1:]), ({"content": text, "add_special": True}, ids),
                                   ({"prompt": text}, ids), ({"content": marker + text, "add_special": True}, ids),
                                   ({"prompt": text, "add_special_tokens": False}, ids[1:])):
                got = json.loads(server.ask("POST", "/tokenize", body)[1])["tokens"]
                self.expect(got == expected, f"tokenize {body}: {got}")
        (self.scratch / "all.json").write_text(json.dumps(ids))
        whole = self.mean_nll(model, "--token-ids", self.scratch / "all.json", "--all-positions")
        for name in ("text.txt", "marked.txt"):
            self.expect(self.mean_nll(model, "-f", self.scratch / name, "--all-positions") == whole, f"{name}: all")
        # Each window begins with the token, in the place of its first.
        nlls = []
        for at in range(0, len(ids) - 15, 16):
            rows = self.logits(model, [begin] + ids[at + 1:at + 16], flags)
            nlls += [log_softmax(rows[i]) - rows[i][ids[at + i + 1]] for i in range(8, 15)]
        got = self.mean_nll(model, "-f", self.scratch / "text.txt", "-c", 16)
        self.expect(len(nlls) >= 14 and abs(got - sum(nlls) / len(nlls)) < 1e-4, f"windows: {got}, not {sum(nlls) / len(nlls)}")
        base = self.scratch / "base.kld"
        self.mean_nll(model, "-f", self.scratch / "text.txt", "-c", 16, "--kl-divergence-base", base)
        report = json.loads(self.succeeds("perplexity", model, "--backend", "cpu", "--kl-divergence-base", base,
                                          "--kl-divergence", "--json", *flags).stdout)
        self.expect(abs(report["mean_kld"]) < 1e-4 and report["tokens_scored"] == len(nlls), f"its own base: {report}")

    def run_tokens(self, model, prompt):
        return json.loads(self.succeeds("run", model, "-p", prompt, "-n", 1, "--json").stdout)["prompt_tokens"]

    def mean_nll(self, model, *arguments):
        return json.loads(self.succeeds("perplexity", model, "--backend", "cpu", "--json", *arguments,
                                        *WAYS["exact"]).stdout)["mean_nll"]

    def all(self, model, ids):
        for flags in WAYS.values():
            with Served(self.program, model, *flags, "--parallel", 4, context=1024) as server:
                server.wait_until_ready()
                size = json.loads(server.ask("GET", "/v1/models")[1])["data"][0]["meta"]["n_vocab"]
                self.windows(server, model, ids, flags)
                self.harness(server, model, ids, flags)
                self.texts(server)
                self.ends(server, size)
                self.refused(server, size)


def main():
    args = options(__doc__).parse_args()
    models = os.environ.get("MOEPACK_TEST_MODELS")
    with tempfile.TemporaryDirectory() as scratch:
        test = ScoresTest(args.program, Path(scratch))
        rng = random.Random(1)
        model = Path(scratch) / "demo"
        test.succeeds("convert", args.checkpoint, "-o", model)
        test.all(model, [rng.randrange(250) for _ in range(3 * WINDOW)])
        test.large_batches(model, [rng.randrange(250) for _ in range(100)])
        test.begins(model)
        if models:
            source = Path(models) / "small-moe"
            model = Path(scratch) / "small-moe"
            test.succeeds("convert", source, "-o", model)
            test.all(model, list(array.array("i", (source / "golden/eval_tokens.i32").read_bytes()))[:5 * WINDOW])
    skipped = "" if models else "SKIPPED: small-moe (MOEPACK_TEST_MODELS); "
    return conclude(test.failures, f"{skipped}serve scores: {test.checks} checks, ")


if __name__ == "__main__":
    sys.exit(main())
