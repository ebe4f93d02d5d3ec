// The limits of a GPU through Vulkan, as a decoded token meets them: the rate at which a kernel
// reads memory, what a dispatch with a barrier and a submission cost, and how long small kernels
// take by themselves and in turn with others.
#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <random>
#include <span>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include <CLI/CLI.hpp>

#include "runtime/vulkan/command_list.h"
#include "runtime/vulkan/device_read_rate.h"
#include "runtime/vulkan/kernel_set.h"
#include "runtime/vulkan/vulkan_device.h"
#include "runtime/vulkan/weight_kernels.h"
#include "shaders/matvec_args.h"
#include "shaders/matvec_fixed_args.h"
#include "shaders/read_sum_args.h"
#include "shaders/rms_norm_args.h"
#include "shaders/route_args.h"

namespace moepack {
namespace {

constexpr std::uint32_t kRepeats = 512;
constexpr std::uint64_t kMemory = std::uint64_t{2} << 30;

template <typename T>
T need(Result<T> result) {
  if (!result.is_ok()) {
    std::fprintf(stderr, "error: %s\n", result.status().message().c_str());
    std::exit(2);
  }
  return std::move(result).value();
}
void need(const Status& status) {
  if (status.is_ok()) return;
  std::fprintf(stderr, "error: %s\n", status.message().c_str());
  std::exit(2);
}

double seconds_of(VulkanDevice& device, CommandList& list) {
  // Clocks fall while programs are compiled.
  const auto begin = std::chrono::steady_clock::now();
  do {
    need(device.run(list));
  } while (std::chrono::steady_clock::now() - begin < std::chrono::milliseconds(60));
  std::vector<double> times;
  for (int i = 0; i < 7; ++i) {
    const auto start = std::chrono::steady_clock::now();
    need(device.run(list));
    times.push_back(
        std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count());
  }
  std::sort(times.begin(), times.end());
  return times[times.size() / 2];
}

using Record = std::function<void(CommandList&, std::uint32_t)>;

// Microseconds of each run of the records in turn, a barrier behind each.
double report(VulkanDevice& device, const std::string& name, const std::vector<Record>& records,
              bool has_barriers = true) {
  CommandList list(device);
  for (std::uint32_t i = 0; i < kRepeats; ++i) {
    for (const Record& record : records) {
      record(list, i);
      if (has_barriers) list.barrier();
    }
  }
  const double microseconds = 1e6 * seconds_of(device, list) / kRepeats;
  std::printf("%-44s %8.2f us\n", name.c_str(), microseconds);
  return microseconds;
}

struct Kernels {
  explicit Kernels(VulkanDevice& of) : device(of), set(of) {
    memory = need(device.allocate(kMemory, MemoryKind::kDevice));
    fill_random();
  }

  // Codes that were alike would all look up the same entry of a format's tables.
  void fill_random() {
    constexpr std::uint64_t kPiece = 16 << 20;
    constexpr std::uint32_t kSmallNumbers = 0xBFFFBFFF;  // as floats of 16 or 32 bits
    std::vector<std::uint32_t> words(kPiece / sizeof(std::uint32_t));
    std::mt19937 random;  // NOLINT(cert-msc32-c,cert-msc51-cpp): the same in every run
    for (std::uint32_t& word : words) word = static_cast<std::uint32_t>(random()) & kSmallNumbers;
    for (std::uint64_t at = 0; at < memory.size(); at += kPiece) {
      need(device.upload(memory, at, std::as_bytes(std::span(words))));
    }
  }

