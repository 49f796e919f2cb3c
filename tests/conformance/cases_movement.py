"""Hand-written cases: creation, movement, indexing."""

import math
import re

import numpy as np

import notation

INF, NAN = math.inf, math.nan


def creation(book):
    for text in """zeros([2, 3]); zeros([]); zeros([0, 3]); zeros(2, 3); zeros([3], dtype=i32); ones([2]); ones([2, 2], dtype=bf16)
            ones([3], dtype=bool); full([2, 2], 3); full([2], 2.5); full([3], true); full([2], 7, dtype=f16); full([], -1.5)
            full([2], inf); full([2], nan); arange(5); arange(2, 7); arange(1, 10, 3); arange(0, 1, 0.25); arange(5, 0, -2)
            arange(5.0); arange(4, dtype=f32); arange(10, dtype=i32); arange(0); arange(3, 3); arange(-3, 3, 2, dtype=i8)
            arange(1.0, 2.0, 0.3); linspace(0, 1, 5); linspace(-2, 2, 4); linspace(3, 3, 2); linspace(0, 1, 1); linspace(5, -5, 11)
            linspace(0, 10, 0); linspace(0, 1, 3, dtype=f64); eye(3); eye(2, 4); eye(4, 2, dtype=i64); eye(0); eye(3, dtype=bool)
            tril_indices(3, 3); tril_indices(3, 4, 1); tril_indices(4, 3, -1); triu_indices(3, 3); triu_indices(3, 4, 1)
            triu_indices(4, 3, -2)""".replace("\n", ";").split(";"):
        text = text.strip()
        if text:
            book.add(
                "creation",
                text.split("(")[0],
                text,
                "ulp2" if text.startswith(("arange", "linspace")) else "exact",
            )
    for text in [
        "zeros_like(x:f32[2,3])",
        "ones_like(x:i32[2])",
        "full_like(x:f16[2], 1.5)",
        "full_like(x:i64[2], 3)",
        "zeros_like(x:f32[2], dtype=i8)",
        "ones_like(x:bool[3])",
        "full_like(x:f32[0,2], nan)",
    ]:
        book.add("creation", text.split("(")[0], text)
    for text in [
        "meshgrid(x:f32[2], y:f32[3], indexing=ij)",
        "meshgrid(x:f32[2], y:f32[3], indexing=xy)",
        "meshgrid(x:i32[2], y:i32[1], z:i32[3], indexing=ij)",
        "meshgrid(x:f32[2], y:f32[3])",
    ]:
        book.add("creation", "meshgrid", text)


