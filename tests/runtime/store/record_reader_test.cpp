// What every reader of records must do, whichever way it reads.
#include "runtime/store/record_reader.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <unistd.h>
#include <algorithm>
#include <chrono>
#include <fstream>
#include <map>
#include <thread>

#include "formats/base/checksum.h"
#include "tests/runtime/store/reader_ways.h"
#include "tests/support/status_matchers.h"
#include "tests/support/temp_dir.h"

namespace moepack::record_reader_test {
namespace {

using test::ReaderWay;
using test::RecordBuffer;

// No whole number of units: the last read of a file ends inside one.
constexpr std::size_t kFileBytes = 20 * kDirectUnit + 1234;

std::byte byte_at(std::size_t file, std::size_t offset) {
  return static_cast<std::byte>(file * 31 + offset % 251);
}

class EveryReader : public testing::TestWithParam<ReaderWay> {
 protected:
  void SetUp() override {
    if (!GetParam().can_be_had()) GTEST_SKIP() << UringReader::check_available().message();
    for (std::size_t f = 0; f < paths_.size(); ++f) write(f);
  }

  void write(std::size_t file) {
    std::ofstream out(paths_[file], std::ios::binary);
    for (std::size_t i = 0; i < kFileBytes; ++i) out.put(static_cast<char>(byte_at(file, i)));
  }

  void open(std::uint32_t width = 4) {
    ASSERT_OK_AND_ASSIGN(reader_, GetParam().open(paths_, width));
  }

  RecordRead read_into(RecordBuffer& memory, std::uint64_t tag, std::uint32_t file,
                       std::uint64_t offset, bool wants_checksum = false) {
    return {.tag = tag,
            .file = file,
            .offset = offset,
            .out = memory.span(),
            .wants_checksum = wants_checksum};
  }

  std::map<std::uint64_t, RecordCompletion> reap_all(std::size_t reads) {
    std::map<std::uint64_t, RecordCompletion> all;
    std::vector<RecordCompletion> some(3);
    while (all.size() < reads) {
      const std::size_t count = reader_->reap(some, true);
      for (std::size_t i = 0; i < count; ++i) all[some[i].tag] = std::move(some[i]);
    }
    EXPECT_EQ(reader_->reap(some, false), 0U) << "a completion that nobody asked for";
    return all;
  }

  void expect_bytes(RecordBuffer& memory, std::size_t file, std::size_t offset) {
    for (std::size_t i = 0; i < memory.span().size(); ++i) {
      ASSERT_EQ(memory.span()[i], byte_at(file, offset + i)) << "byte " << i;
    }
  }

  RecordCompletion read_one(RecordBuffer& memory, std::uint64_t offset, bool wants_checksum) {
    const RecordRead read = read_into(memory, 1, 0, offset, wants_checksum);
    EXPECT_OK(reader_->submit(std::span(&read, 1)));
    return std::move(reap_all(1)[1]);
  }