  Record read(std::uint32_t vectors, std::uint32_t groups) {
    const VulkanKernel& kernel = set.get("read_sum", {256});
    return [this, &kernel, vectors, groups](CommandList& list, std::uint32_t /*run*/) {
      list.dispatch(
          kernel,
          shader::ReadSumArgs{
              .data = memory.address() + (1 << 20), .sums = memory.address(), .vectors = vectors},
          {groups, 1, 1});
    };
  }
  Record norm(std::uint32_t threads) {
    const VulkanKernel& kernel = set.get("rms_norm", {threads});
    return [this, &kernel](CommandList& list, std::uint32_t /*run*/) {
      list.dispatch(kernel,
                    shader::RmsNormArgs{.x = memory.address() + (1 << 20),
                                        .factor = memory.address() + (2 << 20),
                                        .y = memory.address() + (3 << 20),
                                        .width = 2048,
                                        .x_stride = 2048,
                                        .y_stride = 2048,
                                        .eps = 1e-6F},
                    {1, 1, 1});
    };
  }
  Record route() {
    const VulkanKernel& kernel = set.get("route", {256, 256, 8});
    const std::vector<std::uint32_t> row{0, 0, 0, 1};
    need(device.upload(memory, 4 << 20, std::as_bytes(std::span(row))));
    return [this, &kernel](CommandList& list, std::uint32_t /*run*/) {
      list.dispatch(kernel,
                    shader::RouteArgs{.rows = memory.address() + (4 << 20),
                                      .logits = memory.address() + (5 << 20),
                                      .shared_logits = memory.address() + (6 << 20),
                                      .choices = memory.address() + (7 << 20),
                                      .row_error = memory.address() + (8 << 20),
                                      .bias = 0,
                                      .logits_stride = 256,
                                      .shared_stride = 1,
                                      .has_shared = 1,
                                      .renormalise = 1,
                                      .layer = 0},
                    {1, 1, 1});
    };
  }
  Record matvec(QFormatId id, std::uint32_t rows, std::uint32_t cols, bool has_norm,
                WeightKernelShape cut = {.threads = 0}, bool is_cold = false) {
    const WeightRows weights{.format = {.id = id, .group_size = 64}, .cols = cols};
    if (cut.threads == 0) cut = usual_shape(weights, device.info());
    const VulkanKernel& kernel =
        set.get(shader_name("matvec", weights.format),
                matvec_constants(weights, cut, device.info(), {.has_norm = has_norm}));
    const std::uint32_t groups = groups_for_rows(cut, rows, device.info());
    const std::uint64_t bytes = (*matrix_bytes(weights.format, rows, cols))[Component::kCodes];
    const std::uint64_t copies = is_cold ? (kMemory - (128 << 20)) / bytes : 1;
    return
        [this, &kernel, rows, cols, groups, bytes, copies](CommandList& list, std::uint32_t run) {
          list.dispatch(
              kernel,
              shader::MatvecArgs{.codes = memory.address() + (96 << 20) + run % copies * bytes,
                                 .scales = memory.address() + (32 << 20),
                                 .biases = memory.address() + (48 << 20),
                                 .x = memory.address() + (1 << 20),
                                 .factor = memory.address() + (2 << 20),
                                 .y = memory.address() + (9 << 20),
                                 .added = 0,
                                 .indices = 0,
                                 .tables = 0,
                                 .rows = rows,
                                 .x_stride = cols,
                                 .y_stride = rows,
                                 .eps = 1e-6F},
              {groups, 1, 1});
        };
  }

  // More memory, in blocks of 1 GiB.
  void reserve(std::uint32_t gib) {
    while (blocks.size() < gib) {
      blocks.push_back(need(device.allocate(std::uint64_t{1} << 30, MemoryKind::kDevice)));
      CommandList list(device);
      list.fill(blocks.back().handle(), 0, blocks.back().size(), 0);
      need(device.run(list));
    }
  }
  // A product whose matrix is somewhere else each time, without repeats.
  Record spread(std::uint32_t rows, std::uint32_t cols) {
    const WeightRows weights{.format = {.id = QFormatId::kQ4, .group_size = 64}, .cols = cols};
    const WeightKernelShape cut{.threads = 256, .lanes = 32, .rows = 1, .steps = 1};
    const VulkanKernel& kernel =
        set.get("matvec_q4", matvec_constants(weights, cut, device.info(), {.has_norm = false}));
    const std::uint32_t groups = groups_for_rows(cut, rows, device.info());
    const std::uint64_t bytes = std::uint64_t{rows} * cols / 2;
    const std::uint64_t in_block = (std::uint64_t{1} << 30) / bytes;
    return
        [this, &kernel, rows, cols, groups, bytes, in_block](CommandList& list, std::uint32_t run) {
          const std::uint64_t at = run * 2654435761ULL % (in_block * blocks.size());
          list.dispatch(
              kernel,
              shader::MatvecArgs{.codes = blocks[at / in_block].address() + at % in_block * bytes,
                                 .scales = memory.address() + (32 << 20),
                                 .biases = memory.address() + (48 << 20),
                                 .x = memory.address() + (1 << 20),
                                 .factor = memory.address() + (2 << 20),
                                 .y = memory.address() + (9 << 20),
                                 .added = 0,
                                 .indices = 0,
                                 .tables = 0,
                                 .rows = rows,
                                 .x_stride = cols,
                                 .y_stride = rows,
                                 .eps = 1e-6F},
              {groups, 1, 1});
        };
  }