MOVEMENT = """
    reshape(x:f32[2,6], [3,4]) | reshape(x:f32[2,6], [-1]) | reshape(x:f32[2,6], 4, -1)
    x:f32[2,6].reshape(3, 2, 2)
    reshape(x:f32[0,4], [2,0]) | reshape(x:f32[], [1,1]) | reshape(x:f32[1,1], [])
    reshape(x:f32[3,4].T, [2,6]) | view(x:f32[2,6], [12])
    x:f32[4].view(2, 2) | x:f32[2,3].flatten() | flatten(x:f32[2,3,4], 1) | flatten(x:f32[2,3,4], 0, 1)
    flatten(x:f32[])
    flatten(x:f32[2,3,4], start_dim=-2) | unflatten(x:f32[2,6], 1, [2,3]) | unflatten(x:f32[2,6], -1, [-1,2])
    unflatten(x:f32[4,3], 0, [2,2]) | expand(x:f32[3,1], [3,4]) | expand(x:f32[1,3], [-1,3])
    expand(x:f32[3], [2,3])
    expand(x:f32[3], 2, 3) | expand(x:f32[], [2,2]) | expand(x:f32[1], [0]) | permute(x:f32[2,3,4], [2,0,1])
    permute(x:f32[2,3,4], 0, 2, 1) | permute(x:f32[2,3,4], [-1,0,1]) | permute(x:f32[], [])
    transpose(x:f32[2,3,4], 0, 2)
    transpose(x:f32[2,3,4], -1, -2) | x:f32[2,3].T | x:f32[2,3,2].mT | x:f32[2,3].transpose(0, 1)
    squeeze(x:f32[1,3,1])
    squeeze(x:f32[1,3,1], 0) | squeeze(x:f32[1,3,1], 1) | squeeze(x:f32[1,3,1], -1)
    squeeze(x:f32[1,3,1], [0,2])
    unsqueeze(x:f32[3], 0) | unsqueeze(x:f32[3], 1) | unsqueeze(x:f32[3], -1) | unsqueeze(x:f32[], 0)
    unsqueeze(x:f32[2,3], -2)
    flip(x:f32[2,3], [0]) | flip(x:f32[2,3], [0,1]) | flip(x:f32[2,3], [-1]) | flip(x:i64[4], 0)
    flip(x:f32[0,3], [0]) | flip(x:f32[2,3], [])
    roll(x:f32[5], 2) | roll(x:f32[2,3], 1) | roll(x:f32[3,4], [1,-2], [0,1]) | roll(x:f32[3,4], -1, 0)
    roll(x:f32[3,4], 7, dims=1)
    roll(x:f32[5], shifts=-12) | repeat(x:f32[2,3], [2,1]) | repeat(x:f32[2,3], 2, 1, 2)
    repeat(x:f32[3], [2,2]) | repeat(x:f32[3], 0)
    repeat_interleave(x:f32[3], 2) | repeat_interleave(x:f32[2,3], 2, 1)
    repeat_interleave(x:f32[2,3], 3, dim=0)
    repeat_interleave(x:f32[2,2], 2) | cat([x:f32[2,3], y:f32[1,3]]) | cat([x:f32[2,3], y:f32[2,2]], 1)
    cat([x:f32[2,3], x], -1)
    cat([x:f32[0], y:f32[2,3]]) | cat([x:f32[0,3], y:f32[2,3]]) | cat([x:f32[2], y:f32[3], z:f32[1]], dim=0)
    cat([x:i32[2], y:f32[2]])
    stack([x:f32[2,3], y:f32[2,3]]) | stack([x:f32[2,3], y:f32[2,3]], 1)
    stack([x:f32[3], y:f32[3], z:f32[3]], -1) | stack([x:f32[]])
    split(x:f32[5,2], 2) | split(x:f32[2,5], [1,4], 1) | split(x:f32[5], 5) | split(x:f32[5], 7)
    split(x:f32[4,2], 2, dim=1)
    split(x:f32[5], [2,3])[1] | chunk(x:f32[5], 2) | chunk(x:f32[6,2], 4) | chunk(x:f32[2,5], 3, 1)
    chunk(x:f32[2], 5)
    diag(x:f32[3]) | diag(x:f32[3,3]) | diag(x:f32[2,4], 1) | diag(x:f32[3], -1) | diag(x:f32[4,2], -2)
    diagonal(x:f32[3,4])
    diagonal(x:f32[3,4], 1) | diagonal(x:f32[2,3,3], 0, 1, 2)
    diagonal(x:f32[2,3,4], offset=-1, dim1=0, dim2=2)
    diagonal(x:f32[3,3], 3) | tril(x:f32[3,4]) | tril(x:f32[3,4], 1) | tril(x:f32[2,3,3], -1)
    triu(x:f32[3,4]) | triu(x:f32[4,3], -1)
    triu(x:i32[3,3], diagonal=1) | unfold(x:f32[7], 0, 3, 2) | unfold(x:f32[2,6], 1, 2, 1)
    unfold(x:f32[6,2], 0, 6, 1)
    x:f32[7].unfold(0, 2, 3) | pad(x:f32[3], [1,2]) | pad(x:f32[2,3], [1,0,0,2]) | pad(x:f32[2,3], [-1,1])
    pad(x:f32[2,3], [-1,-1,1,0])
    pad(x:f32[2,3], [1,1], value=2.5) | pad(x:f32[3], [1,1], constant, -1.0) | pad(x:i32[3], [1,1], value=7)
    pad(x:bool[3], [1,0])
    pad(x:f32[1,4], [2,1], mode=reflect) | pad(x:f32[1,3,3], [1,1,2,0], mode=reflect)
    pad(x:f32[1,4], [2,3], mode=replicate)
    pad(x:f32[1,2,3], [1,1,2,0], mode=replicate) | pad(x:f32[1,4], [2,1], mode=circular)
    pad(x:f32[1,2,3], [1,2,1,0], mode=circular)
    pad(x:f32[0], [1,1]) | pad(x:f32[2,3], [0,0], value=1.0) | pad(x:f32[2], [1,1], value=inf)
    pixel_shuffle(x:f32[1,4,2,3], 2)
    pixel_shuffle(x:f32[9,1,2], 3) | pixel_unshuffle(x:f32[1,1,4,6], 2) | pixel_unshuffle(x:f32[2,4,2], 2)
    movedim(x:f32[2,3,4], 0, 2) | movedim(x:f32[2,3,4], [0,1], [1,2]) | tile(x:f32[2], [2,2])
    unbind(x:f32[2,3]) | unbind(x:f32[2,3], 1)
    swapaxes(x:f32[2,3], 0, 1) | moveaxis(x:f32[2,3,4], 0, -1) | concat([x:f32[2], y:f32[1]]) | t(x:f32[2,3])
    narrow(x:f32[4,3], 0, 1, 2) | select(x:f32[4,3], 1, -1)
    h = x:f32[3,4].T; h.reshape(2, 6).flip([1]).permute(1, 0) | pad(flip(x:f32[2,3], [1]), [1,0])[::2, 1:]
    x:f32[2,3].expand(2, 2, 3)[1].T
    reshape(expand(x:f32[2,1], [2,3]), [6]) | permute(reshape(x:f32[12], [2,2,3]), [2,1,0]).reshape(4, 3)
    flip(pad(x:f32[3], [0,2]), [0])[1:4]
"""


