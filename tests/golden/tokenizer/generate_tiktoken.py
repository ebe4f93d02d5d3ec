#!/usr/bin/env python3
"""Writes tiktoken/: a small vocabulary in the files of Kimi K2's checkpoints (tiktoken.model,
tokenizer_config.json), and the ids that tiktoken itself gives for texts.

Needs PyPI's tiktoken and regex. The vocabulary is trained by tiktoken's own trainer on the text
below; the pattern is that of tokenization_kimi.py.
"""
import base64
import json
import random
from pathlib import Path

import tiktoken
from tiktoken import _educational

OUT = Path(__file__).parent / "tiktoken"
TRAINING = r"""'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}{1,3}| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"""
PATTERN = "|".join([
    r"[\p{Han}]+",
    r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]]*"
    r"[\p{Ll}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?",
    r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]]+"
    r"[\p{Ll}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?",
    r"\p{N}{1,3}", r" ?[^\s\p{L}\p{N}]+[\r\n]*", r"\s*[\r\n]+", r"\s+(?!\S)", r"\s+"])
TEXT = """The mixture of experts chooses eight of many experts for every token; the others wait on the disk.
Whether the reader's cache holds them isn't known before the router has spoken, and they'll be read then.
def read(self, offset: int) -> bytes:\n    return self.file[offset:offset + 4096]\n\n\nclass Reader:\n\tpass
Die Mischung der Fachleute wählt für jedes Zeichen acht von vielen. Größe, Maß, Fuß, Straße, Übermut.
Каждый эксперт читается с диска, когда маршрутизатор его выбирает. Опять и опять читается эксперт.
专家混合模型为每个词选择八位专家，其余专家留在磁盘上等待。专家专家专家。모델은 전문가를 고릅니다. 専門家を選ぶ。
0123456789 3.14159 2026-11-25 100000 1000 100 10 !!! ??? ... --- === /* */ // {} [] () <> "quotes" 'single'
"""
SPECIAL = {0: ("[BOS]", True), 1: ("[EOS]", True), 2: ("<|im_end|>", True), 3: ("<|im_user|>", True),
           9: ("<|tool_calls_section_begin|>", False), 10: ("<think>", False)}


def texts():
    """Texts of every kind, hard ones by hand and the others at random."""
    yield from TEXT.splitlines()
    yield from ["", " ", "\n", "  \n \n x", "don't DON'T We'LL", "HelloWorld HELLOworld ABCdef",
                "aaaaaaaaaaaaaaaa", "专家a专家 b", "a\u0301e\u0308", "\u00e9", "[BOS]hi<|im_end|>[EOS]",
                "<|reserved_token_{}|>", "<|im_en", "x<think>y</think>", "\u3000全角", "12345678",
                "\u200b\u200d\ufeff", "\U0001f600\U0001f468\u200d\U0001f469", "\r\n\r\n", "\t\tif x:"]
    source = random.Random(11)
    words = TEXT.split() + list(" \n\t'éß专Ж3") + ["'s", "[BOS]", "<think>", "  ", "\u0301", "\x00"]
    for _ in range(300):
        yield "".join(source.choice(words) + source.choice(["", " ", "", "\n"])
                      for _ in range(source.randint(1, 12)))
    for _ in range(100):
        yield "".join(chr(source.choice((source.randrange(0x20, 0x7f), source.randrange(0x80, 0x500),
                                         source.randrange(0x4e00, 0x4f00), source.randrange(0xac00, 0xad00))))
                      for _ in range(source.randint(1, 30)))


def main():
    OUT.mkdir(exist_ok=True)
    ranks = _educational.bpe_train(TEXT * 2, 660, TRAINING, visualise=None)
    base = len(ranks)
    lines = [base64.b64encode(token) + b" " + str(rank).encode() for token, rank in ranks.items()]
    (OUT / "tiktoken.model").write_bytes(b"\n".join(lines) + b"\n")
    decoder = {str(base + i): {"content": content, "lstrip": False, "normalized": False,
                               "rstrip": False, "single_word": False, "special": special}
               for i, (content, special) in SPECIAL.items()}
    (OUT / "tokenizer_config.json").write_text(json.dumps(
        {"added_tokens_decoder": decoder, "bos_token": "[BOS]", "eos_token": "[EOS]",
         "tokenizer_class": "TikTokenTokenizer",
         "auto_map": {"AutoTokenizer": ["tokenization_kimi.TikTokenTokenizer", None]}}, indent=1))
    named = {base + i: content for i, (content, _) in SPECIAL.items()}
    specials = {named.get(i, f"<|reserved_token_{i}|>"): i for i in range(base, base + 256)}
    encoding = tiktoken.Encoding("kimi", pat_str=PATTERN, mergeable_ranks=ranks,
                                 special_tokens=specials)
    cases = []
    for text in texts():
        text = text.replace("<|reserved_token_{}|>", f"<|reserved_token_{base + 77}|>")
        cases.append([text, encoding.encode(text, allowed_special="all")])
    (OUT / "cases.json").write_text(json.dumps(
        {"tiktoken": tiktoken.__version__, "tokens": base, "cases": cases}, ensure_ascii=True,
        separators=(",", ":")) + "\n")


if __name__ == "__main__":
    main()
