#include "formats/config/tokenizer_json.h"

#include <functional>
#include <string>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "tests/support/reader_drill.h"
#include "tests/support/status_matchers.h"

namespace moepack::tokenizer_json_test {
namespace {

using nlohmann::json;
using test::expect_error;

json small() {
  return json::parse(R"({
    "version": "1.0", "truncation": null, "padding": null,
    "added_tokens": [{"id": 4, "content": "<x>", "single_word": true, "lstrip": true,
                      "rstrip": false, "normalized": true, "special": false},
                     {"id": 5, "content": "<y>", "special": true}],
    "normalizer": {"type": "NFC"},
    "pre_tokenizer": {"type": "Sequence", "pretokenizers": [
      {"type": "Split", "pattern": {"Regex": "\\s+"}, "behavior": "Removed", "invert": true},
      {"type": "Split", "pattern": {"String": "é"}, "behavior": "MergedWithNext", "invert": false},
      {"type": "ByteLevel", "add_prefix_space": false, "trim_offsets": true, "use_regex": false}]},
    "post_processor": {"type": "ByteLevel", "add_prefix_space": true, "trim_offsets": false},
    "decoder": {"type": "ByteLevel"},
    "model": {"type": "BPE", "dropout": null, "unk_token": null,
              "continuing_subword_prefix": null, "end_of_word_suffix": "", "fuse_unk": false,
              "byte_fallback": false, "ignore_merges": true,
              "vocab": {"a": 0, "b": 1, "ab": 2, "Ġ": 3}, "merges": [["a", "b"], "Ġ a"]}})");
}

Result<TokenizerSpec> parse(const json& data) {
  return parse_tokenizer_json(data.dump(), "t.json");
}

Status parse_changed(const std::function<void(json&)>& change) {
  json data = small();
  change(data);
  return parse(data).status();
}

TEST(TokenizerJson, ReadsEverything) {
  ASSERT_OK_AND_ASSIGN(const TokenizerSpec spec, parse(small()));
  EXPECT_TRUE(spec.nfc);
  EXPECT_TRUE(spec.ignore_merges);
  EXPECT_FALSE(spec.add_prefix_space);
  EXPECT_FALSE(spec.split_gpt2);
  ASSERT_EQ(spec.splits.size(), 2U);
  EXPECT_EQ(spec.splits[0].pattern, "\\s+");
  EXPECT_TRUE(spec.splits[0].is_regex);
  EXPECT_TRUE(spec.splits[0].invert);
  EXPECT_EQ(spec.splits[0].behavior, SplitBehavior::kRemoved);
  EXPECT_EQ(spec.splits[1].pattern, "é");
  EXPECT_FALSE(spec.splits[1].is_regex);
  EXPECT_EQ(spec.splits[1].behavior, SplitBehavior::kMergedWithNext);
  ASSERT_EQ(spec.added_tokens.size(), 2U);
  EXPECT_EQ(spec.added_tokens[0].id, 4);
  EXPECT_EQ(spec.added_tokens[0].content, "<x>");
  EXPECT_TRUE(spec.added_tokens[0].single_word && spec.added_tokens[0].lstrip &&
              spec.added_tokens[0].normalized);
  EXPECT_FALSE(spec.added_tokens[0].rstrip || spec.added_tokens[0].special);
  EXPECT_TRUE(spec.added_tokens[1].special);
  EXPECT_FALSE(spec.added_tokens[1].normalized);
  ASSERT_EQ(spec.vocab.size(), 4U);
  ASSERT_EQ(spec.merges.size(), 2U);
  EXPECT_EQ(spec.merges[0], (std::pair<std::string, std::string>("a", "b")));
  EXPECT_EQ(spec.merges[1], (std::pair<std::string, std::string>("Ġ", "a")));
}

TEST(TokenizerJson, OrderOfKeysDoesNotMatter) {
  // Merges before the vocabulary, the model first, its type last.
  const std::string text =
      R"({"model":{"merges":["a b"],"vocab":{"ab":2,"b":1,"a":0},"type":"BPE"},)"
      R"("decoder":{"type":"ByteLevel"},"pre_tokenizer":{"add_prefix_space":true,"type":"ByteLevel"}})";
  ASSERT_OK_AND_ASSIGN(const TokenizerSpec spec, parse_tokenizer_json(text, "t.json"));
  EXPECT_EQ(spec.vocab.size(), 3U);
  EXPECT_EQ(spec.merges.size(), 1U);
  EXPECT_TRUE(spec.add_prefix_space);
  EXPECT_TRUE(spec.split_gpt2);  // ByteLevel's own default
  EXPECT_FALSE(spec.nfc);
}

TEST(TokenizerJson, NestedObjectsNamedLikeTheModelAreNotIt) {
  EXPECT_OK(parse_changed([](json& d) {
    d["aside"] = {{"model", {{"vocab", {{"z", "not a number"}}}, {"merges", 3}}}};
    d["truncation"] = {{"vocab", {{"z", -1}}}};
    d["model"]["aside"] = {{"vocab", {{"q", 1.5}}}};
  }));
}

TEST(TokenizerJson, RefusesByNameWhatIsNotImplemented) {
  struct Case {
    std::function<void(json&)> change;
    std::initializer_list<std::string_view> parts;
  };
  const Case cases[] = {
      {[](json& d) { d["model"]["type"] = "Unigram"; }, {"model", "Unigram"}},
      {[](json& d) {
         d["model"] = json::parse(R"({"type": "Unigram", "vocab": [["a", -1.5]], "unk_id": 0})");
       },
       {"Unigram"}},
      {[](json& d) { d["model"]["dropout"] = 0.1; }, {"dropout"}},
      {[](json& d) { d["model"]["byte_fallback"] = true; }, {"byte_fallback", "ByteLevel"}},
      {[](json& d) {
         d["normalizer"] =
             json::parse(R"({"type": "Replace", "pattern": {"String": " "}, "content": "_"})");
       },
       {"ByteLevel with Metaspace"}},
      {[](json& d) {
         d["normalizer"] =
             json::parse(R"({"type": "Replace", "pattern": {"Regex": " +"}, "content": "_"})");
       },
       {"normalizer", "regular expression"}},
      {[](json& d) {
         d["normalizer"] =
             json::parse(R"({"type": "Replace", "pattern": {"String": " "}, "content": ""})");
       },
       {"normalizer", "removes text"}},
      {[](json& d) {
         d["normalizer"] = json::parse(R"({"type": "Sequence", "normalizers": [
             {"type": "Replace", "pattern": {"String": "a"}, "content": "aaaaaaaaa"},
             {"type": "Replace", "pattern": {"String": "a"}, "content": "aaaaaaaaa"}]})");
       },
       {"normalizers[1]", "64 times"}},
      {[](json& d) { d["model"]["end_of_word_suffix"] = "</w>"; }, {"end_of_word_suffix"}},
      {[](json& d) { d["model"]["continuing_subword_prefix"] = "##"; },
       {"continuing_subword_prefix"}},
      {[](json& d) { d["normalizer"]["type"] = "NFKC"; }, {"normalizer", "NFKC"}},
      {[](json& d) {
         d["normalizer"] = {{"type", "Sequence"},
                            {"normalizers", {{{"type", "NFC"}}, {{"type", "Lowercase"}}}}};
       },
       {"normalizer.normalizers[1]", "Lowercase"}},
      {[](json& d) { d["pre_tokenizer"]["pretokenizers"][0]["type"] = "Whitespace"; },
       {"pre_tokenizer.pretokenizers[0]", "Whitespace"}},
      {[](json& d) {
         d["pre_tokenizer"]["pretokenizers"][1] =
             json::parse(R"({"type": "Metaspace", "replacement": "_"})");
       },
       {"pre_tokenizer.pretokenizers[1]", "behind another step"}},
      {[](json& d) { d["pre_tokenizer"]["pretokenizers"][0]["behavior"] = "Shuffled"; },
       {"pretokenizers[0]", "Shuffled"}},
      {[](json& d) { d["pre_tokenizer"]["pretokenizers"][0]["pattern"]["Regex"] = ""; },
       {"pattern is empty"}},
      {[](json& d) { d["pre_tokenizer"]["pretokenizers"].erase(2); }, {"no ByteLevel"}},
      {[](json& d) { d["pre_tokenizer"] = nullptr; }, {"no ByteLevel"}},
      {[](json& d) {
         json& steps = d["pre_tokenizer"]["pretokenizers"];
         steps.push_back(steps[0]);
       },
       {"pretokenizers[3]", "behind ByteLevel"}},
      {[](json& d) {
         json& steps = d["pre_tokenizer"]["pretokenizers"];
         for (int i = 0; i < 20; ++i) steps.insert(steps.begin(), steps[0]);
       },
       {"more than 16 splits"}},
      {[](json& d) { d["decoder"]["type"] = "WordPiece"; }, {"decoder", "WordPiece"}},
      {[](json& d) { d["post_processor"]["type"] = "BertProcessing"; },
       {"post_processor", "BertProcessing"}},
      {[](json& d) {
         d["post_processor"] = json::parse(
             R"({"type": "TemplateProcessing", "single":
                [{"SpecialToken": {"id": "<s>"}}]})");
       },
       {"post_processor", "hold the text once"}},
  };
  for (const Case& c : cases) {
    const Status status = parse_changed(c.change);
    expect_error(status, StatusCode::kUnsupported, {"t.json"});
    expect_error(status, StatusCode::kUnsupported, c.parts);
  }
}

