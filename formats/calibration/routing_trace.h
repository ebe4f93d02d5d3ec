// The routing of a run: which experts each layer used in each batch, in the order in which they
// were asked for, and how long the layer took. With it the expert cache can be run again without
// the weights.
//
// A file of blocks, each with its checksum, that grows while the run goes on: what a run that was
// killed has left can be read up to the last whole block. Bytes and an example:
// docs/trace-format.md.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "formats/base/status.h"

namespace moepack {

// The model that was run, as far as its cache is concerned.
struct TraceModel {
  std::string name;  // base name of the model directory
  std::uint64_t fingerprint = 0;
  std::uint32_t num_layers = 0;
  std::uint32_t num_experts = 0;  // routed ones of a layer
  std::uint32_t experts_per_token = 0;
  // The sizes of records, each once; 0 stands for the experts of layers that have none.
  std::vector<std::uint64_t> record_bytes = {};
  // [num_layers * num_experts]: index into record_bytes. Empty where there is one size.
  std::vector<std::uint16_t> size_of = {};

  std::uint64_t bytes_of(std::uint32_t layer, std::uint32_t expert) const {
    if (size_of.empty()) return record_bytes.front();
    return record_bytes[size_of[std::size_t{layer} * num_experts + expert]];
  }
  bool has_experts(std::uint32_t layer) const { return bytes_of(layer, 0) > 0; }
  std::uint32_t expert_layers() const {
    std::uint32_t count = 0;
    for (std::uint32_t layer = 0; layer < num_layers; ++layer)
      count += has_experts(layer) ? 1U : 0U;
    return count;
  }
  bool operator==(const TraceModel&) const = default;
};

// An expert of a batch and how many of its tokens chose it.
struct TraceUse {
  std::uint32_t expert = 0;
  std::uint32_t tokens = 0;  // at least 1
  bool operator==(const TraceUse&) const = default;
};

// What a layer did with a batch. Times in microseconds; all 0 in a trace that was not measured.
struct TraceLayer {
  std::uint32_t layer = 0;
  std::uint32_t mix_us = 0;         // mixer, norms and router: before the experts were known
  std::uint32_t expert_us = 0;      // experts, without waiting for records
  std::uint32_t wait_us = 0;        // for records, with nothing to compute
  std::uint32_t read_us = 0;        // during which at least one record was being read
  std::uint32_t misses = 0;         // records that were read
  std::vector<TraceUse> uses = {};  // each expert once, in the order in which they were asked for
  bool operator==(const TraceLayer&) const = default;
};

// One batch of tokens.
struct TracePass {
  std::uint32_t tokens = 0;             // at least 1
  std::uint32_t head_us = 0;            // embedding and logits
  std::vector<TraceLayer> layers = {};  // ascending; layers in which no row went on are left out
  bool operator==(const TracePass&) const = default;
};

// The start of every file: TraceModel with a checksum.
std::vector<std::byte> trace_head(const TraceModel& model);
// Bytes from which trace_head_bytes() can tell how long the head is.
constexpr std::size_t kTracePrologueBytes = 16;
// The length of the head that begins with these bytes. kCorrupt or kUnsupported for something else
// than a trace; `file` is named in errors.
Result<std::size_t> trace_head_bytes(std::span<const std::byte> prologue, const std::string& file);
// Parses a head of exactly this length.
Result<TraceModel> parse_trace_head(std::span<const std::byte> head, const std::string& file);

// The start of every block.
struct TraceBlockHead {
  std::uint32_t payload_bytes = 0;
  std::uint32_t passes = 0;
  std::uint64_t checksum = 0;
};
constexpr std::size_t kTraceBlockHeadBytes = 16;
constexpr std::uint32_t kMaxTracePayload = std::uint32_t{4} << 20;
// kCorrupt with `file` and `offset`, the place of the block, for lengths that no block has.
Result<TraceBlockHead> parse_trace_block_head(std::span<const std::byte> head,
                                              const std::string& file, std::uint64_t offset);
// Appends the passes of a block to `passes`. kCorrupt with file and offset when the payload's
// checksum is another, or a pass names what the model does not have.
Status parse_trace_payload(const TraceBlockHead& head, std::span<const std::byte> payload,
                           const TraceModel& model, const std::string& file, std::uint64_t offset,
                           std::vector<TracePass>& passes);

// Collects passes until they are a block.
class TraceBlock {
 public:
  void add(const TracePass& pass);
  std::size_t payload_bytes() const { return payload_.size(); }
  // The block as bytes, head and payload; it is empty then.
  std::vector<std::byte> take();

 private:
  std::vector<std::byte> payload_;
  std::uint32_t passes_ = 0;
};

}  // namespace moepack
