// A saved sequence must not be taken by a model that computes something else.
#include "runtime/model/model_fingerprint.h"

#include <gtest/gtest.h>

#include <functional>
#include <vector>

namespace moepack::model_fingerprint_test {
namespace {

ModelDir some_model() {
  ModelDir model;
  model.config.hidden_size = 64;
  model.config.rms_norm_eps = 1e-6F;
  model.config.rope_theta = 1e4;
  model.config.layers.resize(2);
  model.residents.checksum = 7;
  return model;
}

TEST(ModelFingerprint, TellsModelsApartThatDifferInOneThing) {
  const std::vector<std::function<void(ModelDir&)>> changes{
      [](ModelDir& m) { m.config.hidden_size = 128; },
      [](ModelDir& m) { m.config.rms_norm_eps = 1e-5F; },
      [](ModelDir& m) { m.config.rope_theta = 1e6; },
      [](ModelDir& m) { m.config.layers[1].mixer = GatedDeltaNetSpec{}; },
      [](ModelDir& m) { m.config.layers[1].mixer = FullAttentionSpec{.has_gate = true}; },
      [](ModelDir& m) {
        m.config.layers[1].mixer = FullAttentionSpec{.norm = QueryKeyNorm::kWholeWidth};
      },
      [](ModelDir& m) { m.config.layers[1].mixer = FullAttentionSpec{.clip = 8.0F}; },
      [](ModelDir& m) { m.config.layers[1].router = SoftmaxRouterSpec{.renormalise = false}; },
      [](ModelDir& m) { m.config.layers[1].mixer = FullAttentionSpec{.own_heads = HeadSizes{}}; },
      [](ModelDir& m) {
        m.config.layers[1].mixer = FullAttentionSpec{.own_heads = HeadSizes{.rotated_pairs = 3}};
      },
      [](ModelDir& m) { m.config.layers[1].mixer = FullAttentionSpec{.score_scale = 1.0F}; },
      [](ModelDir& m) { m.config.layers[1].mixer = FullAttentionSpec{.values_are_keys = true}; },
      [](ModelDir& m) { m.config.layers[1].mixer = FullAttentionSpec{.has_value_norm = true}; },
      [](ModelDir& m) { m.config.layers[1].router = SoftmaxRouterSpec{.has_norm = true}; },
      [](ModelDir& m) { m.config.layers[1].router = SoftmaxRouterSpec{.has_expert_scales = true}; },
      [](ModelDir& m) { m.config.layers[1].feed_forward = ExpertsSpec{.has_branch_norms = true}; },
      [](ModelDir& m) {
        m.config.layers[1].feed_forward = ExpertsSpec{.activation = ExpertActivation::kGeGlu};
      },
      [](ModelDir& m) { m.config.layers[1].has_output_norms = true; },
      [](ModelDir& m) { m.config.layers[1].has_output_scale = true; },
      [](ModelDir& m) { m.config.embedding_scale = 8; },
      [](ModelDir& m) { m.config.logit_cap = 30; },
      [](ModelDir& m) { m.residents.checksum = 8; },
      [](ModelDir& m) { m.residents.conventions.norm = ResidentConventions::Norm::kOnePlus; },
  };
  std::vector<std::uint64_t> seen{model_fingerprint(some_model(), {})};
  EXPECT_EQ(seen[0], model_fingerprint(some_model(), {}));
  for (const auto& change : changes) {
    ModelDir model = some_model();
    change(model);
    const std::uint64_t fingerprint = model_fingerprint(model, {});
    for (const std::uint64_t other : seen) EXPECT_NE(fingerprint, other) << seen.size();
    seen.push_back(fingerprint);
  }
}

// ---- Residents without a checksum ----

// Loaded residents: a matrix of bf16 in each role that a test changes.
struct SomeWeights {
  static constexpr std::uint64_t kRows = 40;
  static constexpr std::uint64_t kCols = 16;
  std::vector<std::uint16_t> query = std::vector<std::uint16_t>(kRows * kCols, 0x3f80);
  std::vector<std::uint16_t> in_z = query;
  std::vector<std::uint16_t> router = query;
  std::vector<float> final_norm{1, 2, 3};
  std::vector<float> decay{-1, -2};

  ModelWeights get() const {
    ModelWeights weights;
    weights.final_norm = final_norm;
    weights.layers.resize(2);
    weights.layers[0].mixer = FullAttentionWeights{};
    std::get<FullAttentionWeights>(weights.layers[0].mixer).q = view(query);
    weights.layers[1].mixer = DeltaNetWeights{};
    std::get<DeltaNetWeights>(weights.layers[1].mixer).in_z = view(in_z);
    std::get<DeltaNetWeights>(weights.layers[1].mixer).decay_rate = decay;
    weights.layers[1].moe.router = view(router);
    return weights;
  }
  static QMatrixView view(const std::vector<std::uint16_t>& values) {
    QMatrixView matrix;
    matrix.rows = kRows;
    matrix.cols = kCols;
    matrix.data.codes() = reinterpret_cast<const std::byte*>(values.data());
    return matrix;
  }
};

TEST(ModelFingerprint, WithoutAChecksumTheWeightsTellModelsApart) {
  ModelDir model = some_model();
  model.residents.has_checksum = false;
  model.residents.checksum = 0;
  const std::vector<std::function<void(SomeWeights&)>> changes{
      [](SomeWeights&) {},
      [](SomeWeights& w) { w.final_norm[1] += 1e-5F; },
      [](SomeWeights& w) { w.decay[1] = -3; },
      [](SomeWeights& w) { w.query.front() ^= 1; },
      [](SomeWeights& w) { w.query.back() ^= 1; },
      // A column everywhere, as other training or another rounding does.
      [](SomeWeights& w) {
        for (std::size_t row = 0; row < w.kRows; ++row) w.in_z[row * w.kCols + 5] ^= 1;
      },
      [](SomeWeights& w) {
        for (std::size_t row = 0; row < w.kRows; ++row) w.router[row * w.kCols + 5] ^= 1;
      },
  };
  std::vector<std::uint64_t> seen;
  for (const auto& change : changes) {
    SomeWeights weights;
    change(weights);
    const std::uint64_t fingerprint = model_fingerprint(model, weights.get());
    EXPECT_EQ(fingerprint, model_fingerprint(model, weights.get()));
    for (const std::uint64_t other : seen) EXPECT_NE(fingerprint, other) << seen.size();
    seen.push_back(fingerprint);
  }
}

// Saved sequences of models with checksums stay good: nothing but the manifests counts.
TEST(ModelFingerprint, WithAChecksumTheWeightsDoNotCount) {
  EXPECT_EQ(model_fingerprint(some_model(), SomeWeights().get()),
            model_fingerprint(some_model(), {}));
}

}  // namespace
}  // namespace moepack::model_fingerprint_test
