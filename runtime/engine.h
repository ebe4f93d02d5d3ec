// A model ready to run: opened once, its weights shared by any number of sequences.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "formats/base/status.h"
#include "formats/config/model_config.h"
#include "runtime/device_use.h"
#include "runtime/engine_options.h"
#include "runtime/model/activation_type.h"
#include "runtime/model/expert_usage.h"
#include "runtime/model/forward_observer.h"
#include "runtime/model/kv_encoding.h"
#include "runtime/model/memory_plan.h"
#include "runtime/model/model_selection.h"
#include "runtime/model/model_size.h"
#include "runtime/model/router.h"
#include "runtime/model/sequence.h"
#include "runtime/model/stage_times.h"
#include "runtime/placement/lane_use.h"
#include "runtime/placement/slot_planner.h"
#include "runtime/score/logits_sink.h"
#include "runtime/slice.h"
#include "runtime/store/disk_probe.h"
#include "runtime/store/expert_store.h"
#include "runtime/store/io_choice.h"
#include "runtime/vulkan/device_work.h"

namespace moepack {

// One thread at a time calls an engine. Everything it hands out but sequences ends with it.
class Engine {
 public:
  // kInvalidArgument, naming the flag, when the options do not fit the model or the memory there
  // is; otherwise errors of the model's files.
  static Result<std::unique_ptr<Engine>> open(const EngineOptions& options);
  ~Engine();
  Engine(const Engine&) = delete;
  Engine& operator=(const Engine&) = delete;

  // A fresh sequence. kInvalidArgument when there are EngineOptions::sequences of them already,
  // copies and the engine's own included; kIo when memory is short.
  Result<Sequence> make_sequence();

  // Runs slices of several sequences together, in batches of at most chunk_tokens tokens. Gives the
  // status of each slice. An error is of one slice and leaves the others as they are: a bad id, a
  // full context or a sequence that has ended refuse the slice before anything of it is computed;
  // activations that are not finite, a failing sink, or memory that is short end the sequence
  // (Sequence::status). An expert that cannot be read ends the sequences that chose it.
  //
  // With the reference backend the bits of the logits depend neither on the other slices nor on how
  // tokens are cut into calls and batches; the cpu backend's with f32 inputs do where products
  // with quantized weights have two regimes (model/kernels.h), up to six rows and more.
  // `observer` may be null.
  std::vector<Status> forward(std::span<const Slice> slices, ForwardObserver* observer = nullptr);

  // The same for one sequence that the engine keeps itself. Like every sequence it takes a slot,
  // from the first use on.
  Status forward(std::span<const std::int32_t> tokens, std::size_t first_logits,
                 const LogitsSink& sink, ForwardObserver* observer = nullptr);
  // The same with Slice::top: the highest of the first `top_of` logits of every index >= first.
  Status forward_top(std::span<const std::int32_t> tokens, std::size_t first, std::uint32_t top_of,
                     const TopSink& sink);
  // Forgets every token of that sequence.
  void reset();
  std::uint64_t position() const;  // tokens it has seen since
  // That sequence itself, for what a sequence can do; never to be moved from. kInvalidArgument or
  // kIo as of make_sequence(), where it has not been used yet.
  Result<Sequence*> own_sequence();

  // reset() and forward() as a function, for scoring. Valid as long as the engine.
  WindowForward window_forward();

  const EngineOptions& options() const;  // as it was opened; chunk_tokens is what was chosen
  const ModelConfig& config() const;
  std::uint64_t context() const;  // most tokens of a sequence
  // A text gives the same bits in one call as in several that begin at multiples of so many tokens:
  // 1 where no result depends on its batch (is_batch_invariant), else chunk_tokens.
  std::uint64_t cut_tokens() const;
  // So many slices of one token may share a call of forward(), and each gets the bits that it gets
  // alone: rows beyond them, or longer slices beside them, change no bit only where cut_tokens()
  // is 1.
  std::uint64_t decode_rows() const;
  std::string_view kernels_name() const;  // the kernel table that computes
  std::string_view kernels_bits() const;  // what the bits of its results depend on (Kernels::bits)
  const MemoryPlan& memory_plan() const;
  ExpertStoreStats expert_stats() const;
  // May be called from any thread at any time, as expert_stats() may.
  ExpertUsageMap expert_usage() const;
  // What cache-aware routing has changed since the last reset_stats().
  RoutingAgreement routing_agreement() const;
  void reset_stats();
  // Writes the rest of what is recorded in files (EngineOptions::store.trace, hot.report);
  // destroying an engine does it too, but its error is lost then. kIo where it cannot.
  Status finish();
  // Stands still until its start().
  StageTimes& stage_times();
  const ModelSize& model_size() const;
  // The device that computes, where that is not the processor.
  const std::optional<DeviceUse>& device_use() const;
  // What it did; nullopt where the processor computes.
  std::optional<DeviceReport> device_report() const;

  // The hot experts of a device, where the processor computes the others. An exchange moves experts
  // from one lane to the other, which decides the last bits of results: a text may get other bits
  // after it than before, within 1e-3 of each other, and bits are the same again only from engines
  // that had the same requests in the same order. Without one nothing depends on what ran before.

  // To be called after a request: exchanges at most options().hot.update_rate of the hot experts
  // for those that recent requests used more (LaneCounter, options().hot.weighting), in place.
  // Nothing happens at a rate of 0 or without a hot set. An error of the device is final.
  Result<HotChange> adapt_hot_experts();
  // The same by a profile, JSON in any format of parse_profile_json(), at most `rate` of the hot
  // experts. kInvalidArgument for a profile of another model, kCorrupt for a damaged one,
  // kUnsupported for one of ranks: `name` stands for its file. Without a hot set nothing happens.
  Result<HotChange> apply_hot_profile(std::string_view json, const std::string& name,
                                      double rate = 1);
  // What both lanes did since they were opened; nullopt where it is not counted
  // (HotOptions::is_counting()) or there are no lanes.
  std::optional<LaneUse> lane_use() const;
  // Begins to count, or ends it and forgets; without counting nothing adapts.
  void count_lanes(bool is_counting);
  // Bytes a second that a kernel reads of its memory; kUnsupported where the processor computes.
  Result<double> device_read_rate();
  // How fast the disk gives random places of the expert pack, at requests of a record's size; takes
  // some tenths of a second. The errors of measure_disk_rate().
  Result<DiskRate> disk_rate() const;
  // How experts are read.
  const IoChoice& io_choice() const;
  // With Backend::kAuto: what was chosen and why, for people; else empty.
  const std::string& backend_choice() const;

 private:
  struct Impl;
  explicit Engine(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace moepack
