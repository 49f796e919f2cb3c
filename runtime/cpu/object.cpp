#include "runtime/cpu/object.h"

#include <elf.h>
#include <fmt/format.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <map>
#include <optional>

#include "core/error.h"
#include "runtime/round_up.h"

namespace lazuli {
namespace {

constexpr uint64_t kImageAlignment = 64;
constexpr uint64_t kSlotBytes = 8;
constexpr uint64_t kStubBytes = 8;  // jmp *slot(%rip), padded

// Bounds-checked views of the object's tables.
class Object {
 public:
  explicit Object(std::span<const std::byte> bytes) : bytes_(bytes) {
    header_ = *at<Elf64_Ehdr>(0, 1);
    ensure(std::memcmp(header_.e_ident, ELFMAG, SELFMAG) == 0 &&
               header_.e_ident[EI_CLASS] == ELFCLASS64 && header_.e_type == ET_REL,
           "kernel object is no relocatable 64-bit ELF file");
    if (header_.e_machine != EM_X86_64) {
      user_error(
          "cpu: the kernel was compiled for ELF machine {}, which this host cannot run; "
          "compile for the host, or print the assembly only",
          header_.e_machine);
    }
    sections_ = {at<Elf64_Shdr>(header_.e_shoff, header_.e_shnum), header_.e_shnum};
  }

  std::span<const Elf64_Shdr> sections() const { return sections_; }

  template <typename Row>
  std::span<const Row> table(const Elf64_Shdr& section) const {
    const size_t count = section.sh_size / sizeof(Row);
    return {at<Row>(section.sh_offset, count), count};
  }

  const Elf64_Shdr& section(uint64_t index) const {
    ensure(index < sections_.size(), "kernel object names a section that it does not have");
    return sections_[index];
  }

  std::string_view string(const Elf64_Shdr& strings, uint64_t offset) const {
    ensure(offset < strings.sh_size, "kernel object names a string that it does not have");
    const char* start = at<char>(strings.sh_offset, strings.sh_size) + offset;
    return {start, strnlen(start, strings.sh_size - offset)};
  }

  std::string_view name(const Elf64_Shdr& section) const {
    return string(this->section(header_.e_shstrndx), section.sh_name);
  }

 private:
  template <typename Row>
  const Row* at(uint64_t offset, uint64_t count) const {
    ensure(offset <= bytes_.size() && count <= (bytes_.size() - offset) / sizeof(Row),
           "kernel object is cut short");
    return reinterpret_cast<const Row*>(bytes_.data() + offset);
  }

  std::span<const std::byte> bytes_;
  Elf64_Ehdr header_;
  std::span<const Elf64_Shdr> sections_;
};

class Linker {
 public:
  explicit Linker(std::span<const std::byte> bytes) : object_(bytes) {}

  Image link() {
    place_sections();
    for (const Elf64_Shdr& section : object_.sections()) {
      if (section.sh_type == SHT_SYMTAB) collect_symbols(section);
    }
    for (const Elf64_Shdr& section : object_.sections()) {
      if (section.sh_type == SHT_RELA && place_of(section.sh_info)) relocate(section);
    }
    return std::move(image_);
  }

 private:
  // Code and constants, one after the other. Unwind tables and notes stay behind.
  void place_sections() {
    const auto sections = object_.sections();
    places_.resize(sections.size());
    // Something readable before the first function: clang's function sanitizer looks there.
    uint64_t end = kImageAlignment;
    for (size_t i = 0; i < sections.size(); ++i) {
      const Elf64_Shdr& section = sections[i];
      const bool is_content = section.sh_type == SHT_PROGBITS && (section.sh_flags & SHF_ALLOC);
      const std::string_view name = object_.name(section);
      if ((section.sh_flags & SHF_WRITE) && section.sh_size > 0 &&
          !name.starts_with(".data.rel.ro")) {
        internal_error(fmt::format("kernel object has writable data in section {}", name));
      }
      if (!is_content || name == ".eh_frame") continue;
      const uint64_t align = std::max<uint64_t>(section.sh_addralign, 1);
      ensure(align <= kImageAlignment, "kernel object asks for more alignment than images have");
      places_[i] = round_up(end, align);
      end = *places_[i] + section.sh_size;
      image_.bytes.resize(end);
      const auto content = object_.table<std::byte>(section);
      std::copy(content.begin(), content.end(), image_.bytes.begin() + *places_[i]);
    }
  }

