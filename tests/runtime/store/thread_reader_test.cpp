#include "runtime/store/thread_reader.h"

#include <gtest/gtest.h>
#include <algorithm>
#include <atomic>
#include <fstream>
#include <map>
#include <system_error>

#include "formats/base/checksum.h"
#include "runtime/store/record_cache.h"
#include "tests/support/status_matchers.h"
#include "tests/support/temp_dir.h"

namespace moepack::thread_reader_test {
namespace {

constexpr std::size_t kFileBytes = 40000;

char byte_at(std::size_t file, std::size_t offset) {
  return static_cast<char>(file * 31 + offset % 251);
}

struct TwoFiles {
  test::TempDir dir;
  std::vector<std::filesystem::path> paths{dir / "a", dir / "b"};

  TwoFiles() {
    for (std::size_t f = 0; f < paths.size(); ++f) {
      std::ofstream out(paths[f], std::ios::binary);
      for (std::size_t i = 0; i < kFileBytes; ++i) out.put(byte_at(f, i));
    }
  }
};

std::vector<RecordCompletion> reap(ThreadReader& reader, bool wait) {
  std::vector<RecordCompletion> completions(7);
  completions.resize(reader.reap(completions, wait));
  return completions;
}

// Starts `limit` threads and fails as the system does; counts those that run.
struct LimitedStarter {
  std::atomic<int> alive{0};
  int started = 0;
  int limit = 1000;

