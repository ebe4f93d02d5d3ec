// What a layer's kernels between its products take on a GPU: GatedDeltaNet, attention and routing,
// of one token and of a prompt, cut in several ways. Prints microseconds of each dispatch with its
// barrier; states and caches are taken in turn, so that they come from memory.
#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include <CLI/CLI.hpp>

#include "runtime/model/kv_encoding.h"
#include "runtime/vulkan/command_list.h"
#include "runtime/vulkan/delta_state.h"
#include "runtime/vulkan/kernel_set.h"
#include "runtime/vulkan/mixer_shapes.h"
#include "runtime/vulkan/vulkan_device.h"
#include "runtime/vulkan/weight_kernels.h"
#include "shaders/argmax_args.h"
#include "shaders/attention_args.h"
#include "shaders/delta_args.h"
#include "shaders/group_rows_args.h"
#include "shaders/matvec_args.h"
#include "shaders/read_sum_args.h"
#include "shaders/rms_norm_args.h"
#include "shaders/route_args.h"

namespace moepack {
namespace {

constexpr float kEps = 1e-6F;
constexpr std::uint32_t kBfloat16 = 1;

struct Options {
  std::uint32_t rows = 512;       // of the prompt
  std::uint32_t position = 4096;  // tokens before the batch
  std::uint32_t copies = 10;      // layers whose states are taken in turn
  std::uint32_t heads = 16;
  std::uint32_t kv_heads = 2;
  std::uint32_t head_dim = 256;
  std::uint32_t rotary_dim = 64;
  std::uint32_t key_heads = 16;
  std::uint32_t value_heads = 32;
  std::uint32_t key_dim = 128;
  std::uint32_t value_dim = 128;
  std::uint32_t taps = 4;
  std::uint32_t experts = 256;
  std::uint32_t top_k = 8;
  std::uint32_t hidden = 2048;
  std::uint32_t vocabulary = 248320;
  std::uint32_t between = 100;  // MiB that other kernels read
};

std::uint32_t groups_of(std::uint32_t count, std::uint32_t size) {
  return (count + size - 1) / size;
}

// Everything that may fail here ends the program: it measures and does nothing else.
template <typename T>
T need(Result<T> result) {
  if (!result.is_ok()) {
    std::fprintf(stderr, "error: %s\n", result.status().message().c_str());
    std::exit(2);
  }
  return std::move(result).value();
}
void need(const Status& status) {
  if (!status.is_ok()) {
    std::fprintf(stderr, "error: %s\n", status.message().c_str());
    std::exit(2);
  }
}

// Products of small matrices in several formats, whose programs take the place of others in the
// caches of instructions, as a layer's products do.
class Others {
 public:
  explicit Others(VulkanDevice& device) : device_(device), set_(device) {
    memory_ = need(device.allocate(std::uint64_t{256} << 20, MemoryKind::kDevice));
    CommandList list(device);
    list.fill(memory_.handle(), 0, memory_.size(), 0);
    need(device.run(list));
    for (const QFormatId id : {QFormatId::kQ4, QFormatId::kQ8, QFormatId::kQ6K, QFormatId::kQ4K,
                               QFormatId::kQ40, QFormatId::kQ5K, QFormatId::kQ80}) {
      const WeightRows weights{.format = {.id = id, .group_size = 64}, .cols = kCols};
      const WeightKernelShape cut = usual_shape(weights, device.info());
      kernels_.push_back(
          {&set_.get(shader_name("matvec", weights.format),
                     matvec_constants(weights, cut, device.info(), {.has_norm = true})),
           groups_for_rows(cut, kRows, device.info())});
      need(set_.status());
    }
  }
  void record(CommandList& list, std::uint32_t mebibytes) {
    for (const auto& [kernel, groups] : kernels_) {
      list.dispatch(*kernel,
                    shader::MatvecArgs{.codes = at(32),
                                       .scales = at(64),
                                       .biases = at(96),
                                       .x = at(1),
                                       .factor = at(2),
                                       .y = at(3),
                                       .added = 0,
                                       .indices = 0,
                                       .tables = at(4),
                                       .rows = kRows,
                                       .x_stride = kCols,
                                       .y_stride = kRows,
                                       .eps = kEps},
                    {groups, 1, 1});
      list.barrier();
    }
    if (mebibytes == 0) return;
    list.dispatch(
        set_.get("read_sum", {256}),
        shader::ReadSumArgs{.data = at(8), .sums = at(0), .vectors = (mebibytes << 20) / 16},
        {1056, 1, 1});
    list.barrier();
  }

