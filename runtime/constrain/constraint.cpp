#include "runtime/constrain/constraint.h"

#include <algorithm>
#include <limits>
#include <optional>
#include <utility>

#include "runtime/constrain/awaited_text.h"
#include "runtime/constrain/grammar.h"
#include "runtime/constrain/grammar_machine.h"
#include "runtime/constrain/token_bytes.h"

namespace moepack {
namespace {

std::vector<bool> bound_markers(const Grammar& grammar, const TokenBytes& tokens) {
  std::vector<bool> is_bound;
  for (const std::string& text : grammar.graph.markers()) {
    is_bound.push_back(tokens.find_marker(text) >= 0);
  }
  return is_bound;
}

// After a text of any length, which is no marker.
GrammarMachine::State state_after_text(GrammarMachine& machine, GrammarMachine::State state,
                                       std::string_view text) {
  for (const char byte : text) {
    if (state == GrammarMachine::kDead) break;
    if (machine.is_full()) state = machine.forget_all_but(state);
    state = machine.step(state, static_cast<std::uint8_t>(byte), false);
  }
  return state;
}

class GrammarConstraint : public TokenFilter {
 public:
  GrammarConstraint(std::shared_ptr<const Grammar> grammar,
                    std::shared_ptr<const TokenBytes> tokens, std::string starts_after,
                    std::string may_begin, std::string_view begun)
      : grammar_(std::move(grammar)),
        tokens_(std::move(tokens)),
        machine_(grammar_->graph, bound_markers(*grammar_, *tokens_)) {
    for (const GrammarTrigger& trigger : grammar_->triggers) {
      triggers_.emplace_back(trigger.text, *tokens_);
    }
    if (!starts_after.empty()) starts_after_.emplace(std::move(starts_after), *tokens_);
    if (starts_after_ && !may_begin.empty()) opening_.emplace(std::move(may_begin), *tokens_);
    if (starts_after_ && !opening_) {
      phase_ = Phase::kBefore;
    } else if (!grammar_->is_lazy) {
      wake(grammar_->start);
      state_ = state_after_text(machine_, state_, begun);
    }
    if (!grammar_->is_lazy) form_fewest_ = machine_.fewest(machine_.start(grammar_->start));
  }

  bool is_active() const override {
    switch (phase_) {
      case Phase::kBefore:
        return !grammar_->is_lazy || starts_after_->is_begun();
      case Phase::kAsleep:
        return std::any_of(triggers_.begin(), triggers_.end(),
                           [](const AwaitedText& t) { return t.is_begun(); });
      case Phase::kAwake:
        return true;
      case Phase::kOver:
        return false;
    }
    return false;
  }

  bool allows(std::int32_t id) override {
    const TokenBytes::Kind kind = tokens_->kind(id);
    if (phase_ == Phase::kOver) return true;
    if (opens_with(id)) return true;
    if (phase_ == Phase::kAwake) {
      if (state_ == GrammarMachine::kDead) return false;  // only the opening goes on
      if (machine_.is_full()) forget();
      const std::optional<std::uint64_t> fewest = fewest_after(id);
      if (!fewest || is_in_time(*fewest)) return fewest.has_value();
      const std::vector<std::uint64_t>& allowed = allowed_now();
      return (allowed[static_cast<std::size_t>(id) / 64] >> (id % 64) & 1U) != 0;
    }
    if (kind == TokenBytes::Kind::kNothing) return false;
    if (phase_ == Phase::kBefore && !grammar_->is_lazy) {
      // Thoughts alone are no text of the form.
      if (kind == TokenBytes::Kind::kEnd) return false;
      if (!may_think_on()) return starts_after_->goes_on_with(id, tokens_->bytes(id));
    }
    const std::optional<Woken> woken = woken_by(id);
    return !woken || woken->state != GrammarMachine::kDead;
  }

  void set_remaining(std::uint64_t tokens) override { remaining_ = tokens; }

  void mask(std::span<float> logits) override {
    if (phase_ == Phase::kOver) return;
    if (phase_ != Phase::kAwake) {
      for (std::size_t i = 0; i < logits.size(); ++i) {
        if (!allows(static_cast<std::int32_t>(i))) logits[i] = kForbidden;
      }
      return;
    }
    const std::vector<std::uint64_t>& allowed = opening_ ? allowed_at_opening() : allowed_now();
    for (std::size_t i = 0; i < logits.size(); i += 64) {
      const std::uint64_t bits = i / 64 < allowed.size() ? allowed[i / 64] : 0;
      if (bits == ~std::uint64_t{0}) continue;
      const std::size_t end = std::min(logits.size(), i + 64);
      for (std::size_t j = i; j < end; ++j) {
        if ((bits >> (j - i) & 1U) == 0) logits[j] = kForbidden;
      }
    }
  }

