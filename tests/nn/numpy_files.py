#!/usr/bin/env python3
"""Writes numpy.npz and numpy_deflated.npz: files as NumPy itself makes them, for npy_test.cpp to read.

usage: tests/nn/numpy_files.py FOLDER   (made with numpy 2.4.6)

For every dtype that lazuli reads: `DTYPE`, 2x3 in C order, and `DTYPE_f`, the same in Fortran order; beside them a scalar,
an empty array, and the format's versions 2 and 3.
"""
import io
import pathlib
import sys
import zipfile

import numpy as np

FOLDER = pathlib.Path(sys.argv[1])
DTYPES = "bool int8 int16 int32 int64 uint8 uint16 uint32 uint64 float16 float32 float64".split()

arrays = {}
for name in DTYPES:
    dtype = np.dtype(name)
    a = np.array([[0, 1, 2], [3, 4, 5]]).astype(dtype)
    if dtype.kind == "i":
        a[0, 0], a[0, 1] = np.iinfo(dtype).min, -1
    if dtype.kind == "u":
        a[0, 0] = np.iinfo(dtype).max
    if dtype.kind == "f":
        a[0] = -0.5, np.inf, np.finfo(dtype).smallest_subnormal
    arrays[name], arrays[name + "_f"] = a, np.asfortranarray(a)
arrays["scalar"] = np.float32(2.5)
arrays["empty"] = np.zeros((2, 0, 3), np.int16)


def write(path, method):
    with zipfile.ZipFile(path, "w", method) as archive:
        def add(name, array, version=None):
            data = io.BytesIO()
            np.lib.format.write_array(data, np.asanyarray(array), version)
            info = zipfile.ZipInfo(name + ".npy", (1980, 1, 1, 0, 0, 0))
            info.compress_type = method
            with archive.open(info, "w", force_zip64=True) as member:
                member.write(data.getvalue())
        for name, array in arrays.items():
            add(name, array)
        add("version2", np.arange(3, dtype="<i2"), (2, 0))
        add("version3", np.arange(3, dtype="<i2"), (3, 0))


write(FOLDER / "numpy.npz", zipfile.ZIP_STORED)
write(FOLDER / "numpy_deflated.npz", zipfile.ZIP_DEFLATED)