// As Mixtral's: the normalizer marks spaces, bytes without characters have tokens.
json characters() {
  return json::parse(R"({
    "normalizer": {"type": "Sequence", "normalizers": [
      {"type": "Prepend", "prepend": "_"},
      {"type": "Replace", "pattern": {"String": " "}, "content": "_"}]},
    "pre_tokenizer": null,
    "post_processor": {"type": "TemplateProcessing",
                       "single": [{"SpecialToken": {"id": "<s>"}}, {"Sequence": {"id": "A"}}],
                       "special_tokens": {"<s>": {"id": "<s>", "ids": [7, 3]}}},
    "decoder": {"type": "Sequence", "decoders": [
      {"type": "Replace", "pattern": {"String": "_"}, "content": " "},
      {"type": "ByteFallback"}, {"type": "Fuse"},
      {"type": "Strip", "content": " ", "start": 1, "stop": 0}]},
    "model": {"type": "BPE", "byte_fallback": true, "vocab": {"a": 0}, "merges": []}})");
}

TEST(TokenizerJson, CharactersWithByteFallbackAreRead) {
  const auto spec = parse_tokenizer_json(characters().dump(), "t.json");
  ASSERT_OK(spec);
  EXPECT_EQ(spec.value().symbols, SymbolKind::kCharacters);
  ASSERT_EQ(spec.value().replacements.size(), 2U);
  EXPECT_EQ(spec.value().replacements[0].pattern, "");
  EXPECT_EQ(spec.value().replacements[1].pattern, " ");
  EXPECT_EQ(spec.value().space_mark, "_");
  EXPECT_TRUE(spec.value().strip_first_space);
  EXPECT_FALSE(spec.value().equal_ranks);
  EXPECT_EQ(spec.value().begin_of_text, (std::vector<std::int32_t>{7, 3}));
}

