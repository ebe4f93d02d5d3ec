// Where a command's file result goes: a file that appears whole or not at all, or stdout.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <span>
#include <string_view>

#include "formats/base/file.h"

namespace moepack::cli {

// What -o takes for stdout.
constexpr const char* kStdoutName = "-";

// Written from front to back by one thread.
class Output {
 public:
  // Opens stdout for kStdoutName, and otherwise a file as create_output_file() does.
  static Result<Output> open(const std::filesystem::path& path);

  Status write(std::span<const std::byte> data);
  // Makes the file appear, or writes out what stdout still holds.
  Status commit();
  bool is_stdout() const { return !file_.has_value(); }

 private:
  std::optional<AtomicFile> file_;
  std::uint64_t size_ = 0;
};

// Writes a whole text through an Output.
Status write_output(const std::filesystem::path& path, std::string_view text);
// An error where `path`, which `option` gave, cannot be written as a file, before there is any
// work to lose. stdout is refused.
Status check_named_file(std::string_view option, const std::filesystem::path& path);

}  // namespace moepack::cli
