#include "runtime/schedule/kept_text.h"

#include <algorithm>
#include <iterator>
#include <limits>
#include <set>
#include <utility>

namespace moepack {
namespace {

constexpr double kAskedWeight = 4;

double weight_of_age(const KeptText& kept, std::uint64_t texts_started) {
  return 1.0 / (1.0 + static_cast<double>(texts_started - std::min(texts_started, kept.last_used)));
}

// What is lost with a text of so many tokens.
double worth(const KeptText& kept, std::uint64_t tokens, std::uint64_t texts_started) {
  return static_cast<double>(tokens) * weight_of_age(kept, texts_started);
}

// Whether a state after so many tokens may be used: one with the bits of computing all, or, where
// cut_tokens is not 1, one behind an answer, whose last bits may differ from that.
bool is_exact_at(const KeptText& kept, std::uint64_t tokens, std::uint64_t cut_tokens) {
  return tokens % cut_tokens == 0 || tokens > kept.prompt_tokens;
}

// The place where a text without recurrent states is cut.
std::uint64_t last_exact(const KeptText& kept, std::uint64_t most, std::uint64_t cut_tokens) {
  return is_exact_at(kept, most, cut_tokens) ? most : most / cut_tokens * cut_tokens;
}

// What is lost where a prompt goes on in the slot itself: nothing to speak of where at least half
// of the text there stays.
double cost_of_staying(const KeptText& kept, const UsablePrefix& prefix,
                       std::uint64_t texts_started) {
  if (kept.is_busy) return std::numeric_limits<double>::infinity();
  const std::uint64_t lost = kept.tokens.size() - prefix.tokens;
  return lost <= prefix.tokens ? 0 : worth(kept, lost, texts_started);
}

struct Cheapest {
  std::size_t slot = 0;
  double worth = std::numeric_limits<double>::infinity();
};

Cheapest cheapest_slot(std::span<const KeptText> slots, std::uint64_t texts_started) {
  Cheapest best;
  for (std::size_t i = 0; i < slots.size(); ++i) {
    if (slots[i].is_busy) continue;
    const double value = worth(slots[i], slots[i].tokens.size(), texts_started);
    if (value < best.worth) best = {i, value};
  }
  return best;
}

}  // namespace

void KeptText::clear() {
  if (sequence.has_value()) sequence->reset();
  tokens.clear();
  snapshots.clear();
  prompt_tokens = 0;
}

Status KeptText::take_snapshot(bool is_asked) {
  if (sequence->snapshot_bytes() == 0) return Status::ok();
  const std::uint64_t now = sequence->position();
  for (KeptSnapshot& other : snapshots) {
    if (other.states->position() != now) continue;
    other.is_asked = other.is_asked || is_asked;
    return Status::ok();
  }
  MOE_ASSIGN_OR_RETURN(StateSnapshot states, sequence->snapshot());
  snapshots.push_back({std::make_shared<const StateSnapshot>(std::move(states)), is_asked});
  return Status::ok();
}

UsablePrefix usable_prefix(const KeptText& kept, std::span<const std::int32_t> prompt,
                           std::uint64_t cut_tokens) {
  UsablePrefix prefix;
  if (!kept.sequence.has_value() || !kept.sequence->status().is_ok() || prompt.empty()) {
    return prefix;
  }
  const auto parted =
      std::mismatch(kept.tokens.begin(), kept.tokens.end(), prompt.begin(), prompt.end());
  prefix.common = static_cast<std::uint64_t>(parted.first - kept.tokens.begin());
  const std::uint64_t most = std::min<std::uint64_t>(prefix.common, prompt.size() - 1);
  if (most == kept.tokens.size() && is_exact_at(kept, most, cut_tokens)) {
    prefix.tokens = most;
    return prefix;
  }
  if (kept.sequence->can_truncate()) {
    prefix.tokens = last_exact(kept, most, cut_tokens);
    prefix.states = std::make_shared<const StateSnapshot>(prefix.tokens, std::vector<std::byte>());
    return prefix;
  }
  for (const KeptSnapshot& snapshot : kept.snapshots) {
    const std::uint64_t position = snapshot.states->position();
    if (position > most || !is_exact_at(kept, position, cut_tokens)) continue;
    prefix.tokens = position;
    prefix.states = snapshot.states;
  }
  return prefix;
}

Status go_back(KeptText& kept, const UsablePrefix& prefix) {
  if (prefix.tokens == 0) {
    kept.clear();
    return Status::ok();
  }
  if (prefix.states != nullptr) {
    const Status status = kept.sequence->rewind(*prefix.states);
    if (!status.is_ok()) {
      kept.clear();
      return status;
    }
  }
  kept.tokens.resize(prefix.tokens);
  kept.prompt_tokens = std::min(kept.prompt_tokens, prefix.tokens);
  std::erase_if(kept.snapshots, [&](const KeptSnapshot& snapshot) {
    return snapshot.states->position() > prefix.tokens;
  });
  return Status::ok();
}

Status copy_prefix(const KeptText& kept, const UsablePrefix& prefix, KeptText& target) {
  target.clear();
  target.sequence.reset();  // its place is the copy's
  Result<Sequence> copy =
      prefix.states == nullptr ? kept.sequence->copy() : kept.sequence->copy_at(*prefix.states);
  if (!copy.is_ok()) return copy.status();
  target.sequence.emplace(std::move(copy).value());
  target.tokens.assign(kept.tokens.begin(),
                       kept.tokens.begin() + static_cast<std::ptrdiff_t>(prefix.tokens));
  target.prompt_tokens = std::min(kept.prompt_tokens, prefix.tokens);
  std::copy_if(
      kept.snapshots.begin(), kept.snapshots.end(), std::back_inserter(target.snapshots),
      [&](const KeptSnapshot& snapshot) { return snapshot.states->position() <= prefix.tokens; });
  return Status::ok();
}

SnapshotTotals snapshot_totals(std::span<const KeptText> slots) {
  std::set<const StateSnapshot*> seen;
  SnapshotTotals totals;
  for (const KeptText& slot : slots) {
    for (const KeptSnapshot& snapshot : slot.snapshots) {
      if (!seen.insert(snapshot.states.get()).second) continue;
      ++totals.count;
      totals.bytes += snapshot.states->size_bytes();
    }
  }
  return totals;
}

void keep_within(std::span<KeptText> slots, std::uint64_t budget, std::uint64_t texts_started) {
  while (snapshot_totals(slots).bytes > budget) {
    KeptText* owner = nullptr;
    std::size_t least = 0;
    double least_value = std::numeric_limits<double>::infinity();
    for (KeptText& slot : slots) {
      std::uint64_t before = 0;
      for (std::size_t i = 0; i < slot.snapshots.size(); ++i) {
        const std::uint64_t position = slot.snapshots[i].states->position();
        const double value = worth(slot, position - before, texts_started) *
                             (slot.snapshots[i].is_asked ? kAskedWeight : 1);
        before = position;
        if (value < least_value) {
          owner = &slot;
          least = i;
          least_value = value;
        }
      }
    }
    if (owner == nullptr) return;
    owner->snapshots.erase(owner->snapshots.begin() + static_cast<std::ptrdiff_t>(least));
  }
}

std::optional<SlotChoice> choose_slot(std::span<const KeptText> slots,
                                      std::span<const std::int32_t> prompt,
                                      std::uint64_t cut_tokens, std::uint64_t texts_started,
                                      bool reuses) {
  const Cheapest cheapest = cheapest_slot(slots, texts_started);
  if (cheapest.worth == std::numeric_limits<double>::infinity()) return std::nullopt;
  SlotChoice choice{.target = cheapest.slot, .source = cheapest.slot, .prefix = {}};
  if (!reuses) return choice;
  // Of equal prefixes the one in the slot that loses the least.
  double least = 0;
  for (std::size_t i = 0; i < slots.size(); ++i) {
    UsablePrefix prefix = usable_prefix(slots[i], prompt, cut_tokens);
    const double lost = cost_of_staying(slots[i], prefix, texts_started);
    const bool is_better =
        prefix.tokens > choice.prefix.tokens ||
        (prefix.tokens > 0 && prefix.tokens == choice.prefix.tokens && lost < least);
    if (!is_better) continue;
    choice.source = i;
    choice.prefix = std::move(prefix);
    least = lost;
  }
  if (choice.prefix.tokens > 0 && least <= cheapest.worth) choice.target = choice.source;
  return choice;
}

}  // namespace moepack
