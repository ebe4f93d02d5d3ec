// Schemas against values that the package jsonschema judged (tests/golden/schemas), and walks.
#include <gtest/gtest.h>

#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <fstream>
#include <sstream>

#include "runtime/schema/schema_limits.h"
#include "tests/runtime/constrain/constrain_support.h"
#include "tests/support/status_matchers.h"

namespace moepack::schema_grammar_test {
namespace {

using test::accepts;
using test::accepts_text;
using test::expect_error;
using test::kEndId;
using test::make_vocabulary;
using test::random_walk;
using test::tokenised;
using test::usual_pieces;

const OrderedJson& cases() {
  static const OrderedJson kCases = [] {
    std::ifstream file(MOEPACK_SOURCE_DIR "/tests/golden/schemas/cases.json");
    return OrderedJson::parse(file);
  }();
  return kCases;
}

std::shared_ptr<const Grammar> grammar_of(const OrderedJson& schema) {
  std::vector<std::string> warnings;
  auto grammar = make_schema_grammar(schema, &warnings);
  EXPECT_TRUE(grammar.is_ok()) << grammar.status().message() << " of " << schema;
  EXPECT_TRUE(warnings.empty()) << schema;
  return grammar.is_ok() ? grammar.value() : nullptr;
}

std::shared_ptr<const Grammar> grammar_of_text(const char* schema) {
  return grammar_of(OrderedJson::parse(schema));
}

TEST(SchemaGrammar, AcceptsWhatIsValidAndNothingElse) {
  ASSERT_GT(cases().size(), 200U);
  for (const OrderedJson& c : cases()) {
    const auto grammar = grammar_of(c["schema"]);
    ASSERT_NE(grammar, nullptr);
    for (const OrderedJson& text : c["valid"]) {
      EXPECT_TRUE(accepts_text(grammar, text.get<std::string>())) << text << " by " << c["schema"];
    }
    for (const OrderedJson& text : c["invalid"]) {
      EXPECT_FALSE(accepts_text(grammar, text.get<std::string>())) << text << " by " << c["schema"];
    }
  }
}

// Walks are written to the file that the environment names, for another program to judge.
TEST(SchemaGrammar, WalksAreValid) {
  const auto tokens = make_vocabulary(usual_pieces());
  const char* path = std::getenv("MOEPACK_CONSTRAIN_WALKS");
  std::ofstream file(path != nullptr ? path : "");
  std::mt19937 random(11);
  int ended = 0;
  for (const OrderedJson& c : cases()) {
    const auto grammar = grammar_of(c["schema"]);
    ASSERT_NE(grammar, nullptr);
    for (int i = 0; i < 6; ++i) {
      const auto filter = make_constraint(grammar, tokens, "");
      const test::Walk walk = random_walk(*filter, *tokens, random, 3000);
      if (!walk.has_ended) continue;
      ++ended;
      const OrderedJson value = OrderedJson::parse(walk.text, nullptr, false);
      ASSERT_FALSE(value.is_discarded()) << walk.text << " by " << c["schema"];
      EXPECT_TRUE(test::is_valid_json(c["schema"], c["schema"], value))
          << walk.text << " by " << c["schema"];
      if (path != nullptr)
        file << OrderedJson{{"schema", c["schema"]}, {"text", walk.text}} << '\n';
    }
  }
  EXPECT_GT(ended, static_cast<int>(cases().size()) * 5);
}

TEST(SchemaGrammar, MaskIsWhatEveryIdIsAllowedAndTokensDoNotMatter) {
  const auto tokens = make_vocabulary(usual_pieces());
  const auto bytes = make_vocabulary({});
  std::mt19937 random(12);
  for (const OrderedJson& c : cases()) {
    const auto grammar = grammar_of(c["schema"]);
    ASSERT_NE(grammar, nullptr);
    for (const OrderedJson& text : c["valid"]) {
      if (random() % 3 != 0) continue;
      // One by bytes, one by random tokens; they are compared wherever both are at the same byte.
      const std::string whole = text.get<std::string>();
      const auto by_bytes = make_constraint(grammar, bytes, "");
      const auto by_tokens = make_constraint(grammar, tokens, "");
      std::size_t at = 0;
      for (const std::int32_t id : tokenised(*tokens, whole, &random)) {
        std::vector<float> logits(tokens->size()), byte_logits(bytes->size());
        by_tokens->mask(logits);
        by_bytes->mask(byte_logits);
        for (std::size_t i = 0; i < logits.size(); ++i) {
          ASSERT_EQ(!std::isinf(logits[i]), by_tokens->allows(static_cast<std::int32_t>(i)))
              << whole << " at " << at << " id " << i << " by " << c["schema"];
        }
        for (std::size_t i = 0; i < byte_logits.size(); ++i) {
          ASSERT_EQ(logits[i], byte_logits[i]) << whole << " at " << at << " by " << c["schema"];
        }
        by_tokens->accept(id);
        for (const char byte : tokens->bytes(id)) {
          by_bytes->accept(static_cast<unsigned char>(byte));
        }
        at += tokens->bytes(id).size();
      }
      EXPECT_TRUE(by_tokens->allows(kEndId));
      EXPECT_TRUE(by_bytes->allows(kEndId));
    }
  }
}

TEST(SchemaGrammar, ATextMayBeBegunAlready) {
  const auto grammar = grammar_of_text(R"({"properties":{"a":{"type":"integer","maximum":99}},
      "required":["a"]})");
  const auto tokens = make_vocabulary(usual_pieces());
  for (const char* begun : {"{", "{\"a\": ", "{ \"a\": 9"}) {
    EXPECT_TRUE(may_begin_with(*grammar, *tokens, begun)) << begun;
  }
  for (const char* begun : {"[", "Sure: {", "{\"a\":100", "{\"a\":1} "}) {
    EXPECT_FALSE(may_begin_with(*grammar, *tokens, begun)) << begun;
  }
  const auto filter = make_constraint(grammar, tokens, "", "", "{\"a\": 9");
  EXPECT_FALSE(filter->allows('{'));
  EXPECT_FALSE(filter->allows(kEndId));
  for (const char byte : {'8', '}'}) {
    ASSERT_TRUE(filter->allows(byte)) << byte;
    filter->accept(byte);
  }
  EXPECT_TRUE(filter->allows(kEndId));
}

TEST(SchemaGrammar, WhiteSpaceIsAllowedAndEnds) {
  const auto grammar = grammar_of_text(
      R"({"type":"object","properties":{"a":{"type":"array","items":{"type":"integer"}}}})");
  for (const char* text : {"{ \"a\": [1, 2, 3] }", "{\n  \"a\": [\n    1,\n    2\n  ]\n}", "{ }",
                           "\n{}", "{\r\n\"a\": [ ]\r\n}", "{\n\n\"a\":[]}"}) {
    EXPECT_TRUE(accepts_text(grammar, text)) << text;
  }
  for (const char* text :
       {"{  \"a\": []}", "{\n\n\n}", "{} ", "\n\n\n{}", "{\"a\" : []}", "{\"a\":[1 ,2]}"}) {
    EXPECT_FALSE(accepts_text(grammar, text)) << text;
  }
  EXPECT_TRUE(accepts_text(grammar, "{\n" + std::string(40, ' ') + "}"));
  EXPECT_FALSE(accepts_text(grammar, "{\n" + std::string(41, ' ') + "}"));
}

TEST(SchemaGrammar, StringsAreUtf8WithWholeEscapes) {
  const auto grammar = grammar_of_text(R"({"type":"string"})");
  for (const char* text :
       {R"("\u00e9\ud83d\ude00\/\b")", "\"\xF4\x8F\xBF\xBF\"", R"("\uD7FF\uE000")", "\"\x7F\""}) {
    EXPECT_TRUE(accepts_text(grammar, text)) << text;
  }
  for (const char* text : {R"("\ud83d")", R"("\ude00")", R"("\ud83dx")", R"("\ud83d\u0041")",
                           R"("\x")", R"("\u12g4")", "\"\xC0\x80\"", "\"\xED\xA0\x80\"",
                           "\"\xF4\x90\x80\x80\"", "\"\xE6\x97\"", "\"\n\"", "\"\x80\"", "\"a"}) {
    EXPECT_FALSE(accepts_text(grammar, text)) << text;
  }
  const auto two = grammar_of_text(R"({"type":"string","minLength":2,"maxLength":2})");
  EXPECT_TRUE(accepts_text(two, R"("\ud83d\ude00\n")"));
  EXPECT_TRUE(accepts_text(two, "\"\xF0\x9F\x98\x80\xE6\x97\xA5\""));
  EXPECT_FALSE(accepts_text(two, R"("\ud83d\ude00")"));
}

TEST(SchemaGrammar, MarkersAreNoText) {
  const auto tokens = make_vocabulary({}, {"<think>", "<|im_start|>"});
  const auto grammar = grammar_of_text(R"({"type":"string"})");
  const auto filter = make_constraint(grammar, tokens, "");
  filter->accept('"');
  EXPECT_TRUE(filter->allows('<'));
  EXPECT_FALSE(filter->allows(257));
  EXPECT_FALSE(filter->allows(258));
  EXPECT_FALSE(filter->allows(kEndId));
}

TEST(SchemaGrammar, LongStringsAreCounted) {
  const auto grammar = grammar_of_text(R"({"type":"string","minLength":900,"maxLength":1000})");
  const auto tokens = make_vocabulary({"abcdefgh", "abcdefgh\"", "\xE6\x97\xA5\xE6\x97\xA5"});
  for (const std::size_t count : {899U, 900U, 1000U, 1001U}) {
    const std::string text = '"' + std::string(count, 'x') + '"';
    EXPECT_EQ(accepts_text(grammar, text), count >= 900 && count <= 1000) << count;
  }
  // Near the end of what is left, tokens that are too long are refused.
  const auto filter = make_constraint(grammar, tokens, "");
  filter->accept('"');
  for (int i = 0; i < 124; ++i) filter->accept(257);
  EXPECT_TRUE(filter->allows(257));
  filter->accept('x');
  std::vector<float> logits(tokens->size());
  filter->mask(logits);
  EXPECT_TRUE(std::isinf(logits[257]));
  EXPECT_TRUE(std::isinf(logits[258]));
  EXPECT_FALSE(std::isinf(logits[259]));
  EXPECT_FALSE(std::isinf(logits['"']));
}

TEST(SchemaGrammar, ASchemaThatNamesPropertiesIsClosed) {
  const auto grammar = grammar_of_text(R"({"type":"object","properties":{"a":{}}})");
  EXPECT_TRUE(accepts_text(grammar, R"({"a":[1,{"b":null}]})"));
  EXPECT_FALSE(accepts_text(grammar, R"({"b":1})"));
  const auto open = grammar_of_text(
      R"({"type":"object","properties":{"a":{"type":"null"}},"additionalProperties":true})");
  EXPECT_TRUE(accepts_text(open, R"({"b":1})"));
  EXPECT_TRUE(accepts_text(open, R"({"a":null,"aa":1,"":2})"));
  EXPECT_FALSE(accepts_text(open, R"({"a":1})"));
  EXPECT_FALSE(accepts_text(open, R"({"a":null,"a":1})"));
  EXPECT_FALSE(accepts_text(open, R"({"\u0061":1})"));
  const auto any = make_json_grammar(nullptr).value();
  EXPECT_TRUE(accepts_text(any, R"({"b":[1,-2.5e-3,"x",null,true,{}]})"));
  EXPECT_FALSE(accepts_text(any, "[1]"));
}

TEST(SchemaGrammar, NestingEndsAndCanAlwaysBeClosed) {
  const auto grammar = make_json_grammar(nullptr).value();
  const auto bytes = make_vocabulary({});
  const auto filter = make_constraint(grammar, bytes, "");
  for (const char c : {'{', '"', 'a', '"', ':'}) filter->accept(c);
  int depth = 0;
  while (filter->allows('[') && depth < 1000) {
    filter->accept('[');
    ++depth;
  }
  EXPECT_GT(depth, 40);
  EXPECT_LT(depth, 300);
  for (; depth > 0; --depth) {
    ASSERT_TRUE(filter->allows(']')) << depth;
    filter->accept(']');
  }
  ASSERT_TRUE(filter->allows('}'));
}

TEST(SchemaGrammar, KeywordsThatAreNotKnownAreNamedOnce) {
  std::vector<std::string> warnings;
  const auto grammar = make_schema_grammar(OrderedJson::parse(R"~({"type":"object","properties":{
        "a":{"type":"array","uniqueItems":true},"b":{"type":"array","uniqueItems":true},
        "c":{"type":"string","pattern":"(?=x)"},"d":{"not":{"type":"null"}}},
        "x-note":1,"minProperties":1})~"),
                                           &warnings);
  ASSERT_TRUE(grammar.is_ok());
  EXPECT_EQ(warnings.size(), 4U);
  EXPECT_TRUE(accepts_text(grammar.value(), R"({"a":[1,1],"c":"yes","d":null})"));
}

