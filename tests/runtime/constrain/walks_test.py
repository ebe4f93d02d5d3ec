#!/usr/bin/env python3
"""Texts drawn under constraints satisfy their schemas, as the package jsonschema says."""

import argparse
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "serve"))
from test_packages import require  # noqa: E402

require("jsonschema")
import jsonschema  # noqa: E402


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--program", required=True, help="constrain_test")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "walks.jsonl")
        subprocess.run([arguments.program, "--gtest_filter=SchemaGrammar.WalksAreValid"], check=True,
                       stdout=subprocess.DEVNULL, env={**os.environ, "MOEPACK_CONSTRAIN_WALKS": path})
        with open(path, encoding="utf-8") as file:
            walks = [json.loads(line) for line in file]
    wrong = [walk for walk in walks
             if not jsonschema.Draft202012Validator(walk["schema"]).is_valid(json.loads(walk["text"]))]
    for walk in wrong[:5]:
        print("not valid:", walk["text"], "by", json.dumps(walk["schema"]))
    print(len(walks), "texts,", len(wrong), "not valid")
    return 1 if wrong or len(walks) < 1000 else 0


if __name__ == "__main__":
    sys.exit(main())
