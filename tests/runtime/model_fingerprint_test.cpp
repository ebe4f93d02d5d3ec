// A saved sequence must not be taken by a model that computes something else.
#include "runtime/model/model_fingerprint.h"

#include <gtest/gtest.h>

#include <functional>
#include <vector>

namespace moepack {
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
      [](ModelDir& m) { m.residents.checksum = 8; },
      [](ModelDir& m) { m.residents.conventions.norm = ResidentConventions::Norm::kOnePlus; },
  };
  std::vector<std::uint64_t> seen{model_fingerprint(some_model())};
  EXPECT_EQ(seen[0], model_fingerprint(some_model()));
  for (const auto& change : changes) {
    ModelDir model = some_model();
    change(model);
    const std::uint64_t fingerprint = model_fingerprint(model);
    for (const std::uint64_t other : seen) EXPECT_NE(fingerprint, other) << seen.size();
    seen.push_back(fingerprint);
  }
}

}  // namespace
}  // namespace moepack
