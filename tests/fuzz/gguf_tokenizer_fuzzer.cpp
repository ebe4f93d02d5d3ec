// The input is a whole GGUF file: its tokenizer keys give files that can be read, or a Status.
#include <cstddef>
#include <cstdint>
#include <string_view>

#include <nlohmann/json.hpp>

#include "convert/source/gguf_tokenizer.h"
#include "formats/config/tokenizer_json.h"
#include "tests/fuzz/require.h"
#include "tests/support/memory_file.h"

using moepack::test::check_message;
using moepack::test::require;

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const moepack::test::MemoryFile memory({reinterpret_cast<const char*>(data), size});
  const auto model = moepack::GgufModel::open(memory.path());
  check_message(model.status());
  if (!model.is_ok()) return 0;
  const auto files = moepack::gguf_tokenizer_files(model.value());
  check_message(files.status());
  if (!files.is_ok()) return 0;
  std::size_t bytes = 0;
  for (const moepack::NamedText& file : files.value()) {
    bytes += file.text.size();
    require(file.name.find("..") == std::string::npos && file.name[0] != '/');
    if (file.name.ends_with(".json")) require(nlohmann::json::accept(file.text));
  }
  require(bytes < 100 * size + 10'000);
  const moepack::NamedText& tokenizer = files.value().front();
  require(moepack::parse_tokenizer_json(tokenizer.text, tokenizer.name).is_ok());
  return 0;
}
