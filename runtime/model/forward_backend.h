// The seam between what to compute and where: a backend owns the weights of a model, the memory of
// states and scratch, and the experts it has at hand. What crosses the seam are token ids in and
// logits out; everything else stays where the backend computes.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string_view>

#include "formats/base/status.h"
#include "runtime/model/expert_usage.h"
#include "runtime/model/forward_observer.h"
#include "runtime/model/router.h"
#include "runtime/model/sequence_state.h"
#include "runtime/model/stage_times.h"
#include "runtime/store/expert_store.h"

namespace moepack {

// Consecutive tokens of one sequence: rows [first, first + count) of the batch.
struct BatchSlice {
  SequenceState* state = nullptr;  // made by the same backend
  std::uint64_t position = 0;      // tokens seen before the batch
  std::size_t first = 0;
  std::size_t count = 0;
  // Set by the backend when this slice cannot go on: its activations are not finite (kCorrupt, with
  // layer and token), its state finds no memory (kIo), or an expert cannot be read. Such a slice is
  // left out from then on; its state is undefined, and its rows change nothing for the others.
  Status status;
};

// Which rows of a batch, ascending, will be asked for their logits, and for what of them.
struct WantedRows {
  std::span<const std::size_t> rows = {};
  // 0: for all. Else only for the highest of the first so many ids; then a backend need not hand
  // out more (top_logits()).
  std::uint32_t top_of = 0;
};

// The id of the highest logit of a row, of equal ones the lowest.
struct TopLogit {
  std::int32_t id = 0;
  bool is_finite = true;  // no logit of the row is infinite or NaN; else the id means nothing
};

// Logits of rows, [rows, vocabulary] in host memory.
struct RowLogits {
  std::span<const float> values = {};
  bool are_finite = false;  // none is infinite or NaN; false: nobody has looked, or one is
};

// One batch at a time, from one thread; make_state() and the functions of a state are called from
// that thread too, or while no batch is under way.
//
// Projections and experts run over all rows of the batch, operations on states slice by slice. With
// the reference kernels the bits of a row depend neither on the other rows nor on how tokens are
// cut into batches.
class ForwardBackend {
 public:
  virtual ~ForwardBackend() = default;

  // What computes, e.g. the kernel table's name.
  virtual std::string_view name() const = 0;
  // What the bits of its results depend on (Kernels::bits). Where a processor computes experts
  // beside a GPU, the GPU's name alone: there they depend on the share of each, too.
  virtual std::string_view bits() const { return name(); }
  // Most rows of a batch.
  virtual std::size_t max_tokens() const = 0;
  // Most rows of one call of logits().
  virtual std::size_t max_logit_rows() const = 0;

  // A fresh state of one sequence. kIo when memory is short.
  virtual Result<std::unique_ptr<SequenceState>> make_state() = 0;

  // Runs a batch of at most max_tokens() ids, each in the vocabulary, through all layers:
  // h = x + mixer(norm(x)); y = h + moe(norm(h)). `slices` is sorted by `first`, and the rows do
  // not overlap. The states move on by the slices' tokens; rows of slices that end are left out
  // from there on, and no expert is read for them. A backend may compute the logits of the first
  // max_logit_rows() rows of `wanted` on the way.
  // `observer` sees this batch; it may be null. An error of the call ends the batch: the expert
  // store has no room, or the device is lost.
  virtual Status forward(std::span<const std::int32_t> tokens, std::span<BatchSlice> slices,
                         const WantedRows& wanted, ForwardObserver* observer) = 0;
  // Of the wanted rows of the last batch, in order, where all of them were wanted so and the
  // backend has found them by itself; else nothing, and logits() has all. Valid as logits() are.
  virtual std::span<const TopLogit> top_logits() const { return {}; }
  // The logits of these rows of the batch after the last layer, at most max_logit_rows(); valid
  // until the next call of any function.
  virtual Result<RowLogits> logits(std::span<const std::size_t> rows) = 0;

  // May be called from any thread at any time.
  virtual ExpertUsageMap expert_usage() const { return {}; }
  virtual ExpertStoreStats expert_stats() const = 0;
  // Of cache-aware routing since the last reset_stats().
  virtual RoutingAgreement routing_agreement() { return {}; }
  virtual void reset_stats() = 0;
  // Writes what is left of what it records in files (--trace). kIo where it cannot.
  virtual Status finish_recording() { return Status::ok(); }
  // Of everything this backend computes.
  virtual StageTimes& stage_times() = 0;
};

}  // namespace moepack
