// Sequences that find no memory: an error that says what for, and the slot is free again.
#include <gtest/gtest.h>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "runtime/model/cpu_forward.h"
#include "runtime/model/layer_state.h"
#include "runtime/model/sequence.h"
#include "tests/support/allocation_faults.h"
#include "tests/support/status_matchers.h"

namespace moepack::sequence_memory_test {
namespace {

using test::AllocationFault;

constexpr StateIdentity kIdentity{.model = 42, .context = 300};
constexpr std::size_t kFaults[] = {1, 1000000};  // allocations that fail, one behind the other

// Two layers of each kind, of a few numbers.
ModelConfig small_config() {
  ModelConfig config;
  config.layers = {LayerSpec{.mixer = GatedDeltaNetSpec{}}, LayerSpec{.mixer = FullAttentionSpec{}},
                   LayerSpec{.mixer = GatedDeltaNetSpec{}},
                   LayerSpec{.mixer = FullAttentionSpec{}}};
  config.num_layers = static_cast<std::uint32_t>(config.layers.size());
  config.num_heads = 2;
  config.num_kv_heads = 1;
  config.head_dim = 4;
  config.linear_key_heads = 1;
  config.linear_value_heads = 2;
  config.linear_key_dim = 3;
  config.linear_value_dim = 5;
  config.linear_conv_taps = 4;
  return config;
}

// A model's engine, as far as sequences are concerned.
struct SequenceMaker {
  ModelConfig config = small_config();
  std::shared_ptr<SequenceSlots> slots = std::make_shared<SequenceSlots>(2);

  Result<Sequence> make() const {
    return Sequence::create(kIdentity, slots, [this] {
      return make_cpu_state(config, kIdentity.context,
                            StateForm{.kv = {}, .delta = DeltaForm::kBlocks});
    });
  }
  // Whether exactly `count` slots are free.
  bool has_free(std::uint32_t count) const {
    std::uint32_t taken = 0;
    while (slots->take()) ++taken;
    for (std::uint32_t i = 0; i < taken; ++i) slots->give_back();
    return taken == count;
  }
};

// Calls `make`, which gives a Result<Sequence>, with every allocation failing in turn.
template <typename Make>
void drill_sequence(const SequenceMaker& maker, std::uint32_t free_before, std::size_t count,
                    const Make& make, std::vector<std::string>& messages) {
  bool happened = true;
  for (std::size_t first = 1; happened; ++first) {
    ASSERT_LT(first, 1000U);
    std::optional<Result<Sequence>> made;
    bool threw = false;
    {
      const AllocationFault fault(first, count);
      try {
        made.emplace(make());
      } catch (const std::bad_alloc&) {
        threw = true;
      }
      happened = fault.happened();
    }
    ASSERT_FALSE(threw) << "at allocation " << first;
    if (!made->is_ok()) {
      test::expect_error(made->status(), StatusCode::kIo, {"out of memory"});
      messages.push_back(made->status().message());
    }
    EXPECT_EQ(made->is_ok(), !happened) << first;
    made.reset();
    EXPECT_TRUE(maker.has_free(free_before)) << first;
  }
}

bool names(const std::vector<std::string>& messages, const std::string& text) {
  for (const std::string& message : messages) {
    if (message.find(text) != std::string::npos) return true;
  }
  return false;
}

std::string recurrent_state_of(const ModelConfig& config) {
  const std::uint64_t bytes =
      layer_state_bytes(config, LayerSpec{.mixer = GatedDeltaNetSpec{}}, 300,
                        StateForm{.kv = {}, .delta = DeltaForm::kBlocks}) -
      sizeof(LayerState);
  return "the recurrent state of a layer (" + std::to_string(bytes) + " bytes)";
}

TEST(SequenceMemory, AFreshSequenceSaysWhatFoundNoMemory) {
  const SequenceMaker maker;
  std::vector<std::string> messages;
  for (const std::size_t count : kFaults) {
    drill_sequence(
        maker, 2, count, [&] { return maker.make(); }, messages);
  }
  EXPECT_TRUE(names(messages, recurrent_state_of(maker.config))) << messages.size();
}

TEST(SequenceMemory, ACopySaysWhatFoundNoMemory) {
  const SequenceMaker maker;
  ASSERT_OK_AND_ASSIGN(const std::unique_ptr<SequenceState> state,
                       make_cpu_state(maker.config, kIdentity.context,
                                      StateForm{.kv = {}, .delta = DeltaForm::kBlocks}));
  std::vector<std::byte> saved;
  ASSERT_OK_AND_ASSIGN(saved, save_sequence(kIdentity, 0, *state));
  ASSERT_OK_AND_ASSIGN(Sequence sequence, maker.make());
  // Tokens, so that there are keys and values to copy.
  std::vector<std::byte> tokens(sequence.state().saved_bytes(270));
  ASSERT_OK(sequence.state().load(270, tokens));
  sequence.advance(270);
  std::vector<std::string> messages;
  for (const std::size_t count : kFaults) {
    drill_sequence(
        maker, 1, count, [&] { return sequence.copy(); }, messages);
  }
  EXPECT_TRUE(names(messages, recurrent_state_of(maker.config)));
  EXPECT_TRUE(names(messages, "keys and values of a layer ("));
  EXPECT_OK(sequence.copy());
}

TEST(SequenceMemory, RestoringWithoutMemoryLeavesAFreshSequence) {
  const SequenceMaker maker;
  ASSERT_OK_AND_ASSIGN(Sequence source, maker.make());
  ASSERT_OK(source.state().load(270, std::vector<std::byte>(source.state().saved_bytes(270))));
  source.advance(270);
  ASSERT_OK_AND_ASSIGN(const std::vector<std::byte> bytes, source.save());
  ASSERT_OK_AND_ASSIGN(Sequence sequence, maker.make());
  Status status;
  {
    const AllocationFault fault(1, 1);
    status = sequence.restore(bytes);
  }
  test::expect_error(status, StatusCode::kIo, {"out of memory", "keys and values of a layer ("});
  EXPECT_EQ(sequence.position(), 0U);
  ASSERT_OK(sequence.restore(bytes));
  EXPECT_EQ(sequence.position(), 270U);
}

// ---- The slot comes before the memory ----

// A state that counts how often one is made.
class CountedState final : public SequenceState {
 public:
  explicit CountedState(int& made) : made_(made) { ++made_; }
  void reset() override {}
  Result<std::unique_ptr<SequenceState>> copy(std::uint64_t) const override {
    return std::unique_ptr<SequenceState>(std::make_unique<CountedState>(made_));
  }
  std::uint64_t memory_bytes() const override { return 0; }
  bool has_recurrent() const override { return false; }
  DeltaForm delta_form() const override { return DeltaForm::kTokens; }
  std::uint64_t saved_bytes(std::uint64_t) const override { return 0; }
  Status save(std::uint64_t, std::span<std::byte>) const override { return Status::ok(); }
  Status load(std::uint64_t, std::span<const std::byte>) override { return Status::ok(); }
  std::uint64_t recurrent_bytes(std::uint64_t) const override { return 0; }
  Status save_recurrent(std::uint64_t, std::span<std::byte>) const override { return Status::ok(); }
  Status load_recurrent(std::uint64_t, std::span<const std::byte>) override { return Status::ok(); }

