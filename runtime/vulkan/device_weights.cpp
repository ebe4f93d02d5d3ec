#include "runtime/vulkan/device_weights.h"

#include <algorithm>
#include <utility>

#include "runtime/model/rope.h"
#include "runtime/vulkan/device_rows.h"
#include "runtime/vulkan/weight_kernels.h"

namespace moepack {
namespace {

constexpr std::uint64_t kBlockBytes = std::uint64_t{64} << 20;
// Of rows that are brought into the device's order together.
constexpr std::uint64_t kOrderedBytes = std::uint64_t{8} << 20;

// Copies what it is given and keeps the first error, so that the copying reads as a list.
class Uploader {
 public:
  Uploader(VulkanDevice& device, DeviceArena& arena) : device_(device), arena_(arena) {}

  DeviceFloats floats(std::span<const float> values) {
    if (values.empty()) return 0;
    return put(std::as_bytes(values)).address;
  }

  std::uint64_t bytes(std::span<const std::byte> values) { return put(values).address; }

  // In pieces of a multiple of `unit` rows, of which `rows` is one.
  DeviceMatrix matrix(const QMatrixView& view, std::uint64_t unit = 1) {
    DeviceMatrix matrix{.format = view.format, .rows = view.rows, .cols = view.cols, .pieces = {}};
    const std::optional<MatrixBytes> row = matrix_bytes(view.format, 1, view.cols);
    if (!status_.is_ok() || !row.has_value()) return matrix;
    const std::uint64_t most =
        std::max<std::uint64_t>(1, device_.info().most_allocation / row->total() * 3 / 4 / unit) *
        unit;
    for (std::uint64_t first = 0; first < view.rows; first += most) {
      DeviceRows rows{.first = first, .count = std::min(most, view.rows - first), .address = {}};
      for (const Component c : stored_components(view.format)) {
        const std::uint64_t bytes = (*row)[c];
        rows.address[c] =
            put_rows(view.format, c, rows.count, bytes, view.data[c] + first * bytes).address;
      }
      matrix.pieces.push_back(rows);
    }
    return matrix;
  }

  // Gate, up and down as one record, laid out as a pack would.
  std::uint64_t record(const ExpertLayout& layout, std::span<const QMatrixView> views) {
    if (!status_.is_ok()) return 0;
    Result<DeviceRange> range = arena_.take(layout.record_bytes);
    if (!range.is_ok()) return fail(range.status());
    for (std::size_t p = 0; p < kProjections; ++p) {
      const ProjectionLayout& projection = layout.projections[p];
      for (const Component c : stored_components(projection.format)) {
        DeviceRange to = range.value();
        to.offset += projection.offset_of(c);
        const Status status =
            upload_rows(views[p].format, c, projection.rows, projection.bytes[c] / projection.rows,
                        views[p].data[c], to);
        if (!status.is_ok()) return fail(status);
      }
    }
    return range.value().address;
  }

  const Status& status() const { return status_; }

 private:
  DeviceRange put(std::span<const std::byte> bytes) {
    if (!status_.is_ok()) return {};
    Result<DeviceRange> range = arena_.put(bytes);
    if (range.is_ok()) return range.value();
    fail(range.status());
    return {};
  }
  // In the device's order.
  DeviceRange put_rows(const WeightFormat& format, Component c, std::uint64_t rows,
                       std::uint64_t row_bytes, const std::byte* from) {
    if (!status_.is_ok()) return {};
    // Kernels read whole words, the last of which may reach beyond the bytes.
    Result<DeviceRange> range = arena_.take(rows * row_bytes + 4);
    Status status = range.status();
    if (status.is_ok()) status = upload_rows(format, c, rows, row_bytes, from, range.value());
    if (status.is_ok()) return range.value();
    fail(status);
    return {};
  }
  Status upload_rows(const WeightFormat& format, Component c, std::uint64_t rows,
                     std::uint64_t row_bytes, const std::byte* from, const DeviceRange& to) {
    if (!differs_on_device(format)) {
      return device_.upload(*to.buffer, to.offset, {from, rows * row_bytes});
    }
    const std::uint64_t step = rows_of_piece(format, row_bytes, kOrderedBytes);
    ordered_.resize(std::min(step, rows) * row_bytes);
    for (std::uint64_t row = 0; row < rows; row += step) {
      const std::uint64_t count = std::min(step, rows - row);
      to_device_rows(format, c, count, row_bytes, from + row * row_bytes, ordered_.data());
      MOE_RETURN_IF_ERROR(device_.upload(*to.buffer, to.offset + row * row_bytes,
                                         std::span(ordered_).first(count * row_bytes)));
    }
    return Status::ok();
  }
  std::uint64_t fail(const Status& status) {
    if (status_.is_ok()) status_ = status;
    return 0;
  }

