// The tokenizer against ids that HuggingFace's `tokenizers` computed (tests/golden/tokenizer,
// tests/golden/demo-moe-mlx-4bit, the models), and against its own promises.
#include "runtime/tokenizer/tokenizer.h"

#include <algorithm>
#include <atomic>
#include <cstring>
#include <fstream>
#include <map>
#include <random>
#include <set>
#include <sstream>
#include <string>
#include <thread>
#include <vector>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "convert/source/gguf_tokenizer.h"
#include "tests/support/crc32.h"
#include "tests/support/gguf_writer.h"
#include "tests/support/memory_file.h"
#include "tests/support/status_matchers.h"
#include "tests/support/temp_dir.h"
#include "tests/support/test_models.h"

namespace moepack::tokenizer_test {
namespace {

using Ids = std::vector<std::int32_t>;
using nlohmann::json;
using test::expect_error;

std::string read_file(const std::filesystem::path& path) {
  std::ifstream in(path, std::ios::binary);
  EXPECT_TRUE(in.good()) << path;
  std::stringstream text;
  text << in.rdbuf();
  return text.str();
}

json golden(const std::string& name) {
  return json::parse(
      read_file(std::filesystem::path(MOEPACK_SOURCE_DIR) / "tests/golden/tokenizer" / name));
}

const json& base() {
  static const json kBase = json::parse(read_file(test::demo_mlx_model() / "tokenizer.json"));
  return kBase;
}

Tokenizer make(const json& data) {
  Result<Tokenizer> result = Tokenizer::parse(data.dump(), "tokenizer.json");
  EXPECT_OK(result);
  return std::move(result).value();
}

const Tokenizer& demo() {
  static const Tokenizer kDemo = make(base());
  return kDemo;
}

Ids encode(const Tokenizer& tokenizer, std::string_view text) {
  Result<Ids> result = tokenizer.encode(text);
  EXPECT_OK(result);
  return result.is_ok() ? result.value() : Ids{};
}

std::string repeat(std::string_view unit, std::size_t count) {
  std::string out;
  out.reserve(unit.size() * count);
  for (std::size_t i = 0; i < count; ++i) out += unit;
  return out;
}

// The tokenizer.json of a variant, as tests/golden/tokenizer/generate.py makes it.
json apply(const json& variant) {
  json data = base();
  if (variant.contains("set")) data.update(variant["set"]);
  json& model = data["model"];
  if (variant.value("string_merges", false)) {
    for (json& pair : model["merges"]) {
      pair = pair[0].get<std::string>() + " " + pair[1].get<std::string>();
    }
  }
  model["ignore_merges"] = variant.value("ignore_merges", false);
  std::size_t next = model["vocab"].size() + data["added_tokens"].size();
  for (const json& token : variant.value("vocab", json::array())) {
    model["vocab"][token.get<std::string>()] = next++;
  }
  for (json token : variant.value("added", json::array())) {
    const auto known = model["vocab"].find(token["content"].get<std::string>());
    token["id"] = known == model["vocab"].end() ? json(next++) : *known;
    data["added_tokens"].push_back(token);
  }
  return data;
}

TEST(TokenizerGolden, EveryVariantGivesTheReferencesIds) {
  for (const json& variant : golden("variants.json")) {
    SCOPED_TRACE(variant["name"].get<std::string>());
    const Tokenizer tokenizer = make(apply(variant));
    for (const json& sample : variant["samples"]) {
      const auto text = sample[0].get<std::string>();
      EXPECT_EQ(encode(tokenizer, text), sample[1].get<Ids>()) << sample[0].dump();
    }
  }
}

// The pre-tokenizer that a GGUF file's tokenizer.ggml.pre stands for.
json pre_tokenizer_of(std::string_view name) {
  test::GgufWriter writer;
  writer.text("tokenizer.ggml.model", "gpt2").text("tokenizer.ggml.pre", name);
  writer.array("tokenizer.ggml.tokens", 8, 1, writer.string("a"));
  writer.array("tokenizer.ggml.token_type", 5, 1, writer.number(std::int32_t{1}));
  writer.array("tokenizer.ggml.merges", 8, 0, "");
  const test::MemoryFile file(writer.bytes());
  const auto model = GgufModel::open(file.path());
  EXPECT_OK(model);
  if (!model.is_ok()) return {};
  const auto files = gguf_tokenizer_files(model.value());
  EXPECT_OK(files);
  if (!files.is_ok()) return {};
  return json::parse(files.value().front().text)["pre_tokenizer"];
}

TEST(TokenizerGolden, PreTokenizersOfGgufFilesGiveTheReferencesIds) {
  const std::map<std::string, std::string> pre_of{{"as it is", "qwen35"},
                                                  {"Qwen2, merges as strings", "qwen2"},
                                                  {"GPT-4o", "gpt-4o"},
                                                  {"GPT-2", "olmo"},
                                                  {"DeepSeek-V3", "deepseek-v3"}};
  std::size_t tested = 0;
  for (const json& variant : golden("variants.json")) {
    const auto pre = pre_of.find(variant["name"].get<std::string>());
    if (pre == pre_of.end()) continue;
    SCOPED_TRACE(pre->second);
    json data = apply(variant);
    data["pre_tokenizer"] = pre_tokenizer_of(pre->second);
    const Tokenizer tokenizer = make(data);
    for (const json& sample : variant["samples"]) {
      const auto text = sample[0].get<std::string>();
      EXPECT_EQ(encode(tokenizer, text), sample[1].get<Ids>()) << sample[0].dump();
    }
    ++tested;
  }
  EXPECT_EQ(tested, pre_of.size());
}

TEST(TokenizerGolden, TextsBeginAsTheReferencesDo) {
  for (const json& example : golden("begins.json")) {
    SCOPED_TRACE(example["name"].get<std::string>());
    json data = base();
    data["post_processor"] = example["post_processor"];
    const Tokenizer tokenizer = make(data);
    for (const json& sample : example["samples"]) {
      Ids ids = encode(tokenizer, sample[0].get<std::string>());
      const std::size_t alone = ids.size();
      EXPECT_EQ(tokenizer.begin_text(ids), sample[1].size() - alone);
      EXPECT_EQ(ids, sample[1].get<Ids>()) << sample[0].dump();
      EXPECT_EQ(tokenizer.begin_text(ids), 0U) << "what is there already is put there again";
    }
  }
}

// A tokenizer.json without a template, as GGUF files give, and what stands beside it.
TEST(Tokenizer, WithoutATemplateTheConfigSaysWhatBeginsAText) {
  const test::TempDir dir;
  const auto with = [&](const json& processor, const json& config) {
    json data = base();
    data["post_processor"] = processor;
    std::ofstream(dir.path() / "tokenizer.json") << data.dump();
    std::ofstream(dir.path() / "tokenizer_config.json") << config.dump();
    return Tokenizer::load(dir.path() / "tokenizer.json");
  };
  const auto begin_of = [&](const json& processor, const json& config) {
    const Result<Tokenizer> tokenizer = with(processor, config);
    EXPECT_OK(tokenizer);
    if (!tokenizer.is_ok()) return Ids();
    const auto begin = tokenizer.value().begin_of_text();
    return Ids(begin.begin(), begin.end());
  };
  const json wanted = {{"add_bos_token", true}, {"bos_token", "<|im_start|>"}};
  const Ids start{demo().added_token("<|im_start|>")};
  EXPECT_EQ(begin_of(nullptr, wanted), start);
  EXPECT_EQ(begin_of({{"type", "ByteLevel"}}, wanted), start);
  EXPECT_EQ(
      begin_of(nullptr, {{"add_bos_token", true}, {"bos_token", {{"content", "<|im_start|>"}}}}),
      start);
  EXPECT_EQ(begin_of(nullptr, {{"add_bos_token", false}, {"bos_token", "<|im_start|>"}}), Ids());
  EXPECT_EQ(begin_of(nullptr, {{"bos_token", "<|im_start|>"}}), Ids());
  EXPECT_EQ(begin_of(nullptr, {{"add_bos_token", true}, {"bos_token", nullptr}}), Ids());
  // A template has the last word, as with transformers.
  const json examples = golden("begins.json");
  EXPECT_EQ(begin_of(examples[2]["post_processor"], {{"add_bos_token", false}}), start);
  expect_error(with(nullptr, {{"add_bos_token", true}, {"bos_token", "<s>"}}).status(),
               StatusCode::kCorrupt, {"tokenizer_config.json", "<s>", "add_bos_token"});
  json unknown = examples[2]["post_processor"];
  unknown["special_tokens"]["<|im_start|>"]["ids"] = {100000};
  expect_error(with(unknown, wanted).status(), StatusCode::kCorrupt, {"tokenizer.json", "100000"});
}

TEST(TokenizerGolden, FamiliesGiveTheReferencesIdsAndTexts) {
  const json families = golden("families.json");
  for (const json& variant : families["variants"]) {
    SCOPED_TRACE(variant["name"].get<std::string>());
    json data = families["bases"][variant["base"].get<std::string>()];
    data.update(variant["set"]);
    const Tokenizer tokenizer = make(data);
    EXPECT_EQ(variant["samples"].size(), 80U);
    for (const json& sample : variant["samples"]) {
      const auto ids = sample[1].get<Ids>();
      EXPECT_EQ(encode(tokenizer, sample[0].get<std::string>()), ids) << sample[0].dump();
      EXPECT_EQ(tokenizer.decode(ids), sample[2].get<std::string>()) << sample[0].dump();
    }
  }
}

// "abc" is made in two ways, whose ranks lie around that of "bcd".
TEST(Tokenizer, EqualRanksAreThoseOfTheFirstWay) {
  json data = base();
  data["added_tokens"] = json::array();
  data["model"]["vocab"] = {{"a", 0},  {"b", 1},   {"c", 2},   {"d", 3},
                            {"bc", 4}, {"abc", 5}, {"bcd", 6}, {"ab", 7}};
  data["model"]["merges"] =
      json::parse(R"([["b", "c"], ["ab", "c"], ["bc", "d"], ["a", "b"], ["a", "bc"]])");
  EXPECT_EQ(encode(make(data), "abcd"), (Ids{0, 6}));
  data["model"]["moepack_equal_ranks"] = true;
  EXPECT_EQ(encode(make(data), "abcd"), (Ids{5, 3}));
}

TEST(Tokenizer, ByteFallbackNeedsEveryByteAndNoMergesOfThem) {
  json data = golden("families.json")["bases"]["characters"];
  json without = data;
  without["model"]["vocab"].erase("<0x41>");
  expect_error(Tokenizer::parse(without.dump(), "t.json").status(), StatusCode::kUnsupported,
               {"byte 65", "byte_fallback"});
  data["model"]["vocab"]["<0x41><0x42>"] = 5000;
  data["model"]["merges"].push_back({"<0x41>", "<0x42>"});
  expect_error(Tokenizer::parse(data.dump(), "t.json").status(), StatusCode::kUnsupported,
               {"model.merges", "<0x41>"});
}

TEST(TokenizerGolden, LongTextsGiveTheReferencesIds) {
  for (const json& sample : golden("repeated.json")) {
    SCOPED_TRACE(sample["unit"].dump());
    const std::string text =
        repeat(sample["unit"].get<std::string>(), sample["count"].get<std::size_t>());
    const Ids ids = encode(demo(), text);
    EXPECT_EQ(ids.size(), sample["ids"].get<std::size_t>());
    EXPECT_EQ(test::crc32({reinterpret_cast<const char*>(ids.data()), ids.size() * 4}),
              sample["crc"].get<std::uint32_t>());
  }
}

// Prompts, calls and texts computed with the models.
void expect_samples(const Tokenizer& tokenizer, const std::filesystem::path& file, bool lines,
                    const char* text_key, std::size_t at_least) {
  const std::string content = read_file(file);
  json samples = json::array();
  if (lines) {
    std::istringstream in(content);
    for (std::string line; std::getline(in, line);) samples.push_back(json::parse(line));
  } else {
    samples = json::parse(content);
  }
  EXPECT_GE(samples.size(), at_least) << file;
  for (const json& sample : samples) {
    const auto text = sample[text_key].get<std::string>();
    EXPECT_EQ(encode(tokenizer, text), sample["ids"].get<Ids>()) << sample[text_key].dump();
    if (!sample.contains("out")) continue;
    EXPECT_EQ(tokenizer.decode(sample["out"].get<Ids>()), sample["text"].get<std::string>());
  }
}

TEST(TokenizerGolden, ToolCallPromptsOfTheDemoModel) {
  expect_samples(demo(), test::demo_mlx_model() / "golden/toolcalls.jsonl", true, "prompt", 64);
}

void expect_golden(const Tokenizer& tokenizer, const std::filesystem::path& model) {
  expect_samples(tokenizer, model / "golden/tokenizer.json", false, "text", 56);
  expect_samples(tokenizer, model / "golden/greedy.json", false, "prompt", 3);
  expect_samples(tokenizer, model / "golden/toolcalls.jsonl", true, "prompt", 64);
  // Decoding and encoding again gives the ids back that the reference made from the text.
  const auto ids = test::read_golden<std::int32_t>(model / "golden/eval_tokens.i32");
  EXPECT_EQ(encode(tokenizer, tokenizer.decode(ids)), ids);
}

void expect_model(const std::filesystem::path& model) {
  ASSERT_OK_AND_ASSIGN(const Tokenizer tokenizer, Tokenizer::load(model / "tokenizer.json"));
  expect_golden(tokenizer, model);
}

TEST(TokenizerGolden, SmallMoe) {
  MOE_REQUIRE_MODEL(model, "small-moe");
  expect_model(model);
}

// What llama.cpp's conversion kept of the same tokenizer gives the same ids.
TEST(TokenizerGolden, SmallMoeRebuiltFromGguf) {
  MOE_REQUIRE_MODEL(model, "small-moe");
  for (const char* name :
       {"small-moe-Q4_K_M.gguf", "small-moe-Q3-gguf/small-moe-Q3-00002-of-00003.gguf"}) {
    SCOPED_TRACE(name);
    MOE_REQUIRE_MODEL(path, name);
    ASSERT_OK_AND_ASSIGN(const GgufModel gguf, GgufModel::open(path));
    ASSERT_OK_AND_ASSIGN(const std::vector<NamedText> files, gguf_tokenizer_files(gguf));
    ASSERT_EQ(files.front().name, "tokenizer.json");
    ASSERT_OK_AND_ASSIGN(const Tokenizer tokenizer,
                         Tokenizer::parse(files.front().text, files.front().name));
    expect_golden(tokenizer, model);
  }
}

TEST(TokenizerGolden, DemoMoe) {
  MOE_REQUIRE_MODEL(model, "demo-moe");
  expect_model(model);
}

TEST(Tokenizer, DescribesItsIds) {
  const json& data = base();
  EXPECT_EQ(demo().size(), 4096);
  const std::int32_t end = demo().added_token("<|im_end|>");
  EXPECT_EQ(end, 4089);
  EXPECT_EQ(demo().bytes(end), "<|im_end|>");
  EXPECT_TRUE(demo().is_special(end));
  EXPECT_FALSE(demo().is_special(demo().added_token("<think>")));
  EXPECT_EQ(demo().added_token("Ġthe"), -1);
  EXPECT_EQ(demo().bytes(data["model"]["vocab"]["Ġthe"].get<std::int32_t>()), " the");
  for (const std::int32_t unknown : {-1, 4096, 1 << 30, -(1 << 30)}) {
    EXPECT_EQ(demo().bytes(unknown), "");
    EXPECT_FALSE(demo().is_special(unknown));
  }
}

TEST(Tokenizer, HolesInTheIdsStandForNothing) {
  json data = base();
  data["added_tokens"][0]["id"] = 5000;
  const Tokenizer tokenizer = make(data);
  EXPECT_EQ(tokenizer.size(), 5001);
  EXPECT_EQ(tokenizer.bytes(4087), "");
  EXPECT_EQ(encode(tokenizer, "<|endoftext|>"), Ids{5000});
  EXPECT_EQ(tokenizer.decode(Ids{4087, 5000, 4500}), "<|endoftext|>");
}

TEST(Tokenizer, AddedTextBeyondTheByteAlphabetIsLiteral) {
  json data = base();
  data["added_tokens"][0]["content"] = "<é ｜>";
  const Tokenizer tokenizer = make(data);
  EXPECT_EQ(encode(tokenizer, "<é ｜>"), Ids{4087});
  EXPECT_EQ(tokenizer.decode(Ids{4087}), "<é ｜>");
}

TEST(Tokenizer, DecodesItsOwnIdsToTheNormalizedText) {
  for (const char* text : {"", " ", "naïve café", "日本語\r\n\t x",
                           "👨‍👩‍👧‍👦<think>a</think>", "a\0b"}) {
    EXPECT_EQ(demo().decode(encode(demo(), text)), text);
  }
  EXPECT_EQ(demo().decode(encode(demo(), "cafe\u0301")), "caf\u00e9");
}

TEST(Tokenizer, SkipsSpecialTokensOnRequest) {
  const Ids ids = encode(demo(), "<|im_start|>a<think>b<|im_end|>");
  EXPECT_EQ(demo().decode(ids), "<|im_start|>a<think>b<|im_end|>");
  EXPECT_EQ(demo().decode(ids, true), "a<think>b");
}

TEST(Tokenizer, InvalidUtf8IsAnErrorWithItsOffset) {
  struct Case {
    std::string text;
    const char* offset;
  };
  const Case cases[] = {
      {"\xFF", "offset 0"},
      {"abc\x80", "offset 3"},
      {"0123456789\xC3", "offset 10"},   // cut short
      {"0123456789\xC3(", "offset 10"},  // no continuation
      {"\xC0\xAF", "offset 0"},          // overlong
      {"a\xE0\x80\x80", "offset 1"},     // overlong
      {"a\xED\xA0\x80", "offset 1"},     // surrogate
      {"\xF4\x90\x80\x80", "offset 0"},  // beyond U+10FFFF
      {"\xE2\x82\xAC\xE2\x82", "offset 3"},
  };
  for (const Case& c : cases) {
    expect_error(demo().encode(c.text).status(), StatusCode::kCorrupt, {"UTF-8", c.offset});
  }
}

TEST(Tokenizer, AByteWithoutATokenIsAnErrorNotALoss) {
  json data = base();
  const std::int32_t id = data["model"]["vocab"]["!"].get<std::int32_t>();
  json& vocab = data["model"]["vocab"];
  json& merges = data["model"]["merges"];
  json kept = json::array();
  for (const json& pair : merges) {
    if (pair.dump().find('!') == std::string::npos) kept.push_back(pair);
  }
  merges = kept;
  vocab.erase("!");
  const Tokenizer tokenizer = make(data);
  expect_error(tokenizer.encode("wow!").status(), StatusCode::kUnsupported, {"byte 33"});
  EXPECT_EQ(tokenizer.bytes(id), "");
  EXPECT_EQ(encode(tokenizer, "wow"), encode(demo(), "wow"));
}

// One decoder, one id at a time, against decode().
void expect_streams_like_decode(const Ids& ids) {
  StreamDecoder stream(demo());
  std::string text;
  for (const std::int32_t id : ids) {
    const std::string piece = stream.push(id);
    // Every piece alone is UTF-8: no character is split.
    EXPECT_OK(demo().encode(piece));
    text += piece;
  }
  const std::string rest = stream.finish();
  EXPECT_OK(demo().encode(rest));
  EXPECT_EQ(text + rest, demo().decode(ids));
  EXPECT_EQ(stream.finish(), "");
}

Ids byte_ids(std::string_view bytes) {
  static const std::vector<std::int32_t> kIds = [] {
    std::vector<std::int32_t> ids(256, -1);
    for (std::int32_t id = 0; id < demo().size(); ++id) {
      if (demo().bytes(id).size() == 1) {
        ids[static_cast<unsigned char>(demo().bytes(id)[0])] = id;
      }
    }
    return ids;
  }();
  Ids out;
  for (const char byte : bytes) out.push_back(kIds[static_cast<unsigned char>(byte)]);
  return out;
}

TEST(StreamDecoder, HoldsACharacterBackUntilItIsComplete) {
  StreamDecoder stream(demo());
  const Ids ids = byte_ids("a\xF0\x9F\x98\x80");
  EXPECT_EQ(stream.push(ids[0]), "a");
  EXPECT_EQ(stream.push(ids[1]), "");
  EXPECT_EQ(stream.push(ids[2]), "");
  EXPECT_EQ(stream.push(ids[3]), "");
  EXPECT_EQ(stream.push(ids[4]), "\xF0\x9F\x98\x80");
  EXPECT_EQ(stream.finish(), "");
}

TEST(StreamDecoder, AnIncompleteEndIsOneReplacementCharacter) {
  StreamDecoder stream(demo());
  for (const std::int32_t id : byte_ids("\xF0\x9F\x98")) EXPECT_EQ(stream.push(id), "");
  EXPECT_EQ(stream.finish(), "\uFFFD");
}

TEST(Tokenizer, InvalidBytesBecomeOneReplacementPerMaximalPart) {
  // Unicode 15.0, tables 3-8 to 3-11.
  EXPECT_EQ(demo().decode(byte_ids("\xC0\xAF\xE0\x80\xBF\xF0\x81\x82\x41")),
            repeat("\uFFFD", 8) + "A");
  EXPECT_EQ(demo().decode(byte_ids("\xED\xA0\x80\xED\xBF\xBF\xED\xAF\x41")),
            repeat("\uFFFD", 8) + "A");
  EXPECT_EQ(demo().decode(byte_ids("\xF4\x91\x92\x93\xFF\x41\x80\xBF\x42")),
            repeat("\uFFFD", 5) + "A" + repeat("\uFFFD", 2) + "B");
  EXPECT_EQ(demo().decode(byte_ids("\xE1\x80\xE2\xF0\x91\x92\xF1\xBF\x41")),
            repeat("\uFFFD", 4) + "A");
}

TEST(StreamDecoder, PiecesConcatenateToDecode) {
  std::mt19937 random(7);
  for (int round = 0; round < 2000; ++round) {
    Ids ids;
    const auto length = random() % 24;
    for (unsigned i = 0; i < length; ++i) {
      // Mostly single bytes from the upper half, which seldom form characters.
      const bool byte = random() % 4 != 0;
      const std::string one(1, static_cast<char>(random() % 128 + 128));
      ids.push_back(byte ? byte_ids(one)[0] : static_cast<std::int32_t>(random() % 4200));
    }
    expect_streams_like_decode(ids);
  }
}

TEST(Tokenizer, EncodesOnManyThreadsAtOnce) {
  const std::string text = repeat("Hello world, it's 12 o'clock.\n<|im_end|> é", 200);
  const Ids expected = encode(demo(), text);
  std::vector<std::thread> threads;
  std::atomic<int> wrong = 0;
  for (int i = 0; i < 4; ++i) {
    threads.emplace_back([&] {
      for (int round = 0; round < 5; ++round) {
        const auto ids = demo().encode(text);
        if (!ids.is_ok() || ids.value() != expected) ++wrong;
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(wrong, 0);
}

// Merging long words with a queue must give what merging short ones by search gives: a word that
// the queue cuts is compared with a plain implementation of the definition.
TEST(Tokenizer, LongAndShortWordsFollowTheDefinition) {
  std::map<std::pair<std::string, std::string>, std::size_t> rank;
  for (const json& pair : base()["model"]["merges"]) {
    rank.emplace(std::pair(pair[0].get<std::string>(), pair[1].get<std::string>()), rank.size());
  }
  const auto define = [&](const std::string& word) {
    std::vector<std::string> parts;
    for (const char c : word) parts.emplace_back(1, c);
    while (true) {
      std::size_t best = rank.size();
      std::size_t at = 0;
      for (std::size_t i = 0; i + 1 < parts.size(); ++i) {
        const auto found = rank.find({parts[i], parts[i + 1]});
        if (found != rank.end() && found->second < best) {
          best = found->second;
          at = i;
        }
      }
      if (best == rank.size()) break;
      parts[at] += parts[at + 1];
      parts.erase(parts.begin() + static_cast<std::ptrdiff_t>(at) + 1);
    }
    Ids ids;
    for (const std::string& part : parts) {
      ids.push_back(base()["model"]["vocab"][part].get<std::int32_t>());
    }
    return ids;
  };
  std::mt19937 random(11);
  for (int round = 0; round < 300; ++round) {
    std::string word;
    const auto length = 1 + random() % 80;
    const char* letters = round % 3 == 0 ? "ab" : (round % 3 == 1 ? "etaoinsr" : "returnsl");
    for (unsigned i = 0; i < length; ++i) word += letters[random() % std::strlen(letters)];
    EXPECT_EQ(encode(demo(), word), define(word)) << word;
  }
}

TEST(TokenizerHostile, ContradictionsAreOneLineErrors) {
  struct Case {
    const char* what;
    std::function<void(json&)> change;
    StatusCode code;
    std::initializer_list<std::string_view> parts;
  };
  const Case cases[] = {
      {"two texts with one id",
       [](json& d) { d["model"]["vocab"]["!"] = 1; },
       StatusCode::kCorrupt,
       {"id 1 stands for", "!"}},
      {"added token on a used id",
       [](json& d) { d["added_tokens"][0]["id"] = 5; },
       StatusCode::kCorrupt,
       {"id 5", "<|endoftext|>"}},
      {"two added tokens with one id",
       [](json& d) { d["added_tokens"][0]["id"] = 4088; },
       StatusCode::kCorrupt,
       {"id 4088"}},
      {"one text added twice",
       [](json& d) { d["added_tokens"][0]["content"] = "<|im_end|>"; },
       StatusCode::kCorrupt,
       {"<|im_end|>", "4087", "4089"}},
      {"added token that the vocabulary numbers otherwise",
       [](json& d) { d["model"]["vocab"]["<think>"] = 4200; },
       StatusCode::kCorrupt,
       {"<think>", "4094", "4200"}},
      {"an id far out",
       [](json& d) { d["model"]["vocab"]["far"] = 100000000; },
       StatusCode::kCorrupt,
       {"id 100000000", "far beyond"}},
      {"an added id far out",
       [](json& d) { d["added_tokens"][0]["id"] = 100000000; },
       StatusCode::kCorrupt,
       {"id 100000000", "far beyond"}},
      {"an unknown merge",
       [](json& d) {
         d["model"]["merges"][7] = {"q", "zzz"};
       },
       StatusCode::kCorrupt,
       {"entry 7", "zzz"}},
      {"a merge whose result is unknown",
       [](json& d) {
         d["model"]["merges"][7] = {"q", "~"};
       },
       StatusCode::kCorrupt,
       {"entry 7", "q~"}},
      {"an invalid pattern",
       [](json& d) { d["pre_tokenizer"]["pretokenizers"][0]["pattern"]["Regex"] = "a(b"; },
       StatusCode::kCorrupt,
       {"pattern", "byte 3"}},
      {"no tokens",
       [](json& d) {
         d["model"]["vocab"] = json::object();
         d["model"]["merges"] = json::array();
         d["added_tokens"] = json::array();
       },
       StatusCode::kCorrupt,
       {"no tokens"}},
      {"an endless added token",
       [](json& d) { d["added_tokens"][0]["content"] = std::string(5000, 'x'); },
       StatusCode::kUnsupported,
       {"added token 4087", "4096 bytes"}},
  };
  for (const Case& c : cases) {
    SCOPED_TRACE(c.what);
    json data = base();
    c.change(data);
    const Status status = Tokenizer::parse(data.dump(), "dir/tokenizer.json").status();
    expect_error(status, c.code, c.parts);
    expect_error(status, c.code, {"dir/tokenizer.json"});
  }
}

TEST(TokenizerHostile, APatternWithoutEndGivesUp) {
  json data = base();
  data["pre_tokenizer"]["pretokenizers"][0]["pattern"]["Regex"] = "(?:a+)+\\d";
  const Tokenizer tokenizer = make(data);
  expect_error(tokenizer.encode(std::string(200, 'a')).status(), StatusCode::kUnsupported,
               {"pattern", "text offset 0"});
  EXPECT_OK(tokenizer.encode("aaa1"));
}

TEST(TokenizerHostile, MissingFileIsNamed) {
  EXPECT_FALSE(Tokenizer::load("no/such/tokenizer.json").is_ok());
  EXPECT_NE(Tokenizer::load("no/such/tokenizer.json").status().message().find("no/such"),
            std::string::npos);
}

}  // namespace
}  // namespace moepack::tokenizer_test
