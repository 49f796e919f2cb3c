// Softmax over long rows that a contraction reads, as in attention, in chunks of the row.
#pragma once

#include <vector>

#include "core/node.h"
#include "ir/target.h"

namespace lazuli {

/// Elements of the shortest row that is split: shorter ones stay in the cache with many others.
inline constexpr int64_t kLongRow = 2048;

/// The simplified graph above `roots` with exponentials e[k] = exp(z[k] - max z), where all that
/// reads them are sums over k of e[k] and of products e[k] v[k], computed in chunks of k: a chunk c
/// has its own maximum m[c], e[k] = exp(z[k] - m[c]) and sums, and the sums of the row are those of
/// the chunks, weighted by exp(m[c] - max m). Whatever is as long as a row then need only be kept
/// for a chunk, and chunks can be shared out. Rows of f32 and f64 of at least `kLongRow` elements
/// are split, if they divide into chunks of some hundred, and many rows share the other factor or
/// there are few in all; this is a function of the shape alone. Sums are reassociated, nothing else
/// changes: an infinity or a NaN gives what it gave.
///
/// The algebra is that of Milakov and Gimelshein, "Online normalizer calculation for softmax",
/// arXiv 1805.02867, and of Rabe and Staats, "Self-attention does not need O(n^2) memory", arXiv
/// 2112.05682.
std::vector<NodeRef> split_softmax(std::span<const NodeRef> roots);

}  // namespace lazuli
