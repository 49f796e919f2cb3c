"""Hand-written cases: products, convolution and pooling, layers as functions, losses."""

import math

INF, NAN = math.inf, math.nan


def _rows(table):
    return [t.strip() for line in table.strip().splitlines() for t in line.split("|")]


def _add_all(book, group, table, tol="rel", gradients=True, **data):
    for text in _rows(table):
        op = text.split("(")[0] if "(" in text.split("[")[0] else "matmul"
        book.add(group, op, text, tol, **data)
        if gradients and ":f32" in text and "[0" not in text:
            try:
                book.grad(op, text, **data)
            except ValueError:
                book.grad(op, text, pick=0, **data)


MATMUL = """
    x:f32[2,3] @ y:f32[3,4] | x:f32[3] @ y:f32[3] | x:f32[2,3] @ y:f32[3] | x:f32[3] @ y:f32[3,2]
    x:f32[2,2,3] @ y:f32[2,3,2]
    x:f32[2,2,3] @ y:f32[3,2] | x:f32[2,3] @ y:f32[2,3,2] | x:f32[2,1,2,3] @ y:f32[3,3,2]
    x:f32[3] @ y:f32[2,3,2] | x:f32[2,2,3] @ y:f32[3]
    x:f32[0,3] @ y:f32[3,2] | x:f32[2,0] @ y:f32[0,3] | x:f64[2,3] @ y:f64[3,2] | x:f16[2,3] @ y:f16[3,2]
    x:bf16[2,8] @ y:bf16[8,2]
    x:f32[1,1] @ y:f32[1,1] | x:f32[3,2].T @ y:f32[3,2] | matmul(x:f32[2,3], y:f32[3,2])
    x:f32[2,3].matmul(y:f32[3,2])
    bmm(x:f32[2,2,3], y:f32[2,3,2]) | bmm(x:f32[0,2,3], y:f32[0,3,2]) | dot(x:f32[4], y:f32[4])
    outer(x:f32[3], y:f32[2])
    addmm(c:f32[2,2], x:f32[2,3], y:f32[3,2]) | addmm(c:f32[2], x:f32[2,3], y:f32[3,2], beta=0.5, alpha=2.0)
    addmm(c:f32[1], x:f32[2,3], y:f32[3,2])
    baddbmm(c:f32[2,2,2], x:f32[2,2,3], y:f32[2,3,2])
    baddbmm(c:f32[1,2,2], x:f32[2,2,3], y:f32[2,3,2], beta=0.5, alpha=2.0)
    tensordot(x:f32[2,3], y:f32[3,2], 1) | tensordot(x:f32[2,3,2], y:f32[3,2,2], dims=[[1, 0], [0, 1]])
    tensordot(x:f32[2,3], y:f32[2,3])
    tensordot(x:f32[2], y:f32[3], 0) | einsum("ij,jk->ik", x:f32[2,3], y:f32[3,2])
    einsum("ij->ji", x:f32[2,3]) | einsum("ij->", x:f32[2,3])
    einsum("ii->i", x:f32[3,3]) | einsum("ii", x:f32[3,3]) | einsum("i,j->ij", x:f32[2], y:f32[3])
    einsum("bij,bjk->bik", x:f32[2,2,2], y:f32[2,2,2])
    einsum("...ij,...jk->...ik", x:f32[2,2,3], y:f32[3,2]) | einsum("ij,ij->i", x:f32[2,3], y:f32[2,3])
    einsum("i,ij,j->", x:f32[2], y:f32[2,3], z:f32[3])
    einsum("ijk,jk", x:f32[2,2,3], y:f32[2,3]) | einsum("bhqd,bhkd->bhqk", x:f32[1,2,2,3], y:f32[1,2,2,3])
    linear(x:f32[2,3], w:f32[4,3])
    linear(x:f32[2,3], w:f32[4,3], b:f32[4]) | linear(x:f32[3], w:f32[2,3], b:f32[2])
    linear(x:f32[2,2,3], weight=w:f32[2,3], bias=b:f32[2])
    relu(x:f32[3,4] @ w:f32[4,2] + b:f32[2])
"""
CONV = """
    conv1d(x:f32[1,1,5], w:f32[1,1,3]) | conv1d(x:f32[2,2,6], w:f32[3,2,3], b:f32[3], stride=2, padding=1)
    conv1d(x:f32[2,5], w:f32[3,2,2])
    conv1d(x:f32[1,4,5], w:f32[4,2,2], groups=2) | conv1d(x:f32[1,1,7], w:f32[1,1,3], dilation=2)
    conv1d(x:f32[1,2,5], w:f32[2,2,3], padding=same)
    conv1d(x:f32[1,2,5], w:f32[2,2,3], padding=valid) | conv2d(x:f32[1,1,4,4], w:f32[1,1,3,3])
    conv2d(x:f32[1,2,4,4], w:f32[3,2,3,3], b:f32[3], padding=1)
    conv2d(x:f32[2,1,5,4], w:f32[2,1,2,2], stride=2)
    conv2d(x:f32[1,1,5,5], w:f32[1,1,2,3], stride=[1,2], padding=[1,0], dilation=[2,1])
    conv2d(x:f32[1,4,3,3], w:f32[4,1,2,2], groups=4)
    conv2d(x:f32[1,4,3,3], w:f32[2,2,2,2], None, 1, 0, 1, 2) | conv2d(x:f32[2,3,3], w:f32[2,2,3,3])
    conv2d(x:f32[1,2,3,3], w:f32[3,2,1,1], b:f32[3]) | conv2d(x:f32[1,1,4,4], w:f32[1,1,3,3], padding="same")
    conv2d(x:f32[0,1,4,4], w:f32[2,1,3,3])
    conv2d(x:f32[1,1,6,6], w:f32[2,1,3,3], b:f32[2], 1, 1) | conv3d(x:f32[1,1,3,3,3], w:f32[1,1,2,2,2])
    conv3d(x:f32[1,1,3,3,3], w:f32[2,1,2,2,2], b:f32[2], padding=1, stride=2)
    conv_transpose1d(x:f32[1,1,3], w:f32[1,1,3])
    conv_transpose1d(x:f32[1,2,3], w:f32[2,3,2], b:f32[3], stride=2, padding=1, output_padding=1)
    conv_transpose1d(x:f32[1,4,3], w:f32[4,1,2], groups=2, dilation=2)
    conv_transpose2d(x:f32[1,1,2,2], w:f32[1,1,2,2])
    conv_transpose2d(x:f32[1,2,3,2], w:f32[2,2,3,2], b:f32[2], stride=2, padding=1)
    conv_transpose2d(x:f32[1,2,2,2], w:f32[2,1,2,2], stride=[2,1], output_padding=[1,0], groups=2)
    conv1d(x:f64[1,1,5], w:f64[1,1,3]) | conv2d(x:bf16[1,2,3,3], w:bf16[2,2,2,2])
"""
POOL = """
    max_pool1d(x:f32[1,2,6], 2) | max_pool1d(x:f32[1,2,6], 3, 1, 1) | max_pool2d(x:f32[1,1,4,4], 2)
    max_pool2d(x:f32[1,2,5,5], 3, stride=2)
    max_pool2d(x:f32[1,1,5,4], [2,3], [2,1], [1,1]) | max_pool2d(x:f32[1,1,5,5], 2, ceil_mode=true)
    max_pool2d(x:f32[1,1,6,6], 2, 1, 0, 2)
    max_pool2d(x:f32[1,1,4,4], 2, return_indices=true) | max_pool2d(x:f32[2,4,4], 2, padding=1)
    max_pool3d(x:f32[1,1,4,4,4], 2) | max_pool3d(x:f32[1,1,3,3,3], 2, 1)
    max_pool1d(x:f32[1,1,6], 2, return_indices=true) | adaptive_max_pool1d(x:f32[1,2,5], 2)
    adaptive_max_pool2d(x:f32[1,1,5,4], [2,3])
    adaptive_max_pool2d(x:f32[1,1,5,4], 2, return_indices=true)
    adaptive_max_pool3d(x:f32[1,1,3,4,2], [2,2,1])
"""
AVERAGE = """
    avg_pool1d(x:f32[1,2,6], 2) | avg_pool1d(x:f32[1,1,6], 3, 2, 1)
    avg_pool1d(x:f32[1,1,5], 3, 1, 1, count_include_pad=false) | avg_pool2d(x:f32[1,1,4,4], 2)
    avg_pool2d(x:f32[1,2,5,5], 3, stride=2, padding=1) | avg_pool2d(x:f32[1,1,5,4], [2,3], [2,1])
    avg_pool2d(x:f32[1,1,5,5], 2, ceil_mode=true)
    avg_pool2d(x:f32[1,1,4,4], 3, 1, 1, false, false) | avg_pool2d(x:f32[1,1,4,4], 2, divisor_override=3)
    avg_pool2d(x:f32[1,1,5,5], 3, 2, 1, ceil_mode=true, count_include_pad=false)
    avg_pool3d(x:f32[1,1,4,4,4], 2) | avg_pool3d(x:f32[1,1,3,3,3], 2, 1, 1)
    adaptive_avg_pool1d(x:f32[1,2,5], 2) | adaptive_avg_pool2d(x:f32[1,1,5,4], [2,3])
    adaptive_avg_pool2d(x:f32[1,2,4,4], 1) | adaptive_avg_pool2d(x:f32[1,1,3,4], [None, 2])
    adaptive_avg_pool3d(x:f32[1,1,3,4,2], [2,2,1])
    adaptive_avg_pool2d(x:f32[1,1,2,2], 4)
"""
INTERPOLATE = """
    interpolate(x:f32[1,1,3], 6) | interpolate(x:f32[1,1,4], scale_factor=0.5)
    interpolate(x:f32[1,1,2,3], [4,5]) | interpolate(x:f32[1,1,2,2], scale_factor=2)
    interpolate(x:f32[1,1,2,2], scale_factor=2, mode="nearest-exact")
    interpolate(x:f32[1,1,4,5], [3,3], mode="nearest-exact")
    interpolate(x:f32[1,1,4], size=7, mode=linear)
    interpolate(x:f32[1,1,4], size=7, mode=linear, align_corners=true)
    interpolate(x:f32[1,1,3,3], size=[5,4], mode=bilinear)
    interpolate(x:f32[1,1,3,3], size=[5,4], mode=bilinear, align_corners=true)
    interpolate(x:f32[1,2,4,4], scale_factor=0.5, mode=bilinear)
    interpolate(x:f32[1,1,3,3], scale_factor=[2.0, 1.5], mode=bilinear)
    interpolate(x:f32[1,1,2,2,2], size=[3,3,3], mode=trilinear)
    interpolate(x:f32[1,1,2,2,2], size=[3,2,4], mode=trilinear, align_corners=true)
    interpolate(x:f32[1,1,4,4], size=[2,3], mode=area)
    interpolate(x:f32[1,1,1,1], size=[3,3], mode=bilinear)
"""
LAYERS = """
    layer_norm(x:f32[2,4], [4]) | layer_norm(x:f32[2,3,4], [3,4])
    layer_norm(x:f32[2,4], [4], w:f32[4], b:f32[4]) | layer_norm(x:f32[2,4], [4], w:f32[4])
    layer_norm(x:f32[2,4], [4], weight=w:f32[4], bias=b:f32[4], eps=0.1) | layer_norm(x:bf16[2,4], [4])
    layer_norm(x:f64[2,4], [4])
    rms_norm(x:f32[2,4], [4]) | rms_norm(x:f32[2,4], [4], w:f32[4]) | rms_norm(x:f32[2,2,3], [2,3], eps=0.1)
    group_norm(x:f32[2,4,2], 2)
    group_norm(x:f32[2,4,2,2], 4, w:f32[4], b:f32[4]) | group_norm(x:f32[1,4,2], 1, eps=0.1)
    instance_norm(x:f32[2,2,4]) | instance_norm(x:f32[1,2,2,3], weight=w:f32[2], bias=b:f32[2])
    batch_norm(x:f32[4,3], None, None, training=true)
    batch_norm(x:f32[2,3,2], None, None, w:f32[3], b:f32[3], true)
    batch_norm(x:f32[2,2,2,2], None, None, weight=w:f32[2], bias=b:f32[2], training=true, eps=0.01)
    scaled_dot_product_attention(q:f32[1,2,3,4], k:f32[1,2,3,4], v:f32[1,2,3,4])
    scaled_dot_product_attention(q:f32[2,3,4], k:f32[2,5,4], v:f32[2,5,2])
    scaled_dot_product_attention(q:f32[1,3,4], k:f32[1,3,4], v:f32[1,3,4], is_causal=true)
    scaled_dot_product_attention(q:f32[3,4], k:f32[5,4], v:f32[5,4], is_causal=true)
    scaled_dot_product_attention(q:f32[1,3,4], k:f32[1,3,4], v:f32[1,3,4], attn_mask=m:f32[3,3])
    scaled_dot_product_attention(q:f32[1,3,4], k:f32[1,3,4], v:f32[1,3,4], scale=0.25)
    scaled_dot_product_attention(q:f32[1,2,3], k:f32[1,3,3], v:f32[1,3,3], attn_mask=n:bool[2,3])
    scaled_dot_product_attention(q:f32[1,4,2,3], k:f32[1,2,2,3], v:f32[1,2,2,3], enable_gqa=true)
    cosine_similarity(x:f32[2,3], y:f32[2,3]) | cosine_similarity(x:f32[2,3], y:f32[2,3], 0)
    cosine_similarity(x:f32[3], y:f32[2,3], dim=-1, eps=0.1)
    cdist(x:f32[3,2], y:f32[4,2]) | cdist(x:f32[2,3,2], y:f32[2,2,2]) | cdist(x:f32[3,2], y:f32[2,2], 1.0)
    cdist(x:f32[3,2], y:f32[2,2], p=inf) | cdist(x:f32[3,2], y:f32[2,2], p=3.0)
"""


