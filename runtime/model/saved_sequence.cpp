#include "runtime/model/saved_sequence.h"

#include <array>
#include <cstring>
#include <new>
#include <string>

#include "formats/base/bytes.h"
#include "formats/base/checksum.h"
#include "runtime/model/byte_counts.h"

namespace moepack {
namespace {

constexpr std::array<char, 8> kSequenceMagic{'M', 'O', 'E', 'P', 'S', 'E', 'Q', '\n'};
// Offsets in the header.
constexpr std::size_t kVersionAt = 8;
constexpr std::size_t kEncodingAt = 12;
constexpr std::size_t kModelAt = 16;
constexpr std::size_t kPositionAt = 24;
constexpr std::size_t kStateBytesAt = 32;
constexpr std::size_t kSequenceHeaderBytes = 40;
constexpr std::size_t kSequenceSumBytes = 8;
constexpr std::uint32_t kTokensVersion = saved_sequence_version(DeltaForm::kTokens);
constexpr std::uint32_t kBlocksVersion = saved_sequence_version(DeltaForm::kBlocks);

std::uint64_t saved_size(std::uint64_t state_bytes) {
  return kSequenceHeaderBytes + state_bytes + kSequenceSumBytes;
}

Where where(const SavedPlace& place, std::uint64_t offset) {
  return {.file = place.file, .offset = place.at + offset};
}

// Everything about the bytes that does not depend on who reads them.
Status check_frame(std::span<const std::byte> bytes, const SavedPlace& place) {
  if (bytes.size() < kSequenceHeaderBytes + kSequenceSumBytes ||
      std::memcmp(bytes.data(), kSequenceMagic.data(), kSequenceMagic.size()) != 0) {
    return corrupt(where(place, 0), "is no saved sequence", place.remedy);
  }
  const auto version = load_le<std::uint32_t>(bytes.data() + kVersionAt);
  if (version != kTokensVersion && version != kBlocksVersion) {
    return unsupported(where(place, kVersionAt), "is a saved sequence of version " +
                                                     std::to_string(version) + ", known are " +
                                                     std::to_string(kTokensVersion) + " and " +
                                                     std::to_string(kBlocksVersion));
  }
  const std::span<const std::byte> summed = bytes.first(bytes.size() - kSequenceSumBytes);
  const std::uint64_t sum = checksum(summed);
  const auto stated = load_le<std::uint64_t>(bytes.data() + summed.size());
  if (sum == stated) return Status::ok();
  return corrupt(where(place, summed.size()),
                 "has checksum " + checksum_text(sum) + ", it says " + checksum_text(stated),
                 "it was cut or damaged; " + std::string(place.remedy));
}

// A state in one form cannot go on with the bits of the other.
Status check_form(std::span<const std::byte> bytes, const SavedPlace& place,
                  const SequenceState& state) {
  const auto version = load_le<std::uint32_t>(bytes.data() + kVersionAt);
  if (version == saved_sequence_version(state.delta_form())) return Status::ok();
  const bool by_tokens = version == kTokensVersion;
  return unsupported(
      where(place, kVersionAt),
      std::string("has recurrent states ") +
          (by_tokens ? "token by token, of the reference backend or an older moepack"
                     : "in blocks, of the cpu backend"),
      std::string("give --backend ") + (by_tokens ? "reference" : "cpu") + ", or the text again");
}

Status check_encoding(const StateIdentity& identity, std::span<const std::byte> bytes,
                      const SavedPlace& place) {
  const auto number = load_le<std::uint32_t>(bytes.data() + kEncodingAt);
  if (number == static_cast<std::uint32_t>(identity.kv_encoding)) return Status::ok();
  const Where at = where(place, kEncodingAt);
  if (number > static_cast<std::uint32_t>(KvEncoding::kFloat16)) {
    return unsupported(at, "has keys and values in encoding " + std::to_string(number) +
                               ", known are 0 (f32), 1 (bf16), 2 (fp8) and 3 (f16)");
  }
  const std::string has(kv_encoding_name(static_cast<KvEncoding>(number)));
  return make_error(StatusCode::kInvalidArgument, at,
                    "has keys and values in " + has + ", this run keeps them in " +
                        std::string(kv_encoding_name(identity.kv_encoding)),
                    "give --kv-cache-type " + has);
}

}  // namespace

Result<std::vector<std::byte>> save_sequence(const StateIdentity& identity, std::uint64_t position,
                                             const SequenceState& state) {
  const std::uint64_t size = state.saved_bytes(position);
  std::vector<std::byte> bytes;
  try {
    bytes.resize(saved_size(size));
  } catch (const std::bad_alloc&) {
    return make_error(StatusCode::kIo, Where{},
                      "out of memory: a saved sequence takes " + std::to_string(size) + " bytes");
  }
  std::memcpy(bytes.data(), kSequenceMagic.data(), kSequenceMagic.size());
  store_le(bytes.data() + kVersionAt, saved_sequence_version(state.delta_form()));
  store_le(bytes.data() + kEncodingAt, static_cast<std::uint32_t>(identity.kv_encoding));
  store_le(bytes.data() + kModelAt, identity.model);
  store_le(bytes.data() + kPositionAt, position);
  store_le(bytes.data() + kStateBytesAt, size);
  MOE_RETURN_IF_ERROR(state.save(position, std::span(bytes).subspan(kSequenceHeaderBytes, size)));
  const std::span<const std::byte> summed = std::span(bytes).first(kSequenceHeaderBytes + size);
  store_le(bytes.data() + summed.size(), checksum(summed));
  return bytes;
}

Result<std::uint64_t> check_sequence(const StateIdentity& identity,
                                     std::span<const std::byte> bytes, const SavedPlace& place,
                                     const SequenceState& state) {
  MOE_RETURN_IF_ERROR(check_frame(bytes, place));
  MOE_RETURN_IF_ERROR(check_encoding(identity, bytes, place));
  if (load_le<std::uint64_t>(bytes.data() + kModelAt) != identity.model) {
    return make_error(StatusCode::kInvalidArgument, where(place, kModelAt),
                      "was saved with another model, pack or overlay",
                      "give the one it was saved with");
  }
  MOE_RETURN_IF_ERROR(check_form(bytes, place, state));
  const auto position = load_le<std::uint64_t>(bytes.data() + kPositionAt);
  if (position > identity.context) {
    return make_error(StatusCode::kInvalidArgument, where(place, kPositionAt),
                      "has " + std::to_string(position) +
                          " tokens, which do not fit the context of " +
                          std::to_string(identity.context),
                      "raise -c");
  }
  const std::uint64_t size = state.saved_bytes(position);
  const auto stated = load_le<std::uint64_t>(bytes.data() + kStateBytesAt);
  if (size >= kTooManyBytes || stated != size || bytes.size() != saved_size(size)) {
    return corrupt(where(place, kStateBytesAt),
                   "has states of " + std::to_string(stated) + " bytes, " +
                       std::to_string(position) + " tokens of this model take " +
                       std::to_string(size),
                   place.remedy);
  }
  return position;
}

Result<std::uint64_t> load_sequence(const StateIdentity& identity, std::span<const std::byte> bytes,
                                    const SavedPlace& place, SequenceState& state) {
  MOE_ASSIGN_OR_RETURN(const std::uint64_t position, check_sequence(identity, bytes, place, state));
  const std::uint64_t size = state.saved_bytes(position);
  MOE_RETURN_IF_ERROR(state.load(position, bytes.subspan(kSequenceHeaderBytes, size)));
  return position;
}

}  // namespace moepack
