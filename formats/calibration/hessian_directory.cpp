#include "formats/calibration/hessian_directory.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdio>
#include <set>
#include <system_error>

#include "formats/base/bytes.h"
#include "formats/base/file.h"
#include "formats/base/json.h"
#include "formats/base/json_fields.h"
#include "formats/calibration/npy.h"
#include "formats/weights/format_json.h"

namespace moepack {
namespace {

namespace fs = std::filesystem;

constexpr const char* kCountsName = "counts.json";

std::string numbered(const char* format, std::uint32_t number) {
  std::array<char, 40> name;
  const int length = std::snprintf(name.data(), name.size(), format, number);
  return {name.data(), static_cast<std::size_t>(length)};
}

std::string layer_name(std::uint32_t layer) { return numbered("layer_%02u", layer); }
std::string expert_file_name(std::uint32_t expert) { return numbered("expert_%03u.npy", expert); }

// Collects the members of one object of numbers.
class CountsVisitor final : public JsonVisitor {
 public:
  CountsVisitor(std::uint32_t num_experts, const std::string& file)
      : num_experts_(num_experts), file_(file) {}

  HessianCounts take() { return std::move(counts_); }

  Status on_null() override { return no_count(); }
  Status on_bool(bool /*value*/) override { return no_count(); }
  Status on_number(double /*value*/) override { return no_count(); }
  Status on_string(std::string& /*value*/) override { return no_count(); }
  Status begin_array() override { return no_count(); }
  Status end_array() override { return Status::ok(); }
  Status end_object() override { return Status::ok(); }

  Status begin_object() override {
    if (is_open_) return no_count();
    is_open_ = true;
    return Status::ok();
  }
  Status on_key(std::string& key) override {
    const auto expert = parse_index(key, num_experts_);
    if (!expert.has_value()) {
      return error("\"" + printable(key, 64) + "\" is none of the model's " +
                   std::to_string(num_experts_) + " experts");
    }
    expert_ = *expert;
    return Status::ok();
  }
  Status on_unsigned(std::uint64_t value) override {
    if (!is_open_ || value == 0) return no_count();
    counts_[expert_] = value;
    return Status::ok();
  }

 private:
  Status error(std::string_view what) const {
    return corrupt(Where{.file = file_, .offset = position()}, what,
                   "the Hessians are damaged or of another model");
  }
  Status no_count() const {
    if (!is_open_) return error("it is no object of counts by expert");
    return error("the count of expert " + std::to_string(expert_) + " is no integer above 0");
  }

