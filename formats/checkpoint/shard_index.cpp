#include "formats/checkpoint/shard_index.h"

#include <algorithm>
#include <cctype>
#include <numeric>
#include <unordered_map>
#include <utility>

#include "formats/base/file.h"
#include "formats/base/json.h"

namespace moepack {
namespace {

constexpr std::string_view kRemedy = "download the index again";
constexpr std::size_t kMaxFileName = 255;
constexpr std::uint64_t kMaxIndexBytes = 100'000'000;

// What is wrong with a name that must be a file of the directory at hand; empty when it is fine.
std::string_view file_name_fault(std::string_view name) {
  if (name.empty()) return "is empty";
  if (name.size() > kMaxFileName) return "is longer than a file name can be";
  if (name == "." || name == "..") return "is a directory";
  if (name.find_first_of("/\\") != std::string_view::npos) return "leads out of the directory";
  if (name.size() >= 2 && name[1] == ':') return "names a drive";
  const bool has_control = std::any_of(name.begin(), name.end(), [](char c) {
    return std::iscntrl(static_cast<unsigned char>(c)) != 0;
  });
  return has_control ? "holds a control character" : std::string_view{};
}

class IndexVisitor final : public JsonVisitor {
 public:
  explicit IndexVisitor(const std::string& file) : file_(file) {}

  Status on_null() override { return on_other("null"); }
  Status on_bool(bool /*value*/) override { return on_other("a boolean"); }
  Status on_unsigned(std::uint64_t /*value*/) override { return on_other("a number"); }
  Status on_number(double /*value*/) override { return on_other("a number"); }

  Status on_string(std::string& value) override {
    if (!in_map_ || depth_ != 2) return on_other("a string");
    if (const std::string_view fault = file_name_fault(value); !fault.empty()) {
      return error("shard name \"" + printable(value) + "\" " + std::string(fault));
    }
    const auto [at, is_new] = shard_ids_.emplace(value, static_cast<std::uint32_t>(shards_.size()));
    if (is_new) shards_.push_back(std::move(value));
    entries_.push_back({std::move(key_), at->second});
    return Status::ok();
  }

  Status begin_object() override {
    if (depth_ > 0 && in_map_ && depth_ != 1) return on_other("an object");
    ++depth_;
    return Status::ok();
  }
  Status end_object() override { return leave(); }
  Status begin_array() override {
    MOE_RETURN_IF_ERROR(on_other("a list"));
    ++depth_;
    return Status::ok();
  }
  Status end_array() override { return leave(); }

  Status on_key(std::string& key) override {
    if (depth_ == 1) {
      in_map_ = key == "weight_map";
      has_map_ = has_map_ || in_map_;
    } else if (in_map_) {
      key_ = std::move(key);
    }
    return Status::ok();
  }

  bool has_map() const { return has_map_; }

  // Numbers shards in the order of their names.
  ShardIndex take() {
    std::vector<std::uint32_t> order(shards_.size());
    std::iota(order.begin(), order.end(), 0U);
    std::sort(order.begin(), order.end(),
              [&](std::uint32_t a, std::uint32_t b) { return shards_[a] < shards_[b]; });
    std::vector<std::uint32_t> rank(shards_.size());
    ShardIndex index;
    for (std::uint32_t old : order) {
      rank[old] = static_cast<std::uint32_t>(index.shards.size());
      index.shards.push_back(std::move(shards_[old]));
    }
    for (ShardIndex::Entry& entry : entries_) entry.shard = rank[entry.shard];
    std::sort(entries_.begin(), entries_.end(),
              [](const auto& a, const auto& b) { return a.tensor < b.tensor; });
    index.entries = std::move(entries_);
    return index;
  }

 private:
  // Handles a value that is no shard name: an error where one must stand, otherwise ignored.
  Status on_other(std::string_view kind) const {
    if (depth_ == 0) return error("the index is " + std::string(kind) + ", not a JSON object");
    if (in_map_ && depth_ == 1) {
      return error("weight_map is " + std::string(kind) + ", not an object");
    }
    if (in_map_) return error("the shard is " + std::string(kind) + ", not a file name");
    return Status::ok();
  }
  Status leave() {
    --depth_;
    return Status::ok();
  }
  Status error(std::string_view what) const {
    return corrupt({.file = file_, .tensor = key_, .offset = position()}, what, kRemedy);
  }

  const std::string& file_;
  int depth_ = 0;
  bool in_map_ = false;
  bool has_map_ = false;
  std::string key_;
  std::vector<std::string> shards_;
  std::unordered_map<std::string, std::uint32_t> shard_ids_;
  std::vector<ShardIndex::Entry> entries_;
};

}  // namespace

Result<ShardIndex> parse_shard_index(std::string_view text, const std::string& file) {
  IndexVisitor visitor(file);
  MOE_RETURN_IF_ERROR(visit_json(text, {.file = file}, visitor));
  if (!visitor.has_map()) return corrupt({.file = file}, "weight_map is missing", kRemedy);
  ShardIndex index = visitor.take();
  if (index.entries.empty()) return corrupt({.file = file}, "weight_map is empty", kRemedy);
  return index;
}

const ShardIndex::Entry* ShardIndex::find(std::string_view tensor) const {
  const auto at = std::lower_bound(
      entries.begin(), entries.end(), tensor,
      [](const Entry& entry, std::string_view wanted) { return entry.tensor < wanted; });
  return at != entries.end() && at->tensor == tensor ? &*at : nullptr;
}

Result<ShardIndex> read_shard_index(const std::filesystem::path& directory) {
  const std::filesystem::path path = directory / kShardIndexName;
  MOE_ASSIGN_OR_RETURN(const std::string text, read_text_file(path, kMaxIndexBytes));
  return parse_shard_index(text, path.string());
}

}  // namespace moepack
