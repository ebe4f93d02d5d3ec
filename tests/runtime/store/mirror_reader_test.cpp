// A pack on several disks: which copy is read, and what becomes of a bad one.
#include "runtime/store/mirror_reader.h"

#include <gtest/gtest.h>
#include <algorithm>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "tests/runtime/store/faulty_reader.h"
#include "tests/runtime/store/mixed_pack.h"
#include "tests/runtime/store/reader_ways.h"
#include "tests/support/status_matchers.h"

namespace moepack::mirror_reader_test {
namespace {

using test::expect_batch;
using test::FaultyReader;
using test::kMixedExperts;
using test::kMixedLayers;
using test::MixedPack;
using test::ReadFault;

class MirrorTest : public testing::Test {
 protected:
  void SetUp() override {
    for (const LayerEntry& layer : pack_.manifest.layers) {
      std::filesystem::copy_file(pack_.dir / layer.file, second_ / layer.file);
    }
  }

  Result<PackFiles> find() {
    const std::vector<std::filesystem::path> further{second_.path()};
    return find_pack_files(pack_.dir.path(), pack_.manifest, further);
  }

  void open(std::uint64_t records = 1) {
    ASSERT_OK_AND_ASSIGN(files_, find());
    auto faulty = std::make_unique<FaultyReader>(files_.files);
    faulty_ = faulty.get();
    auto mirror =
        std::make_unique<MirrorReader>(std::move(faulty), files_, pack_.manifest,
                                       [this](const std::string& line) { lines_.push_back(line); });
    open_store(std::move(mirror), records);
  }

  void open_store(std::unique_ptr<RecordReader> reader, std::uint64_t records) {
    ASSERT_OK_AND_ASSIGN(
        store_, ExpertStore::open_with(std::move(reader), least_recently_used(), pack_.dir.path(),
                                       pack_.manifest, {.cache_bytes = records * pack_.largest()}));
  }

  // At one place, or at both.
  void set_fault(std::uint32_t layer, std::uint32_t expert, ReadFault fault,
                 std::vector<std::size_t> places = {0}) {
    for (const std::size_t place : places) {
      faulty_->faults[{files_.of_layer[layer][place],
                       pack_.manifest.layers[layer].experts[expert].offset}] = fault;
    }
  }

