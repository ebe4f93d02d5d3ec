#include "runtime/schedule/slot_file.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <iterator>
#include <memory>
#include <optional>
#include <utility>

#include "formats/base/bytes.h"
#include "formats/base/checksum.h"
#include "formats/base/file.h"
#include "formats/base/output_file.h"

namespace moepack {
namespace {

constexpr std::array<char, 8> kSlotMagic{'M', 'O', 'E', 'P', 'S', 'L', 'T', '\n'};
constexpr std::uint32_t kSlotVersion = 1;
// Offsets in the head.
constexpr std::size_t kSlotVersionAt = 8;
constexpr std::size_t kSlotTokensAt = kBehindOrigin;
constexpr std::size_t kSlotPromptAt = 48;
constexpr std::size_t kSlotSequenceAt = 56;
constexpr std::size_t kSlotSnapshotsAt = 64;
constexpr std::size_t kSlotFixedBytes = 72;  // tokens, list of snapshots and checksum follow
constexpr std::size_t kSlotEntryBytes = 24;  // of the list: position, size, whether it was asked
constexpr std::size_t kSlotSumBytes = 8;
constexpr std::size_t kSlotAlignment = 64;
constexpr std::string_view kSlotRemedy = "remove it, or save the slot again";

Status damaged_slot(std::string_view file, std::size_t offset, const std::string& what) {
  return corrupt(Where{.file = file, .offset = offset}, what, kSlotRemedy);
}

// Of a head with so many tokens and snapshots; nullopt where that is more than a file can have.
std::optional<std::uint64_t> slot_head_size(std::uint64_t tokens, std::uint64_t snapshots) {
  const auto ids = checked_mul(tokens, sizeof(std::int32_t));
  const auto list = checked_mul(snapshots, kSlotEntryBytes);
  if (!ids.has_value() || !list.has_value()) return std::nullopt;
  const auto both = checked_add(*ids, *list);
  return both.has_value() ? checked_add(*both, kSlotFixedBytes + kSlotSumBytes) : std::nullopt;
}

Status check_slot_fixed(std::span<const std::byte> bytes, std::string_view file) {
  if (bytes.size() < kSlotMagic.size() ||
      std::memcmp(bytes.data(), kSlotMagic.data(), kSlotMagic.size()) != 0) {
    return damaged_slot(file, 0, "is no saved slot of moepack");
  }
  if (bytes.size() < kSlotFixedBytes) {
    return damaged_slot(file, bytes.size(), "ends within the head of a saved slot");
  }
  const auto version = load_le<std::uint32_t>(bytes.data() + kSlotVersionAt);
  if (version == kSlotVersion) return Status::ok();
  return unsupported(Where{.file = file, .offset = kSlotVersionAt},
                     "is a saved slot of version " + std::to_string(version) + ", known is " +
                         std::to_string(kSlotVersion),
                     kSlotRemedy);
}

Result<std::uint64_t> slot_head_size(std::span<const std::byte> bytes, std::uint64_t file_bytes,
                                     std::string_view file) {
  const auto tokens = load_le<std::uint64_t>(bytes.data() + kSlotTokensAt);
  const auto snapshots = load_le<std::uint64_t>(bytes.data() + kSlotSnapshotsAt);
  const auto size = slot_head_size(tokens, snapshots);
  if (size.has_value() && *size <= file_bytes) return *size;
  return damaged_slot(file, kSlotTokensAt,
                      "has " + std::to_string(file_bytes) + " bytes, too few for the " +
                          std::to_string(tokens) + " tokens and the " + std::to_string(snapshots) +
                          " snapshots that it states");
}

Result<PromptOrigin> parse_slot_origin(std::span<const std::byte> bytes, std::string_view file) {
  MOE_ASSIGN_OR_RETURN(PromptOrigin origin, load_origin(bytes, file, kSlotRemedy));
  if (origin.cut_tokens != 0) return origin;
  return damaged_slot(file, kCutTokensAt, "has states of no tokens at a time");
}

// Whether the list makes sense, and the file ends where it says.
Status check_slot_snapshots(const SlotFileHead& head, std::uint64_t head_bytes,
                            std::uint64_t file_bytes, std::string_view file) {
  auto end = checked_add(head_bytes, head.sequence_bytes);
  std::uint64_t before = 0;
  for (const SlotFileSnapshot& snapshot : head.snapshots) {
    if (snapshot.position <= before || snapshot.position > head.tokens.size() ||
        snapshot.size_bytes == 0) {
      return damaged_slot(file, kSlotSnapshotsAt,
                          "has a snapshot at " + std::to_string(snapshot.position) + " tokens");
    }
    before = snapshot.position;
    if (end.has_value()) end = checked_add(*end, snapshot.size_bytes);
  }
  if (end.has_value()) end = checked_add(*end, kSlotSumBytes);
  if (end == file_bytes) return Status::ok();
  return damaged_slot(file, kSlotSequenceAt,
                      "has " + std::to_string(file_bytes) +
                          " bytes, which are not the saved sequence and the snapshots it states");
}

// Reads the snapshots of a slot, whose sequence has been restored.
Result<std::vector<KeptSnapshot>> read_snapshots(const SlotFileHead& head,
                                                 std::span<const std::byte> bytes,
                                                 const Sequence& sequence, std::string_view file) {
  std::vector<KeptSnapshot> kept;
  for (const SlotFileSnapshot& entry : head.snapshots) {
    Result<StateSnapshot> states =
        sequence.make_snapshot(entry.position, bytes.first(entry.size_bytes));
    if (!states.is_ok()) return damaged_slot(file, kSlotSnapshotsAt, states.status().message());
    bytes = bytes.subspan(entry.size_bytes);
    kept.push_back(
        {std::make_shared<const StateSnapshot>(std::move(states).value()), entry.is_asked});
  }
  return kept;
}

}  // namespace

bool is_slot_name(std::string_view name) {
  constexpr std::size_t kLongest = 128;
  const auto is_plain = [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '.' ||
           c == '_' || c == '-';
  };
  return !name.empty() && name.size() <= kLongest && name.front() != '.' &&
         std::all_of(name.begin(), name.end(), is_plain);
}

std::vector<std::byte> slot_head_bytes(const SlotFileHead& head) {
  const std::size_t ids = head.tokens.size() * sizeof(std::int32_t);
  const std::size_t list = head.snapshots.size() * kSlotEntryBytes;
  std::vector<std::byte> bytes(kSlotFixedBytes + ids + list + kSlotSumBytes);
  std::memcpy(bytes.data(), kSlotMagic.data(), kSlotMagic.size());
  store_le(bytes.data() + kSlotVersionAt, kSlotVersion);
  store_origin(head.origin, bytes);
  store_le(bytes.data() + kSlotTokensAt, std::uint64_t{head.tokens.size()});
  store_le(bytes.data() + kSlotPromptAt, head.prompt_tokens);
  store_le(bytes.data() + kSlotSequenceAt, head.sequence_bytes);
  store_le(bytes.data() + kSlotSnapshotsAt, std::uint64_t{head.snapshots.size()});
  std::memcpy(bytes.data() + kSlotFixedBytes, head.tokens.data(), ids);
  std::byte* at = bytes.data() + kSlotFixedBytes + ids;
  for (const SlotFileSnapshot& snapshot : head.snapshots) {
    store_le(at, snapshot.position);
    store_le(at + 8, snapshot.size_bytes);
    store_le(at + 16, std::uint64_t{snapshot.is_asked ? 1U : 0U});
    at += kSlotEntryBytes;
  }
  const std::span<const std::byte> summed = std::span(bytes).first(bytes.size() - kSlotSumBytes);
  store_le(bytes.data() + summed.size(), checksum(summed));
  return bytes;
}

Result<SlotFileHead> parse_slot_head(std::span<const std::byte> bytes, std::uint64_t file_bytes,
                                     std::string_view file) {
  MOE_RETURN_IF_ERROR(check_slot_fixed(bytes, file));
  MOE_ASSIGN_OR_RETURN(const std::uint64_t size, slot_head_size(bytes, file_bytes, file));
  if (bytes.size() < size) return damaged_slot(file, bytes.size(), "ends within its tokens");
  const std::span<const std::byte> summed = bytes.first(size - kSlotSumBytes);
  const std::uint64_t sum = checksum(summed);
  const auto stated = load_le<std::uint64_t>(bytes.data() + summed.size());
  if (sum != stated) {
    return damaged_slot(
        file, summed.size(),
        "has checksum " + checksum_text(sum) + " of its head, it says " + checksum_text(stated));
  }
  SlotFileHead head;
  MOE_ASSIGN_OR_RETURN(head.origin, parse_slot_origin(bytes, file));
  head.tokens.resize(load_le<std::uint64_t>(bytes.data() + kSlotTokensAt));
  head.prompt_tokens = load_le<std::uint64_t>(bytes.data() + kSlotPromptAt);
  head.sequence_bytes = load_le<std::uint64_t>(bytes.data() + kSlotSequenceAt);
  const std::size_t ids = head.tokens.size() * sizeof(std::int32_t);
  if (head.tokens.empty() || head.prompt_tokens > head.tokens.size()) {
    return damaged_slot(file, kSlotTokensAt,
                        "has " + std::to_string(head.tokens.size()) + " tokens, of them " +
                            std::to_string(head.prompt_tokens) + " of a prompt");
  }
  std::memcpy(head.tokens.data(), bytes.data() + kSlotFixedBytes, ids);
  for (std::size_t at = kSlotFixedBytes + ids; at < summed.size(); at += kSlotEntryBytes) {
    const auto asked = load_le<std::uint64_t>(bytes.data() + at + 16);
    if (asked > 1) return damaged_slot(file, at + 16, "has a snapshot of an unknown kind");
    head.snapshots.push_back({.position = load_le<std::uint64_t>(bytes.data() + at),
                              .size_bytes = load_le<std::uint64_t>(bytes.data() + at + 8),
                              .is_asked = asked == 1});
  }
  MOE_RETURN_IF_ERROR(check_slot_snapshots(head, size, file_bytes, file));
  return head;
}

Status write_slot_file(const std::filesystem::path& path, const Engine& engine,
                       const KeptText& kept) {
  MOE_ASSIGN_OR_RETURN(const std::vector<std::byte> sequence, kept.sequence->save());
  SlotFileHead head{.origin = origin_of(engine),
                    .tokens = kept.tokens,
                    .prompt_tokens = kept.prompt_tokens,
                    .sequence_bytes = sequence.size(),
                    .snapshots = {}};
  for (const KeptSnapshot& snapshot : kept.snapshots) {
    head.snapshots.push_back({.position = snapshot.states->position(),
                              .size_bytes = snapshot.states->size_bytes(),
                              .is_asked = snapshot.is_asked});
  }
  MOE_ASSIGN_OR_RETURN(AtomicFile file, create_output_file(path));
  std::uint64_t at = 0;
  const auto write = [&](std::span<const std::byte> bytes) {
    const std::uint64_t begin = at;
    at += bytes.size();
    return file.write_at(begin, bytes);
  };
  MOE_RETURN_IF_ERROR(write(slot_head_bytes(head)));
  MOE_RETURN_IF_ERROR(write(sequence));
  ChecksumStream sum;
  for (const KeptSnapshot& snapshot : kept.snapshots) {
    sum.add(snapshot.states->states());
    MOE_RETURN_IF_ERROR(write(snapshot.states->states()));
  }
  std::array<std::byte, kSlotSumBytes> stated{};
  store_le(stated.data(), sum.finish());
  MOE_RETURN_IF_ERROR(write(stated));
  return file.commit();
}

Status read_slot_file(const std::filesystem::path& path, const Engine& engine, KeptText& kept) {
  MOE_ASSIGN_OR_RETURN(const File file, File::open(path));
  std::array<std::byte, kSlotFixedBytes> fixed{};
  const std::span<std::byte> start =
      std::span(fixed).first(std::min<std::uint64_t>(file.size(), fixed.size()));
  MOE_RETURN_IF_ERROR(file.read_at(0, start));
  MOE_RETURN_IF_ERROR(check_slot_fixed(start, file.path()));
  MOE_ASSIGN_OR_RETURN(const std::uint64_t size, slot_head_size(start, file.size(), file.path()));
  MOE_ASSIGN_OR_RETURN(AlignedBuffer bytes, AlignedBuffer::allocate(file.size(), kSlotAlignment));
  MOE_RETURN_IF_ERROR(file.read_at(0, bytes.span()));
  MOE_ASSIGN_OR_RETURN(SlotFileHead head, parse_slot_head(bytes.span(), file.size(), file.path()));
  if (head.origin != origin_of(engine)) {
    return make_error(StatusCode::kInvalidArgument, Where{.file = file.path(), .offset = kOriginAt},
                      "was computed with other kernels, activations or chunks",
                      "give the options of the run that saved it");
  }
  const std::span<const std::byte> rest = std::as_const(bytes).span().subspan(size);
  const std::span<const std::byte> states =
      rest.subspan(head.sequence_bytes, rest.size() - head.sequence_bytes - kSlotSumBytes);
  if (checksum(states) != load_le<std::uint64_t>(states.data() + states.size())) {
    return damaged_slot(file.path(), file.size() - kSlotSumBytes,
                        "has another checksum of its snapshots than it says");
  }
  const std::string name = file.path();
  const SavedPlace place{.file = name, .at = size, .remedy = kSlotRemedy};
  // Another model's snapshots are not damaged.
  MOE_RETURN_IF_ERROR(kept.sequence->check_saved(rest.first(head.sequence_bytes), place));
  // All of it into something new, so that an error changes nothing.
  MOE_ASSIGN_OR_RETURN(std::vector<KeptSnapshot> snapshots,
                       read_snapshots(head, states, *kept.sequence, file.path()));
  const Status status = kept.sequence->restore(rest.first(head.sequence_bytes), place);
  if (!status.is_ok()) {
    if (kept.sequence->position() != kept.tokens.size()) kept.clear();
    return status;
  }
  if (kept.sequence->position() != head.tokens.size()) {
    const std::uint64_t seen = kept.sequence->position();
    kept.clear();
    return damaged_slot(name, size,
                        "has a state of " + std::to_string(seen) + " tokens, not of " +
                            std::to_string(head.tokens.size()));
  }
  kept.tokens = std::move(head.tokens);
  kept.prompt_tokens = head.prompt_tokens;
  kept.snapshots = std::move(snapshots);
  return Status::ok();
}

}  // namespace moepack
