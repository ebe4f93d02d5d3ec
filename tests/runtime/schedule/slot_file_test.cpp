// A slot's state on disk: what was kept is there again after a start, and what is damaged or
// another's is refused and changes nothing.
#include "runtime/schedule/slot_file.h"

#include <gtest/gtest.h>
#include <filesystem>
#include <fstream>
#include <memory>
#include <string>
#include <vector>

#include "tests/runtime/schedule/text_collector.h"
#include "tests/support/converted_model.h"
#include "tests/support/reader_drill.h"
#include "tests/support/tiny_model.h"

namespace moepack::slot_file_test {
namespace {

using test::greedy_job;
using test::prompt_of;
using test::TextCollector;

TEST(SlotFileNames, ArePlain) {
  for (const char* name : {"a", "agent-1.slot", "A_b.c", "x..y"}) {
    EXPECT_TRUE(is_slot_name(name)) << name;
  }
  for (const std::string& name :
       {std::string(), std::string("."), std::string(".."), std::string(".hidden"),
        std::string("a/b"), std::string("a\\b"), std::string("a b"), std::string("a\nb"),
        std::string("a\0b", 3), std::string("\xc3\xa4"), std::string(129, 'a')}) {
    EXPECT_FALSE(is_slot_name(name)) << name;
  }
}

class SlotFileTest : public ::testing::Test {
 protected:
  void SetUp() override {
    test::write_tiny_model(dir_ / "checkpoint", {});
    model_ = test::convert_for_test(dir_ / "checkpoint", dir_);
    ASSERT_FALSE(model_.empty());
    options_ = test::fast_options(model_);
    options_.activations = ActivationType::kInt8;
    options_.sequences = 2;
    options_.saves_sequence = true;
    start(true);
  }
  void start(bool has_path) {
    scheduler_.reset();
    ASSERT_OK_AND_ASSIGN(engine_, Engine::open(options_));
    SchedulerOptions options{.parallel = 1};
    if (has_path) options.save_path = dir_ / "slots";
    std::filesystem::create_directories(dir_ / "slots");
    ASSERT_OK_AND_ASSIGN(scheduler_, Scheduler::start(*engine_, options));
  }
  std::shared_ptr<TextCollector> run(const TextJob& job) {
    auto text = std::make_shared<TextCollector>();
    const auto ticket = scheduler_->submit(job, {text});
    EXPECT_TRUE(text->wait_end());
    EXPECT_EQ(text->end(), TextEnd::kLength) << text->status().message();
    return text;
  }
  std::string read(const char* name) const {
    std::ifstream in(dir_ / "slots" / name, std::ios::binary);
    return {std::istreambuf_iterator<char>(in), {}};
  }
  void write(const char* name, const std::string& bytes) const {
    std::ofstream(dir_ / "slots" / name, std::ios::binary) << bytes;
  }