  ThreadStarter get() {
    return [this](const std::function<void()>& body) {
      if (started == limit) {
        throw std::system_error(std::make_error_code(std::errc::resource_unavailable_try_again));
      }
      ++started;
      ++alive;
      return std::thread([this, body] {
        body();
        --alive;
      });
    };
  }
};

TEST(ThreadReader, FillsEveryBufferFromItsPlace) {
  const TwoFiles files;
  for (const std::uint32_t threads : {0U, 1U, 5U}) {
    ASSERT_OK_AND_ASSIGN(const auto reader, ThreadReader::open(files.paths, threads));
    constexpr std::size_t kReads = 60;
    std::vector<std::vector<std::byte>> memory(kReads);
    std::vector<RecordRead> reads;
    for (std::size_t i = 0; i < kReads; ++i) {
      memory[i].resize(1 + i * 97);
      reads.push_back({.tag = 1000 + i,
                       .file = static_cast<std::uint32_t>(i % 2),
                       .offset = i * 501,
                       .out = memory[i],
                       .wants_checksum = i % 3 == 0});
    }
    ASSERT_OK(reader->submit(reads));
    std::map<std::uint64_t, RecordCompletion> completions;
    while (completions.size() < kReads) {
      for (RecordCompletion& c : reap(*reader, true)) completions[c.tag] = std::move(c);
    }
    for (std::size_t i = 0; i < kReads; ++i) {
      ASSERT_EQ(completions.count(1000 + i), 1U);
      EXPECT_OK(completions[1000 + i].status);
      EXPECT_EQ(completions[1000 + i].bytes, memory[i].size());
      EXPECT_EQ(completions[1000 + i].checksum, i % 3 == 0 ? checksum(memory[i]) : 0);
      for (std::size_t b = 0; b < memory[i].size(); ++b) {
        ASSERT_EQ(static_cast<char>(memory[i][b]), byte_at(i % 2, i * 501 + b));
      }
    }
    EXPECT_TRUE(reap(*reader, false).empty());
  }
}

TEST(ThreadReader, WhatFindsNoPlaceWaitsForTheNextReap) {
  const TwoFiles files;
  ASSERT_OK_AND_ASSIGN(const auto reader, ThreadReader::open(files.paths, 1));
  std::vector<std::vector<std::byte>> memory(5, std::vector<std::byte>(10));
  std::vector<RecordRead> reads;
  for (std::size_t i = 0; i < memory.size(); ++i) reads.push_back({.tag = i, .out = memory[i]});
  ASSERT_OK(reader->submit(reads));
  for (std::size_t i = 0; i < memory.size(); ++i) {
    RecordCompletion one;
    ASSERT_EQ(reader->reap(std::span(&one, 1), true), 1U);
    EXPECT_EQ(one.tag, i) << "one thread reads in the order of the submission";
  }
  RecordCompletion none;
  EXPECT_EQ(reader->reap(std::span(&none, 1), false), 0U);
}

TEST(ThreadReader, AReadBeyondTheEndFailsAlone) {
  const TwoFiles files;
  ASSERT_OK_AND_ASSIGN(const auto reader, ThreadReader::open(files.paths, 2));
  std::vector<std::byte> good(100);
  std::vector<std::byte> bad(100);
  const std::vector<RecordRead> reads{
      {.tag = 1, .file = 1, .offset = kFileBytes - 99, .out = bad},
      {.tag = 2, .file = 0, .offset = kFileBytes - 100, .out = good}};
  ASSERT_OK(reader->submit(reads));
  std::map<std::uint64_t, Status> status;
  while (status.size() < 2) {
    for (const RecordCompletion& c : reap(*reader, true)) status[c.tag] = c.status;
  }
  test::expect_error(status[1], StatusCode::kCorrupt, {files.paths[1].string(), "offset 39901"});
  EXPECT_OK(status[2]);
}

TEST(ThreadReader, AFileThatIsNotThereIsAnErrorOfOpen) {
  TwoFiles files;
  files.paths.push_back(files.dir / "none");
  test::expect_error(ThreadReader::open(files.paths, 2).status(), StatusCode::kNotFound, {"none"});
}

TEST(ThreadReader, NothingOfASubmissionWithAnUnknownFileIsStarted) {
  const TwoFiles files;
  ASSERT_OK_AND_ASSIGN(const auto reader, ThreadReader::open(files.paths, 1));
  std::vector<std::byte> memory(8);
  const std::vector<RecordRead> reads{{.tag = 1, .file = 0, .offset = 0, .out = memory},
                                      {.tag = 2, .file = 2, .offset = 0, .out = memory}};
  test::expect_error(reader->submit(reads), StatusCode::kInvalidArgument, {"layer file 2"});
  const std::vector<RecordRead> sound{{.tag = 3, .file = 0, .offset = 0, .out = memory}};
  ASSERT_OK(reader->submit(sound));
  const std::vector<RecordCompletion> done = reap(*reader, true);
  ASSERT_EQ(done.size(), 1U);
  EXPECT_EQ(done[0].tag, 3U);
}

TEST(ThreadReader, TooFewThreadsAreAnErrorAndNoneStays) {
  const TwoFiles files;
  for (const int limit : {0, 1, 3}) {
    LimitedStarter starter;
    starter.limit = limit;
    test::expect_error(
        ThreadReader::open(files.paths, 4, IoMode::kBuffered, starter.get()).status(),
        StatusCode::kIo, {"4 threads", "ulimit"});
    EXPECT_EQ(starter.started, limit);
    EXPECT_EQ(starter.alive, 0);
  }
}

TEST(ThreadReader, EndsWithReadsThatNobodyReaped) {
  const TwoFiles files;
  std::vector<std::vector<std::byte>> memory(200, std::vector<std::byte>(20000));
  for (int round = 0; round < 10; ++round) {
    LimitedStarter starter;
    {
      ASSERT_OK_AND_ASSIGN(const auto reader,
                           ThreadReader::open(files.paths, 3, IoMode::kBuffered, starter.get()));
      std::vector<RecordRead> reads;
      for (auto& bytes : memory) reads.push_back({.file = 0, .offset = 1, .out = bytes});
      ASSERT_OK(reader->submit(reads));
      if (round % 2 == 0) (void)reap(*reader, true);
    }
    EXPECT_EQ(starter.alive, 0) << "the destructor left a thread";
    // Nobody writes any more: the thread sanitizer would see it.
    for (auto& bytes : memory) std::fill(bytes.begin(), bytes.end(), std::byte{0});
  }
}

}  // namespace
}  // namespace moepack::thread_reader_test
