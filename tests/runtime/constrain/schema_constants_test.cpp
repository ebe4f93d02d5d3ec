// Constants of schemas beside other keywords, and parts of "allOf" that say the same thing twice.
// Which values are valid was asked of the package jsonschema 4.26.
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "tests/runtime/constrain/constrain_support.h"
#include "tests/support/status_matchers.h"

namespace moepack::schema_constants_test {
namespace {

using test::accepts_text;

struct Case {
  const char* schema;
  std::vector<const char*> valid;
  std::vector<const char*> invalid;
};

void expect_texts(const Case& c) {
  std::vector<std::string> warnings;
  const auto grammar = make_schema_grammar(OrderedJson::parse(c.schema), &warnings);
  ASSERT_TRUE(grammar.is_ok()) << grammar.status().message() << " of " << c.schema;
  EXPECT_TRUE(warnings.empty()) << warnings.front() << " of " << c.schema;
  for (const char* text : c.valid) {
    EXPECT_TRUE(accepts_text(grammar.value(), text)) << text << " by " << c.schema;
  }
  for (const char* text : c.invalid) {
    EXPECT_FALSE(accepts_text(grammar.value(), text)) << text << " by " << c.schema;
  }
}

void expect_impossible(const char* schema) {
  const auto grammar = make_schema_grammar(OrderedJson::parse(schema), nullptr);
  ASSERT_FALSE(grammar.is_ok()) << schema;
  EXPECT_NE(grammar.status().message().find("no value satisfies"), std::string::npos) << schema;
}

TEST(SchemaConstants, OfOneTypeSatisfyWhatStandsBesideThem) {
  const std::vector<Case> cases = {
      {R"({"type":"integer","enum":[1,5],"minimum":3})", {"5"}, {"1"}},
      {R"({"allOf":[{"enum":[1,5]},{"minimum":3}]})", {"5"}, {"1"}},
      {R"({"enum":[1,2,3,4],"exclusiveMinimum":1,"exclusiveMaximum":4})", {"2", "3"}, {"1", "4"}},
      {R"({"enum":[1,2,3],"minimum":1,"exclusiveMinimum":true})", {"2", "3"}, {"1"}},
      {R"({"enum":[9007199254740993,9007199254740992],"minimum":9007199254740993})",
       {"9007199254740993"},
       {"9007199254740992"}},
      {R"({"enum":[-1,18446744073709551615],"minimum":0})", {"18446744073709551615"}, {"-1"}},
      {R"({"type":"integer","enum":[1.0,1.5]})", {"1.0"}, {"1.5"}},
      {R"({"type":"string","enum":["a","abc"],"minLength":2})", {R"("abc")"}, {R"("a")"}},
      {R"({"enum":["ä","äb","äbc"],"maxLength":2})", {R"("ä")", R"("äb")"}, {R"("äbc")"}},
      {R"({"enum":[1,"a","abc"],"minLength":2})", {"1", R"("abc")"}, {R"("a")"}},
      {R"({"type":"string","enum":["2024-01-01","x"],"format":"date"})",
       {R"("2024-01-01")"},
       {R"("x")"}},
      {R"({"type":"string","enum":["a","abc"],"pattern":"^a.c$"})", {R"("abc")"}, {R"("a")"}},
      {R"({"enum":["a\nb","a\"b","a\u0001b","ab"],"pattern":"^a\\Wb$"})",
       {R"("a\nb")", R"("a\"b")", R"("a\u0001b")"},
       {R"("ab")"}},
      {R"({"type":["string","null"],"enum":["a","abc",null,1],"minLength":2})",
       {R"("abc")", "null"},
       {R"("a")", "1"}}};
  for (const Case& c : cases) expect_texts(c);
}

TEST(SchemaConstants, SatisfyWhatReferencesAndChoicesAdd) {
  const std::vector<Case> cases = {
      {R"({"anyOf":[{"enum":["a","b"]},{"enum":["ccc"]}],"minLength":3})",
       {R"("ccc")"},
       {R"("a")", R"("b")"}},
      {R"({"$ref":"#/$defs/e","minLength":3,"$defs":{"e":{"enum":["a","bb","ccc"]}}})",
       {R"("ccc")"},
       {R"("a")", R"("bb")"}},
      {R"({"properties":{"x":{"oneOf":[{"const":1},{"const":7}],"maximum":6}}})",
       {R"({"x":1})"},
       {R"({"x":7})"}},
      {R"({"enum":[[1],["a"],[null]],"items":{"anyOf":[{"$ref":"#/$defs/n"},{"type":"null"}]},
           "$defs":{"n":{"type":"integer"}}})",
       {"[1]", "[null]"},
       {R"(["a"])"}},
      {R"({"enum":[[1],["a"]],"items":{"$ref":"#/$defs/r"},
           "$defs":{"r":{"anyOf":[{"$ref":"#/$defs/r"},{"type":"integer"}]}}})",
       {"[1]"},
       {R"(["a"])"}}};
  for (const Case& c : cases) expect_texts(c);
}

