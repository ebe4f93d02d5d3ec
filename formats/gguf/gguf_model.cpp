#include "formats/gguf/gguf_model.h"

#include <algorithm>
#include <array>
#include <optional>
#include <string>
#include <system_error>

#include "formats/base/bytes.h"
#include "formats/base/checksum.h"

namespace moepack {
namespace {

namespace fs = std::filesystem;

constexpr std::uint64_t kMaxParts = 65'535;  // a u16
constexpr std::string_view kNumberKey = "split.no";
constexpr std::string_view kCountKey = "split.count";
constexpr std::string_view kTensorsKey = "split.tensors.count";

struct SplitKeys {
  std::uint64_t number = 0;
  std::uint64_t count = 1;
  std::optional<std::uint64_t> tensors;
};

// What the keys of one file say; a file without split.count is whole.
Result<SplitKeys> split_keys(const GgufFile& file) {
  SplitKeys keys;
  const GgufMetadata& metadata = file.metadata();
  if (!metadata.has(kCountKey)) return keys;
  MOE_ASSIGN_OR_RETURN(keys.count, metadata.number(kCountKey, kMaxParts));
  keys.count = std::max<std::uint64_t>(keys.count, 1);  // 0: gguf-split was not at work
  if (metadata.has(kTensorsKey) || keys.count > 1) {
    MOE_ASSIGN_OR_RETURN(keys.tensors, metadata.number(kTensorsKey));
  }
  if (keys.count == 1) return keys;
  MOE_ASSIGN_OR_RETURN(keys.number, metadata.number(kNumberKey, kMaxParts));
  if (keys.number >= keys.count) {
    return corrupt({.file = file.file().path(), .offset = metadata.find(kNumberKey)->offset},
                   "key split.no is " + std::to_string(keys.number) + ", key split.count " +
                       std::to_string(keys.count),
                   "download the file again");
  }
  return keys;
}

// "-00002-of-00003.gguf" for part 1 of 3.
std::string part_suffix(std::uint64_t number, std::uint64_t count) {
  const auto five = [](std::uint64_t value) {
    std::string digits = std::to_string(value);
    return std::string(digits.size() < 5 ? 5 - digits.size() : 0, '0') + digits;
  };
  return "-" + five(number + 1) + "-of-" + five(count) + ".gguf";
}

std::string part_text(const SplitKeys& keys) {
  return "part " + std::to_string(keys.number + 1) + " of " + std::to_string(keys.count);
}

Status check_part(const GgufFile& part, std::uint64_t number, const SplitKeys& expected,
                  const std::string& first) {
  MOE_ASSIGN_OR_RETURN(const SplitKeys keys, split_keys(part));
  const Where where{.file = part.file().path()};
  constexpr std::string_view kRemedy = "download all parts of one model into one directory";
  if (keys.count != expected.count || keys.number != number) {
    return corrupt(where,
                   "is " + (keys.count == 1 ? std::string("a whole file") : part_text(keys)) +
                       " by its keys, its name says part " + std::to_string(number + 1) + " of " +
                       std::to_string(expected.count),
                   kRemedy);
  }
  if (keys.tensors != expected.tensors) {
    return corrupt(where,
                   "belongs to a model of " + std::to_string(*keys.tensors) + " tensors, " +
                       printable(first, 4096) + " to one of " + std::to_string(*expected.tensors),
                   kRemedy);
  }
  return Status::ok();
}

std::uint64_t fingerprint_of(std::span<const GgufFile> parts) {
  std::vector<std::pair<std::string, const GgufFile*>> files;
  for (const GgufFile& part : parts) {
    files.emplace_back(fs::path(part.file().path()).filename().string(), &part);
  }
  std::sort(files.begin(), files.end());
  ChecksumStream sum;
  for (const auto& [name, part] : files) {
    std::array<std::byte, 16> numbers{};
    store_le(numbers.data(), part->file().size());
    store_le(numbers.data() + 8, part->header_checksum());
    sum.add(std::as_bytes(std::span(name.c_str(), name.size() + 1)));
    sum.add(numbers);
  }
  return sum.finish();
}

}  // namespace

Status GgufTensor::check_readable() const {
  if (!part->is_big_endian() || has_big_endian_form(info->type)) return Status::ok();
  return unsupported(
      where(),
      "the byte order of " + ggml_type_name(info->type) + " in a big-endian file is not defined",
      "use a little-endian file");
}

Status GgufTensor::read(std::uint64_t begin, std::span<std::byte> out) const {
  MOE_RETURN_IF_ERROR(check_readable());
  const auto end = checked_add(begin, out.size());
  const std::uint64_t unit = part->is_big_endian() ? info->type.block_bytes : 1;
  if (!end.has_value() || *end > info->size || begin % unit != 0 || out.size() % unit != 0) {
    return make_error(StatusCode::kInvalidArgument, where(),
                      "bytes from " + std::to_string(begin) + " on, " + std::to_string(out.size()) +
                          " of them, are no whole blocks of the tensor of " +
                          std::to_string(info->size));
  }
  MOE_RETURN_IF_ERROR(part->file().read_at(info->offset + begin, out, info->name));
  if (part->is_big_endian()) ggml_big_to_little_endian(info->type, out.data(), out.size());
  return Status::ok();
}

// The limits of one file hold for all parts together.
Status GgufModel::add_part(GgufFile part) {
  std::uint64_t tensors = part.tensors().size();
  std::uint64_t keys = part.metadata().entries().size();
  for (const GgufFile& other : parts_) {
    tensors += other.tensors().size();
    keys += other.metadata().entries().size();
  }
  if (tensors > kMaxGgufTensors || keys > kMaxGgufKeys) {
    return corrupt({.file = part.file().path()},
                   "with this part the model has " + std::to_string(tensors) + " tensors and " +
                       std::to_string(keys) + " keys; at most " + std::to_string(kMaxGgufTensors) +
                       " and " + std::to_string(kMaxGgufKeys) + " are read");
  }
  parts_.push_back(std::move(part));
  return Status::ok();
}

Status GgufModel::open_other_parts(const fs::path& path, const GgufFile& given) {
  MOE_ASSIGN_OR_RETURN(const SplitKeys keys, split_keys(given));
  const std::string file = given.file().path();
  const std::string name = path.filename().string();
  const std::string suffix = part_suffix(keys.number, keys.count);
  if (keys.count > 1 && !name.ends_with(suffix)) {
    return corrupt({.file = file},
                   "is " + part_text(keys) + " by its keys, so its name must end in " + suffix,
                   "give the parts their names back");
  }
  for (std::uint64_t i = 0; i < keys.count; ++i) {
    if (i == keys.number) continue;
    const std::string prefix = name.substr(0, name.size() - suffix.size());
    const fs::path other = path.parent_path() / (prefix + part_suffix(i, keys.count));
    std::error_code ignored;
    if (!fs::exists(other, ignored)) {
      return not_found(
          {.file = other.string()},
          "this part of the model is missing, " + printable(file, 4096) + " is " + part_text(keys),
          "download all parts into one directory");
    }
    MOE_ASSIGN_OR_RETURN(GgufFile part, GgufFile::open(other));
    MOE_RETURN_IF_ERROR(check_part(part, i, keys, file));
    MOE_RETURN_IF_ERROR(add_part(std::move(part)));
  }
  return Status::ok();
}

Status GgufModel::open_parts(const fs::path& path) {
  MOE_ASSIGN_OR_RETURN(GgufFile given, GgufFile::open(path));
  MOE_ASSIGN_OR_RETURN(const SplitKeys keys, split_keys(given));
  MOE_RETURN_IF_ERROR(open_other_parts(path, given));
  MOE_RETURN_IF_ERROR(add_part(std::move(given)));
  std::rotate(parts_.begin() + static_cast<std::ptrdiff_t>(keys.number), std::prev(parts_.end()),
              parts_.end());
  std::uint64_t tensors = 0;
  for (const GgufFile& part : parts_) tensors += part.tensors().size();
  if (keys.tensors.value_or(tensors) != tensors) {
    return corrupt(
        {.file = path.string(), .offset = parts_.front().metadata().find(kTensorsKey)->offset},
        "key split.tensors.count is " + std::to_string(*keys.tensors) + ", the " +
            std::to_string(keys.count) + " parts hold " + std::to_string(tensors),
        "download all parts of one model again");
  }
  return Status::ok();
}

Status GgufModel::merge_tensors() {
  for (const GgufFile& part : parts_) {
    for (const GgufTensorInfo& info : part.tensors()) tensors_.push_back({&part, &info});
  }
  // Stable, so that the message below names the parts in order.
  std::stable_sort(tensors_.begin(), tensors_.end(), [](const GgufTensor& a, const GgufTensor& b) {
    return a.info->name < b.info->name;
  });
  const auto twice = std::adjacent_find(
      tensors_.begin(), tensors_.end(),
      [](const GgufTensor& a, const GgufTensor& b) { return a.info->name == b.info->name; });
  if (twice == tensors_.end()) return Status::ok();
  return corrupt(std::next(twice)->where(),
                 "the tensor stands in " + printable(twice->part->file().path(), 4096) + " too",
                 "download all parts of one model again");
}

Result<GgufModel> GgufModel::open(const fs::path& path) {
  GgufModel model;
  MOE_RETURN_IF_ERROR(model.open_parts(path));
  MOE_RETURN_IF_ERROR(model.merge_tensors());
  model.fingerprint_ = fingerprint_of(model.parts_);
  return model;
}

const GgufTensor* GgufModel::find(std::string_view name) const {
  const auto at = std::lower_bound(
      tensors_.begin(), tensors_.end(), name,
      [](const GgufTensor& tensor, std::string_view wanted) { return tensor.info->name < wanted; });
  return at != tensors_.end() && at->info->name == name ? &*at : nullptr;
}

}  // namespace moepack
