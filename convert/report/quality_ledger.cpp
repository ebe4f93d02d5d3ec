#include "convert/report/quality_ledger.h"

#include <charconv>
#include <cmath>
#include <string_view>
#include <type_traits>

#include "formats/base/json_fields.h"

namespace moepack {
namespace {

void append_error(std::string& text, float number) {
  constexpr int kDigits = 4;
  if (!std::isfinite(number)) {
    text += "null";
    return;
  }
  std::array<char, 32> digits;
  const auto end = std::to_chars(digits.data(), digits.data() + digits.size(), number,
                                 std::chars_format::general, kDigits);
  text.append(digits.data(), end.ptr);
}

template <typename T>
void append_column(std::string& text, std::string_view name, const std::vector<T>& values) {
  text += '"';
  text += name;
  text += "\": [";
  for (std::size_t i = 0; i < values.size(); ++i) {
    if (i != 0) text += ", ";
    if constexpr (std::is_same_v<T, float>) {
      append_error(text, values[i]);
    } else {
      text += std::to_string(values[i]);
    }
  }
  text += ']';
}

void append_projection(std::string& text, const ProjectionQuality& quality) {
  text += '{';
  append_column(text, "method", quality.method);
  text += ",\n    ";
  append_column(text, "before", quality.before);
  text += ",\n    ";
  append_column(text, "after", quality.after);
  if (!quality.weight_error.empty()) {
    text += ",\n    ";
    append_column(text, "weight_error", quality.weight_error);
  }
  text += '}';
}

}  // namespace

const char* quant_error_name(QuantError error) {
  return error == QuantError::kOutput ? "output" : "weight";
}

std::string ledger_json(const QualityLedger& ledger) {
  std::string text = "{\"error\": \"";
  text += quant_error_name(ledger.error);
  text += "\", \"methods\": [";
  for (std::size_t i = 0; i < ledger.methods.size(); ++i) {
    text += (i == 0 ? "" : ", ") + json_quote(ledger.methods[i]);
  }
  text += "], \"layers\": [";
  for (std::size_t i = 0; i < ledger.layers.size(); ++i) {
    const LayerQuality& layer = ledger.layers[i];
    text += (i == 0 ? "\n  {\"layer\": " : ",\n  {\"layer\": ") + std::to_string(layer.layer);
    if (!layer.samples.empty()) {
      text += ",\n   ";
      append_column(text, "samples", layer.samples);
    }
    for (Projection p : kAllProjections) {
      text += ",\n   \"" + std::string(projection_name(p)) + "\": ";
      append_projection(text, layer.of(p));
    }
    text += '}';
  }
  return text + "]}";
}

}  // namespace moepack
