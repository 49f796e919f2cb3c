// From an ELF object file, as LLVM writes it, to code that runs: the few relocations that
// position-independent code in the small code model uses are resolved here, 50 us a kernel, with
// neither LLVM nor the dynamic linker.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace lazuli {

/// The linked form of an object: bytes that run at any address once the slots are filled, so that a
/// cache can store them as they are.
struct Image {
  /// A function of the object that others may call, at `offset` in `bytes`.
  struct Symbol {
    std::string name;
    uint64_t offset;
  };
  /// Eight bytes at `offset` that hold an address: of the function `name`, which the host provides,
  /// or, where `name` is empty, of the image's own byte `addend`.
  struct Slot {
    uint64_t offset;
    std::string name;
    uint64_t addend;
  };

  std::vector<std::byte> bytes;
  std::vector<Symbol> symbols;
  std::vector<Slot> slots;
};

/// Lays out the sections of an x86-64 ELF object and resolves what is inside it. InternalError if
/// the object is damaged, or has writable data or a kind of relocation that kernels have no use
/// for.
Image link_object(std::span<const std::byte> object);

/// One image of all, with the functions of each. InternalError if there is none.
Image join_images(std::vector<Image> images);

/// An image in executable memory, unmapped when dropped.
class LoadedImage {
 public:
  /// The address of an external function, or null if there is none of that name.
  using Resolver = std::function<const void*(std::string_view name)>;

  /// Maps `image`, fills its slots and makes it executable. InternalError if `resolve` does not
  /// know a name, DeviceError if there is no memory.
  LoadedImage(const Image& image, const Resolver& resolve);
  ~LoadedImage();
  LoadedImage(const LoadedImage&) = delete;
  LoadedImage& operator=(const LoadedImage&) = delete;

  const std::byte* base() const { return base_; }
  size_t size() const { return size_; }

 private:
  std::byte* base_ = nullptr;
  size_t size_ = 0;
};

}  // namespace lazuli
