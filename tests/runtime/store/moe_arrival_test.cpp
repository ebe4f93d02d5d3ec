// A layer's output does not depend, to the last bit, on the order in which its experts arrive.
#include <gtest/gtest.h>
#include <cstring>
#include <fstream>
#include <memory>
#include <optional>
#include <random>
#include <set>
#include <vector>

#include "formats/base/dtype.h"
#include "runtime/model/moe.h"
#include "runtime/store/thread_reader.h"
#include "tests/runtime/store/faulty_reader.h"
#include "tests/runtime/store/mixed_pack.h"

namespace moepack::moe_arrival_test {
namespace {

using test::FaultyReader;
using test::ReapOrder;

constexpr std::size_t kHidden = 64;
constexpr std::size_t kWidth = 32;
constexpr std::uint32_t kExperts = 12;
constexpr std::uint32_t kTopK = 5;
constexpr std::size_t kSharedWidth = 48;
// Enough for more uses than those whose sums are made together with their last products.
constexpr std::size_t kMaxTokens = 15;

// One layer of random bf16 experts, routed and shared, behind a random router.
class MoeArrival : public ::testing::Test {
 protected:
  void SetUp() override {
    config_.hidden_size = kHidden;
    config_.expert_width = kWidth;
    config_.num_experts = kExperts;
    config_.experts_per_token = kTopK;
    config_.shared_expert_width = kSharedWidth;
    write_pack();
    weights_.router = random_matrix(kExperts, kHidden);
    weights_.has_shared = true;
    weights_.shared_gate = random_matrix(kSharedWidth, kHidden);
    weights_.shared_up = random_matrix(kSharedWidth, kHidden);
    weights_.shared_down = random_matrix(kHidden, kSharedWidth);
    weights_.shared_expert_gate = random_matrix(1, kHidden);
    for (float& value : inputs_) value = normal_(random_);
  }

  std::vector<std::uint16_t> random_bf16(std::size_t count) {
    std::vector<std::uint16_t> values(count);
    for (std::uint16_t& value : values) value = f32_to_bf16(normal_(random_));
    return values;
  }

  QMatrixView random_matrix(std::uint64_t rows, std::uint64_t cols) {
    matrices_.push_back(random_bf16(rows * cols));
    return {.format = {},
            .rows = rows,
            .cols = cols,
            .data = affine_components<const std::byte*>(
                reinterpret_cast<const std::byte*>(matrices_.back().data()))};
  }

  void write_pack() {
    const WeightFormat plain{};
    pack_.num_layers = 1;
    pack_.num_experts = kExperts;
    pack_.hidden_size = kHidden;
    pack_.expert_width = kWidth;
    pack_.layouts = {*make_expert_layout(kHidden, kWidth, {plain, plain, plain})};
    LayerEntry layer;
    layer.file = layer_file_name(0);
    std::ofstream out(dir_ / layer.file, std::ios::binary);
    for (std::uint32_t e = 0; e < kExperts; ++e) {
      const std::vector<std::uint16_t> record = random_bf16(pack_.layouts[0].record_bytes / 2);
      const auto bytes = std::as_bytes(std::span(record));
      layer.experts.push_back({.offset = layer.file_size, .checksum = checksum(bytes)});
      out.write(reinterpret_cast<const char*>(bytes.data()),
                static_cast<std::streamsize>(bytes.size()));
      layer.file_size += bytes.size();
    }
    pack_.layers.push_back(layer);
  }

  // The output of a new layer for the first `tokens` inputs; `per_reap` experts arrive at a time.
  std::vector<float> run(std::size_t tokens, std::uint64_t records, ReapOrder order,
                         std::uint32_t seed, std::size_t per_reap, std::size_t threads) {
    auto reader = std::make_unique<FaultyReader>(
        std::vector<std::filesystem::path>{dir_ / layer_file_name(0)}, order, seed);
    reader->per_reap = per_reap;
    if (failing_ < kExperts) {
      reader->faults[{0, pack_.layers[0].experts[failing_].offset}] = test::ReadFault::kError;
    }
    auto store = ExpertStore::open_with(std::move(reader), least_recently_used(), dir_.path(),
                                        pack_, {.cache_bytes = records * record_memory()});
    EXPECT_OK(store);
    auto scratch = Activations::create(
        config_, {.tokens = kMaxTokens, .threads = threads, .context = 1, .logit_rows = 0});
    EXPECT_OK(scratch);
    Compute compute(reference_kernels(), threads, scratch.value().matmul_scratch);
    MixtureOfExperts moe(config_, scratch.value());
    std::vector<float> out(tokens * kHidden, 0.0F);
    (void)moe.route_logits(compute, weights_, inputs_.data(), tokens);
    const RowRange rows = rows_.value_or(RowRange{.first = 0, .count = tokens});
    const auto chosen = moe.choose(compute, RouterSpec{}, std::span(&rows, 1));
    for (std::size_t i = 0; i < chosen.size(); ++i) {
      EXPECT_EQ(chosen[i].token, rows.first + i / kTopK);
      EXPECT_EQ(chosen[i].slot, i % kTopK);
    }
    status_ = moe.forward(compute, weights_, 0, *store.value(), inputs_.data(), tokens, out.data(),
                          [] {});
    failed_rows_ = moe.failed_rows();
    return out;
  }

