// The routed experts of one layer as the forward pass computes them, with all of them in memory and
// a new random routing in every call: what one call takes at several batch sizes. Many experts make
// the weights come from memory rather than from a cache. bench/kt_kernel_bench.py prints the same
// table for kt-kernel.
#include <algorithm>
#include <cctype>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <deque>
#include <memory>
#include <numeric>
#include <random>
#include <span>
#include <string>
#include <vector>

#include <CLI/CLI.hpp>

#include "bench/random_weights.h"
#include "formats/base/bytes.h"
#include "formats/weights/row_order.h"
#include "runtime/model/activation_type.h"
#include "runtime/model/moe.h"
#include "runtime/store/expert_store.h"

namespace moepack {
namespace {

struct Options {
  std::uint32_t experts = 256;
  std::uint32_t used = 8;
  std::uint32_t hidden = 2048;
  std::uint32_t width = 512;
  std::size_t threads = 2;
  double seconds = 2;
  std::string cpu = "auto";
  std::string activations = "i16";
  bool in_rows = false;
  std::vector<std::size_t> batches{1, 8, 64, 512};
  std::vector<std::string> formats{"q4_0", "affine4", "q8_0"};
};

// Records of random weights without a file.
class RandomRecords final : public RecordReader {
 public:
  explicit RandomRecords(const ExpertLayout& layout) : record_(layout.record_bytes) {
    for (const Projection p : kAllProjections) {
      const ProjectionLayout& at = layout.of(p);
      const auto codes = std::span(record_).subspan(at.offset, at.bytes.codes());
      const std::uint64_t rest = at.bytes.total() - at.bytes.codes();
      fill_random(at.format, codes, std::span(record_).subspan(at.offset + codes.size(), rest));
    }
  }
  Status submit(std::span<const RecordRead> reads) override {
    reads_.insert(reads_.end(), reads.begin(), reads.end());
    return Status::ok();
  }
  std::size_t reap(std::span<RecordCompletion> out, bool /*wait*/) noexcept override {
    std::size_t given = 0;
    for (; given < out.size() && !reads_.empty(); ++given) {
      const RecordRead read = reads_.front();
      reads_.pop_front();
      std::copy_n(record_.data(), read.out.size(), read.out.data());
      out[given] = {.tag = read.tag, .bytes = read.out.size(), .finished = Clock::now()};
    }
    return given;
  }