  VulkanDevice& device_;
  DeviceArena& arena_;
  std::vector<std::byte> ordered_;  // rows as the device has them
  Status status_;
};

std::vector<float> joined(std::initializer_list<std::span<const float>> parts) {
  std::vector<float> all;
  for (const std::span<const float> part : parts) all.insert(all.end(), part.begin(), part.end());
  return all;
}

// [E, 2, M] of two times [E, M].
std::vector<float> interleaved(std::span<const float> gate, std::span<const float> up,
                               std::size_t width) {
  std::vector<float> all;
  for (std::size_t at = 0; at < gate.size(); at += width) {
    for (const std::span<const float> from : {gate, up}) {
      const auto row = from.subspan(at, width);
      all.insert(all.end(), row.begin(), row.end());
    }
  }
  return all;
}

// Rotary frequencies, once for all layers with the same heads.
class Frequencies {
 public:
  Frequencies(Uploader& up, const ModelConfig& config) : up_(up), config_(config) {}

  DeviceFloats of(const HeadSizes& heads) {
    for (const auto& [known, address] : uploaded_) {
      if (known == heads) return address;
    }
    uploaded_.emplace_back(heads, up_.floats(Rope(config_, heads).inverse_frequency()));
    return uploaded_.back().second;
  }

 private:
  Uploader& up_;
  const ModelConfig& config_;
  std::vector<std::pair<HeadSizes, DeviceFloats>> uploaded_;
};

DeviceAttention attention(Uploader& up, const ModelConfig& config, const FullAttentionWeights& w,
                          Frequencies& frequencies) {
  const HeadSizes heads = config.heads_of(w.spec);
  return {.spec = w.spec,
          .heads = heads,
          .q = up.matrix(w.q),
          .k = up.matrix(w.k),
          .v = w.spec.values_are_keys ? DeviceMatrix{} : up.matrix(w.v),
          .o = up.matrix(w.o),
          .q_norm = up.floats(w.q_norm),
          .k_norm = up.floats(w.k_norm),
          .bias = up.floats(joined({w.q_bias, w.k_bias, w.v_bias})),
          .output_bias = up.floats(w.o_bias),
          .sinks = up.floats(w.sinks),
          .inverse_frequency = frequencies.of(heads)};
}

DeviceDelta delta(Uploader& up, const DeltaNetWeights& w) {
  return {.in_qkv = up.matrix(w.in_qkv),
          .in_z = up.matrix(w.in_z),
          .in_b = up.matrix(w.in_b),
          .in_a = up.matrix(w.in_a),
          .out = up.matrix(w.out),
          .conv = up.floats(w.conv),
          .decay_rate = up.floats(w.decay_rate),
          .dt_bias = up.floats(w.dt_bias),
          .norm = up.floats(w.norm),
          .tiled_v_heads = w.tiled_v_heads};
}

DeviceLatent latent(Uploader& up, const ModelConfig& config, const LatentAttentionWeights& w) {
  DeviceLatent on_device{.spec = w.spec,
                         .q_down = {},
                         .q_down_norm = up.floats(w.q_down_norm),
                         .q = up.matrix(w.q),
                         .kv_down = up.matrix(w.kv_down),
                         .kv_norm = up.floats(w.kv_norm),
                         .kv_up = up.matrix(w.kv_up, w.kv_up.rows / config.num_heads),
                         .o = up.matrix(w.o)};
  if (w.spec.has_query_rank) on_device.q_down = up.matrix(w.q_down);
  return on_device;
}

void add_routed(Uploader& up, const ModelConfig& config, const MoeWeights& w, DeviceMoe& moe) {
  moe.routing = w.routing.spec;
  moe.router = up.matrix(w.router);
  moe.router_norm = up.floats(w.router_norm);
  const std::vector<float>& bias = w.router_bias.empty() ? w.routing.correction : w.router_bias;
  moe.has_router_bias = !bias.empty();
  moe.has_expert_scales = !w.routing.expert_scales.empty();
  moe.router_numbers = up.floats(joined({bias, w.routing.expert_scales}));
  moe.activation = w.activation;
  moe.activation_limit = w.activation_limit;
  moe.gate_up_bias = up.floats(interleaved(w.gate_bias, w.up_bias, config.expert_width));
  moe.down_bias = up.floats(w.down_bias);
}

DeviceMoe moe(Uploader& up, const ModelConfig& config, const MoeWeights& w) {
  DeviceMoe moe;
  moe.has_experts = w.has_experts;
  if (w.has_experts) add_routed(up, config, w, moe);
  moe.is_plain_sum = w.is_plain_sum();
  moe.shared_input_norm = up.floats(w.shared_input_norm);
  moe.shared_output_norm = up.floats(w.shared_output_norm);
  moe.routed_output_norm = up.floats(w.routed_output_norm);
  moe.output_norm = up.floats(w.output_norm);
  moe.output_scale = up.floats(w.output_scale);
  moe.has_shared = w.has_shared;
  if (!w.has_shared) return moe;
  moe.has_shared_gate = w.has_experts && w.has_shared_gate;
  if (moe.has_shared_gate) moe.shared_expert_gate = up.matrix(w.shared_expert_gate);
  const std::array<QMatrixView, kProjections> views{w.shared_gate, w.shared_up, w.shared_down};
  moe.shared = make_expert_layout(w.shared_gate.cols, w.shared_gate.rows,
                                  {views[0].format, views[1].format, views[2].format})
                   .value_or(ExpertLayout{});
  moe.shared_record = up.record(moe.shared, views);
  return moe;
}

}  // namespace

DeviceWeights::DeviceWeights(VulkanDevice& device) : arena(device, kBlockBytes) {}

Result<std::unique_ptr<DeviceWeights>> upload_weights(VulkanDevice& device,
                                                      const ModelConfig& config,
                                                      const ModelWeights& weights,
                                                      const StagePlace& place) {
  auto on_device = std::make_unique<DeviceWeights>(device);
  const std::vector<std::uint16_t> tables = weight_tables();
  Uploader up(device, on_device->arena);
  const bool is_tied = weights.lm_head.codes() == weights.embedding.codes();
  if (place.is_first || (place.is_last && is_tied)) {
    on_device->embedding = up.matrix(weights.embedding);
  }
  if (place.is_last) {
    on_device->lm_head = is_tied ? on_device->embedding : up.matrix(weights.lm_head);
  }
  on_device->final_norm = up.floats(weights.final_norm);
  on_device->tables = up.bytes(std::as_bytes(std::span<const std::uint16_t>(tables)));
  const Rope rope(config);
  on_device->inverse_frequency = up.floats(rope.inverse_frequency());
  on_device->rope_amplitude = rope.amplitude();
  Frequencies frequencies(up, config);
  for (const LayerWeights& w : weights.layers) {
    DeviceLayer layer;
    layer.input_norm = up.floats(w.input_norm);
    layer.post_norm = up.floats(w.post_norm);
    layer.mixer_norm = up.floats(w.mixer_norm);
    if (const auto* full = std::get_if<FullAttentionWeights>(&w.mixer)) {
      layer.mixer = attention(up, config, *full, frequencies);
    } else if (const auto* compressed = std::get_if<LatentAttentionWeights>(&w.mixer)) {
      layer.mixer = latent(up, config, *compressed);
    } else {
      layer.mixer = delta(up, std::get<DeltaNetWeights>(w.mixer));
    }
    layer.moe = moe(up, config, w.moe);
    on_device->layers.push_back(std::move(layer));
  }
  MOE_RETURN_IF_ERROR(up.status());
  return on_device;
}

}  // namespace moepack