TEST(SchemaGrammar, RefusesWhatNoValueSatisfies) {
  const auto refused = [](const char* schema, const char* part) {
    expect_error(make_schema_grammar(OrderedJson::parse(schema), nullptr).status(),
                 StatusCode::kInvalidArgument, {part});
  };
  for (const char* schema :
       {"false", R"({"enum":[]})", R"({"type":[]})", R"({"anyOf":[]})", R"({"anyOf":[false]})",
        R"({"type":"string","enum":[1]})", R"({"type":"integer","minimum":3,"maximum":2})",
        R"({"type":"integer","minimum":0.2,"maximum":0.8})",
        R"({"type":"object","properties":{"a":false},"required":["a"]})",
        R"({"type":"object","additionalProperties":false,"required":["a"]})",
        R"({"type":"array","items":false,"minItems":1})", R"({"$ref":"#"})",
        R"({"type":"object","properties":{"a":{"$ref":"#"}},"required":["a"]})",
        R"({"allOf":[{"type":"string"},{"type":"integer"}]})",
        R"({"type":"string","minLength":3,"maxLength":2})", R"({"const":1,"type":"string"})"}) {
    refused(schema, "");
  }
  refused(R"({"enum":[]})", "no value satisfies");
  refused(R"({"type":"text"})", "\"type\"");
  refused(R"({"type":3})", "\"type\"");
  refused(R"({"enum":3})", "\"enum\"");
  refused(R"({"minLength":-1})", "\"minLength\"");
  refused(R"({"properties":[]})", "\"properties\"");
  refused(R"({"$ref":"#/none"})", "\"$ref\"");
  refused(R"({"anyOf":{}})", "\"anyOf\"");
  refused(R"({"properties":{"a":3}})", "must be an object");
  refused("3", "must be an object");
}

TEST(SchemaGrammar, HostileSchemasStayBounded) {
  std::string many = R"({"anyOf":[)";
  for (int i = 0; i < 199; ++i) {
    many += R"({"type":"array","items":{"$ref":"#"},"maxItems":)" + std::to_string(i + 1) + "},";
  }
  many += "{\"type\":\"null\"}]}";
  const auto grammar = grammar_of_text(many.c_str());
  const auto tokens = make_vocabulary(usual_pieces());
  const auto filter = make_constraint(grammar, tokens, "");
  std::vector<float> logits(tokens->size());
  for (int i = 0; i < 20; ++i) {
    filter->accept('[');
    filter->mask(logits);
    EXPECT_FALSE(std::isinf(logits['[']));
  }
  const auto nested = grammar_of_text(R"~({"type":"string","pattern":"^((a*){0,40}){0,40}$"})~");
  const auto other = make_constraint(nested, tokens, "");
  other->accept('"');
  for (int i = 0; i < 20; ++i) {
    ASSERT_TRUE(other->allows('a'));
    other->accept('a');
  }
  EXPECT_TRUE(other->allows('"'));
}

void expect_texts(const char* schema, std::initializer_list<const char*> allowed,
                  std::initializer_list<const char*> refused) {
  const auto grammar = grammar_of_text(schema);
  ASSERT_NE(grammar, nullptr);
  for (const char* text : allowed) EXPECT_TRUE(accepts_text(grammar, text)) << text << schema;
  for (const char* text : refused) EXPECT_FALSE(accepts_text(grammar, text)) << text << schema;
}

TEST(SchemaGrammar, BoundsOfAnySizeAreExact) {
  expect_texts(R"({"type":"number","minimum":0.00001,"maximum":0.00002})",
               {"0.00001", "0.0000150001", "0.00002"}, {"0.000009", "0.000020001", "0", "1"});
  expect_texts(R"({"type":"integer","minimum":1e15,"maximum":2e15})",
               {"1000000000000000", "2000000000000000"}, {"999999999999999", "2000000000000001"});
  expect_texts(R"({"type":"integer","minimum":9007199254740993,"maximum":18446744073709551615})",
               {"9007199254740993", "18446744073709551615"},
               {"9007199254740992", "18446744073709551616"});
  expect_texts(R"({"type":"integer","minimum":-9007199254740993,"exclusiveMaximum":-1.5e1})",
               {"-9007199254740993", "-16"}, {"-9007199254740994", "-15", "0"});
  // What has too many digits lies between two numbers that can be written.
  expect_texts(R"({"type":"number","exclusiveMinimum":1.5e-20,"maximum":1e25})",
               {"0.00000000000000000002", "99999999999999999999"},
               {"0.00000000000000000001", "0", "1e22"});
  expect_texts(R"({"type":"number","minimum":-1.5e-20,"maximum":0})",
               {"-0.00000000000000000001", "0"}, {"-0.00000000000000000002", "1"});
  std::vector<std::string> warnings;
  ASSERT_OK(make_schema_grammar({{"type", "number"}, {"minimum", 1e25}}, &warnings));
  EXPECT_EQ(warnings.size(), 1U);
}

TEST(SchemaGrammar, CharactersAreCountedBesideAPattern) {
  expect_texts(R"({"type":"string","pattern":"^[a-z][a-z0-9]*$","minLength":3,"maxLength":5})",
               {R"("abc")", R"("a1234")"}, {R"("ab")", R"("a12345")", R"("1bc")", R"("abc)"});
  expect_texts(R"({"type":"string","pattern":"^(ab|c)+$","minLength":4})",
               {R"("abab")", R"("cccc")", R"("ababcabcc")"}, {R"("abc")", R"("ababa")"});
  expect_texts(R"({"type":"string","pattern":"x","maxLength":3})",
               {R"("x")", R"("äxö")", R"("\nx")"}, {R"("abcx")", R"("abc")", R"("xabc")"});
  expect_texts(R"({"type":"string","pattern":"^a?(b{2,4}c?)*$","minLength":2,"maxLength":6})",
               {R"("bb")", R"("abbcbb")", R"("bbbb")"}, {R"("a")", R"("")", R"("bbcbbcb")"});
  expect_texts(R"({"type":"string","pattern":"^\\d{3}-\\d{4}$","maxLength":8})", {R"("123-4567")"},
               {R"("123-456")"});
  expect_texts(R"({"type":"string","pattern":"^(a|bcd|efghij)$","minLength":2,"maxLength":3})",
               {R"("bcd")"}, {R"("a")", R"("efghij")"});
  test::expect_error(
      make_schema_grammar({{"type", "string"}, {"pattern", "^abc$"}, {"maxLength", 2}}, nullptr)
          .status(),
      StatusCode::kInvalidArgument, {"no value satisfies"});
  std::vector<std::string> warnings;
  ASSERT_OK(make_schema_grammar(
      {{"type", "string"}, {"pattern", "^(ab?){0,900}$"}, {"maxLength", 900}}, &warnings));
  EXPECT_EQ(warnings.size(), 1U);
}

TEST(SchemaGrammar, FormatsOfStringsAreHeld) {
  expect_texts(R"({"type":"string","format":"date"})",
               {R"("2024-02-29")", R"("2000-02-29")", R"("2023-12-31")", R"("1999-04-30")"},
               {R"("2023-02-29")", R"("1900-02-29")", R"("2023-04-31")", R"("2023-13-01")",
                R"("2023-1-01")", R"("today")", R"("")"});
  expect_texts(R"({"type":"string","format":"time"})",
               {R"("23:59:59Z")", R"("00:00:00.125+02:00")"},
               {R"("24:00:00Z")", R"("12:00:00")", R"("12:00Z")", R"("12:00:00.Z")"});
  expect_texts(R"({"format":"date-time"})", {R"("2024-02-29T12:30:00-05:30")"},
               {R"("2024-02-30T12:30:00Z")", R"("2024-02-29 12:30:00Z")", R"("2024-02-29")"});
  expect_texts(
      R"({"type":"string","format":"uuid"})", {R"("123e4567-e89b-12d3-a456-426614174000")"},
      {R"("123e4567e89b12d3a456426614174000")", R"("g23e4567-e89b-12d3-a456-426614174000")"});
  expect_texts(R"({"type":"string","format":"ipv4"})", {R"("127.0.0.1")", R"("255.255.255.0")"},
               {R"("256.0.0.1")", R"("1.2.3")", R"("01.2.3.4")"});
  expect_texts(
      R"({"type":"string","format":"email","maxLength":12})",
      {R"("ada@x.org")", R"("a.b+c@d-e.fr")"},
      {R"("ada")", R"("ada@x")", R"("a b@x.org")", R"("a..b@x.org")", R"("abcdef@xyz.org")"});
  std::vector<std::string> warnings;
  const auto uri = make_schema_grammar({{"type", "string"}, {"format", "uri"}}, &warnings);
  ASSERT_OK(uri.status());
  EXPECT_TRUE(accepts_text(uri.value(), R"("anything")"));
  ASSERT_EQ(warnings.size(), 1U);
  EXPECT_NE(warnings[0].find("uri"), std::string::npos);
  warnings.clear();
  ASSERT_OK(make_schema_grammar({{"type", "integer"}, {"format", "int64"}}, &warnings));
  EXPECT_TRUE(warnings.empty());
}

TEST(SchemaGrammar, ReferencesMayNameAnchors) {
  expect_texts(R"({"properties":{"a":{"$ref":"#word"},"b":{"$ref":"#old"}},"$defs":{
      "w":{"$anchor":"word","type":"integer"},"o":{"$id":"#old","type":"boolean"}},
      "default":{"$anchor":"word"}})",
               {R"({"a":1,"b":true})"}, {R"({"a":"x"})", R"({"b":1})"});
  expect_error(make_schema_grammar({{"$ref", "#none"}}, nullptr).status(),
               StatusCode::kInvalidArgument, {"\"$ref\"", "#none"});
}

