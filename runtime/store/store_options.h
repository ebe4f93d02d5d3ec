// How experts are read and kept: what --io, --io-engine, --cache-policy, --pin, --trace,
// --lookahead and --pack-dir say.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "formats/base/status.h"

namespace moepack {

// Which way bytes take from the disk: through the system's page cache, past it, or as pages of the
// file in the program's memory. kAuto: what the disk and the memory recommend (io_choice.h).
enum class IoMode : std::uint8_t { kAuto, kBuffered, kDirect, kMmap };

// Who waits for the disk: threads in system calls, or the kernel with a ring of requests.
enum class IoEngine : std::uint8_t { kAuto, kThreads, kUring };

// Which record leaves the cache for another.
enum class CachePolicy : std::uint8_t { kLru, kLfru };

// Takes a line for people, without a newline, from any thread. It must not throw.
using StoreNotice = std::function<void(const std::string& line)>;

struct StoreOptions {
  IoMode io = IoMode::kAuto;
  IoEngine engine = IoEngine::kAuto;
  CachePolicy policy = CachePolicy::kLru;
  std::filesystem::path pinned;  // a profile whose experts stay in memory; empty: none
  std::filesystem::path trace;   // where the routing is written; empty: nowhere
  // Experts that are read ahead for each of few tokens (model/expert_lookahead.h); 0: none.
  std::uint32_t lookahead = 0;
  // The same as the model and the memory recommend, in place of `lookahead`.
  bool is_lookahead_automatic = false;
  // Directories that hold the same pack once more, or some layer files of it.
  std::vector<std::filesystem::path> pack_directories;
  std::filesystem::path disk_file;  // where measured rates are kept (disk_file.h); empty: nowhere
  StoreNotice on_notice;            // what people should know while experts are read; may be empty
};

// As on the command line and in messages: "auto", "buffered", "direct", "mmap".
std::string_view io_mode_name(IoMode mode);
// "auto", "threads", "uring".
std::string_view io_engine_name(IoEngine engine);
// kInvalidArgument, naming the flag, for any other name.
Result<IoMode> parse_io_mode(std::string_view name);
Result<IoEngine> parse_io_engine(std::string_view name);

}  // namespace moepack