  void accept(std::int32_t id) override {
    if (phase_ == Phase::kOver) return;
    if (tokens_->kind(id) == TokenBytes::Kind::kEnd) {
      phase_ = Phase::kOver;
      return;
    }
    if (accept_opening(id)) return;
    if (phase_ == Phase::kAwake) {
      state_ = walked(state_, id);
    } else if (const std::optional<Woken> woken = woken_by(id)) {
      accept_woken(*woken);
    } else if (tokens_->kind(id) != TokenBytes::Kind::kNothing) {
      if (phase_ == Phase::kBefore) starts_after_->accept(tokens_->bytes(id));
      for (AwaitedText& trigger : triggers_) trigger.accept(tokens_->bytes(id));
    }
    settle(id);
  }

 private:
  static constexpr float kForbidden = -std::numeric_limits<float>::infinity();
  enum class Phase : std::uint8_t { kBefore, kAsleep, kAwake, kOver };
  struct Mask {
    std::vector<std::uint64_t> allowed;  // a bit for each id, lowest first
    std::uint64_t most = 0;              // that must come after one of them

    void allow(std::int32_t id) {
      allowed[static_cast<std::size_t>(id) / 64] |= std::uint64_t{1} << (id % 64);
    }
  };
  struct Closing {
    GrammarMachine::State state = GrammarMachine::kDead;
    std::uint64_t remaining = 0;
    std::vector<std::uint64_t> allowed;
  };
  struct Woken {
    GrammarMachine::State state = GrammarMachine::kDead;
    bool only_sleeps = false;  // what was awaited has come, and a lazy grammar sleeps on
  };

  // Whether there is room for another token of thoughts before their end and a text of the form.
  bool may_think_on() const {
    return remaining_ == kNoLimit ||
           starts_after_->fewest() + form_fewest_ + kLongestJump < remaining_;
  }

  bool opens_with(std::int32_t id) const {
    const TokenBytes::Kind kind = tokens_->kind(id);
    const bool is_text = kind == TokenBytes::Kind::kText || kind == TokenBytes::Kind::kMarker;
    // What has begun so that no text of the form goes on from it goes on, late as it may be.
    return opening_ && is_text && (state_ == GrammarMachine::kDead || may_think_on()) &&
           opening_->take(id, tokens_->bytes(id)).has_value();
  }

  // Whether the token goes on with the opening; else there is none any more.
  bool accept_opening(std::int32_t id) {
    if (!opens_with(id)) {
      opening_.reset();
      return false;
    }
    const std::string_view bytes = tokens_->bytes(id);
    const OpeningText::Taken taken = *opening_->take(id, bytes);
    opening_->accept(taken);
    state_ = walked(state_, id);
    if (taken.rest.has_value()) {
      opening_.reset();
      phase_ = Phase::kBefore;
      starts_after_->accept(bytes.substr(bytes.size() - *taken.rest));
    }
    return true;
  }

  const std::vector<std::uint64_t>& allowed_at_opening() {
    std::vector<std::uint64_t> allowed((tokens_->size() + 63) / 64);
    if (state_ != GrammarMachine::kDead) allowed = allowed_now();
    for (std::size_t id = 0; id < tokens_->size(); ++id) {
      if (opens_with(static_cast<std::int32_t>(id)))
        allowed[id / 64] |= std::uint64_t{1} << (id % 64);
    }
    at_opening_ = std::move(allowed);
    return at_opening_;
  }

  void wake(GrammarNodeId entry) {
    phase_ = Phase::kAwake;
    state_ = machine_.start(entry);
  }

  GrammarMachine::State walked(GrammarMachine::State state, std::int32_t id) {
    const TokenBytes::Kind kind = tokens_->kind(id);
    if (kind != TokenBytes::Kind::kText && kind != TokenBytes::Kind::kMarker) {
      return GrammarMachine::kDead;
    }
    return walked(state, tokens_->bytes(id), kind == TokenBytes::Kind::kMarker);
  }

  GrammarMachine::State walked(GrammarMachine::State state, std::string_view bytes,
                               bool is_marker) {
    for (const char byte : bytes) {
      if (state == GrammarMachine::kDead) break;
      state = machine_.step(state, static_cast<std::uint8_t>(byte), is_marker);
    }
    return state;
  }