  // What the driver says of the machine code of a program.
  void print_code(std::string_view shader, const std::vector<std::uint32_t>& constants) {
    const VulkanKernel& kernel = set.get(shader, constants);
    need(set.status());
    std::printf("%-16.*s %s\n", static_cast<int>(shader.size()), shader.data(),
                device.kernel_statistics(kernel).c_str());
  }
  // Of the programs of a decoded token, in the shape of a model with 256 experts.
  void print_codes() {
    for (const char* name : {"q4_0", "q4"}) {
      WeightFormat format{.id = *qformat_from_name(name)};
      if (is_affine(format)) format.group_size = 64;
      const auto shape_of = [](WeightKernelShape cut, std::uint32_t threads) {
        cut.threads = threads;
        return cut;
      };
      const auto shape = [&](const WeightRows& w, std::uint32_t threads) {
        return shape_of(usual_shape(w, device.info()), threads);
      };
      const WeightRows hidden{.format = format, .cols = 2048, .alignment = 2};
      const WeightRows mixed{.format = format, .cols = 4096, .alignment = 2};
      const WeightRows width{.format = format, .cols = 512, .alignment = 2};
      const VulkanDeviceInfo& info = device.info();
      print_code(shader_name("matvec", format),
                 matvec_constants(hidden, shape(hidden, 512), info, {.has_norm = true}));
      print_code(shader_name("matvec", format),
                 matvec_constants(mixed, shape(mixed, 512), info, {.adds = true}));
      auto router = matvec_constants(hidden, shape(hidden, 1024), info, {.has_norm = true});
      router.insert(router.end(), {256, 8});
      print_code(shader_name("router", format), router);
      print_code(shader_name("gate_up", format),
                 gate_up_constants(hidden, usual_shape(hidden, info), info, {.has_norm = true}));
      print_code(shader_name("down", format),
                 down_constants(width, usual_down_shape(width, info, 9, 8), info,
                                {.slots = 9, .block_rows = 8}));
      print_code(shader_name("matvec_fixed", format),
                 matvec_fixed_constants(hidden, shape_of(fixed_shape(hidden, info, 8), 512), info,
                                        {.has_norm = true}, 3, 1e-6F));
      print_code(shader_name("matvec_fixed", format),
                 matvec_fixed_constants(mixed, shape_of(fixed_shape(mixed, info, 32), 512), info,
                                        {.adds = true}, 0, 1e-6F));
      print_code(
          shader_name("gate_up_fixed", format),
          gate_up_constants(hidden, fixed_shape(hidden, info, 16), info, {.has_norm = true}));
      print_code(shader_name("down_fixed", format),
                 down_constants(width, {.threads = 512, .rows = 1, .steps = 2}, info,
                                {.slots = 9, .block_rows = 8}));
      print_code(shader_name("router_fixed", format), router);
    }
    print_code("delta_step", {512, 128, 128, 4, 2});
    print_code("route", {256, 256, 8});
    print_code("attend", {256, 256, 2, 32, 4});
    print_code("qk_prepare", {256, 256, 2});
  }