  std::optional<uint64_t> place_of(uint64_t section) const {
    return section < places_.size() ? places_[section] : std::nullopt;
  }

  void collect_symbols(const Elf64_Shdr& table) {
    const Elf64_Shdr& strings = object_.section(table.sh_link);
    for (const Elf64_Sym& symbol : object_.table<Elf64_Sym>(table)) {
      const auto place = place_of(symbol.st_shndx);
      if (place && ELF64_ST_TYPE(symbol.st_info) == STT_FUNC &&
          ELF64_ST_BIND(symbol.st_info) == STB_GLOBAL) {
        image_.symbols.push_back(
            {std::string(object_.string(strings, symbol.st_name)), *place + symbol.st_value});
      }
    }
  }

  void relocate(const Elf64_Shdr& table) {
    const uint64_t place = *place_of(table.sh_info);
    const uint64_t limit = object_.section(table.sh_info).sh_size;
    const Elf64_Shdr& symbol_table = object_.section(table.sh_link);
    const auto symbols = object_.table<Elf64_Sym>(symbol_table);
    const Elf64_Shdr& strings = object_.section(symbol_table.sh_link);
    for (const Elf64_Rela& row : object_.table<Elf64_Rela>(table)) {
      const uint64_t index = ELF64_R_SYM(row.r_info);
      const uint64_t type = ELF64_R_TYPE(row.r_info);
      const uint64_t width = type == R_X86_64_64 || type == R_X86_64_PC64 ? 8 : 4;
      ensure(index < symbols.size() && row.r_offset <= limit && width <= limit - row.r_offset,
             "kernel object has a relocation outside its section");
      apply(type, place + row.r_offset, symbols[index], row.r_addend,
            object_.string(strings, symbols[index].st_name));
    }
  }

  void apply(uint64_t type, uint64_t where, const Elf64_Sym& symbol, int64_t addend,
             std::string_view name) {
    const auto section = place_of(symbol.st_shndx);
    const bool is_here = symbol.st_shndx != SHN_UNDEF && section;
    const uint64_t target = is_here ? *section + symbol.st_value : 0;
    switch (type) {
      case R_X86_64_PC32:
      case R_X86_64_PLT32:
        write(where, int64_t((is_here ? target : stub(name)) + addend - where), 4);
        return;
      case R_X86_64_PC64:
        ensure(is_here, "kernel object measures the distance to an external symbol");
        write(where, int64_t(target + addend - where), 8);
        return;
      case R_X86_64_GOTPCREL:
      case R_X86_64_GOTPCRELX:
      case R_X86_64_REX_GOTPCRELX:
        write(where, int64_t((is_here ? slot("", target) : slot(name, 0)) + addend - where), 4);
        return;
      case R_X86_64_64:
        if (!is_here && addend != 0) break;
        image_.slots.push_back(
            {where, is_here ? "" : std::string(name), is_here ? target + addend : 0});
        return;
      default:
        break;
    }
    internal_error(fmt::format("kernel object has relocation {} to '{}'", type, name));
  }

  void write(uint64_t where, int64_t value, size_t width) {
    ensure(width == 8 || value == int64_t(int32_t(value)), "kernel object exceeds 2 GiB");
    std::memcpy(image_.bytes.data() + where, &value, width);  // x86-64 is little-endian
  }

  uint64_t append(uint64_t bytes) {
    const uint64_t where = round_up(image_.bytes.size(), bytes);
    image_.bytes.resize(where + bytes);
    return where;
  }