 private:
  static constexpr std::uint32_t kRows = 2048;
  static constexpr std::uint32_t kCols = 2048;
  std::uint64_t at(std::uint32_t mebibyte) const {
    return memory_.address() + (std::uint64_t{mebibyte} << 20);
  }
  VulkanDevice& device_;
  KernelSet set_;
  DeviceBuffer memory_;
  std::vector<std::pair<const VulkanKernel*, std::uint32_t>> kernels_;
};

class Bench {
 public:
  Bench(const Options& options, VulkanDevice& device) : o_(options), device_(device) {
    const std::uint64_t context = std::uint64_t{o_.position} + o_.rows;
    make_states(delta_states_, delta_table_, delta_shape().device_floats() * 4);
    make_states(caches_, cache_table_, context * 4 * o_.kv_heads * o_.head_dim);
    one_ = batch(1);
    many_ = batch(o_.rows);
  }

  // A device at rest has a slow clock.
  void warm_up() {
    CommandList list(device_);
    for (int i = 0; i < 50; ++i) others_.record(list, 200);
    const auto start = std::chrono::steady_clock::now();
    while (std::chrono::steady_clock::now() - start < std::chrono::milliseconds(1500)) {
      need(device_.run(list));
    }
  }

  void measure_all() {
    if (device_.info().type != VulkanDeviceType::kCpu) warm_up();
    std::printf("one token at position %u\n", o_.position);
    nothing();
    for (const std::uint32_t threads : {256U, 512U, 1024U}) delta_step(one_, threads);
    for (const std::uint32_t threads : {64U, 128U}) qk_prepare(one_, threads);
    for (const std::uint32_t queries : {4U, 8U}) {
      for (const std::uint32_t splits : {8U, 16U, 32U, 64U}) attend(queries, splits);
    }
    route(one_);
    argmax();
    if (o_.rows < 2) return;
    std::printf("a prompt of %u rows behind position %u\n", o_.rows, o_.position);
    delta_step(many_, delta_step_shape(o_.value_dim).threads);
    for (const std::uint32_t threads : {64U, 128U, 256U}) delta_prompt(threads);
    qk_prepare(many_, 64);
    attend_prompt();
    route(many_);
    for (const std::uint32_t threads : {256U, 1024U}) group_rows(threads);
    rms_norm();
  }

 private:
  struct Batch {
    DeviceBuffer rows;
    DeviceBuffer slices;
    std::uint32_t count = 0;
  };

  DeltaStateShape delta_shape() const {
    return {.key_heads = o_.key_heads,
            .value_heads = o_.value_heads,
            .key_dim = o_.key_dim,
            .value_dim = o_.value_dim,
            .taps = o_.taps};
  }

  Batch batch(std::uint32_t count) {
    std::vector<shader::BatchRow> rows;
    for (std::uint32_t t = 0; t < count; ++t) rows.push_back({0, o_.position + t, 0, 1});
    return {put(rows), put(std::vector<shader::BatchSlice>{{0, count, o_.position, 1}}), count};
  }
  void make_states(std::vector<DeviceBuffer>& states, std::vector<DeviceBuffer>& tables,
                   std::uint64_t bytes) {
    const std::vector<std::byte> zeros(bytes);
    for (std::uint32_t i = 0; i < o_.copies; ++i) {
      states.push_back(put(zeros));
      tables.push_back(put(std::vector<std::uint64_t>{states.back().address()}));
    }
  }
  DeviceBuffer make(std::uint64_t bytes) {
    return need(device_.allocate(bytes, MemoryKind::kDevice));
  }
  template <typename T>
  DeviceBuffer put(const std::vector<T>& values) {
    DeviceBuffer buffer = make(values.size() * sizeof(T));
    need(device_.upload(buffer, 0, std::as_bytes(std::span(values))));
    return buffer;
  }
  DeviceBuffer random(std::uint64_t count, float magnitude = 1.0F) {
    std::mt19937 random(1);
    std::normal_distribution<float> normal(0.0F, magnitude);
    std::vector<float> values(count);
    for (float& value : values) value = normal(random);
    return put(values);
  }
  const VulkanKernel& kernel(std::string_view name, std::vector<std::uint32_t> constants) {
    const VulkanKernel& found = kernels_.get(name, std::move(constants));
    need(kernels_.status());
    return found;
  }