TEST(SchemaConstants, OfSeveralPartsSatisfyWhatStandsBesideThem) {
  const std::vector<Case> cases = {
      {R"({"enum":[{"a":1},{"b":1}],"required":["b"]})", {R"({"b":1})"}, {R"({"a":1})"}},
      {R"({"enum":[{"b":1,"a":2},{"b":"x","a":2}],
           "properties":{"a":{"type":"integer"},"b":{"type":"integer"}}})",
       {R"({"b":1,"a":2})"},
       {R"({"b":"x","a":2})"}},
      {R"({"enum":[{"a":1,"c":1},{"a":1,"c":"x"}],"properties":{"a":{}}})",
       {R"({"a":1,"c":1})", R"({"a":1,"c":"x"})"},
       {R"({"a":1})"}},
      {R"({"enum":[{"a":1,"c":1},{"a":1,"c":"x"}],"properties":{"a":{}},
           "additionalProperties":{"type":"string"}})",
       {R"({"a":1,"c":"x"})"},
       {R"({"a":1,"c":1})"}},
      {R"({"enum":[{"a":{"b":[1]}},{"a":{"b":["x"]}}],
           "properties":{"a":{"properties":{"b":{"items":{"type":"string","maxLength":1}}}}}})",
       {R"({"a":{"b":["x"]}})"},
       {R"({"a":{"b":[1]}})"}},
      {R"({"enum":[[1,2],[3],["x"]],"items":{"type":"string"}})", {R"(["x"])"}, {"[1,2]", "[3]"}},
      {R"({"enum":[[1,2],[1,"x"],[1]],"prefixItems":[{"const":1}],"items":{"type":"string"}})",
       {R"([1,"x"])", "[1]"},
       {"[1,2]"}},
      {R"({"enum":[[1,2],[1],[]],"minItems":1,"maxItems":1})", {"[1]"}, {"[1,2]", "[]"}},
      {R"({"enum":[[{"x":1,"y":2}],[{"x":1}]],"items":{"enum":[{"y":2,"x":1.0}]}})",
       {R"([{"x":1,"y":2}])"},
       {R"([{"x":1}])"}}};
  for (const Case& c : cases) expect_texts(c);
}

TEST(SchemaConstants, AreRefusedWhereNoneIsLeft) {
  for (
      const char* schema :
      {R"({"const":1,"minimum":3})", R"({"enum":[[1,2],[3]],"items":{"type":"string"}})",
       R"({"enum":[{"a":1}],"required":["b"]})", R"({"const":"a","pattern":"^b"})",
       R"({"const":{"a":1},"properties":{"a":false}})",
       R"({"const":[1],"items":{"$ref":"#/$defs/r"},"$defs":{"r":{"anyOf":[{"$ref":"#/$defs/r"}]}}})"}) {
    expect_impossible(schema);
  }
}

TEST(SchemaConstants, KeywordsBesideThemThatAreNotHeldAreNamed) {
  for (const char* schema :
       {R"({"enum":["a","b"],"format":"uri"})", R"~({"enum":["a","b"],"pattern":"(?=a)"})~",
        R"({"enum":[["a"]],"items":{"not":{"type":"string"}}})"}) {
    std::vector<std::string> warnings;
    ASSERT_OK(make_schema_grammar(OrderedJson::parse(schema), &warnings));
    EXPECT_EQ(warnings.size(), 1U) << schema;
  }
}

TEST(SchemaConstants, AreEqualInAnyOrderOfTheirKeys) {
  const std::vector<Case> cases = {
      {R"({"enum":[{"x":1,"y":2}],"const":{"y":2,"x":1}})", {R"({"y":2,"x":1})"}, {"{}"}},
      {R"({"allOf":[{"const":{"x":1,"y":2}},{"const":{"y":2,"x":1}}]})",
       {R"({"x":1,"y":2})"},
       {"{}"}},
      {R"({"allOf":[{"enum":[{"a":1,"b":[{"c":1,"d":2}]},4]},
           {"enum":[{"b":[{"d":2,"c":1.0}],"a":1},3]}]})",
       {R"({"a":1,"b":[{"c":1,"d":2}]})"},
       {"3", "4"}},
      {R"({"enum":[1,2],"const":1.0})", {"1.0"}, {"2"}}};
  for (const Case& c : cases) expect_texts(c);
  for (const char* schema :
       {R"({"allOf":[{"const":{"x":1,"y":2}},{"const":{"y":1,"x":2}}]})",
        R"({"enum":[[1,2]],"const":[2,1]})", R"({"enum":[0],"const":false})",
        R"({"allOf":[{"enum":[-1]},{"enum":[18446744073709551615]}]})",
        R"({"allOf":[{"const":9007199254740993},{"const":9007199254740992.0}]})"}) {
    expect_impossible(schema);
  }
}

