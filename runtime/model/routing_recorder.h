// Records what a forward backend routes, batch by batch (--trace).
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <span>
#include <string>
#include <utility>

#include "formats/base/elapsed.h"
#include "formats/base/status.h"
#include "formats/calibration/trace_file.h"
#include "formats/config/model_config.h"
#include "formats/pack/pack_manifest.h"
#include "runtime/model/activations.h"
#include "runtime/store/expert_store.h"

namespace moepack {

// What a trace says of a model. `name`: of its directory.
TraceModel trace_model(std::string name, std::uint64_t fingerprint, const ModelConfig& config,
                       const PackManifest& pack);

// One thread at a time calls it, in this order: begin_pass(); for each layer begin_layer(), and
// routed() and end_layer() or, where it has no experts, end_dense_layer(); then add_head() any
// number of times, for the same batch. A batch is written when the next one begins.
class RoutingRecorder {
 public:
  static Result<std::unique_ptr<RoutingRecorder>> create(const std::filesystem::path& file,
                                                         const TraceModel& model);
  // Writes what is left; its error is lost (finish() gives it).
  ~RoutingRecorder();
  RoutingRecorder(const RoutingRecorder&) = delete;
  RoutingRecorder& operator=(const RoutingRecorder&) = delete;

  // kIo where the batches before cannot be written.
  Status begin_pass(std::size_t tokens);
  void begin_layer();
  // The experts are chosen and not yet asked for. `stats`: the store's.
  void routed(const ExpertStoreStats& stats);
  // `groups`: in the order in which they were asked for.
  void end_layer(std::uint32_t layer, std::span<const ExpertGroup> groups,
                 const ExpertStoreStats& stats);
  // A trace names layers with experts alone: the time is that of no layer.
  void end_dense_layer();
  // Computing that is of no layer.
  void add_head(double seconds);
  // Writes the last batch and everything that waits. More may follow.
  Status finish();

 private:
  explicit RoutingRecorder(std::unique_ptr<TraceWriter> writer) : writer_(std::move(writer)) {}

  std::unique_ptr<TraceWriter> writer_;
  TracePass pass_;
  bool has_pass_ = false;
  bool is_before_layers_ = false;
  Clock::time_point layer_start_;  // before the first layer, of the pass
  Clock::time_point routed_;
  ExpertStoreStats before_;  // at routed_
};

}  // namespace moepack
