#include "convert/source/gguf_pre_tokenizer.h"

#include <algorithm>
#include <array>

namespace moepack {
namespace {

using Pattern = std::string_view;

constexpr std::array<Pattern, 1> kQwen35{
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+|\p{N}|)"
    R"( ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)"};

constexpr std::array<Pattern, 1> kQwen2{
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}|)"
    R"( ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)"};

// The o200k vocabularies.
constexpr std::array<Pattern, 1> kGpt4o{
    R"([^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+)"
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)?|)"
    R"([^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*)"
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)?|)"
    R"(\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+)"};

// The cl100k vocabularies, as Llama 3 and GLM-4 write their pattern.
constexpr std::array<Pattern, 1> kLlama3{
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}|)"
    R"( ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)"};

constexpr std::array<Pattern, 1> kGpt2{
    R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)"};

// Carriage return and line feed stand as themselves in the published text, the rest escaped.
constexpr std::array<Pattern, 3> kDeepseek3{R"(\p{N}{1,3})", "[一-龥぀-ゟ゠-ヿ]+",
                                            R"([!"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|)"
                                            "[^\r\n"
                                            R"(\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+| ?[\p{P}\p{S}]+[)"
                                            "\r\n"
                                            R"(]*|\s*[)"
                                            "\r\n"
                                            R"(]+|\s+(?!\S)|\s+)"};

// As tokenization_kimi.py writes it.
constexpr std::array<Pattern, 1> kKimiK2{
    R"([\p{Han}]+|)"
    R"([^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]]*)"
    R"([\p{Ll}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?|)"
    R"([^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]]+)"
    R"([\p{Ll}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?|)"
    R"(\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)"};

constexpr std::array<GgufPreTokenizer, 9> kRows{{{"qwen35", true, kQwen35},
                                                 {"qwen2", true, kQwen2},
                                                 {"gpt-4o", false, kGpt4o},
                                                 {"deepseek-v3", false, kDeepseek3},
                                                 {"llama-bpe", false, kLlama3},
                                                 {"glm4", false, kLlama3},
                                                 {"minimax-m2", false, kGpt4o},
                                                 {"olmo", true, kGpt2},
                                                 {"kimi-k2", false, kKimiK2}}};

}  // namespace

std::string gguf_pre_tokenizer_names() {
  std::string known;
  for (const GgufPreTokenizer& row : kRows) {
    known += (known.empty() ? "" : ", ") + std::string(row.name);
  }
  return known;
}

std::optional<GgufPreTokenizer> find_gguf_pre_tokenizer(
    std::span<const std::string_view> patterns) {
  for (const GgufPreTokenizer& row : kRows) {
    if (std::equal(row.patterns.begin(), row.patterns.end(), patterns.begin(), patterns.end())) {
      return row;
    }
  }
  return std::nullopt;
}

Result<GgufPreTokenizer> gguf_pre_tokenizer(std::string_view name, const Where& where) {
  for (const GgufPreTokenizer& row : kRows) {
    if (row.name == name) return row;
  }
  return unsupported(where,
                     "tokenizer.ggml.pre is \"" + printable(name, 64) +
                         "\"; the pre-tokenizers whose rules are known are " +
                         gguf_pre_tokenizer_names(),
                     "convert the model's HuggingFace checkpoint instead");
}

}  // namespace moepack
