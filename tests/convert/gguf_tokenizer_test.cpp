// Tokenizer files rebuilt from GGUF keys: against the HuggingFace files that a GGUF file was made
// from, and files with one thing wrong each.
#include "convert/source/gguf_tokenizer.h"

#include <sys/wait.h>
#include <unistd.h>
#include <algorithm>
#include <fstream>
#include <functional>
#include <map>
#include <sstream>
#include <string>
#include <vector>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "convert/source/gguf_vocabulary.h"
#include "formats/config/companion_files.h"
#include "formats/config/tokenizer_json.h"
#include "tests/support/gguf_writer.h"
#include "tests/support/memory_file.h"
#include "tests/support/reader_drill.h"
#include "tests/support/safetensors_writer.h"
#include "tests/support/status_matchers.h"
#include "tests/support/temp_dir.h"
#include "tests/support/test_models.h"

namespace moepack::gguf_tokenizer_test {
namespace {

using nlohmann::json;
using test::expect_error;
using test::GgufWriter;
using Strings = std::vector<std::string>;

constexpr std::uint32_t kBool = 7;
constexpr std::uint32_t kI32 = 5;
constexpr std::uint32_t kString = 8;

void add_strings(GgufWriter& writer, std::string_view key, const Strings& texts) {
  std::string elements;
  for (const std::string& text : texts) elements += writer.string(text);
  writer.array(key, kString, texts.size(), elements);
}

// A tokenizer in GGUF form; what tests leave alone is right.
struct Tiny {
  std::string model = "gpt2";
  std::string pre = "qwen35";
  Strings tokens{"a", "b", "ab", "Ġ", "Ġa", "<|im_end|>", "<think>", "[PAD7]", "<|endoftext|>"};
  std::vector<std::int32_t> types{1, 1, 1, 1, 1, 3, 4, 5, 3};
  Strings merges{"a b", "Ġ a"};
  std::string leave_out;  // a key
  std::function<void(GgufWriter&)> more = [](GgufWriter&) {};
  bool big_endian = false;

