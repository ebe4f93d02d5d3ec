// Experts of a few rows: gate and up, down, and what adds them, against sums in double.
#include <array>

#include "shaders/combine_args.h"
#include "shaders/down_args.h"
#include "shaders/gate_up_args.h"
#include "tests/runtime/vulkan/weight_fixture.h"
#include "tests/support/exact_product.h"

namespace moepack::expert_kernels_test {
namespace {

using test::TestMatrix;
using test::Values;

constexpr std::uint32_t kBatch = 2;
constexpr std::uint32_t kSlots = 3;
constexpr std::uint32_t kExperts = 3;  // of which the last has no record

// An expert as a record, and what it is made of.
struct Expert {
  TestMatrix gate, up, down;
};

struct Layer {
  std::vector<Expert> experts;
  DeviceBuffer records;
  DeviceBuffer table;
  DeviceBuffer layouts;
  Components<std::uint64_t> gate, up, down;  // offsets
};

class ExpertKernelTest : public WeightTest {
 protected:
  static Layer make_layer(const WeightFormat& format, std::uint64_t hidden, std::uint64_t width,
                          std::uint64_t shift) {
    Layer layer;
    std::vector<std::byte> bytes;
    std::vector<std::uint64_t> starts;
    for (std::uint32_t e = 0; e + 1 < kExperts; ++e) {
      layer.experts.push_back({TestMatrix(format, width, hidden, Values::kUsual, 0, 31 + e),
                               TestMatrix(format, width, hidden, Values::kUsual, 0, 41 + e),
                               TestMatrix(format, hidden, width, Values::kUsual, 0, 51 + e)});
      starts.push_back((bytes.size() + 4095) / 4096 * 4096);
      std::vector<std::byte> record(shift);
      layer.gate = append(layer.experts[e].gate.view(), record);
      layer.up = append(layer.experts[e].up.view(), record);
      layer.down = append(layer.experts[e].down.view(), record);
      bytes.resize(starts.back());
      bytes.insert(bytes.end(), record.begin(), record.end());
    }
    bytes.resize((bytes.size() + 3) / 4 * 4);
    layer.records = put(bytes);
    std::vector<std::uint64_t> addresses(kExperts);
    for (std::size_t e = 0; e < starts.size(); ++e) {
      addresses[e] = layer.records.address() + starts[e];
    }
    layer.table = put(addresses);
    layer.layouts = put(std::vector<std::uint32_t>{5, 6, 6});
    return layer;
  }

  // Rows choose experts 0 and 1 in turn, one that is not there, and one beyond the table.
  static std::vector<shader::Choice> choices() {
    return {{0, 0.5F}, {2, 3.0F}, {1, -1.25F}, {1, 0.75F}, {0, 2.0F}, {9, 1.0F}};
  }

  static std::uint32_t alignment(const QMatrixView& view, const Components<std::uint64_t>& at,
                                 std::uint64_t other) {
    return row_alignment(view.format, view.cols, at.codes() | other);
  }

  // act of all slots; those that are not computed are 7.
  static std::vector<float> gate_up(const Layer& layer, const std::vector<float>& x,
                                    const WeightKernelShape& shape, const GateUpOptions& options,
                                    bool is_fixed = false) {
    const QMatrixView& view = layer.experts[0].gate.view();
    const WeightRows rows{.format = view.format,
                          .cols = view.cols,
                          .alignment = alignment(view, layer.gate, layer.up.codes())};
    const VulkanKernel& made =
        weight_kernel(is_fixed ? "gate_up_fixed" : "gate_up", view.format,
                      gate_up_constants(rows, shape, device().info(), options));
    const DeviceBuffer inputs = put(x);
    const DeviceBuffer chosen = put(choices());
    const DeviceBuffer act = put(std::vector<float>(kBatch * kSlots * view.rows, 7.0F));
    CommandList list(device());
    list.dispatch(made,
                  shader::GateUpArgs{.records = layer.table.address(),
                                     .kinds = layer.layouts.address(),
                                     .choices = chosen.address(),
                                     .x = inputs.address(),
                                     .factor = inputs.address(),
                                     .act = act.address(),
                                     .tables = tables(),
                                     .bias = 0,
                                     .experts = kExperts,
                                     .kind = 6,
                                     .slots = kSlots,
                                     .first_slot = 0,
                                     .rows = static_cast<std::uint32_t>(view.rows),
                                     .gate_codes = offset(layer.gate, Component::kCodes),
                                     .gate_scales = offset(layer.gate, Component::kScales),
                                     .gate_biases = offset(layer.gate, Component::kBiases),
                                     .up_codes = offset(layer.up, Component::kCodes),
                                     .up_scales = offset(layer.up, Component::kScales),
                                     .up_biases = offset(layer.up, Component::kBiases),
                                     .x_stride = static_cast<std::uint32_t>(view.cols),
                                     .act_stride = static_cast<std::uint32_t>(view.rows),
                                     .eps = 1e-6F},
                  {groups_for_rows(shape, view.rows, device().info()), kSlots, kBatch});
    run(list);
    return get<float>(act, kBatch * kSlots * view.rows);
  }
  static std::uint32_t offset(const Components<std::uint64_t>& offsets, Component c) {
    return static_cast<std::uint32_t>(offsets[c]);
  }