def matmul(book):
    _add_all(book, "matmul", MATMUL)
    # products of integers wrap, those of half floats are summed in f32
    book.add("matmul", "matmul", "x:i32[2,3] @ y:i32[3,2]")
    book.add("matmul", "matmul", "x:i64[2,3] @ y:i64[3,2]")
    book.add("matmul", "matmul", "x:u8[2,3] @ y:u8[3,2]", x=(0, 255), y=(0, 255))
    book.add("matmul", "matmul", "x:i32[1,2] @ y:i32[2,1]", x=[2**31 - 1, 2], y=[3, 5])
    book.add("matmul", "matmul", "x:f16[1,5] @ y:f16[5,1]", "ulp1", x=[2048, 1, 1, 1, 1], y=[1, 1, 1, 1, 1])
    book.add("matmul", "matmul", "x:bf16[1,9] @ y:bf16[9,1]", "ulp1", x=[256] + [1] * 8, y=[1] * 9)
    book.add("matmul", "matmul", "x:f32[2,2] @ y:f32[2,2]", "rel", x=[INF, 1, NAN, 0], y=[1, 0, 2, 1])
    for m, k, n in [(1, 7, 1), (5, 3, 2), (7, 11, 5), (8, 8, 8), (9, 4, 9), (3, 17, 3)]:
        book.add("matmul", "matmul", f"x:f32[{m},{k}] @ y:f32[{k},{n}]", "rel")


