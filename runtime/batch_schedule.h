// How the slices of a call are cut into batches that a backend can take.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "formats/base/status.h"
#include "runtime/model/forward_backend.h"
#include "runtime/slice.h"

namespace moepack {

// Tokens that are computed together.
struct Batch {
  std::vector<std::int32_t> tokens;
  std::vector<BatchSlice> slices;    // by `first`; they cover all tokens
  std::vector<std::size_t> owners;   // of each: index of its Slice in the call
  std::vector<std::size_t> offsets;  // of each: index of its first token within that Slice

  // Gives `status` to all slices that could go on.
  void end(const Status& status);
};

// A row of a batch whose logits are wanted.
struct LogitRow {
  std::size_t owner = 0;       // index of the Slice in the call
  std::size_t row = 0;         // in the batch
  std::size_t index = 0;       // of the token within the Slice
  std::uint64_t position = 0;  // of the token in its sequence
};

// In the order of the batch, without the slices that ended.
std::vector<LogitRow> logit_rows(const Batch& batch, std::span<const Slice> slices);

// Memory of the lists of one call of at most `sequences` slices, whose batches have at most
// `tokens` tokens, and of the sequences themselves without their states.
std::uint64_t batch_list_bytes(std::uint64_t tokens, std::uint64_t sequences);

// Fills batches in the order of the slices, each as far as it goes.
class BatchSchedule {
 public:
  // `slices` outlive the object.
  BatchSchedule(std::span<const Slice> slices, std::size_t max_tokens);

  // The next at most max_tokens tokens of slices whose status is ok; empty when none are left.
  Batch next(std::span<const Status> statuses);

 private:
  std::span<const Slice> slices_;
  std::size_t max_tokens_;
  std::vector<std::size_t> done_;  // tokens of each slice
};

}  // namespace moepack
