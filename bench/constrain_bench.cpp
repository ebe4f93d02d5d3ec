// What constraints cost at the size of a large vocabulary: making the trie, compiling a schema, and
// masks at places of a text. The vocabulary is made up: words of syllables, with and without a
// space before them, in four alphabets, digits, runs of blanks and marks of JSON and of programs.
#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <random>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include <CLI/CLI.hpp>

#include "formats/base/utf8.h"
#include "runtime/constrain/constraint.h"
#include "runtime/constrain/token_bytes.h"

namespace {

using moepack::OrderedJson;
using moepack::TokenBytes;

constexpr std::size_t kVocabulary = 248000;
constexpr std::int32_t kEnd = 256;

double ms_since(std::chrono::steady_clock::time_point begin) {
  return std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - begin)
      .count();
}

std::string drawn_word(std::mt19937& random) {
  static const std::vector<std::string> kSyllables = {
      "a",   "e",   "in",   "er", "th", "on", "re", "st", "en", "al",
      "ti",  "or",  "ing",  "co", "de", "ma", "is", "le", "ve", "us",
      "pro", "con", "ment", "ly", "un", "sh", "ch", "qu", "ex", "im"};
  std::string word;
  const std::size_t alphabet = random() % 10;
  const std::size_t length = 1 + random() % 4;
  for (std::size_t i = 0; i < length; ++i) {
    if (alphabet < 6) {
      word += kSyllables[random() % kSyllables.size()];
    } else if (alphabet < 8) {
      moepack::append_utf8(static_cast<char32_t>(0x4E00 + random() % 6000), word);
    } else {
      moepack::append_utf8(static_cast<char32_t>((alphabet == 8 ? 0x430 : 0x0E01) + random() % 32),
                           word);
    }
  }
  if (random() % 3 == 0)
    word.front() = static_cast<char>(std::toupper(static_cast<unsigned char>(word.front())));
  if (random() % 2 == 0) word.insert(0, " ");
  return word;
}

// About a twentieth has marks, as in vocabularies that were trained on programs.
std::string drawn_marks(std::mt19937& random) {
  static const std::string kMarks = "\"\"{}[]():;,.<>/\\=-_*+'#\n\n\t   ";
  std::string text;
  for (std::size_t length = 1 + random() % 5; length > 0; --length)
    text += kMarks[random() % kMarks.size()];
  if (random() % 4 == 0) text += drawn_word(random);
  return text;
}

TokenBytes made_vocabulary(double& build_ms) {
  std::mt19937 random(1);
  std::vector<std::string> texts;
  std::set<std::string> seen;
  for (int byte = 0; byte < 256; ++byte) texts.emplace_back(1, static_cast<char>(byte));
  texts.emplace_back("<|im_end|>");
  seen.insert(texts.begin(), texts.end());
  while (texts.size() < kVocabulary) {
    std::string text = random() % 20 == 0 ? drawn_marks(random) : drawn_word(random);
    if (seen.insert(text).second) texts.push_back(std::move(text));
  }
  std::vector<TokenBytes::Token> tokens;
  for (const std::string& text : texts) tokens.push_back({text, text == "<|im_end|>"});
  const std::int32_t ends[] = {kEnd};
  const auto begin = std::chrono::steady_clock::now();
  TokenBytes made(tokens, ends);
  build_ms = ms_since(begin);
  return made;
}

OrderedJson agent_schema() {
  return OrderedJson::parse(R"({"type":"object","properties":{
    "path":{"type":"string"},"mode":{"enum":["read","write","append"]},
    "short":{"type":"string","maxLength":200},"name":{"type":"string","pattern":"^[A-Za-z_]+$"},
    "limits":{"type":"array","items":{"type":"integer","minimum":0,"maximum":4096}},
    "edits":{"type":"array","items":{"type":"object","properties":{"old":{"type":"string"},
      "new":{"type":"string"},"all":{"type":"boolean"}},"required":["old","new"],
      "additionalProperties":false}}},"required":["path"],"additionalProperties":false})");
}

// What is at most allowed: an object of 2,500 integers, and a choice of 300 texts as clients of
// typed languages write it, each with a title.
OrderedJson large_object() {
  OrderedJson schema = {{"type", "object"}, {"additionalProperties", false}};
  for (int i = 0; i < 2500; ++i) {
    schema["properties"]["name" + std::to_string(i)] = {{"type", "integer"}};
  }
  return schema;
}
OrderedJson many_texts() {
  std::mt19937 random(2);
  OrderedJson ways = OrderedJson::array();
  for (int i = 0; i < 300; ++i) {
    ways.push_back({{"const", drawn_word(random) + std::to_string(i)}, {"title", "t"}});
  }
  return {{"anyOf", ways}};
}

