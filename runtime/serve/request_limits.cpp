#include "runtime/serve/request_limits.h"

#include <algorithm>
#include <utility>

namespace moepack {
namespace {

void refuse_large(const BodyFields& request, std::string_view field, const std::string& what) {
  request.fail(field, request.place_of(field) + " has " + what);
}

std::string more_than(std::size_t most, const char* what) {
  return "more than " + std::to_string(most) + " " + what;
}

}  // namespace

JsonSize json_size(const OrderedJson& json, std::size_t most_bytes) {
  constexpr std::size_t kValueBytes = 4;  // of a value that is no text
  JsonSize size;
  std::vector<std::pair<const OrderedJson*, std::size_t>> open{{&json, 1}};  // with its depth
  while (!open.empty() && size.bytes <= most_bytes) {
    const auto [value, depth] = open.back();
    open.pop_back();
    ++size.values;
    size.depth = std::max(size.depth, depth);
    size.bytes += value->is_string() ? value->get_ref<const std::string&>().size() : kValueBytes;
    if (value->is_array()) {
      for (const OrderedJson& item : *value) open.emplace_back(&item, depth + 1);
    } else if (value->is_object()) {
      for (const auto& [name, item] : value->items()) {
        size.bytes += name.size();
        open.emplace_back(&item, depth + 1);
      }
    }
  }
  return size;
}

std::string read_model_name(const BodyFields& request) {
  std::string name = request.text("model").value_or("");
  if (name.size() > kMostNameBytes) {
    refuse_large(request, "model", more_than(kMostNameBytes, "bytes"));
  }
  return name;
}

void check_tools(const BodyFields& request, std::string_view field, const OrderedJson& list) {
  if (list.size() > kMostTools) {
    return refuse_large(request, field, more_than(kMostTools, "elements"));
  }
  if (json_size(list, kMostToolBytes).bytes > kMostToolBytes) {
    refuse_large(request, field, more_than(kMostToolBytes, "bytes"));
  }
}

void check_choices(const BodyFields& request, std::size_t choices) {
  const OrderedJson* tools = request.array("tools");
  if (tools == nullptr || choices < 2) return;
  const std::size_t most = kMostChoiceToolBytes / choices;
  if (json_size(*tools, most).bytes > most) {
    request.fail("n", "n is too large for so many tools");
  }
}

std::string read_tool_name(const BodyFields& tool) {
  std::string name = tool.text("name").value_or("");
  if (name.empty()) tool.fail("name", tool.place_of("name") + " is missing: the name of the tool");
  if (name.size() > kMostToolNameBytes) {
    refuse_large(tool, "name", more_than(kMostToolNameBytes, "bytes"));
    return {};
  }
  const auto is_bad = [](char c) {
    const auto byte = static_cast<unsigned char>(c);
    return byte <= ' ' || byte == 0x7f || c == '"' || c == '<' || c == '>';
  };
  if (std::none_of(name.begin(), name.end(), is_bad)) return name;
  tool.fail("name", tool.place_of("name") + " must have no spaces, quotes, '<' and '>'");
  return {};
}

void add_stop_text(const BodyFields& request, std::string_view field, const OrderedJson& text,
                   std::vector<std::string>& texts) {
  if (!text.is_string()) {
    return request.fail(field, request.place_of(field) + " must be a text or a list of texts");
  }
  const auto& stop = text.get_ref<const std::string&>();
  if (stop.empty()) return;
  if (texts.size() == kMostStopTexts) {
    return refuse_large(request, field, more_than(kMostStopTexts, "texts"));
  }
  if (stop.size() > kMostStopBytes) {
    return refuse_large(request, field, "a text of " + more_than(kMostStopBytes, "bytes"));
  }
  texts.push_back(stop);
}

void check_template_arguments(const BodyFields& request, const OrderedJson& arguments) {
  constexpr std::string_view kField = "chat_template_kwargs";
  if (arguments.size() > kMostTemplateArguments) {
    return refuse_large(request, kField, more_than(kMostTemplateArguments, "names"));
  }
  const JsonSize size = json_size(arguments, kMostTemplateBytes);
  if (size.bytes > kMostTemplateBytes) {
    refuse_large(request, kField, more_than(kMostTemplateBytes, "bytes"));
  } else if (size.values > kMostTemplateValues) {
    refuse_large(request, kField, more_than(kMostTemplateValues, "values"));
  } else if (size.depth > kMostTemplateDepth) {
    refuse_large(request, kField, more_than(kMostTemplateDepth, "levels"));
  }
}

std::optional<std::string> read_word(const BodyFields& fields, std::string_view name) {
  std::optional<std::string> word = fields.text(name);
  if (!word.has_value() || word->size() <= kMostWordBytes) return word;
  refuse_large(fields, name, more_than(kMostWordBytes, "bytes"));
  return std::nullopt;
}

void check_echo(const BodyFields& request, std::string_view name) {
  const OrderedJson* found = request.find(name);
  if (found != nullptr && json_size(*found, kMostEchoBytes).bytes > kMostEchoBytes) {
    refuse_large(request, name, more_than(kMostEchoBytes, "bytes"));
  }
}

}  // namespace moepack