def movement(book):
    for text in [t.strip() for line in MOVEMENT.strip().splitlines() for t in line.split("|")]:
        op = text.split("(")[0].split(".")[-1].strip() if not text.startswith("h =") else "views"
        book.add("movement", op, text)
        if ":f32" in text and "[0" not in text:
            several = op in ("split", "chunk", "unbind") and text.endswith(")")
            book.grad(
                op,
                text,
                tol="rel" if re.search("expand|repeat|tile|pad|unfold|cat", text) else "equal",
                pick=0 if several else None,
            )
    _rearranged(book)


def _rearranged(book):
    """einops' notation for reshapes and transpositions; the reference is the same in NumPy."""
    x = np.arange(24, dtype=np.float32)
    for text, result in [
        ('rearrange(x:f32[2,3,4], "a b c -> c a b")', lambda a: a.transpose(2, 0, 1)),
        ('rearrange(x:f32[2,3,4], "a b c -> a (b c)")', lambda a: a.reshape(2, 12)),
        ('rearrange(x:f32[2,3,4], "a b c -> (c b) a")', lambda a: a.transpose(2, 1, 0).reshape(12, 2)),
        ('rearrange(x:f32[4,6], "(a b) c -> b a c", a=2)', lambda a: a.reshape(2, 2, 6).transpose(1, 0, 2)),
        ('rearrange(x:f32[2,12], "b (h w) -> b w h", h=3)', lambda a: a.reshape(2, 3, 4).transpose(0, 2, 1)),
        ('rearrange(x:f32[2,3,4], "a ... -> ... a")', lambda a: np.moveaxis(a, 0, -1)),
        ('rearrange(x:f32[24], "n -> n 1")', lambda a: a.reshape(24, 1)),
    ]:
        data = {"x": x.reshape(notation.declarations(text)["x"][1])}
        book.given(
            "movement",
            "rearrange",
            text,
            "exact",
            data,
            [(np.ascontiguousarray(result(data["x"])), "f32")],
            "numpy",
        )


