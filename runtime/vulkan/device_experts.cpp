#include "runtime/vulkan/device_experts.h"

#include <algorithm>
#include <numeric>
#include <utility>

#include "formats/weights/row_order.h"
#include "runtime/store/pack_files.h"

namespace moepack {
namespace {

constexpr std::uint64_t kBlockBytes = std::uint64_t{1} << 30;
constexpr std::uint64_t kTableBlockBytes = std::uint64_t{1} << 20;

// Every record is read as 32-bit words, the last of which may reach beyond it.
std::uint64_t in_slots(std::uint64_t record_bytes) {
  return (record_bytes + 4 + DeviceArena::kAlignment - 1) / DeviceArena::kAlignment *
         DeviceArena::kAlignment;
}

}  // namespace

std::uint64_t DeviceExperts::slot_bytes(const PackManifest& pack) {
  return in_slots(largest_record_bytes(pack));
}

std::uint64_t DeviceExperts::all_bytes(const PackManifest& pack) {
  return slot_bytes(pack) * pack.all_experts();
}

DeviceExperts::DeviceExperts(VulkanDevice& device, const PackManifest& pack, std::size_t threads)
    : device_(&device),
      pack_(&pack),
      experts_(pack.num_experts),
      slot_bytes_(slot_bytes(pack)),
      arena_(device, slot_bytes_),
      small_(device, kTableBlockBytes),
      uploads_(device, std::max(slot_bytes_, (experts_ + 1) * sizeof(std::uint64_t)), threads),
      slot_of_(std::uint64_t{pack.num_layers} * pack.num_experts, kNoSlot),
      addresses_(std::uint64_t{pack.num_layers} * (pack.num_experts + 1)),
      is_stale_(pack.num_layers) {}

Result<std::unique_ptr<DeviceExperts>> DeviceExperts::create(VulkanDevice& device,
                                                             const PackManifest& pack,
                                                             std::span<const SharedExpert> shared,
                                                             std::uint64_t budget,
                                                             std::size_t threads) {
  std::unique_ptr<DeviceExperts> experts(new DeviceExperts(device, pack, threads));
  MOE_RETURN_IF_ERROR(experts->make_tables(shared));
  MOE_RETURN_IF_ERROR(experts->make_slots(budget));
  return experts;
}

Status DeviceExperts::make_slots(std::uint64_t budget) {
  const std::uint64_t count = std::min<std::uint64_t>(budget / slot_bytes_, pack_->all_experts());
  slots_.resize(count);
  // Allocations of whole slots: together they are what the plan grants.
  const std::uint64_t most = std::min(kBlockBytes, device_->info().most_allocation);
  const std::uint64_t at_once = std::max<std::uint64_t>(1, most / slot_bytes_);
  for (std::uint64_t first = 0; first < count; first += at_once) {
    const std::uint64_t run = std::min(at_once, count - first);
    MOE_ASSIGN_OR_RETURN(DeviceRange range, arena_.take(run * slot_bytes_));
    for (std::uint64_t i = first; i < first + run; ++i) {
      slots_[i].range = range;
      slots_[i].place = by_use_.insert(by_use_.end(), static_cast<std::uint32_t>(i));
      range.offset += slot_bytes_;
      range.address += slot_bytes_;
    }
  }
  return Status::ok();
}

// The distinct layouts of a layer, and which of them each expert has.
Status DeviceExperts::make_kinds(std::uint32_t index, const SharedExpert& shared,
                                 LayerExperts& layer) {
  std::vector<std::uint32_t> kinds;
  const auto add = [&](const ExpertLayout& layout) {
    const auto found = std::find(layer.kinds.begin(), layer.kinds.end(), layout);
    kinds.push_back(static_cast<std::uint32_t>(found - layer.kinds.begin()));
    if (found == layer.kinds.end()) layer.kinds.push_back(layout);
  };
  // A layer without routed experts has its network alone.
  kinds.resize(experts_ - pack_->experts_of(index));
  for (std::uint32_t e = 0; e < pack_->experts_of(index); ++e) {
    add(in_order(pack_->layout_of(index, e), RowOrder::kRows));
  }
  layer.shared_has_own_inputs = shared.record != 0 && shared.has_own_inputs;
  const bool is_like_others =
      std::find(layer.kinds.begin(), layer.kinds.end(), shared.layout) != layer.kinds.end();
  if (shared.record == 0) {
    kinds.push_back(0);
  } else if (is_like_others && !shared.has_own_inputs) {
    add(shared.layout);
  } else {
    layer.shared_kind = static_cast<std::uint32_t>(layer.kinds.size());
    kinds.push_back(*layer.shared_kind);
    layer.kinds.push_back(shared.layout);
  }
  if (layer.kinds.size() == 1) return Status::ok();
  MOE_ASSIGN_OR_RETURN(const DeviceRange range, small_.put(std::as_bytes(std::span(kinds))));
  layer.kind_table = range.address;
  return Status::ok();
}

Status DeviceExperts::make_tables(std::span<const SharedExpert> shared) {
  for (std::uint32_t l = 0; l < pack_->num_layers; ++l) {
    LayerExperts layer;
    MOE_RETURN_IF_ERROR(make_kinds(l, shared[l], layer));
    MOE_ASSIGN_OR_RETURN(const DeviceRange table, small_.take((experts_ + 1) * 8));
    layer.table = table.address;
    tables_.push_back(table);
    layers_.push_back(std::move(layer));
    addresses_[l * (experts_ + 1) + experts_] = shared[l].record;
    MOE_RETURN_IF_ERROR(upload_table(l));
  }
  return Status::ok();
}

Status DeviceExperts::upload_table(std::uint32_t layer) {
  is_stale_[layer] = 0;
  const auto entries = std::span(addresses_).subspan(layer * (experts_ + 1), experts_ + 1);
  const UploadItem table{.bytes = std::as_bytes(entries), .to = tables_[layer]};
  return uploads_.upload(std::span(&table, 1));
}

Status DeviceExperts::load_all(ExpertStore& store) {
  std::vector<std::uint32_t> wanted;
  for (std::uint32_t layer = 0; layer < layers_.size(); ++layer) {
    if (pack_->experts_of(layer) == 0) continue;
    const std::size_t at_once = std::max<std::size_t>(1, store.max_batch(layer));
    for (std::uint32_t first = 0; first < experts_; first += static_cast<std::uint32_t>(at_once)) {
      wanted.resize(std::min<std::size_t>(at_once, experts_ - first));
      std::iota(wanted.begin(), wanted.end(), first);
      std::vector<Status> failed(wanted.size());
      MOE_RETURN_IF_ERROR(fetch(layer, wanted, store, failed));
      for (const Status& status : failed) MOE_RETURN_IF_ERROR(status);
    }
  }
  return Status::ok();
}

Status DeviceExperts::keep(const HotSet& hot, ExpertStore& store) {
  for (std::uint32_t layer = 0; layer < hot.size(); ++layer) {
    std::vector<Status> failed(hot[layer].size());
    MOE_RETURN_IF_ERROR(fetch(layer, hot[layer], store, failed));
    for (const Status& status : failed) MOE_RETURN_IF_ERROR(status);
    for (const std::uint32_t expert : hot[layer]) {
      Slot& slot = slots_[slot_of_[layer * experts_ + expert]];
      by_use_.erase(slot.place);
      slot.is_kept = true;
    }
  }
  has_passing_ = false;
  return Status::ok();
}

Status DeviceExperts::drop_passing() {
  if (!std::exchange(has_passing_, false)) return Status::ok();
  for (const std::uint32_t slot : by_use_) evict(slot);
  return upload_stale();
}

Status DeviceExperts::upload_stale() {
  for (std::uint32_t layer = 0; layer < layers_.size(); ++layer) {
    if (is_stale_[layer] != 0) MOE_RETURN_IF_ERROR(upload_table(layer));
  }
  return Status::ok();
}

Result<std::vector<SlotExchange>> DeviceExperts::exchange(std::span<const SlotExchange> exchanges,
                                                          ExpertStore& store) {
  MOE_RETURN_IF_ERROR(drop_passing());
  std::vector<SlotExchange> order(exchanges.begin(), exchanges.end());
  std::stable_sort(order.begin(), order.end(), [](const SlotExchange& a, const SlotExchange& b) {
    return a.layer_in < b.layer_in;
  });
  std::vector<SlotExchange> done;
  Status status;
  std::size_t count = 0;
  for (std::size_t first = 0; status.is_ok() && first < order.size(); first += count) {
    const std::uint32_t layer = order[first].layer_in;
    const std::size_t at_once = std::max<std::size_t>(1, store.max_batch(layer));
    count = 1;
    while (count < at_once && first + count < order.size() &&
           order[first + count].layer_in == layer) {
      ++count;
    }
    status = exchange_some(std::span(order).subspan(first, count), store, done);
  }
  has_passing_ = false;
  MOE_RETURN_IF_ERROR(upload_stale());
  // Whoever counts on the experts that have left must hear of it: the error will come again.
  if (!status.is_ok() && done.empty()) return status;
  return done;
}

// Of one layer's experts that come; adds what was exchanged to `done`.
Status DeviceExperts::exchange_some(std::span<const SlotExchange> exchanges, ExpertStore& store,
                                    std::vector<SlotExchange>& done) {
  const std::uint32_t layer = exchanges[0].layer_in;
  std::vector<std::uint32_t> wanted;
  for (const SlotExchange& change : exchanges) wanted.push_back(change.expert_in);
  MOE_ASSIGN_OR_RETURN(ExpertStore::Batch batch, store.begin(layer, wanted));
  while (const std::optional<ReadyExpert> ready = batch.next_ready()) {
    if (!ready->status.is_ok()) continue;
    const SlotExchange& change = exchanges[ready->index];
    const std::uint32_t slot = slot_of_[change.layer_out * experts_ + change.expert_out];
    const UploadItem item = place(layer, change.expert_in, slot, batch.handles()[ready->index]);
    MOE_RETURN_IF_ERROR(uploads_.upload(std::span(&item, 1)));
    is_stale_[layer] = 1;
    done.push_back(change);
  }
  return Status::ok();
}

Status DeviceExperts::show_kept(std::uint32_t layer, bool is_shown) {
  for (std::uint32_t expert = 0; expert < experts_; ++expert) {
    if (!is_kept(layer, expert)) continue;
    const Slot& slot = slots_[slot_of_[layer * experts_ + expert]];
    addresses_[layer * (experts_ + 1) + expert] = is_shown ? slot.range.address : 0;
  }
  return upload_table(layer);
}

void DeviceExperts::note_use(std::uint32_t slot) {
  if (slots_[slot].is_kept) return;
  by_use_.splice(by_use_.end(), by_use_, slots_[slot].place);
}

void DeviceExperts::evict(std::uint32_t slot) {
  const std::uint64_t key = std::exchange(slots_[slot].key, kNoKey);
  if (key == kNoKey) return;
  slot_of_[key] = kNoSlot;
  addresses_[key / experts_ * (experts_ + 1) + key % experts_] = 0;
  is_stale_[key / experts_] = 1;
}

// What is to be brought for it.
UploadItem DeviceExperts::place(std::uint32_t layer, std::uint32_t expert, std::uint32_t slot,
                                const ExpertHandle& handle) {
  evict(slot);
  has_passing_ = true;
  slots_[slot].key = layer * experts_ + expert;
  note_use(slot);
  slot_of_[slots_[slot].key] = slot;
  addresses_[layer * (experts_ + 1) + expert] = slots_[slot].range.address;
  return {.bytes = std::span(handle.record, handle.layout->record_bytes),
          .layout = handle.layout,
          .to = slots_[slot].range};
}

// Those of a batch as they arrive, all that are there together.
Status DeviceExperts::bring(std::uint32_t layer, std::span<const std::uint32_t> experts,
                            ExpertStore::Batch& batch,
                            FunctionRef<void(std::size_t, const Status&)> tell) {
  std::vector<UploadItem> items;
  for (auto ready = batch.take_ready(); !ready.empty(); ready = batch.take_ready()) {
    items.clear();
    for (const ReadyExpert& expert : ready) {
      tell(expert.index, expert.status);
      if (!expert.status.is_ok()) continue;
      items.push_back(
          place(layer, experts[expert.index], by_use_.front(), batch.handles()[expert.index]));
    }
    MOE_RETURN_IF_ERROR(uploads_.upload(items));
  }
  return Status::ok();
}

Status DeviceExperts::fetch(std::uint32_t layer, std::span<const std::uint32_t> wanted,
                            ExpertStore& store, std::span<Status> failed) {
  std::vector<std::uint32_t> missing;
  std::vector<std::size_t> place_of;
  for (std::size_t i = 0; i < wanted.size(); ++i) {
    const std::uint32_t slot = slot_of_[layer * experts_ + wanted[i]];
    if (slot != kNoSlot) {
      note_use(slot);
      ++hits_;
    } else {
      missing.push_back(wanted[i]);
      place_of.push_back(i);
    }
  }
  misses_ += missing.size();
  if (missing.empty()) return Status::ok();
  const std::size_t at_once = std::max<std::size_t>(1, store.max_batch(layer));
  Status status;
  for (std::size_t first = 0; status.is_ok() && first < missing.size(); first += at_once) {
    const auto part = std::span(missing).subspan(first, std::min(at_once, missing.size() - first));
    Result<ExpertStore::Batch> batch = store.begin(layer, part);
    status = batch.status();
    if (!status.is_ok()) break;
    status = bring(layer, part, batch.value(), [&](std::size_t index, const Status& said) {
      failed[place_of[first + index]] = said;
    });
  }
  // After an error too: those that came count as being there.
  const Status told = upload_table(layer);
  return status.is_ok() ? told : status;
}

}  // namespace moepack
