// A sequence that has ended in the middle of a forward asks for no more experts: in the layers that
// follow, what is asked for is what the others ask for alone.
#include <gtest/gtest.h>
#include <algorithm>
#include <filesystem>
#include <fstream>
#include <memory>
#include <utility>
#include <vector>

#include "formats/base/checksum.h"
#include "formats/base/file.h"
#include "formats/model_dir.h"
#include "tests/support/converted_model.h"
#include "tests/support/tiny_model.h"

namespace moepack::ended_slices_test {
namespace {

// Notes how many experts were asked for, in memory or not, when each layer had been computed.
class ExpertUseObserver final : public ForwardObserver {
 public:
  explicit ExpertUseObserver(const Engine& engine) : engine_(engine) {}
  void on_embedding(std::size_t, std::span<const float>) override {}
  void on_router(std::uint32_t, std::size_t, std::span<const float>) override {}
  void on_layer(std::uint32_t, std::size_t, std::span<const float>) override {
    const ExpertStoreStats stats = engine_.expert_stats();
    asked_.push_back(stats.hits + stats.misses);
  }
  void on_final_norm(std::size_t, std::span<const float>) override {}

  // Experts that layer `layer` asked for.
  std::uint64_t of_layer(std::size_t layer) const {
    return asked_.at(layer) - (layer == 0 ? 0 : asked_.at(layer - 1));
  }
  std::size_t layers() const { return asked_.size(); }

 private:
  const Engine& engine_;
  std::vector<std::uint64_t> asked_;
};

class EndedSlices : public ::testing::Test {
 protected:
  void SetUp() override {
    test::write_tiny_model(dir_ / "checkpoint", {});
    model_ = test::convert_for_test(dir_ / "checkpoint", dir_);
    ASSERT_FALSE(model_.empty());
    options_ = test::reference_options(model_);
    options_.sequences = 2;
  }

  struct Run {
    std::vector<std::uint64_t> asked;  // by layer
    std::vector<Status> statuses;
    std::vector<float> last_logits;  // of the last text
  };

  // These texts together in one batch of a fresh engine.
  Run run(const std::vector<std::vector<std::int32_t>>& texts) {
    Run run;
    auto opened = Engine::open(options_);
    EXPECT_TRUE(opened.is_ok()) << opened.status().message();
    if (!opened.is_ok()) return run;
    const std::unique_ptr<Engine> engine = std::move(opened).value();
    std::vector<Sequence> sequences;
    for (std::size_t i = 0; i < texts.size(); ++i) {
      auto sequence = engine->make_sequence();
      EXPECT_TRUE(sequence.is_ok());
      sequences.push_back(std::move(sequence).value());
    }
    std::vector<Slice> slices;
    for (std::size_t i = 0; i < texts.size(); ++i) {
      slices.push_back(
          {&sequences[i], texts[i], 0, [&run](std::size_t, std::span<const float> row) {
             run.last_logits.assign(row.begin(), row.end());
             return Status::ok();
           }});
    }
    ExpertUseObserver observer(*engine);
    run.statuses = engine->forward(slices, &observer);
    for (std::size_t l = 0; l < observer.layers(); ++l) run.asked.push_back(observer.of_layer(l));
    return run;
  }

  test::TempDir dir_;
  std::filesystem::path model_;
  EngineOptions options_;
};

TEST_F(EndedSlices, AnExpertThatCannotBeReadIsTheLastThatItsSequenceAsksFor) {
  const std::vector<std::int32_t> first{31, 144};
  const std::vector<std::int32_t> second{7, 211};
  const Run alone = run({second});
  ASSERT_TRUE(alone.statuses.at(0).is_ok());
  ASSERT_OK_AND_ASSIGN(const ModelDir opened, open_model_dir(model_, ""));
  const LayerEntry& layer = opened.pack.layers[0];
  std::size_t one_ended = 0;
  for (std::uint32_t expert = 0; expert < opened.pack.num_experts; ++expert) {
    const std::filesystem::path path = opened.pack_path / layer.file;
    ASSERT_OK_AND_ASSIGN(const std::string whole, read_text_file(path, std::uint64_t{1} << 30));
    std::string damaged = whole;
    damaged[layer.experts[expert].offset] ^= 1;
    ASSERT_OK(write_text_file(path, damaged));
    const Run both = run({first, second});
    ASSERT_OK(write_text_file(path, whole));
    if (both.statuses.at(0).is_ok() || !both.statuses.at(1).is_ok()) continue;
    ++one_ended;
    ASSERT_EQ(both.asked.size(), alone.asked.size());
    for (std::size_t l = 1; l < both.asked.size(); ++l) {
      EXPECT_EQ(both.asked[l], alone.asked[l]) << "layer " << l;
    }
    EXPECT_EQ(both.last_logits, alone.last_logits);
  }
  EXPECT_GT(one_ended, 0U);
}

// The embedding of one id is NaN: the text that has it asks for no expert at all.
TEST_F(EndedSlices, ActivationsThatAreNotFiniteAskForNone) {
  constexpr std::int32_t kBroken = 287;
  ASSERT_OK_AND_ASSIGN(const ModelDir opened, open_model_dir(model_, ""));
  ResidentManifest residents = opened.residents;
  const auto embedding =
      std::find_if(residents.tensors.begin(), residents.tensors.end(),
                   [](const ResidentTensor& t) { return t.name == "model.embed_tokens"; });
  ASSERT_NE(embedding, residents.tensors.end());
  ASSERT_OK_AND_ASSIGN(std::string data,
                       read_text_file(model_ / kResidentDataName, std::uint64_t{1} << 30));
  const std::uint64_t row = opened.config.hidden_size * 2;  // bf16
  std::fill_n(
      data.begin() + static_cast<std::ptrdiff_t>(embedding->offsets.codes() + kBroken * row), row,
      '\xff');
  ASSERT_OK(write_text_file(model_ / kResidentDataName, data));
  residents.checksum = checksum(std::as_bytes(std::span(data)));
  ASSERT_OK(write_resident_manifest(model_, residents));

  const std::vector<std::int32_t> sound{7, 211, 9};
  const Run alone = run({sound});
  const Run both = run({{3, kBroken, 5}, sound});
  test::expect_error(both.statuses.at(0), StatusCode::kCorrupt, {"layer 0, token 1"});
  EXPECT_TRUE(both.statuses.at(1).is_ok());
  EXPECT_EQ(both.asked, alone.asked);
  EXPECT_EQ(both.last_logits, alone.last_logits);
}

}  // namespace
}  // namespace moepack::ended_slices_test
