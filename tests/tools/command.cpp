#include "tests/tools/command.h"

#include <doctest/doctest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <fstream>
#include <sstream>

namespace lazuli::test {

namespace fs = std::filesystem;

std::string read_file(const fs::path& path) {
  std::ifstream file(path, std::ios::binary);
  std::ostringstream text;
  text << file.rdbuf();
  return text.str();
}

void write_file(const fs::path& path, const std::string& text) {
  std::ofstream(path, std::ios::binary) << text;
}

Folder::Folder() {
  std::string name = (fs::temp_directory_path() / "lazuli-cli-").string() + std::string(6, 'X');
  REQUIRE(mkdtemp(name.data()) != nullptr);
  path_ = name;
}
Folder::~Folder() {
  fs::remove_all(path_);
}

namespace {

std::string quoted(const std::string& text) {
  std::string out = "'";
  for (const char c : text) out += c == '\'' ? std::string("'\\''") : std::string(1, c);
  return out + "'";
}

}  // namespace

Outcome lazuli_command(const std::vector<std::string>& arguments, const std::string& environment) {
  const Folder folder;
  std::string line = environment + " " + quoted(LAZULI_BIN_DIR "/lazuli");
  for (const std::string& a : arguments) line += " " + quoted(a);
  line += " >" + quoted((folder / "out").string()) + " 2>" + quoted((folder / "err").string());
  const int status = std::system(line.c_str());
  return {WIFEXITED(status) ? WEXITSTATUS(status) : -1, read_file(folder / "out"),
          read_file(folder / "err")};
}

}  // namespace lazuli::test