  // y added to `before`, or each slot's product.
  static std::vector<float> down(const Layer& layer, const std::vector<float>& act,
                                 const std::vector<float>& before, const WeightKernelShape& shape,
                                 const DownOptions& options, bool is_fixed = false) {
    const QMatrixView& view = layer.experts[0].down.view();
    const WeightRows rows{
        .format = view.format, .cols = view.cols, .alignment = alignment(view, layer.down, 0)};
    const VulkanKernel& made = weight_kernel(is_fixed ? "down_fixed" : "down", view.format,
                                             down_constants(rows, shape, device().info(), options));
    const DeviceBuffer inputs = put(act);
    const DeviceBuffer chosen = put(choices());
    const DeviceBuffer y = put(before);
    const auto blocks =
        static_cast<std::uint32_t>((view.rows + options.block_rows - 1) / options.block_rows);
    CommandList list(device());
    list.dispatch(made,
                  shader::DownArgs{.records = layer.table.address(),
                                   .kinds = layer.layouts.address(),
                                   .choices = chosen.address(),
                                   .act = inputs.address(),
                                   .y = y.address(),
                                   .added = y.address(),
                                   .tables = tables(),
                                   .bias = 0,
                                   .experts = kExperts,
                                   .kind = 6,
                                   .slots = kSlots,
                                   .first_slot = 0,
                                   .rows = static_cast<std::uint32_t>(view.rows),
                                   .codes = offset(layer.down, Component::kCodes),
                                   .scales = offset(layer.down, Component::kScales),
                                   .biases = offset(layer.down, Component::kBiases),
                                   .act_stride = static_cast<std::uint32_t>(view.cols),
                                   .y_stride = static_cast<std::uint32_t>(view.rows)},
                  {blocks, kBatch, 1});
    run(list);
    return get<float>(y, before.size());
  }

  // Whether the slot's expert has a record that is computed.
  static bool is_there(const shader::Choice& choice, bool by_kind) {
    return choice.expert < (by_kind ? 2U : kExperts - 1) && (!by_kind || choice.expert == 1);
  }

  // What the activation makes of a gate.
  static double activated(const GateUpOptions& options, double gate) {
    if (options.activation.kind != ExpertActivation::kGeGlu) return gate / (1 + std::exp(-gate));
    const double slope = 2 * std::sqrt(2 / std::acos(-1.0));
    return gate / (1 + std::exp(-slope * (gate + 0.044715 * gate * gate * gate)));
  }

  // Inputs in fixed point are off by up to half of their unit.
  static double bound_of(const test::ExactProduct& exact, std::size_t r, std::uint64_t cols,
                         bool is_fixed) {
    return test::product_bound(exact, r, cols, false) +
           (is_fixed ? exact.peak[r] * (0.51 / 32512) : 0);
  }

