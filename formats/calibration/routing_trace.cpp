#include "formats/calibration/routing_trace.h"

#include <algorithm>
#include <cstring>
#include <optional>
#include <utility>

#include "formats/base/bytes.h"
#include "formats/base/checksum.h"
#include "formats/base/limits.h"
#include "formats/calibration/expert_profile.h"

namespace moepack {
namespace {

constexpr char kTraceMagic[8] = {'M', 'O', 'E', 'P', 'T', 'R', 'C', '\n'};
constexpr std::uint32_t kVersion = 1;
constexpr std::size_t kFixedBytes = 40;  // of the head, before its lists
constexpr std::size_t kSumBytes = 8;
constexpr std::uint32_t kMostSizes = 65535;
constexpr std::uint32_t kMostNameBytes = 4096;
constexpr std::uint64_t kMostRecordBytes = std::uint64_t{1} << 40;
constexpr std::uint32_t kMostPassTokens = std::uint32_t{1} << 24;
constexpr const char* kTraceRemedy = "record it again with --trace";

template <typename T>
void append(std::vector<std::byte>& bytes, T value) {
  const std::size_t at = bytes.size();
  bytes.resize(at + sizeof(T));
  store_le(bytes.data() + at, value);
}

// Seven bits a byte, lowest first; the top bit says that more follow (LEB128).
void append_number(std::vector<std::byte>& bytes, std::uint32_t value) {
  for (; value >= 128; value >>= 7) bytes.push_back(static_cast<std::byte>(value | 128U));
  bytes.push_back(static_cast<std::byte>(value));
}

// Small where the difference is, whatever its sign: 0, -1, 1, -2, … become 0, 1, 2, 3, …
std::uint32_t folded(std::int64_t difference) {
  return static_cast<std::uint32_t>(difference < 0 ? -2 * difference - 1 : 2 * difference);
}
std::int64_t unfolded(std::uint32_t value) {
  const auto half = static_cast<std::int64_t>(value / 2);
  return value % 2 == 0 ? half : -half - 1;
}

// Reads the numbers of a payload; after the first that is wrong all are 0.
class NumberReader {
 public:
  explicit NumberReader(std::span<const std::byte> bytes) : bytes_(bytes) {}

  std::uint32_t next() {
    std::uint64_t value = 0;
    for (unsigned shift = 0; shift < 35; shift += 7) {
      if (at_ == bytes_.size()) break;
      const auto byte = static_cast<std::uint64_t>(bytes_[at_++]);
      value |= (byte & 127U) << shift;
      if (byte >= 128) continue;
      const bool is_shortest = byte != 0 || shift == 0;
      if (value > 0xffffffffU || !is_shortest) break;
      return static_cast<std::uint32_t>(value);
    }
    is_ok_ = false;
    at_ = bytes_.size();
    return 0;
  }
  bool is_ok() const { return is_ok_; }
  bool is_at_end() const { return at_ == bytes_.size(); }
  std::size_t left() const { return bytes_.size() - at_; }

 private:
  std::span<const std::byte> bytes_;
  std::size_t at_ = 0;
  bool is_ok_ = true;
};

void append_layer(std::vector<std::byte>& out, const TraceLayer& layer, std::uint32_t skipped) {
  append_number(out, skipped);
  append_number(out, layer.mix_us);
  append_number(out, layer.expert_us);
  append_number(out, layer.wait_us);
  append_number(out, layer.read_us);
  append_number(out, layer.misses);
  append_number(out, static_cast<std::uint32_t>(layer.uses.size()));
  std::int64_t before = -1;
  for (const TraceUse& use : layer.uses) {
    append_number(out, folded(std::int64_t{use.expert} - before - 1));
    append_number(out, use.tokens - 1);
    before = use.expert;
  }
}

// The passes of one payload. Each function gives what is wrong, or "".
class PassReader {
 public:
  PassReader(const TraceModel& model, std::span<const std::byte> payload)
      : model_(model), numbers_(payload), seen_(model.num_experts, 0) {}