  // Prints the time of what `record` records, with a barrier behind: in a loop, as the best of five
  // submissions; and, by the device's clock, with other programs before each, alone and with as
  // much memory as a layer reads. record is told the turn.
  template <typename Record>
  void measure(const std::string& name, const Record& record) {
    constexpr std::uint32_t kRepeats = 40;
    double best = 1e9;
    CommandList list(device_);
    for (std::uint32_t i = 0; i < kRepeats; ++i) {
      record(list, i % o_.copies);
      list.barrier();
    }
    for (int i = 0; i < 5; ++i) {
      const auto start = std::chrono::steady_clock::now();
      need(device_.run(list));
      const std::chrono::duration<double> taken = std::chrono::steady_clock::now() - start;
      best = std::min(best, taken.count());
    }
    std::printf("  %-44s %9.2f us, among others %6.2f, with memory %6.2f\n", name.c_str(),
                best / kRepeats * 1e6, among_others(record, 0), among_others(record, o_.between));
    std::fflush(stdout);
  }

  // Microseconds by the device's clock, the median of all turns.
  template <typename Record>
  double among_others(const Record& record, std::uint32_t mebibytes) {
    constexpr std::uint32_t kRepeats = 40;
    CommandList list(device_, {.is_timed = true});
    std::vector<std::pair<std::size_t, std::size_t>> spans;
    for (std::uint32_t i = 0; i < kRepeats; ++i) {
      others_.record(list, mebibytes);
      const std::size_t first = list.spans().size();
      record(list, i % o_.copies);
      list.barrier();
      spans.emplace_back(first, list.spans().size());
    }
    std::vector<double> times;
    for (int run = 0; run < 3; ++run) {
      need(device_.run(list));
      const std::vector<double> seconds = list.span_seconds();
      for (const auto& [first, end] : spans) {
        double sum = 0;
        for (std::size_t i = first; i < end && i < seconds.size(); ++i) sum += seconds[i];
        times.push_back(sum);
      }
    }
    std::sort(times.begin(), times.end());
    return times.empty() ? 0 : 1e6 * times[times.size() / 2];
  }

  std::vector<std::uint32_t> delta_constants(std::uint32_t threads) const {
    return {threads, o_.key_dim, o_.value_dim, o_.taps};
  }
  std::uint32_t channels() const { return static_cast<std::uint32_t>(delta_shape().channels()); }
  std::uint32_t delta_width() const { return o_.value_heads * o_.value_dim; }

  void nothing() {
    const DeviceBuffer memory = make(64);
    measure("a kernel that reads 16 bytes", [&](CommandList& list, std::uint32_t) {
      list.dispatch(
          kernel("read_sum", {256}),
          shader::ReadSumArgs{.data = memory.address(), .sums = memory.address(), .vectors = 1},
          {1, 1, 1});
    });
  }

  void delta_step(const Batch& batch, std::uint32_t threads) {
    const DeviceBuffer qkv = random(std::uint64_t{batch.count} * channels());
    const DeviceBuffer z = random(std::uint64_t{batch.count} * delta_width());
    const DeviceBuffer ab = random(std::uint64_t{batch.count} * o_.value_heads);
    const DeviceBuffer weights = random(std::uint64_t{o_.taps} * channels());
    const DeviceBuffer mixed = make(std::uint64_t{batch.count} * delta_width() * 4);
    std::vector<std::uint32_t> constants = delta_constants(threads);
    constants.push_back(groups_of(8 * o_.value_dim, threads));
    measure("delta_step, " + std::to_string(threads) + " threads",
            [&](CommandList& list, std::uint32_t turn) {
              list.dispatch(kernel("delta_step", constants),
                            shader::DeltaStepArgs{.slices = batch.slices.address(),
                                                  .states = delta_table_[turn].address(),
                                                  .qkv = qkv.address(),
                                                  .z = z.address(),
                                                  .a = ab.address(),
                                                  .b = ab.address(),
                                                  .conv = weights.address(),
                                                  .decay_rate = weights.address(),
                                                  .dt_bias = weights.address(),
                                                  .norm = weights.address(),
                                                  .mixed = mixed.address(),
                                                  .qkv_stride = channels(),
                                                  .z_stride = delta_width(),
                                                  .ab_stride = o_.value_heads,
                                                  .key_heads = o_.key_heads,
                                                  .value_heads = o_.value_heads,
                                                  .is_tiled = 0,
                                                  .eps = kEps},
                            {o_.value_heads, 1, 1});
            });
  }