  // Bytes a second of the product with one matrix of about 1 GiB, all its components read once.
  double read_matrix(const WeightFormat& format, std::uint32_t cols) {
    const std::uint64_t row = matrix_bytes(format, 1, cols)->total();
    const auto rows = static_cast<std::uint32_t>((std::uint64_t{1} << 30) / row);
    const MatrixBytes bytes = *matrix_bytes(format, rows, cols);
    const WeightRows weights{.format = format, .cols = cols, .rows = rows};
    const WeightKernelShape cut = usual_shape(weights, device.info());
    const VulkanKernel& kernel =
        set.get(shader_name("matvec", format),
                matvec_constants(weights, cut, device.info(), {.has_norm = false}));
    const std::vector<std::uint16_t> tables = weight_tables();
    need(device.upload(memory, 16 << 20, std::as_bytes(std::span(tables))));
    const std::uint64_t codes = memory.address() + (128 << 20);
    const std::uint64_t scales = codes + (bytes[Component::kCodes] + 255) / 256 * 256;
    CommandList list(device);
    list.dispatch(
        kernel,
        shader::MatvecArgs{.codes = codes,
                           .scales = scales,
                           .biases = scales + (bytes[Component::kScales] + 255) / 256 * 256,
                           .x = memory.address() + (1 << 20),
                           .factor = 0,
                           .y = memory.address() + (32 << 20),
                           .added = 0,
                           .indices = 0,
                           .tables = memory.address() + (16 << 20),
                           .rows = rows,
                           .x_stride = cols,
                           .y_stride = rows,
                           .eps = 1e-6F},
        {groups_for_rows(cut, rows, device.info()), 1, 1});
    return static_cast<double>(bytes.total()) / seconds_of(device, list);
  }

  // The same with inputs in fixed point.
  double read_matrix_fixed(const WeightFormat& format, std::uint32_t cols,
                           const WeightKernelShape& cut) {
    const std::uint64_t row = matrix_bytes(format, 1, cols)->total();
    const auto rows = static_cast<std::uint32_t>((std::uint64_t{1} << 30) / row);
    const MatrixBytes bytes = *matrix_bytes(format, rows, cols);
    const WeightRows weights{.format = format,
                             .cols = cols,
                             .alignment = row_alignment(format, cols, 256),
                             .rows = rows};
    const VulkanKernel& kernel =
        set.get(shader_name("matvec_fixed", format),
                matvec_fixed_constants(weights, cut, device.info(), {}, 0, 1e-6F));
    need(set.status());
    const std::vector<std::uint16_t> tables = weight_tables();
    need(device.upload(memory, 16 << 20, std::as_bytes(std::span(tables))));
    const auto units = [](std::uint64_t of) {
      return static_cast<std::uint32_t>((of + MOE_FIXED_UNIT - 1) / MOE_FIXED_UNIT);
    };
    CommandList list(device);
    list.dispatch(kernel,
                  shader::MatvecFixedArgs{.base = memory.address() + (128 << 20),
                                          .x = memory.address() + (1 << 20),
                                          .factor = 0,
                                          .y = memory.address() + (32 << 20),
                                          .indices = 0,
                                          .tables = memory.address() + (16 << 20),
                                          .codes = {0},
                                          .scales = {units(bytes[Component::kCodes])},
                                          .biases = {units(bytes[Component::kCodes]) +
                                                     units(bytes[Component::kScales])},
                                          .rows = {rows},
                                          .y_stride = rows,
                                          .added_at = 0},
                  {groups_for_rows(cut, rows, device.info()), 1, 1});
    return static_cast<double>(bytes.total()) / seconds_of(device, list);
  }

