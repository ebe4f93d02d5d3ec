// Router products that route their rows themselves: the same logits and choices, to the bit, as the
// product and route one after the other.
#include "shaders/router_args.h"

#include <cstring>

#include "shaders/matvec_args.h"
#include "tests/runtime/vulkan/kernel_inputs.h"
#include "tests/runtime/vulkan/weight_fixture.h"

namespace moepack::router_test {
namespace {

using test::TestMatrix;
using test::Values;

constexpr std::uint32_t kTopK = 4;
constexpr std::uint32_t kSlots = kTopK + 1;
constexpr float kEpsilon = 1e-6F;

struct Routed {
  std::vector<float> logits;
  std::vector<shader::Choice> choices;
  std::vector<std::uint32_t> row_error;

  bool operator==(const Routed& other) const {
    return std::memcmp(logits.data(), other.logits.data(), logits.size() * 4) == 0 &&
           std::memcmp(choices.data(), other.choices.data(),
                       choices.size() * sizeof(shader::Choice)) == 0 &&
           row_error == other.row_error;
  }
};

class RouterTest : public WeightTest {
 protected:
  struct Setup {
    StoredMatrix router;
    StoredMatrix gate;
    std::uint32_t experts = 0;
    std::uint32_t cols = 0;
    TestBatch batch;
    DeviceBuffer x;
    DeviceBuffer earlier;  // inputs of the layer before
    DeviceBuffer factor;
    WeightKernelShape shape;
    DeviceBuffer scales;  // of the experts
    bool has_scales = false;

    // Of routing, behind those of the product.
    std::vector<std::uint32_t> routing() const {
      return {experts, kTopK, 0, 0, 1, 1, 0, 1, has_scales ? 1U : 0U};
    }
  };
  struct Outputs {
    DeviceBuffer rows, logits, choices, row_error, arrived;
  };

  static Outputs outputs(const Setup& s) {
    const std::size_t count = s.batch.rows.size();
    // The shared expert's logits lie behind the others.
    return {put(s.batch.rows), put(std::vector<float>(count * (s.experts + 1), 7.0F)),
            put(std::vector<shader::Choice>(count * kSlots, {77, 77.0F})),
            put(std::vector<std::uint32_t>(count, 0xffffffffU)),
            put(std::vector<std::uint32_t>(count, 0))};
  }
  static std::uint64_t shared_logits(const Setup& s, const Outputs& o) {
    return o.logits.address() + s.batch.rows.size() * s.experts * sizeof(float);
  }
  static Routed results(const Setup& s, const Outputs& o) {
    const std::size_t count = s.batch.rows.size();
    EXPECT_EQ(get<std::uint32_t>(o.arrived, count), std::vector<std::uint32_t>(count, 0));
    return {get<float>(o.logits, count * (s.experts + 1)),
            get<shader::Choice>(o.choices, count * kSlots), get<std::uint32_t>(o.row_error, count)};
  }

  static Routed run_apart(const Setup& s) {
    const Outputs o = outputs(s);
    const auto count = static_cast<std::uint32_t>(s.batch.rows.size());
    CommandList list(device());
    for (const StoredMatrix* w : {&s.router, &s.gate}) {
      const std::uint32_t rows = w == &s.router ? s.experts : 1;
      list.dispatch(
          weight_kernel("matvec", w->rows.format,
                        matvec_constants(w->rows, s.shape, device().info(), {.has_norm = true})),
          shader::MatvecArgs{.codes = w->address(Component::kCodes),
                             .scales = w->address(Component::kScales),
                             .biases = w->address(Component::kBiases),
                             .x = s.x.address(),
                             .factor = s.factor.address(),
                             .y = w == &s.router ? o.logits.address() : shared_logits(s, o),
                             .added = 0,
                             .indices = 0,
                             .tables = tables(),
                             .rows = rows,
                             .x_stride = s.cols,
                             .y_stride = rows,
                             .eps = kEpsilon},
          {groups_for_rows(s.shape, rows, device().info()), count, 1});
    }
    list.barrier();
    std::vector<std::uint32_t> route_constants = s.routing();
    route_constants.insert(route_constants.begin(), s.shape.threads);
    const VulkanKernel& route = kernel("route", std::move(route_constants));
    list.dispatch(route,
                  shader::RouteArgs{.rows = o.rows.address(),
                                    .logits = o.logits.address(),
                                    .shared_logits = shared_logits(s, o),
                                    .choices = o.choices.address(),
                                    .row_error = o.row_error.address(),
                                    .bias = s.scales.address(),
                                    .logits_stride = s.experts,
                                    .shared_stride = 1,
                                    .has_shared = 1,
                                    .renormalise = 1,
                                    .layer = 6},
                  {count, 1, 1});
    run(list);
    return results(s, o);
  }