// A text may stand in a million places of it, each of which is looked at for each byte.
TEST(SchemaGrammar, PatternsWithTooManyPlacesAreIgnored) {
  for (const char* pattern :
       {"^((a?){0,1000}){0,1000}$", "^a{0,999}a{0,999}a{0,999}a{0,999}a{0,999}$"}) {
    std::vector<std::string> warnings;
    const auto made = make_schema_grammar({{"type", "string"}, {"pattern", pattern}}, &warnings);
    ASSERT_OK(made.status());
    EXPECT_EQ(warnings.size(), 1U);
  }
  std::vector<std::string> warnings;
  ASSERT_OK(make_schema_grammar({{"type", "string"}, {"pattern", "^[a-z ]{1,99999}$"}}, &warnings));
  EXPECT_TRUE(warnings.empty());
}

// Of the ways of a state the first 2000 are kept: names and constants must be fewer than that.
TEST(SchemaGrammar, ManyNamesAndConstantsAreAllAllowed) {
  OrderedJson properties = OrderedJson::object();
  OrderedJson ways = OrderedJson::array();
  for (int i = 0; i < 2500; ++i) {
    properties["n" + std::to_string(i)] = {{"type", "integer"}};
    ways.push_back({{"const", i * 3}, {"title", "t"}});
  }
  const auto named = grammar_of({{"properties", properties}});
  for (const char* text : {R"({"n2499":1})", R"({"n0":1,"n7":2,"n2498":3})", "{}"}) {
    EXPECT_TRUE(accepts_text(named, text)) << text;
  }
  for (const char* text : {R"({"n2500":1})", R"({"n7":1,"n6":2})", R"({"n7":1,"n7":2})"}) {
    EXPECT_FALSE(accepts_text(named, text)) << text;
  }
  const auto chosen = grammar_of({{"oneOf", ways}});
  EXPECT_TRUE(accepts_text(chosen, "7497"));
  EXPECT_FALSE(accepts_text(chosen, "7498"));
  ways.push_back({{"const", "7497"}});
  const auto typed = grammar_of({{"type", "string"}, {"oneOf", ways}});
  EXPECT_TRUE(accepts_text(typed, "\"7497\""));
  EXPECT_FALSE(accepts_text(typed, "7497"));
}

