#include "runtime/model/expert_store.h"

#include <gtest/gtest.h>
#include <cstring>
#include <fstream>
#include <vector>

#include "formats/base/checksum.h"
#include "tests/support/status_matchers.h"
#include "tests/support/temp_dir.h"

namespace moepack {
namespace {

constexpr std::uint32_t kLayers = 2;
constexpr std::uint32_t kExperts = 6;

// A pack of two record sizes (bf16 and 4-bit experts mixed) whose bytes name their place.
struct MixedPack {
  test::TempDir dir;
  PackManifest manifest;

  MixedPack() {
    const WeightFormat plain{};
    const WeightFormat q4{.id = QFormatId::kQ4, .group_size = 32};
    manifest.num_layers = kLayers;
    manifest.num_experts = kExperts;
    manifest.hidden_size = 64;
    manifest.expert_width = 32;
    manifest.layouts = {*make_expert_layout(64, 32, {plain, plain, plain}),
                        *make_expert_layout(64, 32, {q4, q4, q4})};
    for (std::uint32_t layer = 0; layer < kLayers; ++layer) {
      LayerEntry entry;
      entry.file = layer_file_name(layer);
      std::ofstream out(dir / entry.file, std::ios::binary);
      for (std::uint32_t e = 0; e < kExperts; ++e) {
        const std::vector<char> record = bytes_of(layer, e);
        entry.experts.push_back({.offset = entry.file_size,
                                 .layout = e % 2,
                                 .checksum = checksum(std::as_bytes(std::span(record)))});
        out.write(record.data(), static_cast<std::streamsize>(record.size()));
        entry.file_size += record.size();
      }
      manifest.layers.push_back(entry);
    }
    manifest.page_size = 1;
  }

  std::vector<char> bytes_of(std::uint32_t layer, std::uint32_t expert) const {
    const std::uint64_t size = manifest.layouts[expert % 2].record_bytes;
    return std::vector<char>(size, static_cast<char>(layer * 16 + expert + 1));
  }
  std::uint64_t largest() const { return manifest.layouts[0].record_bytes; }
};

void expect_batch(const MixedPack& pack, ExpertStore& store, std::uint32_t layer,
                  const std::vector<std::uint32_t>& experts) {
  ASSERT_OK_AND_ASSIGN(ExpertStore::Batch batch, store.begin(layer, experts));
  ASSERT_OK(batch.wait());
  for (std::size_t i = 0; i < experts.size(); ++i) {
    const std::vector<char> expected = pack.bytes_of(layer, experts[i]);
    const ExpertHandle& handle = batch.handles()[i];
    ASSERT_EQ(handle.layout->record_bytes, expected.size());
    EXPECT_EQ(std::memcmp(handle.record, expected.data(), expected.size()), 0)
        << "layer " << layer << " expert " << experts[i];
  }
}

TEST(ExpertStore, GivesTheRightBytesUnderConstantEviction) {
  const MixedPack pack;
  ASSERT_OK_AND_ASSIGN(const auto store,
                       ExpertStore::open(pack.dir.path(), pack.manifest,
                                         {.cache_bytes = 3 * pack.largest(), .io_threads = 3}));
  EXPECT_EQ(store->max_batch(0), 3U);
  for (std::uint32_t round = 0; round < 200; ++round) {
    const std::uint32_t a = round * 7 % kExperts;
    const std::uint32_t b = (a + 1 + round % 4) % kExperts;
    std::vector<std::uint32_t> experts{a};
    if (b != a) experts.push_back(b);
    expect_batch(pack, *store, round % kLayers, experts);
  }
  const ExpertStoreStats stats = store->stats();
  EXPECT_GT(stats.hits, 0U);
  EXPECT_GT(stats.misses, 50U);
}

TEST(ExpertStore, KeepsTheMostRecentlyUsed) {
  const MixedPack pack;
  ASSERT_OK_AND_ASSIGN(const auto store,
                       ExpertStore::open(pack.dir.path(), pack.manifest,
                                         {.cache_bytes = 2 * pack.largest(), .io_threads = 1}));
  expect_batch(pack, *store, 0, {0});
  expect_batch(pack, *store, 0, {2});
  expect_batch(pack, *store, 0, {0});  // 2 is now the older one
  expect_batch(pack, *store, 0, {4});  // takes 2's place
  store->reset_stats();
  expect_batch(pack, *store, 0, {0});
  EXPECT_EQ(store->stats().hits, 1U);
  expect_batch(pack, *store, 0, {2});
  EXPECT_EQ(store->stats().misses, 1U);
  EXPECT_EQ(store->stats().bytes_read, pack.largest());
}

TEST(ExpertStore, TheSameExpertOfAnotherLayerIsAnother) {
  const MixedPack pack;
  ASSERT_OK_AND_ASSIGN(const auto store, ExpertStore::open(pack.dir.path(), pack.manifest,
                                                           {.cache_bytes = 100 * pack.largest()}));
  expect_batch(pack, *store, 0, {0, 1, 2, 3, 4, 5});
  expect_batch(pack, *store, 1, {0, 1, 2, 3, 4, 5});
  expect_batch(pack, *store, 0, {5, 3});
  EXPECT_EQ(store->stats().misses, 12U);
  EXPECT_EQ(store->stats().hits, 2U);
}

TEST(ExpertStore, DamageIsFoundAndNotKept) {
  const MixedPack pack;
  {
    std::fstream file(pack.dir / layer_file_name(1),
                      std::ios::in | std::ios::out | std::ios::binary);
    file.seekp(static_cast<std::streamoff>(pack.manifest.layers[1].experts[3].offset + 5));
    file.put('\x7f');
  }
  ASSERT_OK_AND_ASSIGN(const auto store, ExpertStore::open(pack.dir.path(), pack.manifest,
                                                           {.cache_bytes = 100 * pack.largest()}));
  const std::vector<std::uint32_t> experts{2, 3};
  for (int attempt = 0; attempt < 2; ++attempt) {
    ASSERT_OK_AND_ASSIGN(ExpertStore::Batch batch, store->begin(1, experts));
    test::expect_error(batch.wait(), StatusCode::kCorrupt, {"layer_01.bin", "expert 3", "offset"});
  }
  expect_batch(pack, *store, 1, {2});
}

TEST(ExpertStore, ShortFileIsAnError) {
  const MixedPack pack;
  std::filesystem::resize_file(pack.dir / layer_file_name(0),
                               pack.manifest.layers[0].file_size - 1);
  ASSERT_OK_AND_ASSIGN(const auto store, ExpertStore::open(pack.dir.path(), pack.manifest,
                                                           {.cache_bytes = 100 * pack.largest()}));
  const std::vector<std::uint32_t> last{kExperts - 1};
  ASSERT_OK_AND_ASSIGN(ExpertStore::Batch batch, store->begin(0, last));
  test::expect_error(batch.wait(), StatusCode::kCorrupt, {"layer_00.bin", "offset"});
}

TEST(ExpertStore, BudgetBelowOneRecordIsRefused) {
  const MixedPack pack;
  test::expect_error(
      ExpertStore::open(pack.dir.path(), pack.manifest, {.cache_bytes = pack.largest() - 1})
          .status(),
      StatusCode::kInvalidArgument, {"--cache-mb"});
}

}  // namespace
}  // namespace moepack