def conv(book):
    _add_all(book, "conv", CONV)
    _add_all(book, "conv", POOL, "exact")
    _add_all(book, "conv", AVERAGE)
    _add_all(book, "conv", INTERPOLATE)
    # the first of equal elements gets the gradient of a maximum
    book.grad("max_pool2d", "max_pool2d(x:f32[1,1,2,4], 2)", x=[1, 1, 2, 3, 1, 1, 3, 3])
    book.grad("max_pool1d", "max_pool1d(x:f32[1,1,4], 2)", x=[2, 2, 1, 5])
    book.add("conv", "max_pool1d", "max_pool1d(x:f32[1,1,6], 2)", x=[NAN, 1, -INF, -INF, INF, 2])
    for text in [
        "p = max_pool2d(x:f32[1,1,4,4], 2, return_indices=true); max_unpool2d(p[0], p[1], 2)",
        "max_unpool2d(x:f32[1,1,2,2], i:i64[1,1,2,2], 2)",
        "max_unpool2d(x:f32[1,1,2,2], i:i64[1,1,2,2], 2, output_size=[5,5])",
    ]:
        book.add("conv", "max_unpool2d", text, i=[5, 6, 8, 15])
    book.grad("max_unpool2d", "max_unpool2d(x:f32[1,1,2,2], i:i64[1,1,2,2], 2)", i=[5, 6, 8, 15])


