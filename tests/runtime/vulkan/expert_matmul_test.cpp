// Products of experts over tiles of pairs against sums in double over decode_row's weights.
#include <cmath>
#include <limits>
#include <map>
#include <random>

#include "runtime/vulkan/weight_kernels.h"
#include "shaders/expert_matmul_args.h"
#include "shaders/gate_up_matmul_args.h"
#include "shaders/group_rows_args.h"
#include "shaders/swiglu_args.h"
#include "tests/runtime/vulkan/product_matrices.h"
#include "tests/runtime/vulkan/vulkan_fixture.h"
#include "tests/support/exact_product.h"

namespace moepack::expert_matmul_test {
namespace {

using test::exact_product;
using test::ExactProduct;
using test::TestMatrix;
using test::Values;

constexpr float kUntouched = -7.25F;
constexpr std::uint32_t kSlots = 3;
constexpr std::uint32_t kTilePairs = 64;  // of tests with tiles of 64 outputs

// An expert's record in one buffer: gate | up | down, each as codes | scales | biases without
// padding.
struct Record {
  Record(const WeightFormat& format, std::uint64_t width, std::uint64_t hidden, std::uint32_t seed)
      : gate(format, width, hidden, Values::kUsual, 1, seed),
        up(format, width, hidden, Values::kUsual, 1, seed + 1000),
        down(format, hidden, width, Values::kUsual, 1, seed + 2000) {}

  // Offsets of codes, scales, biases of the three.
  std::array<std::uint32_t, 9> offsets() const {
    std::array<std::uint32_t, 9> at{};
    std::size_t end = 0;
    std::size_t i = 0;
    for (const TestMatrix* matrix : {&gate, &up, &down}) {
      const QMatrixView& w = matrix->view();
      const MatrixBytes bytes = matrix_bytes(w.format, w.rows, w.cols).value();
      for (Component c : {Component::kCodes, Component::kScales, Component::kBiases}) {
        at[i++] = static_cast<std::uint32_t>(end);
        end += bytes[c];
      }
    }
    return at;
  }
  std::vector<std::byte> bytes() const {
    std::vector<std::byte> all;
    for (const TestMatrix* matrix : {&gate, &up, &down}) {
      for (Component c : {Component::kCodes, Component::kScales, Component::kBiases}) {
        const std::vector<std::byte> component = test::device_bytes(matrix->view(), c);
        all.insert(all.end(), component.begin(), component.end());
      }
    }
    all.resize(all.size() + 4);  // words are read to their end
    return all;
  }

  TestMatrix gate;
  TestMatrix up;
  TestMatrix down;
};

struct Groups {
  std::vector<std::uint32_t> pairs;
  std::vector<shader::ExpertTile> tiles;
};

// As group_rows makes them. expert_of: [rows * kSlots].
Groups group(const std::vector<std::uint32_t>& expert_of) {
  std::map<std::uint32_t, std::vector<std::uint32_t>> by_expert;
  for (std::uint32_t pair = 0; pair < expert_of.size(); ++pair) {
    by_expert[expert_of[pair]].push_back(pair);
  }
  Groups groups;
  for (const auto& [expert, pairs] : by_expert) {
    for (std::size_t i = 0; i < pairs.size(); i += kTilePairs) {
      groups.tiles.push_back({.expert = expert,
                              .first = static_cast<std::uint32_t>(groups.pairs.size() + i),
                              .count = static_cast<std::uint32_t>(
                                  std::min<std::size_t>(kTilePairs, pairs.size() - i))});
    }
    groups.pairs.insert(groups.pairs.end(), pairs.begin(), pairs.end());
  }
  return groups;
}

// Expert 0 has no pairs, 1 one, 2 many, 3 is absent, the others share the rest.
std::vector<std::uint32_t> uneven_choices(std::uint32_t rows, std::uint32_t experts) {
  std::mt19937 random(17);
  const auto from = [&](std::uint32_t first) {
    return first + static_cast<std::uint32_t>(random()) % (experts - first);
  };
  std::vector<std::uint32_t> expert_of;
  for (std::uint32_t row = 0; row < rows; ++row) {
    expert_of.push_back(2);
    expert_of.push_back(from(3));
    expert_of.push_back(row == 5 ? 1 : from(4));
  }
  return expert_of;
}

class ExpertMatmulTest : public VulkanTest {
 protected:
  struct Layer {
    WeightFormat format;
    std::uint32_t width = 0;
    std::uint32_t hidden = 0;
    std::uint32_t rows = 0;
    std::vector<Record> records;
    std::vector<std::uint32_t> kinds;  // empty: none are given
    std::vector<std::uint32_t> expert_of;
    std::vector<float> x;  // [rows][hidden]
  };
  struct Results {
    std::vector<float> act;     // [rows * kSlots][width]
    std::vector<float> result;  // [rows * kSlots][hidden]
  };