# Indexing that PyTorch has.
INDEXING = """
    x:f32[4,3][1] | x:f32[4,3][-1] | x:f32[4,3][1, 2] | x:f32[4,3][1:3] | x:f32[4,3][:, 1]
    x:f32[4,3][::2, 1:] | x:f32[4,3][-2:]
    x:f32[4,3][:-1] | x:f32[4,3][10:] | x:f32[4,3][-10:10] | x:f32[4,3][2:1] | x:f32[4,3][None]
    x:f32[4,3][:, None, 0] | x:f32[4,3][..., 0]
    x:f32[2,3,4][..., None, 1] | x:f32[2,3,4][0, ..., 1] | x:f32[2,3,4][:, 1:, ::3] | x:f32[2,3,4][...]
    x:f32[7][1:6:2] | x:f32[7][::3]
    x:f32[][None] | x:f32[][...] | x:f32[0,3][:, 1] | x:f32[4,3][1:3][:, 0] | x:f32[5,5][1:4, 1:4][1]
    x:f32[4,3][i:i64[2]] | x:f32[4,3][:, i:i64[2]] | x:f32[4,3][i:i64[2], j:i64[2]]
    x:f32[4,3][i:i64[2,1], j:i64[2]]
    x:f32[2,3,4][:, i:i64[2], j:i64[2]] | x:f32[2,3,4][i:i64[2], :, j:i64[2]]
    x:f32[2,3,4][i:i64[2], 1:, j:i64[2]]
    x:f32[2,3,4][i:i64[2,2]] | x:f32[2,3,4][..., i:i64[2]] | x:f32[2,3,4][None, i:i64[2]]
    x:f32[4,3][i:i64[]] | x:f32[4,3][i:i64[0]] | x:f32[4,3][i:i32[2]] | x:f32[4,3][1:, i:i64[2]]
    x:f32[2,3,4][i:i64[2], 0]
    x:f32[4][m:bool[4]] | x:f32[4,3][m:bool[4]] | x:f32[2,3][m:bool[2,3]] | x:f32[4,3][m:bool[4], 1]
    x:f32[4,3][:, m:bool[3]]
    x:f32[2,3,2][:, m:bool[3,2]] | x:f32[4][x > 0.0] | x:i64[2,3][i:i64[1]] | x:bool[4][m:bool[4]]
"""
# Negative steps, which PyTorch leaves out.
NUMPY_INDEXING = """
    x:f32[5][::-1] | x:f32[5][::-2] | x:f32[5][3:0:-1] | x:f32[5][-1:-4:-2] | x:f32[5][10::-3]
    x:f32[5][:2:-1] | x:f32[4,3][::-1, ::-1]
    x:f32[4,3][::-1, 1] | x:f32[4,3][1:3, ::-2] | x:f32[4,3][::-1][1:] | x:i32[6][4:1:-1][::-1]
    x:f32[2,3,4][..., ::-1]
    x:f32[5][0:3:-1] | x:f32[0][::-1] | x:f32[4,3][None, ::-1] | x:f32[5][::-1][::-1] | x:f32[2,3][::-1].T
    x:f32[6][-2::-2]
    x:f32[2,3,4][0, :, j:i64[2]] | x:f32[3,4][::-1, i:i64[2]] | x:f32[4][-1::-1]
"""


def indexing(book):
    index = {"i": (0, 1), "j": (-2, 1)}
    for text in _split(INDEXING):
        book.add("indexing", "getitem", text, **index)
        if ":f32" in text and "[0" not in text.replace("i:i64[0]", ""):
            book.grad("getitem", text, **index)
    for text in _split(NUMPY_INDEXING):
        book.add("indexing", "getitem", text, lib="numpy", **index)
    _gather_scatter(book)
    _data_dependent(book)


def _split(table):
    return [t.strip() for line in table.strip().splitlines() for t in line.split("|")]