def nn(book):
    _add_all(book, "nn", LAYERS)
    for text in [
        "batch_norm(x:f32[3,2], m:f32[2], v:f32[2])",
        "batch_norm(x:f32[2,2,3], m:f32[2], v:f32[2], w:f32[2], b:f32[2])",
        "batch_norm(x:f32[2,2], m:f32[2], v:f32[2], w:f32[2], b:f32[2], false, 0.1, 0.01)",
    ]:
        book.add("nn", "batch_norm", text, "rel", v=(0.5, 2))
        book.grad("batch_norm", text, wrt=["x"], v=(0.5, 2))
    book.grad("cdist", "cdist(x:f32[2,2], y:f32[2,2])", x=[1, 2, 3, 4], y=[1, 2, 0, 0])
    book.add(
        "nn",
        "cosine_similarity",
        "cosine_similarity(x:f32[2,2], y:f32[2,2])",
        "rel",
        x=[0, 0, 1, 2],
        y=[1, 2, -1, -2],
    )
    book.add("nn", "layer_norm", "layer_norm(x:f32[1,4], [4])", "rel", x=[3, 3, 3, 3])
    book.add(
        "nn",
        "scaled_dot_product_attention",
        "scaled_dot_product_attention(q:f32[1,2,2], k:f32[1,2,2], v:f32[1,2,2], attn_mask=m:f32[2,2])",
        "rel",
        m=[0, -INF, 0, 0],
    )


