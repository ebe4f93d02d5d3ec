#include "formats/base/json.h"

#include <string>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "tests/support/status_matchers.h"

namespace moepack::json_test {
namespace {

using test::expect_error;

const Where kWhere{.file = "x.json"};

TEST(Json, ReadsADocument) {
  ASSERT_OK_AND_ASSIGN(const nlohmann::json doc,
                       parse_json(R"({"a":[1,-2,2.5,"s",null,true],"b":{"a":{}}})", kWhere));
  EXPECT_EQ(doc["a"][0], 1U);
  EXPECT_TRUE(doc["a"][0].is_number_unsigned());
  EXPECT_EQ(doc["a"][1], -2);
  EXPECT_EQ(doc["a"][2], 2.5);
  EXPECT_EQ(doc["a"][3], "s");
  EXPECT_TRUE(doc["b"]["a"].is_object());
}

TEST(Json, AnOrderedDocumentIsSaidAgainAsItWas) {
  const std::string text = R"({"z":[-2,2.5,18446744073709551615,-0],"a":{"y":null,"x":"s"},"m":1})";
  ASSERT_OK_AND_ASSIGN(const nlohmann::ordered_json doc, parse_ordered_json(text, kWhere));
  EXPECT_EQ(doc.dump(), R"({"z":[-2,2.5,18446744073709551615,0],"a":{"y":null,"x":"s"},"m":1})");
  expect_error(parse_ordered_json(R"({"a":1,"a":2})", kWhere).status(), StatusCode::kCorrupt,
               {"\"a\" stands twice"});
  expect_error(parse_ordered_json(std::string(100000, '['), kWhere).status(), StatusCode::kCorrupt,
               {"nested deeper"});
}

TEST(Json, AnOrderedDocumentHasALimitOfValues) {
  std::string text = "[";
  for (std::size_t i = 0; i < kMaxOrderedJsonValues; ++i) text += "0,";
  expect_error(parse_ordered_json(text + "0]", kWhere).status(), StatusCode::kCorrupt,
               {"x.json", "values", "offset 3999999"});
  text.resize(kMaxOrderedJsonValues + 1);  // half of them
  text.back() = ']';
  EXPECT_OK(parse_ordered_json(text, kWhere));
}

// An object of n keys takes time in proportion to n, or a request of some megabytes takes hours.
TEST(Json, AnOrderedObjectOfManyKeysIsReadAtOnce) {
  std::string text = "{";
  for (int i = 0; i < 300000; ++i) text += "\"" + std::to_string(i) + "\":0,";
  text += "\"last\":1}";
  ASSERT_OK_AND_ASSIGN(const nlohmann::ordered_json doc, parse_ordered_json(text, kWhere));
  EXPECT_EQ(doc.size(), 300001U);
}

TEST(Json, RefusesDuplicateKeysWithThePosition) {
  expect_error(parse_json(R"({"a":1,"a":2})", kWhere).status(), StatusCode::kCorrupt,
               {"x.json", "\"a\" stands twice", "offset 1"});
  EXPECT_OK(parse_json(R"({"a":{"a":1},"b":{"a":1}})", kWhere));
}

TEST(Json, RefusesDepthBombs) {
  const std::string bomb(100000, '[');
  expect_error(parse_json(bomb, kWhere).status(), StatusCode::kCorrupt, {"nested deeper"});
}

TEST(Json, ErrorsCarryThePositionInTheFile) {
  Where where = kWhere;
  where.offset = 1000;
  expect_error(parse_json("[1, 2,, 3]", where).status(), StatusCode::kCorrupt, {"offset 1007"});
}

TEST(Json, EveryTruncationIsAnError) {
  const std::string whole = R"({"k":[1,{"x":"y"}],"z":"\u00e9"})";
  for (std::size_t n = 0; n < whole.size(); ++n) {
    EXPECT_FALSE(parse_json(whole.substr(0, n), kWhere).is_ok()) << n;
  }
  EXPECT_OK(parse_json(whole, kWhere));
  EXPECT_FALSE(parse_json(whole + "x", kWhere).is_ok());
}

TEST(Json, NewlinesInKeysDoNotBreakTheMessage) {
  expect_error(parse_json("{\"a\\nb\":1,\"a\\nb\":2}", kWhere).status(), StatusCode::kCorrupt,
               {"a\\x0ab"});
}

}  // namespace
}  // namespace moepack::json_test
