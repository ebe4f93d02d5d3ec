// Where a command's file result goes: a file that appears whole or not at all, or stdout.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <span>

#include "formats/base/file.h"

namespace moepack::cli {

// Written from front to back by one thread.
class Output {
 public:
  // "-": stdout.
  static Result<Output> open(const std::filesystem::path& path);

  Status write(std::span<const std::byte> data);
  // Makes the file appear; of stdout: everything is out.
  Status commit();
  bool is_stdout() const { return !file_.has_value(); }

 private:
  std::optional<AtomicFile> file_;
  std::uint64_t size_ = 0;
};

}  // namespace moepack::cli