LOSSES = """
    mse_loss(x:f32[2,3], y:f32[2,3]) | mse_loss(x:f32[2,3], y:f32[2,3], reduction=sum)
    mse_loss(x:f32[3], y:f32[3], reduction=none)
    l1_loss(x:f32[2,3], y:f32[2,3]) | l1_loss(x:f32[2,3], y:f32[2,3], reduction=sum)
    l1_loss(x:f32[3], y:f32[3], reduction="none")
    smooth_l1_loss(x:f32[4], y:f32[4]) | smooth_l1_loss(x:f32[4], y:f32[4], reduction=none, beta=0.5)
    smooth_l1_loss(x:f32[4], y:f32[4], beta=0.0)
    huber_loss(x:f32[4], y:f32[4]) | huber_loss(x:f32[4], y:f32[4], reduction=none, delta=0.5)
    huber_loss(x:f32[4], y:f32[4], sum, 2.0)
    kl_div(x:f32[2,3], p:f32[2,3]) | kl_div(x:f32[2,3], p:f32[2,3], reduction=batchmean)
    kl_div(x:f32[2,3], p:f32[2,3], reduction=none)
    kl_div(x:f32[2,3], y:f32[2,3], log_target=true, reduction=sum)
    binary_cross_entropy(p:f32[4], t:f32[4]) | binary_cross_entropy(p:f32[4], t:f32[4], reduction=none)
    binary_cross_entropy(p:f32[4], t:f32[4], reduction=sum)
    binary_cross_entropy_with_logits(x:f32[4], t:f32[4])
    binary_cross_entropy_with_logits(x:f32[2,3], t:f32[2,3], reduction=none)
    binary_cross_entropy_with_logits(x:f32[4], t:f32[4], reduction=sum)
"""
CLASSES = """
    cross_entropy(x:f32[3,4], i:i64[3]) | cross_entropy(x:f32[3,4], i:i64[3], reduction=sum)
    cross_entropy(x:f32[3,4], i:i64[3], reduction=none)
    cross_entropy(x:f32[3,4], i:i64[3], w:f32[4])
    cross_entropy(x:f32[3,4], i:i64[3], weight=w:f32[4], reduction=sum)
    cross_entropy(x:f32[3,4], i:i64[3], label_smoothing=0.1)
    cross_entropy(x:f32[3,4], i:i64[3], ignore_index=2)
    cross_entropy(x:f32[3,4], i:i64[3], w:f32[4], label_smoothing=0.2)
    cross_entropy(x:f32[2,3,2], i:i64[2,2])
    cross_entropy(x:f32[2,3,2], i:i64[2,2], reduction=none) | cross_entropy(x:f32[4], i:i64[])
    cross_entropy(x:f32[3,4], p:f32[3,4]) | cross_entropy(x:f32[3,4], p:f32[3,4], label_smoothing=0.1)
    cross_entropy(x:f32[3,4], p:f32[3,4], reduction=none) | nll_loss(log_softmax(x:f32[3,4], 1), i:i64[3])
    nll_loss(x:f32[3,4], i:i64[3], reduction=sum)
    nll_loss(x:f32[3,4], i:i64[3], w:f32[4]) | nll_loss(x:f32[3,4], i:i64[3], ignore_index=1, reduction=none)
    nll_loss(x:f32[2,3,2], i:i64[2,2]) | nll_loss(x:f32[3,4], i:i64[3], ignore_index=-100)
"""


