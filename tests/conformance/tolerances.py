"""The tolerance class of each op: what is exact, what is stated in ULPs, and all the rest relative."""

# Exact but for the sign of a zero, which the larger of -0 and 0 leaves open.
EQUAL = set("relu relu6 maximum minimum fmax fmin clamp clip amax amin max min hardtanh".split())

EXACT = set(
    """
    frac isposinf isneginf signbit softshrink hardshrink
    abs neg sign trunc ceil floor round square sqrt reciprocal fmod remainder floor_divide
    add sub mul div true_divide where copysign nan_to_num threshold leaky_relu prelu
    bitwise_and bitwise_or bitwise_xor bitwise_not bitwise_left_shift bitwise_right_shift lshift rshift
    logical_not logical_and logical_or logical_xor eq ne lt le gt ge isnan isinf isfinite isclose allclose any all
    aminmax argmax argmin median sort argsort topk cummax cummin msort kthvalue
    reshape view expand broadcast_to expand_as permute transpose movedim flip fliplr flipud rot90 roll pad constant_pad_nd
    cat stack hstack vstack dstack column_stack repeat tile repeat_interleave split chunk tensor_split squeeze unsqueeze
    unbind select narrow T mT t flatten unflatten ravel diag diagonal diag_embed unfold gather scatter index_copy index_fill
    masked_select masked_fill masked_scatter nonzero argwhere one_hot tril triu getitem index_select take take_along_dim
    unique bincount searchsorted bucketize tril_indices triu_indices count_nonzero
    to float half int bool bfloat16 double long short char byte broadcast_tensors bitcast
    zeros ones full eye zeros_like ones_like full_like arange meshgrid embedding max_pool1d max_pool2d max_pool3d
    adaptive_max_pool1d adaptive_max_pool2d adaptive_max_pool3d pixel_shuffle pixel_unshuffle max_unpool2d detach
""".split()
)

# Of these PyTorch's vectors are not always correctly rounded; the expected values are.
CORRECTLY_ROUNDED = set("sqrt reciprocal square add sub mul div true_divide".split())

# Compositions, where a zero of either sign will do.
ZERO_OF_EITHER_SIGN = set(
    """silu swish softsign hardswish hardsigmoid linspace pow float_power sinc logit xlogy logaddexp logsigmoid
    softplus elu celu selu gelu quick_gelu mish logaddexp2 tanhshrink glu hypot""".split()
)

ULP = {
    # stated for f32 over the whole range
    **dict.fromkeys("exp log sin cos tanh erf".split(), 2),
    **dict.fromkeys(
        """exp2 log2 log10 log1p expm1 rsqrt tan asin acos atan atan2 sinh cosh asinh acosh atanh erfc hypot sigmoid
        silu swish softsign hardswish hardsigmoid linspace""".split(),
        4,
    ),
    **dict.fromkeys(
        """pow float_power sinc logit xlogy logaddexp logsigmoid softplus elu celu selu gelu quick_gelu mish logaddexp2
        erfinv tanhshrink glu""".split(),
        8,
    ),
}
# Relative to the units above: the half floats round a result computed in f32 once; f64 has more steps in its polynomials.
ULP_BY_DTYPE = {"f16": lambda n: 1, "bf16": lambda n: 1, "f32": lambda n: n, "f64": lambda n: 2 * n}


def of(op, dtype="f32"):
    """The tolerance class of an op with inputs of `dtype`."""
    if op in EQUAL:
        return "equal"
    if op in EXACT:
        return "exact"
    if op in ULP:
        if dtype == "f64" and op in ZERO_OF_EITHER_SIGN:
            return "rel"  # the reference is no more precise
        bound = ULP_BY_DTYPE.get(dtype, ULP_BY_DTYPE["f32"])(ULP[op])
        return f"ulp{bound}" + ("z" if op in ZERO_OF_EITHER_SIGN else "")
    return "rel"
