#include "convert/job/journal.h"

#include <sys/stat.h>
#include <unistd.h>
#include <cerrno>
#include <cstring>

#include <nlohmann/json.hpp>

#include "formats/base/checksum.h"
#include "formats/base/file.h"
#include "formats/base/json_fields.h"
#include "formats/base/limits.h"
#include "formats/base/paths.h"
#include "formats/base/write_remedy.h"

namespace moepack {
namespace {

constexpr std::uint64_t kVersion = 1;
constexpr const char* kNotFiniteKey = "not_finite";
constexpr std::size_t kSumDigits = 16;
// A line of 512 experts is 8 kB; a thousand layers of a thousand experts fit.
constexpr std::uint64_t kMaxJournalBytes = std::uint64_t{64} << 20;

std::uint64_t sum_of(std::string_view text) { return checksum(std::as_bytes(std::span(text))); }

Status io_error(const std::string& file, std::string_view action, int error) {
  return make_error(StatusCode::kIo, Where{.file = file},
                    std::string(action) + ": " + std::strerror(error), write_remedy(error));
}

const std::string* find_string(const nlohmann::json& json, const char* key) {
  const auto it = json.find(key);
  return it != json.end() && it->is_string() ? it->get_ptr<const std::string*>() : nullptr;
}

std::optional<std::uint64_t> find_number(const nlohmann::json& json, const char* key) {
  const auto it = json.find(key);
  if (it == json.end() || !it->is_number_unsigned()) return std::nullopt;
  return it->get<std::uint64_t>();
}

std::optional<std::uint64_t> find_sum(const nlohmann::json& json, const char* key) {
  const std::string* text = find_string(json, key);
  return text == nullptr ? std::nullopt : parse_checksum(*text);
}

std::optional<std::vector<std::uint64_t>> parse_sums(const std::string& text) {
  if (text.size() % kSumDigits != 0) return std::nullopt;
  std::vector<std::uint64_t> sums;
  for (std::size_t at = 0; at < text.size(); at += kSumDigits) {
    const auto sum = parse_checksum(std::string_view(text).substr(at, kSumDigits));
    if (!sum.has_value()) return std::nullopt;
    sums.push_back(*sum);
  }
  return sums;
}

std::string sums_text(const std::vector<std::uint64_t>& sums) {
  std::string text;
  for (const std::uint64_t sum : sums) text += checksum_text(sum);
  return text;
}

void add_names(const nlohmann::json& json, std::set<std::string>& names) {
  const auto list = json.find(kNotFiniteKey);
  if (list == json.end() || !list->is_array()) return;
  for (const nlohmann::json& name : *list) {
    if (name.is_string()) names.insert(name.get<std::string>());
  }
}

std::string names_text(const std::vector<std::string>& names) {
  if (names.empty()) return {};
  std::string text;
  for (const std::string& name : names) text += (text.empty() ? "" : ", ") + json_quote(name);
  return std::string(", \"") + kNotFiniteKey + "\": [" + text + "]";
}

}  // namespace

Result<ConversionJournal> ConversionJournal::open(int fd, const std::string& file) {
  ConversionJournal journal(fd, file);
  MOE_RETURN_IF_ERROR(journal.read_lines());
  return journal;
}

Result<ConversionJournal> ConversionJournal::look(const std::filesystem::path& path) {
  if (!is_there(path)) return ConversionJournal();
  MOE_ASSIGN_OR_RETURN(const File file, File::open(path));
  MOE_ASSIGN_OR_RETURN(ConversionJournal journal, open(file.fd(), path.string()));
  journal.fd_ = -1;
  return journal;
}

const std::vector<std::uint64_t>* ConversionJournal::layer_checksums(std::uint32_t layer) const {
  const auto it = layers_.find(layer);
  return it == layers_.end() ? nullptr : &it->second;
}

// Stops at the first line that is not whole: what follows was never synced, or is damaged.
Status ConversionJournal::read_lines() {
  struct stat info {};
  if (::fstat(fd_, &info) != 0) return io_error(file_, "cannot stat", errno);
  const auto file_size = static_cast<std::uint64_t>(info.st_size);
  if (file_size > kMaxJournalBytes) {
    return corrupt(Where{.file = file_}, "is no journal of a conversion, it is too long");
  }
  std::string text(file_size, '\0');
  for (std::size_t done = 0; done < text.size();) {
    const ssize_t got =
        ::pread(fd_, text.data() + done, text.size() - done, static_cast<off_t>(done));
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) return io_error(file_, "cannot read", errno);
    if (got == 0) return corrupt(Where{.file = file_}, "became shorter while it was read");
    done += static_cast<std::size_t>(got);
  }
  for (std::size_t begin = 0; begin < text.size();) {
    const std::size_t end = text.find('\n', begin);
    if (end == std::string::npos || end - begin < kSumDigits + 1) break;
    const std::string_view line = std::string_view(text).substr(begin, end - begin);
    const std::string json(line.substr(kSumDigits + 1));
    if (parse_checksum(line.substr(0, kSumDigits)) != sum_of(json) || !apply(json)) break;
    begin = end + 1;
    size_ = begin;
  }
  return Status::ok();
}

