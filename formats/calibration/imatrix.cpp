#include "formats/calibration/imatrix.h"

#include <array>
#include <cmath>

#include "formats/base/bytes.h"
#include "formats/base/file_blocks.h"

namespace moepack {
namespace {

constexpr std::string_view kSums = ".in_sum2";
constexpr std::string_view kCounts = ".counts";
constexpr std::uint32_t kF32 = 0;              // ggml's number
constexpr std::int32_t kMaxNameBytes = 1024;   // names are ggml's, below 64 bytes
constexpr std::int32_t kMaxEntries = 1 << 20;  // as many as a GGUF file may have tensors

// Reads int32 after int32 from a .dat file.
class DatCursor {
 public:
  explicit DatCursor(const File& file) : file_(file) {}

  std::uint64_t at() const { return at_; }
  std::uint64_t left() const { return file_.size() - at_; }
  Status error(const std::string& what) const {
    return corrupt(Where{.file = file_.path(), .offset = at_}, what,
                   "give an importance matrix as llama-imatrix writes it");
  }
  // `what` completes "… is cut off" and "… is N".
  Result<std::int32_t> number(const std::string& what, std::int32_t min, std::int32_t max) {
    std::array<std::byte, 4> bytes{};
    if (left() < bytes.size()) return error(what + " is cut off");
    MOE_RETURN_IF_ERROR(file_.read_at(at_, bytes));
    const auto value = load_le<std::int32_t>(bytes.data());
    if (value < min || value > max) return error(what + " is " + std::to_string(value));
    at_ += bytes.size();
    return value;
  }
  Result<std::string> text(std::int32_t size) {
    if (left() < static_cast<std::uint64_t>(size)) return error("a name is cut off");
    std::string out(static_cast<std::size_t>(size), '\0');
    MOE_RETURN_IF_ERROR(file_.read_at(at_, std::as_writable_bytes(std::span(out))));
    at_ += out.size();
    return out;
  }
  Status skip_floats(std::int32_t count) {
    const std::uint64_t bytes = static_cast<std::uint64_t>(count) * sizeof(float);
    if (left() < bytes) return error("the values are cut off");
    at_ += bytes;
    return Status::ok();
  }