  static Layer make_layer(const WeightFormat& format, std::uint32_t width, std::uint32_t hidden,
                          std::uint32_t rows) {
    constexpr std::uint32_t kExperts = 7;
    Layer layer;
    layer.format = format;
    layer.width = width;
    layer.hidden = hidden;
    layer.rows = rows;
    for (std::uint32_t e = 0; e < kExperts; ++e) {
      layer.records.emplace_back(format, width, hidden, e);
    }
    layer.expert_of = uneven_choices(rows, kExperts);
    layer.x = test::random_inputs(rows, hidden, hidden, 23);
    return layer;
  }

  // Everything on the device that the dispatches of a layer read and write.
  struct Memory {
    std::vector<DeviceBuffer> records;
    DeviceBuffer table, kinds, pairs, tiles, grids, x, act, up, result;
    std::uint32_t tile_count = 0;
  };
  static Memory upload(const Layer& layer) {
    Memory memory;
    std::vector<std::uint64_t> table;
    for (std::size_t e = 0; e < layer.records.size(); ++e) {
      memory.records.push_back(put(layer.records[e].bytes()));
      table.push_back(e == 3 ? 0 : memory.records.back().address());
    }
    const Groups groups = group(layer.expert_of);
    memory.tile_count = static_cast<std::uint32_t>(groups.tiles.size());
    memory.table = put(table);
    memory.kinds = put(layer.kinds.empty() ? std::vector<std::uint32_t>(1) : layer.kinds);
    memory.pairs = put(groups.pairs);
    memory.tiles = put(groups.tiles);
    memory.grids = put(weight_tables());
    memory.x = put(layer.x);
    const std::size_t pairs = layer.expert_of.size();
    memory.act = put(std::vector<float>(pairs * layer.width, kUntouched));
    memory.up = put(std::vector<float>(pairs * layer.width, kUntouched));
    memory.result = put(std::vector<float>(pairs * layer.hidden, kUntouched));
    return memory;
  }

  static shader::ExpertMatmulArgs projection(const Layer& layer, const Memory& memory,
                                             std::size_t which) {
    const std::array<std::uint32_t, 9> at = layer.records[0].offsets();
    const bool is_down = which == 2;
    const DeviceBuffer& to = is_down ? memory.result : which == 1 ? memory.up : memory.act;
    return {.records = memory.table.address(),
            .kinds = layer.kinds.empty() ? 0 : memory.kinds.address(),
            .pairs = memory.pairs.address(),
            .tiles = memory.tiles.address(),
            .tables = memory.grids.address(),
            .x = is_down ? memory.act.address() : memory.x.address(),
            .x_scales = 0,
            .y = to.address(),
            .bias = 0,
            .codes = at[3 * which],
            .scales = at[3 * which + 1],
            .biases = at[3 * which + 2],
            .outputs = is_down ? layer.hidden : layer.width,
            .x_stride = is_down ? layer.width : layer.hidden,
            .pairs_per_input = is_down ? 1 : kSlots,
            .bias_stride = 0,
            .kind = 1};
  }
  static shader::GateUpMatmulArgs gate_up(const Layer& layer, const Memory& memory) {
    const std::array<std::uint32_t, 9> at = layer.records[0].offsets();
    return {.records = memory.table.address(),
            .kinds = layer.kinds.empty() ? 0 : memory.kinds.address(),
            .pairs = memory.pairs.address(),
            .tiles = memory.tiles.address(),
            .tables = memory.grids.address(),
            .x = memory.x.address(),
            .x_scales = 0,
            .act = memory.act.address(),
            .bias = 0,
            .gate_codes = at[0],
            .gate_scales = at[1],
            .gate_biases = at[2],
            .up_codes = at[3],
            .up_scales = at[4],
            .up_biases = at[5],
            .width = layer.width,
            .x_stride = layer.hidden,
            .slots = kSlots,
            .kind = 1};
  }

  using VulkanTest::make;
  static const VulkanKernel& make(const Layer& layer, const std::string& operation,
                                  std::uint32_t cols) {
    std::uint64_t starts = 0;  // the lowest bit of any offset of codes
    for (std::size_t i : {0U, 3U, 6U}) starts |= layer.records[0].offsets()[i];
    return kernel(test::product_kernel_name(operation, layer.format),
                  test::product_constants(layer.format, cols, starts));
  }

