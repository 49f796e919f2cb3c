#!/usr/bin/env python3
"""Writes vectors/*.jsonl, the expected values that replay_test.cpp compares with. Deterministic; prints the counts per op.

pip install torch numpy jax expecttest
python3 tests/conformance/generate.py            # all files
python3 tests/conformance/generate.py --check    # only compares with the files there
"""

import argparse
import collections
import json
import os
import pathlib
import sys
import warnings

if os.environ.get("PYTHONHASHSEED") != "0":  # some samples come from sets of strings
    os.execve(sys.executable, [sys.executable, *sys.argv], {**os.environ, "PYTHONHASHSEED": "0"})
os.environ.setdefault("JAX_PLATFORMS", "cpu")
os.environ.setdefault("CUDA_VISIBLE_DEVICES", "")
warnings.filterwarnings("ignore")

import jax
import numpy as np
import torch

import cases_elementwise
import cases_gradients
import cases_movement
import cases_nn
import cases_random
import cases_reduce
import opinfo
from book import SEED, Book

HAND_WRITTEN = [
    cases_elementwise.unary,
    cases_elementwise.activations,
    cases_elementwise.binary,
    cases_elementwise.promotion,
    cases_elementwise.casting,
    cases_movement.creation,
    cases_movement.movement,
    cases_movement.indexing,
    cases_reduce.reduce,
    cases_reduce.scan_sort,
    cases_nn.matmul,
    cases_nn.conv,
    cases_nn.nn,
    cases_nn.loss,
    cases_gradients.gradients,
    cases_gradients.transforms,
    cases_random.random,
]


def header(count):
    versions = {"torch": torch.__version__, "numpy": np.__version__, "jax": jax.__version__}
    return {"seed": SEED, "versions": versions, "vectors": count}


def render(lines):
    rows = [header(len(lines)), *lines]
    return "".join(json.dumps(row, separators=(",", ":"), allow_nan=False) + "\n" for row in rows)


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--check", action="store_true", help="compare with the files there; exit 1 if they differ"
    )
    parser.add_argument(
        "--rejected", action="store_true", help="also print the samples that make no vector, and why"
    )
    options = parser.parse_args()
    torch.set_num_threads(1)

    book = Book()
    for table in HAND_WRITTEN:
        table(book)
    hand_written = sum(len(lines) for lines in book.groups.values())
    opinfo.add_all(book)

    folder = pathlib.Path(__file__).parent / "vectors"
    folder.mkdir(exist_ok=True)
    differing = []
    for group, lines in sorted(book.groups.items()):
        text, path = render(lines), folder / f"{group}.jsonl"
        if options.check:
            if not path.exists() or path.read_text() != text:
                differing.append(path.name)
        else:
            path.write_text(text)
        counts = collections.Counter(line["op"] for line in lines)
        print(
            f"{group}: {len(lines)} vectors, {len(text)} bytes: "
            + ", ".join(f"{op} {n}" for op, n in sorted(counts.items()))
        )
    total = sum(len(lines) for lines in book.groups.values())
    print(f"{total} vectors: {hand_written} from tables, {total - hand_written} from op_db")
    if options.rejected:
        for name, reason in book.rejected:
            print(f"rejected: {name}: {reason}")
    if differing:
        sys.exit(f"differ from the files: {', '.join(differing)}")


if __name__ == "__main__":
    main()
