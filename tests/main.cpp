// Entry of the test executable. Test cases live in tests/<folder>/<thing>_test.cpp.
#define DOCTEST_CONFIG_IMPLEMENT
#include <doctest/doctest.h>

#include <cstdlib>
#include <filesystem>
#include <string>

int main(int argc, char** argv) {
  // Compiled kernels are kept, but neither found from an earlier run nor left for a later one.
  std::string folder = (std::filesystem::temp_directory_path() / "lazuli_tests_XXXXXX").string();
  if (mkdtemp(folder.data())) setenv("XDG_CACHE_HOME", folder.c_str(), 1);
  const int status = doctest::Context(argc, argv).run();
  std::error_code problem;
  std::filesystem::remove_all(folder, problem);
  return status;
}
