// The layer-major forward against the token-major one: same hidden states, same routing, same
// inputs of the experts. And what it must not depend on.
#include "runtime/corpus/corpus_forward.h"

#include <gtest/gtest.h>
#include <algorithm>
#include <cmath>

#include "formats/base/checksum.h"
#include "runtime/corpus/calibrate.h"
#include "tests/support/converted_model.h"
#include "tests/support/latent_model.h"
#include "tests/support/relative_error.h"
#include "tests/support/test_models.h"
#include "tests/support/tiny_model.h"

namespace moepack::corpus_forward_test {
namespace {

constexpr double kTolerance = 3e-6;

std::vector<std::int32_t> some_ids(std::size_t count, std::size_t vocab) {
  std::vector<std::int32_t> ids(count);
  for (std::size_t i = 0; i < count; ++i)
    ids[i] = static_cast<std::int32_t>((i * 977 + 31) % vocab);
  return ids;
}

// Everything of every window, by layer.
struct Passed : ForwardObserver {
  explicit Passed(std::uint32_t layers) : router(layers), hidden(layers) {}
  void on_embedding(std::size_t, std::span<const float>) override {}
  void on_router(std::uint32_t l, std::size_t, std::span<const float> x) override {
    router[l].insert(router[l].end(), x.begin(), x.end());
  }
  void on_layer(std::uint32_t l, std::size_t, std::span<const float> x) override {
    hidden[l].insert(hidden[l].end(), x.begin(), x.end());
  }
  void on_final_norm(std::size_t, std::span<const float>) override {}
  std::vector<std::vector<float>> router;
  std::vector<std::vector<float>> hidden;
};

void expect_equals_engine(const std::filesystem::path& model, const EngineOptions& engine_options,
                          std::size_t tokens, std::uint32_t context,
                          std::uint64_t cache_bytes = 0) {
  ASSERT_OK_AND_ASSIGN(const std::unique_ptr<Engine> engine, Engine::open(engine_options));
  const ModelConfig& config = engine->config();
  const std::vector<std::int32_t> ids = some_ids(tokens, config.vocab_size);
  const std::vector<TokenWindow> windows = choose_windows(ids.size(), context, 0);
  Passed passed(config.num_layers);
  const LogitsSink ignore = [](std::size_t, std::span<const float>) { return Status::ok(); };
  for (const TokenWindow& w : windows) {
    engine->reset();
    ASSERT_OK(engine->forward(std::span(ids).subspan(w.first, w.count), w.count, ignore, &passed));
  }
  ASSERT_OK_AND_ASSIGN(const ModelDir dir, open_model_dir(model, ""));
  ASSERT_OK_AND_ASSIGN(const Kernels* kernels,
                       backend_kernels(engine_options.backend, engine_options.cpu_level));
  ASSERT_OK_AND_ASSIGN(
      const std::unique_ptr<CorpusForward> corpus,
      CorpusForward::open(
          dir, {.kernels = kernels, .threads = 2, .context = context, .cache_bytes = cache_bytes}));
  ASSERT_OK(corpus->start(ids, windows));
  for (std::uint32_t layer = 0; layer < config.num_layers; ++layer) {
    std::vector<std::uint32_t> experts;
    ASSERT_OK(corpus->mix(layer, [&](const ExpertInputs& given) {
      const bool is_dense = !has_experts(config.layers[layer]);
      EXPECT_EQ(is_dense ? 0 : given.first_token * config.experts_per_token, experts.size());
      EXPECT_EQ(given.inputs.size(), given.tokens * config.hidden_size);
      for (const Assignment& use : given.routing) experts.push_back(use.expert);
      return Status::ok();
    }));
    const bool has_routed = has_experts(config.layers[layer]);
    const std::size_t wanted_uses = has_routed ? ids.size() * config.experts_per_token : 0;
    ASSERT_EQ(experts.size(), wanted_uses);
    // Corrections of sigmoids are not known here.
    const bool is_softmax =
        has_routed && std::holds_alternative<SoftmaxRouterSpec>(config.layers[layer].router);
    const std::vector<Assignment> wanted =
        is_softmax ? route(config.layers[layer].router, passed.router[layer].data(), ids.size(),
                           config.num_experts, config.experts_per_token)
                   : std::vector<Assignment>();
    for (std::size_t i = 0; i < wanted.size(); ++i) {
      ASSERT_EQ(experts[i], wanted[i].expert) << "layer " << layer << ", use " << i;
    }
    std::size_t uses = 0;
    ASSERT_OK(corpus->add_experts(layer, [&](std::size_t count) { uses += count; }));
    EXPECT_EQ(uses, wanted_uses);
    const double error = test::relative_error(corpus->hidden(), passed.hidden[layer]);
    EXPECT_LE(error, kTolerance) << "layer " << layer;
    if (layer + 1 == config.num_layers) std::printf("hidden states: relative error %.2e\n", error);
  }
  std::uint64_t records = 0;
  for (std::uint32_t l = 0; l < config.num_layers; ++l) {
    for (std::uint32_t e = 0; e < dir.pack.experts_of(l); ++e) {
      records += dir.pack.layout_of(l, e).record_bytes;
    }
  }
  EXPECT_LE(corpus->expert_stats().bytes_read, records) << "an expert was read twice";
}

TEST(CorpusForward, EqualsTheEngineOnTheDemo) {
  const test::TempDir dir;
  const auto model = test::convert_for_test(test::demo_mlx_model(), dir);
  expect_equals_engine(model, test::reference_options(model), 137, 40);
  expect_equals_engine(model, test::fast_options(model), 137, 40);
}

// The cache holds one or two experts, and most experts have more tokens than fit the scratch: each
// is read once all the same.
TEST(CorpusForward, EqualsTheEngineOnAwkwardSizes) {
  const test::TempDir dir;
  test::write_tiny_model(dir / "checkpoint", {});
  const auto model = test::convert_for_test(dir / "checkpoint", dir);
  ASSERT_OK_AND_ASSIGN(const ModelDir opened, open_model_dir(model, ""));
  const std::uint64_t record = opened.pack.layout_of(0, 0).record_bytes;
  for (const std::uint64_t records : {1U, 2U}) {
    expect_equals_engine(model, test::reference_options(model), 400, 40, records * record);
  }
}

// Layers whose states differ in size, routers and shared experts with norms of their own.
TEST(CorpusForward, EqualsTheEngineOnGemma4) {
  const test::TempDir dir;
  const auto model = test::convert_for_test(test::gemma4_model(), dir);
  expect_equals_engine(model, test::reference_options(model), 137, 40);
  expect_equals_engine(model, test::fast_options(model), 137, 40);
}

TEST(CorpusForward, EqualsTheEngineOnLatentAttention) {
  const test::TempDir dir;
  test::write_latent_model(dir / "checkpoint");
  const auto model = test::convert_for_test(dir / "checkpoint", dir);
  expect_equals_engine(model, test::reference_options(model), 137, 40);
}

// Windows longer than what is computed at once.
TEST(CorpusForward, EqualsTheEngineOnSmall) {
  MOE_REQUIRE_MODEL(checkpoint, "small-moe");
  const test::TempDir dir;
  const auto model = test::convert_for_test(checkpoint, dir);
  EngineOptions options = test::fast_options(model);
  options.context = 700;
  expect_equals_engine(model, options, 900, 700);
}

TEST(ChooseWindows, AllOfAText) {
  const auto windows = choose_windows(1100, 512, 0);
  ASSERT_EQ(windows.size(), 3U);
  EXPECT_EQ(windows[2].first, 1024U);
  EXPECT_EQ(windows[2].count, 76U);
  EXPECT_EQ(choose_windows(3, 512, 0).size(), 1U);
  EXPECT_EQ(choose_windows(3, 512, 2)[0].count, 2U);
}

// Any limit: exactly so many tokens, ascending, apart from each other, reaching the text's end.
TEST(ChooseWindows, SpreadOverTheText) {
  for (const std::uint64_t tokens : {1U, 511U, 512U, 513U, 5000U, 5120U}) {
    for (std::uint64_t most = 1; most <= tokens; most += 37) {
      std::uint64_t total = 0;
      std::uint64_t end = 0;
      const auto windows = choose_windows(tokens, 512, most);
      for (const TokenWindow& w : windows) {
        EXPECT_GE(w.first, end);
        EXPECT_GT(w.count, 0U);
        total += w.count;
        end = w.first + w.count;
      }
      EXPECT_EQ(total, most) << tokens;
      EXPECT_LE(end, tokens);
    }
  }
  const auto four = choose_windows(40 * 512, 512, 4 * 512);
  ASSERT_EQ(four.size(), 4U);
  EXPECT_EQ(four[1].first, 10U * 512);
  EXPECT_EQ(four[3].first, 30U * 512);
}

// What is recorded is the input rounded to bf16, and NaN is named.
TEST(Calibrate, DamagedNormIsNamed) {
  const test::TempDir dir;
  test::write_tiny_model(dir / "checkpoint", {});
  const auto model = test::convert_for_test(dir / "checkpoint", dir);
  ASSERT_OK_AND_ASSIGN(const ModelDir opened, open_model_dir(model, ""));
  // A NaN in the second layer's post-attention norm; the checksum is not what is tested.
  ResidentManifest residents = opened.residents;
  const auto tensor = std::find_if(
      residents.tensors.begin(), residents.tensors.end(),
      [](const ResidentTensor& t) { return t.name == "model.layers.1.post_attention_layernorm"; });
  ASSERT_NE(tensor, residents.tensors.end());
  ASSERT_OK_AND_ASSIGN(std::string data,
                       read_text_file(model / kResidentDataName, std::uint64_t{1} << 30));
  for (std::uint64_t i = 0; i < tensor->bytes.codes(); ++i)
    data[tensor->offsets.codes() + i] = '\xff';
  ASSERT_OK(write_text_file(model / kResidentDataName, data));
  residents.checksum = checksum(std::as_bytes(std::span(data)));
  ASSERT_OK(write_resident_manifest(model, residents));
  CalibrateOptions options;
  options.model = model;
  options.output = dir / "calibration";
  options.backend = Backend::kReference;
  const std::vector<std::int32_t> ids = some_ids(30, opened.config.vocab_size);
  test::expect_error(calibrate(options, ids, {}).status(), StatusCode::kCorrupt,
                     {"layer 1, token 0", "not finite"});
  // The first layer is finished and stays for a later run.
  EXPECT_TRUE(std::filesystem::exists(options.output / "layer_00.bin.zst"));
  EXPECT_FALSE(std::filesystem::exists(options.output / kCalibrationManifestName));
}

}  // namespace
}  // namespace moepack::corpus_forward_test