std::shared_ptr<const moepack::Grammar> compiled(const char* what, const OrderedJson& schema) {
  const auto begin = std::chrono::steady_clock::now();
  auto grammar = moepack::make_schema_grammar(schema, nullptr).value();
  std::printf("%s, a schema of %zu bytes, compiled in %.3f ms\n", what, schema.dump().size(),
              ms_since(begin));
  return grammar;
}

// The mask at the end of `prefix`: made for the first time by a fresh constraint, the median of
// eleven; and the next one after one more character.
void measure(const char* what, const std::shared_ptr<const moepack::Grammar>& grammar,
             const std::shared_ptr<const TokenBytes>& tokens, std::string_view prefix) {
  std::vector<double> first, again;
  std::size_t allowed = 0;
  for (int i = 0; i < 11; ++i) {
    const auto filter = make_constraint(grammar, tokens, "");
    for (const char c : prefix) filter->accept(static_cast<unsigned char>(c));
    for (std::vector<double>* times : {&first, &again}) {
      std::vector<float> logits(tokens->size());
      const auto begin = std::chrono::steady_clock::now();
      filter->mask(logits);
      times->push_back(ms_since(begin));
      allowed = static_cast<std::size_t>(
          std::count_if(logits.begin(), logits.end(), [](float x) { return !std::isinf(x); }));
    }
  }
  for (std::vector<double>* times : {&first, &again}) std::sort(times->begin(), times->end());
  std::printf("%-36s first %7.3f ms, kept %6.3f ms, %zu allowed\n", what, first[5], again[5],
              allowed);
}

}  // namespace

int main(int argc, char** argv) {
  CLI::App app{"Times the masks of constrained decoding."};
  CLI11_PARSE(app, argc, argv);
  double build_ms = 0;
  const auto tokens = std::make_shared<const TokenBytes>(made_vocabulary(build_ms));
  std::printf(
      "vocabulary of %zu tokens: %zu trie nodes, %zu of them for tokens that are not plain, made "
      "in %.0f ms\n",
      tokens->size(), tokens->all().size(), tokens->others().size(), build_ms);
  const OrderedJson schema = agent_schema();
  const auto grammar = compiled("an agent's tool", schema);
  measure("before the object", grammar, tokens, "");
  measure("key", grammar, tokens, "{");
  measure("string", grammar, tokens, "{\"path\":\"");
  measure("string, inside a character", grammar, tokens, "{\"path\":\"\xE6");
  measure("string of at most 200", grammar, tokens, "{\"path\":\"\",\"short\":\"");
  measure("string of at most 200, 190 gone", grammar, tokens,
          "{\"path\":\"\",\"short\":\"" + std::string(190, 'x'));
  measure("pattern", grammar, tokens, "{\"path\":\"\",\"name\":\"a");
  measure("integer from 0 to 4096", grammar, tokens, "{\"path\":\"\",\"limits\":[");
  measure("any JSON, a value", moepack::make_json_grammar(nullptr).value(), tokens, "{\"a\":");
  const auto large = compiled("2,500 properties", large_object());
  measure("2,500 properties, first key", large, tokens, "{");
  measure("2,500 properties, in a key", large, tokens, "{\"name1");
  measure("2,500 properties, later key", large, tokens, "{\"name0\": 1, \"");
  const auto texts = compiled("a choice of 300 texts", many_texts());
  measure("300 texts, start", texts, tokens, "");
  measure("300 texts, in a text", texts, tokens, "\"");
  moepack::ToolGrammarOptions options;
  options.format = moepack::ToolFormat::kQwenXml;
  moepack::ToolSpec tool;
  tool.name = "edit";
  tool.parameters = schema;
  options.tools.push_back(tool);
  options.is_required = true;
  const auto frames = moepack::make_tool_grammar(options, nullptr).value();
  measure("call, text between tags", frames, tokens,
          "<tool_call>\n<function=edit>\n<parameter=path>\n");
  measure("call, key", frames, tokens, "<tool_call>\n<function=edit>\n<parameter=");
  return 0;
}