  // gate_up and down; or (apart) gate, up, SwiGLU and down.
  static Results compute(const Layer& layer, bool apart) {
    const Memory memory = upload(layer);
    const auto pairs = static_cast<std::uint32_t>(layer.expert_of.size());
    const VulkanKernel& fused = make(layer, "gate_up_matmul", layer.hidden);
    const VulkanKernel& single = make(layer, "expert_matmul", layer.hidden);
    const VulkanKernel& down = make(layer, "expert_matmul", layer.width);
    const VulkanKernel& swiglu = kernel("swiglu", {64});
    CommandList list(device());
    const std::uint32_t tiles = memory.tile_count;
    if (apart) {
      list.dispatch(single, projection(layer, memory, 0), {(layer.width + 63) / 64, tiles, 1});
      list.dispatch(single, projection(layer, memory, 1), {(layer.width + 63) / 64, tiles, 1});
      list.barrier();
      list.dispatch(swiglu,
                    shader::SwigluArgs{.gate = memory.act.address(),
                                       .up = memory.up.address(),
                                       .act = memory.act.address(),
                                       .count = pairs * layer.width},
                    {3, 1, 1});
    } else {
      list.dispatch(fused, gate_up(layer, memory), {(layer.width + 31) / 32, tiles, 1});
    }
    list.barrier();
    list.dispatch(down, projection(layer, memory, 2), {(layer.hidden + 63) / 64, tiles, 1});
    run(list);
    return {get<float>(memory.act, pairs * layer.width),
            get<float>(memory.result, pairs * layer.hidden)};
  }

  // gate_up and down over what group_rows writes, with indirect grids.
  static Results compute_grouped(const Layer& layer) {
    Memory memory = upload(layer);
    const auto pairs = static_cast<std::uint32_t>(layer.expert_of.size());
    const auto experts = static_cast<std::uint32_t>(layer.records.size());
    std::vector<shader::Choice> choices;
    for (const std::uint32_t expert : layer.expert_of) choices.push_back({expert, 1.0F});
    const DeviceBuffer chosen = put(choices);
    const DeviceBuffer offsets = make((experts + 1) * sizeof(std::uint32_t));
    const DeviceBuffer sizes =
        put(std::vector<shader::DispatchSize>{{.x = (layer.width + 31) / 32, .y = 0, .z = 0},
                                              {.x = (layer.hidden + 63) / 64, .y = 0, .z = 0}});
    memory.pairs = make(pairs * sizeof(std::uint32_t));
    memory.tiles = make((pairs / kTilePairs + experts) * sizeof(shader::ExpertTile));
    const VulkanKernel& group = kernel("group_rows", {64, experts});
    const VulkanKernel& fused = make(layer, "gate_up_matmul", layer.hidden);
    const VulkanKernel& down = make(layer, "expert_matmul", layer.width);
    CommandList list(device());
    list.dispatch(group,
                  shader::GroupRowsArgs{.choices = chosen.address(),
                                        .pairs = memory.pairs.address(),
                                        .offsets = offsets.address(),
                                        .tiles = memory.tiles.address(),
                                        .sizes = sizes.address(),
                                        .count = pairs,
                                        .tile = kTilePairs,
                                        .dispatches = 2},
                  {experts, 1, 1});
    list.full_barrier();
    list.dispatch_indirect(fused, gate_up(layer, memory), sizes, 0);
    list.barrier();
    list.dispatch_indirect(down, projection(layer, memory, 2), sizes, sizeof(shader::DispatchSize));
    run(list);
    return {get<float>(memory.act, pairs * layer.width),
            get<float>(memory.result, pairs * layer.hidden)};
  }

  static bool is_computed(const Layer& layer, std::uint32_t pair) {
    const std::uint32_t expert = layer.expert_of[pair];
    return expert != 3 && (layer.kinds.empty() || layer.kinds[expert] == 1);
  }

