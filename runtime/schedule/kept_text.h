// What a slot keeps between texts: a sequence, the tokens it has seen, and snapshots of recurrent
// states on the way, so that another prompt with the same beginning goes on from there.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "runtime/model/sequence.h"

namespace moepack {

struct KeptSnapshot {
  std::shared_ptr<const StateSnapshot> states;  // shared with slots that were copied from this one
  bool is_asked = false;                        // TextJob::snapshots names its position
};

struct KeptText {
  std::optional<Sequence> sequence;     // none: the slot has not been used, or was given up
  std::vector<std::int32_t> tokens;     // all that the sequence has seen
  std::uint64_t prompt_tokens = 0;      // of them, the first so many came in slices of prompts
  std::vector<KeptSnapshot> snapshots;  // positions ascend, at most tokens.size()
  std::uint64_t last_used = 0;          // count of texts that had started by then
  bool is_busy = false;

  // Forgets the text; the sequence stays.
  void clear();
  // Takes a snapshot of now, unless there is one at this position; kIo when memory is short.
  Status take_snapshot(bool is_asked);
};

// A beginning of a prompt that need not be computed.
struct UsablePrefix {
  std::uint64_t common = 0;  // tokens of the text and the prompt that agree
  std::uint64_t tokens = 0;  // the state after so many is there; below the prompt's size
  std::shared_ptr<const StateSnapshot> states;  // where the state is not that of now
};

// The longest that keeps at least one token to compute. `cut_tokens`: Engine::cut_tokens(); where
// it is not 1, places within what came in slices count at its multiples alone.
UsablePrefix usable_prefix(const KeptText& kept, std::span<const std::int32_t> prompt,
                           std::uint64_t cut_tokens);
// Puts `kept` there and drops what lies behind. After an error it is empty.
Status go_back(KeptText& kept, const UsablePrefix& prefix);
// A copy of that state in `target`, whose own is given up first. `kept` stays as it is. After an
// error `target` has no sequence.
Status copy_prefix(const KeptText& kept, const UsablePrefix& prefix, KeptText& target);

// Drops snapshots, the least valuable first, until all slots together hold at most `budget` bytes;
// one that several slots share counts once. What one is worth: the tokens that would be computed
// again without it, four times as much where it was asked for, less with every text since its slot
// was used.
void keep_within(std::span<KeptText> slots, std::uint64_t budget, std::uint64_t texts_started);
struct SnapshotTotals {
  std::uint64_t count = 0, bytes = 0;
};
SnapshotTotals snapshot_totals(std::span<const KeptText> slots);

// Where a prompt is computed.
struct SlotChoice {
  std::size_t target = 0;
  // Whose state is used: the target's own, or one that is copied to it.
  std::size_t source = 0;
  UsablePrefix prefix;  // of 0 tokens: from the start
};
// Of the slots that are not busy (a busy one may still be copied from at a snapshot): the state
// with the longest usable prefix is taken. It is used in its slot where at least half of the text
// there goes on; else it is copied to the slot whose text is worth the least, unless that is its
// own. `reuses`: false computes all. nullopt when all are busy.
std::optional<SlotChoice> choose_slot(std::span<const KeptText> slots,
                                      std::span<const std::int32_t> prompt,
                                      std::uint64_t cut_tokens, std::uint64_t texts_started,
                                      bool reuses);

}  // namespace moepack
