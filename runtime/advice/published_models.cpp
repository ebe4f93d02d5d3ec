#include "runtime/advice/published_models.h"

#include <algorithm>
#include <array>
#include <string>

#include "formats/base/bytes.h"
#include "runtime/model/expert_lookahead.h"

namespace moepack {
namespace {

constexpr std::uint64_t kMiB = std::uint64_t{1} << 20;
// Activations of a chunk of 512 tokens, lists and the program itself.
constexpr double kScratchBytes = 400e6;
// Of the memory there is, left to everything else, as the memory plan does.
constexpr double kReserve = 1.0 / 8;
constexpr std::uint32_t kResidentBits = 4;

// Keys and values: full-attention layers x 2 x KV heads x head size x 2 bytes; of Kimi K2 the
// compressed ones, 61 x (512 + 64) x 2.
constexpr std::array<PublishedModel, 6> kModels{{
    {"Qwen3.5-35B-A3B", 40, 256, 8, 2048, 512, 2.448e9, 20480, 60 * kMiB, true},
    {"Qwen3.5-122B-A10B", 48, 256, 8, 3072, 1024, 6.147e9, 24576, 144 * kMiB, true},
    {"Qwen3.5-397B-A17B", 60, 512, 10, 4096, 1024, 9.799e9, 30720, 180 * kMiB, true},
    {"Qwen3-235B-A22B", 94, 128, 8, 4096, 1536, 7.997e9, 192512, 0, true},
    {"gpt-oss-120b", 36, 128, 4, 2880, 2880, 2.128e9, 73728, 0, false},
    {"Kimi-K2", 60, 384, 8, 7168, 2048, 11.722e9, 70272, 0, false},
}};

double expert_parameters(const PublishedModel& model) {
  return 3.0 * model.hidden_size * model.expert_width;
}

QFormatId affine_of(std::uint32_t bits) { return affine_qformat(bits).value_or(QFormatId::kQ4); }

void add_matrix(const std::string& name, std::uint64_t rows, std::uint64_t cols,
                ResidentManifest& manifest) {
  ResidentTensor tensor;
  tensor.name = name;
  tensor.format = {.id = affine_of(kResidentBits), .group_size = 64};
  tensor.shape = {rows, cols};
  tensor.rows = rows;
  tensor.cols = cols;
  tensor.bytes = matrix_bytes(tensor.format, rows, cols).value_or(MatrixBytes{});
  manifest.tensors.push_back(tensor);
}

}  // namespace

std::span<const PublishedModel> published_models() { return kModels; }

PublishedSize published_size(const PublishedModel& model, std::uint32_t bits,
                             std::uint64_t context) {
  PublishedSize size;
  size.record_bytes = expert_parameters(model) * stored_bits(bits) / 8;
  const double token = size.record_bytes * model.moe_layers * model.experts_per_token;
  size.pack_bytes = size.record_bytes * model.moe_layers * model.experts;
  size.resident_bytes = model.other_parameters * stored_bits(kResidentBits) / 8;
  size.state_bytes =
      static_cast<double>(model.key_value_bytes * context) + static_cast<double>(model.state_bytes);
  size.floor_bytes = size.resident_bytes + size.state_bytes + kScratchBytes + token;
  return size;
}

PublishedFit published_fit(const PublishedModel& model, std::uint32_t bits, std::uint64_t context,
                           const Machine& machine, const ComputeRates& compute) {
  PublishedFit fit{.size = published_size(model, bits, context), .usual = {}, .cold = {}};
  const PublishedSize& size = fit.size;
  fit.fits_memory = size.floor_bytes <= machine.available_bytes;
  fit.fits_disk = size.pack_bytes + size.resident_bytes <= machine.free_bytes;
  const double token = size.record_bytes * model.moe_layers * model.experts_per_token;
  const double spare = machine.available_bytes * (1 - kReserve) - (size.floor_bytes - token);
  fit.cache_share = std::clamp(spare / size.pack_bytes, token / size.pack_bytes, 1.0);
  const TokenWork work{.layers = model.moe_layers,
                       .experts_per_token = model.experts_per_token,
                       .record_bytes = size.record_bytes,
                       .resident_bytes = size.resident_bytes,
                       .state_bytes = 2.0 * static_cast<double>(model.state_bytes)};
  const ReadAhead ahead{.experts = automatic_lookahead(model.experts_per_token)};
  fit.usual = predict_speed(work, compute, machine.disk, ahead, fit.cache_share);
  fit.cold = predict_speed(work, compute, machine.disk, ahead, 0);
  return fit;
}

ModelDir sample_of(const PublishedModel& model, std::uint32_t bits) {
  ModelDir dir;
  dir.config.hidden_size = model.hidden_size;
  dir.config.expert_width = model.expert_width;
  dir.config.num_experts = model.experts;
  dir.config.experts_per_token = model.experts_per_token;
  const WeightFormat format{.id = affine_of(bits), .group_size = 64};
  dir.pack.num_layers = 1;
  dir.pack.num_experts = model.experts;
  const auto layout =
      make_expert_layout(model.hidden_size, model.expert_width, {format, format, format});
  if (layout.has_value()) dir.pack.layouts.push_back(*layout);
  const std::uint64_t hidden = model.hidden_size;
  add_matrix("in", 4 * hidden, hidden, dir.residents);
  add_matrix("gate", 2 * hidden, hidden, dir.residents);
  add_matrix("out", hidden, 2 * hidden, dir.residents);
  add_matrix("up", model.expert_width, hidden, dir.residents);
  add_matrix("head", 32 * hidden, hidden, dir.residents);
  return dir;
}

}  // namespace moepack
