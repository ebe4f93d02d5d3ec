// The file of --prompt-cache: the tokens of a prompt and the saved sequence that has seen them. The
// layout is in docs/sequence-format.md.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <span>
#include <string_view>
#include <vector>

#include "formats/base/file.h"
#include "formats/base/status.h"
#include "runtime/prompt_origin.h"

namespace moepack {

// Everything before the saved sequence.
struct PromptHead {
  PromptOrigin origin;
  std::vector<std::int32_t> tokens;  // at least one; a multiple of origin.cut_tokens
  std::uint64_t sequence_bytes = 0;  // of the saved sequence, which follows
};

// What to do about a file that is no use; the end of a message.
constexpr std::string_view kPromptFileRemedy = "remove it, or name another with --prompt-cache";

// The bytes of a head, its checksum included.
std::vector<std::byte> prompt_head_bytes(const PromptHead& head);
// Reads such bytes at the beginning of a file of `file_bytes` bytes; `bytes` is all of the file, or
// its beginning. Any bytes may come: kUnsupported for another version or unknown activations,
// kCorrupt for everything else that is wrong, the size of the file included. `file` stands in
// messages. The head's size is prompt_head_bytes() of it.
Result<PromptHead> parse_prompt_head(std::span<const std::byte> bytes, std::uint64_t file_bytes,
                                     std::string_view file);

// A whole file in memory.
struct PromptFile {
  PromptHead head;
  AlignedBuffer bytes;
  std::uint64_t sequence_at = 0;

  std::span<const std::byte> sequence() const { return bytes.span().subspan(sequence_at); }
};

// Reads a file, allocating nothing for one that is no such file. kNotFound when there is none.
Result<PromptFile> read_prompt_file(const std::filesystem::path& path);
// Writes one, whole or not at all, as create_output_file() does.
Status write_prompt_file(const std::filesystem::path& path, const PromptHead& head,
                         std::span<const std::byte> sequence);

}  // namespace moepack