// Names that have little in common: the trie is begun anew when its copies are many.
TEST(SchemaGrammar, ManyNamesUnlikeEachOtherAreAllAllowed) {
  std::mt19937 random(3);
  std::vector<std::string> names;
  OrderedJson properties = OrderedJson::object();
  for (int i = 0; i < 2500; ++i) {
    std::string name;
    for (int at = 0; at < 6; ++at) name += static_cast<char>('0' + random() % 75);
    for (char& c : name) c = c == '\\' ? '~' : c;  // quoted as it is
    names.push_back(name);
    properties[name] = {{"type", "integer"}};
  }
  const auto grammar = grammar_of({{"properties", properties}, {"required", {names[1200]}}});
  for (std::size_t i = 0; i < 2500; i += 7) {
    std::string text = "{";
    if (i < 1200) text += "\"" + names[i] + "\":1,";
    text += "\"" + names[1200] + "\":2";
    if (i > 1200) text += ",\"" + names[i] + "\":3";
    EXPECT_TRUE(accepts_text(grammar, text + "}")) << text;
    EXPECT_FALSE(accepts_text(grammar, text + ",\"" + names[i / 2] + "\":4}")) << text;
  }
  EXPECT_FALSE(accepts_text(grammar, "{\"" + names[1201] + "\":1}"));
}