  const char* read(TracePass& pass) {
    pass.tokens = numbers_.next();
    pass.head_us = numbers_.next();
    const std::uint32_t layers = numbers_.next();
    if (!numbers_.is_ok()) return "ends within a pass";
    if (pass.tokens == 0 || pass.tokens > kMostPassTokens) return "has a pass of no tokens";
    // Each takes seven bytes at least.
    if (layers > numbers_.left() / 7) return "ends within a pass";
    if (layers > model_.num_layers) return "has a pass of more layers than the model";
    pass.layers.resize(layers);
    std::uint64_t next = 0;
    for (TraceLayer& layer : pass.layers) {
      const std::uint64_t index = next + numbers_.next();
      if (index >= model_.num_layers) return "names a layer that the model does not have";
      if (!model_.has_experts(static_cast<std::uint32_t>(index))) {
        return "names a layer that has no experts";
      }
      layer.layer = static_cast<std::uint32_t>(index);
      next = index + 1;
      if (const char* wrong = read_layer(pass.tokens, layer); *wrong != '\0') return wrong;
    }
    return "";
  }
  bool is_at_end() const { return numbers_.is_at_end(); }

 private:
  const char* read_layer(std::uint32_t tokens, TraceLayer& layer) {
    layer.mix_us = numbers_.next();
    layer.expert_us = numbers_.next();
    layer.wait_us = numbers_.next();
    layer.read_us = numbers_.next();
    layer.misses = numbers_.next();
    const std::uint32_t uses = numbers_.next();
    // Each takes two bytes at least.
    if (!numbers_.is_ok() || uses > numbers_.left() / 2) return "ends within a layer";
    if (uses > model_.num_experts) return "uses more experts than the model has";
    if (layer.misses > uses) return "misses more experts than it uses";
    layer.uses.resize(uses);
    ++layers_;
    std::int64_t before = -1;
    for (TraceUse& use : layer.uses) {
      const std::int64_t expert = before + 1 + unfolded(numbers_.next());
      const std::uint64_t count = std::uint64_t{numbers_.next()} + 1;
      if (!numbers_.is_ok()) return "ends within a layer";
      if (expert < 0 || expert >= std::int64_t{model_.num_experts}) {
        return "names an expert that the model does not have";
      }
      if (count > tokens) return "has an expert with more tokens than the pass";
      use = {.expert = static_cast<std::uint32_t>(expert),
             .tokens = static_cast<std::uint32_t>(count)};
      if (std::exchange(seen_[use.expert], layers_) == layers_) return "names an expert twice";
      before = expert;
    }
    return "";
  }

