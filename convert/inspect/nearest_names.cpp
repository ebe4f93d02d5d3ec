#include "convert/inspect/nearest_names.h"

#include <algorithm>

namespace moepack {

void NearestNames::add(std::string_view name) {
  const std::size_t most = std::min(name.size(), wanted_.size());
  const auto front =
      std::mismatch(name.begin(), name.begin() + static_cast<long>(most), wanted_.begin()).first -
      name.begin();
  const auto back =
      std::mismatch(name.rbegin(), name.rbegin() + static_cast<long>(most), wanted_.rbegin())
          .first -
      name.rbegin();
  const auto score = static_cast<std::size_t>(front + back);
  if (best_.size() == kShown && score <= best_.back().first) return;
  const auto at = std::find_if(best_.begin(), best_.end(),
                               [&](const auto& other) { return other.first < score; });
  best_.insert(at, {score, std::string(name)});
  if (best_.size() > kShown) best_.pop_back();
}

std::string NearestNames::text() const {
  std::string text;
  for (const auto& [score, name] : best_) text += (text.empty() ? "" : ", ") + printable(name);
  return text;
}

Status no_such_tensor(const std::string& place, const std::string& wanted,
                      const NearestNames& nearest, const std::string& hint) {
  std::string remedy = nearest.text();
  if (!remedy.empty()) remedy = "the nearest names are " + remedy;
  if (!hint.empty()) remedy += (remedy.empty() ? "" : "; ") + hint;
  return not_found(Where{.file = place, .tensor = wanted}, "there is no such tensor", remedy);
}

}  // namespace moepack
