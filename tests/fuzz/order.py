#!/usr/bin/env python3
"""Writes order.jsonl: random programs of assignments, slices and reads, with what NumPy reads.

pip install numpy
python3 tests/fuzz/order.py            # writes the file; deterministic
python3 tests/fuzz/order.py --check    # only compares with the file there

The first line has the seed, the version and the number of programs; each other line is a program, a list of statements
that order_numpy_test.cpp runs:

  ["array", to, dtype, shape, data]     a new array
  ["alias", to, a]                      another name of the same array
  ["part", to, a, index]                a copy of a[index]
  ["view", to, a, how, numbers]         a copy of a, transposed, reshaped, flipped or expanded
  ["add" | "sub" | "max", to, a, b]     a new array
  ["iadd" | "isub", a, b]               a += b; b is a name or a number
  ["assign", a, b]                      a[...] = b
  ["set", a, index, b]                  a[index] = b
  ["realize", names]                    for NumPy nothing
  ["read", a, shape, data]              what a is then

An index is a list of numbers, {"slice": [begin, end, step]}, "new", "...", {"list": nested list} and {"mask": nested list}.
A part of an array is a value of its own in lazuli, and what is assigned is what it was before: hence the copies.
"""

import argparse
import json
import pathlib
import sys

import numpy as np

SEED = 20260801
PROGRAMS = 300
BOUND = 10**6