  // Where the address of an external function, or of an own byte, is kept; one place for each.
  uint64_t slot(std::string_view name, uint64_t addend) {
    auto [row, is_new] = slots_.try_emplace({std::string(name), addend}, 0);
    if (is_new) {
      row->second = append(kSlotBytes);
      image_.slots.push_back({row->second, std::string(name), addend});
    }
    return row->second;
  }

  // A jump to an external function: the function itself may be more than 2 GiB away.
  uint64_t stub(std::string_view name) {
    auto [row, is_new] = stubs_.try_emplace(std::string(name), 0);
    if (is_new) {
      const uint64_t target = slot(name, 0);
      const uint64_t where = append(kStubBytes);
      row->second = where;
      image_.bytes[where] = std::byte{0xff};
      image_.bytes[where + 1] = std::byte{0x25};
      write(where + 2, int64_t(target - (where + 6)), 4);
    }
    return row->second;
  }

  Object object_;
  Image image_;
  std::vector<std::optional<uint64_t>> places_;  // of each section, if it is in the image
  std::map<std::pair<std::string, uint64_t>, uint64_t> slots_;
  std::map<std::string, uint64_t> stubs_;
};

}  // namespace

Image link_object(std::span<const std::byte> object) {
  return Linker(object).link();
}

Image join_images(std::vector<Image> images) {
  ensure(!images.empty(), "no kernel image to join");
  Image all = std::move(images[0]);
  for (const Image& more : std::span(images).subspan(1)) {
    const uint64_t place = round_up(all.bytes.size(), kImageAlignment);
    all.bytes.resize(place);
    all.bytes.insert(all.bytes.end(), more.bytes.begin(), more.bytes.end());
    for (const Image::Symbol& s : more.symbols) all.symbols.push_back({s.name, s.offset + place});
    for (const Image::Slot& s : more.slots) {
      all.slots.push_back({s.offset + place, s.name, s.name.empty() ? s.addend + place : 0});
    }
  }
  return all;
}

LoadedImage::LoadedImage(const Image& image, const Resolver& resolve) {
  // Resolved first: nothing is mapped yet if a name is unknown.
  std::vector<const void*> addresses;
  for (const Image::Slot& slot : image.slots) {
    ensure(slot.offset <= image.bytes.size() && image.bytes.size() - slot.offset >= kSlotBytes &&
               slot.addend <= image.bytes.size(),
           "kernel image has a slot outside itself");
    addresses.push_back(slot.name.empty() ? nullptr : resolve(slot.name));
    if (!slot.name.empty() && addresses.back() == nullptr) {
      internal_error(
          fmt::format("a kernel calls '{}', which the host does not provide", slot.name));
    }
  }
  for (const Image::Symbol& symbol : image.symbols) {
    ensure(symbol.offset < image.bytes.size(), "kernel image has a function outside itself");
  }
  const auto page = static_cast<uint64_t>(sysconf(_SC_PAGESIZE));
  const size_t size = round_up(std::max<size_t>(image.bytes.size(), 1), page);
  void* memory = mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) {
    device_error("cpu: no memory for {} bytes of kernel code: {}", size, std::strerror(errno));
  }
  auto* base = static_cast<std::byte*>(memory);
  std::copy(image.bytes.begin(), image.bytes.end(), base);
  for (size_t i = 0; i < image.slots.size(); ++i) {
    const Image::Slot& slot = image.slots[i];
    const void* address = addresses[i] != nullptr ? addresses[i] : base + slot.addend;
    std::memcpy(base + slot.offset, &address, sizeof(address));
  }
  if (mprotect(memory, size, PROT_READ | PROT_EXEC) != 0) {
    const int problem = errno;
    munmap(memory, size);
    device_error("cpu: kernel code cannot be made executable: {}", std::strerror(problem));
  }
  base_ = base;
  size_ = size;
}

LoadedImage::~LoadedImage() {
  munmap(base_, size_);
}

}  // namespace lazuli
