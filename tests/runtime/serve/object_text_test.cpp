#include "runtime/serve/object_text.h"

#include <gtest/gtest.h>

#include <random>

#include "tests/runtime/serve/answer_script.h"

namespace moepack::object_text_test {
namespace {

using test::json;

// Byte by byte.
bool pushed(ObjectText& object, const std::string& text, std::string& output) {
  for (const char byte : text) {
    if (!object.push(std::string(1, byte), output)) return false;
  }
  return true;
}

TEST(ObjectText, ObjectsPassUnchanged) {
  const char* texts[] = {
      "{}",
      R"({"a":1})",
      R"({ "a" : [ ] , "b" : [1, -0, 0.5, 1e5, -2.25E-3, 123456789012345678901234567890] })",
      R"({"a":{"b":[true,false,null,{"c":"\"\\\/\b\f\n\r\t\u00e9\ud83d\ude00 é"}]}})",
  };
  for (const char* text : texts) {
    ObjectText object;
    std::string output;
    EXPECT_TRUE(pushed(object, text, output)) << text;
    EXPECT_TRUE(object.is_complete());
    EXPECT_EQ(output, text);
  }
}

TEST(ObjectText, SpaceAroundIsLeftOut) {
  ObjectText object;
  std::string output;
  EXPECT_TRUE(pushed(object, " \n\t", output));
  EXPECT_TRUE(object.is_empty());
  EXPECT_TRUE(pushed(object, "{ } \n", output));
  EXPECT_TRUE(object.is_complete());
  EXPECT_EQ(output, "{ }");
}

TEST(ObjectText, WhatIsNoObjectIsRefusedAtItsFirstWrongByte) {
  const char* texts[] = {
      "x",
      "[",
      "\"",
      "1",
      "{a",
      "{,",
      "{\"a\" 1",
      "{\"a\":}",
      "{\"a\":1,}",
      "{\"a\":[1,]",
      "{\"a\":01",
      "{\"a\":1.}",
      "{\"a\":-}",
      "{\"a\":1e}",
      "{\"a\":+",
      "{\"a\":.",
      "{\"a\":trux",
      "{\"a\":nulL",
      "{\"a\":1]",
      "{\"a\":[1}",
      "{}x",
      "{} {",
      "{\"a\":\"\\x",
      "{\"a\":\"\\u12g",
      "{\"a\":1 2",
      "{\"a\":'",
      "{\"a\":\"b\" \"",
  };
  for (const char* text : texts) {
    ObjectText object;
    std::string output;
    const std::string all = text;
    EXPECT_TRUE(pushed(object, all.substr(0, all.size() - 1), output)) << text;
    EXPECT_FALSE(object.push(all.substr(all.size() - 1), output)) << text;
    EXPECT_FALSE(object.push("}", output)) << "nothing makes it whole again: " << text;
    EXPECT_FALSE(object.is_complete());
  }
}

TEST(ObjectText, ControlCharactersAndHalfPairsArePutRight) {
  ObjectText object;
  std::string output;
  EXPECT_TRUE(pushed(object, "{\"a\":\"x\ny\tz\r\x01\",\"b\":\"\\ud83dq\\ude00\\ud83d\\n\\ud83d\"}",
                     output));
  EXPECT_TRUE(object.is_complete());
  EXPECT_EQ(output, R"({"a":"x\ny\tz\r\u0001","b":"\ufffdq\ufffd\ufffd\n\ufffd"})");
  EXPECT_EQ(json(output)["a"], "x\ny\tz\r\x01");
}

TEST(ObjectText, NestingHasALimit) {
  for (const std::size_t depth : {kMostObjectDepth, kMostObjectDepth + 1}) {
    std::string text = "{\"a\":";
    for (std::size_t i = 1; i < depth; ++i) text += '[';
    for (std::size_t i = 1; i < depth; ++i) text += ']';
    text += '}';
    ObjectText object;
    std::string output;
    EXPECT_EQ(pushed(object, text, output), depth == kMostObjectDepth);
  }
}

// Whatever comes, what is let through is a prefix of an object's text: nlohmann's parser finds
// nothing wrong in it but its end.
TEST(ObjectText, OutputIsAlwaysAPrefixOfAnObject) {
  const std::string alphabet = "{}[]\",:\\ntrue0159.-eEu d8\n";
  std::mt19937_64 random(1);
  for (int round = 0; round < 20000; ++round) {
    std::string text = "{\"a\":";
    for (std::size_t i = random() % 24; i > 0; --i) text += alphabet[random() % alphabet.size()];
    ObjectText object;
    std::string output;
    const bool is_right = object.push(text, output);
    const bool parses = OrderedJson::accept(text);
    EXPECT_TRUE(!parses || (is_right && object.is_complete())) << text;
    EXPECT_TRUE(!object.is_complete() || OrderedJson::accept(output)) << text;
  }
}

}  // namespace
}  // namespace moepack::object_text_test