  void delta_prompt(std::uint32_t threads) {
    const std::uint64_t pad = groups_of(o_.key_dim, 32) * 32;
    const DeviceBuffer qkv = random(std::uint64_t{o_.rows} * channels());
    const DeviceBuffer z = random(std::uint64_t{o_.rows} * delta_width());
    const DeviceBuffer ab = random(std::uint64_t{o_.rows} * o_.value_heads);
    const DeviceBuffer weights = random(std::uint64_t{o_.taps} * channels());
    const DeviceBuffer keys = make(o_.rows * 2 * o_.key_heads * pad * 4);
    const DeviceBuffer values = make(std::uint64_t{o_.rows} * delta_width() * 4);
    const DeviceBuffer factors = make(std::uint64_t{o_.rows} * o_.value_heads * 2 * 4);
    const DeviceBuffer mixed = make(std::uint64_t{o_.rows} * delta_width() * 4);
    const std::string cut = ", " + std::to_string(threads) + " threads";
    measure("delta_prepare" + cut, [&](CommandList& list, std::uint32_t turn) {
      list.dispatch(kernel("delta_prepare", delta_constants(threads)),
                    shader::DeltaPrepareArgs{.rows = many_.rows.address(),
                                             .slices = many_.slices.address(),
                                             .states = delta_table_[turn].address(),
                                             .qkv = qkv.address(),
                                             .a = ab.address(),
                                             .b = ab.address(),
                                             .conv = weights.address(),
                                             .decay_rate = weights.address(),
                                             .dt_bias = weights.address(),
                                             .keys = keys.address(),
                                             .values = values.address(),
                                             .factors = factors.address(),
                                             .qkv_stride = channels(),
                                             .ab_stride = o_.value_heads,
                                             .key_heads = o_.key_heads,
                                             .value_heads = o_.value_heads,
                                             .is_tiled = 0},
                    {o_.rows, 1, 1});
    });
    measure("delta_recur" + cut, [&](CommandList& list, std::uint32_t turn) {
      list.dispatch(kernel("delta_recur", delta_constants(threads)),
                    shader::DeltaRecurArgs{.slices = many_.slices.address(),
                                           .states = delta_table_[turn].address(),
                                           .qkv = qkv.address(),
                                           .keys = keys.address(),
                                           .values = values.address(),
                                           .factors = factors.address(),
                                           .mixed = mixed.address(),
                                           .qkv_stride = channels(),
                                           .key_heads = o_.key_heads,
                                           .value_heads = o_.value_heads,
                                           .is_tiled = 0},
                    {groups_of(o_.value_dim, threads / 8), o_.value_heads, 1});
    });
    measure("delta_gate" + cut, [&](CommandList& list, std::uint32_t) {
      list.dispatch(kernel("delta_gate", delta_constants(threads)),
                    shader::DeltaGateArgs{.rows = many_.rows.address(),
                                          .z = z.address(),
                                          .norm = weights.address(),
                                          .mixed = mixed.address(),
                                          .z_stride = delta_width(),
                                          .value_heads = o_.value_heads,
                                          .count = o_.rows,
                                          .eps = kEps},
                    {groups_of(o_.rows * o_.value_heads * 8, threads), 1, 1});
    });
  }

  std::uint32_t q_width() const { return 2 * o_.heads * o_.head_dim; }

  void qk_prepare(const Batch& batch, std::uint32_t threads) {
    const DeviceBuffer q = random(std::uint64_t{batch.count} * q_width());
    const DeviceBuffer kv = random(std::uint64_t{batch.count} * o_.kv_heads * o_.head_dim);
    const DeviceBuffer factor = random(o_.head_dim);
    measure("qk_prepare, " + std::to_string(threads) + " threads",
            [&](CommandList& list, std::uint32_t turn) {
              list.dispatch(kernel("qk_prepare", {threads, o_.head_dim, kBfloat16}),
                            shader::QkPrepareArgs{.rows = batch.rows.address(),
                                                  .q = q.address(),
                                                  .k = kv.address(),
                                                  .v = kv.address(),
                                                  .q_norm = factor.address(),
                                                  .k_norm = factor.address(),
                                                  .inverse_frequency = factor.address(),
                                                  .bias = 0,
                                                  .caches = cache_table_[turn].address(),
                                                  .q_stride = q_width(),
                                                  .q_step = 2 * o_.head_dim,
                                                  .k_stride = o_.kv_heads * o_.head_dim,
                                                  .v_stride = o_.kv_heads * o_.head_dim,
                                                  .num_heads = o_.heads,
                                                  .kv_heads = o_.kv_heads,
                                                  .rotary_dim = o_.rotary_dim,
                                                  .is_whole_width = 0,
                                                  .eps = kEps,
                                                  .clip = 1e30F},
                            {o_.heads + 2 * o_.kv_heads, batch.count, 1});
            });
  }

