// The kept states of slots, to and from files.
#include "runtime/schedule/slot_file.h"
#include "runtime/schedule/text_scheduler.h"

namespace moepack {

Result<std::uint64_t> TextScheduler::run_task(std::size_t slot, SlotTasks::Work work) {
  if (slot >= slots_.size()) {
    return invalid_argument("there is no slot " + std::to_string(slot),
                            "give one below " + std::to_string(slots_.size()));
  }
  return tasks_.run(slot, std::move(work), [this] { wake(); });
}

Result<std::filesystem::path> TextScheduler::slot_path(const std::string& name) const {
  if (!is_slot_name(name)) {
    return invalid_argument("\"" + printable(name, 200) + "\" is no plain name of a file",
                            "use letters, digits, '.', '_' and '-', at most 128, no '.' first");
  }
  if (options_.save_path.empty()) {
    return unsupported(Where{}, "slots are not saved here", "start with --slot-save-path");
  }
  std::filesystem::path path = options_.save_path / name;
  // Names come from clients: they reach nothing outside the directory.
  std::error_code ignored;
  if (std::filesystem::is_symlink(std::filesystem::symlink_status(path, ignored))) {
    return invalid_argument("\"" + name + "\" is a link, and no file of a slot",
                            "give another name");
  }
  return path;
}

Result<std::uint64_t> TextScheduler::save_slot(std::uint32_t slot, const std::string& name) {
  MOE_ASSIGN_OR_RETURN(const std::filesystem::path path, slot_path(name));
  return run_task(slot, [this, path](KeptText& kept) -> Result<std::uint64_t> {
    if (kept.tokens.empty()) return invalid_argument("the slot has no text to save");
    MOE_RETURN_IF_ERROR(write_slot_file(path, engine_, kept));
    return std::uint64_t{kept.tokens.size()};
  });
}

Result<std::uint64_t> TextScheduler::restore_slot(std::uint32_t slot, const std::string& name) {
  MOE_ASSIGN_OR_RETURN(const std::filesystem::path path, slot_path(name));
  return run_task(slot, [this, path](KeptText& kept) -> Result<std::uint64_t> {
    if (!kept.sequence.has_value()) {
      MOE_ASSIGN_OR_RETURN(Sequence sequence, engine_.make_sequence());
      kept.sequence.emplace(std::move(sequence));
    }
    MOE_RETURN_IF_ERROR(read_slot_file(path, engine_, kept));
    slots_.note_restored(kept);
    return std::uint64_t{kept.tokens.size()};
  });
}

Result<std::uint64_t> TextScheduler::erase_slot(std::uint32_t slot) {
  return run_task(slot, [](KeptText& kept) -> Result<std::uint64_t> {
    const std::uint64_t tokens = kept.tokens.size();
    kept.clear();
    return tokens;
  });
}

Status TextScheduler::run_between(const std::function<Status(Engine&)>& work) {
  const auto run = [this, &work](KeptText& /*none*/) -> Result<std::uint64_t> {
    MOE_RETURN_IF_ERROR(work(engine_));
    return std::uint64_t{0};
  };
  return tasks_.run(SlotTasks::kNoSlot, run, [this] { wake(); }).status();
}

}  // namespace moepack