  std::string bytes() const {
    GgufWriter writer(big_endian);
    const auto has = [this](std::string_view key) { return leave_out != key; };
    writer.text("general.architecture", "qwen35moe");
    if (has("tokenizer.ggml.model")) writer.text("tokenizer.ggml.model", model);
    if (has("tokenizer.ggml.pre")) writer.text("tokenizer.ggml.pre", pre);
    if (has("tokenizer.ggml.tokens")) add_strings(writer, "tokenizer.ggml.tokens", tokens);
    if (has("tokenizer.ggml.token_type")) {
      std::string elements;
      for (const std::int32_t type : types) elements += writer.number(type);
      writer.array("tokenizer.ggml.token_type", kI32, types.size(), elements);
    }
    if (has("tokenizer.ggml.merges")) add_strings(writer, "tokenizer.ggml.merges", merges);
    more(writer);
    return writer.bytes();
  }
};

// A usual set of special tokens and templates.
void add_specials(GgufWriter& writer) {
  writer.u32("tokenizer.ggml.bos_token_id", 6)
      .u32("tokenizer.ggml.eos_token_id", 5)
      .u32("tokenizer.ggml.padding_token_id", 8)
      .key("tokenizer.ggml.add_bos_token", kBool, std::string(1, '\1'))
      .text("tokenizer.chat_template", "{{ 'é' }}\r\n\"x\"\n")
      .text("tokenizer.chat_template.tool_use", "tools\n")
      .text("tokenizer.chat_template.rag", "rag");
  add_strings(writer, "tokenizer.chat_templates", {"tool_use", "rag"});
}

Result<std::vector<NamedText>> rebuild(const std::string& bytes) {
  const test::TempDir dir;
  test::write_file(dir / "m.gguf", bytes);
  MOE_ASSIGN_OR_RETURN(const GgufModel model, GgufModel::open(dir / "m.gguf"));
  return gguf_tokenizer_files(model);
}
Result<std::vector<NamedText>> rebuild(const Tiny& tiny) { return rebuild(tiny.bytes()); }

// The same without a directory, for many.
Result<std::vector<NamedText>> rebuild_in_memory(std::string_view bytes) {
  const test::MemoryFile memory(bytes);
  MOE_ASSIGN_OR_RETURN(const GgufModel model, GgufModel::open(memory.path()));
  return gguf_tokenizer_files(model);
}

const std::string& text_of(const std::vector<NamedText>& files, std::string_view name) {
  static const std::string kNone = "no such file";
  const auto found = std::find_if(files.begin(), files.end(),
                                  [&](const NamedText& file) { return file.name == name; });
  EXPECT_NE(found, files.end()) << name;
  return found == files.end() ? kNone : found->text;
}

Result<TokenizerSpec> spec_of(const Tiny& tiny) {
  MOE_ASSIGN_OR_RETURN(const std::vector<NamedText> files, rebuild(tiny));
  return parse_tokenizer_json(text_of(files, "tokenizer.json"), "tokenizer.json");
}

// With `change` made to the right one.
Status refusal(const std::function<void(Tiny&)>& change) {
  Tiny tiny;
  change(tiny);
  return rebuild(tiny).status();
}

std::map<std::string, std::int32_t> vocab_map(const TokenizerSpec& spec) {
  return {spec.vocab.begin(), spec.vocab.end()};
}

std::string read_bytes(const std::filesystem::path& path) {
  std::ifstream in(path, std::ios::binary);
  EXPECT_TRUE(in.good()) << path;
  std::stringstream text;
  text << in.rdbuf();
  return text.str();
}

TEST(GgufTokenizer, EveryKindOfTokenFindsItsPlace) {
  ASSERT_OK_AND_ASSIGN(const TokenizerSpec spec, spec_of(Tiny()));
  const std::map<std::string, std::int32_t> expected{
      {"a", 0}, {"b", 1}, {"ab", 2}, {"Ġ", 3}, {"Ġa", 4}};
  EXPECT_EQ(vocab_map(spec), expected);
  EXPECT_EQ(spec.vocab.size(), 5U);
  ASSERT_EQ(spec.added_tokens.size(), 3U);  // the placeholder is none
  EXPECT_EQ(spec.added_tokens[0].content, "<|im_end|>");
  EXPECT_EQ(spec.added_tokens[0].id, 5);
  EXPECT_TRUE(spec.added_tokens[0].special);
  EXPECT_EQ(spec.added_tokens[1].content, "<think>");
  EXPECT_EQ(spec.added_tokens[1].id, 6);
  EXPECT_FALSE(spec.added_tokens[1].special);
  EXPECT_EQ(spec.added_tokens[2].id, 8);
  for (const AddedTokenSpec& token : spec.added_tokens) {
    EXPECT_FALSE(token.normalized || token.lstrip || token.rstrip || token.single_word);
  }
  ASSERT_EQ(spec.merges.size(), 2U);
  EXPECT_EQ(spec.merges[0], (std::pair<std::string, std::string>("a", "b")));
  EXPECT_EQ(spec.merges[1], (std::pair<std::string, std::string>("Ġ", "a")));
  EXPECT_TRUE(spec.nfc);
  EXPECT_FALSE(spec.ignore_merges || spec.add_prefix_space || spec.split_gpt2);
}

TEST(GgufTokenizer, TextsKeepEveryCharacter) {
  Tiny tiny;
  tiny.tokens = {"\"", "\\", "\x01", "\n", "日本", "\U0001F642", "", "a b", "\x7f", "é"};
  tiny.types = {1, 1, 1, 1, 1, 1, 1, 4, 1, 3};
  tiny.merges = {};
  ASSERT_OK_AND_ASSIGN(const TokenizerSpec spec, spec_of(tiny));
  ASSERT_EQ(spec.vocab.size(), 8U);
  for (const auto& [text, id] : spec.vocab) {
    EXPECT_EQ(text, tiny.tokens[static_cast<std::size_t>(id)]);
  }
  ASSERT_EQ(spec.added_tokens.size(), 2U);
  EXPECT_EQ(spec.added_tokens[0].content, "a b");
  EXPECT_EQ(spec.added_tokens[1].content, "é");
}

// Only the name that the converter gives this very id marks a hole.
TEST(GgufTokenizer, PlaceholdersAreHoles) {
  Tiny tiny;
  tiny.tokens = {"[PAD0]", "[PAD7]", "[PAD2]", "<unused>", "[PAD1]", "[PAD5]"};
  tiny.types = {5, 5, 4, 5, 4, 1};
  tiny.merges = {};
  ASSERT_OK_AND_ASSIGN(const TokenizerSpec spec, spec_of(tiny));
  const std::map<std::string, std::int32_t> expected{{"[PAD7]", 1}, {"<unused>", 3}, {"[PAD5]", 5}};
  EXPECT_EQ(vocab_map(spec), expected);
  ASSERT_EQ(spec.added_tokens.size(), 1U);
  EXPECT_EQ(spec.added_tokens[0].content, "[PAD1]");
}

TEST(GgufTokenizer, AddedTokensThatMergesNeedStandInTheVocabularyToo) {
  Tiny tiny;
  tiny.types[2] = 4;  // ab
  ASSERT_OK_AND_ASSIGN(const TokenizerSpec spec, spec_of(tiny));
  EXPECT_EQ(vocab_map(spec).at("ab"), 2);
  ASSERT_EQ(spec.added_tokens.size(), 4U);
  EXPECT_EQ(spec.added_tokens[0].content, "ab");
  tiny.merges = {"Ġ a"};
  ASSERT_OK_AND_ASSIGN(const TokenizerSpec without, spec_of(tiny));
  EXPECT_EQ(vocab_map(without).count("ab"), 0U);
}

TEST(GgufTokenizer, CompanionsHoldTheSpecialTokensAndTemplates) {
  Tiny tiny;
  tiny.more = add_specials;
  ASSERT_OK_AND_ASSIGN(const std::vector<NamedText> files, rebuild(tiny));
  ASSERT_EQ(files.size(), 6U);
  const json config = json::parse(text_of(files, "tokenizer_config.json"));
  EXPECT_EQ(config["bos_token"], "<think>");
  EXPECT_EQ(config["eos_token"], "<|im_end|>");
  EXPECT_EQ(config["pad_token"], "<|endoftext|>");
  EXPECT_EQ(config["add_bos_token"], true);
  EXPECT_FALSE(config.contains("chat_template"));  // it has a file of its own
  const json generation = json::parse(text_of(files, "generation_config.json"));
  EXPECT_EQ(generation, json({{"bos_token_id", 6}, {"eos_token_id", {5, 8}}, {"pad_token_id", 8}}));
  EXPECT_EQ(text_of(files, "chat_template.jinja"), "{{ 'é' }}\r\n\"x\"\n");
  EXPECT_EQ(files[4].name, "additional_chat_templates/rag.jinja");
  EXPECT_EQ(files[4].text, "rag");
  EXPECT_EQ(files[5].name, "additional_chat_templates/tool_use.jinja");
  EXPECT_EQ(files[5].text, "tools\n");
}

TEST(GgufTokenizer, EndTokensAreListedOnce) {
  const auto ends = [](const Tiny& tiny) {
    const auto files = rebuild(tiny);
    EXPECT_OK(files);
    if (!files.is_ok()) return json();
    return json::parse(text_of(files.value(), "generation_config.json"))["eos_token_id"];
  };
  Tiny tiny;
  EXPECT_EQ(ends(tiny), json(8));  // the control token <|endoftext|>
  tiny.types[8] = 4;
  EXPECT_TRUE(ends(tiny).is_null());
  tiny.more = [](GgufWriter& w) {
    w.u32("tokenizer.ggml.eom_token_id", 5)
        .u32("tokenizer.ggml.eot_token_id", 6)
        .u32("tokenizer.ggml.eos_token_id", 5);
  };
  EXPECT_EQ(ends(tiny), json({5, 6}));
}

TEST(GgufTokenizer, WithoutSpecialTokensAndTemplates) {
  Tiny tiny;
  tiny.types[8] = 4;
  ASSERT_OK_AND_ASSIGN(const std::vector<NamedText> files, rebuild(tiny));
  ASSERT_EQ(files.size(), 3U);
  const json config = json::parse(text_of(files, "tokenizer_config.json"));
  EXPECT_TRUE(config["bos_token"].is_null() && config["eos_token"].is_null());
  EXPECT_FALSE(config.contains("add_bos_token"));
  EXPECT_EQ(json::parse(text_of(files, "generation_config.json")), json::object());
}

TEST(GgufTokenizer, TheSameKeysGiveTheSameBytes) {
  Tiny tiny;
  tiny.more = add_specials;
  ASSERT_OK_AND_ASSIGN(const std::vector<NamedText> little, rebuild(tiny));
  tiny.big_endian = true;
  tiny.more = [](GgufWriter& writer) {
    writer.u32("tokenizer.ggml.padding_token_id", 8);
    add_strings(writer, "tokenizer.chat_templates", {"rag", "tool_use"});
    writer.text("tokenizer.chat_template.rag", "rag")
        .text("tokenizer.chat_template.tool_use", "tools\n")
        .text("tokenizer.chat_template", "{{ 'é' }}\r\n\"x\"\n")
        .key("tokenizer.ggml.add_bos_token", kBool, std::string(1, '\1'))
        .u32("tokenizer.ggml.eos_token_id", 5)
        .u32("tokenizer.ggml.bos_token_id", 6);
  };
  ASSERT_OK_AND_ASSIGN(const std::vector<NamedText> big, rebuild(tiny));
  ASSERT_EQ(big.size(), little.size());
  for (std::size_t i = 0; i < big.size(); ++i) {
    EXPECT_EQ(big[i].name, little[i].name);
    EXPECT_EQ(big[i].text, little[i].text);
  }
}

// The patterns by which HuggingFace's `tokenizers` computed tests/golden/tokenizer.
TEST(GgufTokenizer, PreTokenizersHaveThePatternsOfTheGoldenIds) {
  const std::filesystem::path golden =
      std::filesystem::path(MOEPACK_SOURCE_DIR) / "tests/golden/tokenizer/variants.json";
  std::map<std::string, Strings> patterns;
  for (const json& variant : json::parse(read_bytes(golden))) {
    if (!variant.contains("set") || !variant["set"].contains("pre_tokenizer")) continue;
    for (const json& step : variant["set"]["pre_tokenizer"].value("pretokenizers", json::array())) {
      if (step["type"] != "Split" || !step["pattern"].contains("Regex")) continue;
      patterns[variant["name"].get<std::string>()].push_back(
          step["pattern"]["Regex"].get<std::string>());
    }
  }
  const json base = json::parse(read_bytes(test::demo_mlx_model() / "tokenizer.json"));
  patterns["Qwen3.5"] = {base["pre_tokenizer"]["pretokenizers"][0]["pattern"]["Regex"]};
  const struct {
    const char* pre;
    const char* variant;
    bool nfc;
  } rows[] = {{"qwen35", "Qwen3.5", true},
              {"qwen2", "Qwen2, merges as strings", true},
              {"gpt-4o", "GPT-4o", false},
              {"minimax-m2", "GPT-4o", false},
              {"deepseek-v3", "DeepSeek-V3", false}};
  for (const auto& row : rows) {
    SCOPED_TRACE(row.pre);
    Tiny tiny;
    tiny.pre = row.pre;
    ASSERT_OK_AND_ASSIGN(const TokenizerSpec spec, spec_of(tiny));
    EXPECT_EQ(spec.nfc, row.nfc);
    EXPECT_FALSE(spec.ignore_merges || spec.add_prefix_space || spec.split_gpt2);
    Strings found;
    for (const SplitSpec& split : spec.splits) {
      EXPECT_EQ(split.behavior, SplitBehavior::kIsolated);
      EXPECT_TRUE(split.is_regex && !split.invert);
      std::string escaped;  // the published text may hold line ends as themselves
      for (const char c : split.pattern) {
        escaped += c == '\r' ? "\\r" : c == '\n' ? "\\n" : std::string(1, c);
      }
      found.push_back(escaped);
    }
    EXPECT_EQ(found, patterns[row.variant]);
  }
}

TEST(GgufTokenizer, RefusesByNameWhatItCannotRebuild) {
  struct Case {
    std::function<void(Tiny&)> change;
    std::initializer_list<std::string_view> parts;
  };
  const Case cases[] = {
      {[](Tiny& t) { t.model = "llama"; }, {"tokenizer.ggml.model", "\"llama\"", "offset"}},
      {[](Tiny& t) { t.model = "gemma4"; }, {"tokenizer.ggml.model", "\"gemma4\""}},
      {[](Tiny& t) { t.pre = "kimi-x9"; }, {"tokenizer.ggml.pre", "\"kimi-x9\"", "qwen35"}},
      {[](Tiny& t) { t.pre = "default"; }, {"tokenizer.ggml.pre", "\"default\"", "deepseek-v3"}},
      {[](Tiny& t) { t.types[3] = 6; },
       {"tokenizer.ggml.token_type", "element 3", "type 6 (byte)", "offset"}},
      {[](Tiny& t) { t.types[0] = 2; }, {"element 0", "\"a\"", "type 2 (unknown)"}},
      {[](Tiny& t) { t.tokens[0] = std::string(kMaxTokenizerKeyBytes, 'a'); },
       {"tokenizer.ggml.tokens", "at most 16777216"}},
      {[](Tiny& t) {
         t.tokens[0] = std::string(kMaxTokenizerKeyBytes - 200, '\1');
         t.merges = {};
       },
       {"tokenizer.json would have more than"}},
      {[](Tiny& t) {
         t.more = [](GgufWriter& w) {
           w.text("tokenizer.chat_template",
                  std::string(companion_max_bytes(kChatTemplateName), 'a'));
         };
       },
       {"tokenizer.chat_template", "at most 4194304"}},
  };
  for (const Case& c : cases) {
    const Status status = refusal(c.change);
    expect_error(status, StatusCode::kUnsupported, {"m.gguf"});
    expect_error(status, StatusCode::kUnsupported, c.parts);
  }
}

TEST(GgufTokenizer, MissingKeysAreNamed) {
  for (const char* key : {"tokenizer.ggml.model", "tokenizer.ggml.pre", "tokenizer.ggml.tokens",
                          "tokenizer.ggml.token_type", "tokenizer.ggml.merges"}) {
    expect_error(refusal([key](Tiny& t) { t.leave_out = key; }), StatusCode::kNotFound,
                 {"m.gguf", key, "missing"});
  }
  expect_error(refusal([](Tiny& t) {
                 t.more = [](GgufWriter& w) {
                   add_strings(w, "tokenizer.chat_templates", {"rag"});
                 };
               }),
               StatusCode::kNotFound, {"tokenizer.chat_template.rag", "missing"});
}

TEST(GgufTokenizer, WhatContradictsItselfIsCorrupt) {
  struct Case {
    std::function<void(Tiny&)> change;
    std::initializer_list<std::string_view> parts;
  };
  const auto replace = [](const char* key, const std::function<void(GgufWriter&)>& more) {
    return [key, more](Tiny& t) {
      t.leave_out = key;
      t.more = more;
    };
  };
  const auto more = [](const std::function<void(GgufWriter&)>& add) {
    return [add](Tiny& t) { t.more = add; };
  };
  const Case cases[] = {
      {[](Tiny& t) { t.types.pop_back(); },
       {"tokenizer.ggml.token_type", "8 elements for 9 tokens", "offset"}},
      {[](Tiny& t) { t.types.push_back(1); }, {"token_type", "10 elements for 9 tokens"}},
      {[](Tiny& t) { t.types[4] = 0; }, {"token_type", "element 4", "\"\\xc4\\xa0a\"", "type 0"}},
      {[](Tiny& t) { t.types[4] = 7; }, {"element 4", "type 7"}},
      {[](Tiny& t) { t.types[4] = -1; }, {"element 4", "type -1"}},
      {[](Tiny& t) { t.tokens[4] = "a"; },
       {"tokenizer.ggml.tokens", "element 4 is \"a\"", "element 0", "offset"}},
      {[](Tiny& t) { t.tokens[6] = "<|im_end|>"; }, {"element 6", "element 5"}},
      {[](Tiny& t) { t.tokens[4] = "x\xff"; }, {"tokens", "element 4", "UTF-8", "offset"}},
      {[](Tiny& t) { t.tokens[4] = "\xed\xa0\x80"; }, {"element 4", "UTF-8"}},
      {[](Tiny& t) { t.tokens = t.merges = {}, t.types = {}; }, {"tokens", "no elements"}},
      {[](Tiny& t) { t.merges[1] = "Ġa"; }, {"tokenizer.ggml.merges", "element 1", "\"a b\""}},
      {[](Tiny& t) { t.merges[1] = "Ġ a b"; }, {"merges", "element 1", "offset"}},
      {[](Tiny& t) { t.merges[1] = " a"; }, {"merges", "element 1", "not \"a b\""}},
      {[](Tiny& t) { t.merges[1] = "a "; }, {"merges", "element 1", "not \"a b\""}},
      {[](Tiny& t) { t.merges[1] = ""; }, {"merges", "element 1", "not \"a b\""}},
      {[](Tiny& t) { t.merges[1] = "x a"; }, {"merges", "element 1", "token \"x\"", "offset"}},
      {[](Tiny& t) { t.merges[0] = "a x"; }, {"merges", "element 0", "token \"x\""}},
      {[](Tiny& t) { t.merges[0] = "b a"; }, {"merges", "element 0", "token \"ba\""}},
      {replace("tokenizer.ggml.tokens",
               [](GgufWriter& w) { w.text("tokenizer.ggml.tokens", "a"); }),
       {"tokenizer.ggml.tokens", "array of strings"}},
      {replace("tokenizer.ggml.token_type",
               [](GgufWriter& w) { add_strings(w, "tokenizer.ggml.token_type", Strings(9)); }),
       {"tokenizer.ggml.token_type", "whole numbers"}},
      {replace("tokenizer.ggml.merges", [](GgufWriter& w) { w.u32("tokenizer.ggml.merges", 1); }),
       {"tokenizer.ggml.merges", "array of strings"}},
      {replace("tokenizer.ggml.pre", [](GgufWriter& w) { w.u32("tokenizer.ggml.pre", 1); }),
       {"tokenizer.ggml.pre", "a string"}},
      {more([](GgufWriter& w) { w.u32("tokenizer.ggml.eos_token_id", 9); }),
       {"tokenizer.ggml.eos_token_id", "from 0 to 8", "offset"}},
      {more([](GgufWriter& w) { w.i32("tokenizer.ggml.bos_token_id", -1); }),
       {"tokenizer.ggml.bos_token_id", "from 0 to 8"}},
      {more([](GgufWriter& w) { w.text("tokenizer.ggml.padding_token_id", "8"); }),
       {"tokenizer.ggml.padding_token_id"}},
      {more([](GgufWriter& w) { w.u32("tokenizer.ggml.eot_token_id", 1000); }),
       {"tokenizer.ggml.eot_token_id"}},
      {more([](GgufWriter& w) { w.u32("tokenizer.ggml.add_bos_token", 1); }),
       {"tokenizer.ggml.add_bos_token", "a bool"}},
      {more([](GgufWriter& w) { w.text("tokenizer.chat_template", "\x80"); }),
       {"tokenizer.chat_template", "UTF-8", "offset"}},
      {more([](GgufWriter& w) { add_strings(w, "tokenizer.chat_templates", {"../x"}); }),
       {"tokenizer.chat_templates", "../x"}},
      {more([](GgufWriter& w) { add_strings(w, "tokenizer.chat_templates", {""}); }),
       {"tokenizer.chat_templates"}},
      {more([](GgufWriter& w) {
         w.text("tokenizer.chat_template.a", "");
         add_strings(w, "tokenizer.chat_templates", {"a", "a"});
       }),
       {"tokenizer.chat_templates", "\"a\"", "twice"}},
  };
  for (const Case& c : cases) {
    const Status status = refusal(c.change);
    expect_error(status, StatusCode::kCorrupt, {"m.gguf"});
    expect_error(status, StatusCode::kCorrupt, c.parts);
  }
}

TEST(GgufTokenizer, OffsetsOfErrorsAreThoseOfTheBytes) {
  const auto offset_in = [](const Status& status) {
    const std::string& message = status.message();
    return std::stoull(message.substr(message.find("offset ") + 7));
  };
  Tiny tiny;
  tiny.tokens[6] = "<th\xffnk>";
  EXPECT_EQ(offset_in(rebuild(tiny).status()), tiny.bytes().find('\xff'));
  tiny = Tiny();
  tiny.tokens[6] = "<|im_end|>";
  EXPECT_EQ(offset_in(rebuild(tiny).status()), tiny.bytes().rfind("<|im_end|>") - 8);
  tiny = Tiny();
  tiny.merges[1] = "zzz a";
  EXPECT_EQ(offset_in(rebuild(tiny).status()), tiny.bytes().find("zzz a") - 8);
  tiny = Tiny();
  tiny.types[7] = 77;
  EXPECT_EQ(offset_in(rebuild(tiny).status()), tiny.bytes().find(std::string("\x4d\0\0\0", 4)));
}

TEST(GgufTokenizer, EveryTruncationIsAnError) {
  Tiny tiny;
  tiny.more = add_specials;
  test::drill_truncation(tiny.bytes(),
                         [](std::string_view cut) { return rebuild_in_memory(cut).status(); },
                         {.refuses_extra_byte = false});
}

// Whatever is accepted after a byte was damaged is still a tokenizer.
TEST(GgufTokenizer, DamagedBytesNeverGiveUnreadableFiles) {
  Tiny tiny;
  tiny.more = add_specials;
  const std::string valid = tiny.bytes();
  std::size_t accepted = 0;
  for (std::size_t at = 0; at < valid.size(); ++at) {
    for (const int value : {0, 1, 0x20, 0x7f, 0x80, 0xff}) {
      std::string damaged = valid;
      damaged[at] = static_cast<char>(value);
      const auto files = rebuild_in_memory(damaged);
      if (!files.is_ok()) {
        const std::string message = files.status().message();
        ASSERT_FALSE(message.empty());
        ASSERT_EQ(message.find('\n'), std::string::npos) << message;
        continue;
      }
      ++accepted;
      ASSERT_OK(parse_tokenizer_json(text_of(files.value(), "tokenizer.json"), "t.json"));
      for (const char* name : {"tokenizer_config.json", "generation_config.json"}) {
        ASSERT_TRUE(json::accept(text_of(files.value(), name))) << at;
      }
    }
  }
  EXPECT_GT(accepted, 100U);
}

#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
std::uint64_t peak_memory_kib() {
  std::ifstream in("/proc/self/status");
  for (std::string word; in >> word;) {
    std::uint64_t kib = 0;
    if (word == "VmHWM:" && in >> kib) return kib;
  }
  return 0;
}
#endif

// The size of the largest published vocabularies: single characters, and pairs of earlier tokens.
constexpr std::size_t kLetters = 64;
constexpr std::size_t kManyTokens = 250'000;

void write_large_file(const std::filesystem::path& path) {
  Tiny tiny;
  tiny.tokens.clear();
  tiny.merges.clear();
  for (std::size_t i = 0; i < kLetters; ++i) {
    tiny.tokens.emplace_back(1, static_cast<char>('0' + i));
  }
  for (std::size_t i = 0; tiny.tokens.size() < kManyTokens; ++i) {
    const std::string left = tiny.tokens[i / kLetters];
    const std::string right = tiny.tokens[i % kLetters];
    tiny.merges.push_back(left + " " + right);
    tiny.tokens.push_back(left + right);
  }
  tiny.types.assign(kManyTokens, 1);
  test::write_file(path, tiny.bytes());
}

TEST(GgufTokenizer, LargeVocabulariesCostTensOfMegabytes) {
  const test::TempDir dir;
  // Written by a child, so that the memory this takes is not taken for the reader's.
  const pid_t child = fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    write_large_file(dir / "m.gguf");
    _exit(0);
  }
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  ASSERT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0);
#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
  const std::uint64_t before = peak_memory_kib();
#endif
  ASSERT_OK_AND_ASSIGN(const GgufModel model, GgufModel::open(dir / "m.gguf"));
  ASSERT_OK_AND_ASSIGN(const std::vector<NamedText> files, gguf_tokenizer_files(model));
#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
  const std::uint64_t used = peak_memory_kib() - before;
  RecordProperty("peak_kib", std::to_string(used));
  EXPECT_LT(used, 60U << 10);
#endif
  ASSERT_OK_AND_ASSIGN(const TokenizerSpec spec,
                       parse_tokenizer_json(text_of(files, "tokenizer.json"), "t.json"));
  EXPECT_EQ(spec.vocab.size(), kManyTokens);
  EXPECT_EQ(spec.merges.size(), kManyTokens - kLetters);
}

