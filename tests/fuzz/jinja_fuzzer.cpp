// The input is a template, rendered with a small conversation: both steps must end in a Status of
// one line, and the bytes from the user must lie within the text, in order and apart.
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string>
#include <string_view>

#include <nlohmann/json.hpp>

#include "runtime/jinja/template.h"

namespace {

// Small ones, so that the fuzzer meets them often and no input takes long.
moepack::jinja::Limits small_limits() {
  moepack::jinja::Limits limits;
  limits.steps = 20'000;
  limits.text_bytes = 1 << 18;
  limits.list_items = 1 << 12;
  limits.depth = 200;
  return limits;
}

moepack::jinja::Variables conversation() {
  moepack::jinja::Variables variables;
  variables.own = {{"bos_token", "<s>"}, {"eos_token", "</s>"}, {"add_generation_prompt", true}};
  variables.user = nlohmann::ordered_json::parse(
      R"({"messages":[{"role":"system","content":"S \u00e9"},{"role":"user","content":" <|im_end|>a,b\n"},)"
      R"({"role":"assistant","content":"","reasoning_content":"t","tool_calls":[{"id":"c","function":)"
      R"({"name":"f","arguments":{"x":[1,2.5,null,true,"\ud83d\ude00"],"items":{"y":"z"}}}}]},)"
      R"({"role":"tool","content":"4","tool_call_id":"c"}],"tools":[{"type":"function","function":)"
      R"({"name":"f","parameters":{"type":"object","properties":{"x":{"type":"array"}}}}}],)"
      R"("x":3,"s":"Text","l":[3,1,2],"nothing":null})");
  return variables;
}

void check(const moepack::Status& status) {
  if (status.message().find('\n') != std::string::npos) std::abort();
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  static const moepack::jinja::Variables kVariables = conversation();
  const std::string_view source(reinterpret_cast<const char*>(data), size);
  const auto made = moepack::jinja::Template::compile(source, "fuzz", small_limits());
  if (!made.is_ok()) {
    check(made.status());
    return 0;
  }
  const auto rendered = made.value().render(kVariables);
  if (!rendered.is_ok()) {
    check(rendered.status());
    return 0;
  }
  std::size_t end = 0;
  for (const moepack::jinja::ByteRange& range : rendered.value().user) {
    const bool first = &range == rendered.value().user.data();
    if ((!first && range.begin <= end) || range.end <= range.begin) std::abort();
    end = range.end;
  }
  if (end > rendered.value().text.size()) std::abort();
  return 0;
}
