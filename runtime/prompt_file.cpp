#include "runtime/prompt_file.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <optional>
#include <utility>

#include "formats/base/bytes.h"
#include "formats/base/checksum.h"
#include "formats/base/output_file.h"

namespace moepack {
namespace {

constexpr std::array<char, 8> kPromptMagic{'M', 'O', 'E', 'P', 'P', 'R', 'M', '\n'};
constexpr std::uint32_t kPromptVersion = 1;
// Offsets in the head.
constexpr std::size_t kPromptVersionAt = 8;
constexpr std::size_t kTokensAt = kBehindOrigin;
constexpr std::size_t kSequenceBytesAt = 48;
constexpr std::size_t kFixedBytes = 56;  // the tokens follow, then the checksum
constexpr std::size_t kSumBytes = 8;
constexpr std::size_t kFileAlignment = 64;

// Of a head with so many tokens; nullopt where that is more than a file can have.
std::optional<std::uint64_t> head_bytes(std::uint64_t tokens) {
  const auto ids = checked_mul(tokens, sizeof(std::int32_t));
  return ids.has_value() ? checked_add(*ids, kFixedBytes + kSumBytes) : std::nullopt;
}

Status damaged(std::string_view file, std::size_t offset, const std::string& what) {
  return corrupt(Where{.file = file, .offset = offset}, what, kPromptFileRemedy);
}

Status check_fixed(std::span<const std::byte> bytes, std::string_view file) {
  if (bytes.size() < kPromptMagic.size() ||
      std::memcmp(bytes.data(), kPromptMagic.data(), kPromptMagic.size()) != 0) {
    return damaged(file, 0, "is no prompt cache of moepack");
  }
  if (bytes.size() < kFixedBytes) {
    return damaged(file, bytes.size(), "ends within the head of a prompt cache");
  }
  const auto version = load_le<std::uint32_t>(bytes.data() + kPromptVersionAt);
  if (version != kPromptVersion) {
    return unsupported(Where{.file = file, .offset = kPromptVersionAt},
                       "is a prompt cache of version " + std::to_string(version) + ", known is " +
                           std::to_string(kPromptVersion),
                       kPromptFileRemedy);
  }
  return Status::ok();
}

// The sizes that the head states against the size of the file; gives that of the head.
Result<std::uint64_t> check_sizes(std::span<const std::byte> bytes, std::uint64_t file_bytes,
                                  std::string_view file) {
  const auto tokens = load_le<std::uint64_t>(bytes.data() + kTokensAt);
  const auto sequence = load_le<std::uint64_t>(bytes.data() + kSequenceBytesAt);
  const auto head = head_bytes(tokens);
  const auto whole = head.has_value() ? checked_add(*head, sequence) : std::nullopt;
  if (whole == file_bytes) return *head;
  return damaged(file, kTokensAt,
                 "has " + std::to_string(file_bytes) + " bytes, which are not the " +
                     std::to_string(tokens) + " tokens and the " + std::to_string(sequence) +
                     " bytes of a saved sequence that it states");
}

Result<PromptOrigin> parse_origin(std::span<const std::byte> bytes, std::string_view file) {
  MOE_ASSIGN_OR_RETURN(PromptOrigin origin, load_origin(bytes, file, kPromptFileRemedy));
  const auto tokens = load_le<std::uint64_t>(bytes.data() + kTokensAt);
  if (tokens != 0 && origin.cut_tokens != 0 && tokens % origin.cut_tokens == 0) return origin;
  return damaged(file, kCutTokensAt,
                 "has " + std::to_string(tokens) + " tokens, computed " +
                     std::to_string(origin.cut_tokens) + " at a time");
}

}  // namespace

std::vector<std::byte> prompt_head_bytes(const PromptHead& head) {
  const std::size_t ids = head.tokens.size() * sizeof(std::int32_t);
  std::vector<std::byte> bytes(kFixedBytes + ids + kSumBytes);
  std::memcpy(bytes.data(), kPromptMagic.data(), kPromptMagic.size());
  store_le(bytes.data() + kPromptVersionAt, kPromptVersion);
  store_origin(head.origin, bytes);
  store_le(bytes.data() + kTokensAt, std::uint64_t{head.tokens.size()});
  store_le(bytes.data() + kSequenceBytesAt, head.sequence_bytes);
  std::memcpy(bytes.data() + kFixedBytes, head.tokens.data(), ids);
  const std::span<const std::byte> summed = std::span(bytes).first(kFixedBytes + ids);
  store_le(bytes.data() + summed.size(), checksum(summed));
  return bytes;
}

Result<PromptHead> parse_prompt_head(std::span<const std::byte> bytes, std::uint64_t file_bytes,
                                     std::string_view file) {
  MOE_RETURN_IF_ERROR(check_fixed(bytes, file));
  MOE_ASSIGN_OR_RETURN(const std::uint64_t size, check_sizes(bytes, file_bytes, file));
  if (bytes.size() < size) return damaged(file, bytes.size(), "ends within its tokens");
  const std::span<const std::byte> summed = bytes.first(size - kSumBytes);
  const std::uint64_t sum = checksum(summed);
  const auto stated = load_le<std::uint64_t>(bytes.data() + summed.size());
  if (sum != stated) {
    return damaged(
        file, summed.size(),
        "has checksum " + checksum_text(sum) + " of its tokens, it says " + checksum_text(stated));
  }
  PromptHead head;
  MOE_ASSIGN_OR_RETURN(head.origin, parse_origin(bytes, file));
  head.sequence_bytes = load_le<std::uint64_t>(bytes.data() + kSequenceBytesAt);
  head.tokens.resize((summed.size() - kFixedBytes) / sizeof(std::int32_t));
  std::memcpy(head.tokens.data(), bytes.data() + kFixedBytes, summed.size() - kFixedBytes);
  return head;
}

Result<PromptFile> read_prompt_file(const std::filesystem::path& path) {
  MOE_ASSIGN_OR_RETURN(const File file, File::open(path));
  std::array<std::byte, kFixedBytes> fixed{};
  const std::span<std::byte> start =
      std::span(fixed).first(std::min<std::uint64_t>(file.size(), fixed.size()));
  MOE_RETURN_IF_ERROR(file.read_at(0, start));
  MOE_RETURN_IF_ERROR(check_fixed(start, file.path()));
  MOE_ASSIGN_OR_RETURN(const std::uint64_t head, check_sizes(start, file.size(), file.path()));
  PromptFile read;
  MOE_ASSIGN_OR_RETURN(read.bytes, AlignedBuffer::allocate(file.size(), kFileAlignment));
  MOE_RETURN_IF_ERROR(file.read_at(0, read.bytes.span()));
  MOE_ASSIGN_OR_RETURN(read.head, parse_prompt_head(read.bytes.span(), file.size(), file.path()));
  read.sequence_at = head;
  return read;
}

Status write_prompt_file(const std::filesystem::path& path, const PromptHead& head,
                         std::span<const std::byte> sequence) {
  MOE_ASSIGN_OR_RETURN(AtomicFile file, create_output_file(path));
  const std::vector<std::byte> start = prompt_head_bytes(head);
  MOE_RETURN_IF_ERROR(file.write_at(0, start));
  MOE_RETURN_IF_ERROR(file.write_at(start.size(), sequence));
  return file.commit();
}

}  // namespace moepack
