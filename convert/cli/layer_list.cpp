#include "convert/cli/layer_list.h"

#include <charconv>
#include <optional>
#include <set>
#include <string_view>

#include "formats/base/limits.h"

namespace moepack::cli {
namespace {

std::optional<std::uint32_t> parse_layer(std::string_view text) {
  std::uint32_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return value < kMaxModelLayers ? std::optional(value) : std::nullopt;
}

}  // namespace

Result<std::vector<std::uint32_t>> parse_layers(const std::string& text) {
  if (text == "all") return std::vector<std::uint32_t>{};
  std::set<std::uint32_t> layers;
  std::string_view rest = text;
  while (true) {
    const std::string_view item = rest.substr(0, rest.find(','));
    const std::size_t dash = item.find('-');
    const auto first = parse_layer(item.substr(0, dash));
    const auto last = dash == std::string_view::npos ? first : parse_layer(item.substr(dash + 1));
    if (!first.has_value() || !last.has_value() || *last < *first) {
      return invalid_argument("--layers " + printable(text) + " is no list of layers",
                              "write all, or numbers and ranges as in 0-4,7");
    }
    for (std::uint32_t layer = *first; layer <= *last; ++layer) layers.insert(layer);
    if (item.size() == rest.size()) break;
    rest.remove_prefix(item.size() + 1);
  }
  return std::vector<std::uint32_t>(layers.begin(), layers.end());
}

void add_layers(CLI::App& command, std::string& layers, const std::string& verb) {
  command
      .add_option("--layers", layers,
                  verb + " only these layers now, as in 0-4,7; the others wait for a later run")
      ->capture_default_str();
}

}  // namespace moepack::cli
