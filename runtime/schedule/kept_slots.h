// The slots of a scheduler: where a text is computed, and from which kept state it goes on.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "formats/base/status.h"
#include "runtime/engine.h"
#include "runtime/schedule/kept_text.h"

namespace moepack {

// Used by the scheduler's thread. The kept texts stay where they are.
class KeptSlots {
 public:
  // One for each sequence of the engine, which outlives them. `snapshot_bytes`: of all snapshots.
  KeptSlots(Engine& engine, std::uint64_t snapshot_bytes);

  std::span<KeptText> all() { return kept_; }
  std::span<const KeptText> all() const { return kept_; }
  std::size_t size() const { return kept_.size(); }
  bool has_free() const;
  std::size_t index_of(const KeptText& kept) const {
    return static_cast<std::size_t>(&kept - kept_.data());
  }

  // A free slot whose sequence has seen the first tokens of a prompt.
  struct Ready {
    KeptText* kept = nullptr;
    UsablePrefix prefix;
  };
  // There must be a free one. `reuses`: false begins at the start. Errors: memory; the slot is
  // empty then.
  Result<Ready> prepare(std::span<const std::int32_t> prompt, bool reuses);
  // A free slot with a copy of all that `source` has seen; null where none is free or there is no
  // memory for a copy.
  KeptText* copy_of(const KeptText& source);
  // A text begins in it: a new one, or another choice of one that has begun.
  void occupy(KeptText& kept);
  void occupy_by_choice(KeptText& kept);
  void release(KeptText& kept);
  // It was given what is kept now from outside.
  void note_restored(KeptText& kept);
  // Drops snapshots until all fit.
  void keep_within_budget();

 private:
  Status make_ready(SlotChoice& choice);

  Engine& engine_;
  const std::uint64_t snapshot_bytes_;
  std::vector<KeptText> kept_;
  std::uint64_t texts_started_ = 0;
};

}  // namespace moepack