TEST(SchemaGrammar, AlternativesAreAllAllowedOrRefused) {
  OrderedJson ways = OrderedJson::array();
  for (std::size_t i = 0; i < kMostAlternatives; ++i) {
    ways.push_back({{"properties", {{"kind", {{"const", i}}}, {"x", {{"maxLength", i}}}}}});
  }
  const auto grammar = grammar_of({{"anyOf", ways}});
  for (std::size_t i = 0; i < kMostAlternatives; ++i) {
    const std::string text =
        "{ \"kind\": " + std::to_string(i) + R"(, "x": ")" + std::string(i, 'x') + "\" }";
    EXPECT_TRUE(accepts_text(grammar, text)) << i;
  }
  ways.push_back({{"type", "integer"}});
  test::expect_error(make_schema_grammar({{"anyOf", ways}}, nullptr).status(),
                     StatusCode::kInvalidArgument,
                     {"\"anyOf\"", std::to_string(kMostAlternatives + 1)});
}

// Such a name alone took memory by its square.
TEST(SchemaGrammar, LargeSchemasAreRefused) {
  OrderedJson schema;
  schema["type"] = "object";
  schema["properties"][std::string(2000, 'a')] = OrderedJson::object();
  schema["additionalProperties"] = true;
  test::expect_error(make_schema_grammar(schema, nullptr).status(), StatusCode::kInvalidArgument,
                     {"2000 bytes"});
  OrderedJson wide;
  wide["description"] = std::string(200000, 'a');
  test::expect_error(make_schema_grammar(wide, nullptr).status(), StatusCode::kInvalidArgument,
                     {"smaller"});
}