  static void expect_gate_up(const Layer& layer, const std::vector<float>& x,
                             const std::vector<float>& act, const GateUpOptions& options,
                             bool is_fixed = false) {
    const std::vector<shader::Choice> chosen = choices();
    for (std::size_t place = 0; place < chosen.size(); ++place) {
      const std::uint64_t width = layer.experts[0].gate.view().rows;
      const std::uint64_t hidden = layer.experts[0].gate.view().cols;
      const float* in = x.data() + place / kSlots * hidden;
      if (!is_there(chosen[place], options.by_kind)) {
        for (std::size_t r = 0; r < width; ++r) ASSERT_EQ(act[place * width + r], 7.0F);
        continue;
      }
      const Expert& expert = layer.experts[chosen[place].expert];
      const auto gate = test::exact_product(expert.gate.view(), in, hidden, 1);
      const auto up = test::exact_product(expert.up.view(), in, hidden, 1);
      for (std::size_t r = 0; r < width; ++r) {
        const double g = gate.value[r];
        const double exact = options.is_single ? g : activated(options, g) * up.value[r];
        const double gate_bound = bound_of(gate, r, hidden, is_fixed);
        const double up_bound = bound_of(up, r, hidden, is_fixed);
        const double bound = options.is_single
                                 ? gate_bound
                                 : 1.2 * gate_bound * (std::fabs(up.value[r]) + up_bound) +
                                       std::fabs(g) * up_bound + 1e-6 * std::fabs(exact) + 1e-30;
        ASSERT_NEAR(static_cast<double>(act[place * width + r]), exact, bound)
            << "place " << place << " row " << r;
      }
    }
  }

