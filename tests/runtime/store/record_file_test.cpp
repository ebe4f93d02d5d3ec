// The way of one read, with the answers that systems and disks give.
#include "runtime/store/record_file.h"

#include <gtest/gtest.h>
#include <cerrno>
#include <fstream>
#include <vector>

#include "formats/base/checksum.h"
#include "tests/runtime/store/reader_ways.h"
#include "tests/support/status_matchers.h"
#include "tests/support/temp_dir.h"

namespace moepack::record_file_test {
namespace {

constexpr std::size_t kFileBytes = 10 * kDirectUnit + 100;

class RecordJobTest : public testing::Test {
 protected:
  void SetUp() override {
    const std::vector<char> bytes(kFileBytes, 'a');
    std::ofstream(path_, std::ios::binary).write(bytes.data(), kFileBytes);
    auto opened = RecordFile::open(path_, IoMode::kDirect);
    ASSERT_OK(opened);
    file_.emplace(std::move(opened).value());
    if (!file_->is_direct()) GTEST_SKIP() << "no direct reads on this file system";
  }

  RecordJob begin(std::uint64_t offset) {
    RecordJob job{.read = {.tag = 5, .offset = offset, .out = memory_.span()}};
    EXPECT_TRUE(begin_job(*file_, job));
    return job;
  }

  test::TempDir dir_;
  std::filesystem::path path_ = dir_ / "file";
  std::optional<RecordFile> file_;
  test::RecordBuffer memory_{3 * kDirectUnit + 10};
};

TEST_F(RecordJobTest, APieceReadDirectlyIsWholeUnits) {
  RecordJob job = begin(kDirectUnit);
  const JobPiece piece = next_piece(job);
  EXPECT_TRUE(piece.is_direct);
  EXPECT_EQ(piece.offset, kDirectUnit);
  EXPECT_EQ(piece.out.size(), 4 * kDirectUnit);
}

TEST_F(RecordJobTest, AReadAtAnyByteGoesThroughThePageCache) {
  RecordJob job = begin(513);
  EXPECT_FALSE(next_piece(job).is_direct);
  EXPECT_EQ(next_piece(job).out.size(), memory_.span().size());
}

TEST_F(RecordJobTest, WhatIsMissingIsReadAfterAPart) {
  RecordJob job = begin(0);
  EXPECT_FALSE(take_result(*file_, job, 2 * kDirectUnit));
  JobPiece piece = next_piece(job);
  EXPECT_TRUE(piece.is_direct);
  EXPECT_EQ(piece.offset, 2 * kDirectUnit);
  EXPECT_EQ(piece.out.data(), memory_.span().data() + 2 * kDirectUnit);
  EXPECT_EQ(piece.out.size(), 2 * kDirectUnit);
  // A part that ends inside a unit: the rest cannot be read directly.
  EXPECT_FALSE(take_result(*file_, job, 100));
  piece = next_piece(job);
  EXPECT_FALSE(piece.is_direct);
  EXPECT_EQ(piece.offset, 2 * kDirectUnit + 100);
  EXPECT_EQ(piece.out.size(), kDirectUnit - 90);
  EXPECT_TRUE(take_result(*file_, job, kDirectUnit - 90));
  EXPECT_OK(job.completion.status);
}

TEST_F(RecordJobTest, BytesBehindTheRecordDoNotCount) {
  RecordJob job = begin(0);
  EXPECT_TRUE(take_result(*file_, job, 4 * kDirectUnit));
  EXPECT_FALSE(settle_job(*file_, job));
  EXPECT_EQ(job.completion.bytes, memory_.span().size());
}

TEST_F(RecordJobTest, AnInterruptionIsTriedAgain) {
  RecordJob job = begin(0);
  for (const int error : {EINTR, EAGAIN, ECANCELED}) {
    EXPECT_FALSE(take_result(*file_, job, -error));
    EXPECT_EQ(next_piece(job).out.size(), 4 * kDirectUnit);
    EXPECT_TRUE(next_piece(job).is_direct);
  }
}

TEST_F(RecordJobTest, ADiskOfLargerUnitsIsReadThroughThePageCache) {
  RecordJob job = begin(0);
  EXPECT_FALSE(take_result(*file_, job, -EINVAL));
  EXPECT_FALSE(next_piece(job).is_direct);
  EXPECT_TRUE(take_result(*file_, job, -EINVAL)) << "a second time it is an error";
  test::expect_error(job.completion.status, StatusCode::kIo, {path_.string(), "Invalid"});
}

TEST_F(RecordJobTest, ADiskThatFailsIsNamedWithThePlace) {
  RecordJob job = begin(kDirectUnit);
  EXPECT_FALSE(take_result(*file_, job, kDirectUnit));
  EXPECT_TRUE(take_result(*file_, job, -EIO));
  test::expect_error(job.completion.status, StatusCode::kIo,
                     {path_.string(), "offset 8192", "disk may be failing"});
  EXPECT_FALSE(settle_job(*file_, job));
  EXPECT_EQ(job.completion.bytes, 0U);
  EXPECT_FALSE(job.completion.has_checksum);
}

// A page of a mapping that cannot be had is the disk's fault where the file is as long as it was.
TEST_F(RecordJobTest, AMappedFileThatFailsHasNotBecomeShorter) {
  ASSERT_OK_AND_ASSIGN(file_, RecordFile::open(path_, IoMode::kMmap));
  RecordJob job = begin(kDirectUnit);
  EXPECT_TRUE(take_result(*file_, job, 0));
  test::expect_error(job.completion.status, StatusCode::kIo,
                     {path_.string(), "offset 4096", "disk may be failing"});
  std::filesystem::resize_file(path_, kDirectUnit);
  RecordJob cut = begin(kDirectUnit);
  EXPECT_TRUE(take_result(*file_, cut, 0));
  test::expect_error(cut.completion.status, StatusCode::kIo, {"shorter", "offset 4096"});
}

TEST_F(RecordJobTest, AFileThatEndsIsAnError) {
  RecordJob job = begin(0);
  EXPECT_FALSE(take_result(*file_, job, kDirectUnit));
  EXPECT_TRUE(take_result(*file_, job, 0));
  test::expect_error(job.completion.status, StatusCode::kIo, {"shorter", "offset 4096"});
}

}  // namespace
}  // namespace moepack::record_file_test