// Schemas of a legal size that are made to take long: compiled or refused, and soon.
class HostileSchemas : public ::testing::Test {
 protected:
  static OrderedJson names(std::size_t count, std::size_t length, const OrderedJson& of_each) {
    OrderedJson properties = OrderedJson::object();
    auto& members = properties.get_ref<OrderedJson::object_t&>();
    for (std::size_t i = 0; i < count; ++i) {
      std::string name = std::to_string(i);
      name.insert(0, length > name.size() ? length - name.size() : 0, 'n');
      members.emplace_back(std::move(name), of_each);
    }
    return properties;
  }
  static OrderedJson texts(std::size_t count, const std::string& text) {
    OrderedJson list = OrderedJson::array();
    for (std::size_t i = 0; i < count; ++i) list.push_back(text + std::to_string(i));
    return list;
  }
  static OrderedJson copies(std::size_t count, const OrderedJson& value) {
    return OrderedJson(count, value);
  }
  static std::vector<std::pair<std::string, OrderedJson>> all();
};

std::vector<std::pair<std::string, OrderedJson>> HostileSchemas::all() {
  const OrderedJson many = names(9000, 1, OrderedJson::object());
  const OrderedJson some = names(4000, 1, OrderedJson::object());
  const OrderedJson ref = {{"$ref", "#/$defs/a"}};
  std::vector<std::pair<std::string, OrderedJson>> list;
  const auto add = [&](const char* name, OrderedJson schema) {
    list.emplace_back(name, std::move(schema));
  };
  add("names", {{"type", "object"}, {"properties", many}});
  add("keywords", many);
  add("long names and others",
      {{"properties", names(125, 1000, true)}, {"additionalProperties", true}});
  add("names that differ at once",
      {{"properties", names(9000, 6, true)}, {"additionalProperties", {{"type", "string"}}}});
  add("enum", {{"enum", texts(12000, "")}});
  add("enum of long texts", {{"enum", texts(120, std::string(1000, 'x'))}});
  add("enum of escapes", {{"enum", texts(100, std::string(1000, '\x01'))}});
  add("two enums", {{"allOf", {{{"enum", texts(6000, "a")}}, {{"enum", texts(6000, "b")}}}}});
  add("types", {{"type", copies(8000, "object")}, {"properties", some}});
  add("types of an enum", {{"type", texts(8000, "t")}, {"enum", texts(6000, "")}});
  add("required", {{"required", texts(10000, "r")}, {"additionalProperties", {{"title", "x"}}}});
  add("required of a large kind",
      {{"required", texts(3000, "r")}, {"additionalProperties", {{"properties", some}}}});
  add("one base, many ways",
      {{"properties", some}, {"anyOf", copies(10000, OrderedJson::object())}});
  add("one base, many other ways", {{"properties", some}, {"anyOf", [] {
                                                             OrderedJson ways =
                                                                 OrderedJson::array();
                                                             for (int i = 0; i < 5000; ++i)
                                                               ways.push_back({{"minimum", i}});
                                                             return ways;
                                                           }()}});
  add("references to a large part",
      {{"$defs", {{"a", {{"properties", some}}}}}, {"allOf", copies(390, ref)}});
  add("references to many keywords", {{"$defs", {{"a", many}}}, {"allOf", copies(390, ref)}});
  add("many of them",
      {{"$defs", {{"a", {{"properties", some}}}}}, {"prefixItems", [&] {
                                                      OrderedJson items = OrderedJson::array();
                                                      for (int i = 0; i < 12; ++i) {
                                                        OrderedJson refs = copies(300, ref);
                                                        refs.push_back({{"minItems", i}});
                                                        items.push_back({{"allOf", refs}});
                                                      }
                                                      return items;
                                                    }()}});
  add("ways that multiply", {{"allOf", [] {
                                OrderedJson parts = OrderedJson::array();
                                for (int i = 0; i < 20; ++i) {
                                  OrderedJson ways = OrderedJson::array();
                                  for (int k = 0; k < 20; ++k) ways.push_back({{"minimum", k}});
                                  parts.push_back({{"anyOf", ways}});
                                }
                                return parts;
                              }()}});
  add("ways to itself",
      {{"$defs", {{"a", {{"anyOf", copies(3000, ref)}}}}}, {"properties", {{"x", ref}}}});
  add("required twice",
      {{"allOf", {{{"required", texts(7000, "a")}}, {{"required", texts(7000, "b")}}}}});
  add("patterns", {{"anyOf", [] {
                      OrderedJson ways = OrderedJson::array();
                      std::string classes;
                      for (int i = 0; i < 1300; ++i) classes += "\\W?";
                      for (int i = 0; i < 30; ++i) {
                        ways.push_back({{"pattern", classes + std::to_string(i)}});
                      }
                      return ways;
                    }()}});
  add("items in their places", {{"prefixItems", copies(25000, true)}});
  add("large items in many places",
      {{"allOf",
        {{{"prefixItems", copies(8000, true)}}, {{"items", {{"enum", texts(4000, "a")}}}}}}});
  add("large values of many names",
      {{"allOf",
        {{{"properties", some}}, {{"additionalProperties", {{"enum", texts(4000, "a")}}}}}}});
  add("constants of many ways", {{"enum", OrderedJson(1, copies(9000, 1))},
                                 {"items", {{"anyOf", [] {
                                               OrderedJson ways = OrderedJson::array();
                                               for (int i = 2; i < 2000; ++i)
                                                 ways.push_back({{"minimum", i}});
                                               return ways;
                                             }()}}}});
  add("constants of ways to itself",
      {{"$defs", {{"a", {{"anyOf", {ref, ref, {{"type", "null"}}}}}}}},
       {"enum", OrderedJson::parse("[[1]]")},
       {"items", ref}});
  OrderedJson nested = many;
  for (int i = 0; i < 50; ++i) nested = {{"type", "object"}, {"properties", {{"p", nested}}}};
  add("nested", nested);
  return list;
}