  void attend(std::uint32_t queries, std::uint32_t splits) {
    const std::uint32_t lanes =
        attend_shape(o_.heads, o_.kv_heads, o_.head_dim, device_.info().subgroup_size, o_.position)
            .lanes;
    const DeviceBuffer q = random(q_width(), 0.1F);
    const DeviceBuffer values = make(std::uint64_t{o_.heads} * splits * o_.head_dim * 4);
    const DeviceBuffer stats = make(std::uint64_t{o_.heads} * splits * 2 * 4);
    const DeviceBuffer attended = make(std::uint64_t{o_.heads} * o_.head_dim * 4);
    const DeviceBuffer arrived = put(std::vector<std::uint32_t>(o_.heads, 0));
    const std::uint32_t tiles = groups_of(o_.heads / o_.kv_heads, queries);
    measure(
        "attend, " + std::to_string(queries) + " queries, " + std::to_string(splits) + " splits",
        [&](CommandList& list, std::uint32_t turn) {
          list.dispatch(kernel("attend", {8 * lanes, o_.head_dim, kBfloat16, lanes, queries}),
                        shader::AttendArgs{.rows = one_.rows.address(),
                                           .q = q.address(),
                                           .caches = cache_table_[turn].address(),
                                           .values = values.address(),
                                           .stats = stats.address(),
                                           .arrived = arrived.address(),
                                           .attended = attended.address(),
                                           .sinks = 0,
                                           .q_stride = q_width(),
                                           .q_step = 2 * o_.head_dim,
                                           .num_heads = o_.heads,
                                           .kv_heads = o_.kv_heads,
                                           .has_gate = 1},
                        {splits, o_.kv_heads * tiles, 1});
        });
  }

  void attend_prompt() {
    const DeviceBuffer q = random(std::uint64_t{o_.rows} * q_width(), 0.1F);
    const DeviceBuffer attended = make(std::uint64_t{o_.rows} * o_.heads * o_.head_dim * 4);
    measure("attend_prompt", [&](CommandList& list, std::uint32_t turn) {
      list.dispatch(kernel("attend_prompt", {256, o_.head_dim, kBfloat16}),
                    shader::AttendPromptArgs{.slices = many_.slices.address(),
                                             .q = q.address(),
                                             .caches = cache_table_[turn].address(),
                                             .attended = attended.address(),
                                             .sinks = 0,
                                             .q_stride = q_width(),
                                             .q_step = 2 * o_.head_dim,
                                             .num_heads = o_.heads,
                                             .kv_heads = o_.kv_heads,
                                             .has_gate = 1},
                    {groups_of(o_.rows * (o_.heads / o_.kv_heads), 64), o_.kv_heads, 1});
    });
  }

  void route(const Batch& batch) {
    const DeviceBuffer logits = random(std::uint64_t{batch.count} * o_.experts);
    const DeviceBuffer errors = put(std::vector<std::uint32_t>(batch.count, 0xffffffffU));
    choices_ = make(std::uint64_t{batch.count} * (o_.top_k + 1) * sizeof(shader::Choice));
    measure("route", [&](CommandList& list, std::uint32_t) {
      list.dispatch(kernel("route", {256, o_.experts, o_.top_k}),
                    shader::RouteArgs{.rows = batch.rows.address(),
                                      .logits = logits.address(),
                                      .shared_logits = logits.address(),
                                      .choices = choices_.address(),
                                      .row_error = errors.address(),
                                      .bias = 0,
                                      .logits_stride = o_.experts,
                                      .shared_stride = 1,
                                      .has_shared = 1,
                                      .renormalise = 1,
                                      .layer = 0},
                    {batch.count, 1, 1});
    });
  }

