"""Hand-written cases: reductions, scans and sorting."""

import math


INF, NAN = math.inf, math.nan

SHAPED = [
    "X",
    "X, 0",
    "X, 1",
    "X, -1",
    "X, [0,1]",
    "X, 1, true",
    "X, dim=0, keepdim=true",
    "X, axis=1, keepdims=true",
]
TIES = [2.0, 5.0, 5.0, -1.0, 5.0, 2.0]


def reduce(book):
    for op in ("sum", "mean", "amax", "amin", "logsumexp"):
        for form in SHAPED:
            if op == "logsumexp" and form == "X":
                continue
            text = f"{op}({form.replace('X', 'x:f32[3,4]')})"
            book.add("reduce", op, text, "exact" if op in ("amax", "amin") else "rel")
            book.grad(op, text)
    for op in ("prod", "argmax", "argmin", "any", "all", "max", "min"):
        for form in ("X", "X, 0", "X, 1", "X, -1", "X, 1, true", "X, dim=0, keepdim=true"):
            text = f"{op}({form.replace('X', 'x:f32[3,4]')})"
            book.add("reduce", op, text, "rel" if op == "prod" else "exact")
            if op in ("prod", "max", "min"):
                book.grad(op, text, pick=0 if "," in form and op != "prod" else None)
    for op in ("var", "std", "var_mean", "std_mean"):
        for form in (
            "X",
            "X, 1",
            "X, [0,1]",
            "X, 0, correction=0",
            "X, 1, keepdim=true",
            "X, 1, correction=2",
            "X, 0, false",
            "X, false",
        ):
            text = f"{op}({form.replace('X', 'x:f32[3,4]')})"
            book.add("reduce", op, text, "rel")
            if "mean" not in op and "false" not in form:
                book.grad(op, text)
    _dtypes(book)
    _empty(book)
    _specials(book)
    _softmaxes(book)


def _dtypes(book):
    for dtype in ("bool", "i8", "i16", "i32", "i64", "u8", "f16", "bf16", "f64"):
        for text in (
            f"sum(x:{dtype}[2,3])",
            f"sum(x:{dtype}[2,3], 1)",
            f"prod(x:{dtype}[2,3], 0)",
            f"amax(x:{dtype}[2,3], 1)",
            f"any(x:{dtype}[2,3], 0)",
            f"all(x:{dtype}[2,3])",
            f"argmax(x:{dtype}[2,3], 1)",
            f"cumsum(x:{dtype}[2,3], 1)",
            f"sum(x:{dtype}[2,3], dtype=f32)",
            f"mean(x:{dtype}[2,3], 1, dtype=f64)",
            f"max(x:{dtype}[2,3], 1)",
            f"x:{dtype}[4].min()",
        ):
            op = text.split("(")[0].split(".")[-1]
            if op == "argmax" and dtype == "bool":
                continue
            book.add(
                "reduce" if op != "cumsum" else "scan_sort",
                op if "min" not in text else "min",
                text,
                "rel" if op != "prod" else "rel",
            )
        if dtype in ("f16", "bf16", "f64"):
            for op in ("mean", "var", "std", "logsumexp", "softmax", "log_softmax"):
                book.add("reduce", op, f"{op}(x:{dtype}[2,5], 1)", "rel")
            book.add("reduce", "sum", f"sum(x:{dtype}[64])", "rel", x=(0, 1))
            book.add("reduce", "mean", f"mean(x:{dtype}[64])", "rel", x=(0, 1))
    # sums of the half floats do not lose small terms nor overflow on the way
    book.add("reduce", "sum", "sum(x:f16[5])", "ulp1", x=[2048, 1, 1, 1, 1])
    book.add("reduce", "sum", "sum(x:bf16[9])", "ulp1", x=[256] + [1] * 8)
    book.add("reduce", "mean", "mean(x:f16[4])", "ulp1", x=[60000, 60000, 60000, 60000])
    book.add("reduce", "sum", "sum(x:i8[3])", x=[127, 127, 127])
    book.add("reduce", "sum", "sum(x:i64[2])", x=[2**63 - 1, 1])
    book.add("reduce", "prod", "prod(x:i32[3])", x=[2**31 - 1, 2**31 - 1, 2**31 - 1])
    book.add("reduce", "sum", "sum(x:i32[2], dtype=i32)", x=[2**31 - 1, 1])