  // The tokens that must still come after the token, if the graph allows it; the end token not
  // included.
  std::optional<std::uint64_t> fewest_after(std::int32_t id) {
    if (tokens_->kind(id) == TokenBytes::Kind::kEnd) {
      return machine_.may_end(state_) ? std::optional<std::uint64_t>(0) : std::nullopt;
    }
    const GrammarMachine::State state = walked(state_, id);
    if (state == GrammarMachine::kDead) return std::nullopt;
    return machine_.fewest(state);
  }

  // Whether a token after which so many must come leaves room for them and the end token. The end
  // token itself is always in time: where it may come, nothing else is missing.
  bool is_in_time(std::uint64_t fewest) const {
    return remaining_ == kNoLimit || fewest + 2 <= remaining_;
  }

  // What the token wakes, if it does.
  std::optional<Woken> woken_by(std::int32_t id) {
    if (tokens_->kind(id) == TokenBytes::Kind::kNothing) return std::nullopt;
    const std::string_view bytes = tokens_->bytes(id);
    const bool is_marker = tokens_->kind(id) == TokenBytes::Kind::kMarker;
    for (std::size_t i = 0; i < triggers_.size(); ++i) {
      // Text in thoughts may speak of a call; a token of the vocabulary begins one there too.
      if (phase_ == Phase::kBefore && !triggers_[i].is_token()) continue;
      const auto rest = triggers_[i].rest_after(id, bytes);
      if (!rest) continue;
      const GrammarMachine::State state = machine_.start(grammar_->triggers[i].entry);
      return Woken{walked(state, bytes.substr(bytes.size() - *rest), is_marker), false};
    }
    if (phase_ != Phase::kBefore) return std::nullopt;
    const auto rest = starts_after_->rest_after(id, bytes);
    if (!rest) return std::nullopt;
    if (grammar_->is_lazy) return Woken{GrammarMachine::kDead + 1, true};
    const GrammarMachine::State state = machine_.start(grammar_->start);
    return Woken{walked(state, bytes.substr(bytes.size() - *rest), is_marker), false};
  }

  void accept_woken(const Woken& woken) {
    phase_ = woken.only_sleeps ? Phase::kAsleep : Phase::kAwake;
    state_ = woken.only_sleeps ? GrammarMachine::kDead : woken.state;
    for (AwaitedText& trigger : triggers_) trigger.reset();
  }

  // After a token: sleeps again where a call is complete; gives up on a text that is forbidden;
  // forgets what fills the memory.
  void settle(std::int32_t id) {
    if (phase_ != Phase::kAwake) return;
    if (state_ == GrammarMachine::kDead) {
      phase_ = grammar_->is_lazy ? Phase::kAsleep : Phase::kOver;
    } else if (grammar_->sleeps_again && machine_.may_end(state_)) {
      phase_ = Phase::kAsleep;
      state_ = GrammarMachine::kDead;
      // What lies behind the call in the same token may begin the next one.
      for (AwaitedText& trigger : triggers_) trigger.accept(tokens_->bytes(id));
    }
    if (machine_.is_full()) forget();
  }

  void forget() {
    masks_.clear();
    closing_.reset();
    state_ = machine_.forget_all_but(state_);
  }

  // What the graph allows and, where little may still come, is in time; all that the graph allows
  // where nothing is in time.
  const std::vector<std::uint64_t>& allowed_now() {
    if (closing_ && closing_->state == state_ && closing_->remaining == remaining_) {
      return closing_->allowed;
    }
    const Mask& usual = usual_mask();
    const bool is_late =
        !is_in_time(machine_.fewest(state_)) && machine_.fewest(state_) > remaining_ + kLongestJump;
    if (is_late || is_in_time(usual.most)) return usual.allowed;
    Mask mask = computed_mask(true);  // may forget states, and masks
    if (is_empty(mask)) mask = usual_mask();
    closing_ = Closing{state_, remaining_, std::move(mask.allowed)};
    return closing_->allowed;
  }

  const Mask& usual_mask() {
    const auto found = masks_.find(state_);
    if (found != masks_.end()) return found->second;
    if (masks_.size() >= kMaxMasks) masks_.clear();
    Mask mask = computed_mask(false);  // may forget states, and masks
    if (is_empty(mask)) {
      // Only a vocabulary that lacks single bytes leads here: the text can but end.
      for (const std::int32_t id : tokens_->end_ids()) mask.allow(id);
    }
    return masks_[state_] = std::move(mask);
  }