  void group_rows(std::uint32_t threads) {
    const std::uint32_t count = o_.rows * (o_.top_k + 1);
    const std::uint32_t experts = o_.experts + 1;
    const DeviceBuffer pairs = make(std::uint64_t{count} * 4);
    const DeviceBuffer offsets = make((std::uint64_t{experts} + 1) * 4);
    const DeviceBuffer tiles = make((std::uint64_t{count} + experts) * sizeof(shader::ExpertTile));
    const DeviceBuffer sizes = make(2 * sizeof(shader::DispatchSize));
    measure("group_rows, " + std::to_string(threads) + " threads",
            [&](CommandList& list, std::uint32_t) {
              list.dispatch(kernel("group_rows", {threads, experts}),
                            shader::GroupRowsArgs{.choices = choices_.address(),
                                                  .pairs = pairs.address(),
                                                  .offsets = offsets.address(),
                                                  .tiles = tiles.address(),
                                                  .sizes = sizes.address(),
                                                  .count = count,
                                                  .tile = 64,
                                                  .dispatches = 2},
                            {experts, 1, 1});
            });
  }

  void rms_norm() {
    const DeviceBuffer x = random(std::uint64_t{o_.rows} * o_.hidden);
    measure("rms_norm", [&](CommandList& list, std::uint32_t) {
      list.dispatch(kernel("rms_norm", {256}),
                    shader::RmsNormArgs{.x = x.address(),
                                        .factor = x.address(),
                                        .y = x.address(),
                                        .width = o_.hidden,
                                        .x_stride = o_.hidden,
                                        .y_stride = o_.hidden,
                                        .eps = kEps},
                    {o_.rows, 1, 1});
    });
  }

  void argmax() {
    const DeviceBuffer logits = random(o_.vocabulary);
    const DeviceBuffer found = make(512 * sizeof(shader::Largest));
    const DeviceBuffer best = make(sizeof(shader::Largest));
    const DeviceBuffer arrived = put(std::vector<std::uint32_t>{0});
    for (const std::uint32_t parts : {64U, 128U, 256U}) {
      measure("argmax, " + std::to_string(parts) + " parts", [&](CommandList& list, std::uint32_t) {
        list.dispatch(kernel("argmax", {256}),
                      shader::ArgmaxArgs{.logits = logits.address(),
                                         .found = found.address(),
                                         .best = best.address(),
                                         .arrived = arrived.address(),
                                         .width = o_.vocabulary,
                                         .limit = o_.vocabulary,
                                         .stride = o_.vocabulary,
                                         .parts = parts},
                      {parts, 1, 1});
      });
    }
  }

  const Options& o_;
  VulkanDevice& device_;
  KernelSet kernels_{device_};
  Others others_{device_};
  std::vector<DeviceBuffer> delta_states_, delta_table_;
  std::vector<DeviceBuffer> caches_, cache_table_;
  Batch one_, many_;
  DeviceBuffer choices_;
};

void measure_all(const Options& options) {
  const std::unique_ptr<VulkanDevice> device = need(VulkanDevice::open({}));
  std::printf("%s, %s\n", device->info().name.c_str(), device->info().driver.c_str());
  Bench(options, *device).measure_all();
}

}  // namespace
}  // namespace moepack

int main(int argc, char** argv) {
  moepack::Options options;
  CLI::App app{"Times the kernels of mixers and routing on a GPU."};
  const auto add = [&](const char* name, std::uint32_t& value, const char* help) {
    app.add_option(name, value, help)->capture_default_str();
  };
  add("--rows", options.rows, "Rows of the prompt; 1: none");
  add("--position", options.position, "Tokens before the batch");
  add("--copies", options.copies, "Layers whose states are taken in turn");
  add("--heads", options.heads, "Query heads");
  add("--kv-heads", options.kv_heads, "Heads of keys and values");
  add("--head-dim", options.head_dim, "Values of a head");
  add("--rotary-dim", options.rotary_dim, "Values of a head that are rotated");
  add("--key-heads", options.key_heads, "Key heads of GatedDeltaNet");
  add("--value-heads", options.value_heads, "V heads of GatedDeltaNet");
  add("--key-dim", options.key_dim, "Values of a key");
  add("--value-dim", options.value_dim, "Values of a V head");
  add("--experts", options.experts, "Routed experts");
  add("--top-k", options.top_k, "Experts of a row");
  add("--hidden", options.hidden, "Values of a row");
  add("--between", options.between, "MiB that other kernels read, at most 240");
  add("--vocabulary", options.vocabulary, "Logits of a row");
  CLI11_PARSE(app, argc, argv);
  moepack::measure_all(options);
  return 0;
}
