// Types of arguments by what a tool's schema says of them, however it says it.
#include "runtime/chat/argument_types.h"

#include <gtest/gtest.h>

namespace moepack::argument_types_test {
namespace {

ArgumentTypes types_of(const char* parameters) {
  return ArgumentTypes(OrderedJson::parse(parameters));
}

std::string json_of(const ArgumentTypes& types, const char* argument, const char* text) {
  return argument_json(types.of(argument), text);
}

TEST(ArgumentTypes, ReferencesAndCombinationsAtTheRootAreResolved) {
  for (const char* parameters :
       {R"({"$ref":"#/definitions/Args","definitions":{"Args":{"type":"object","properties":{
            "n":{"type":"integer"},"b":{"type":"boolean"},"s":{"type":"string"}}}}})",
        R"({"allOf":[{"properties":{"n":{"type":"integer"}},"required":["n"]},
            {"properties":{"s":{"type":"string"}}}],"properties":{"b":{"type":"boolean"}}})",
        R"({"type":"object","properties":{"s":{"type":"string"}},"oneOf":[
            {"properties":{"n":{"type":"integer"}},"required":["n"]},
            {"anyOf":[{"properties":{"b":{"type":"boolean"}},"required":["b"]}]}]})"}) {
    const ArgumentTypes types = types_of(parameters);
    EXPECT_EQ(json_of(types, "n", "5"), "5") << parameters;
    EXPECT_EQ(json_of(types, "b", "True"), "true") << parameters;
    EXPECT_EQ(json_of(types, "s", "5"), "\"5\"") << parameters;
    for (const char* name : {"n", "b", "s"}) EXPECT_TRUE(types.admits(name)) << parameters;
    EXPECT_FALSE(types.admits("other")) << parameters;
  }
}

TEST(ArgumentTypes, PointersOfReferencesAreDecoded) {
  const ArgumentTypes types = types_of(R"({"properties":{"slash":{"$ref":"#/$defs/a~1b"},
      "tilde":{"$ref":"#/$defs/a~0b"},"percent":{"$ref":"#/$defs/a%20b"},
      "anchor":{"$ref":"#named"},"none":{"$ref":"#/$defs/none"}},
      "$defs":{"a/b":{"type":"integer"},"a~b":{"type":"integer"},"a b":{"type":"integer"},
      "c":{"$anchor":"named","type":"integer"}}})");
  for (const char* name : {"slash", "tilde", "percent", "anchor"}) {
    EXPECT_EQ(json_of(types, name, "5"), "5") << name;
  }
  EXPECT_EQ(json_of(types, "none", "5"), "\"5\"");
}

TEST(ArgumentTypes, AllOfLeavesTheTypesThatAllAllow) {
  const ArgumentTypes types = types_of(R"({"properties":{
      "s":{"type":["string","integer"],"allOf":[{"type":"string"}]},
      "e":{"allOf":[{"$ref":"#/$defs/E"}],"default":1},
      "u":{"anyOf":[{"type":"integer"},{"type":"null"}]}},"$defs":{"E":{"enum":[1,2]}}})");
  EXPECT_EQ(json_of(types, "s", "5"), "\"5\"");
  EXPECT_EQ(json_of(types, "e", "2"), "2");
  EXPECT_EQ(json_of(types, "u", "2"), "2");
  EXPECT_EQ(json_of(types, "u", "null"), "null");
}

TEST(ArgumentTypes, OthersHaveTheTypeOfOthers) {
  const ArgumentTypes numbers = types_of(R"({"properties":{"s":{"type":"string"}},
      "required":["s","x"],"additionalProperties":{"type":"integer"}})");
  EXPECT_EQ(json_of(numbers, "x", "5"), "5");
  EXPECT_EQ(json_of(numbers, "y", "5"), "5");
  EXPECT_TRUE(numbers.admits("y"));
  const ArgumentTypes silent = types_of(R"({"properties":{"s":{}},"required":["x"]})");
  EXPECT_TRUE(silent.admits("x"));
  EXPECT_FALSE(silent.admits("y"));
  EXPECT_TRUE(types_of("{}").admits("y"));
  EXPECT_FALSE(types_of(R"({"additionalProperties":false})").admits("y"));
}

TEST(ArgumentTypes, WhatCannotBeResolvedCountsAsItStands) {
  const ArgumentTypes types = types_of(R"({"properties":{"n":{"type":"integer"}},
      "allOf":[{"$ref":"#/none"}]})");
  EXPECT_EQ(json_of(types, "n", "5"), "5");
  const ArgumentTypes endless = types_of(R"({"$ref":"#","properties":{"n":{"type":"integer"},
      "m":{"anyOf":[{"type":"boolean"},{"$ref":"#/properties/m"}]}}})");
  EXPECT_EQ(json_of(endless, "n", "5"), "5");
  EXPECT_EQ(json_of(endless, "m", "true"), "true");
  EXPECT_EQ(json_of(ArgumentTypes(), "n", "5"), "\"5\"");
}

}  // namespace
}  // namespace moepack::argument_types_test