// One record; false when it makes no sense at its place.
bool ConversionJournal::apply(const std::string& json_text) {
  const nlohmann::json json = nlohmann::json::parse(json_text, nullptr, false);
  if (!json.is_object()) return false;
  if (is_empty()) {
    const std::string* what = find_string(json, "what");
    const auto plan = find_sum(json, "plan");
    if (find_number(json, "journal") != kVersion || !plan.has_value()) return false;
    plan_ = plan;
    what_ = what == nullptr ? "" : *what;
    return true;
  }
  if (const auto sum = find_sum(json, "resident"); sum.has_value()) {
    resident_ = sum;
    add_names(json, not_finite_);
    return true;
  }
  if (const std::string* text = find_string(json, "prediction"); text != nullptr) {
    prediction_ = parse_sums(*text);
    return prediction_.has_value();
  }
  if (const std::string* shard = find_string(json, "removing"); shard != nullptr) {
    removed_.insert(*shard);
    return true;
  }
  if (json.contains("complete")) {
    complete_ = true;
    return true;
  }
  const auto layer = find_number(json, "layer");
  const std::string* text = find_string(json, "checksums");
  if (!layer.has_value() || *layer >= kMaxModelLayers || text == nullptr) return false;
  auto sums = parse_sums(*text);
  if (!sums.has_value()) return false;
  layers_[static_cast<std::uint32_t>(*layer)] = std::move(*sums);
  add_names(json, not_finite_);
  return true;
}

Status ConversionJournal::cut(std::uint64_t size) {
  if (::ftruncate(fd_, static_cast<off_t>(size)) != 0) {
    return io_error(file_, "cannot truncate", errno);
  }
  return Status::ok();
}

Status ConversionJournal::append(const std::string& json_text) {
  // What a crash or a full disk left behind the last whole line goes first.
  MOE_RETURN_IF_ERROR(cut(size_));
  const std::string line = checksum_text(sum_of(json_text)) + " " + json_text + "\n";
  for (std::size_t done = 0; done < line.size();) {
    const ssize_t put =
        ::pwrite(fd_, line.data() + done, line.size() - done, static_cast<off_t>(size_ + done));
    if (put < 0 && errno == EINTR) continue;
    if (put < 0) return io_error(file_, "cannot write", errno);
    done += static_cast<std::size_t>(put);
  }
  if (::fsync(fd_) != 0) return io_error(file_, "cannot sync", errno);
  size_ += line.size();
  return Status::ok();
}

Status ConversionJournal::start(WorkKind work, std::uint64_t plan, const std::string& what) {
  size_ = 0;
  plan_.reset();
  resident_.reset();
  prediction_.reset();
  layers_.clear();
  removed_.clear();
  not_finite_.clear();
  complete_ = false;
  MOE_RETURN_IF_ERROR(append("{\"journal\": " + std::to_string(kVersion) +
                             ", \"command\": " + json_quote(journal_command(work)) +
                             ", \"plan\": " + json_quote(checksum_text(plan)) +
                             ", \"what\": " + json_quote(what) + "}"));
  plan_ = plan;
  what_ = what;
  return Status::ok();
}

Status ConversionJournal::add_resident(std::uint64_t checksum,
                                       const std::vector<std::string>& not_finite) {
  MOE_RETURN_IF_ERROR(append("{\"resident\": " + json_quote(checksum_text(checksum)) +
                             names_text(not_finite) + "}"));
  resident_ = checksum;
  not_finite_.insert(not_finite.begin(), not_finite.end());
  return Status::ok();
}

Status ConversionJournal::add_prediction(std::vector<std::uint64_t> checksums) {
  MOE_RETURN_IF_ERROR(append("{\"prediction\": " + json_quote(sums_text(checksums)) + "}"));
  prediction_ = std::move(checksums);
  return Status::ok();
}

Status ConversionJournal::add_layer(std::uint32_t layer, std::vector<std::uint64_t> checksums,
                                    const std::vector<std::string>& not_finite) {
  MOE_RETURN_IF_ERROR(append("{\"layer\": " + std::to_string(layer) + ", \"checksums\": " +
                             json_quote(sums_text(checksums)) + names_text(not_finite) + "}"));
  layers_[layer] = std::move(checksums);
  not_finite_.insert(not_finite.begin(), not_finite.end());
  return Status::ok();
}

Status ConversionJournal::add_removal(const std::string& shard) {
  MOE_RETURN_IF_ERROR(append("{\"removing\": " + json_quote(shard) + "}"));
  removed_.insert(shard);
  return Status::ok();
}

Status ConversionJournal::add_completion() {
  MOE_RETURN_IF_ERROR(append("{\"complete\": true}"));
  complete_ = true;
  return Status::ok();
}

}  // namespace moepack