  test::TempDir dir_;
  std::filesystem::path model_;
  EngineOptions options_;
  std::unique_ptr<Engine> engine_;
  std::unique_ptr<Scheduler> scheduler_;
};

TEST_F(SlotFileTest, ASlotSurvivesAStart) {
  TextJob job = greedy_job(prompt_of(200, 977), 10);
  job.snapshots = {50, 190};
  const auto first = run(job);
  TextJob branch = job;
  branch.prompt.resize(60);
  for (const std::int32_t id : prompt_of(30, 41)) branch.prompt.push_back(id);
  ASSERT_OK_AND_ASSIGN(const std::uint64_t saved, scheduler_->save_slot(0, "main.slot"));
  EXPECT_EQ(saved, 209U);
  const auto of_branch = run(branch);
  start(true);
  EXPECT_EQ(scheduler_->slots()[0].kept_tokens, 0U);
  ASSERT_OK_AND_ASSIGN(const std::uint64_t restored, scheduler_->restore_slot(1, "main.slot"));
  EXPECT_EQ(restored, 209U);
  EXPECT_EQ(scheduler_->slots()[1].kept_tokens, 209U);
  auto text = run(job);
  EXPECT_EQ(text->times().cached_tokens, 190U);
  EXPECT_EQ(text->tokens(), first->tokens());
  text = run(branch);
  EXPECT_EQ(text->times().cached_tokens, 50U);
  EXPECT_EQ(text->tokens(), of_branch->tokens());
  ASSERT_OK_AND_ASSIGN(const std::uint64_t erased, scheduler_->erase_slot(0));
  EXPECT_GT(erased, 50U);
  ASSERT_OK(scheduler_->erase_slot(1));
  ASSERT_OK_AND_ASSIGN(const std::uint64_t none, scheduler_->erase_slot(1));
  EXPECT_EQ(none, 0U);
  EXPECT_EQ(run(job)->times().cached_tokens, 0U);
}

TEST_F(SlotFileTest, WhatCannotBe) {
  test::expect_error(scheduler_->save_slot(0, "a").status(), StatusCode::kInvalidArgument,
                     {"no text"});
  test::expect_error(scheduler_->save_slot(2, "a").status(), StatusCode::kInvalidArgument,
                     {"no slot 2"});
  test::expect_error(scheduler_->save_slot(0, "../a").status(), StatusCode::kInvalidArgument,
                     {"../a"});
  test::expect_error(scheduler_->restore_slot(0, "none").status(), StatusCode::kNotFound, {"none"});
  TextJob job = greedy_job(prompt_of(20, 977), 2);
  job.snapshots = {10};
  run(job);
  ASSERT_OK(scheduler_->save_slot(0, "a").status());
  EngineOptions other = options_;
  options_.activations = ActivationType::kFloat32;
  start(true);
  test::expect_error(scheduler_->restore_slot(0, "a").status(), StatusCode::kInvalidArgument,
                     {"activations"});
  options_ = other;
  options_.context = 16;
  start(true);
  test::expect_error(scheduler_->restore_slot(0, "a").status(), StatusCode::kInvalidArgument,
                     {"context of 16"});
  start(false);
  test::expect_error(scheduler_->restore_slot(0, "a").status(), StatusCode::kUnsupported,
                     {"--slot-save-path"});
}

// Names come from clients: a link in the directory does not lead them out of it.
TEST_F(SlotFileTest, LinksAreNotFollowed) {
  run(greedy_job(prompt_of(40, 977), 5));
  ASSERT_OK(scheduler_->save_slot(0, "good").status());
  std::filesystem::create_symlink(dir_ / "slots" / "good", dir_ / "slots" / "link");
  std::filesystem::create_symlink(dir_ / "absent", dir_ / "slots" / "dangling");
  for (const char* name : {"link", "dangling"}) {
    for (const auto& done : {scheduler_->save_slot(0, name), scheduler_->restore_slot(0, name)}) {
      test::expect_error(done.status(), StatusCode::kInvalidArgument, {name, "is a link"});
    }
  }
  EXPECT_FALSE(std::filesystem::exists(dir_ / "absent"));
}

// Every length that is too short, and every flipped byte of the head and some of the rest, is
// refused, and the slot is as it was.
TEST_F(SlotFileTest, DamagedFilesAreRefused) {
  TextJob job = greedy_job(prompt_of(40, 977), 5);
  job.snapshots = {20, 38};
  run(job);
  ASSERT_OK(scheduler_->save_slot(0, "good").status());
  const std::string good = read("good");
  test::drill_truncation(
      good,
      [](std::string_view bytes) {
        return parse_slot_head(std::as_bytes(std::span(bytes)), bytes.size(), "drill").status();
      },
      {.step = 211});
  const std::uint64_t head =
      slot_head_bytes(parse_slot_head(std::as_bytes(std::span(good)), good.size(), "good").value())
          .size();
  for (std::size_t at = 0; at < good.size(); at += at < head ? 1 : good.size() / 17) {
    std::string bad = good;
    bad[at] = static_cast<char>(bad[at] ^ 0x11);
    write("bad", bad);
    const Status status = scheduler_->restore_slot(0, "bad").status();
    EXPECT_FALSE(status.is_ok()) << "byte " << at;
    EXPECT_NE(status.message().find("bad"), std::string::npos) << status.message();
  }
  EXPECT_EQ(scheduler_->slots()[0].kept_tokens, 44U);
  EXPECT_GT(run(job)->times().cached_tokens, 0U);
}

}  // namespace
}  // namespace moepack::slot_file_test
