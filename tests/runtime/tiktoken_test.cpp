// tiktoken.model of Kimi K2's checkpoints: the tokenizer.json that is made of it gives tiktoken's
// own ids, and broken files are refused.
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "convert/source/tiktoken_tokenizer.h"
#include "runtime/tokenizer/tokenizer.h"
#include "tests/convert/model_files.h"
#include "tests/support/status_matchers.h"
#include "tests/support/temp_dir.h"

namespace moepack::tiktoken_test {
namespace {

using nlohmann::json;
using test::expect_error;
using test::TempDir;
using Ids = std::vector<std::int32_t>;

std::filesystem::path golden() {
  return std::filesystem::path(MOEPACK_SOURCE_DIR) / "tests/golden/tokenizer/tiktoken";
}

std::string golden_text(const char* name) { return test::read_file(golden() / name); }

json cases() { return json::parse(golden_text("cases.json")); }

std::uint64_t vocab_size() { return cases()["tokens"].get<std::uint64_t>() + 256; }

Result<std::vector<std::string>> parse(const std::string& text) {
  return parse_tiktoken(text, "tiktoken.model");
}

TEST(Tiktoken, GivesTiktokensIds) {
  std::vector<std::string> notes;
  ASSERT_OK_AND_ASSIGN(const auto text, tokenizer_from_other_files(golden(), vocab_size(), notes));
  ASSERT_TRUE(text.has_value());
  EXPECT_TRUE(notes.empty());
  ASSERT_OK_AND_ASSIGN(const Tokenizer tokenizer, Tokenizer::parse(*text, "tokenizer.json"));
  EXPECT_EQ(tokenizer.size(), static_cast<std::int32_t>(vocab_size()));
  std::size_t merged = 0;
  const json golden_cases = cases();
  for (const json& sample : golden_cases["cases"]) {
    const auto wanted = sample[1].get<Ids>();
    ASSERT_OK_AND_ASSIGN(const Ids ids, tokenizer.encode(sample[0].get<std::string>()));
    EXPECT_EQ(ids, wanted) << sample[0].dump();
    EXPECT_EQ(tokenizer.decode(ids), sample[0].get<std::string>());
    for (const std::int32_t id : wanted) merged += id >= 256 ? 1U : 0U;
  }
  EXPECT_GT(golden_cases["cases"].size(), 400U);
  EXPECT_GT(merged, 1000U);
}

TEST(Tiktoken, SpecialTokensAreThoseDeclaredAndTheReserved) {
  std::vector<std::string> notes;
  ASSERT_OK_AND_ASSIGN(const auto text, tokenizer_from_other_files(golden(), vocab_size(), notes));
  const json made = json::parse(*text);
  const auto base = cases()["tokens"].get<std::uint32_t>();
  ASSERT_EQ(made["added_tokens"].size(), 256U);
  EXPECT_EQ(made["added_tokens"][9]["content"], "<|tool_calls_section_begin|>");
  EXPECT_EQ(made["added_tokens"][9]["special"], false);
  EXPECT_EQ(made["added_tokens"][8]["content"],
            "<|reserved_token_" + std::to_string(base + 8) + "|>");
  EXPECT_EQ(made["added_tokens"][8]["special"], true);
  // A model with fewer ids has fewer of them.
  ASSERT_OK_AND_ASSIGN(const auto fewer, tokenizer_from_other_files(golden(), base + 12, notes));
  EXPECT_EQ(json::parse(*fewer)["added_tokens"].size(), 12U);
}

TEST(Tiktoken, OrderAndLineEndsDoNotMatter) {
  const std::string text = golden_text("tiktoken.model");
  ASSERT_OK_AND_ASSIGN(const auto tokens, parse(text));
  std::vector<std::string> lines;
  std::istringstream in(text);
  for (std::string line; std::getline(in, line);) lines.push_back(line);
  std::string reversed;
  for (auto at = lines.rbegin(); at != lines.rend(); ++at) reversed += *at + "\r\n";
  ASSERT_OK_AND_ASSIGN(const auto again, parse(reversed));
  EXPECT_EQ(tokens, again);
}

TEST(Tiktoken, BrokenFilesAreRefusedByTheirLine) {
  const std::string text = golden_text("tiktoken.model");
  const auto edited = [&](const std::string& from, const std::string& to) {
    std::string out = text;
    const std::size_t at = out.find(from);
    EXPECT_NE(at, std::string::npos) << from;
    return parse(out.replace(at, from.size(), to)).status();
  };
  const auto refused = [](const Status& status, const char* what) {
    expect_error(status, StatusCode::kCorrupt, {"tiktoken.model", what});
  };
  refused(edited("\nAQ== 1\n", "\nAQ=A 1\n"), "line 2 is not base64");
  refused(edited("\nAQ== 1\n", "\nAR== 1\n"), "line 2 is not base64");  // bits behind the byte
  refused(edited("\nAQ== 1\n", "\nAQ==\n"), "line 2 is not base64");
  refused(edited("\nAQ== 1\n", "\nAQ== -1\n"), "line 2 is not base64");
  refused(edited("\nAQ== 1\n", "\nAQ== 1 \n"), "line 2 is not base64");
  refused(edited("\nAQ== 1\n", "\nAQ== 2\n"), "line 3 has the rank of line 2");
  refused(edited("\nAQ== 1\n", "\nAQ== 123456\n"), "line 2 has a rank beyond");
  refused(edited("\nAQ== 1\n", "\nAA== 1\n"), "line 2 has a token that stands twice");
  refused(edited("\nAQ== 1\n", "\nAQEB 1\n"), "no token for byte 1");
  refused(edited("\nAQ== 1\n", "\n"), "no token of rank 1");
  refused(parse("").status(), "no token for byte 0");
  std::string longest =
      text + std::string(684, 'A') + " " + std::to_string(cases()["tokens"].get<int>()) + "\n";
  expect_error(parse(longest).status(), StatusCode::kUnsupported, {"513 bytes"});
}

// Cut anywhere it is refused, or it has the tokens of its whole lines.
TEST(Tiktoken, EveryTruncationIsRefusedOrShorter) {
  const std::string text = golden_text("tiktoken.model");
  for (std::size_t n = 0; n < text.size(); n += n + 200 < text.size() ? 7U : 1U) {
    const std::string cut = text.substr(0, n);
    const auto tokens = parse(cut);
    if (!tokens.is_ok()) {
      EXPECT_EQ(tokens.status().message().find('\n'), std::string::npos);
      continue;
    }
    EXPECT_GE(tokens.value().size(), 256U);
    EXPECT_LT(tokens.value().size(), cases()["tokens"].get<std::size_t>() + 1);
  }
}

TEST(Tiktoken, WhatCannotBeUsedIsSaid) {
  const TempDir dir;
  const auto made = [&](std::uint64_t size) {
    std::vector<std::string> notes;
    const auto text = tokenizer_from_other_files(dir.path(), size, notes);
    if (!text.is_ok()) return text.status().message();
    EXPECT_FALSE(text.value().has_value() && !notes.empty());
    return notes.empty() ? std::string(text.value().has_value() ? "made" : "nothing")
                         : notes.front();
  };
  const auto has = [](const std::string& text, const std::string& part) {
    EXPECT_NE(text.find(part), std::string::npos) << text;
  };
  const std::uint64_t size = vocab_size();
  EXPECT_EQ(made(size), "nothing");
  test::write_file(dir / "tokenizer.model", "\n\x0e\n\x05<unk>");
  has(made(size), "tokenizer.model, a SentencePiece model, is not read");
  has(made(size), "save_pretrained");
  test::write_file(dir / "tiktoken.model", golden_text("tiktoken.model"));
  has(made(size), "tiktoken.model is not used, for want of tokenizer_config.json");
  json config = json::parse(golden_text("tokenizer_config.json"));
  const auto with = [&](const json& changed) {
    test::write_file(dir / "tokenizer_config.json", changed.dump());
    return made(size);
  };
  EXPECT_EQ(with(config), "made");
  json other = config;
  other["tokenizer_class"] = "QWenTokenizer";
  has(with(other), "tokenizer_class is \"QWenTokenizer\"");
  other.erase("tokenizer_class");
  has(with(other), "tokenizer_class");
  other = config;
  other["added_tokens_decoder"]["7"] = {{"content", "x"}};
  has(with(other), "added_tokens_decoder.7");
  other = config;
  other["added_tokens_decoder"].begin().value()["lstrip"] = true;
  has(with(other), "lstrip");
  has(with(json::array()), "tokenizer_config.json");
  EXPECT_EQ(with(config), "made");
  has(made(300), "vocab_size of 300");
  test::write_file(dir / "tiktoken.model", "AA== 0\n");
  has(made(size), "no token for byte 1");
}

}  // namespace
}  // namespace moepack::tiktoken_test