def loss(book):
    _add_all(book, "loss", LOSSES, gradients=False, p=(0.05, 0.95), t=(0, 1))
    for text in _rows(LOSSES):
        book.grad(
            text.split("(")[0],
            text,
            wrt=["p"] if "p:f32" in text and text.startswith("binary") else ["x"],
            p=(0.05, 0.95),
            t=(0, 1),
        )
    for text in _rows(CLASSES):
        data = {"i": (0, 2), "w": (0.2, 2), "p": (0.05, 0.95)}
        book.add("loss", text.split("(")[0], text, "rel", **data)
        book.grad(text.split("(")[0], text, wrt=["x"], **data)
    for text in [
        "hinge_embedding_loss(x:f32[4], y:f32[4])",
        "hinge_embedding_loss(x:f32[4], y:f32[4], margin=0.5, reduction=none)",
        "hinge_embedding_loss(x:f32[4], y:f32[4], reduction=sum)",
    ]:
        book.add("loss", "hinge_embedding_loss", text, "rel", y=[1, -1, -1, 1])
        book.grad("hinge_embedding_loss", text, wrt=["x"], y=[1, -1, -1, 1])
    # large logits, all targets ignored, targets at the ends
    book.add(
        "loss",
        "cross_entropy",
        "cross_entropy(x:f32[2,3], i:i64[2])",
        "rel",
        x=[1000, 0, -1000, -1000, 1000, 0],
        i=[0, 0],
    )
    book.add("loss", "cross_entropy", "cross_entropy(x:f32[2,3], i:i64[2], ignore_index=1)", "rel", i=[1, 1])
    book.add(
        "loss",
        "cross_entropy",
        "cross_entropy(x:f32[2,3], i:i64[2], ignore_index=1, reduction=sum)",
        "rel",
        i=[1, 1],
    )
    book.add(
        "loss",
        "binary_cross_entropy_with_logits",
        "binary_cross_entropy_with_logits(x:f32[4], t:f32[4], reduction=none)",
        "rel",
        x=[100, -100, 1000, 0],
        t=[0, 1, 1, 0.5],
    )
    book.add(
        "loss",
        "binary_cross_entropy",
        "binary_cross_entropy(p:f32[4], t:f32[4], reduction=none)",
        "rel",
        p=[0, 1, 0, 1],
        t=[0, 1, 1, 0],
    )
    book.add(
        "loss", "kl_div", "kl_div(x:f32[3], p:f32[3], reduction=none)", "rel", x=[-1, -2, -3], p=[0, 0.5, 1]
    )
    for text in [
        "binary_cross_entropy_with_logits(x:f32[2,3], t:f32[2,3], w:f32[3])",
        "binary_cross_entropy_with_logits(x:f32[2,3], t:f32[2,3], pos_weight=w:f32[3])",
        "binary_cross_entropy(p:f32[2,3], t:f32[2,3], w:f32[3])",
        "binary_cross_entropy_with_logits(x:f32[2,3], t:f32[2,3], w:f32[2,1], reduction=sum, pos_weight=u:f32[3])",
    ]:
        book.add("loss", text.split("(")[0], text, "rel", p=(0.05, 0.95), t=(0, 1), w=(0.1, 2), u=(0.5, 2))
    for text in [
        "huber_loss(x:f32[3], y:f32[3], reduction=sum)",
        "smooth_l1_loss(x:f32[3], y:f32[3], reduction=sum)",
        "l1_loss(x:f32[3], y:f32[3], reduction=sum)",
    ]:
        book.grad(text.split("(")[0], text, x=[1, 2, 3], y=[1, 1, 5])
