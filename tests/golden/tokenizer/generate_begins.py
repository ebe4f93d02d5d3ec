#!/usr/bin/env python3
"""Asks HuggingFace's `tokenizers` what stands before texts.

    pip install tokenizers==0.23.3 && python3 generate_begins.py

begins.json    post-processors of ../demo-moe-mlx-4bit/tokenizer.json, texts, and their ids with
               what the post-processor puts before them
"""
import json
import pathlib

from tokenizers import Tokenizer

HERE = pathlib.Path(__file__).parent
BASE = json.loads((HERE / "../demo-moe-mlx-4bit/tokenizer.json").read_text())
ADDED = {token["content"]: token["id"] for token in BASE["added_tokens"]}
START, END = "<|im_start|>", "<|im_end|>"
BYTE_LEVEL = {"type": "ByteLevel", "add_prefix_space": True, "trim_offsets": False,
              "use_regex": True}


def template(*before):
    single = [{"SpecialToken": {"id": token, "type_id": 0}} for token in before]
    single.append({"Sequence": {"id": "A", "type_id": 0}})
    return {"type": "TemplateProcessing", "single": single,
            "pair": single + [{"Sequence": {"id": "B", "type_id": 1}}],
            "special_tokens": {token: {"id": token, "ids": [ADDED[token]], "tokens": [token]}
                               for token in before}}


def sequence(*processors):
    return {"type": "Sequence", "processors": list(processors)}


CASES = {"none": None, "bytes": BYTE_LEVEL, "one token": template(START),
         "two tokens": template(START, END), "a template without a token": template(),
         "in a sequence": sequence(BYTE_LEVEL, template(START)),
         "two templates": sequence(template(START), BYTE_LEVEL, template(END))}
TEXTS = ["", "Hello world", " a\n", "é<|im_end|>x"]


def main():
    cases = []
    for name, processor in CASES.items():
        tokenizer = Tokenizer.from_str(json.dumps(BASE | {"post_processor": processor}))
        samples = [[text, tokenizer.encode(text).ids] for text in TEXTS]
        cases.append({"name": name, "post_processor": processor, "samples": samples})
    lines = ",\n".join(json.dumps(case, ensure_ascii=False) for case in cases)
    (HERE / "begins.json").write_text(f"[\n{lines}\n]\n")


if __name__ == "__main__":
    main()
