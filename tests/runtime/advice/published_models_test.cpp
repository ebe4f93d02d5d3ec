// The table of published models: sizes worked out by hand from each model's config.json, and what
// fits a machine.
#include "runtime/advice/published_models.h"

#include <gtest/gtest.h>
#include <algorithm>
#include <string_view>

namespace moepack::published_models_test {
namespace {

const PublishedModel& model_called(std::string_view name) {
  const auto models = published_models();
  const auto at = std::find_if(models.begin(), models.end(),
                               [&](const PublishedModel& m) { return m.name == name; });
  EXPECT_NE(at, models.end()) << name;
  return *at;
}

struct Known {
  std::string_view name;
  double record_4, record_2;  // bytes of an expert
  double pack_4, pack_2;      // GiB of all of them
  double total_parameters;    // as the maker says
};

TEST(PublishedModels, SizesOfExperts) {
  constexpr double kGibibyte = 1024.0 * 1024 * 1024;
  for (const Known& known : {
           Known{"Qwen3.5-35B-A3B", 1769472, 983040, 16.875, 9.375, 34.66e9},
           Known{"Qwen3.5-122B-A10B", 5308416, 2949120, 60.75, 33.75, 122.11e9},
           Known{"Qwen3.5-397B-A17B", 7077888, 3932160, 202.5, 112.5, 396.35e9},
           Known{"Qwen3-235B-A22B", 10616832, 5898240, 118.97, 66.09, 235.09e9},
           Known{"gpt-oss-120b", 13996800, 7776000, 60.07, 33.37, 116.79e9},
           Known{"Kimi-K2", 24772608, 13762560, 531.56, 295.31, 1026.41e9},
       }) {
    SCOPED_TRACE(known.name);
    const PublishedModel& model = model_called(known.name);
    EXPECT_EQ(published_size(model, 4, 1).record_bytes, known.record_4);
    EXPECT_EQ(published_size(model, 2, 1).record_bytes, known.record_2);
    EXPECT_NEAR(published_size(model, 4, 1).pack_bytes / kGibibyte, known.pack_4, 0.006);
    EXPECT_NEAR(published_size(model, 2, 1).pack_bytes / kGibibyte, known.pack_2, 0.006);
    const double experts =
        3.0 * model.hidden_size * model.expert_width * model.moe_layers * model.experts;
    EXPECT_NEAR(experts + model.other_parameters, known.total_parameters,
                0.001 * known.total_parameters);
  }
}

TEST(PublishedModels, WhatFits) {
  const PublishedModel& model = model_called("Qwen3.5-35B-A3B");
  const ComputeRates compute{.residents = 10e9, .experts = 10e9, .memory = 20e9};
  Machine machine{.available_bytes = 16e9, .free_bytes = 30e9, .disk = {.one = 1e9, .many = 1e9}};
  PublishedFit fit = published_fit(model, 4, 4096, machine, compute);
  EXPECT_TRUE(fit.fits_memory);
  EXPECT_TRUE(fit.fits_disk);
  // 7/8 of 16 GB less residents 1.377e9, states .1468e9 and scratch .4e9 hold 12.076 of 18.119 GB.
  EXPECT_NEAR(fit.cache_share, 0.6665, 0.001);
  // A third of 566 MB a token from the disk of 1 GB/s, and 1.38 GB of residents.
  EXPECT_GT(fit.usual.tokens_per_second, 1 / (0.139 + 0.0063 + 0.45));
  EXPECT_GT(fit.usual.tokens_per_second, fit.cold.tokens_per_second);
  machine.available_bytes = 2e9;  // residents and one token's experts need more
  machine.free_bytes = 19e9;
  fit = published_fit(model, 4, 4096, machine, compute);
  EXPECT_FALSE(fit.fits_memory);
  EXPECT_FALSE(fit.fits_disk);
  machine.available_bytes = 100e9;
  EXPECT_EQ(published_fit(model, 4, 4096, machine, compute).cache_share, 1);
}

}  // namespace
}  // namespace moepack::published_models_test
