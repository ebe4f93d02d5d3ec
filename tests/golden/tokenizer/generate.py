#!/usr/bin/env python3
"""Asks HuggingFace's `tokenizers` for the golden data beside this script.

    pip install tokenizers==0.23.3 && python3 generate.py

repeated.json  one unit many times, and the number and the CRC-32 of the ids
variants.json  changes to ../demo-moe-mlx-4bit/tokenizer.json, texts, and the ids that come out
splits.json    patterns and the pieces they cut texts into
sweeps.json    the same for every code point there is, as one CRC-32 per 4096 code points
"""
import copy
import json
import pathlib
import random
import zlib

import tokenizers
from tokenizers import Regex, Tokenizer, normalizers, pre_tokenizers

HERE = pathlib.Path(__file__).parent
BASE = json.loads((HERE / "../demo-moe-mlx-4bit/tokenizer.json").read_text())

QWEN35 = BASE["pre_tokenizer"]["pretokenizers"][0]["pattern"]["Regex"]
QWEN2 = QWEN35.replace(r"[\p{L}\p{M}]+", r"\p{L}+").replace(r"\p{M}", "")
LLAMA3 = QWEN2.replace(r"\p{N}|", r"\p{N}{1,3}|", 1)
WORD_END = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)?"
UPPER, LOWER = r"[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]", r"[\p{Ll}\p{Lm}\p{Lo}\p{M}]"
O200K = "|".join([
    rf"[^\r\n\p{{L}}\p{{N}}]?{UPPER}*{LOWER}+{WORD_END}",
    rf"[^\r\n\p{{L}}\p{{N}}]?{UPPER}+{LOWER}*{WORD_END}",
    r"\p{N}{1,3}", r" ?[^\s\p{L}\p{N}]+[\r\n/]*", r"\s*[\r\n]+", r"\s+(?!\S)", r"\s+"])
DEEPSEEK3 = "|".join([
    r"""[!"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+""",
    r"[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+", r" ?[\p{P}\p{S}]+[\r\n]*",
    r"\s*[\r\n]+", r"\s+(?!\S)", r"\s+"])
GPT2 = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"

BEHAVIORS = {"Isolated": "isolated", "Removed": "removed", "Contiguous": "contiguous",
             "MergedWithPrevious": "merged_with_previous", "MergedWithNext": "merged_with_next"}


def split(pattern, behavior="Isolated", invert=False, kind="Regex"):
    return {"type": "Split", "pattern": {kind: pattern}, "behavior": behavior, "invert": invert}


def byte_level(prefix=False, use_regex=False):
    return {"type": "ByteLevel", "add_prefix_space": prefix, "trim_offsets": True,
            "use_regex": use_regex}


def sequence(*steps):
    return {"type": "Sequence", "pretokenizers": list(steps)}


def added(content, **flags):
    return {"content": content, "single_word": False, "lstrip": False, "rstrip": False,
            "normalized": False, "special": False} | flags


VARIANTS = [
    {"name": "as it is"},
    {"name": "Qwen2, merges as strings", "string_merges": True,
     "set": {"pre_tokenizer": sequence(split(QWEN2), byte_level())}},
    {"name": "ignore_merges, no normalizer", "ignore_merges": True,
     "vocab": ["Ġzzqx", "helloworld", "Ġthezz", "qzqz", "1234"],
     "set": {"normalizer": None, "pre_tokenizer": sequence(split(LLAMA3), byte_level())}},
    {"name": "GPT-4o", "set": {"pre_tokenizer": sequence(split(O200K), byte_level())}},
    {"name": "GPT-4o, everything else removed",
     "set": {"pre_tokenizer": sequence(split(O200K, "Removed", True), byte_level())}},
    {"name": "DeepSeek-V3", "set": {
        "normalizer": {"type": "Sequence", "normalizers": []},
        "pre_tokenizer": sequence(split(r"\p{N}{1,3}"), split("[一-龥぀-ゟ゠-ヿ]+"),
                                  split(DEEPSEEK3), byte_level())}},
    {"name": "digits, line ends", "set": {"pre_tokenizer": sequence(
        split("[\r\n]"), split(r"\s?[A-Za-zµÀ-ÖØ-öø-ƺ]+"), split(r"\s+$"),
        {"type": "Digits", "individual_digits": True}, byte_level())}},
    {"name": "digits together", "set": {"pre_tokenizer": sequence(
        {"type": "Digits", "individual_digits": False}, byte_level())}},
    {"name": "GPT-2", "set": {"pre_tokenizer": byte_level(use_regex=True)}},
    {"name": "GPT-2 with a space before", "set": {
        "normalizer": None, "pre_tokenizer": byte_level(True, True)}},
    {"name": "a space before each piece",
     "set": {"pre_tokenizer": sequence(split(QWEN2), byte_level(True))}},
    {"name": "no pattern", "set": {"pre_tokenizer": byte_level()}},
    {"name": "literal split", "set": {"pre_tokenizer": sequence(
        split(" ", "MergedWithNext", kind="String"), split("a.b(", kind="String"), byte_level())}},
    {"name": "added tokens", "added": [
        added("<L>", lstrip=True), added("<R>", rstrip=True), added("word", single_word=True),
        added("<LR>", lstrip=True, rstrip=True, special=True), added("é1"),
        added("<RW>", rstrip=True, single_word=True), added("nörm", normalized=True),
        added("de\u0301c", normalized=True), added("word2", normalized=True, single_word=True),
        added("<NL>", normalized=True, lstrip=True), added("abc"), added("abcd"),
        added("bcdef"), added("<｜fim▁hole｜>", special=True), added("a b"),
        added("the", normalized=True, single_word=True)]},
    {"name": "added white space", "added": [
        added("<R>", rstrip=True), added("\n"), added("  ")]},
]
for name in BEHAVIORS:
    for flag in (False, True):
        VARIANTS.append({"name": f"{name} {flag}", "set": {"pre_tokenizer": sequence(
            split(r"\s|\p{P}", name, flag), byte_level())}})


