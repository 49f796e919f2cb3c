// The lazuli command, run as a user runs it.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

namespace lazuli::test {

std::string read_file(const std::filesystem::path& path);
void write_file(const std::filesystem::path& path, const std::string& text);

/// A folder of its own that goes with the test.
class Folder {
 public:
  Folder();
  ~Folder();
  std::filesystem::path operator/(const char* name) const { return path_ / name; }

 private:
  std::filesystem::path path_;
};

struct Outcome {
  int status = -1;
  std::string out, err;
};

/// Runs `lazuli` with these arguments, in the shell's environment and such settings as
/// "NAME=value".
Outcome lazuli_command(const std::vector<std::string>& arguments,
                       const std::string& environment = "");

}  // namespace lazuli::test
