// A folder for a disk cache of its own, gone with the object.
#pragma once

#include <doctest/doctest.h>
#include <stdlib.h>

#include <filesystem>
#include <string>
#include <system_error>
#include <vector>

namespace lazuli::test {

class CacheFolder {
 public:
  CacheFolder() {
    path_ = (std::filesystem::temp_directory_path() / "lazuli_cache_XXXXXX").string();
    REQUIRE(mkdtemp(path_.data()) != nullptr);
  }
  ~CacheFolder() {
    std::error_code problem;
    std::filesystem::remove_all(path_, problem);
  }
  std::string cache() const { return path_ + "/cache"; }
  std::string kernels() const { return cache() + "/kernels"; }
  std::vector<std::string> files() const {
    std::vector<std::string> list;
    std::error_code problem;
    for (const auto& e : std::filesystem::directory_iterator(kernels(), problem))
      list.push_back(e.path().string());
    return list;
  }

 private:
  std::string path_;
};

}  // namespace lazuli::test