class Program:
    def __init__(self, random):
        self.random = random
        self.arrays = {}
        self.rows = []

    def below(self, n):
        return int(self.random.integers(n))

    def between(self, low, high):
        return int(self.random.integers(low, high + 1))

    def chance(self, one_in):
        return self.below(one_in) == 0

    def any(self):
        names = sorted(self.arrays)
        return names[self.below(len(names))]

    def name(self):
        free = [n for n in "abcdef" if n not in self.arrays]
        return free[0] if free else "abcdef"[self.below(6)]

    def new(self, shape=None, dtype=None):
        shape = [self.between(1, 4) for _ in range(self.below(4))] if shape is None else shape
        dtype = dtype or ("i64", "f64", "i32")[self.below(3)]
        data = [self.between(-9, 9) for _ in range(int(np.prod(shape)))]
        to = self.name()
        self.rows.append(["array", to, dtype, shape, data])
        numpy_type = {"i64": np.int64, "f64": np.float64, "i32": np.int32}[dtype]
        self.arrays[to] = np.array(data, dtype=numpy_type).reshape(shape)

    def index(self, shape):
        """As JSON, and as NumPy takes it."""
        rows, items = [], []
        k, advanced = 0, 0
        stop = max(self.below(len(shape) + 1), self.below(len(shape) + 1))
        broadcast = self.between(1, 3)
        rest = False
        while k < stop:
            n, kind = shape[k], self.below(9)
            if kind == 0:
                rows.append("new")
                items.append(None)
                continue
            if kind == 1 and not rest:
                # For some of the axes; all behind it are named.
                rest, stop = True, len(shape)
                rows.append("...")
                items.append(Ellipsis)
                k += self.below(stop - k + 1)
                continue
            if n > 0 and kind in (2, 3):
                i = self.between(-n, n - 1)
                rows.append(i)
                items.append(i)
            elif n > 0 and (kind == 4 or (kind == 5 and advanced)):
                advanced += 1
                size = (broadcast,) if self.chance(2) else (self.between(1, 2), broadcast)
                if self.chance(4):
                    size = (1,)
                places = self.random.integers(-n, n, size)
                rows.append({"list": places.tolist()})
                items.append(places)
            elif kind == 5 and not advanced:
                advanced += 1
                mask = self.random.integers(0, 2, n).astype(bool)
                rows.append({"mask": mask.tolist()})
                items.append(mask)
                broadcast = int(mask.sum())
            else:
                begin = self.between(-n - 1, n + 1) if self.chance(2) else None
                end = self.between(-n - 1, n + 1) if self.chance(2) else None
                step = (1, 2, -1, -2)[self.below(4)]
                rows.append({"slice": [begin, end, step]})
                items.append(slice(begin, end, step))
            k += 1
        return rows, tuple(items)

    def part(self, a):
        """An index that NumPy takes."""
        while True:
            rows, items = self.index(a.shape)
            try:
                return rows, items, np.array(a[items])
            except IndexError:
                pass

    def fitting(self, shape):
        def fits(b):
            try:
                return np.broadcast_shapes(b.shape, shape) == tuple(shape)
            except ValueError:
                return False

        return [n for n in sorted(self.arrays) if fits(self.arrays[n])]

    def operand(self, shape, dtype):
        """A name or a number that may be written there."""
        names = [n for n in self.fitting(shape) if np.can_cast(self.arrays[n].dtype, dtype, "same_kind")]
        if not names or self.chance(4):
            return self.between(-9, 9)
        return names[self.below(len(names))]

    def value(self, b):
        return self.arrays[b].copy() if isinstance(b, str) else b

    def small(self, *arrays):
        """Room to add without leaving what every dtype holds exactly."""
        return all(np.size(a) == 0 or np.abs(a).max() < BOUND for a in arrays)

    def read(self, a):
        array = self.arrays[a]
        self.rows.append(["read", a, list(array.shape), [int(v) for v in array.ravel()]])

    def step(self):
        kind = self.below(18)
        if kind == 0:
            return self.new()
        a = self.any()
        array = self.arrays[a]
        if kind in (1, 2):
            to = self.name()
            self.rows.append(["alias", to, a])
            self.arrays[to] = array
        elif kind in (3, 4):
            rows, _, part = self.part(array)
            to = self.name()
            self.rows.append(["part", to, a, rows])
            self.arrays[to] = part
        elif kind == 5:
            self.view(a, array)
        elif kind in (6, 7):
            names = self.fitting(array.shape)
            b = names[self.below(len(names))]
            how = ("add", "sub", "max")[self.below(3)]
            if not self.small(array, self.arrays[b]):
                return None
            to = self.name()
            self.rows.append([how, to, a, b])
            function = {"add": np.add, "sub": np.subtract, "max": np.maximum}[how]
            self.arrays[to] = np.array(function(array, self.arrays[b]))
        elif kind in (8, 9):
            b = self.operand(array.shape, array.dtype)
            if not self.small(array, self.value(b)):
                return None
            how = ("iadd", "isub")[self.below(2)]
            self.rows.append([how, a, b])
            function = np.add if how == "iadd" else np.subtract
            array[...] = function(array, self.value(b))
        elif kind == 10:
            b = self.operand(array.shape, array.dtype)
            self.rows.append(["assign", a, b])
            array[...] = self.value(b)
        elif kind in (11, 12, 13):
            rows, items, part = self.part(array)
            b = self.operand(part.shape, array.dtype)
            self.rows.append(["set", a, rows, b])
            array[items] = self.value(b)
        elif kind == 14:
            # A part of an array onto a part that it overlaps.
            if array.ndim == 0 or array.shape[0] < 2:
                return None
            by = self.between(1, array.shape[0] - 1)
            to = self.name()
            if to == a:
                return None
            self.rows.append(["part", to, a, [{"slice": [None, -by, 1]}]])
            part = np.array(array[:-by])
            self.rows.append(["set", a, [{"slice": [by, None, 1]}], to])
            array[by:] = part
            self.arrays[to] = part
        elif kind in (15, 16):
            self.rows.append(["realize", sorted({self.any() for _ in range(self.between(1, 3))})])
        else:
            self.read(a)
        return None

    def view(self, a, array):
        how = ("transpose", "reshape", "flip", "expand")[self.below(4)]
        if how == "transpose":
            numbers = [int(i) for i in self.random.permutation(array.ndim)]
            made = array.transpose(numbers)
        elif how == "reshape":
            numbers = [int(array.size)] if self.chance(2) else list(array.shape[::-1])
            made = array.reshape(numbers)
        elif how == "flip":
            numbers = [i for i in range(array.ndim) if self.chance(2)]
            made = np.flip(array, numbers) if numbers else array
        else:
            numbers = [self.between(1, 3)] + list(array.shape)
            made = np.broadcast_to(array, numbers)
        if made.size > 200:
            return
        to = self.name()
        self.rows.append(["view", to, a, how, numbers])
        self.arrays[to] = np.array(made)


def program(random):
    p = Program(random)
    p.new(shape=[4, 3], dtype="i64")
    p.new()
    for _ in range(p.between(5, 25)):
        p.step()
    for name in sorted(p.arrays):
        p.read(name)
    return p.rows


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true", help="compare with the file there; exit 1 if it differs")
    options = parser.parse_args()
    random = np.random.default_rng(SEED)
    lines = [{"seed": SEED, "numpy": np.__version__, "programs": PROGRAMS}]
    lines += [program(random) for _ in range(PROGRAMS)]
    text = "".join(json.dumps(line, separators=(",", ":"), allow_nan=False) + "\n" for line in lines)
    path = pathlib.Path(__file__).parent / "order.jsonl"
    if not options.check:
        path.write_text(text)
    elif not path.exists() or path.read_text() != text:
        sys.exit(f"{path.name} differs")
    print(f"{PROGRAMS} programs, {len(text)} bytes")


if __name__ == "__main__":
    main()