 private:
  int& made_;
};

TEST(SequenceMemory, WithoutASlotNoStateIsMade) {
  int made = 0;
  const auto slots = std::make_shared<SequenceSlots>(1);
  const StateMaker make_state = [&]() -> Result<std::unique_ptr<SequenceState>> {
    return std::unique_ptr<SequenceState>(std::make_unique<CountedState>(made));
  };
  ASSERT_OK_AND_ASSIGN(const Sequence only, Sequence::create(kIdentity, slots, make_state));
  test::expect_error(Sequence::create(kIdentity, slots, make_state).status(),
                     StatusCode::kInvalidArgument, {"1 sequences"});
  test::expect_error(only.copy().status(), StatusCode::kInvalidArgument, {"1 sequences"});
  EXPECT_EQ(made, 1);
}

TEST(SequenceMemory, SlotsOfSeveralEnginesGoBackToTheirOwn) {
  int made = 0;
  const StateMaker make_state = [&]() -> Result<std::unique_ptr<SequenceState>> {
    return std::unique_ptr<SequenceState>(std::make_unique<CountedState>(made));
  };
  auto first = std::make_shared<SequenceSlots>(1);
  const auto second = std::make_shared<SequenceSlots>(1);
  ASSERT_OK_AND_ASSIGN(Sequence a, Sequence::create(kIdentity, first, make_state));
  ASSERT_OK_AND_ASSIGN(Sequence b, Sequence::create(kIdentity, second, make_state));
  EXPECT_EQ(first.use_count(), 2) << "the sequence keeps the slots of an engine that has ended";
  const std::weak_ptr<SequenceSlots> watched = first;
  first.reset();
  a = std::move(b);
  EXPECT_TRUE(watched.expired());
  EXPECT_FALSE(second->take());
}

}  // namespace
}  // namespace moepack::sequence_memory_test
