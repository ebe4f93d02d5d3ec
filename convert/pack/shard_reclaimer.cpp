#include "convert/pack/shard_reclaimer.h"

#include <sys/stat.h>
#include <unistd.h>
#include <algorithm>
#include <cerrno>
#include <cstring>
#include <set>
#include <system_error>

#include "formats/base/file.h"

namespace moepack {
namespace {

namespace fs = std::filesystem;

using ShardSet = std::set<const SafetensorsFile*>;

void add_shards(const SourceMatrix& matrix, ShardSet& shards) {
  for (const TensorSlice& slice : matrix.slices) {
    if (slice.tensor) shards.insert(slice.tensor.shard());
  }
}

std::string name_of(const SafetensorsFile& shard) {
  return fs::path(shard.file().path()).filename().string();
}

Status cannot_remove(const fs::path& path, const std::string& reason) {
  return make_error(StatusCode::kIo, Where{.file = path.string()}, "cannot be removed: " + reason,
                    "check the permissions, or leave out --reclaim");
}

// Unlinking asks for permission on the directory, of the file itself and of a link to it.
Status check_removable(const fs::path& path) {
  std::error_code error;
  const fs::path target = fs::canonical(path, error);
  if (error) return cannot_remove(path, error.message());
  for (const fs::path& file : {target, path}) {
    const fs::path directory = file.has_parent_path() ? file.parent_path() : fs::path(".");
    if (::access(directory.c_str(), W_OK) != 0) return cannot_remove(file, std::strerror(errno));
  }
  return Status::ok();
}

}  // namespace

Result<ShardReclaimer> ShardReclaimer::create(const Checkpoint& checkpoint, const ConvertPlan& plan,
                                              const fs::path& output) {
  ShardReclaimer reclaimer;
  reclaimer.num_layers_ = plan.pack.num_layers;
  reclaimer.count_units(checkpoint, plan);
  reclaimer.find_countable(output);
  for (const auto& [shard, units] : reclaimer.units_left_) {
    MOE_RETURN_IF_ERROR(check_removable(shard->file().path()));
  }
  return reclaimer;
}

void ShardReclaimer::allow_removal(Checkpoint& checkpoint, ConversionJournal& journal) {
  checkpoint_ = &checkpoint;
  journal_ = &journal;
}

void ShardReclaimer::count_units(const Checkpoint& checkpoint, const ConvertPlan& plan) {
  ShardSet kept;
  for (const std::string& name : plan.skipped) {
    const TensorRef* tensor = checkpoint.find(name);
    if (tensor != nullptr) kept.insert(tensor->shard);
  }
  for (const SafetensorsFile* shard : checkpoint.shards()) {
    if (!shard->has_data()) continue;
    if (kept.contains(shard)) {
      never_removed_.push_back(name_of(*shard));
    } else {
      units_left_[shard] = 0;
    }
  }
  shards_of_unit_.resize(std::size_t{prediction_unit(num_layers_)} + 1);
  for (std::uint32_t unit = 0; unit < shards_of_unit_.size(); ++unit) {
    ShardSet shards;
    if (unit == prediction_unit(num_layers_)) {
      for (const SourceTensor& tensor : plan.prediction_sources) shards.insert(tensor.shard());
    } else if (unit == num_layers_) {
      for (const SourceMatrix& matrix : plan.resident_sources) add_shards(matrix, shards);
    } else {
      for (std::uint32_t e = 0; e < plan.pack.experts_of(unit); ++e) {
        for (Projection p : kAllProjections) add_shards(plan.experts.of(unit, e, p), shards);
      }
    }
    for (const SafetensorsFile* shard : shards) {
      const auto it = units_left_.find(shard);
      if (it == units_left_.end()) continue;
      ++it->second;
      shards_of_unit_[unit].push_back(shard);
    }
  }
}

Status ShardReclaimer::save_headers(const fs::path& directory) const {
  for (const auto& [shard, units] : units_left_) {
    const fs::path copy = directory / name_of(*shard);
    MOE_RETURN_IF_ERROR(shard->save_header(copy));
  }
  return Status::ok();
}

Status ShardReclaimer::unit_done(std::uint32_t unit) {
  for (const SafetensorsFile* shard : shards_of_unit_[unit]) {
    if (--units_left_.at(shard) == 0 && checkpoint_ != nullptr) {
      MOE_RETURN_IF_ERROR(remove(*shard));
    }
  }
  return Status::ok();
}

Status ShardReclaimer::remove(const SafetensorsFile& shard) {
  const fs::path path = shard.file().path();
  std::error_code error;
  const fs::path target = fs::canonical(path, error);
  if (error == std::errc::no_such_file_or_directory) return Status::ok();
  if (error) return cannot_remove(path, error.message());
  if (!shard.file().is_at(path)) {
    never_removed_.push_back(name_of(shard) + " (replaced during the conversion)");
    return Status::ok();
  }
  MOE_RETURN_IF_ERROR(journal_->add_removal(name_of(shard)));
  checkpoint_->drop_data(shard);
  const bool is_link = fs::is_symlink(path, error);
  fs::remove(target, error);
  if (error) return cannot_remove(target, error.message());
  if (is_link) fs::remove(path, error);
  if (error) return cannot_remove(path, error.message());
  removed_.push_back(name_of(shard));
  return sync_directory(path.parent_path());
}

void ShardReclaimer::find_countable(const fs::path& output) {
  struct stat there {};
  if (::stat(output.c_str(), &there) != 0) return;
  for (const auto& [shard, units] : units_left_) {
    struct stat info {};
    if (::fstat(shard->file().fd(), &info) != 0) continue;
    if (info.st_dev == there.st_dev && info.st_nlink == 1) countable_.insert(shard);
  }
}

std::uint64_t ShardReclaimer::space_needed(std::span<const Step> steps) const {
  auto left = units_left_;
  std::uint64_t written = 0;
  std::uint64_t freed = 0;
  std::uint64_t needed = 0;
  for (const Step& step : steps) {
    written += step.bytes;
    needed = std::max(needed, written > freed ? written - freed : 0);
    for (const SafetensorsFile* shard : shards_of_unit_[step.unit]) {
      if (--left.at(shard) == 0 && countable_.contains(shard)) freed += shard->file_size();
    }
  }
  return needed;
}

}  // namespace moepack