  MixedPack pack_;
  test::TempDir second_;
  PackFiles files_;
  FaultyReader* faulty_ = nullptr;  // owned by the store
  std::vector<std::string> lines_;
  std::unique_ptr<ExpertStore> store_;
};

TEST_F(MirrorTest, AFailureIsReadFromTheOtherPlaceAndToldOnce) {
  open();
  set_fault(0, 0, ReadFault::kError);
  set_fault(0, 2, ReadFault::kShort);
  set_fault(1, 0, ReadFault::kDamage);
  for (std::uint32_t round = 0; round < 2; ++round) {
    for (std::uint32_t layer = 0; layer < kMixedLayers; ++layer) {
      for (const std::uint32_t expert : {0U, 2U, 4U}) expect_batch(pack_, *store_, layer, {expert});
    }
  }
  ASSERT_EQ(lines_.size(), 2U) << "once for each file";
  EXPECT_NE(lines_[0].find("EIO"), std::string::npos);
  EXPECT_NE(lines_[0].find((pack_.dir / "layer_00.bin").string()), std::string::npos);
  EXPECT_NE(lines_[1].find("checksum"), std::string::npos);
}

// A disk that fails at once would always have least to do, and be asked first for ever.
TEST_F(MirrorTest, APlaceThatKeepsFailingIsNotAskedFirst) {
  open();
  for (std::uint32_t expert = 0; expert < kMixedExperts; ++expert) {
    set_fault(0, expert, ReadFault::kError);
  }
  for (std::uint32_t round = 0; round < 4; ++round) {
    for (std::uint32_t expert = 0; expert < kMixedExperts; ++expert) {
      expect_batch(pack_, *store_, 0, {expert});
    }
  }
  EXPECT_LE(faulty_->reads_of[files_.of_layer[0][0]], 3U);
  EXPECT_GE(faulty_->reads_of[files_.of_layer[0][1]], 4 * kMixedExperts - 1);
}

TEST_F(MirrorTest, WhatNoPlaceCanGiveIsAnError) {
  open();
  set_fault(0, 1, ReadFault::kError, {0, 1});
  set_fault(0, 3, ReadFault::kDamage, {0, 1});
  for (const std::uint32_t expert : {1U, 3U}) {
    const std::vector<std::uint32_t> one{expert};
    ASSERT_OK_AND_ASSIGN(ExpertStore::Batch batch, store_->begin(0, one));
    test::expect_error(batch.wait(), expert == 1 ? StatusCode::kIo : StatusCode::kCorrupt,
                       {second_.path().string()});
  }
}

// A record that was compared at one place says nothing of its copy.
TEST_F(MirrorTest, EachCopyIsComparedAtItsFirstRead) {
  std::fstream copy(second_ / "layer_00.bin", std::ios::in | std::ios::out | std::ios::binary);
  copy.seekp(static_cast<std::streamoff>(pack_.manifest.layers[0].experts[0].offset + 3));
  copy.put('\x7f');
  copy.close();
  open(2);
  expect_batch(pack_, *store_, 0, {0});
  EXPECT_TRUE(lines_.empty());
  expect_batch(pack_, *store_, 0, {2, 4});  // evicts expert 0
  EXPECT_TRUE(lines_.empty());
  // Second in the batch, so that it goes to the second place.
  expect_batch(pack_, *store_, 0, {1, 0});
  ASSERT_FALSE(lines_.empty());
  EXPECT_NE(lines_[0].find(second_.path().string()), std::string::npos) << lines_[0];
}

// Of a disk that is silent people want to know which it is.
TEST_F(MirrorTest, ThePlaceThatIsAwaitedIsNamed) {
  ASSERT_OK_AND_ASSIGN(files_, find());
  struct Silent final : RecordReader {
    Status submit(std::span<const RecordRead> reads) override {
      for (const RecordRead& read : reads) tags.push_back(read.tag);
      return Status::ok();
    }
    std::size_t reap(std::span<RecordCompletion> out, bool) noexcept override {
      out[0] = {.tag = tags.front(), .bytes = size};
      tags.erase(tags.begin());
      return 1;
    }
    std::vector<std::uint64_t> tags;
    std::size_t size = 0;
  };
  auto silent = std::make_unique<Silent>();
  Silent* const inner = silent.get();
  MirrorReader mirror(std::move(silent), files_, pack_.manifest, {});
  EXPECT_EQ(mirror.awaited_places(), "");
  inner->size = pack_.manifest.layout_of(0, 0).record_bytes;
  test::RecordBuffer memory(inner->size);
  std::vector<RecordRead> reads(2, {.tag = 7,
                                    .file = 0,
                                    .offset = pack_.manifest.layers[0].experts[0].offset,
                                    .out = memory.span()});
  ASSERT_OK(mirror.submit(reads));
  EXPECT_EQ(mirror.awaited_places(), pack_.dir.path().string() + ", " + second_.path().string());
  RecordCompletion one;
  ASSERT_EQ(mirror.reap(std::span(&one, 1), true), 1U);
  EXPECT_EQ(mirror.awaited_places(), second_.path().string()) << "the first one has answered";
}

TEST_F(MirrorTest, BothPlacesHaveTheSameToDo) {
  ASSERT_OK_AND_ASSIGN(files_, find());
  std::vector<std::uint32_t> seen(2);
  struct Counting final : RecordReader {
    Status submit(std::span<const RecordRead> reads) override {
      for (const RecordRead& read : reads) files.push_back(read.file);
      return Status::ok();
    }
    std::size_t reap(std::span<RecordCompletion>, bool) noexcept override { return 0; }
    std::vector<std::uint32_t> files;
  };
  auto counting = std::make_unique<Counting>();
  Counting* const inner = counting.get();
  MirrorReader mirror(std::move(counting), files_, pack_.manifest, {});
  std::vector<test::RecordBuffer> memory;
  std::vector<RecordRead> reads;
  for (const std::uint32_t expert : {0U, 2U, 4U, 1U, 3U, 5U}) {
    const std::uint64_t size = pack_.manifest.layout_of(0, expert).record_bytes;
    memory.emplace_back(size);
    reads.push_back({.tag = expert,
                     .file = 0,
                     .offset = pack_.manifest.layers[0].experts[expert].offset,
                     .out = memory.back().span()});
  }
  ASSERT_OK(mirror.submit(reads));
  for (const std::uint32_t file : inner->files) ++seen[files_.places[file]];
  EXPECT_EQ(seen[0] + seen[1], 6U);
  EXPECT_GE(seen[0], 2U);
  EXPECT_GE(seen[1], 2U);
  reads[0].offset += 1;
  test::expect_error(mirror.submit(reads), StatusCode::kInvalidArgument, {"no record begins"});
}

TEST_F(MirrorTest, AnErrorOfTheSubmissionLeavesNoTrace) {
  open(3);
  faulty_->next_submit = make_error(StatusCode::kIo, Where{}, "the ring is full");
  const std::vector<std::uint32_t> experts{0, 2};
  test::expect_error(store_->begin(0, experts).status(), StatusCode::kIo, {"ring is full"});
  expect_batch(pack_, *store_, 0, {0, 2});
}

TEST_F(MirrorTest, LayersMayLieInEitherPlace) {
  std::filesystem::remove(pack_.dir / "layer_00.bin");
  std::filesystem::remove(second_ / "layer_01.bin");
  for (const test::ReaderWay& way : test::reader_ways()) {
    if (!way.can_be_had()) continue;
    ASSERT_OK_AND_ASSIGN(files_, find());
    EXPECT_EQ(files_.files.size(), kMixedLayers);
    ASSERT_OK_AND_ASSIGN(auto reader, way.open(files_.files));
    open_store(std::make_unique<MirrorReader>(std::move(reader), files_, pack_.manifest, nullptr),
               2);
    for (std::uint32_t layer = 0; layer < kMixedLayers; ++layer) {
      for (std::uint32_t e = 0; e < kMixedExperts; ++e) expect_batch(pack_, *store_, layer, {e});
    }
  }
}

TEST_F(MirrorTest, PlacesThatDoNotBelongAreNamed) {
  std::filesystem::resize_file(second_ / "layer_01.bin", 100);
  test::expect_error(find().status(), StatusCode::kCorrupt,
                     {(second_ / "layer_01.bin").string(), "100 bytes"});
  std::filesystem::remove(second_ / "layer_01.bin");
  ASSERT_OK(find());

  PackManifest other = pack_.manifest;
  other.source.name = "another name";
  other.page_size = kDirectUnit;  // offsets of the test's pack are at any byte
  PackManifest own = other;
  own.source.name = "a name";
  for (PackManifest* manifest : {&other, &own}) {
    for (LayerEntry& layer : manifest->layers) {
      std::uint64_t next = 0;
      for (ExpertEntry& expert : layer.experts) {
        expert.offset = next;
        next += align_up(manifest->layouts[expert.layout].record_bytes, kDirectUnit);
      }
    }
  }
  other.layers[0].experts[3].checksum ^= 1;
  ASSERT_OK(write_pack_manifest(second_.path(), other));
  test::expect_error(find().status(), StatusCode::kCorrupt,
                     {(second_ / kPackManifestName).string()});
  std::filesystem::remove(second_ / kPackManifestName);

  std::filesystem::remove(second_ / "layer_00.bin");
  test::expect_error(find().status(), StatusCode::kNotFound,
                     {second_.path().string(), "no layer file"});
  std::filesystem::remove(pack_.dir / "layer_00.bin");
  test::expect_error(find().status(), StatusCode::kNotFound,
                     {(pack_.dir / "layer_00.bin").string(), "neither"});

  const std::vector<std::filesystem::path> itself{pack_.dir / "."};
  test::expect_error(find_pack_files(pack_.dir.path(), pack_.manifest, itself).status(),
                     StatusCode::kInvalidArgument, {"read already"});
  const std::vector<std::filesystem::path> none{pack_.dir / "none"};
  test::expect_error(find_pack_files(pack_.dir.path(), pack_.manifest, none).status(),
                     StatusCode::kNotFound, {"none"});
  pack_.manifest.has_checksums = false;
  test::expect_error(find().status(), StatusCode::kUnsupported, {"without checksums"});
}

}  // namespace
}  // namespace moepack::mirror_reader_test
