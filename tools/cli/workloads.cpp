// The named workloads: an expression, the operations its mathematics needs, the fewest bytes it
// moves.
#include "tools/cli/workloads.h"

#include <array>

namespace lazuli::cli {
namespace {

// clang-format off
constexpr std::array<Workload, 56> kWorkloads{{
    // name, group, expression, operations (a multiply-add is two), bytes (inputs read once, outputs written once)
    {"matmul_64", "gemm", "a:f32[64,64] @ b:f32[64,64]", 524288, 49152},
    {"matmul_128", "gemm", "a:f32[128,128] @ b:f32[128,128]", 4194304, 196608},
    {"matmul_256", "gemm", "a:f32[256,256] @ b:f32[256,256]", 33554432, 786432},
    {"matmul_512", "gemm", "a:f32[512,512] @ b:f32[512,512]", 268435456, 3145728},
    {"matmul_1024", "gemm", "a:f32[1024,1024] @ b:f32[1024,1024]", 2147483648, 12582912},
    {"matmul_2048", "gemm", "a:f32[2048,2048] @ b:f32[2048,2048]", 17179869184, 50331648},
    {"matmul_128x3072x768", "gemm", "a:f32[128,768] @ b:f32[768,3072]", 603979776, 11403264},
    {"matmul_nt_512x768x768", "gemm", "a:f32[512,768] @ b:f32[768,768].mT", 603979776, 5505024},
    {"matmul_tn_768x512x512", "gemm", "a:f32[512,768].mT @ b:f32[512,512]", 402653184, 4194304},
    {"bmm_96x128x128x64", "gemm", "a:f32[96,128,64] @ b:f32[96,128,64].mT", 201326592, 12582912},
    {"linear_gelu_512x3072x768", "gemm", "gelu(x:f32[512,768] @ w:f32[768,3072] + b:f32[3072], approximate=tanh)", 2415919104, 17313792},
    {"mlp_block_64x256x64", "gemm", "relu(x:f32[64,256] @ w:f32[256,64] + b:f32[64])", 2097152, 147712},
    {"matmul_1024_bf16", "low", "a:bf16[1024,1024] @ b:bf16[1024,1024]", 2147483648, 6291456},
    {"matmul_1024_f16", "low", "a:f16[1024,1024] @ b:f16[1024,1024]", 2147483648, 6291456},
    {"matmul_1024_i8", "low", "a:i8[1024,1024].to(i32) @ b:i8[1024,1024].to(i32)", 2147483648, 6291456},
    {"matmul_1024_i16", "low", "a:i16[1024,1024].to(i32) @ b:i16[1024,1024].to(i32)", 2147483648, 8388608},
    {"gemv_1x4096x4096", "gemv", "a:f32[1,4096] @ b:f32[4096,4096]", 33554432, 67141632},
    {"gemv_nt_1x4096x4096", "gemv", "a:f32[1,4096] @ b:f32[4096,4096].mT", 33554432, 67141632},
    {"exp_1m", "elementwise", "exp(x:f32[1048576])", 1048576, 8388608},
    {"tanh_1m", "elementwise", "tanh(x:f32[1048576])", 1048576, 8388608},
    {"erf_1m", "elementwise", "erf(x:f32[1048576])", 1048576, 8388608},
    {"sin_1m", "elementwise", "sin(x:f32[1048576])", 1048576, 8388608},
    {"log_1m", "elementwise", "log(x:f32[1048576]~uniform)", 1048576, 8388608},
    {"chain_1m", "elementwise", "gelu(x:f32[1024,1024] * 0.5 + b:f32[1024], approximate=tanh) * sigmoid(y:f32[1024,1024]) + x", 8388608, 12587008},
    {"chain_16m", "elementwise", "gelu(x:f32[4096,4096] * 0.5 + b:f32[4096], approximate=tanh) * sigmoid(y:f32[4096,4096]) + x", 134217728, 201342976},
    {"softmax_1m", "rows", "softmax(x:f32[1024,1024], -1)", 5242880, 8388608},
    {"layernorm_1m", "rows", "layer_norm(x:f32[1024,1024], [1024], w:f32[1024], b:f32[1024])", 8388608, 8396800},
    {"softmax_16m", "rows", "softmax(x:f32[4096,4096], -1)", 83886080, 134217728},
    {"layernorm_16m", "rows", "layer_norm(x:f32[4096,4096], [4096], w:f32[4096], b:f32[4096])", 134217728, 134250496},
    {"crossentropy_512x32000", "rows", "cross_entropy(x:f32[512,32000], i:i64[512]~ids(32000))", 81920000, 65540100},
    {"sum0_1m", "reduce", "sum(x:f32[1024,1024], 0)", 1048576, 4198400},
    {"sum1_1m", "reduce", "sum(x:f32[1024,1024], 1)", 1048576, 4198400},
    {"sumall_1m", "reduce", "sum(x:f32[1024,1024])", 1048576, 4194308},
    {"sum0_16m", "reduce", "sum(x:f32[4096,4096], 0)", 16777216, 67125248},
    {"sum1_16m", "reduce", "sum(x:f32[4096,4096], 1)", 16777216, 67125248},
    {"sumall_16m", "reduce", "sum(x:f32[4096,4096])", 16777216, 67108868},
    {"argmax_4096x4096", "reduce", "argmax(x:f32[4096,4096], 1)", 16777216, 67141632},
    {"transpose_4096", "data", "contiguous(x:f32[4096,4096].T)", 0, 134217728},
    {"cumsum_1024x4096", "data", "cumsum(x:f32[1024,4096], 1)", 4194304, 33554432},
    {"sort_1024x4096", "data", "sort(x:f32[1024,4096], 1)[0]", 0, 33554432},
    {"gather_50257x768_4096", "data", "embedding(i:i32[4096]~ids(50257), w:f32[50257,768])", 0, 25182208},
    {"conv3x3_64_56", "conv", "conv2d(x:f32[1,64,56,56], w:f32[64,64,3,3], stride=1, padding=1, groups=1)", 231211008, 1753088},
    {"conv3x3_64_56_b8", "conv", "conv2d(x:f32[8,64,56,56], w:f32[64,64,3,3], stride=1, padding=1, groups=1)", 1849688064, 12992512},
    {"conv3x3_256_14", "conv", "conv2d(x:f32[1,256,14,14], w:f32[256,256,3,3], stride=1, padding=1, groups=1)", 231211008, 2760704},
    {"conv3x3_512_7", "conv", "conv2d(x:f32[1,512,7,7], w:f32[512,512,3,3], stride=1, padding=1, groups=1)", 231211008, 9637888},
    {"conv1x1_256_64_56", "conv", "conv2d(x:f32[1,256,56,56], w:f32[64,256,1,1], stride=1, padding=0, groups=1)", 102760448, 4079616},
    {"conv7x7s2_3_64_224", "conv", "conv2d(x:f32[1,3,224,224], w:f32[64,3,7,7], stride=2, padding=3, groups=1)", 236027904, 3851008},
    {"depthwise3x3_128_56", "conv", "conv2d(x:f32[1,128,56,56], w:f32[128,1,3,3], stride=1, padding=1, groups=128)", 7225344, 3215872},
    {"conv3x3_1_8_28_b64", "conv", "conv2d(x:f32[64,1,28,28], w:f32[8,1,3,3], stride=1, padding=0, groups=1)", 6230016, 1585440},
    {"conv3x3_64_56_b8_dx", "conv", "grad(sum(conv2d(x:f32[8,64,56,56], w:f32[64,64,3,3], padding=1) * g:f32[8,64,56,56]), x)", 1849688064, 19415040},
    {"conv3x3_64_56_b8_dw", "conv", "grad(sum(conv2d(x:f32[8,64,56,56], w:f32[64,64,3,3], padding=1) * g:f32[8,64,56,56]), w)", 1849688064, 13139968},
    {"conv3x3_1_8_28_b64_dx", "conv", "grad(sum(conv2d(x:f32[64,1,28,28], w:f32[8,1,3,3], padding=0) * g:f32[64,8,26,26]), x)", 6230016, 1786144},
    {"conv3x3_1_8_28_b64_dw", "conv", "grad(sum(conv2d(x:f32[64,1,28,28], w:f32[8,1,3,3], padding=0) * g:f32[64,8,26,26]), w)", 6230016, 1585728},
    {"attention_12x512x64", "attention", "scaled_dot_product_attention(q:f32[1,12,512,64], k:f32[1,12,512,64], v:f32[1,12,512,64], is_causal=false)", 805306368, 6291456},
    {"attention_causal_12x1024x64", "attention", "scaled_dot_product_attention(q:f32[1,12,1024,64], k:f32[1,12,1024,64], v:f32[1,12,1024,64], is_causal=true)", 1610612736, 12582912},
    {"attention_decode_32x2048x128", "attention", "scaled_dot_product_attention(q:f32[1,32,1,128], k:f32[1,32,2048,128], v:f32[1,32,2048,128], is_causal=false)", 33554432, 67141632},
}};
// clang-format on

}  // namespace

std::span<const Workload> workloads() {
  return kWorkloads;
}

const Workload* find_workload(std::string_view what) {
  for (const Workload& row : kWorkloads) {
    if (row.name == what || row.expression == what) return &row;
  }
  return nullptr;
}

}  // namespace lazuli::cli
