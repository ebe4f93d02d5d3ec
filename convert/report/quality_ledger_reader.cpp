#include "convert/report/quality_ledger_reader.h"

#include <algorithm>
#include <functional>
#include <limits>

namespace moepack {
namespace {

bool is_projection_good(const ProjectionQuality& quality, std::size_t experts) {
  return quality.method.size() == experts && quality.before.size() == experts &&
         quality.after.size() == experts &&
         std::all_of(quality.weight_error.begin(), quality.weight_error.end(),
                     [experts](std::uint32_t e) { return e < experts; }) &&
         std::adjacent_find(quality.weight_error.begin(), quality.weight_error.end(),
                            std::greater_equal<>()) == quality.weight_error.end();
}

}  // namespace

// The depth is 1 in the ledger, 2 in its lists, 3 in a layer, 4 in samples or a projection, and 5
// in a column of a projection.
bool QualityLedgerReader::in_layer() const {
  return open_.size() >= 3 && open_[0].key == "layers" && open_[1].is_array && !open_[2].is_array;
}

bool QualityLedgerReader::is_open(std::initializer_list<std::string_view> path) const {
  return open_.size() == path.size() &&
         std::equal(path.begin(), path.end(), open_.begin(),
                    [](std::string_view want, const Open& open) {
                      return open.is_array ? want == "[]" : want == open.key && want != "[]";
                    });
}

void QualityLedgerReader::begin(bool is_array) {
  if (column_depth_ != 0) refuse();
  if (!is_array && is_open({"layers", "[]"})) {
    layer_ = {};
    has_layer_number_ = false;
    layer_is_good_ = true;
  }
  open_.push_back({.is_array = is_array, .key = {}});
  if (is_array && column_depth_ == 0 && in_layer()) open_column();
}

void QualityLedgerReader::open_column() {
  const auto opened = [this](auto*& column, auto& target) {
    column = &target;
    column_depth_ = open_.size();
  };
  if (is_open({"layers", "[]", "samples", "[]"})) {
    opened(samples_, layer_.samples);
    return;
  }
  for (Projection p : kAllProjections) {
    const std::string_view name = projection_name(p);
    ProjectionQuality& quality = layer_.of(p);
    if (is_open({"layers", "[]", name, "method", "[]"})) opened(method_, quality.method);
    if (is_open({"layers", "[]", name, "before", "[]"})) opened(errors_, quality.before);
    if (is_open({"layers", "[]", name, "after", "[]"})) opened(errors_, quality.after);
    if (is_open({"layers", "[]", name, "weight_error", "[]"})) {
      opened(experts_, quality.weight_error);
    }
  }
}

void QualityLedgerReader::end() {
  if (open_.size() == column_depth_) {
    column_depth_ = 0;
    samples_ = nullptr;
    method_ = nullptr;
    errors_ = nullptr;
    experts_ = nullptr;
  }
  if (open_.size() == 3 && in_layer()) finish_layer();
  if (!open_.empty()) open_.pop_back();
  done_ = open_.empty();
}

void QualityLedgerReader::key(const std::string& key) {
  if (!open_.empty()) open_.back().key = key;
}

void QualityLedgerReader::finish_layer() {
  const std::size_t experts = layer_.projections.front().method.size();
  const bool fits =
      std::all_of(layer_.projections.begin(), layer_.projections.end(),
                  [experts](const ProjectionQuality& q) { return is_projection_good(q, experts); });
  if (!layer_is_good_ || !has_layer_number_ || !fits || experts == 0) return;
  if (!layer_.samples.empty() && layer_.samples.size() != experts) return;
  ledger_.layers.push_back(std::move(layer_));
}

void QualityLedgerReader::scalar_null() {
  if (in_column() && errors_ != nullptr) {
    errors_->push_back(std::numeric_limits<float>::quiet_NaN());
    return;
  }
  refuse();
}

void QualityLedgerReader::scalar_unsigned(std::uint64_t value) {
  if (column_depth_ == 0 && is_open({"layers", "[]", "layer"}) &&
      value <= std::numeric_limits<std::uint32_t>::max()) {
    layer_.layer = static_cast<std::uint32_t>(value);
    has_layer_number_ = true;
    return;
  }
  if (in_column() && samples_ != nullptr) {
    samples_->push_back(value);
  } else if (in_column() && errors_ != nullptr) {
    errors_->push_back(static_cast<float>(value));
  } else if (in_column() && method_ != nullptr &&
             value <= std::numeric_limits<std::uint8_t>::max()) {
    method_->push_back(static_cast<std::uint8_t>(value));
  } else if (in_column() && experts_ != nullptr &&
             value <= std::numeric_limits<std::uint32_t>::max()) {
    experts_->push_back(static_cast<std::uint32_t>(value));
  } else {
    refuse();
  }
}

void QualityLedgerReader::scalar_number(double value) {
  constexpr double kLargest = 1e30;  // of a relative error; far from where float ends
  if (!in_column() || errors_ == nullptr || !(value >= 0 && value <= kLargest)) {
    refuse();
    return;
  }
  errors_->push_back(static_cast<float>(value));
}

void QualityLedgerReader::scalar_string(std::string& value) {
  if (is_open({"error"})) {
    has_error_ = value == "output" || value == "weight";
    ledger_.error = value == "output" ? QuantError::kOutput : QuantError::kWeight;
  } else if (is_open({"methods", "[]"})) {
    if (!has_methods_) ledger_.methods.clear();
    has_methods_ = true;
    ledger_.methods.push_back(std::move(value));
  } else {
    refuse();
  }
}

std::optional<QualityLedger> QualityLedgerReader::take() {
  if (!has_error_ || !has_methods_) return std::nullopt;
  const std::size_t methods = ledger_.methods.size();
  std::erase_if(ledger_.layers, [methods](const LayerQuality& layer) {
    return !std::all_of(layer.projections.begin(), layer.projections.end(),
                        [methods](const ProjectionQuality& q) {
                          return std::all_of(q.method.begin(), q.method.end(),
                                             [methods](std::uint8_t m) { return m < methods; });
                        });
  });
  return std::move(ledger_);
}

}  // namespace moepack
