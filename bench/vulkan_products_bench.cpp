// The products of prompts on a GPU: dense matrices and the experts of one layer, in float32 and,
// where the device has them, with cooperative matrices. Prints microseconds and the effective rate
// of each.
#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include <CLI/CLI.hpp>

#include "bench/random_weights.h"
#include "formats/weights/expert_layout.h"
#include "runtime/vulkan/command_list.h"
#include "runtime/vulkan/kernel_set.h"
#include "runtime/vulkan/vulkan_device.h"
#include "runtime/vulkan/weight_kernels.h"
#include "shaders/expert_groups.h"
#include "shaders/expert_matmul_args.h"
#include "shaders/gate_up_matmul_args.h"
#include "shaders/half_rows_args.h"
#include "shaders/matmul_args.h"

namespace moepack {
namespace {

constexpr std::uint32_t kThreads = 128;
constexpr std::uint32_t kRepeats = 24;  // dispatches of a submission

struct Options {
  std::uint32_t rows = 512;
  std::uint32_t experts = 256;
  std::uint32_t used = 8;
  std::uint32_t hidden = 2048;
  std::uint32_t width = 512;
  std::uint32_t copies = 8;  // of a dense matrix, taken in turn
  std::vector<std::string> formats{"bf16", "q4", "q2", "q4_0", "q4_k", "iq3_xxs"};
  std::vector<std::string> dense{"8192x2048", "4096x2048", "2048x4096", "256x2048"};
};

struct Shape {
  std::uint32_t outputs = 0;
  std::uint32_t cols = 0;
};

std::uint32_t groups_of(std::uint32_t count, std::uint32_t size) {
  return (count + size - 1) / size;
}

GroupCount grid_of(const ProductTile& tile, std::uint32_t outputs, std::uint32_t tokens) {
  return {groups_of(outputs, tile.outputs), groups_of(tokens, tile.tokens), 1};
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

WeightFormat format_called(const std::string& name) {
  const auto id = qformat_from_name(name);
  if (!id.has_value()) {
    std::fprintf(stderr, "error: no format is called %s\n", name.c_str());
    std::exit(2);
  }
  WeightFormat format{.id = *id};
  if (is_affine(format)) format.group_size = 64;
  return format;
}

// Inputs, results and the kernels' constants are the same for all formats.
class Bench {
 public:
  Bench(const Options& options, VulkanDevice& device)
      : options_(options), device_(device), tables_(put(weight_tables())) {}

  void dense(const WeightFormat& format, const Shape& shape) {
    const MatrixBytes bytes = need_bytes(format, shape.outputs, shape.cols);
    const std::uint64_t stride = (bytes.total() + 255) / 256 * 256;
    const DeviceBuffer weights = random_matrices(format, bytes, stride, options_.copies);
    const DeviceBuffer x = put(random_floats(std::size_t{options_.rows} * shape.cols));
    const DeviceBuffer y = make(std::uint64_t{options_.rows} * shape.outputs * 4);
    const Halves halves = make_halves(options_.rows, shape.cols);
    const auto record = [&](CommandList& list, bool cooperative, std::uint32_t turn) {
      const std::uint64_t at = weights.address() + turn % options_.copies * stride;
      list.dispatch(
          kernel("matmul", format, shape.cols, cooperative,
                 dense_tile(shape.outputs, options_.rows, cooperative)),
          shader::MatmulArgs{.codes = at,
                             .scales = at + bytes[Component::kCodes],
                             .biases = at + bytes[Component::kCodes] + bytes[Component::kScales],
                             .tables = tables_.address(),
                             .x = cooperative ? halves.rows.address() : x.address(),
                             .x_scales = halves.scales.address(),
                             .y = y.address(),
                             .outputs = shape.outputs,
                             .rows = options_.rows,
                             .x_stride = cooperative ? halves.stride : shape.cols,
                             .y_stride = shape.outputs,
                             .add = 0},
          grid_of(dense_tile(shape.outputs, options_.rows, cooperative), shape.outputs,
                  options_.rows));
    };
    const double flops = 2.0 * options_.rows * shape.outputs * shape.cols;
    const std::string name =
        "matmul " + std::to_string(shape.outputs) + "x" + std::to_string(shape.cols);
    const double conversion = time([&](CommandList& list, std::uint32_t) {
      convert(list, x, halves, options_.rows, shape.cols);
    });
    measure(name, format, flops, conversion, y, std::size_t{options_.rows} * shape.outputs, record);
  }

  void experts(const WeightFormat& format) {
    const MatrixBytes up_bytes = need_bytes(format, options_.width, options_.hidden);
    const MatrixBytes down_bytes = need_bytes(format, options_.hidden, options_.width);
    const std::uint64_t up_stride = (up_bytes.total() + 255) / 256 * 256;
    const std::uint64_t down_stride = (down_bytes.total() + 255) / 256 * 256;
    const DeviceBuffer first = random_matrices(format, up_bytes, up_stride, 2 * options_.experts);
    const DeviceBuffer second = random_matrices(format, down_bytes, down_stride, options_.experts);
    std::vector<std::uint64_t> first_table;
    std::vector<std::uint64_t> second_table;
    for (std::uint64_t e = 0; e < options_.experts; ++e) {
      first_table.push_back(first.address() + 2 * e * up_stride);
      second_table.push_back(second.address() + e * down_stride);
    }
    choose();
    const DeviceBuffer up_records = put(first_table);
    const DeviceBuffer down_records = put(second_table);
    const std::uint32_t pairs = options_.rows * options_.used;
    const DeviceBuffer x = put(random_floats(std::size_t{options_.rows} * options_.hidden));
    const DeviceBuffer act = put(random_floats(std::size_t{pairs} * options_.width));
    const DeviceBuffer result = make(std::uint64_t{pairs} * options_.hidden * 4);
    const Halves x_halves = make_halves(options_.rows, options_.hidden);
    const Halves act_halves = make_halves(pairs, options_.width);
    const double flops = 2.0 * pairs * options_.width * options_.hidden;
    const auto offset = [](const MatrixBytes& bytes, int part) {
      std::uint64_t at = 0;
      if (part > 0) at += bytes[Component::kCodes];
      if (part > 1) at += bytes[Component::kScales];
      return static_cast<std::uint32_t>(at);
    };
    const auto up_at = static_cast<std::uint32_t>(up_stride);
    const auto record_first = [&](CommandList& list, bool cooperative, std::uint32_t) {
      list.dispatch(
          kernel("gate_up_matmul", format, options_.hidden, cooperative, expert_tile(cooperative)),
          shader::GateUpMatmulArgs{.records = up_records.address(),
                                   .kinds = 0,
                                   .pairs = pairs_.address(),
                                   .tiles = tiles_[cooperative].address(),
                                   .tables = tables_.address(),
                                   .x = cooperative ? x_halves.rows.address() : x.address(),
                                   .x_scales = x_halves.scales.address(),
                                   .act = act.address(),
                                   .bias = 0,
                                   .gate_codes = 0,
                                   .gate_scales = offset(up_bytes, 1),
                                   .gate_biases = offset(up_bytes, 2),
                                   .up_codes = up_at,
                                   .up_scales = up_at + offset(up_bytes, 1),
                                   .up_biases = up_at + offset(up_bytes, 2),
                                   .width = options_.width,
                                   .x_stride = cooperative ? x_halves.stride : options_.hidden,
                                   .slots = options_.used,
                                   .kind = 0},
          {groups_of(options_.width, expert_tile(cooperative).outputs / 2),
           tile_counts_[cooperative], 1});
    };
    const auto record_second = [&](CommandList& list, bool cooperative, std::uint32_t) {
      list.dispatch(
          kernel("expert_matmul", format, options_.width, cooperative, expert_tile(cooperative)),
          shader::ExpertMatmulArgs{.records = down_records.address(),
                                   .kinds = 0,
                                   .pairs = pairs_.address(),
                                   .tiles = tiles_[cooperative].address(),
                                   .tables = tables_.address(),
                                   .x = cooperative ? act_halves.rows.address() : act.address(),
                                   .x_scales = act_halves.scales.address(),
                                   .y = result.address(),
                                   .bias = 0,
                                   .codes = 0,
                                   .scales = offset(down_bytes, 1),
                                   .biases = offset(down_bytes, 2),
                                   .outputs = options_.hidden,
                                   .x_stride = cooperative ? act_halves.stride : options_.width,
                                   .pairs_per_input = 1,
                                   .bias_stride = 0,
                                   .kind = 0},
          {groups_of(options_.hidden, expert_tile(cooperative).outputs), tile_counts_[cooperative],
           1});
    };
    const double second_conversion = time([&](CommandList& list, std::uint32_t) {
      convert(list, act, act_halves, pairs, options_.width);
    });
    measure("down", format, flops, second_conversion, result, std::size_t{pairs} * options_.hidden,
            record_second);
    const double first_conversion = time([&](CommandList& list, std::uint32_t) {
      convert(list, x, x_halves, options_.rows, options_.hidden);
    });
    measure("gate_up", format, 2 * flops, first_conversion, act,
            std::size_t{pairs} * options_.width, record_first);
  }

 private:
  struct Halves {
    DeviceBuffer rows;
    DeviceBuffer scales;
    std::uint32_t stride = 0;
  };

  static MatrixBytes need_bytes(const WeightFormat& format, std::uint64_t rows,
                                std::uint64_t cols) {
    const auto bytes = matrix_bytes(format, rows, cols);
    if (!bytes.has_value()) {
      std::fprintf(stderr, "error: %s holds no row of %llu\n", to_string(format).c_str(),
                   static_cast<unsigned long long>(cols));
      std::exit(2);
    }
    return *bytes;
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
  static std::vector<float> random_floats(std::size_t count) {
    std::mt19937 random(1);
    std::normal_distribution<float> normal;
    std::vector<float> values(count);
    for (float& value : values) value = normal(random);
    return values;
  }
  DeviceBuffer random_matrices(const WeightFormat& format, const MatrixBytes& bytes,
                               std::uint64_t stride, std::uint64_t count) {
    std::vector<std::byte> one(stride);
    const std::size_t codes = bytes.codes();
    fill_random(format, std::span(one).first(codes),
                std::span(one).subspan(codes, bytes.total() - codes));
    DeviceBuffer all = make(stride * count);
    for (std::uint64_t i = 0; i < count; ++i) need(device_.upload(all, i * stride, one));
    return all;
  }
  Halves make_halves(std::uint32_t rows, std::uint32_t cols) {
    Halves halves;
    halves.stride = groups_of(cols, 64) * 64;
    halves.rows = make(std::uint64_t{rows} * halves.stride * 2);
    halves.scales = make(std::uint64_t{rows} * 4);
    return halves;
  }
  void convert(CommandList& list, const DeviceBuffer& x, const Halves& halves, std::uint32_t rows,
               std::uint32_t cols) {
    list.dispatch(kernels_.get("half_rows", {kThreads}),
                  shader::HalfRowsArgs{.x = x.address(),
                                       .y = halves.rows.address(),
                                       .scales = halves.scales.address(),
                                       .cols = cols,
                                       .x_stride = cols,
                                       .y_stride = halves.stride},
                  {rows, 1, 1});
    need(kernels_.status());
  }
  const VulkanKernel& kernel(std::string_view operation, const WeightFormat& format,
                             std::uint64_t cols, bool cooperative, const ProductTile& tile) {
    const WeightRows weights{
        .format = format, .cols = cols, .alignment = row_alignment(format, cols, 0)};
    const VulkanKernel& found =
        kernels_.get(shader_name(operation, format) + (cooperative ? "_cm" : ""),
                     product_constants(weights, tile));
    need(kernels_.status());
    return found;
  }

  // A random routing, sorted as group_rows does.
  void choose() {
    std::mt19937 random(2);
    std::vector<std::vector<std::uint32_t>> by_expert(options_.experts);
    std::vector<std::uint32_t> order(options_.experts);
    for (std::uint32_t e = 0; e < options_.experts; ++e) order[e] = e;
    for (std::uint32_t row = 0; row < options_.rows; ++row) {
      for (std::uint32_t slot = 0; slot < options_.used; ++slot) {
        std::swap(order[slot], order[slot + random() % (options_.experts - slot)]);
        by_expert[order[slot]].push_back(row * options_.used + slot);
      }
    }
    std::vector<std::uint32_t> pairs;
    for (const auto& some : by_expert) pairs.insert(pairs.end(), some.begin(), some.end());
    pairs_ = put(pairs);
    for (const bool cooperative : {false, true}) cut(by_expert, cooperative);
  }
  void cut(const std::vector<std::vector<std::uint32_t>>& by_expert, bool cooperative) {
    const std::uint32_t most = expert_tile(cooperative).tokens;
    std::vector<shader::ExpertTile> tiles;
    std::uint32_t first = 0;
    for (std::uint32_t e = 0; e < options_.experts; ++e) {
      const auto count = static_cast<std::uint32_t>(by_expert[e].size());
      for (std::uint32_t at = 0; at < count; at += most) {
        tiles.push_back({.expert = e, .first = first + at, .count = std::min(most, count - at)});
      }
      first += count;
    }
    tile_counts_[cooperative] = static_cast<std::uint32_t>(tiles.size());
    tiles_[cooperative] = put(tiles);
  }

  // Seconds of one dispatch with its barrier, the best of five submissions.
  template <typename Record>
  double time(const Record& record) {
    double best = 1e9;
    CommandList list(device_);
    for (std::uint32_t i = 0; i < kRepeats; ++i) {
      record(list, i);
      list.barrier();
    }
    for (int i = 0; i < 5; ++i) {
      const auto start = std::chrono::steady_clock::now();
      need(device_.run(list));
      const std::chrono::duration<double> taken = std::chrono::steady_clock::now() - start;
      best = std::min(best, taken.count());
    }
    return best / kRepeats;
  }

  template <typename Record>
  void measure(const std::string& name, const WeightFormat& format, double flops, double conversion,
               const DeviceBuffer& y, std::size_t count, const Record& record) {
    const double plain =
        time([&](CommandList& list, std::uint32_t turn) { record(list, false, turn); });
    std::printf("%-18s %-10s float32 %9.1f us %7.2f TFLOP/s", name.c_str(),
                to_string(format).c_str(), plain * 1e6, flops / plain / 1e12);
    if (device_.info().has_cooperative_matrix) {
      const std::vector<float> wanted = results(y, count, record, false);
      const std::vector<float> given = results(y, count, record, true);
      const double cooperative =
          time([&](CommandList& list, std::uint32_t turn) { record(list, true, turn); });
      std::printf("   cooperative %9.1f us %7.2f TFLOP/s, halves %6.1f us, off by %.1e",
                  cooperative * 1e6, flops / cooperative / 1e12, conversion * 1e6,
                  distance(wanted, given));
    }
    std::printf("\n");
    std::fflush(stdout);
  }
  template <typename Record>
  std::vector<float> results(const DeviceBuffer& y, std::size_t count, const Record& record,
                             bool cooperative) {
    CommandList list(device_);
    record(list, cooperative, 0);
    need(device_.run(list));
    std::vector<float> values(count);
    need(device_.download(y, 0, std::as_writable_bytes(std::span(values))));
    return values;
  }
  // Norm of the difference over the norm.
  static double distance(const std::vector<float>& wanted, const std::vector<float>& given) {
    double difference = 0;
    double norm = 0;
    for (std::size_t i = 0; i < wanted.size(); ++i) {
      const double off = static_cast<double>(given[i]) - static_cast<double>(wanted[i]);
      difference += off * off;
      norm += static_cast<double>(wanted[i]) * static_cast<double>(wanted[i]);
    }
    return std::sqrt(difference / norm);
  }

  const Options& options_;
  VulkanDevice& device_;
  KernelSet kernels_{device_};
  DeviceBuffer tables_;
  DeviceBuffer pairs_;
  DeviceBuffer tiles_[2];  // of the plain and the cooperative form
  std::uint32_t tile_counts_[2] = {};
};

void measure_all(const Options& options) {
  const std::unique_ptr<VulkanDevice> device = need(VulkanDevice::open({}));
  const VulkanDeviceInfo& info = device->info();
  std::printf("%s, %s; %u rows, %u experts of %u by %u, %u used\n", info.name.c_str(),
              info.driver.c_str(), options.rows, options.experts, options.width, options.hidden,
              options.used);
  Bench bench(options, *device);
  for (const std::string& name : options.formats) {
    const WeightFormat format = format_called(name);
    for (const std::string& text : options.dense) {
      Shape shape;
      if (std::sscanf(text.c_str(), "%ux%u", &shape.outputs, &shape.cols) != 2) continue;
      bench.dense(format, shape);
    }
    if (options.experts > 0) bench.experts(format);
  }
}

}  // namespace
}  // namespace moepack

int main(int argc, char** argv) {
  moepack::Options options;
  CLI::App app{"Times the products of prompts on a GPU."};
  app.add_option("--rows", options.rows, "Rows of the batch")->capture_default_str();
  app.add_option("--experts", options.experts, "Experts of the layer; 0: dense products alone")
      ->capture_default_str();
  app.add_option("--used", options.used, "Experts of a row")->capture_default_str();
  app.add_option("--hidden", options.hidden, "Inputs of an expert")->capture_default_str();
  app.add_option("--width", options.width, "Outputs of gate and up")->capture_default_str();
  app.add_option("--copies", options.copies, "Copies of a dense matrix, taken in turn")
      ->capture_default_str();
  app.add_option("--formats", options.formats, "Weight formats")
      ->delimiter(',')
      ->capture_default_str();
  app.add_option("--dense", options.dense, "Dense matrices, OUTPUTSxINPUTS")
      ->delimiter(',')
      ->capture_default_str();
  CLI11_PARSE(app, argc, argv);
  moepack::measure_all(options);
  return 0;
}