  test::TempDir dir_;
  std::vector<std::filesystem::path> paths_{dir_ / "a", dir_ / "b"};
  std::unique_ptr<RecordReader> reader_;
};

TEST_P(EveryReader, FillsEveryBufferFromItsPlace) {
  for (const std::uint32_t width : {1U, 3U, 64U}) {
    open(width);
    std::vector<RecordBuffer> memory;
    std::vector<RecordRead> reads;
    for (std::size_t i = 0; i < 40; ++i) memory.emplace_back(1 + i * 977);
    // At units, as records of our packs, and at any byte, as records of others.
    for (std::size_t i = 0; i < memory.size(); ++i) {
      const std::uint64_t offset = i % 2 == 0 ? i / 4 * kDirectUnit : i * 501;
      reads.push_back(read_into(memory[i], 1000 + i, i % 2, offset, i % 3 == 0));
    }
    ASSERT_OK(reader_->submit(reads));
    auto completions = reap_all(reads.size());
    for (std::size_t i = 0; i < memory.size(); ++i) {
      RecordCompletion& completion = completions[1000 + i];
      ASSERT_OK(completion.status);
      EXPECT_EQ(completion.bytes, memory[i].span().size());
      EXPECT_EQ(completion.has_checksum, i % 3 == 0);
      if (i % 3 == 0) {
        EXPECT_EQ(completion.checksum, checksum(memory[i].span()));
      }
      EXPECT_FALSE(completion.is_changed);
      expect_bytes(memory[i], i % 2, reads[i].offset);
    }
  }
}

TEST_P(EveryReader, TheLastRecordOfAFileEndsInsideAUnit) {
  open();
  RecordBuffer memory(kDirectUnit + 1234);
  const RecordCompletion completion = read_one(memory, 19 * kDirectUnit, true);
  ASSERT_OK(completion.status);
  expect_bytes(memory, 0, 19 * kDirectUnit);
  EXPECT_EQ(completion.checksum, checksum(memory.span()));
}

TEST_P(EveryReader, AReadBeyondTheEndFailsAlone) {
  open();
  RecordBuffer good(100);
  RecordBuffer bad(100);
  const std::vector<RecordRead> reads{read_into(bad, 1, 1, kFileBytes - 99),
                                      read_into(good, 2, 0, kFileBytes - 100)};
  ASSERT_OK(reader_->submit(reads));
  auto completions = reap_all(2);
  test::expect_error(completions[1].status, StatusCode::kCorrupt,
                     {paths_[1].string(), std::to_string(kFileBytes - 99)});
  EXPECT_OK(completions[2].status);
  expect_bytes(good, 0, kFileBytes - 100);
}

TEST_P(EveryReader, AFileThatWasCutIsAnErrorOfTheReadsBehindItsEnd) {
  open();
  ASSERT_EQ(::truncate(paths_[0].c_str(), 6 * kDirectUnit + 100), 0);
  RecordBuffer before(2 * kDirectUnit);
  RecordBuffer across(3 * kDirectUnit);
  RecordBuffer behind(2 * kDirectUnit);
  const std::vector<RecordRead> reads{read_into(before, 1, 0, 0),
                                      read_into(across, 2, 0, 5 * kDirectUnit),
                                      read_into(behind, 3, 0, 12 * kDirectUnit)};
  ASSERT_OK(reader_->submit(reads));
  auto completions = reap_all(3);
  ASSERT_OK(completions[1].status);
  EXPECT_TRUE(completions[1].is_changed);
  expect_bytes(before, 0, 0);
  test::expect_error(completions[2].status, StatusCode::kIo, {paths_[0].string(), "shorter"});
  test::expect_error(completions[3].status, StatusCode::kIo, {paths_[0].string(), "shorter"});
}

// Cut inside the page in which a record ends: memory of the file shows zeros there.
TEST_P(EveryReader, BytesThatWereCutOffAreNeverTrusted) {
  open();
  RecordBuffer memory(kDirectUnit);
  ASSERT_EQ(::truncate(paths_[0].c_str(), kDirectUnit + 3000), 0);
  const RecordCompletion completion = read_one(memory, kDirectUnit, false);
  const bool is_refused = !completion.status.is_ok();
  const bool is_doubted = completion.is_changed && completion.has_checksum &&
                          completion.checksum == checksum(memory.span());
  EXPECT_TRUE(is_refused || is_doubted);
}

TEST_P(EveryReader, WhoeverWritesToAFileIsFoundOut) {
  open();
  RecordBuffer memory(kDirectUnit);
  EXPECT_FALSE(read_one(memory, 0, false).has_checksum);
  std::this_thread::sleep_for(std::chrono::milliseconds(20));  // a tick of the file system's clock
  const int fd = ::open(paths_[0].c_str(), O_WRONLY | O_CLOEXEC);
  ASSERT_EQ(::pwrite(fd, "x", 1, 77), 1);
  ::close(fd);
  const RecordCompletion completion = read_one(memory, 0, false);
  ASSERT_OK(completion.status);
  EXPECT_TRUE(completion.is_changed);
  EXPECT_TRUE(completion.has_checksum);
  EXPECT_EQ(completion.checksum, checksum(memory.span()));
  EXPECT_EQ(memory.span()[77], std::byte{'x'});
}

TEST_P(EveryReader, AFileThatTookThePlaceOfAnotherIsNotRead) {
  open();
  std::filesystem::rename(paths_[0], dir_ / "moved");
  std::filesystem::copy_file(paths_[1], paths_[0]);
  RecordBuffer memory(3 * kDirectUnit);
  const RecordCompletion completion = read_one(memory, kDirectUnit, false);
  ASSERT_OK(completion.status);
  EXPECT_FALSE(completion.is_changed);
  expect_bytes(memory, 0, kDirectUnit);
}

TEST_P(EveryReader, AFileThatIsNotThereIsAnErrorOfOpen) {
  paths_.push_back(dir_ / "none");
  test::expect_error(GetParam().open(paths_).status(), StatusCode::kNotFound, {"none"});
}

TEST_P(EveryReader, NothingOfASubmissionWithAnUnknownFileIsStarted) {
  open();
  RecordBuffer memory(8);
  const std::vector<RecordRead> reads{read_into(memory, 1, 0, 0), read_into(memory, 2, 2, 0)};
  test::expect_error(reader_->submit(reads), StatusCode::kInvalidArgument, {"layer file 2"});
  EXPECT_OK(read_one(memory, 0, false).status);
}

TEST_P(EveryReader, EndsWithReadsThatNobodyReaped) {
  std::vector<RecordBuffer> memory;
  for (int i = 0; i < 200; ++i) memory.emplace_back(4 * kDirectUnit);
  for (int round = 0; round < 8; ++round) {
    open(round % 2 == 0 ? 2 : 100);
    std::vector<RecordRead> reads;
    for (std::size_t i = 0; i < memory.size(); ++i) {
      reads.push_back(read_into(memory[i], i, i % 2, i % 8 * kDirectUnit, i % 3 == 0));
    }
    ASSERT_OK(reader_->submit(reads));
    RecordCompletion one;
    if (round % 4 < 2) (void)reader_->reap(std::span(&one, 1), true);
    reader_.reset();
    // Nobody writes any more: the sanitizers would see it.
    for (RecordBuffer& bytes : memory) {
      std::fill(bytes.span().begin(), bytes.span().end(), std::byte{0});
    }
  }
}

// As ExpertStore uses a reader: one thread submits while another reaps.
TEST_P(EveryReader, OneThreadSubmitsWhileAnotherReaps) {
  open();
  constexpr std::size_t kReads = 300;
  std::vector<RecordBuffer> memory;
  for (std::size_t i = 0; i < kReads; ++i) memory.emplace_back(5000);
  std::thread submitter([&] {
    for (std::size_t i = 0; i < kReads; i += 3) {
      std::vector<RecordRead> reads;
      for (std::size_t j = i; j < i + 3; ++j) {
        reads.push_back(read_into(memory[j], j, j % 2, j % 16 * kDirectUnit, j % 2 == 0));
      }
      if (!reader_->submit(reads).is_ok()) return;
    }
  });
  std::size_t reaped = 0;
  std::vector<RecordCompletion> some(5);
  while (reaped < kReads) {
    const std::size_t count = reader_->reap(some, reaped % 2 == 0 && reaped > 0);
    for (std::size_t i = 0; i < count; ++i) {
      EXPECT_OK(some[i].status);
      expect_bytes(memory[some[i].tag], some[i].tag % 2, some[i].tag % 16 * kDirectUnit);
    }
    reaped += count;
  }
  submitter.join();
}

INSTANTIATE_TEST_SUITE_P(Ways, EveryReader, testing::ValuesIn(test::reader_ways()),
                         [](const auto& way) { return way.param.name(); });

}  // namespace
}  // namespace moepack::record_reader_test
