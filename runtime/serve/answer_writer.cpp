#include "runtime/serve/answer_writer.h"

#include <nlohmann/json.hpp>

namespace moepack {

std::string sse_event(const std::string& json, const std::string& name) {
  std::string text;
  text.reserve(json.size() + name.size() + 18);
  if (!name.empty()) text.append("event: ").append(name).append("\n");
  return text.append("data: ").append(json).append("\n\n");
}

std::string dump_json(const OrderedJson& json) {
  return json.dump(-1, ' ', false, OrderedJson::error_handler_t::replace);
}

}  // namespace moepack
