// Which kept text a prompt goes on from, and which snapshots stay where memory is short.
#include "runtime/schedule/kept_text.h"

#include <gtest/gtest.h>
#include <memory>
#include <vector>

#include "runtime/schedule/text_run.h"
#include "tests/support/status_matchers.h"

namespace moepack::kept_text_test {
namespace {

using Ids = std::vector<std::int32_t>;

// A state that remembers nothing but how much it says it has.
class FakeState final : public SequenceState {
 public:
  explicit FakeState(std::uint64_t recurrent) : recurrent_(recurrent) {}
  void reset() override {}
  Result<std::unique_ptr<SequenceState>> copy(std::uint64_t) const override {
    return std::unique_ptr<SequenceState>(std::make_unique<FakeState>(recurrent_));
  }
  std::uint64_t memory_bytes() const override { return 0; }
  bool has_recurrent() const override { return recurrent_ != 0; }
  DeltaForm delta_form() const override { return DeltaForm::kTokens; }
  std::uint64_t saved_bytes(std::uint64_t) const override { return 0; }
  Status save(std::uint64_t, std::span<std::byte>) const override { return Status::ok(); }
  Status load(std::uint64_t, std::span<const std::byte>) override { return Status::ok(); }
  std::uint64_t recurrent_bytes(std::uint64_t) const override { return recurrent_; }
  Status save_recurrent(std::uint64_t, std::span<std::byte>) const override { return Status::ok(); }
  Status load_recurrent(std::uint64_t, std::span<const std::byte>) override { return Status::ok(); }

 private:
  std::uint64_t recurrent_;
};

class KeptTextTest : public ::testing::Test {
 protected:
  // Slot `index` keeps `ids`, with snapshots of 100 bytes at these places.
  void keep(std::size_t index, const Ids& ids, const std::vector<std::uint64_t>& places,
            bool is_asked = true) {
    KeptText& kept = slots_[index];
    kept = {};
    auto sequence = Sequence::create({.context = 10000}, engine_slots_, [this] {
      return Result<std::unique_ptr<SequenceState>>(std::make_unique<FakeState>(recurrent_));
    });
    ASSERT_TRUE(sequence.is_ok());
    kept.sequence.emplace(std::move(sequence).value());
    for (const std::uint64_t place : places) {
      kept.sequence->advance(place - kept.sequence->position());
      ASSERT_OK(kept.take_snapshot(is_asked));
    }
    kept.sequence->advance(ids.size() - kept.sequence->position());
    kept.tokens = ids;
    kept.prompt_tokens = ids.size();
    kept.last_used = index;
  }
  std::vector<std::uint64_t> places(std::size_t index) const {
    std::vector<std::uint64_t> all;
    for (const KeptSnapshot& snapshot : slots_[index].snapshots) {
      all.push_back(snapshot.states->position());
    }
    return all;
  }
  SlotChoice choose(const Ids& prompt) const {
    return choose_slot(slots_, prompt, 1, slots_.size(), true).value();
  }