  static void expect_down(const Layer& layer, const std::vector<float>& act,
                          const std::vector<float>& before, const std::vector<float>& y,
                          const DownOptions& options, bool is_fixed = false) {
    const std::vector<shader::Choice> chosen = choices();
    const std::uint64_t hidden = layer.experts[0].down.view().rows;
    const std::uint64_t width = layer.experts[0].down.view().cols;
    for (std::size_t b = 0; b < kBatch; ++b) {
      std::vector<double> sum(hidden, 0), bound(hidden, 0);
      for (std::size_t slot = 0; slot < kSlots; ++slot) {
        const shader::Choice& choice = chosen[b * kSlots + slot];
        if (!is_there(choice, options.by_kind)) continue;
        const auto exact = test::exact_product(layer.experts[choice.expert].down.view(),
                                               act.data() + (b * kSlots + slot) * width, width, 1);
        for (std::size_t r = 0; r < hidden; ++r) {
          const double one = bound_of(exact, r, width, is_fixed);
          if (options.slots_apart) {
            ASSERT_NEAR(static_cast<double>(y[(b * kSlots + slot) * hidden + r]), exact.value[r],
                        one);
          }
          sum[r] += choice.weight * exact.value[r];
          bound[r] += std::fabs(choice.weight) * (one + 1e-6 * exact.magnitude[r]);
        }
      }
      for (std::size_t r = 0; r < hidden && !options.slots_apart; ++r) {
        const auto start = static_cast<double>(before[b * hidden + r]);
        ASSERT_NEAR(static_cast<double>(y[b * hidden + r]), start + sum[r],
                    bound[r] + 1e-6 * std::fabs(start))
            << "batch row " << b << " row " << r;
      }
    }
  }
};

TEST_F(ExpertKernelTest, GateAndUpOfEveryFormat) {
  for (const WeightFormat& format : test::gpu_weight_formats()) {
    if (is_affine(format) && (format.group_size != 64 || format.scale_type == DType::kF16))
      continue;
    SCOPED_TRACE(name_of(format));
    const std::uint64_t hidden = test::fitting_cols(format, 192);
    const std::uint64_t width = test::fitting_cols(format, 64);
    for (const std::uint64_t shift : {std::uint64_t{0}, least_shift(format)}) {
      const Layer layer = make_layer(format, hidden, width, shift);
      const std::vector<float> x = random_floats(kBatch * hidden, 2.0F, 61);
      const WeightKernelShape shape =
          shapes({.format = format, .cols = hidden})[shift == 0 ? 0 : 1];
      const GateUpOptions options{.is_single = shift == 0, .by_kind = shift == 0};
      expect_gate_up(layer, x, gate_up(layer, x, shape, options), options);
    }
    if (HasFatalFailure()) return;
  }
}

TEST_F(ExpertKernelTest, GeluInPlaceOfSilu) {
  const WeightFormat format{.id = QFormatId::kQ4, .group_size = 64};
  const Layer layer = make_layer(format, 192, 64, 0);
  const std::vector<float> x = random_floats(kBatch * 192, 0.3F, 67);
  const GateUpOptions options{.activation = {.kind = ExpertActivation::kGeGlu}};
  const WeightRows rows{.format = format, .cols = 192};
  const auto floats = gate_up(layer, x, shapes(rows)[0], options);
  expect_gate_up(layer, x, floats, options);
  if (!device().info().has_integer_dot) return;
  const WeightKernelShape shape = fixed_shape(rows, device().info(), 32);
  expect_gate_up(layer, x, gate_up(layer, x, shape, options, true), options, true);
}

// Aligned records, as most are, and the norm of the inputs.
TEST_F(ExpertKernelTest, GateAndUpOfNormedInputs) {
  const WeightFormat format{.id = QFormatId::kQ4, .group_size = 64};
  const Layer layer = make_layer(format, 192, 64, 0);
  // The factor is the first row of inputs.
  const std::vector<float> x = random_floats(kBatch * 192, 2.0F, 66);
  std::vector<float> normed(x.size());
  for (std::size_t b = 0; b < kBatch; ++b) {
    double squares = 0;
    for (std::size_t i = 0; i < 192; ++i) squares += std::pow(x[b * 192 + i], 2.0);
    const double scale = 1 / std::sqrt(squares / 192 + 1e-6);
    for (std::size_t i = 0; i < 192; ++i) {
      normed[b * 192 + i] = static_cast<float>(x[b * 192 + i] * scale * x[i]);
    }
  }
  const WeightKernelShape shape = shapes({.format = format, .cols = 192})[0];
  const GateUpOptions options{.has_norm = true};
  expect_gate_up(layer, normed, gate_up(layer, x, shape, options), options);
}

TEST_F(ExpertKernelTest, DownOfEveryFormatIsAddedInOrder) {
  for (const WeightFormat& format : test::gpu_weight_formats()) {
    if (is_affine(format) && (format.group_size != 64 || format.scale_type == DType::kF16))
      continue;
    SCOPED_TRACE(name_of(format));
    const std::uint64_t hidden = test::fitting_cols(format, 192);
    const std::uint64_t width = test::fitting_cols(format, 64);
    for (const std::uint64_t shift : {std::uint64_t{0}, least_shift(format)}) {
      const Layer layer = make_layer(format, hidden, width, shift);
      const std::vector<float> act = random_floats(kBatch * kSlots * width, 2.0F, 62);
      const std::vector<float> before = random_floats(kBatch * hidden, 1.0F, 63);
      const WeightRows rows{.format = format, .cols = width};
      const WeightKernelShape shape =
          shift == 0 ? usual_down_shape(rows, device().info(), kSlots, 16) : shapes(rows)[1];
      const DownOptions options{.slots = kSlots, .block_rows = shift == 0 ? 16U : 10U};
      expect_down(layer, act, before, down(layer, act, before, shape, options), options);
    }
    if (HasFatalFailure()) return;
  }
}

TEST_F(ExpertKernelTest, InputsMayBeInFixedPoint) {
  if (!device().info().has_integer_dot) GTEST_SKIP() << "no products of integers";
  for (const WeightFormat& format : test::gpu_weight_formats()) {
    if (is_affine(format) && (format.group_size != 64 || format.scale_type == DType::kF16))
      continue;
    const std::uint64_t hidden = test::fitting_cols(format, 192);
    const std::uint64_t width = test::fitting_cols(format, 64);
    if (!has_fixed_products({.format = format, .cols = hidden}, 1, device().info())) continue;
    SCOPED_TRACE(name_of(format));
    for (const std::uint64_t shift : {std::uint64_t{0}, least_shift(format)}) {
      const Layer layer = make_layer(format, hidden, width, shift);
      const std::vector<float> x = random_floats(kBatch * hidden, 2.0F, 61);
      const WeightKernelShape shape =
          fixed_shape({.format = format, .cols = hidden}, device().info(), shift == 0 ? 32 : 2);
      const GateUpOptions options{.is_single = shift == 0, .by_kind = shift == 0};
      expect_gate_up(layer, x, gate_up(layer, x, shape, options, true), options, true);
      if (!has_fixed_products({.format = format, .cols = width}, kSlots, device().info())) continue;
      const std::vector<float> act = random_floats(kBatch * kSlots * width, 2.0F, 62);
      const std::vector<float> before = random_floats(kBatch * hidden, 1.0F, 63);
      const DownOptions all{.slots = kSlots, .block_rows = shift == 0 ? 8U : 10U};
      const WeightKernelShape cut{.threads = shift == 0 ? 256U : 32U,
                                  .lanes = 32,
                                  .rows = 1,
                                  .steps = shift == 0 ? 2U : 1U};
      expect_down(layer, act, before, down(layer, act, before, cut, all, true), all, true);
    }
    if (HasFatalFailure()) return;
  }
}

// Subgroups with fewer rows or fewer chunks than others; several rows for a subgroup, several
// subgroups for a row, and some for none.
TEST_F(ExpertKernelTest, DownInFixedPointHoweverTheWorkIsCut) {
  if (!device().info().has_integer_dot) GTEST_SKIP() << "no products of integers";
  struct Cut {
    std::uint32_t subgroups, block_rows, steps;
  };
  const std::array<Cut, 6> cuts{
      {{4, 10, 1}, {1, 3, 2}, {4, 4, 1}, {5, 2, 1}, {8, 2, 1}, {16, 8, 2}}};
  for (const WeightFormat& format :
       {WeightFormat{.id = QFormatId::kQ4, .group_size = 64}, WeightFormat{.id = QFormatId::kQ80},
        WeightFormat{.id = QFormatId::kQ2K}, WeightFormat{.id = QFormatId::kQ6K},
        WeightFormat{.id = QFormatId::kIq3S}}) {
    const std::uint64_t width = test::fitting_cols(format, 576);
    const WeightRows rows{.format = format, .cols = width};
    ASSERT_TRUE(has_fixed_products(rows, kSlots, device().info())) << name_of(format);
    const Layer layer = make_layer(format, test::fitting_cols(format, 64), width, 0);
    const std::uint64_t hidden = layer.experts[0].down.view().rows;
    const std::vector<float> act = random_floats(kBatch * kSlots * width, 2.0F, 64);
    const std::vector<float> before = random_floats(kBatch * hidden, 1.0F, 65);
    for (const Cut& cut : cuts) {
      SCOPED_TRACE(name_of(format) + ", subgroups " + std::to_string(cut.subgroups) + ", rows " +
                   std::to_string(cut.block_rows));
      const DownOptions options{.slots = kSlots, .block_rows = cut.block_rows};
      const WeightKernelShape shape{.threads = cut.subgroups * device().info().subgroup_size,
                                    .lanes = 32,
                                    .rows = 1,
                                    .steps = cut.steps};
      expect_down(layer, act, before, down(layer, act, before, shape, options, true), options,
                  true);
    }
    if (HasFatalFailure()) return;
  }
}

TEST_F(ExpertKernelTest, SlotsApartAreCombinedToTheSame) {
  const WeightFormat format{.id = QFormatId::kQ4, .group_size = 32};
  const std::uint32_t hidden = 96;
  const std::uint32_t width = 64;
  const Layer layer = make_layer(format, hidden, width, 0);
  const std::vector<float> act = random_floats(kBatch * kSlots * width, 2.0F, 64);
  const std::vector<float> before = random_floats(kBatch * hidden, 1.0F, 65);
  const WeightKernelShape shape = shapes({.format = format, .cols = width})[0];
  const DownOptions apart{.slots = kSlots, .by_kind = true, .slots_apart = true};
  const std::vector<float> none(std::size_t{kBatch} * kSlots * hidden);
  expect_down(layer, act, none, down(layer, act, none, shape, apart), apart);
  const DownOptions all{.slots = kSlots, .slots_apart = true};
  const DeviceBuffer results = put(down(layer, act, none, shape, all));
  const DeviceBuffer y = put(before);
  const DeviceBuffer chosen = put(choices());
  const VulkanKernel& made = kernel("combine", {32});
  CommandList list(device());
  list.dispatch(made,
                shader::CombineArgs{.records = layer.table.address(),
                                    .choices = chosen.address(),
                                    .results = results.address(),
                                    .y = y.address(),
                                    .experts = kExperts,
                                    .slots = kSlots,
                                    .cols = hidden,
                                    .y_stride = hidden},
                {2, kBatch, 1});
  run(list);
  const DownOptions summed{.slots = kSlots};
  expect_down(layer, act, before, get<float>(y, before.size()), summed);
  expect_down(layer, act, before, down(layer, act, before, shape, summed), summed);
}

}  // namespace
}  // namespace moepack::expert_kernels_test