  // Behind a layer with other inputs, whose logits and choices lie where this one's will.
  static Routed run_together(const Setup& s) {
    const Outputs o = outputs(s);
    const auto count = static_cast<std::uint32_t>(s.batch.rows.size());
    const std::uint32_t router_groups = groups_for_rows(s.shape, s.experts, device().info());
    CommandList list(device());
    for (const DeviceBuffer* x : {&s.earlier, &s.x}) {
      for (const StoredMatrix* w : {&s.router, &s.gate}) {
        std::vector<std::uint32_t> constants =
            matvec_constants(w->rows, s.shape, device().info(), {.has_norm = true});
        const std::vector<std::uint32_t> routing = s.routing();
        constants.insert(constants.end(), routing.begin(), routing.end());
        const std::uint32_t rows = w == &s.router ? s.experts : 1;
        list.dispatch(
            weight_kernel("router", w->rows.format, std::move(constants)),
            shader::RouterArgs{.codes = w->address(Component::kCodes),
                               .scales = w->address(Component::kScales),
                               .biases = w->address(Component::kBiases),
                               .x = x->address(),
                               .factor = s.factor.address(),
                               .tables = tables(),
                               .y = w == &s.router ? o.logits.address() : shared_logits(s, o),
                               .batch = o.rows.address(),
                               .logits = o.logits.address(),
                               .shared_logits = shared_logits(s, o),
                               .choices = o.choices.address(),
                               .row_error = o.row_error.address(),
                               .arrived = o.arrived.address(),
                               .bias = s.scales.address(),
                               .rows = rows,
                               .options = 1U | 1U << 1 | (w == &s.gate ? 4U : 0U) | 6U << 3 |
                                          (router_groups + 1) << MOE_ROUTER_GROUPS_AT},
            {w == &s.router ? router_groups : 1, count, 1});
      }
      list.barrier();
    }
    run(list);
    return results(s, o);
  }
};

TEST_F(RouterTest, GivesWhatTheProductAndRouteGive) {
  for (const QFormatId id : {QFormatId::kF32, QFormatId::kBf16, QFormatId::kQ8, QFormatId::kQ80}) {
    WeightFormat format{.id = id};
    if (is_affine(format)) format.group_size = 64;
    const auto cols = static_cast<std::uint32_t>(test::fitting_cols(format, 192));
    const std::uint32_t experts = 70;
    const TestMatrix router(format, experts, cols, Values::kUsual, 0, 3);
    const TestMatrix gate({.id = QFormatId::kF32}, 1, cols, Values::kUsual, 0, 4);
    Setup s;
    s.router = store(router.view(), 0);
    s.gate = store(gate.view(), 0);
    s.experts = experts;
    s.cols = cols;
    s.batch.add(5, 3);
    s.batch.add(0, 1, false);
    s.batch.add(2, 4);
    std::vector<float> x = random_values(std::size_t{8} * cols, 2.0F, 15);
    x[6 * cols + 5] = std::numeric_limits<float>::quiet_NaN();
    s.x = put(x);
    s.earlier = put(random_values(std::size_t{8} * cols, 2.0F, 17));
    s.factor = put(random_values(cols, 1.0F, 16));
    s.shape = {.threads = 64, .lanes = 8, .rows = 2, .steps = 1};
    s.scales = put(random_values(experts, 1.0F, 18));
    const Routed apart = run_apart(s);
    EXPECT_EQ(apart.row_error[6], 6U);
    EXPECT_LT(apart.choices[0].expert, experts);
    EXPECT_TRUE(run_together(s) == apart) << name_of(format);
    s.has_scales = true;
    const Routed scaled = run_apart(s);
    EXPECT_FALSE(scaled == apart);
    EXPECT_TRUE(run_together(s) == scaled) << name_of(format);
  }
}

}  // namespace
}  // namespace moepack::router_test
