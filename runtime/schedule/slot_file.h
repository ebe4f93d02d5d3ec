// The kept text of a slot as a file: its tokens, the saved sequence that has seen them, and the
// snapshots on the way. The layout is in docs/sequence-format.md.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "formats/base/status.h"
#include "runtime/engine.h"
#include "runtime/prompt_file.h"
#include "runtime/schedule/kept_text.h"

namespace moepack {

struct SlotFileSnapshot {
  std::uint64_t position = 0;
  std::uint64_t size_bytes = 0;
  bool is_asked = false;
};

// Everything before the saved sequence.
struct SlotFileHead {
  PromptOrigin origin;
  std::vector<std::int32_t> tokens;         // at least one
  std::uint64_t prompt_tokens = 0;          // KeptText::prompt_tokens
  std::uint64_t sequence_bytes = 0;         // of the saved sequence, which follows
  std::vector<SlotFileSnapshot> snapshots;  // positions ascend, below tokens.size() + 1; their
                                            // bytes follow the sequence, then a checksum of them
};

std::vector<std::byte> slot_head_bytes(const SlotFileHead& head);
// Reads such bytes at the beginning of a file of `file_bytes` bytes; `bytes` is all of the file, or
// its beginning. Any bytes may come: kUnsupported for another version or unknown activations,
// kCorrupt for everything else that is wrong, the size of the file included. `file` stands in
// messages. The head's size is slot_head_bytes() of it.
Result<SlotFileHead> parse_slot_head(std::span<const std::byte> bytes, std::uint64_t file_bytes,
                                     std::string_view file);

// Whether `name` may name a file of a client's choosing: letters, digits, '.', '_' and '-', at most
// 128, and the first is no '.'.
bool is_slot_name(std::string_view name);

// Writes `kept`, which has a sequence of at least one token, whole or not at all.
Status write_slot_file(const std::filesystem::path& path, const Engine& engine,
                       const KeptText& kept);
// Reads one into `kept`, which has a sequence. kNotFound when there is none; kInvalidArgument for
// one that was computed in another way (PromptOrigin), and the errors of Sequence::restore. After
// an error `kept` is as it was, or, when memory was short, empty.
Status read_slot_file(const std::filesystem::path& path, const Engine& engine, KeptText& kept);

}  // namespace moepack