  static void expect_act(const Layer& layer, const Results& results) {
    for (std::uint32_t pair = 0; pair < layer.expert_of.size(); ++pair) {
      if (!is_computed(layer, pair)) continue;
      const Record& record = layer.records[layer.expert_of[pair]];
      const float* x = layer.x.data() + pair / kSlots * layer.hidden;
      const ExactProduct gate = exact_product(record.gate.view(), x, layer.hidden, 1);
      const ExactProduct up = exact_product(record.up.view(), x, layer.hidden, 1);
      for (std::uint32_t i = 0; i < layer.width; ++i) {
        const double silu = gate.value[i] / (1 + std::exp(-gate.value[i]));
        const double gate_error = test::sum_bound(layer.hidden, gate.magnitude[i]);
        const double up_error = test::sum_bound(layer.hidden, up.magnitude[i]);
        const double bound = 1.1 * gate_error * (std::fabs(up.value[i]) + up_error) +
                             std::fabs(silu) * up_error + 1e-6 * std::fabs(silu * up.value[i]);
        ASSERT_NEAR(results.act[pair * layer.width + i], silu * up.value[i], bound)
            << "pair " << pair << " output " << i;
      }
    }
  }
  static void expect_result(const Layer& layer, const Results& results) {
    for (std::uint32_t pair = 0; pair < layer.expert_of.size(); ++pair) {
      if (!is_computed(layer, pair)) continue;
      const Record& record = layer.records[layer.expert_of[pair]];
      const ExactProduct down = exact_product(
          record.down.view(), results.act.data() + pair * layer.width, layer.width, 1);
      for (std::uint32_t i = 0; i < layer.hidden; ++i) {
        ASSERT_NEAR(results.result[pair * layer.hidden + i], down.value[i],
                    test::sum_bound(layer.width, down.magnitude[i]))
            << "pair " << pair << " output " << i;
      }
    }
  }
  static void expect_untouched(const Layer& layer, const Results& results) {
    for (std::uint32_t pair = 0; pair < layer.expert_of.size(); ++pair) {
      if (is_computed(layer, pair)) continue;
      for (std::uint32_t i = 0; i < layer.width; ++i) {
        ASSERT_EQ(results.act[pair * layer.width + i], kUntouched) << "pair " << pair;
      }
      for (std::uint32_t i = 0; i < layer.hidden; ++i) {
        ASSERT_EQ(results.result[pair * layer.hidden + i], kUntouched) << "pair " << pair;
      }
    }
  }
  static void expect_layer(const Layer& layer) {
    SCOPED_TRACE(to_string(layer.format));
    const Results results = compute(layer, false);
    expect_act(layer, results);
    expect_result(layer, results);
    expect_untouched(layer, results);
  }
};

TEST_F(ExpertMatmulTest, EqualsSumsInDouble) {
  expect_layer(make_layer({.id = QFormatId::kQ4, .group_size = 32}, 96, 160, 75));
  expect_layer(make_layer({.id = QFormatId::kBf16}, 37, 70, 9));
  expect_layer(make_layer({.id = QFormatId::kQ40}, 64, 96, 20));
  expect_layer(make_layer({.id = QFormatId::kIq2Xxs}, 256, 256, 10));
}

TEST_F(ExpertMatmulTest, ProjectionsApartGiveTheSame) {
  const Layer layer = make_layer({.id = QFormatId::kQ4, .group_size = 32}, 96, 160, 40);
  Results fused = compute(layer, false);
  Results apart = compute(layer, true);
  for (std::uint32_t pair = 0; pair < layer.expert_of.size(); ++pair) {
    if (!is_computed(layer, pair)) continue;
    for (std::uint32_t i = 0; i < layer.hidden; ++i) {
      const std::size_t at = pair * layer.hidden + i;
      ASSERT_EQ(fused.result[at], apart.result[at]) << pair << " " << i;
    }
  }
}

TEST_F(ExpertMatmulTest, TilesAndGridsMadeOnTheDeviceGiveTheSame) {
  const Layer layer = make_layer({.id = QFormatId::kQ4, .group_size = 32}, 64, 96, 90);
  const Results wanted = compute(layer, false);
  const Results given = compute_grouped(layer);
  EXPECT_EQ(wanted.act, given.act);
  EXPECT_EQ(wanted.result, given.result);
}

TEST_F(ExpertMatmulTest, TilesOfOtherKindsAreLeftAlone) {
  Layer layer = make_layer({.id = QFormatId::kQ4, .group_size = 32}, 64, 96, 30);
  layer.kinds = {1, 1, 2, 1, 1, 2, 1};
  expect_layer(layer);
}

TEST_F(ExpertMatmulTest, APairDependsOnNoOther) {
  Layer layer = make_layer({.id = QFormatId::kQ4, .group_size = 32}, 64, 96, 80);
  const Results many = compute(layer, false);
  const std::uint32_t row = 66;
  for (std::size_t i = 0; i < layer.x.size(); ++i) {
    if (i / layer.hidden != row) layer.x[i] = std::numeric_limits<float>::infinity();
  }
  const Results among_others = compute(layer, false);
  Layer alone = make_layer(layer.format, layer.width, layer.hidden, 1);
  alone.x.assign(layer.x.begin() + row * layer.hidden, layer.x.begin() + (row + 1) * layer.hidden);
  alone.expert_of.assign(layer.expert_of.begin() + row * kSlots,
                         layer.expert_of.begin() + (row + 1) * kSlots);
  const Results one = compute(alone, false);
  for (std::size_t i = 0; i < kSlots * layer.hidden; ++i) {
    EXPECT_EQ(many.result[row * kSlots * layer.hidden + i], one.result[i]);
    EXPECT_EQ(among_others.result[row * kSlots * layer.hidden + i], one.result[i]);
  }
}

}  // namespace
}  // namespace moepack::expert_matmul_test
