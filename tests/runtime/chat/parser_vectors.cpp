// What the families' vectors have in common.
#include "tests/runtime/chat/parser_vectors.h"

namespace moepack::test {

std::vector<ParserVectors> all_parser_vectors() {
  return {plain_vectors(),   hermes_vectors(),   qwen_xml_vectors(),
          harmony_vectors(), deepseek_vectors(), dsml_vectors(),
          glm_vectors(),     kimi_vectors(),     minimax_vectors()};
}

OutputParserOptions vector_options(const ParserVectors& family, const ParserVector& vector) {
  OutputParserOptions options;
  options.format = family.format;
  options.added_tokens = family.added_tokens;
  options.begins_in_reasoning = vector.begins_in_reasoning;
  options.parses_calls = vector.parses_calls;
  options.parses_reasoning = vector.parses_reasoning;
  if (!vector.has_tools) return options;
  const auto schema = [](const char* properties) {
    return OrderedJson::parse(std::string(R"({"type":"object","properties":)") + properties + "}");
  };
  options.tools = {
      {"read", "", schema(R"({"path":{"type":"string"},"limit":{"type":"integer"}})"), {}},
      {"write", "", schema(R"({"path":{"type":"string"},"text":{"type":"string"}})"), {}},
      {"set",
       "",
       schema(R"({"s":{"type":"string"},"i":{"type":"integer"},"n":{"type":"number"},
          "b":{"type":"boolean"},"o":{"type":"object"},"a":{"type":"array"},
          "sn":{"anyOf":[{"type":"string"},{"type":"null"}]},"in":{"type":["integer","null"]},
          "e":{"enum":["x","y"]},"r":{"$ref":"#/$defs/R"},"so":{"type":["string","object"]}})"),
       {}},
      {"now", "", {}, {}},
      {"extra",
       "",
       OrderedJson::parse(R"({"type":"object","properties":{"s":{"type":"string"}},
          "additionalProperties":{"type":"integer"}})"),
       {}},
  };
  options.tools[2].parameters["$defs"]["R"] = OrderedJson{{"type", "boolean"}};
  return options;
}

}  // namespace moepack::test