  static bool is_empty(const Mask& mask) {
    return std::all_of(mask.allowed.begin(), mask.allowed.end(),
                       [](std::uint64_t bits) { return bits == 0; });
  }

  Mask computed_mask(bool is_closing) {
    Mask mask;
    mask.allowed.resize((tokens_->size() + 63) / 64);
    const auto allow = [&](std::int32_t id, std::uint64_t fewest) {
      if (is_closing && !is_in_time(fewest)) return;
      mask.allow(id);
      mask.most = std::max(mask.most, fewest);
    };
    const GrammarMachine::PlainRoom room = machine_.plain_room(state_);
    const bool has_room =
        room.characters >= tokens_->longest_plain() || (room.characters > 0 && room.is_all);
    if (has_room && (!is_closing || is_in_time(room.fewest))) {
      tokens_->add_plain(room.characters, mask.allowed);
      mask.most = room.fewest;
      walk_trie(tokens_->others(), allow);
    } else {
      walk_trie(tokens_->all(), allow);
    }
    for (const auto ids : {tokens_->markers(), tokens_->end_ids(), tokens_->long_tokens()}) {
      for (const std::int32_t id : ids) {
        if (const std::optional<std::uint64_t> fewest = fewest_after(id)) {
          if (tokens_->kind(id) == TokenBytes::Kind::kEnd) {
            mask.allow(id);
          } else {
            allow(id, *fewest);
          }
        }
        if (machine_.is_full()) forget();
      }
    }
    return mask;
  }

  template <typename Allow>
  void walk_trie(std::span<const TokenBytes::TrieNode> trie, const Allow& allow) {
    // states[d]: after the first d bytes of the path.
    std::vector<GrammarMachine::State> states(TokenBytes::kMaxDepth + 1);
    std::string path(TokenBytes::kMaxDepth + 1, '\0');
    states[0] = state_;
    for (std::size_t i = 0; i < trie.size();) {
      const TokenBytes::TrieNode& node = trie[i];
      path[node.depth] = static_cast<char>(node.byte);
      const GrammarMachine::State state = machine_.step(states[node.depth - 1U], node.byte, false);
      states[node.depth] = state;
      if (state == GrammarMachine::kDead) {
        i += node.skip;
        continue;
      }
      for (std::int32_t id = node.token; id >= 0; id = tokens_->next_same(id)) {
        allow(id, machine_.fewest(state));
      }
      ++i;
      if (machine_.is_full()) {
        forget();
        states[0] = state_;
        for (std::size_t d = 1; d <= node.depth; ++d) {
          states[d] = machine_.step(states[d - 1], static_cast<std::uint8_t>(path[d]), false);
        }
      }
    }
  }

  static constexpr std::size_t kMaxMasks = 32;
  static constexpr std::uint64_t kNoLimit = std::numeric_limits<std::uint64_t>::max();
  // A token of several bytes may save so many; of texts that miss more nothing is asked.
  static constexpr std::uint64_t kLongestJump = 16;

  std::shared_ptr<const Grammar> grammar_;
  std::shared_ptr<const TokenBytes> tokens_;
  GrammarMachine machine_;
  std::vector<AwaitedText> triggers_;
  std::optional<AwaitedText> starts_after_;
  std::optional<OpeningText> opening_;  // while the text may still begin with it
  std::vector<std::uint64_t> at_opening_;
  Phase phase_ = Phase::kAsleep;
  GrammarMachine::State state_ = GrammarMachine::kDead;
  std::uint64_t remaining_ = kNoLimit;
  std::uint64_t form_fewest_ = 0;  // tokens of a whole text of the form
  std::unordered_map<GrammarMachine::State, Mask> masks_;
  std::optional<Closing> closing_;  // the last mask of a text that must close
};

}  // namespace

std::unique_ptr<TokenFilter> make_constraint(std::shared_ptr<const Grammar> grammar,
                                             std::shared_ptr<const TokenBytes> tokens,
                                             std::string starts_after, std::string may_begin,
                                             std::string_view begun) {
  return std::make_unique<GrammarConstraint>(std::move(grammar), std::move(tokens),
                                             std::move(starts_after), std::move(may_begin), begun);
}

bool may_begin_with(const Grammar& grammar, const TokenBytes& tokens, std::string_view begun) {
  GrammarMachine machine(grammar.graph, bound_markers(grammar, tokens));
  return state_after_text(machine, machine.start(grammar.start), begun) != GrammarMachine::kDead;
}

}  // namespace moepack
