#include "runtime/batch_schedule.h"

#include <algorithm>

#include "runtime/model/byte_counts.h"
#include "runtime/model/layer_slice.h"
#include "runtime/model/sequence.h"

namespace moepack {

void Batch::end(const Status& status) {
  for (BatchSlice& slice : slices) {
    if (slice.status.is_ok()) slice.status = status;
  }
}

std::vector<LogitRow> logit_rows(const Batch& batch, std::span<const Slice> slices) {
  std::vector<LogitRow> rows;
  for (std::size_t i = 0; i < batch.slices.size(); ++i) {
    const BatchSlice& part = batch.slices[i];
    const std::size_t owner = batch.owners[i];
    if (!part.status.is_ok() || (!slices[owner].sink && !slices[owner].top)) continue;
    for (std::size_t t = 0; t < part.count; ++t) {
      const std::size_t index = batch.offsets[i] + t;
      if (index < slices[owner].first_logits) continue;
      rows.push_back({owner, part.first + t, index, part.position + t});
    }
  }
  return rows;
}

std::uint64_t batch_list_bytes(std::uint64_t tokens, std::uint64_t sequences) {
  // Lists may hold three times their size while they grow.
  constexpr std::uint64_t kPerToken =
      3 * (sizeof(std::int32_t) + sizeof(std::size_t) + sizeof(LogitRow));
  // Slice and BatchSlice, their indices, the slice of a layer, a status, the sequence.
  constexpr std::uint64_t kPerSequence =
      3 * (sizeof(Slice) + sizeof(BatchSlice) + sizeof(LayerSlice) + sizeof(Status) +
           3 * sizeof(std::size_t) + sizeof(Sequence));
  return capped_sum(capped_product(tokens, kPerToken), capped_product(sequences, kPerSequence));
}

BatchSchedule::BatchSchedule(std::span<const Slice> slices, std::size_t max_tokens)
    : slices_(slices), max_tokens_(max_tokens), done_(slices.size()) {}

Batch BatchSchedule::next(std::span<const Status> statuses) {
  Batch batch;
  for (std::size_t i = 0; i < slices_.size() && batch.tokens.size() < max_tokens_; ++i) {
    const Slice& slice = slices_[i];
    const std::size_t count =
        std::min(max_tokens_ - batch.tokens.size(), slice.tokens.size() - done_[i]);
    if (count == 0 || !statuses[i].is_ok()) continue;
    batch.slices.push_back({.state = &slice.sequence->state(),
                            .position = slice.sequence->position(),
                            .first = batch.tokens.size(),
                            .count = count,
                            .status = Status::ok()});
    batch.owners.push_back(i);
    batch.offsets.push_back(done_[i]);
    const auto part = slice.tokens.subspan(done_[i], count);
    batch.tokens.insert(batch.tokens.end(), part.begin(), part.end());
    done_[i] += count;
  }
  return batch;
}

}  // namespace moepack
