#include "runtime/schedule/kept_slots.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "runtime/schedule/caught.h"

namespace moepack {

KeptSlots::KeptSlots(Engine& engine, std::uint64_t snapshot_bytes)
    : engine_(engine), snapshot_bytes_(snapshot_bytes), kept_(engine.options().sequences) {}

bool KeptSlots::has_free() const {
  return std::any_of(kept_.begin(), kept_.end(),
                     [](const KeptText& kept) { return !kept.is_busy; });
}

// Where the state cannot be used, the text begins at the start.
Status KeptSlots::make_ready(SlotChoice& choice) {
  KeptText& target = kept_[choice.target];
  if (choice.source != choice.target) {
    const Status copied = copy_prefix(kept_[choice.source], choice.prefix, target);
    if (copied.is_ok()) return copied;
    choice.prefix = {};
  } else if (target.sequence.has_value() && !go_back(target, choice.prefix).is_ok()) {
    choice.prefix = {};
  }
  if (target.sequence.has_value()) return Status::ok();
  MOE_ASSIGN_OR_RETURN(Sequence sequence, engine_.make_sequence());
  target.sequence.emplace(std::move(sequence));
  return Status::ok();
}

Result<KeptSlots::Ready> KeptSlots::prepare(std::span<const std::int32_t> prompt, bool reuses) {
  std::optional<SlotChoice> choice =
      choose_slot(kept_, prompt, engine_.cut_tokens(), texts_started_, reuses);
  if (!choice.has_value()) return invalid_argument("no slot is free");
  KeptText& target = kept_[choice->target];
  Status status;
  const Status thrown = caught([&] { status = make_ready(*choice); });
  if (!thrown.is_ok()) {
    target.sequence.reset();
    target.clear();
    return thrown;
  }
  MOE_RETURN_IF_ERROR(status);
  return Ready{.kept = &target, .prefix = std::move(choice->prefix)};
}

KeptText* KeptSlots::copy_of(const KeptText& source) {
  const std::optional<SlotChoice> choice =
      choose_slot(kept_, {}, engine_.cut_tokens(), texts_started_, false);
  if (!choice.has_value()) return nullptr;
  KeptText& target = kept_[choice->target];
  const UsablePrefix all{
      .common = source.tokens.size(), .tokens = source.tokens.size(), .states = nullptr};
  Status status;
  const Status thrown = caught([&] { status = copy_prefix(source, all, target); });
  if (thrown.is_ok()) return status.is_ok() ? &target : nullptr;
  target.sequence.reset();
  target.clear();
  return nullptr;
}

void KeptSlots::occupy(KeptText& kept) {
  ++texts_started_;
  occupy_by_choice(kept);
}

void KeptSlots::occupy_by_choice(KeptText& kept) {
  kept.is_busy = true;
  kept.last_used = texts_started_;
}

void KeptSlots::release(KeptText& kept) {
  kept.is_busy = false;
  kept.last_used = texts_started_;
}

void KeptSlots::note_restored(KeptText& kept) {
  kept.last_used = texts_started_;
  keep_within_budget();
}

void KeptSlots::keep_within_budget() { keep_within(kept_, snapshot_bytes_, texts_started_); }

}  // namespace moepack
