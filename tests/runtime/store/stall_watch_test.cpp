#include "runtime/store/stall_watch.h"

#include <gtest/gtest.h>
#include <atomic>
#include <condition_variable>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "tests/support/status_matchers.h"

namespace moepack::stall_watch_test {
namespace {

using std::chrono::milliseconds;

// Gives nothing before somebody says so.
class StalledReader final : public RecordReader {
 public:
  Status submit(std::span<const RecordRead> reads) override {
    tag_ = reads.front().tag;
    return Status::ok();
  }
  std::size_t reap(std::span<RecordCompletion> out, bool wait) noexcept override {
    std::unique_lock lock(mutex_);
    if (!wait && !answers_) return 0;
    wake_.wait(lock, [this] { return answers_; });
    answers_ = false;
    out[0] = {.tag = tag_};
    return 1;
  }
  void answer() {
    {
      const std::lock_guard lock(mutex_);
      answers_ = true;
    }
    wake_.notify_all();
  }

 private:
  std::mutex mutex_;
  std::condition_variable wake_;
  bool answers_ = false;
  std::uint64_t tag_ = 0;
};

class StallWatchTest : public testing::Test {
 protected:
  void open(milliseconds patience) {
    auto stalled = std::make_unique<StalledReader>();
    reader_ = stalled.get();
    ASSERT_OK_AND_ASSIGN(watch_, StallWatch::open(
                                     std::move(stalled), [this] { return source_; },
                                     [this](const std::string& line) {
                                       const std::lock_guard lock(mutex_);
                                       lines_.push_back(line);
                                     },
                                     patience));
  }
  std::vector<std::string> lines() {
    const std::lock_guard lock(mutex_);
    return lines_;
  }
  // Waits until there are so many lines; a failure takes ten seconds.
  bool has_lines(std::size_t count) {
    for (int i = 0; i < 1000 && lines().size() < count; ++i) {
      std::this_thread::sleep_for(milliseconds(10));
    }
    return lines().size() >= count;
  }
  std::size_t reap_one() {
    RecordCompletion one;
    return watch_->reap(std::span(&one, 1), true);
  }

  std::string source_ = "/packs/one";  // constant while there is a watch
  std::mutex mutex_;
  std::vector<std::string> lines_;
  StalledReader* reader_ = nullptr;
  std::unique_ptr<StallWatch> watch_;
};

TEST_F(StallWatchTest, SaysSoWhileItWaitsAndWhenItIsOver) {
  open(milliseconds(60));
  std::thread waiting([this] { EXPECT_EQ(reap_one(), 1U); });
  EXPECT_TRUE(has_lines(2)) << "again when twice the time is over";
  reader_->answer();
  waiting.join();
  EXPECT_TRUE(has_lines(3));
  EXPECT_NE(lines()[0].find("/packs/one: the disk has given nothing for 0.0 s"), std::string::npos)
      << lines()[0];
  EXPECT_NE(lines()[0].find("Ctrl-C"), std::string::npos);
  EXPECT_NE(lines()[1].find("0.1 s"), std::string::npos) << lines()[1];
  EXPECT_NE(lines().back().find("/packs/one: the disk answers again"), std::string::npos);
}

TEST_F(StallWatchTest, ADiskThatAnswersIsNoNews) {
  open(milliseconds(60));
  for (int i = 0; i < 40; ++i) {
    reader_->answer();
    EXPECT_EQ(reap_one(), 1U);
    std::this_thread::sleep_for(milliseconds(5));  // longer than the patience in all
  }
  EXPECT_TRUE(lines().empty());
}

TEST_F(StallWatchTest, WhoDoesNotWaitIsNotStalled) {
  open(milliseconds(10));
  RecordCompletion one;
  EXPECT_EQ(watch_->reap(std::span(&one, 1), false), 0U);
  std::this_thread::sleep_for(milliseconds(80));
  EXPECT_TRUE(lines().empty());
}

TEST_F(StallWatchTest, EndsAtOnce) {
  open(std::chrono::hours(1));
  const Clock::time_point start = Clock::now();
  watch_.reset();
  EXPECT_LT(seconds_since(start), 1.0);
}

}  // namespace
}  // namespace moepack::stall_watch_test