  std::uint64_t record_memory() const { return pack_.layouts[0].record_bytes; }

  test::TempDir dir_;
  std::mt19937 random_{7};
  std::normal_distribution<float> normal_{0.0F, 0.3F};
  ModelConfig config_;
  PackManifest pack_;
  std::vector<std::vector<std::uint16_t>> matrices_;
  MoeWeights weights_;
  std::vector<float> inputs_ = std::vector<float>(kMaxTokens * kHidden);
  std::optional<RowRange> rows_;        // that choose experts; none: all
  std::uint32_t failing_ = kExperts;    // none
  Status status_;                       // of the last run
  std::vector<FailedRow> failed_rows_;  // likewise
};

TEST_F(MoeArrival, TheOutputIsTheSameInEveryOrder) {
  for (const std::size_t tokens : {std::size_t{1}, std::size_t{2}, kMaxTokens}) {
    // All experts arrive at once, in the order of their ids.
    const std::vector<float> expected =
        run(tokens, kExperts, ReapOrder::kAsSubmitted, 1, kExperts, 1);
    ASSERT_OK(status_);
    ASSERT_NE(expected, std::vector<float>(tokens * kHidden, 0.0F));
    for (const std::uint64_t records : {1U, 3U, kExperts}) {
      for (std::uint32_t seed = 1; seed <= 6; ++seed) {
        const ReapOrder order = seed % 2 == 0 ? ReapOrder::kShuffled : ReapOrder::kLastFirst;
        const std::vector<float> out =
            run(tokens, records, order, seed, 1 + seed % 3, 1 + seed % 2);
        ASSERT_OK(status_);
        ASSERT_EQ(std::memcmp(out.data(), expected.data(), out.size() * sizeof(float)), 0)
            << tokens << " tokens, room for " << records << ", seed " << seed;
      }
    }
  }
}

// Few tokens and many take different ways through the last products and the sums.
TEST_F(MoeArrival, ATokenHasTheSameOutputAloneAsAmongOthers) {
  const auto run_first = [&](std::size_t tokens, std::size_t threads) {
    return run(tokens, kExperts, ReapOrder::kAsSubmitted, 1, kExperts, threads);
  };
  const std::vector<float> all = run_first(kMaxTokens, 1);
  for (const std::size_t threads : {1U, 2U, 3U}) {
    for (std::size_t tokens = 1; tokens <= kMaxTokens; ++tokens) {
      const std::vector<float> some = run_first(tokens, threads);
      ASSERT_EQ(std::memcmp(some.data(), all.data(), some.size() * sizeof(float)), 0)
          << tokens << " tokens on " << threads << " threads";
    }
  }
}

// A row that chose no expert has the shared one's output, whether other rows chose any or not.
TEST_F(MoeArrival, ARowWithoutExpertsHasTheSharedOne) {
  rows_ = RowRange{.first = 0, .count = 0};
  const std::vector<float> shared = run(2, kExperts, ReapOrder::kAsSubmitted, 1, kExperts, 2);
  ASSERT_OK(status_);
  ASSERT_NE(shared, std::vector<float>(2 * kHidden, 0.0F));
  rows_ = RowRange{.first = 0, .count = 1};
  const std::vector<float> one = run(2, kExperts, ReapOrder::kAsSubmitted, 1, kExperts, 2);
  ASSERT_OK(status_);
  EXPECT_NE(std::memcmp(one.data(), shared.data(), kHidden * sizeof(float)), 0);
  EXPECT_EQ(std::memcmp(one.data() + kHidden, shared.data() + kHidden, kHidden * sizeof(float)), 0);
}

// The others' outputs are those of a layer where nothing failed.
TEST_F(MoeArrival, AFailedExpertIsTheErrorOfTheRowsThatChoseIt) {
  const std::vector<float> whole = run(kMaxTokens, kExperts, ReapOrder::kAsSubmitted, 1, 1, 1);
  ASSERT_TRUE(failed_rows_.empty());
  failing_ = 0;
  for (const ReapOrder order : {ReapOrder::kAsSubmitted, ReapOrder::kLastFirst}) {
    const std::vector<float> out = run(kMaxTokens, 3, order, 1, 1, 2);
    ASSERT_OK(status_);
    std::set<std::size_t> rows;
    for (const FailedRow& failed : failed_rows_) {
      test::expect_error(failed.status, StatusCode::kIo, {"layer_00.bin", "EIO"});
      rows.insert(failed.row);
    }
    ASSERT_FALSE(rows.empty());
    ASSERT_LT(rows.size(), kMaxTokens);
    for (std::size_t t = 0; t < kMaxTokens; ++t) {
      const bool same = std::memcmp(out.data() + t * kHidden, whole.data() + t * kHidden,
                                    kHidden * sizeof(float)) == 0;
      EXPECT_EQ(same, !rows.contains(t)) << t;
    }
  }
}

}  // namespace
}  // namespace moepack::moe_arrival_test