  const TraceModel& model_;
  NumberReader numbers_;
  std::vector<std::uint64_t> seen_;  // the last layer, counted from 1, that used the expert
  std::uint64_t layers_ = 0;
};

std::uint64_t block_sum(std::span<const std::byte> lengths, std::span<const std::byte> payload) {
  ChecksumStream sum;
  sum.add(lengths);
  sum.add(payload);
  return sum.finish();
}

// The numbers of the head before its lists.
struct HeadNumbers {
  std::uint32_t sizes = 0;
  std::uint32_t name_bytes = 0;
};

HeadNumbers head_numbers(std::span<const std::byte> head, TraceModel& model) {
  model.fingerprint = load_le<std::uint64_t>(head.data() + 16);
  model.num_layers = load_le<std::uint32_t>(head.data() + 24);
  model.num_experts = load_le<std::uint32_t>(head.data() + 28);
  model.experts_per_token = load_le<std::uint32_t>(head.data() + 32);
  const auto sizes = load_le<std::uint16_t>(head.data() + 36);
  const auto name = load_le<std::uint16_t>(head.data() + 38);
  return {.sizes = sizes, .name_bytes = name};
}

Status check_head_numbers(const HeadNumbers& numbers, const TraceModel& model, std::size_t bytes,
                          const std::string& file) {
  MOE_RETURN_IF_ERROR(check_expert_shape({model.num_layers, model.num_experts}, file));
  const auto wrong = [&](const char* what) {
    return corrupt(Where{.file = file}, what, kTraceRemedy);
  };
  if (model.experts_per_token == 0 || model.experts_per_token > model.num_experts) {
    return wrong("states a number of experts a token that no model has");
  }
  if (numbers.sizes == 0) return wrong("states no size of an expert's record");
  if (numbers.name_bytes > kMostNameBytes) return wrong("has a name of a model that is too long");
  const std::uint64_t experts = std::uint64_t{model.num_layers} * model.num_experts;
  const std::uint64_t expected = kFixedBytes + 8ULL * numbers.sizes +
                                 (numbers.sizes > 1 ? 2 * experts : 0) + numbers.name_bytes +
                                 kSumBytes;
  return expected == bytes ? Status::ok() : wrong("has a head of another length than it states");
}

// A layer has records or none, and some layer has some.
Status check_layers_without_experts(const TraceModel& model, const std::string& file) {
  for (std::uint32_t layer = 0; layer < model.num_layers; ++layer) {
    for (std::uint32_t e = 1; e < model.num_experts; ++e) {
      if ((model.bytes_of(layer, e) > 0) == model.has_experts(layer)) continue;
      return corrupt(Where{.file = file}, "states a layer of which some experts have no record",
                     kTraceRemedy);
    }
  }
  if (model.expert_layers() > 0) return Status::ok();
  return corrupt(Where{.file = file}, "states no layer with experts", kTraceRemedy);
}

}  // namespace

std::vector<std::byte> trace_head(const TraceModel& model) {
  const std::string name = model.name.substr(0, kMostNameBytes);
  std::vector<std::byte> head;
  for (const char c : kTraceMagic) head.push_back(static_cast<std::byte>(c));
  append(head, kVersion);
  append(head, std::uint32_t{0});  // the length, below
  append(head, model.fingerprint);
  append(head, model.num_layers);
  append(head, model.num_experts);
  append(head, model.experts_per_token);
  append(head,
         static_cast<std::uint16_t>(std::min<std::size_t>(model.record_bytes.size(), kMostSizes)));
  append(head, static_cast<std::uint16_t>(name.size()));
  for (const std::uint64_t bytes : model.record_bytes) append(head, bytes);
  if (model.record_bytes.size() > 1) {
    for (const std::uint16_t index : model.size_of) append(head, index);
  }
  for (const char c : name) head.push_back(static_cast<std::byte>(c));
  store_le(head.data() + 12, static_cast<std::uint32_t>(head.size() + kSumBytes));
  append(head, checksum(head));
  return head;
}

Result<std::size_t> trace_head_bytes(std::span<const std::byte> prologue, const std::string& file) {
  if (prologue.size() < kTracePrologueBytes ||
      std::memcmp(prologue.data(), kTraceMagic, sizeof(kTraceMagic)) != 0) {
    return corrupt(Where{.file = file}, "is no trace of routing", "make one with --trace");
  }
  const auto version = load_le<std::uint32_t>(prologue.data() + 8);
  if (version != kVersion) {
    return unsupported(Where{.file = file}, "is a trace of version " + std::to_string(version),
                       "this program reads version " + std::to_string(kVersion));
  }
  const std::size_t bytes = load_le<std::uint32_t>(prologue.data() + 12);
  constexpr std::size_t kMost =
      kFixedBytes + 8 * kMostSizes + 2 * kMaxModelExperts + kMostNameBytes + kSumBytes;
  if (bytes < kFixedBytes + kSumBytes || bytes > kMost) {
    return corrupt(Where{.file = file, .offset = 12}, "states a head of a length that none has",
                   kTraceRemedy);
  }
  return bytes;
}

Result<TraceModel> parse_trace_head(std::span<const std::byte> head, const std::string& file) {
  MOE_ASSIGN_OR_RETURN(const std::size_t bytes, trace_head_bytes(head, file));
  if (head.size() != bytes) {
    return corrupt(Where{.file = file}, "ends within its head", kTraceRemedy);
  }
  const std::span<const std::byte> summed = head.first(bytes - kSumBytes);
  if (checksum(summed) != load_le<std::uint64_t>(summed.data() + summed.size())) {
    return corrupt(Where{.file = file}, "has a head with another checksum than it states",
                   kTraceRemedy);
  }
  TraceModel model;
  const HeadNumbers numbers = head_numbers(head, model);
  MOE_RETURN_IF_ERROR(check_head_numbers(numbers, model, bytes, file));
  const std::byte* at = head.data() + kFixedBytes;
  for (std::uint32_t i = 0; i < numbers.sizes; ++i, at += 8) {
    model.record_bytes.push_back(load_le<std::uint64_t>(at));
    const std::uint64_t bytes_of_record = model.record_bytes.back();
    const bool may_be_none = numbers.sizes > 1 && bytes_of_record == 0;
    if (may_be_none || bytes_of_record - 1 < kMostRecordBytes) continue;
    return corrupt(Where{.file = file}, "states a size that no expert's record has", kTraceRemedy);
  }
  if (numbers.sizes > 1) {
    model.size_of.resize(std::size_t{model.num_layers} * model.num_experts);
    for (std::uint16_t& index : model.size_of) {
      index = load_le<std::uint16_t>(at);
      at += 2;
      if (index < numbers.sizes) continue;
      return corrupt(Where{.file = file}, "names a size of a record that it does not state",
                     kTraceRemedy);
    }
  }
  MOE_RETURN_IF_ERROR(check_layers_without_experts(model, file));
  model.name.assign(reinterpret_cast<const char*>(at), numbers.name_bytes);
  return model;
}

Result<TraceBlockHead> parse_trace_block_head(std::span<const std::byte> head,
                                              const std::string& file, std::uint64_t offset) {
  TraceBlockHead block{.payload_bytes = load_le<std::uint32_t>(head.data()),
                       .passes = load_le<std::uint32_t>(head.data() + 4),
                       .checksum = load_le<std::uint64_t>(head.data() + 8)};
  // A pass takes three bytes at least.
  const bool is_possible = block.passes > 0 && block.payload_bytes <= kMaxTracePayload &&
                           block.passes <= block.payload_bytes / 3;
  if (is_possible) return block;
  return corrupt(Where{.file = file, .offset = offset}, "has a block of lengths that none has",
                 kTraceRemedy);
}

Status parse_trace_payload(const TraceBlockHead& head, std::span<const std::byte> payload,
                           const TraceModel& model, const std::string& file, std::uint64_t offset,
                           std::vector<TracePass>& passes) {
  const Where where{.file = file, .offset = offset};
  std::vector<std::byte> lengths;
  append(lengths, head.payload_bytes);
  append(lengths, head.passes);
  if (block_sum(lengths, payload) != head.checksum) {
    return corrupt(where, "has a block with another checksum than it states", kTraceRemedy);
  }
  PassReader reader(model, payload);
  for (std::uint32_t i = 0; i < head.passes; ++i) {
    passes.emplace_back();
    const char* wrong = reader.read(passes.back());
    if (*wrong != '\0')
      return corrupt(where, "has a block that " + std::string(wrong), kTraceRemedy);
  }
  if (reader.is_at_end()) return Status::ok();
  return corrupt(where, "has a block that goes on behind its passes", kTraceRemedy);
}

void TraceBlock::add(const TracePass& pass) {
  append_number(payload_, pass.tokens);
  append_number(payload_, pass.head_us);
  append_number(payload_, static_cast<std::uint32_t>(pass.layers.size()));
  std::uint32_t next = 0;
  for (const TraceLayer& layer : pass.layers) {
    append_layer(payload_, layer, layer.layer - next);
    next = layer.layer + 1;
  }
  ++passes_;
}

std::vector<std::byte> TraceBlock::take() {
  std::vector<std::byte> block;
  append(block, static_cast<std::uint32_t>(payload_.size()));
  append(block, passes_);
  append(block, block_sum(block, payload_));
  block.insert(block.end(), payload_.begin(), payload_.end());
  payload_.clear();
  passes_ = 0;
  return block;
}

}  // namespace moepack
