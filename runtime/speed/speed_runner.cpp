#include "runtime/speed/speed_runner.h"

#include <algorithm>
#include <utility>

#include "formats/base/elapsed.h"
#include "runtime/model/delta_block.h"
#include "runtime/speed/recurrent_bytes.h"

namespace moepack {
namespace {

constexpr double kMeterSeconds = 0.05;  // between two repetitions

}  // namespace

std::string speed_test_name(const SpeedTest& test) {
  std::string name;
  if (test.prompt > 0) name = "pp" + std::to_string(test.prompt);
  if (test.generated > 0) {
    name += (name.empty() ? "tg" : "+tg") + std::to_string(test.generated);
  }
  return test.depth == 0 ? name : name + " @ d" + std::to_string(test.depth);
}

std::vector<double> SpeedResult::samples_ts() const {
  std::vector<double> rates;
  rates.reserve(samples_ns.size());
  for (const double ns : samples_ns) {
    rates.push_back(ns > 0 ? 1e9 * static_cast<double>(test.tokens()) / ns : 0.0);
  }
  return rates;
}

SpeedRunner::SpeedRunner(Engine& engine, const SpeedOptions& options)
    : engine_(engine), options_(options) {}

std::vector<std::int32_t> SpeedRunner::random_tokens(std::uint64_t count) {
  const std::uint64_t vocab = engine_.config().vocab_size;
  std::vector<std::int32_t> tokens(count);
  for (std::int32_t& token : tokens) token = static_cast<std::int32_t>(random_() % vocab);
  return tokens;
}

Status SpeedRunner::feed(Sequence& sequence, std::span<const std::int32_t> tokens,
                         bool wants_logits) {
  Slice slice{&sequence, tokens, tokens.size() - 1, {}};
  if (wants_logits) {  // as greedy decoding does
    slice.top = [](std::size_t, std::int32_t) { return Status::ok(); };
    slice.top_of = engine_.config().vocab_size;
  }
  return engine_.forward(std::span(&slice, 1)).front();
}

// A prompt at any depth, where the memory plan has room for every expert.
Status SpeedRunner::fill_cache() {
  if (std::exchange(is_cache_filled_, true)) return Status::ok();
  if (!engine_.memory_plan().holds_all_experts()) return Status::ok();
  const std::uint64_t chunk = 512;  // misses an expert of 256, 8 of which are used, once in 1e7
  MOE_ASSIGN_OR_RETURN(Sequence sequence, engine_.make_sequence());
  for (std::uint64_t seen = 0; seen < chunk; seen += sequence.position()) {
    sequence.reset();
    const auto tokens = random_tokens(std::min(chunk - seen, engine_.context()));
    MOE_RETURN_IF_ERROR(feed(sequence, tokens, false));
  }
  return Status::ok();
}

// Goes on from where base_ is if that is not too far.
Status SpeedRunner::go_to_depth(std::uint64_t depth) {
  if (!base_.has_value()) {
    MOE_ASSIGN_OR_RETURN(Sequence sequence, engine_.make_sequence());
    base_.emplace(std::move(sequence));
  }
  if (base_->position() > depth) base_->reset();
  if (base_->position() == depth) return Status::ok();
  return feed(*base_, random_tokens(depth - base_->position()), false);
}

// One repetition; a warm-up where `result` is null.
Status SpeedRunner::repeat(const SpeedTest& test, SpeedResult* result) {
  const std::vector<std::int32_t> tokens = random_tokens(test.tokens());
  const std::span<const std::int32_t> all = tokens;
  MOE_ASSIGN_OR_RETURN(Sequence sequence, base_->copy());
  engine_.reset_stats();
  const StageSeconds before = engine_.stage_times().read();
  const Clock::time_point start = Clock::now();
  if (test.prompt > 0) MOE_RETURN_IF_ERROR(feed(sequence, all.first(test.prompt), true));
  for (std::uint64_t i = test.prompt; i < all.size(); ++i) {
    MOE_RETURN_IF_ERROR(feed(sequence, all.subspan(i, 1), true));
  }
  const double seconds = seconds_since(start);
  MOE_RETURN_IF_ERROR(engine_.adapt_hot_experts().status());
  if (result == nullptr) return Status::ok();
  result->stages += engine_.stage_times().read().since(before);
  result->samples_ns.push_back(seconds * 1e9);
  const ExpertStoreStats read = engine_.expert_stats();
  result->experts += read;
  result->experts.allocated_bytes = read.allocated_bytes;  // of one store, not of several
  result->agreement.choices += engine_.routing_agreement().choices;
  result->agreement.unchanged += engine_.routing_agreement().unchanged;
  return Status::ok();
}

// A fresh state's saved bytes are its recurrent part; what a whole block of tokens adds is keys and
// values.
Result<double> SpeedRunner::token_bytes(const SpeedTest& test) {
  if (test.prompt > 0) return 0.0;
  const SequenceState& state = base_->state();
  const auto recurrent = static_cast<double>(state.saved_bytes(0));
  const double of_position =
      (static_cast<double>(state.saved_bytes(kDeltaBlock)) - recurrent) / kDeltaBlock;
  const std::uint64_t middle = test.depth + test.generated / 2;
  return static_cast<double>(engine_.model_size().token_bytes) +
         static_cast<double>(middle) * of_position +
         recurrent_token_bytes(engine_.config(), state.delta_form());
}

double SpeedRunner::read_rate() const {
  return options_.meter == nullptr ? 0.0 : options_.meter->measure(kMeterSeconds);
}

Result<SpeedResult> SpeedRunner::run(const SpeedTest& test) {
  if (test.tokens() == 0) return invalid_argument("a test has no tokens", "give -p or -n");
  SpeedResult result;
  result.test = test;
  result.start = std::chrono::system_clock::now();
  if (options_.warm_up) MOE_RETURN_IF_ERROR(fill_cache());
  MOE_RETURN_IF_ERROR(go_to_depth(test.depth));
  MOE_ASSIGN_OR_RETURN(result.token_bytes, token_bytes(test));
  if (options_.warm_up) MOE_RETURN_IF_ERROR(repeat(test, nullptr));
  double before = read_rate();
  for (std::uint32_t i = 0; i < options_.repetitions; ++i) {
    MOE_RETURN_IF_ERROR(repeat(test, &result));
    const double behind = read_rate();
    result.read_rate += (before + behind) / 2 / options_.repetitions;
    before = behind;
  }
  return result;
}

}  // namespace moepack