def apply(variant):
    """The tokenizer.json of a variant; the C++ test does the same."""
    data = copy.deepcopy(BASE)
    data.update(variant.get("set", {}))
    model = data["model"]
    if variant.get("string_merges"):
        model["merges"] = [" ".join(pair) for pair in model["merges"]]
    model["ignore_merges"] = variant.get("ignore_merges", False)
    size = len(model["vocab"]) + len(data["added_tokens"])
    for offset, token in enumerate(variant.get("vocab", [])):
        model["vocab"][token] = size + offset
    size += len(variant.get("vocab", []))
    for token in variant.get("added", []):
        known = model["vocab"].get(token["content"])
        data["added_tokens"].append({"id": size if known is None else known} | token)
        size += known is None
    return data


def load(variant):
    """The library numbers added tokens behind the vocabulary; ours keeps the file's ids."""
    data = apply(variant)
    if "vocab" not in variant:
        return Tokenizer.from_str(json.dumps(data)), {}
    order = sorted(data["added_tokens"], key=lambda token: token["id"])
    free = len(data["model"]["vocab"])
    ids = {old: new for new, old in enumerate(sorted(data["model"]["vocab"].values()))}
    for token in order:
        ids[token["id"]] = free
        free += 1
    back = {new: old for old, new in ids.items()}
    for token in data["model"]["vocab"]:
        data["model"]["vocab"][token] = ids[data["model"]["vocab"][token]]
    for token in data["added_tokens"]:
        token["id"] = ids[token["id"]]
    return Tokenizer.from_str(json.dumps(data)), back


SPACE = [chr(c) for c in [*range(9, 14), 0x20, 0x85, 0xA0, 0x1680, *range(0x2000, 0x200B), 0x2028,
                          0x2029, 0x202F, 0x205F, 0x3000]]
ODD = [chr(c) for c in (0x180E, 0x200B, 0x200C, 0x200D, 0x2060, 0xFEFF, 0x1C, 0x1F, 0, 0x7F, 0xAD,
                        0x17F, 0x212A, 0x130, 0x131, 0xDF, 0xFB06, 0x345, 0x24B6, 0x1F130)]
SHORT = ["'s", "'T", "'re", "'Ve", "'m", "'LL", "'d", "'\u017f", "\u2019s", "'", "'l", "'r"]
MARKS = [chr(c) for c in [*range(0x300, 0x330), 0x5B4, 0x64B, 0x93C, 0x94D, 0x9BE, 0x1161, 0x11A8,
                          0x3099, 0x20DD, 0x897, 0x8D3, 0x1ABF, 0x1D165, 0x11930, 0x1171E]]
COMPOSED = ["é", "\u212b", "\u1e9b\u0323", "\u0958", "한", "각", "\u1100", "\u2126", "\uf900",
            "\U0002f800", "\ufb1d", "が", "か", "\u0344", "ṩ"]
BITS = ["the", "Hello", "world", "helloworld", "foo_bar", "x=1", "()", "{}", "//", "\r\n", "\n",
        "\n\n", "\t", "  ", "   ", "123", "1234", "3.14", "Ⅷ", "½", "٣", "日本語", "Привет", "مرحبا",
        "😀", "👨‍👩‍👧‍👦", "🇩🇪", "_", "--", "...", "a.b(", "<|im_start|>", "<think>", "</think>",
        "<|im_", "<tool_", "|>", "<|endoftext|><|endoftext|>", "word", "word2", "nörm"]


def character(rng):
    kind = rng.random()
    if kind < 0.3:
        return chr(rng.randrange(32, 127))
    if kind < 0.75:
        return rng.choice(rng.choice([SPACE, SPACE, MARKS, ODD, COMPOSED]))
    while True:
        code = rng.randrange(0x80, 0x3000 if kind < 0.9 else 0x32000)
        if not 0xD800 <= code < 0xE000:
            return chr(code)