 private:
  std::vector<std::byte> record_;
  std::deque<RecordRead> reads_;
};

WeightFormat format_called(const std::string& name) {
  if (name.starts_with("affine")) {
    for (const QFormatInfo& info : qformats()) {
      if (info.kind == QKind::kAffine && std::to_string(info.bits) == name.substr(6)) {
        return {.id = info.id, .group_size = 64};
      }
    }
  }
  for (const QFormatInfo& info : qformats()) {
    std::string lower(info.name);
    std::transform(lower.begin(), lower.end(), lower.begin(),
                   [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
    if (lower == name) return {.id = info.id};
  }
  std::fprintf(stderr, "no format is called %s\n", name.c_str());
  std::exit(2);
}

WeightFormat format_in_order(const Options& options, const std::string& name) {
  return in_order(format_called(name), options.in_rows ? RowOrder::kRows : RowOrder::kPanels);
}

ActivationType activations_called(const std::string& name) {
  const Result<ActivationType> type = parse_activation_type(name);
  if (type.is_ok()) return type.value();
  std::fprintf(stderr, "%s\n", type.status().message().c_str());
  std::exit(2);
}

const Kernels& kernels_called(const std::string& name) {
  const Result<CpuLevel> level = parse_cpu_level(name);
  const Result<const Kernels*> found =
      level.is_ok() ? cpu_kernels(level.value()) : Result<const Kernels*>(level.status());
  if (found.is_ok()) return *found.value();
  std::fprintf(stderr, "%s\n", found.status().message().c_str());
  std::exit(2);
}

PackManifest make_pack(const Options& options, const WeightFormat& format) {
  PackManifest pack;
  pack.num_layers = 1;
  pack.num_experts = options.experts;
  pack.hidden_size = options.hidden;
  pack.expert_width = options.width;
  pack.has_checksums = false;
  pack.layouts = {*make_expert_layout(options.hidden, options.width, {format, format, format})};
  LayerEntry layer;
  layer.file = layer_file_name(0);
  for (std::uint32_t e = 0; e < options.experts; ++e) {
    layer.experts.push_back({.offset = layer.file_size});
    layer.file_size += align_up(pack.layouts[0].record_bytes, pack.page_size);
  }
  pack.layers.push_back(layer);
  return pack;
}

class Layer {
 public:
  Layer(const Options& options, const WeightFormat& format)
      : pack_(make_pack(options, format)),
        config_(make_config(options)),
        scratch_(make_scratch(config_, options)),
        compute_(kernels_called(options.cpu), options.threads, scratch_.matmul_scratch,
                 scratch_.input_scratch()),
        moe_(config_, scratch_),
        store_(ExpertStore::open_with(std::make_unique<RandomRecords>(pack_.layouts[0]),
                                      least_recently_used(), ".", pack_,
                                      {.cache_bytes = 2 * pack_.layers[0].file_size})
                   .value()),
        router_(std::size_t{options.experts} * options.hidden) {
    std::normal_distribution<float> normal;
    for (float& value : router_) value = normal(random_);
    weights_.router = {.format = {.id = QFormatId::kF32},
                       .rows = options.experts,
                       .cols = options.hidden,
                       .data = affine_components<const std::byte*>(
                           reinterpret_cast<const std::byte*>(router_.data()))};
    read_all();
  }

  std::uint64_t expert_bytes() const { return pack_.layouts[0].record_bytes; }
  std::string_view table() const { return compute_.kernels().name; }

  // Seconds of one call with inputs and a routing of its own; `used`: how many experts it takes.
  double run(std::size_t tokens, std::size_t& used) {
    std::normal_distribution<float> normal;
    std::vector<float> u(tokens * config_.hidden_size);
    std::vector<float> out(u.size());
    for (float& value : u) value = normal(random_);
    (void)moe_.route_logits(compute_, weights_, u.data(), tokens);
    const RowRange rows{.first = 0, .count = tokens};
    std::vector<bool> is_used(config_.num_experts);
    for (const Assignment& a : moe_.choose(compute_, weights_.routing, {&rows, 1})) {
      is_used[a.expert] = true;
    }
    used = static_cast<std::size_t>(std::count(is_used.begin(), is_used.end(), true));
    const auto begin = std::chrono::steady_clock::now();
    const Status status =
        moe_.forward(compute_, weights_, 0, *store_, u.data(), tokens, out.data(), [] {});
    const auto end = std::chrono::steady_clock::now();
    if (!status.is_ok()) std::exit(1);
    return std::chrono::duration<double>(end - begin).count();
  }

 private:
  static ModelConfig make_config(const Options& options) {
    ModelConfig config;
    config.hidden_size = options.hidden;
    config.expert_width = options.width;
    config.num_experts = options.experts;
    config.experts_per_token = options.used;
    return config;
  }
  static Activations make_scratch(const ModelConfig& config, const Options& options) {
    const ActivationLimits limits{
        .tokens = *std::max_element(options.batches.begin(), options.batches.end()),
        .threads = options.threads,
        .context = 1,
        .logit_rows = 0,
        .activations = activations_called(options.activations)};
    return Activations::create(config, limits).value();
  }
  void read_all() {
    std::vector<std::uint32_t> ids(config_.num_experts);
    std::iota(ids.begin(), ids.end(), 0U);
    auto batch = store_->begin(0, ids);
    if (!batch.is_ok() || !batch.value().wait().is_ok()) std::exit(1);
  }

  PackManifest pack_;
  ModelConfig config_;
  Activations scratch_;
  Compute compute_;
  MixtureOfExperts moe_;
  std::unique_ptr<ExpertStore> store_;
  std::vector<float> router_;
  MoeWeights weights_;
  std::mt19937 random_{1};
};

void measure(const Options& options, Layer& layer, const std::string& format, std::size_t tokens) {
  std::vector<double> times;
  std::vector<std::size_t> used;
  for (double total = 0; times.size() < 5 || (total < options.seconds && times.size() < 2000);) {
    used.push_back(0);
    times.push_back(layer.run(tokens, used.back()));
    total += times.back();
  }
  const std::size_t skipped = times.size() / 5;  // warm-up
  times.erase(times.begin(), times.begin() + static_cast<std::ptrdiff_t>(skipped));
  std::nth_element(times.begin(), times.begin() + static_cast<std::ptrdiff_t>(times.size() / 2),
                   times.end());
  const double median = times[times.size() / 2];
  const double operations =
      6.0 * static_cast<double>(tokens) * options.used * options.hidden * options.width;
  std::printf("moepack %-10s %-8s threads %2zu batch %4zu: %9.1f us  %6.1f GB/s  %7.1f GOP/s\n",
              std::string(layer.table()).c_str(), format.c_str(), options.threads, tokens,
              median * 1e6, static_cast<double>(used.back() * layer.expert_bytes()) / median / 1e9,
              operations / median / 1e9);
  std::fflush(stdout);
}

}  // namespace
}  // namespace moepack

int main(int argc, char** argv) {
  moepack::Options options;
  CLI::App app{"The experts of one layer, everything in memory"};
  app.add_option("--experts", options.experts, "in the layer");
  app.add_option("--used", options.used, "of each token");
  app.add_option("--hidden", options.hidden, "inputs and outputs of an expert");
  app.add_option("--width", options.width, "of an expert");
  app.add_option("-t,--threads", options.threads, "of the pool");
  app.add_option("--seconds", options.seconds, "of each measurement");
  app.add_option("--cpu", options.cpu, "instruction set");
  app.add_option("--activations", options.activations, "f32, i16 or i8");
  app.add_flag("--in-rows", options.in_rows, "experts in rows instead of panels of 16");
  app.add_option("--batches", options.batches, "tokens of a call")->delimiter(',');
  app.add_option("--formats", options.formats, "q4_0, affine4, …")->delimiter(',');
  CLI11_PARSE(app, argc, argv);
  for (const std::string& format : options.formats) {
    moepack::Layer layer(options, moepack::format_in_order(options, format));
    for (const std::size_t tokens : options.batches) {
      moepack::measure(options, layer, format, tokens);
    }
  }
  return 0;
}