  std::uint32_t num_experts_;
  const std::string& file_;
  HessianCounts counts_;
  bool is_open_ = false;
  std::uint32_t expert_ = 0;
};

}  // namespace

Result<HessianCounts> parse_hessian_counts(std::string_view text, std::uint32_t num_experts,
                                           const std::string& file) {
  CountsVisitor visitor(num_experts, file);
  MOE_RETURN_IF_ERROR(visit_json(text, Where{.file = file}, visitor));
  return visitor.take();
}

Status check_hessian(const std::vector<float>& values, std::uint64_t size,
                     const std::string& file) {
  constexpr float kSymmetry = 1e-3F;
  constexpr std::uint64_t kTile = 64;  // of rows and columns: both triangles stay in the cache
  const auto error = [&](std::uint64_t row, std::uint64_t col, const char* what) {
    return corrupt(Where{.file = file},
                   "element [" + std::to_string(row) + ", " + std::to_string(col) + "] " + what,
                   "it is no sum of x x^T: write it again");
  };
  std::vector<float> norm(size);
  for (std::uint64_t i = 0; i < size; ++i) {
    const float diagonal = values[i * size + i];
    if (!std::isfinite(diagonal)) return error(i, i, "is not finite");
    if (diagonal < 0) return error(i, i, "is negative");
    norm[i] = std::sqrt(diagonal);
  }
  for (std::uint64_t rows = 0; rows < size; rows += kTile) {
    for (std::uint64_t cols = 0; cols <= rows; cols += kTile) {
      for (std::uint64_t i = rows; i < std::min(rows + kTile, size); ++i) {
        for (std::uint64_t j = cols; j < std::min(cols + kTile, i); ++j) {
          const float lower = values[i * size + j];
          const float upper = values[j * size + i];
          if (!std::isfinite(lower)) return error(i, j, "is not finite");
          if (!std::isfinite(upper)) return error(j, i, "is not finite");
          if (!(std::abs(lower - upper) <= kSymmetry * norm[i] * norm[j])) {
            return error(i, j, "differs from its mirror image");
          }
        }
      }
    }
  }
  return Status::ok();
}

Result<HessianDirectory> HessianDirectory::open(const fs::path& directory,
                                                const HessianDimensions& dims) {
  HessianDirectory out(directory, dims);
  bool any = false;
  for (std::uint32_t layer = 0; layer < dims.num_layers; ++layer) {
    std::error_code ignored;
    if (!fs::exists(directory / layer_name(layer), ignored)) continue;
    MOE_RETURN_IF_ERROR(out.open_layer(layer));
    any = true;
  }
  if (!any) {
    return not_found(Where{.file = directory.string()},
                     "holds no layer_00, layer_01, … of Hessians",
                     "give the directory that build_hessian.py wrote");
  }
  std::error_code ignored;
  const fs::path beyond = directory / layer_name(dims.num_layers);
  if (fs::exists(beyond, ignored)) {
    return corrupt(Where{.file = beyond.string()},
                   "the model has " + std::to_string(dims.num_layers) + " layers",
                   "these Hessians are of another model");
  }
  return out;
}

Status HessianDirectory::open_layer(std::uint32_t layer) {
  constexpr std::uint64_t kMaxCountsBytes = std::uint64_t{4} << 20;
  const fs::path directory = directory_ / layer_name(layer);
  const fs::path counts_path = directory / kCountsName;
  MOE_ASSIGN_OR_RETURN(const std::string text, read_text_file(counts_path, kMaxCountsBytes));
  MOE_ASSIGN_OR_RETURN(counts_[layer],
                       parse_hessian_counts(text, dims_.num_experts, counts_path.string()));
  std::error_code error;
  std::set<std::string> listed;
  for (const auto& [expert, samples] : counts_[layer]) {
    const std::string name = expert_file_name(expert);
    listed.insert(name);
    if (fs::is_regular_file(directory / name, error)) continue;
    return not_found(
        Where{.file = (directory / name).string()},
        "the file is missing, but counts.json lists " + std::to_string(samples) + " tokens for it",
        "copy the Hessians again");
  }
  for (fs::directory_iterator at(directory, error), end; !error && at != end; at.increment(error)) {
    const std::string name = at->path().filename().string();
    if (!name.starts_with("expert_") || !name.ends_with(".npy")) continue;
    if (listed.contains(name)) continue;
    return corrupt(Where{.file = at->path().string()}, "counts.json has no entry for it",
                   "remove it, or write the Hessians again");
  }
  return Status::ok();
}

std::uint64_t HessianDirectory::samples(std::uint32_t layer, std::uint32_t expert) const {
  if (layer >= dims_.num_layers) return 0;
  const auto found = counts_[layer].find(expert);
  return found == counts_[layer].end() ? 0 : found->second;
}

Result<std::vector<float>> HessianDirectory::read(std::uint32_t layer, std::uint32_t expert) const {
  const fs::path path = directory_ / layer_name(layer) / expert_file_name(expert);
  if (!has(layer, expert)) {
    return not_found(Where{.file = path.string()}, "there is no Hessian of this expert");
  }
  MOE_ASSIGN_OR_RETURN(const NpyFile file, NpyFile::open(path));
  const std::vector<std::uint64_t> expected{dims_.hidden_size, dims_.hidden_size};
  if (file.array().shape != expected) {
    return corrupt(Where{.file = path.string()},
                   "its shape is " + shape_text(file.array().shape) + ", the model needs " +
                       shape_text(expected),
                   "these Hessians are of another model");
  }
  // The file has been found to be as large as this.
  std::vector<float> values(file.array().elements);
  MOE_RETURN_IF_ERROR(file.read(values));
  MOE_RETURN_IF_ERROR(check_hessian(values, dims_.hidden_size, path.string()));
  return values;
}

}  // namespace moepack