// A GGUF file against the HuggingFace files of the model that it was made from.
void expect_rebuilt(const std::filesystem::path& gguf, const std::filesystem::path& original) {
  ASSERT_OK_AND_ASSIGN(const GgufModel model, GgufModel::open(gguf));
  ASSERT_OK_AND_ASSIGN(const std::vector<NamedText> files, gguf_tokenizer_files(model));
  ASSERT_OK_AND_ASSIGN(const TokenizerSpec found,
                       parse_tokenizer_json(text_of(files, "tokenizer.json"), "tokenizer.json"));
  ASSERT_OK_AND_ASSIGN(const TokenizerSpec expected,
                       load_tokenizer_json(original / "tokenizer.json"));
  EXPECT_EQ(found.vocab.size(), expected.vocab.size());
  EXPECT_EQ(vocab_map(found), vocab_map(expected));
  EXPECT_EQ(found.merges, expected.merges);
  ASSERT_EQ(found.added_tokens.size(), expected.added_tokens.size());
  for (std::size_t i = 0; i < found.added_tokens.size(); ++i) {
    const AddedTokenSpec& a = found.added_tokens[i];
    const AddedTokenSpec& b = expected.added_tokens[i];
    EXPECT_EQ(a.id, b.id);
    EXPECT_EQ(a.content, b.content);
    EXPECT_EQ(a.special, b.special) << a.content;
    EXPECT_EQ(a.normalized, b.normalized) << a.content;
  }
  EXPECT_EQ(found.nfc, expected.nfc);
  ASSERT_EQ(found.splits.size(), expected.splits.size());
  for (std::size_t i = 0; i < found.splits.size(); ++i) {
    EXPECT_EQ(found.splits[i].pattern, expected.splits[i].pattern);
    EXPECT_EQ(found.splits[i].behavior, expected.splits[i].behavior);
    EXPECT_EQ(found.splits[i].is_regex, expected.splits[i].is_regex);
    EXPECT_EQ(found.splits[i].invert, expected.splits[i].invert);
  }
  EXPECT_EQ(found.add_prefix_space, expected.add_prefix_space);
  EXPECT_EQ(found.split_gpt2, expected.split_gpt2);
  EXPECT_EQ(found.ignore_merges, expected.ignore_merges);
  EXPECT_EQ(text_of(files, "chat_template.jinja"), read_bytes(original / "chat_template.jinja"));
  const json config = json::parse(text_of(files, "tokenizer_config.json"));
  const json want = json::parse(read_bytes(original / "tokenizer_config.json"));
  EXPECT_EQ(config["eos_token"], want["eos_token"]);
  EXPECT_EQ(config["pad_token"], want["pad_token"]);
  const json generation = json::parse(text_of(files, "generation_config.json"));
  const json want_generation = json::parse(read_bytes(original / "generation_config.json"));
  EXPECT_EQ(generation["pad_token_id"], want_generation["pad_token_id"]);
  EXPECT_EQ(generation["eos_token_id"][0], want_generation["eos_token_id"]);
}

TEST(GgufTokenizerGolden, OneFile) {
  MOE_REQUIRE_MODEL(gguf, "small-moe-Q4_K_M.gguf");
  MOE_REQUIRE_MODEL(original, "small-moe");
  expect_rebuilt(gguf, original);
}

TEST(GgufTokenizerGolden, SplitFile) {
  MOE_REQUIRE_MODEL(gguf, "small-moe-Q3-gguf");
  MOE_REQUIRE_MODEL(original, "small-moe");
  expect_rebuilt(gguf / "small-moe-Q3-00003-of-00003.gguf", original);
}

}  // namespace
}  // namespace moepack::gguf_tokenizer_test