  std::uint64_t recurrent_ = 100;
  std::shared_ptr<SequenceSlots> engine_slots_ = std::make_shared<SequenceSlots>(10);
  std::vector<KeptText> slots_ = std::vector<KeptText>(3);
};

Ids ids_from(std::int32_t first, std::size_t count) {
  Ids ids(count);
  for (std::size_t i = 0; i < count; ++i) ids[i] = first + static_cast<std::int32_t>(i);
  return ids;
}

Ids with_end(Ids ids, std::size_t shared, std::size_t count) {
  ids.resize(shared);
  ids.resize(shared + count, 99999);
  return ids;
}

TEST_F(KeptTextTest, TheLongestStateThatLeavesATokenToCompute) {
  const Ids text = ids_from(0, 100);
  keep(0, text, {20, 60, 90});
  const auto usable = [&](const Ids& prompt, std::uint64_t cut = 1) {
    return usable_prefix(slots_[0], prompt, cut).tokens;
  };
  EXPECT_EQ(usable(with_end(text, 100, 5)), 100U);  // the state of now
  EXPECT_EQ(usable(text), 90U);                     // its last token is to be computed
  EXPECT_EQ(usable(with_end(text, 90, 5)), 90U);
  EXPECT_EQ(usable(with_end(text, 90, 0)), 60U);
  EXPECT_EQ(usable(with_end(text, 59, 50)), 20U);
  EXPECT_EQ(usable(with_end(text, 19, 50)), 0U);
  EXPECT_EQ(usable({}), 0U);
  EXPECT_EQ(usable(with_end(text, 100, 5), 30), 90U);
  slots_[0].prompt_tokens = 95;  // the others were decoded
  EXPECT_EQ(usable(with_end(text, 100, 5), 30), 100U);
  recurrent_ = 0;
  keep(0, text, {});
  EXPECT_EQ(usable(with_end(text, 77, 5)), 77U);
  EXPECT_EQ(usable(with_end(text, 77, 5), 10), 70U);
  EXPECT_EQ(usable(text), 99U);
}

TEST_F(KeptTextTest, GoingBackDropsWhatLiesBehind) {
  const Ids text = ids_from(0, 100);
  keep(0, text, {20, 60, 90});
  const Ids prompt = with_end(text, 70, 5);
  ASSERT_OK(go_back(slots_[0], usable_prefix(slots_[0], prompt, 1)));
  EXPECT_EQ(slots_[0].sequence->position(), 60U);
  EXPECT_EQ(slots_[0].tokens, ids_from(0, 60));
  EXPECT_EQ(places(0), (std::vector<std::uint64_t>{20, 60}));
}

TEST_F(KeptTextTest, ATurnStaysInItsSlotAndABranchDoesNot) {
  const Ids text = ids_from(0, 1000);
  keep(0, text, {50, 900});
  keep(1, ids_from(5000, 30), {});
  SlotChoice choice = choose(with_end(text, 950, 20));
  EXPECT_EQ(choice.source, 0U);
  EXPECT_EQ(choice.target, 0U);
  EXPECT_EQ(choice.prefix.tokens, 900U);
  choice = choose(with_end(text, 60, 20));  // would drop 950 tokens
  EXPECT_EQ(choice.source, 0U);
  EXPECT_EQ(choice.target, 2U) << "the one without a text";
  EXPECT_EQ(choice.prefix.tokens, 50U);
  ASSERT_OK(copy_prefix(slots_[0], choice.prefix, slots_[2]));
  EXPECT_EQ(slots_[2].tokens, ids_from(0, 50));
  EXPECT_EQ(places(2), std::vector<std::uint64_t>{50});
  EXPECT_EQ(snapshot_totals(slots_).count, 2U) << "a shared one counts once";
  choice = choose(ids_from(7000, 40));
  EXPECT_EQ(choice.prefix.tokens, 0U);
  EXPECT_EQ(choice.target, 1U) << "30 tokens are worth less than 50";
  slots_[0].is_busy = slots_[1].is_busy = slots_[2].is_busy = true;
  EXPECT_FALSE(choose_slot(slots_, text, 1, 3, true).has_value());
}

TEST_F(KeptTextTest, SmallConversationsLeaveBeforeTheLargeOne) {
  keep(0, ids_from(0, 20000), {});
  keep(1, ids_from(30000, 300), {});
  keep(2, ids_from(40000, 200), {});
  const SlotChoice choice = choose_slot(slots_, ids_from(60000, 10), 1, 5, true).value();
  EXPECT_EQ(choice.target, 2U) << "the oldest is worth 20000 / 6";
}

TEST_F(KeptTextTest, MemoryKeepsWhatWasAskedForAndIsFarApart) {
  keep(0, ids_from(0, 1000), {100, 110, 600}, true);
  keep(1, ids_from(2000, 1000), {300, 500, 550}, false);
  keep_within(slots_, 600, 3);
  EXPECT_EQ(snapshot_totals(slots_).bytes, 600U);
  keep_within(slots_, 500, 3);
  EXPECT_EQ(places(0), (std::vector<std::uint64_t>{100, 600})) << "10 tokens cost the least";
  keep_within(slots_, 400, 3);
  EXPECT_EQ(places(1), (std::vector<std::uint64_t>{300, 500}));
  keep_within(slots_, 150, 3);
  EXPECT_EQ(places(0), std::vector<std::uint64_t>{600});
  EXPECT_TRUE(places(1).empty());
  keep_within(slots_, 0, 3);
  EXPECT_EQ(snapshot_totals(slots_).count, 0U);
}

TEST(SnapshotPlaces, AreThoseAskedForThoseOnTheWayAndTheEnd) {
  TextJob job;
  job.prompt.resize(1000);
  job.snapshots = {0, 130, 600, 1000, 1200};
  const auto places = [&](std::uint64_t cut, std::uint64_t begin) {
    std::vector<std::uint64_t> all;
    for (const auto& [place, is_asked] :
         snapshot_places(job, {.cut_tokens = cut, .snapshot_every = 300}, begin)) {
      all.push_back(is_asked ? place : place + 10000);
    }
    return all;
  };
  EXPECT_EQ(places(1, 0), (std::vector<std::uint64_t>{130, 10300, 600, 10900, 999}));
  EXPECT_EQ(places(1, 600), (std::vector<std::uint64_t>{10900, 999}));
  EXPECT_EQ(places(100, 0), (std::vector<std::uint64_t>{100, 10300, 600, 900}));
  job.snapshots = {990};
  EXPECT_EQ(places(1, 0), (std::vector<std::uint64_t>{10300, 10600, 10900, 990}));
}

}  // namespace
}  // namespace moepack::kept_text_test
