#include "runtime/store/io_choice.h"

#include <gtest/gtest.h>
#include <fstream>

#include "runtime/store/direct_file.h"
#include "runtime/store/disk_probe.h"
#include "runtime/store/uring_reader.h"
#include "tests/runtime/store/mixed_pack.h"
#include "tests/support/status_matchers.h"

namespace moepack::io_choice_test {
namespace {

using test::MixedPack;

constexpr std::uint64_t kGigabyte = 1'000'000'000;

class IoChoiceTest : public testing::Test {
 protected:
  IoRequest request(std::optional<std::uint64_t> spare = 0) const {
    return {.options = options_, .manifest = pack_.manifest, .files = files_, .spare_bytes = spare};
  }
  bool can_be_direct() const {
    return DirectFile::open(File::open(files_.files.front()).value()).is_open();
  }

  MixedPack pack_;
  StoreOptions options_;
  PackFiles files_ = own_pack_files(pack_.dir.path(), pack_.manifest);
};

TEST_F(IoChoiceTest, APackThatFitsIsReadThroughThePageCache) {
  const DiskRates rates{.direct = 3 * kGigabyte, .buffered = kGigabyte};
  const IoChoice fits = automatic_mode(request(kGigabyte), true, rates);
  EXPECT_EQ(fits.mode, IoMode::kBuffered);
  EXPECT_TRUE(fits.is_plain);
  for (const std::optional<std::uint64_t> spare : {std::optional<std::uint64_t>(), {1000}}) {
    const IoChoice larger = automatic_mode(request(spare), true, rates);
    EXPECT_EQ(larger.mode, IoMode::kDirect);
    EXPECT_FALSE(larger.is_plain);
    EXPECT_NE(larger.reason.find("3.00 GB/s"), std::string::npos) << larger.reason;
  }
}

TEST_F(IoChoiceTest, ADiskThatIsMuchFasterBufferedIsReadSo) {
  const auto mode = [&](std::uint64_t direct, std::uint64_t buffered) {
    return automatic_mode(request(), true, DiskRates{.direct = direct, .buffered = buffered}).mode;
  };
  EXPECT_EQ(mode(1000 * 1000, 1200 * 1000), IoMode::kDirect);
  EXPECT_EQ(mode(1000 * 1000, 1300 * 1000), IoMode::kBuffered);
  EXPECT_EQ(mode(1000 * 1000, 0), IoMode::kDirect) << "a rate that was not measured";
  EXPECT_EQ(automatic_mode(request(), true, std::nullopt).mode, IoMode::kDirect);
  EXPECT_EQ(automatic_mode(request(), false, std::nullopt).mode, IoMode::kBuffered);
}

// The records of the test's pack begin at any byte.
TEST_F(IoChoiceTest, RecordsAtAnyByteAreNotReadDirectly) {
  ASSERT_OK_AND_ASSIGN(const IoChoice choice, choose_io(request()));
  EXPECT_EQ(choice.mode, IoMode::kBuffered);
  EXPECT_EQ(choice.engine, IoEngine::kThreads);
  options_.io = IoMode::kDirect;
  test::expect_error(choose_io(request()).status(), StatusCode::kUnsupported,
                     {"at any byte", "--io buffered"});
}

TEST_F(IoChoiceTest, WhatIsAskedForIsTakenOrRefused) {
  pack_.manifest.page_size = kDirectUnit;
  const bool has_uring = UringReader::check_available().is_ok();
  if (can_be_direct()) {
    ASSERT_OK_AND_ASSIGN(const IoChoice automatic, choose_io(request()));
    EXPECT_EQ(automatic.mode, IoMode::kDirect);
    EXPECT_EQ(automatic.engine, has_uring ? IoEngine::kUring : IoEngine::kThreads);
  }
  for (const IoMode mode : {IoMode::kBuffered, IoMode::kMmap}) {
    options_.io = mode;
    ASSERT_OK_AND_ASSIGN(const IoChoice choice, choose_io(request()));
    EXPECT_EQ(choice.mode, mode);
    EXPECT_EQ(choice.engine, IoEngine::kThreads);
    EXPECT_TRUE(choice.reason.empty());
  }
  options_.engine = IoEngine::kUring;
  test::expect_error(choose_io(request()).status(), StatusCode::kInvalidArgument, {"mapped"});
  options_.io = IoMode::kBuffered;
  const auto asked = choose_io(request());
  EXPECT_EQ(asked.is_ok(), has_uring);
  if (has_uring) {
    EXPECT_EQ(asked.value().engine, IoEngine::kUring);
  }
}

// 64 MiB are worth a measurement, which is then remembered.
TEST_F(IoChoiceTest, ADiskIsMeasuredOnce) {
  pack_.manifest.page_size = kDirectUnit;
  if (!can_be_direct()) GTEST_SKIP() << "no direct reads on this file system";
  std::filesystem::resize_file(files_.files[0], std::uint64_t{80} << 20);
  pack_.manifest.layers[0].file_size = std::uint64_t{80} << 20;
  options_.disk_file = pack_.dir / "disks.bin";
  ASSERT_OK(choose_io(request()));
  const auto id = disk_of(files_.files[0]);
  ASSERT_TRUE(id.has_value());
  ASSERT_TRUE(recall_disk(options_.disk_file, *id).has_value());
  EXPECT_GT(recall_disk(options_.disk_file, *id)->direct, 0U);
  remember_disk(options_.disk_file, {.id = *id, .rates = {.direct = 1000, .buffered = 9000}});
  ASSERT_OK_AND_ASSIGN(const IoChoice known, choose_io(request()));
  EXPECT_EQ(known.mode, IoMode::kBuffered);
  EXPECT_EQ(known.disk_bytes_per_second, 9000U);
  // What is asked for is not measured, but what is known of the disk is told.
  options_.io = IoMode::kDirect;
  ASSERT_OK_AND_ASSIGN(const IoChoice asked, choose_io(request()));
  EXPECT_EQ(asked.disk_bytes_per_second, 1000U);
  options_.disk_file = pack_.dir / "others.bin";
  ASSERT_OK_AND_ASSIGN(const IoChoice unknown, choose_io(request()));
  EXPECT_EQ(unknown.disk_bytes_per_second, 0U);
  EXPECT_FALSE(std::filesystem::exists(options_.disk_file));
}

TEST(DiskProbeTest, MeasuresFilesOfAnySizeAndNamesBadOnes) {
  const test::TempDir dir;
  std::ofstream(dir / "empty");
  test::expect_error(measure_disk_rate(dir / "empty", {}).status(), StatusCode::kInvalidArgument,
                     {"empty"});
  test::expect_error(measure_disk_rate(dir / "none", {}).status(), StatusCode::kNotFound, {"none"});
  for (const std::uint64_t bytes : {1U, 5000U, 3000000U}) {
    std::ofstream(dir / "file", std::ios::binary) << std::string(bytes, 'x');
    for (const bool direct : {false, true}) {
      ASSERT_OK_AND_ASSIGN(
          const DiskRate rate,
          measure_disk_rate(
              dir / "file",
              {.request_bytes = 100000, .depth = 3, .direct = direct, .milliseconds = 5}));
      EXPECT_GT(rate.bytes_per_second, 0.0);
      EXPECT_GE(rate.bytes, 3 * std::min<std::uint64_t>(bytes, 1));
      if (rate.is_direct) {
        EXPECT_EQ(rate.cached_share, 0.0);
      }
    }
  }
}

}  // namespace
}  // namespace moepack::io_choice_test