TEST(SchemaConstants, ManyBesideOtherKeywordsAreAllJudged) {
  OrderedJson words = OrderedJson::array(), ways = OrderedJson::array();
  for (int i = 0; i < 3000; ++i) {
    const std::string word = (i % 2 == 0 ? "ab" : "cd") + std::to_string(i);
    words.push_back(word);
    ways.push_back({{"const", word}});
  }
  for (const OrderedJson& schema :
       {OrderedJson{{"enum", words}, {"pattern", "^ab\\d+$"}, {"maxLength", 5}},
        OrderedJson{{"anyOf", ways}, {"pattern", "^ab\\d+$"}, {"maxLength", 5}}}) {
    const auto grammar = make_schema_grammar(schema, nullptr);
    ASSERT_OK(grammar.status());
    EXPECT_TRUE(accepts_text(grammar.value(), R"("ab998")"));
    EXPECT_FALSE(accepts_text(grammar.value(), R"("ab1000")"));
    EXPECT_FALSE(accepts_text(grammar.value(), R"("cd999")"));
  }
}

TEST(SchemaAllOf, ItemsOfOnePartHoldForThePlacesOfAnother) {
  const std::vector<Case> cases = {
      {R"({"allOf":[{"type":"array","prefixItems":[{"minimum":2}]},{"items":{"type":"integer"}}]})",
       {"[2]", "[2,1]", "[]"},
       {"[1]", R"(["x"])", R"([2,"x"])"}},
      {R"({"allOf":[{"items":{"type":"integer"}},{"type":"array","prefixItems":[{"minimum":2}]}]})",
       {"[2,1]"},
       {"[1]", R"([2,"x"])"}},
      {R"({"type":"array","allOf":[
           {"prefixItems":[{"type":"integer"},{"type":"integer"}],"items":{"type":"string"}},
           {"prefixItems":[{"minimum":3}],"items":{"maximum":5,"maxLength":1}}]})",
       {R"([9,5,"x"])", "[3]"},
       {"[2]", "[9,6]", R"([9,5,"xy"])", "[9,5,1]"}},
      {R"({"type":"array","allOf":[{"items":[{"type":"integer"}],"additionalItems":false},
           {"items":{"minimum":3}}]})",
       {"[3]", "[]"},
       {"[2]", "[3,3]"}}};
  for (const Case& c : cases) expect_texts(c);
  expect_impossible(R"({"allOf":[{"type":"array","prefixItems":[{"type":"integer"}],"minItems":1,
      "maxItems":1},{"items":{"type":"string"}}]})");
}

TEST(SchemaAllOf, AFormatOrPatternGivenTwiceIsNamed) {
  for (const char* schema : {R"({"allOf":[{"type":"string","format":"date"},{"format":"uuid"}]})",
                             R"({"type":"string","format":"date","anyOf":[{"format":"uuid"}]})",
                             R"({"allOf":[{"type":"string","pattern":"a"},{"pattern":"b"}]})"}) {
    std::vector<std::string> warnings;
    ASSERT_OK(make_schema_grammar(OrderedJson::parse(schema), &warnings));
    ASSERT_EQ(warnings.size(), 1U) << schema;
    EXPECT_NE(warnings[0].find("given twice"), std::string::npos) << warnings[0];
  }
  std::vector<std::string> warnings;
  ASSERT_OK(make_schema_grammar(
      OrderedJson::parse(R"({"allOf":[{"type":"string","format":"date"},{"format":"date"}]})"),
      &warnings));
  EXPECT_TRUE(warnings.empty());
}

}  // namespace
}  // namespace moepack::schema_constants_test