GATHERS = """
    gather(x:f32[3,4], 0, i:i64[2,4]) | gather(x:f32[3,4], 1, i:i64[3,2]) | gather(x:f32[3,4], -1, i:i64[2,3])
    gather(x:f32[5], 0, i:i64[7])
    gather(x:f32[2,3,2], 1, i:i64[2,2,2]) | gather(x:f32[3], 0, i:i64[0]) | gather(x:f32[], 0, z:i64[])
    gather(x:i64[3,2], dim=0, index=i:i64[1,2])
    take_along_dim(x:f32[3,4], i:i64[3,2], 1) | take_along_dim(x:f32[3,4], i:i64[1,4], dim=0)
    take_along_dim(x:f32[2,3], i:i64[4])
    index_select(x:f32[4,3], 0, i:i64[3]) | index_select(x:f32[4,3], 1, i:i64[2])
    index_select(x:f32[4], 0, i:i32[2]) | index_select(x:f32[4,3], dim=-1, index=i:i64[0])
    scatter(x:f32[3,4], 0, i:i64[2,4], y:f32[2,4]) | scatter(x:f32[3,4], 1, i:i64[3,2], y:f32[3,3])
    scatter(x:f32[3,4], 1, i:i64[3,1], 5.0)
    scatter(x:f32[3,4], dim=1, index=i:i64[3,1], src=y:f32[3,1]) | scatter(x:i32[5], 0, i:i64[3], 7)
    scatter(x:f32[5], 0, i:i64[0], y:f32[0])
    scatter_add(x:f32[3,4], 0, i:i64[4,4], y:f32[4,4]) | scatter_add(x:f32[3], 0, i:i64[6], y:f32[6])
    scatter_add(x:i64[3], 0, i:i64[4], y:i64[4])
    scatter_reduce(x:f32[3], 0, i:i64[5], y:f32[5], sum)
    scatter_reduce(x:f32[3], 0, i:i64[5], y:f32[5], prod)
    scatter_reduce(x:f32[3], 0, i:i64[5], y:f32[5], mean)
    scatter_reduce(x:f32[3], 0, i:i64[5], y:f32[5], amax)
    scatter_reduce(x:f32[3], 0, i:i64[5], y:f32[5], amin)
    scatter_reduce(x:f32[3], 0, i:i64[5], y:f32[5], sum, include_self=false)
    scatter_reduce(x:f32[3], 0, i:i64[5], y:f32[5], mean, include_self=false)
    scatter_reduce(x:f32[3,2], 0, i:i64[4,2], y:f32[4,2], amax, include_self=false)
    scatter_reduce(x:f32[3], 0, i:i64[5], y:f32[5], reduce="prod", include_self=false)
    index_add(x:f32[3,2], 0, i:i64[4], y:f32[4,2])
    index_add(x:f32[2,3], 1, i:i64[4], y:f32[2,4]) | index_add(x:f32[3], 0, i:i64[4], y:f32[4], alpha=2.0)
    index_add(x:i32[3], 0, i:i64[2], y:i32[2])
    masked_fill(x:f32[2,3], m:bool[2,3], 0.5) | masked_fill(x:f32[2,3], m:bool[3], -inf)
    masked_fill(x:i32[4], m:bool[4], 7)
    masked_fill(x:f32[2,3], m:bool[2,1], v:f32[]) | masked_fill(x:f32[2,3], x > 0.0, 0.0)
    masked_scatter(x:f32[2,3], m:bool[2,3], y:f32[6])
    masked_scatter(x:f32[2,3], m:bool[3], y:f32[2,3]) | embedding(i:i64[3], w:f32[4,2])
    embedding(i:i64[2,2], w:f32[4,3])
    embedding(i:i64[], w:f32[4,3]) | embedding(i:i64[0], w:f32[4,3]) | embedding(i:i32[3], weight=w:f32[5,2])
    embedding(i:i64[3], w:f32[4,2], padding_idx=1)
"""