def _empty(book):
    for text in [
        "sum(x:f32[0])",
        "sum(x:f32[0,3], 0)",
        "sum(x:f32[3,0], 0)",
        "prod(x:f32[0])",
        "prod(x:i32[2,0], 1)",
        "mean(x:f32[0])",
        "mean(x:f32[2,0], 1)",
        "any(x:bool[0])",
        "all(x:bool[0])",
        "all(x:f32[0,2], 0)",
        "amax(x:f32[2,0], 0)",
        "sum(x:f32[])",
        "mean(x:f32[])",
        "amax(x:f32[])",
        "max(x:f32[])",
        "argmax(x:f32[])",
        "prod(x:f32[])",
        "var(x:f32[1])",
        "std(x:f32[1])",
        "var(x:f32[])",
        "var(x:f32[1], correction=0)",
        "logsumexp(x:f32[0,2], 0)",
        "cumsum(x:f32[0], 0)",
        "cumsum(x:f32[], 0)",
        "sort(x:f32[0])",
        "sort(x:f32[])",
        "argsort(x:f32[0])",
        "softmax(x:f32[0], 0)",
        "softmax(x:f32[2,0], 1)",
        "softmax(x:f32[], 0)",
        "norm(x:f32[0])",
        "argmin(x:f32[1,3], 0)",
        "max(x:f32[2,0], 0)",
        "topk(x:f32[3], 0)",
        "sum(x:f32[2,3], [])",
    ]:
        group = "scan_sort" if text.startswith(("cumsum", "sort", "argsort", "topk")) else "reduce"
        book.add(group, text.split("(")[0], text, "exact")


def _specials(book):
    specials = [1.0, NAN, -INF, INF, 0.0]
    for op in ("sum", "mean", "prod", "amax", "amin", "max", "min", "argmax", "argmin", "any", "all", "var"):
        book.add("reduce", op, f"{op}(x:f32[5])", x=specials)
        book.add("reduce", op, f"{op}(x:f32[4])", x=[INF, 1.0, -0.0, 3.0])
    for op in ("max", "min"):
        book.add("reduce", op, f"{op}(x:f32[3,3], 1)", x=[1, NAN, NAN, NAN, 5, 2, 3, 3, 1])
    for op in ("argmax", "argmin", "max", "min"):
        arg = ", 0" if not op.startswith("arg") else ""
        book.add("reduce", op, f"{op}(x:f32[6]{arg})", x=TIES)
        book.add("reduce", op, f"{op}(x:i32[6]{arg})", x=[-1, 7, 7, -1, 0, 7])
    book.add("reduce", "logsumexp", "logsumexp(x:f32[3,2], 1)", "rel", x=[-INF, -INF, INF, 1, 1000, 1000])
    for text in [
        "norm(x:f32[2,3])",
        "norm(x:f32[2,3], 1)",
        "norm(x:f32[2,3], 2, 1)",
        "norm(x:f32[2,3], inf, 0)",
        "norm(x:f32[2,3], 3.0, 1, true)",
        "norm(x:f32[2,3], -inf)",
        "norm(x:f32[2,3], 0, 1)",
        "norm(x:f32[2,3], p=fro)",
        "norm(x:f32[2,3], dim=0)",
        "norm(x:f64[2,3], 0.5, 1)",
    ]:
        book.add("reduce", "norm", text, "rel")
        if ", 0, 1" not in text:
            book.grad("norm", text)
    book.grad("norm", "norm(x:f32[3])", x=[0, 0, 0])
    for text in [
        "normalize(x:f32[2,3])",
        "normalize(x:f32[2,3], 1.0, 0)",
        "normalize(x:f32[2,3], p=2.0, dim=-1, eps=0.1)",
        "normalize(x:f32[4], dim=0)",
    ]:
        book.add("reduce", "normalize", text, "rel")
        book.grad("normalize", text)
    for text in [
        "median(x:f32[5])",
        "median(x:f32[4])",
        "median(x:f32[2,3], 1)",
        "median(x:f32[2,4], dim=0, keepdim=true)",
        "median(x:i64[2,4], -1)",
    ]:
        book.add("reduce", "median", text)
    book.add("reduce", "median", "median(x:f32[4])", x=[3, NAN, 1, 2])
    for text in [
        "allclose(x:f32[3], y:f32[3])",
        "allclose(x:f32[3], x)",
        "allclose(x:f32[3], y:f32[3], atol=10.0)",
    ]:
        book.add("reduce", "allclose", text)
    book.add("reduce", "allclose", "allclose(x:f32[2], x, equal_nan=true)", x=[NAN, 1])


def _softmaxes(book):
    for op in ("softmax", "log_softmax", "softmin"):
        for text in (
            f"{op}(x:f32[2,4], 1)",
            f"{op}(x:f32[2,4], 0)",
            f"{op}(x:f32[2,3,2], -2)",
            f"{op}(x:f32[5], dim=0)",
            f"{op}(x:f32[2,3], 1, dtype=f64)",
            f"{op}(x:bf16[2,3], -1)",
        ):
            book.add("reduce", op, text, "rel")
            if ":f32" in text:
                book.grad(op, text)
        book.add(
            "reduce", op, f"{op}(x:f32[3,3], 1)", "rel", x=[1000, 999, -1000, -INF, 0, 1, -INF, -INF, -INF]
        )
        book.add("reduce", op, f"{op}(x:f32[2,2], 1)", "rel", x=[INF, 0, NAN, 1])


