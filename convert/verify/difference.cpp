#include "convert/verify/difference.h"

#include <algorithm>

#include "formats/base/status.h"

namespace moepack {

std::string difference_text(const Difference& d) {
  std::string text = printable(d.file, 4096);
  std::string_view separator = ": ";
  const auto add = [&](std::string_view what, const std::string& value) {
    text += separator;
    text += what;
    text += value;
    separator = ", ";
  };
  if (d.layer.has_value()) add("layer ", std::to_string(*d.layer));
  if (d.expert.has_value()) add("expert ", std::to_string(*d.expert));
  if (!d.tensor.empty()) add("tensor ", printable(d.tensor));
  if (d.offset.has_value()) add("offset ", std::to_string(*d.offset));
  text += ": " + printable(d.what, 1024);
  if (!d.expected.empty()) text += ": expected " + printable(d.expected);
  if (!d.found.empty()) text += ", found " + printable(d.found);
  return text;
}

void DifferenceLog::next_part() {
  const std::lock_guard lock(mutex_);
  ++part_;
}

void DifferenceLog::add(std::uint64_t position, Difference difference) {
  const std::lock_guard lock(mutex_);
  ++count_;
  const std::pair<std::uint64_t, std::uint64_t> key{part_, position};
  const auto at = std::upper_bound(entries_.begin(), entries_.end(), key,
                                   [](const auto& k, const Entry& e) { return k < e.position; });
  if (at == entries_.end() && entries_.size() >= kKept) return;
  entries_.insert(at, Entry{key, std::move(difference)});
  if (entries_.size() > kKept) entries_.pop_back();
}

std::uint64_t DifferenceLog::count() const {
  const std::lock_guard lock(mutex_);
  return count_;
}

std::vector<Difference> DifferenceLog::kept() const {
  const std::lock_guard lock(mutex_);
  std::vector<Difference> list;
  for (const Entry& entry : entries_) list.push_back(entry.difference);
  return list;
}

}  // namespace moepack