def _gather_scatter(book):
    for text in _split(GATHERS):
        op = text.split("(")[0]
        data = {"i": (0, 2), "z": [0]} if ":f32[2,3], i" not in text else {"i": (0, 5)}
        tol = "rel" if op in ("scatter_add", "scatter_reduce", "index_add") else "exact"
        book.add("indexing", op, text, tol, **data)
        unequal = "i:i64[3,2], y:f32[3,3]" in text  # PyTorch takes the values, and fails at the gradient
        if ":f32" in text and "i:i64[0]" not in text and not unequal:
            book.grad(op, text, **data)
    for text in [
        "one_hot(i:i64[4])",
        "one_hot(i:i64[2,2], 4)",
        "one_hot(i:i64[3], num_classes=5)",
        "one_hot(i:i64[], 3)",
        "one_hot(i:i64[0], 3)",
    ]:
        book.add("indexing", "one_hot", text, i=(0, 2))
    # the last write wins where a position is named twice
    book.add(
        "indexing",
        "scatter",
        "scatter(x:f32[3], 0, i:i64[4], y:f32[4])",
        x=[0, 0, 0],
        i=[1, 1, 0, 1],
        y=[1, 2, 3, 4],
    )
    # ties share the gradient
    for reduce in ("amax", "amin"):
        book.grad(
            "scatter_reduce",
            f"scatter_reduce(x:f32[2], 0, i:i64[3], y:f32[3], {reduce})",
            x=[1, 2],
            i=[0, 0, 1],
            y=[1, 1, 2],
        )
    book.grad(
        "scatter_reduce",
        "scatter_reduce(x:f32[2], 0, i:i64[3], y:f32[3], prod)",
        x=[2, 0],
        i=[0, 1, 1],
        y=[3, 0, 5],
    )


def _data_dependent(book):
    data = {"x": [3, 1, 2, 3, 1, -1], "m": [1, 0, 1, 1, 0, 1]}
    for text in """nonzero(x:f32[6]) | nonzero(x:i64[2,3]) | nonzero(m:bool[2,3]) | nonzero(m:bool[6], as_tuple=true) | nonzero(m:bool[2,3], as_tuple=true)
    nonzero(zeros([3])) | nonzero(x:f32[]) | masked_select(x:f32[6], m:bool[6])
    masked_select(x:f32[2,3], m:bool[3]) | unique(x:f32[6]) | unique(x:i64[2,3])
    unique(x:i64[6], return_inverse=true) | unique(x:i64[6], return_counts=true)
    unique(x:i64[2,3], return_inverse=true, return_counts=true)
    unique(x:bool[6]) | unique(x:f32[0]) | unique(x:i64[3,2], dim=0)
    unique(x:i64[2,3], dim=1)""".replace("\n", "|").split("|"):
        text = text.strip()
        cut = {"x": data["x"], "m": data["m"]}
        if "m:bool[3]" in text:
            cut["m"] = data["m"][:3]
        if "x:f32[]" in text:
            cut["x"] = [2]
        if "x:f32[0]" in text:
            cut["x"] = []
        book.add("indexing", text.split("(")[0], text, **cut)
    for text in [
        "bincount(x:i64[6])",
        "bincount(x:i64[6], minlength=7)",
        "bincount(x:i64[6], w:f32[6])",
        "bincount(x:i64[0])",
        "bincount(x:i64[6], weights=w:f64[6], minlength=2)",
        "bincount(x:i32[6])",
    ]:
        book.add("indexing", "bincount", text, "rel", x=[] if "[0]" in text else [3, 1, 0, 3, 1, 1], w=(0, 2))
    sorted_row = [-1.0, 0.5, 0.5, 2.0, 7.0]
    for text in [
        "searchsorted(s:f32[5], v:f32[6])",
        "searchsorted(s:f32[5], v:f32[6], right=true)",
        'searchsorted(s:f32[5], v:f32[6], side="right")',
        "searchsorted(s:f32[5], v:f32[2,3])",
        "searchsorted(s:f32[5], 0.5)",
        "searchsorted(s:f32[5], v:f32[6], out_int32=true)",
    ]:
        book.add("indexing", "searchsorted", text, s=sorted_row, v=[-5, -1, 0.5, 0.6, 7, 9])
    book.add(
        "indexing",
        "searchsorted",
        "searchsorted(s:i64[2,3], v:i64[2,2])",
        s=[1, 3, 5, 2, 2, 2],
        v=[3, 6, 2, 1],
    )
    book.add("indexing", "searchsorted", "searchsorted(s:f32[0], v:f32[2])", v=[1, 2])