def scan_sort(book):
    for op in ("cumsum", "cumprod", "cummax", "cummin", "logcumsumexp"):
        exact = op in ("cummax", "cummin")
        for text in (
            f"{op}(x:f32[6], 0)",
            f"{op}(x:f32[3,4], 0)",
            f"{op}(x:f32[3,4], 1)",
            f"{op}(x:f32[2,3,2], -2)",
            f"{op}(x:f32[3,1], dim=1)",
            f"{op}(x:f64[5], 0)",
        ):
            book.add("scan_sort", op, text, "exact" if exact else "rel")
            book.grad(op, text, pick=0 if exact else None)
        book.add(
            "scan_sort", op, f"{op}(x:f32[6], 0)", "exact" if exact else "rel", x=[1, -INF, 2, INF, 3, 4]
        )
        book.add("scan_sort", op, f"{op}(x:f32[5], 0)", "exact" if exact else "rel", x=[1, 2, NAN, 3, 1])
    for op in ("cummax", "cummin"):
        book.add("scan_sort", op, f"{op}(x:f32[6], 0)", x=TIES)
        book.add("scan_sort", op, f"{op}(x:i32[2,4], 1)")
        book.grad(op, f"{op}(x:f32[6], 0)", x=TIES, pick=0)
    for op in ("cumsum", "cumprod"):
        for dtype in ("i32", "i64", "u8", "bool", "i8"):
            book.add("scan_sort", op, f"{op}(x:{dtype}[5], 0)")
        book.add("scan_sort", op, f"{op}(x:i32[3], 0, dtype=i32)", x=[2**31 - 1, 5, 7])
        book.add("scan_sort", op, f"{op}(x:bf16[40], 0)", "rel", x=(0.9, 1.1))
        book.add("scan_sort", op, f"{op}(x:f32[3], 0, dtype=f64)", "rel")
    book.grad("cumprod", "cumprod(x:f32[4], 0)", x=[2, 0, 3, 4])
    book.grad("cumprod", "cumprod(x:f32[4], 0)", x=[0, 1, 0, 2])
    book.add(
        "scan_sort", "logcumsumexp", "logcumsumexp(x:f32[5], 0)", "rel", x=[1000, -1000, 1000, 999, -INF]
    )
    _sorting(book)


def _sorting(book):
    for form in ("X", "X, 0", "X, -1, true", "X, dim=0, descending=true", "X, 1"):
        if "X, 1" == form or "-1" in form:
            shape = "3,4"
        else:
            shape = "5" if form != "X, dim=0, descending=true" else "4,3"
        text = form.replace("X", f"x:f32[{shape}]")
        book.add("scan_sort", "sort", f"sort({text})")
        book.add("scan_sort", "argsort", f"argsort({text})")
        book.grad("sort", f"sort({text})", pick=0)
    for op in ("sort", "argsort"):  # stable, NaN is the largest
        for tail in ("", ", descending=true"):
            stable = ", stable=true"
            book.add("scan_sort", op, f"{op}(x:f32[6], dim=0{tail}{stable})", x=TIES)
            book.add("scan_sort", op, f"{op}(x:i64[7], dim=0{tail}{stable})", x=[1, 0, 1, 0, 2, 0, 1])
            book.add(
                "scan_sort", op, f"{op}(x:f32[7], dim=0{tail}{stable})", x=[NAN, 1, -INF, INF, NAN, 0.0, -0.0]
            )
            book.add("scan_sort", op, f"{op}(x:bool[4], dim=0{tail}{stable})", x=[1, 0, 1, 0])
            for dtype in ("f16", "bf16", "f64", "u8", "i8", "i16"):
                book.add("scan_sort", op, f"{op}(x:{dtype}[6], dim=0{tail}{stable})")
    book.grad("sort", "sort(x:f32[6], dim=0, stable=true)", x=TIES, pick=0)
    distinct = [0.3, -1.2, 5.0, 2.2, -0.7, 1.1, 4.0, -3.0, 0.9, 2.6, -2.0, 3.3]
    for text in (
        "topk(x:f32[12], 3)",
        "topk(x:f32[3,4], 2)",
        "topk(x:f32[3,4], 2, 0)",
        "topk(x:f32[3,4], 2, -1, false)",
        "topk(x:f32[12], 12)",
        "topk(x:f32[3,4], k=1, dim=1, largest=false)",
        "topk(x:f32[12], 4, largest=true, sorted=true)",
    ):
        book.add("scan_sort", "topk", text, x=distinct)
        book.grad("topk", text, x=distinct, pick=0)
    book.add("scan_sort", "topk", "topk(x:f32[4], 2)", x=[1, NAN, 3, 2])
    book.add("scan_sort", "topk", "topk(x:i32[5], 2)", x=[4, 9, -3, 7, 0])
    for n in (17, 33, 64):
        book.add("scan_sort", "sort", f"sort(x:f32[{n}])", x=(-9, 9))
        book.add("scan_sort", "cumsum", f"cumsum(x:f32[{n}], 0)", "rel", x=(-1, 1))
        book.add("scan_sort", "argsort", f"argsort(x:i32[{n}], stable=true)", x=(-5, 5))