TEST(TokenizerJson, ATemplateWhoseTokensAreUnknownIsRefused) {
  for (const json& tokens : {json(), json::object(), json({{"<s>", {{"ids", 7}}}}),
                             json({{"<s>", {{"ids", {-1}}}}}), json({{"<s>", {{"ids", {"7"}}}}})}) {
    json data = characters();
    data["post_processor"]["special_tokens"] = tokens;
    expect_error(parse_tokenizer_json(data.dump(), "t.json").status(), StatusCode::kCorrupt,
                 {"post_processor", "special_tokens"});
  }
}

TEST(TokenizerJson, OtherDecodersOfCharactersAreRefused) {
  const auto refuse = [](const std::function<void(json&)>& change,
                         std::initializer_list<std::string_view> parts) {
    json data = characters();
    change(data);
    expect_error(parse_tokenizer_json(data.dump(), "t.json").status(), StatusCode::kUnsupported,
                 parts);
  };
  refuse([](json& d) { d["decoder"] = {{"type", "ByteLevel"}}; }, {"decoder", "ByteLevel"});
  refuse([](json& d) { d["decoder"]["decoders"].erase(2); }, {"decoders[2]", "Strip"});
  refuse([](json& d) { d["decoder"]["decoders"].erase(3), d["decoder"]["decoders"].erase(2); },
         {"decoders[2]", "without Fuse"});
  refuse([](json& d) { d["decoder"]["decoders"][3]["start"] = 2; }, {"decoders[3]", "one space"});
  refuse([](json& d) { d["decoder"]["decoders"][0]["content"] = "-"; }, {"decoders[0]", "space"});
  refuse([](json& d) { d["normalizer"] = {{"type", "NFC"}}; }, {"byte_fallback", "NFC"});
}

