// A sequence as bytes: what it remembers, with a header that says of which model. The layout is in
// docs/sequence-format.md.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "formats/base/status.h"
#include "runtime/model/kv_encoding.h"
#include "runtime/model/sequence_state.h"

namespace moepack {

// Version of a file whose recurrent states are kept in this form.
constexpr std::uint32_t saved_sequence_version(DeltaForm form) {
  return form == DeltaForm::kTokens ? 1 : 2;
}

// What the bytes of a state mean: two models with the same numbers can read each other's states.
struct StateIdentity {
  std::uint64_t model = 0;    // model_fingerprint()
  std::uint64_t context = 0;  // most tokens of a sequence; may differ when a state is read
  KvEncoding kv_encoding = KvEncoding::kFloat32;
};

// Header, states and checksum. kIo when memory is short.
Result<std::vector<std::byte>> save_sequence(const StateIdentity& identity, std::uint64_t position,
                                             const SequenceState& state);

// Where such bytes come from, for messages.
struct SavedPlace {
  std::string_view file;
  std::uint64_t at = 0;                                 // offset of their first byte
  std::string_view remedy = "save the sequence again";  // where they are damaged
};

// Whether such bytes can be read into `state`; gives the number of tokens seen. Any bytes may come:
// kUnsupported for another version or form of recurrent states or an unknown encoding of keys and
// values, kInvalidArgument for another encoding than the identity's, another model or a position
// beyond the context, kCorrupt for everything else that is wrong.
Result<std::uint64_t> check_sequence(const StateIdentity& identity,
                                     std::span<const std::byte> bytes, const SavedPlace& place,
                                     const SequenceState& state);
// Reads them. `state` is changed only when all checks have passed.
Result<std::uint64_t> load_sequence(const StateIdentity& identity, std::span<const std::byte> bytes,
                                    const SavedPlace& place, SequenceState& state);

}  // namespace moepack
