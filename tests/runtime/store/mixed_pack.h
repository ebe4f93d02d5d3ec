// A pack of two record sizes (bf16 and 4-bit experts in turn) whose bytes name their place.
#pragma once

#include <gtest/gtest.h>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <span>
#include <vector>

#include "formats/base/checksum.h"
#include "formats/pack/pack_manifest.h"
#include "runtime/store/expert_store.h"
#include "tests/support/status_matchers.h"
#include "tests/support/temp_dir.h"

namespace moepack::test {

constexpr std::uint32_t kMixedLayers = 2;
constexpr std::uint32_t kMixedExperts = 6;

struct MixedPack {
  TempDir dir;
  PackManifest manifest;

  explicit MixedPack(std::uint32_t layers = kMixedLayers) {
    const WeightFormat plain{};
    const WeightFormat q4{.id = QFormatId::kQ4, .group_size = 32};
    manifest.num_layers = layers;
    manifest.num_experts = kMixedExperts;
    manifest.hidden_size = 64;
    manifest.expert_width = 32;
    manifest.layouts = {*make_expert_layout(64, 32, {plain, plain, plain}),
                        *make_expert_layout(64, 32, {q4, q4, q4})};
    for (std::uint32_t layer = 0; layer < layers; ++layer) {
      LayerEntry entry;
      entry.file = layer_file_name(layer);
      std::ofstream out(dir / entry.file, std::ios::binary);
      for (std::uint32_t e = 0; e < kMixedExperts; ++e) {
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
  // Of the bf16 experts, which are the even ones; a whole number of pages.
  std::uint64_t largest() const { return manifest.layouts[0].record_bytes; }

  std::vector<std::filesystem::path> files() const {
    std::vector<std::filesystem::path> paths;
    for (const LayerEntry& layer : manifest.layers) paths.push_back(dir / layer.file);
    return paths;
  }

  bool holds(const ExpertHandle& handle, std::uint32_t layer, std::uint32_t expert) const {
    const std::vector<char> expected = bytes_of(layer, expert);
    return handle.layout->record_bytes == expected.size() &&
           std::memcmp(handle.record, expected.data(), expected.size()) == 0;
  }

  // Changes one byte of a record on the disk.
  void damage(std::uint32_t layer, std::uint32_t expert) const {
    std::fstream file(dir / layer_file_name(layer),
                      std::ios::in | std::ios::out | std::ios::binary);
    file.seekp(static_cast<std::streamoff>(manifest.layers[layer].experts[expert].offset + 5));
    file.put('\x7f');
  }
};

// Asks for these experts in a batch of its own and compares every byte.
inline void expect_batch(const MixedPack& pack, ExpertStore& store, std::uint32_t layer,
                         const std::vector<std::uint32_t>& experts) {
  ASSERT_OK_AND_ASSIGN(ExpertStore::Batch batch, store.begin(layer, experts));
  ASSERT_OK(batch.wait());
  for (std::size_t i = 0; i < experts.size(); ++i) {
    EXPECT_TRUE(pack.holds(batch.handles()[i], layer, experts[i]))
        << "layer " << layer << " expert " << experts[i];
  }
}

}  // namespace moepack::test