// Seconds of the processor that `work` takes; told with MOEPACK_TEST_TIMES.
template <typename Work>
double seconds_of(const std::string& name, const Work& work) {
  const std::clock_t begin = std::clock();
  work();
  const double seconds = static_cast<double>(std::clock() - begin) / CLOCKS_PER_SEC;
  if (std::getenv("MOEPACK_TEST_TIMES") != nullptr) {
    std::printf("%-32s %.3f s\n", name.c_str(), seconds);
  }
  return seconds;
}

// Less than one second, but for sanitizers.
#if defined(__SANITIZE_THREAD__)
constexpr double kMostSeconds = 40;
#else
constexpr double kMostSeconds = 8;
#endif

TEST_F(HostileSchemas, TakeLittleTime) {
  for (const auto& [name, schema] : all()) {
    const auto compile = [&schema = schema] { (void)make_schema_grammar(schema, nullptr); };
    EXPECT_LT(seconds_of(name, compile), kMostSeconds) << name;
  }
}

// The arguments of tools are made of schemas too.
TEST_F(HostileSchemas, TakeLittleTimeAsArguments) {
  for (const ToolFormat format : {ToolFormat::kHermes, ToolFormat::kQwenXml}) {
    for (const auto& [name, schema] : all()) {
      ToolGrammarOptions options;
      options.format = format;
      for (int i = 0; i < 8; ++i) {
        ToolSpec tool;
        tool.name = "f" + std::to_string(i);
        tool.parameters = {{"type", "object"}, {"properties", {{"x", schema}}}};
        if (const auto defs = schema.find("$defs"); defs != schema.end()) {
          tool.parameters["$defs"] = *defs;
        }
        options.tools.push_back(std::move(tool));
      }
      const auto compile = [&options] { EXPECT_TRUE(make_tool_grammar(options, nullptr).is_ok()); };
      EXPECT_LT(seconds_of(name, compile), kMostSeconds) << name;
    }
  }
}

TEST_F(HostileSchemas, ManyToolsTakeLittleTime) {
  for (const ToolFormat format :
       {ToolFormat::kHermes, ToolFormat::kQwenXml, ToolFormat::kDeepseek, ToolFormat::kHarmony}) {
    ToolGrammarOptions options;
    options.format = format;
    for (int i = 0; i < 4096; ++i) {
      ToolSpec tool;
      tool.name = "f" + std::to_string(i);
      tool.parameters = {{"type", "object"}, {"properties", {{"x", {{"type", "string"}}}}}};
      options.tools.push_back(std::move(tool));
    }
    const auto compile = [&] { EXPECT_TRUE(make_tool_grammar(options, nullptr).is_ok()); };
    const std::string name = "4096 tools, format " + std::to_string(static_cast<int>(format));
    EXPECT_LT(seconds_of(name, compile), kMostSeconds) << name;
  }
}

}  // namespace
}  // namespace moepack::schema_grammar_test
