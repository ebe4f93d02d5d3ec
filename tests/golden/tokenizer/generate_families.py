#!/usr/bin/env python3
"""Asks HuggingFace's `tokenizers` for families.json: small vocabularies trained here in the
configurations in which families publish theirs, texts, and the ids and texts that come out.

    pip install tokenizers==0.23.3 && python3 generate_families.py

"characters" is a tokenizer.json over characters with byte fallback (as SentencePiece's BPE becomes
one); its variants replace keys of it. "kimi" is one over bytes with the pattern of Kimi K2.
"""
import json
import pathlib
import random

from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers, trainers

HERE = pathlib.Path(__file__).parent

LETTERS = r"\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]"
WORD_END = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)?"
KIMI = "|".join([
    r"[\p{Han}]+",
    rf"[^\r\n\p{{L}}\p{{N}}]?[\p{{Lu}}\p{{Lt}}{LETTERS}]*[\p{{Ll}}{LETTERS}]+{WORD_END}",
    rf"[^\r\n\p{{L}}\p{{N}}]?[\p{{Lu}}\p{{Lt}}{LETTERS}]+[\p{{Ll}}{LETTERS}]*{WORD_END}",
    r"\p{N}{1,3}", r" ?[^\s\p{L}\p{N}]+[\r\n]*", r"\s*[\r\n]+", r"\s+(?!\S)", r"\s+"])

BITS = ["the", "Hello", "world", "helloWorld's", "I'LL", "foo_bar", "x=1", "()", "//", "\r\n", "\n",
        "\t", " ", "  ", "   ", "      ", "123", "1234", "3.14", "Ⅷ", "½", "٣", "日本語", "中文字符",
        "汉字ABC漢", "々〇〡⼀", "Привет", "مرحبا", "😀", "👨‍👩‍👧", "--", "...", "▁", "▁▁", "한국어", "ทดสอบ", "हिन्दी", "ÀÉÎ", "e\u0301",
        "\u00a0", "\u3000", "\u2028", "\u0000", "\x7f", "\ufeff", "\u200d", "\U00031350",
        "\U0002ebf0", "\U0002b739", "\U00016ff0", "\u17b4", "aaaa", "the the"]


# In texts, but not in what is trained on: no merge may make them.
MARKERS = ["[CALL]", " [/CALL]", "[CALL] ", "<0x0A>", "<s>", "</s>", "<unk>"]


def character(rng):
    code = rng.randrange(32, rng.choice([127, 0x250, 0x3100, 0x32000]))
    return chr(code) if not 0xD800 <= code < 0xE000 else "\ufffd"


def text(rng, bits=tuple(BITS)):
    return "".join(rng.choice(bits) if rng.random() < 0.7 else character(rng)
                   for _ in range(rng.choice([1, 2, 5, 9, 20])))


CORPUS = [text(random.Random(seed)) for seed in range(600)]


def train(tokenizer, **settings):
    tokenizer.train_from_iterator(CORPUS, trainers.BpeTrainer(show_progress=False, **settings))
    return json.loads(tokenizer.to_str())


def characters():
    tokenizer = Tokenizer(models.BPE(byte_fallback=True, fuse_unk=True, unk_token="<unk>"))
    tokenizer.normalizer = normalizers.Sequence([
        normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")])
    tokenizer.decoder = decoders.Sequence([
        decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse(),
        decoders.Strip(" ", 1, 0)])
    special = ["<unk>", "<s>", "</s>"] + [f"<0x{byte:02X}>" for byte in range(256)]
    data = train(tokenizer, vocab_size=620, special_tokens=special, limit_alphabet=90)
    data["added_tokens"] = data["added_tokens"][:3] + [
        {"id": len(data["model"]["vocab"]) + at, "content": content, "single_word": False,
         "lstrip": False, "rstrip": False, "normalized": False, "special": special}
        for at, (content, special) in enumerate([("[CALL]", True), ("[/CALL]", False)])]
    return data


def kimi():
    tokenizer = Tokenizer(models.BPE(ignore_merges=True))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    tokenizer.decoder = decoders.ByteLevel()
    data = json.loads(tokenizer.to_str())
    data["pre_tokenizer"] = {"type": "Sequence", "pretokenizers": [
        {"type": "Split", "pattern": {"Regex": KIMI}, "behavior": "Isolated", "invert": False},
        data["pre_tokenizer"]]}
    return train(Tokenizer.from_str(json.dumps(data)), vocab_size=480,
                 initial_alphabet=pre_tokenizers.ByteLevel.alphabet())


def metaspace(scheme, split):
    return {"normalizer": None, "pre_tokenizer": {
        "type": "Metaspace", "replacement": "▁", "prepend_scheme": scheme, "split": split}}


VARIANTS = [
    {"name": "Mixtral", "base": "characters", "set": {}},
    {"name": "Mixtral, Metaspace", "base": "characters", "set": metaspace("first", False)},
    {"name": "Metaspace, split", "base": "characters", "set": metaspace("always", True)},
    {"name": "Metaspace, never", "base": "characters", "set": metaspace("never", True)},
    {"name": "Gemma", "base": "characters", "set": {
        "normalizer": {"type": "Replace", "pattern": {"String": " "}, "content": "▁"},
        "pre_tokenizer": {"type": "Split", "pattern": {"String": " "},
                          "behavior": "MergedWithPrevious", "invert": False},
        "decoder": {"type": "Sequence", "decoders": [
            {"type": "Replace", "pattern": {"String": "▁"}, "content": " "},
            {"type": "ByteFallback"}, {"type": "Fuse"}]}}},
    {"name": "Kimi K2", "base": "kimi", "set": {}},
]


def main():
    rng = random.Random(7)
    bases = {"characters": characters(), "kimi": kimi()}
    out = {"bases": bases, "variants": []}
    for variant in VARIANTS:
        tokenizer = Tokenizer.from_str(json.dumps(bases[variant["base"]] | variant["set"]))
        samples = []
        for _ in range(80):
            sample = text(rng, (*BITS, *MARKERS))
            ids = tokenizer.encode(sample, add_special_tokens=False).ids
            samples.append([sample, ids, tokenizer.decode(ids, skip_special_tokens=False)])
        out["variants"].append(variant | {"samples": samples})
    (HERE / "families.json").write_text(
        json.dumps(out, ensure_ascii=False, separators=(",", ":")) + "\n")


main()
