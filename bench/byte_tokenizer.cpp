#include "bench/byte_tokenizer.h"

#include <string>

#include <nlohmann/json.hpp>

#include "formats/base/file.h"
#include "formats/config/byte_alphabet.h"

namespace moepack::bench {
namespace {

using Json = nlohmann::ordered_json;

Json byte_vocabulary() {
  Json vocabulary = Json::object();
  for (std::uint32_t byte = 0; byte < 256; ++byte) {
    vocabulary[to_byte_alphabet(static_cast<std::uint8_t>(byte))] = byte;
  }
  return vocabulary;
}

Json tokenizer_json() {
  Json added = Json::array();
  std::int32_t id = kEndOfText;
  for (const char* content : {"<|endoftext|>", "<|im_start|>", "<|im_end|>"}) {
    added.push_back({{"id", id++},
                     {"content", content},
                     {"single_word", false},
                     {"lstrip", false},
                     {"rstrip", false},
                     {"normalized", false},
                     {"special", true}});
  }
  const Json bytes = {{"type", "ByteLevel"},
                      {"add_prefix_space", false},
                      {"trim_offsets", false},
                      {"use_regex", false}};
  return {{"version", "1.0"},
          {"added_tokens", added},
          {"normalizer", nullptr},
          {"pre_tokenizer", bytes},
          {"decoder", bytes},
          {"model",
           {{"type", "BPE"},
            {"dropout", nullptr},
            {"unk_token", nullptr},
            {"byte_fallback", false},
            {"ignore_merges", false},
            {"vocab", byte_vocabulary()},
            {"merges", Json::array()}}}};
}

}  // namespace

Status write_byte_tokenizer(const std::filesystem::path& directory) {
  MOE_RETURN_IF_ERROR(write_text_file(directory / "tokenizer.json", tokenizer_json().dump(1)));
  const Json settings = {{"tokenizer_class", "PreTrainedTokenizerFast"},
                         {"eos_token", "<|im_end|>"},
                         {"pad_token", "<|endoftext|>"}};
  MOE_RETURN_IF_ERROR(write_text_file(directory / "tokenizer_config.json", settings.dump(1)));
  const Json generation = {{"eos_token_id", {kEndOfText + 2, kEndOfText}}};
  return write_text_file(directory / "generation_config.json", generation.dump(1));
}

}  // namespace moepack::bench