def text(rng, contents):
    out = []
    for _ in range(rng.choice([1, 3, 5, 8, 13])):
        kind = rng.random()
        if kind < 0.4:
            out.append(character(rng))
        elif kind < 0.75:
            out.append(rng.choice(rng.choice([BITS, BITS, SHORT])))
        elif kind < 0.85:
            out.append(rng.choice(SPACE) * rng.randrange(1, 4))
        elif contents:
            out.append(rng.choice(contents))
    return "".join(out)


def make_variants():
    rng = random.Random(2)
    out = []
    for variant in VARIANTS:
        tokenizer, back = load(variant)
        contents = [token["content"] for token in variant.get("added", [])]
        contents += variant.get("vocab", [])
        samples = []
        for _ in range(48):
            sample = text(rng, contents)
            ids = tokenizer.encode(sample, add_special_tokens=False).ids
            samples.append([sample, [back.get(i, i) for i in ids]])
        out.append(variant | {"samples": samples})
    return out


# Units repeated into texts too long to be listed: the number of ids and their CRC-32 as int32.
REPEATED = [["a", 1000003], [" ", 1000003], ["ab", 250001], ["\n", 300001], ["e\u0301", 200001],
            ["<|im_end|>", 50001], ["日", 300001], ["9", 200001], ["a\u0327\u0301", 100001],
            ["The quick brown fox's 12 jumps, \r\n", 30001]]


def make_repeated():
    tokenizer = Tokenizer.from_str(json.dumps(BASE))
    out = []
    for unit, count in REPEATED:
        ids = tokenizer.encode(unit * count, add_special_tokens=False).ids
        crc = zlib.crc32(b"".join(i.to_bytes(4, "little") for i in ids))
        out.append({"unit": unit, "count": count, "ids": len(ids), "crc": crc})
    return out


PATTERNS = [QWEN35, QWEN2, LLAMA3, O200K, DEEPSEEK3, GPT2, r"\s+$", r"(?<=\d)\.|[\w]+|\W", r"^.*$",
            r"(?>a+|b)b|(?:ab)*+c?", r"\S{2,3}?|\p{^L}", r"(?i:[sdmt]|ll|ve)",
            r"[^\S\n]+|[\x{4E00}-\x{9FFF}]{,2}", r"(?>.+e|1)\w"]


def pieces(pattern, behavior, invert, sample):
    step = pre_tokenizers.Split(Regex(pattern), BEHAVIORS[behavior], invert)
    return [len(sample[a:b].encode()) for _, (a, b) in step.pre_tokenize_str(sample)]


def make_splits():
    rng = random.Random(3)
    out = []
    for pattern in PATTERNS:
        for behavior in ["Isolated", "Contiguous"]:
            samples = []
            for _ in range(40):
                sample = "".join(rng.choice("ab1 .eslEx'\n") for _ in range(rng.randrange(12)))
                sample += text(rng, [])
                samples.append([sample, pieces(pattern, behavior, False, sample)])
            out.append({"pattern": pattern, "behavior": behavior, "samples": samples})
    return out


def sweep(encode):
    """CRC-32 of encode(character) over blocks of 4096 code points."""
    out = []
    for block in range(0, 0x110000, 0x1000):
        crc = 0
        for code in range(block, block + 0x1000):
            if not 0xD800 <= code < 0xE000:
                crc = zlib.crc32(encode(chr(code)), crc)
        out.append(crc)
    return out


def make_sweeps():
    out = {"splits": [], "nfc": sweep(lambda c: normalizers.NFC().normalize_str(
        f"a\u0345{c}e{c}\u0301\u0323 \u1100{c}\u11a8").encode())}
    for pattern in [QWEN35, O200K, DEEPSEEK3]:
        step = pre_tokenizers.Split(Regex(pattern), "isolated")

        def lengths(c, step=step):
            sample = f"ab{c}cd {c} 1{c}\n{c}{c}'{c}"
            return bytes(len(piece.encode()) for piece, _ in step.pre_tokenize_str(sample))

        out["splits"].append({"pattern": pattern, "crc": sweep(lengths)})
    words = Tokenizer.from_str(json.dumps(apply({"added": [added("ZQ", single_word=True)]})))
    zq = len(BASE["model"]["vocab"]) + len(BASE["added_tokens"])
    out["single_word"] = sweep(lambda c: bytes([zq in words.encode(c + "ZQ").ids]))
    return out


def write(name, value):
    (HERE / name).write_text(json.dumps(value, ensure_ascii=False, separators=(",", ":")) + "\n")


write("variants.json", make_variants())
write("repeated.json", make_repeated())
write("splits.json", make_splits())
write("sweeps.json", make_sweeps())
write("provenance.json", {
    "package": "tokenizers", "version": tokenizers.__version__, "from": "https://pypi.org",
    "how": "generate.py", "base": "tests/golden/demo-moe-mlx-4bit/tokenizer.json"})