 private:
  const File& file_;
  std::uint64_t at_ = 0;
};

std::uint64_t elements(const GgufTensor& tensor) { return tensor.info->size / sizeof(float); }

Status check_f32(const GgufTensor& tensor) {
  if (tensor.info->type.id == kF32) return Status::ok();
  return corrupt(tensor.where(), "is of type " + ggml_type_name(tensor.info->type) + ", not F32");
}

}  // namespace

Status Imatrix::add(std::string name, const Entry& entry) {
  const auto [at, is_new] = entries_.emplace(std::move(name), entry);
  if (is_new) return Status::ok();
  return corrupt(Where{.file = path(), .tensor = at->first}, "stands twice in the file");
}

Status Imatrix::open_gguf(const std::filesystem::path& path) {
  MOE_ASSIGN_OR_RETURN(GgufModel model, GgufModel::open(path));
  gguf_ = std::make_shared<const GgufModel>(std::move(model));
  const GgufMetadata& metadata = gguf_->metadata();
  if (metadata.has("general.type")) {
    MOE_ASSIGN_OR_RETURN(const std::string type, metadata.string("general.type"));
    if (type == "imatrix") {
      for (const GgufTensor& sums : gguf_->tensors()) {
        std::string name = sums.info->name;
        if (!name.ends_with(kSums)) continue;
        name.resize(name.size() - kSums.size());
        const GgufTensor* counts = gguf_->find(name + std::string(kCounts));
        if (counts == nullptr) {
          return not_found(Where{.file = this->path(), .tensor = name + std::string(kCounts)},
                           "is missing", "make the importance matrix again");
        }
        MOE_RETURN_IF_ERROR(check_f32(sums));
        MOE_RETURN_IF_ERROR(check_f32(*counts));
        MOE_RETURN_IF_ERROR(add(
            std::move(name),
            {.offset = 0, .values = elements(sums), .calls = 1, .sums = &sums, .counts = counts}));
      }
      return Status::ok();
    }
  }
  return make_error(StatusCode::kInvalidArgument, Where{.file = this->path()},
                    "is no importance matrix: its general.type is not \"imatrix\"",
                    "give a file that llama-imatrix wrote");
}

Status Imatrix::open_dat() {
  DatCursor cursor(*file_);
  MOE_ASSIGN_OR_RETURN(const std::int32_t count,
                       cursor.number("the number of entries", 1, kMaxEntries));
  for (std::int32_t i = 0; i < count; ++i) {
    MOE_ASSIGN_OR_RETURN(const std::int32_t length,
                         cursor.number("the length of a name", 1, kMaxNameBytes));
    MOE_ASSIGN_OR_RETURN(std::string name, cursor.text(length));
    Entry entry;
    MOE_ASSIGN_OR_RETURN(entry.calls, cursor.number("the number of calls", 1, INT32_MAX));
    MOE_ASSIGN_OR_RETURN(const std::int32_t values,
                         cursor.number("the number of values", 1, INT32_MAX));
    entry.values = static_cast<std::uint64_t>(values);
    entry.offset = cursor.at();
    MOE_RETURN_IF_ERROR(cursor.skip_floats(values));
    MOE_RETURN_IF_ERROR(add(std::move(name), entry));
  }
  return Status::ok();
}

Result<Imatrix> Imatrix::open(const std::filesystem::path& path) {
  Imatrix imatrix;
  MOE_ASSIGN_OR_RETURN(File file, File::open(path));
  imatrix.file_ = std::make_shared<const File>(std::move(file));
  const bool is_gguf = has_gguf_magic(*imatrix.file_);
  MOE_RETURN_IF_ERROR(is_gguf ? imatrix.open_gguf(path) : imatrix.open_dat());
  if (!imatrix.entries_.empty()) return imatrix;
  return make_error(StatusCode::kInvalidArgument, Where{.file = imatrix.path()},
                    "holds no entries of weights");
}

std::vector<std::string> Imatrix::weights() const {
  std::vector<std::string> names;
  for (const auto& [name, entry] : entries_) names.push_back(name);
  return names;
}

std::uint64_t Imatrix::values(std::string_view weight) const {
  return entries_.find(weight)->second.values;
}

Result<std::uint64_t> Imatrix::digest() const { return checksum_of_file(path()); }

// The number by which the sums of one matrix are to be divided; 0 if it was never used.
Result<double> Imatrix::count_of(const Entry& entry, std::uint64_t index,
                                 std::uint64_t matrices) const {
  if (entry.counts == nullptr) return static_cast<double>(entry.calls);
  const std::uint64_t held = elements(*entry.counts);
  if (held != matrices && held != 1) {
    return corrupt(entry.counts->where(), "holds " + std::to_string(held) + " counts for " +
                                              std::to_string(matrices) + " matrices");
  }
  std::array<std::byte, sizeof(float)> bytes{};
  MOE_RETURN_IF_ERROR(entry.counts->read((held == 1 ? 0 : index) * sizeof(float), bytes));
  const auto count = static_cast<double>(load_le<float>(bytes.data()));
  if (count >= 0 && count < 0x1p53) return count;  // not NaN
  return corrupt(entry.counts->where(), "holds " + std::to_string(count) + ", which is no count");
}

Result<Imatrix::Importance> Imatrix::read(std::string_view weight, std::uint64_t index,
                                          std::uint64_t matrices, std::uint64_t inputs) const {
  const auto& [name, entry] = *entries_.find(weight);
  const Where where{.file = path(), .tensor = name};
  if (entry.values / matrices != inputs || entry.values % matrices != 0) {
    return corrupt(where,
                   "holds " + std::to_string(entry.values) + " values; this model has " +
                       std::to_string(matrices) + " x " + std::to_string(inputs) + " inputs there",
                   "use the importance matrix of this model");
  }
  MOE_ASSIGN_OR_RETURN(const double count, count_of(entry, index, matrices));
  Importance out;
  if (count == 0) return out;
  std::vector<std::byte> bytes(inputs * sizeof(float));
  const std::uint64_t begin = index * bytes.size();
  MOE_RETURN_IF_ERROR(entry.sums != nullptr ? entry.sums->read(begin, bytes)
                                            : file_->read_at(entry.offset + begin, bytes));
  out.mean_square.resize(inputs);
  bool any = false;
  for (std::uint64_t i = 0; i < inputs; ++i) {
    const float sum = load_le<float>(bytes.data() + i * sizeof(float));
    const auto mean = static_cast<float>(static_cast<double>(sum) / count);
    if (!(mean >= 0) || !std::isfinite(mean)) {
      return corrupt(where, "value " + std::to_string(index * inputs + i) + " is " +
                                std::to_string(sum) + ", which is no sum of squares");
    }
    out.mean_square[i] = mean;
    any = any || mean > 0;
  }
  if (!any) return Importance{};
  if (has_counts()) out.tokens = static_cast<std::uint64_t>(count);
  return out;
}

}  // namespace moepack