  VulkanDevice& device;
  KernelSet set;
  std::vector<DeviceBuffer> blocks;
  DeviceBuffer memory;
};

void run() {
  const auto device =
      need(VulkanDevice::open({.wants_fixed_products = true, .wants_code_sizes = true}));
  std::printf("%s, %s\n", device->info().name.c_str(), device->info().driver.c_str());
  Kernels k(*device);
  k.print_codes();
  CommandList empty(*device);
  std::printf("%-44s %8.2f us\n", "empty submission", 1e6 * seconds_of(*device, empty));
  const Record tiny = k.read(1, 1);
  const Record norm = k.norm(256);
  const Record route = k.route();
  const Record small = k.matvec(QFormatId::kQ4, 256, 2048, true);
  const Record out = k.matvec(QFormatId::kQ4, 2048, 4096, false);
  const Record in = k.matvec(QFormatId::kQ4, 8192, 2048, true);
  report(*device, "read 16 bytes, no barrier", {tiny}, false);
  report(*device, "read 16 bytes", {tiny});
  report(*device, "read 16 MiB", {k.read(1 << 20, 1056)});
  report(*device, "rms_norm, 256 threads", {norm});
  report(*device, "rms_norm, 1024 threads", {k.norm(1024)});
  report(*device, "route", {route});
  report(*device, "matvec_q4 256 x 2048, norm", {small});
  report(*device, "matvec_q4 256 x 2048", {k.matvec(QFormatId::kQ4, 256, 2048, false)});
  report(*device, "matvec_q4 2048 x 4096", {out});
  report(*device, "matvec_q4 8192 x 2048, norm", {in});
  // Many programs in turn: what they cost beyond each alone is the fetching of their code.
  std::vector<Record> programs;
  double alone = 0;
  for (const std::uint32_t steps : {1U, 2U}) {
    for (const std::uint32_t together : {1U, 2U, 4U}) {
      for (const bool normed : {false, true}) {
        programs.push_back(k.matvec(QFormatId::kQ4, 256, 2048, normed,
                                    {.threads = 256, .lanes = 32, .rows = together, .steps = steps},
                                    false));
        alone += report(*device, "  one of twelve", {programs.back()});
      }
    }
  }
  std::printf("twelve programs one by one %8.2f us\n", alone);
  report(*device, "twelve programs in turn", programs);
  // The same matrices from more and more memory: beyond caches, then beyond what addresses are
  // translated quickly for.
  for (const std::uint32_t gib : {1U, 2U, 4U, 8U, 16U, 32U}) {
    k.reserve(gib);
    report(*device, "matvec_q4 2048 x 4096 spread over " + std::to_string(gib) + " GiB",
           {k.spread(2048, 4096)});
  }
  const double read_rate = need(device_read_rate(*device));
  std::printf("reading 2 GiB %8.1f GB/s\n", read_rate / 1e9);
  for (const char* name : {"bf16", "q8_0", "q4", "q4_0", "q4_k", "q2", "q2_k", "q3_k", "iq3_xxs",
                           "iq2_xxs", "iq2_s", "iq4_xs", "mxfp4"}) {
    WeightFormat format{.id = *qformat_from_name(name)};
    if (is_affine(format)) format.group_size = 64;
    const double rate = k.read_matrix(format, 2048);
    std::printf("matvec_%-8s 1 GiB %8.1f GB/s, %5.1f %% of that\n", name, rate / 1e9,
                100 * rate / read_rate);
  }
  for (const char* name :
       {"q4", "q4_0", "q2", "iq3_xxs", "q8_0", "q4_k", "q6_k", "iq2_xxs", "iq2_s", "q2_k"}) {
    WeightFormat format{.id = *qformat_from_name(name)};
    if (is_affine(format)) format.group_size = 64;
    std::printf("matvec_fixed_%-8s", name);
    for (const std::uint32_t lanes : {8U, 16U, 32U}) {
      for (const auto& [rows, steps] : {std::pair{1U, 1U}, {1U, 2U}, {2U, 1U}, {2U, 2U}}) {
        const double rate = k.read_matrix_fixed(
            format, 2048, {.threads = 512, .lanes = lanes, .rows = rows, .steps = steps});
        std::printf("  %ux%ux%u %4.1f %%", lanes, rows, steps, 100 * rate / read_rate);
      }
    }
    std::printf("\n");
  }
  report(*device, "tiny, norm", {tiny, norm});
  report(*device, "norm, route", {norm, route});
  report(*device, "in, norm, out, small, route", {in, norm, out, small, route});
}

}  // namespace
}  // namespace moepack

int main(int argc, char** argv) {
  CLI::App app{"Times a GPU's reads, dispatches, submissions and matrix kernels; takes minutes."};
  CLI11_PARSE(app, argc, argv);
  moepack::run();
  return 0;
}
