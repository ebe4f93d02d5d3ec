// The experts that lie in device memory: records in slots of one size, found by a table of
// addresses that kernels read. With room for all of a model they are copied once; else they come
// and go, the least recently used first, but for those that are kept.
//
// Rows of records are in plain order on the device, whatever their order in the pack.
#pragma once

#include <cstdint>
#include <list>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "formats/base/status.h"
#include "formats/pack/pack_manifest.h"
#include "runtime/model/function_ref.h"
#include "runtime/placement/hot_set.h"
#include "runtime/placement/slot_planner.h"
#include "runtime/store/expert_store.h"
#include "runtime/vulkan/device_arena.h"
#include "runtime/vulkan/record_upload.h"

namespace moepack {

// What the experts of one layer are like.
struct LayerExperts {
  std::vector<ExpertLayout> kinds;  // the distinct layouts of the layer
  std::uint64_t table = 0;          // address of [experts + 1] record addresses; 0: not here
  std::uint64_t kind_table = 0;     // address of [experts + 1] 32-bit kinds; 0: all are of kind 0
  // Of the shared expert alone, whose layout no routed one of the layer has, or which has inputs of
  // its own; nullopt: it is like others, or not there.
  std::optional<std::uint32_t> shared_kind = std::nullopt;
  bool shared_has_own_inputs = false;

  // Whether experts of a kind are given what the shared expert alone is given.
  bool has_own_inputs(std::uint32_t kind) const {
    return shared_has_own_inputs && shared_kind == kind;
  }
};

// The shared expert of a layer, which stands behind the routed ones in the table.
struct SharedExpert {
  std::uint64_t record = 0;  // its address; 0: the layer has none
  ExpertLayout layout;
  bool has_own_inputs = false;  // then its kind is its own, whatever its layout
};

class DeviceExperts {
 public:
  // The bytes of a record's slot, and of all slots of the pack.
  static std::uint64_t slot_bytes(const PackManifest& pack);
  static std::uint64_t all_bytes(const PackManifest& pack);

  // As many slots as `budget` bytes hold, at most one an expert; at least one layer's choice must
  // fit, which the caller sees to. `shared`: one a layer. `threads` copy records (RecordUpload).
  // What fetch() and the other functions bring is there for all that is submitted after them.
  static Result<std::unique_ptr<DeviceExperts>> create(VulkanDevice& device,
                                                       const PackManifest& pack,
                                                       std::span<const SharedExpert> shared,
                                                       std::uint64_t budget, std::size_t threads);

  // Whether every expert has a slot: then load_all() brings them, and nothing changes after.
  bool holds_all() const { return slots_.size() == pack_->all_experts(); }
  Status load_all(ExpertStore& store);

  // Brings those of `wanted` that are not here; at most slots() of them, without repeats. An expert
  // that cannot be read gets its error in `failed`, one for each of `wanted`.
  Status fetch(std::uint32_t layer, std::span<const std::uint32_t> wanted, ExpertStore& store,
               std::span<Status> failed);
  std::size_t slots() const { return slots_.size(); }

  // Brings the experts of a hot set (check_hot_set()), whose slots stay theirs from then on. Once,
  // after create(); fewer than slots() in all. An expert that cannot be read is the error.
  Status keep(const HotSet& hot, ExpertStore& store);
  bool is_kept(std::uint32_t layer, std::uint32_t expert) const {
    const std::uint32_t slot = slot_of_[layer * experts_ + expert];
    return slot != kNoSlot && slots_[slot].is_kept;
  }
  // Writes the experts that come into the slots of those that leave, which are kept: no memory is
  // taken, no other slot changes. Gives the exchanges that were done; one whose expert cannot be
  // read is left out, and so is what comes after an error. An error where none was done. Not while
  // a batch is under way.
  Result<std::vector<SlotExchange>> exchange(std::span<const SlotExchange> exchanges,
                                             ExpertStore& store);
  // Slots of experts that come and go: at most so many that are not kept can be wanted at once.
  std::size_t passing_slots() const { return by_use_.size(); }
  // Takes all experts that are not kept out of the tables.
  Status drop_passing();
  // Puts a layer's kept experts into its table, or takes them out: a prompt that is computed in
  // several parts computes them once.
  Status show_kept(std::uint32_t layer, bool is_shown);

  const LayerExperts& layer(std::uint32_t index) const { return layers_[index]; }
  std::uint64_t hits() const { return hits_; }
  std::uint64_t misses() const { return misses_; }
  void count_hits(std::uint64_t experts) { hits_ += experts; }
  void reset_stats() { hits_ = misses_ = 0; }

 private:
  struct Slot {
    DeviceRange range;
    std::uint64_t key = kNoKey;                     // layer * experts + expert
    std::list<std::uint32_t>::iterator place = {};  // in by_use_
    bool is_kept = false;                           // then it is not there
  };
  static constexpr std::uint64_t kNoKey = ~std::uint64_t{0};
  static constexpr std::uint32_t kNoSlot = ~std::uint32_t{0};

  DeviceExperts(VulkanDevice& device, const PackManifest& pack, std::size_t threads);
  Status make_slots(std::uint64_t budget);
  Status make_tables(std::span<const SharedExpert> shared);
  Status make_kinds(std::uint32_t index, const SharedExpert& shared, LayerExperts& layer);
  void note_use(std::uint32_t slot);
  void evict(std::uint32_t slot);
  UploadItem place(std::uint32_t layer, std::uint32_t expert, std::uint32_t slot,
                   const ExpertHandle& handle);
  Status bring(std::uint32_t layer, std::span<const std::uint32_t> experts,
               ExpertStore::Batch& batch, FunctionRef<void(std::size_t, const Status&)> tell);
  Status exchange_some(std::span<const SlotExchange> exchanges, ExpertStore& store,
                       std::vector<SlotExchange>& done);
  Status upload_table(std::uint32_t layer);
  Status upload_stale();

  VulkanDevice* device_;
  const PackManifest* pack_;
  std::uint64_t experts_;
  std::uint64_t slot_bytes_;
  DeviceArena arena_;
  DeviceArena small_;
  RecordUpload uploads_;  // ends before the memory it writes to
  std::vector<Slot> slots_;
  std::vector<std::uint32_t> slot_of_;    // by key
  std::vector<std::uint64_t> addresses_;  // [layers][experts + 1]: what the tables hold
  // By layer: experts that have left are still in its table, of which fetch() takes no notice.
  std::vector<std::uint8_t> is_stale_;
  std::vector<DeviceRange> tables_;  // by layer
  std::vector<LayerExperts> layers_;
  std::list<std::uint32_t> by_use_;  // slots, the one used longest ago first
  bool has_passing_ = false;         // experts that are not kept are in the tables
  std::uint64_t hits_ = 0;
  std::uint64_t misses_ = 0;
};

}  // namespace moepack
