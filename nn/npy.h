// NumPy's file formats: .npy holds one array, .npz a zip of several. Files are not trusted: every
// size in a header is checked against the bytes that are there before anything is allocated.
#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "core/tensor.h"

namespace lazuli {

/// Reads a .npy file of version 1, 2 or 3, C or Fortran order, little-endian, with a dtype that
/// lazuli has. UserError names the file and what is wrong with it. Format: numpy.lib.format of
/// NumPy.
Tensor load_npy(const std::string& path);
/// The same from the bytes of a file; `name` is what errors call it.
Tensor parse_npy(std::span<const std::byte> bytes, const std::string& name);

/// Writes version 1.0. bf16, which NumPy lacks, is written as f32. Realises.
void save_npy(const std::string& path, const Tensor& tensor);
/// The bytes that save_npy writes.
std::vector<std::byte> npy_bytes(const Tensor& tensor);

/// The arrays of a .npz in the order of its directory, by name without ".npy"; stored or deflated
/// members.
using NamedTensors = std::vector<std::pair<std::string, Tensor>>;
NamedTensors load_npz(const std::string& path);
NamedTensors parse_npz(std::span<const std::byte> bytes, const std::string& name);
/// Writes a .npz with deflated members, byte for byte the same for the same arrays. Realises all
/// together. UserError for a name given twice.
void save_npz(const std::string& path, const NamedTensors& tensors);
/// The bytes that save_npz writes; `name` is what errors call them.
std::vector<std::byte> npz_bytes(const NamedTensors& tensors, const std::string& name);

/// All bytes of a file; UserError if it cannot be read.
std::vector<std::byte> read_file(const std::string& path);
/// Writes through a temporary file that is renamed, so that a failure leaves no torn file; what is
/// no regular file (a terminal, a pipe) is written directly. UserError if it cannot be written.
void write_file(const std::string& path, std::span<const std::byte> bytes);

}  // namespace lazuli