TEST(TokenizerJson, WrongShapesAreCorrupt) {
  struct Case {
    std::function<void(json&)> change;
    std::initializer_list<std::string_view> parts;
  };
  const Case cases[] = {
      {[](json& d) { d["model"]["vocab"]["a"] = "0"; }, {"\"a\"", "a string", "offset"}},
      {[](json& d) { d["model"]["vocab"]["a"] = -1; }, {"\"a\"", "a number"}},
      {[](json& d) { d["model"]["vocab"]["a"] = 1.5; }, {"\"a\"", "a number"}},
      {[](json& d) { d["model"]["vocab"]["a"] = nullptr; }, {"\"a\"", "null"}},
      {[](json& d) {
         d["model"]["vocab"]["a"] = {{"x", 1}};
       },
       {"\"a\"", "an object"}},
      {[](json& d) { d["model"]["vocab"]["a"] = {1}; }, {"\"a\"", "an array"}},
      {[](json& d) { d["model"]["vocab"]["a"] = std::uint64_t{1} << 63; }, {"\"a\"", "32 bits"}},
      {[](json& d) { d["model"]["vocab"]["a"] = 2147483647; }, {"\"a\"", "32 bits"}},
      {[](json& d) {
         d["model"]["vocab"] = {1, {2, {{"x", 3}}}};
       },
       {"model.vocab is missing"}},
      {[](json& d) { d["model"].erase("vocab"); }, {"model.vocab is missing"}},
      {[](json& d) { d["model"].erase("merges"); }, {"model.merges is missing"}},
      {[](json& d) { d["model"]["merges"] = json::parse(R"([["a", 1]])"); },
       {"model.merges", "entry 0"}},
      {[](json& d) { d["model"]["merges"] = json::parse(R"({"a": [1, {"b": 2}]})"); },
       {"model.merges is missing"}},
      {[](json& d) { d["model"]["merges"][1] = "Ġa"; }, {"entry 1"}},
      {[](json& d) { d["model"]["merges"][1] = "a b c"; }, {"entry 1"}},
      {[](json& d) { d["model"]["merges"][0] = {"a"}; }, {"entry 0"}},
      {[](json& d) {
         d["model"]["merges"][0] = {"a", "b", "c"};
       },
       {"entry 0"}},
      {[](json& d) { d["model"]["merges"][0] = json::parse(R"(["a", ["b"]])"); }, {"entry 0"}},
      {[](json& d) { d["model"]["merges"][0] = 7; }, {"entry 0"}},
      {[](json& d) { d["model"]["merges"][0] = nullptr; }, {"entry 0"}},
      {[](json& d) { d["model"]["merges"][0] = json::object(); }, {"entry 0"}},
      {[](json& d) { d["model"] = 3; }, {"\"model\""}},
      {[](json& d) { d.erase("model"); }, {"\"model\""}},
      {[](json& d) { d["model"]["ignore_merges"] = "yes"; }, {"ignore_merges"}},
      {[](json& d) { d["added_tokens"] = 3; }, {"added_tokens"}},
      {[](json& d) { d["added_tokens"][1] = 3; }, {"added_tokens[1]"}},
      {[](json& d) { d["added_tokens"][1]["id"] = "5"; }, {"added_tokens[1]", "id"}},
      {[](json& d) { d["added_tokens"][1]["id"] = -5; }, {"added_tokens[1]", "id"}},
      {[](json& d) { d["added_tokens"][1]["id"] = std::uint64_t{1} << 63; },
       {"added_tokens[1]", "32 bits"}},
      {[](json& d) { d["added_tokens"][1].erase("content"); }, {"added_tokens[1]", "content"}},
      {[](json& d) { d["added_tokens"][1]["special"] = 1; }, {"added_tokens[1]", "special"}},
      {[](json& d) { d["pre_tokenizer"]["pretokenizers"][0]["pattern"] = "x"; }, {"pattern"}},
      {[](json& d) { d["pre_tokenizer"]["pretokenizers"] = 1; }, {"pretokenizers"}},
      {[](json& d) { d["normalizer"] = "NFC"; }, {"normalizer"}},
      {[](json& d) { d["decoder"] = nullptr; }, {"decoder"}},
      {[](json& d) { d = json::array(); }, {"not a JSON object"}},
      {[](json& d) { d = 3; }, {"not a JSON object"}},
  };
  for (const Case& c : cases) {
    const Status status = parse_changed(c.change);
    expect_error(status, StatusCode::kCorrupt, {"t.json"});
    expect_error(status, StatusCode::kCorrupt, c.parts);
  }
}

TEST(TokenizerJson, TheSameTokenTwiceIsCorrupt) {
  const std::string text = small().dump();
  const auto at = text.find("\"b\":1");
  ASSERT_NE(at, std::string::npos);
  expect_error(parse_tokenizer_json(std::string(text).replace(at, 5, "\"a\":1"), "t.json").status(),
               StatusCode::kCorrupt, {"\"a\" stands twice"});
}

TEST(TokenizerJson, EveryTruncationIsAnError) {
  test::drill_truncation(small().dump(), [](std::string_view text) {
    return parse_tokenizer_json(text, "t.json").status();
  });
}

}  // namespace
}  // namespace moepack::tokenizer_json_test
