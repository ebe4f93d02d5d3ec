// The input is a whole GGUF file. What opens is asked for everything that it says it has.
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "formats/gguf/gguf_model.h"
#include "tests/fuzz/require.h"
#include "tests/support/memory_file.h"

namespace {

using moepack::test::check_message;
using moepack::test::require;

void ask_for_metadata(const moepack::GgufMetadata& metadata, std::size_t size) {
  for (const moepack::GgufEntry& entry : metadata.entries()) {
    require(entry.offset <= size && entry.bytes <= size - entry.offset);
    require(metadata.find(entry.key) == &entry);
    check_message(metadata.number(entry.key).status());
    check_message(metadata.signed_number(entry.key).status());
    check_message(metadata.real(entry.key).status());
    check_message(metadata.boolean(entry.key).status());
    check_message(metadata.string(entry.key).status());
    check_message(metadata.numbers(entry.key).status());
    check_message(metadata.reals(entry.key).status());
    check_message(metadata.strings(entry.key).status());
    const auto text = metadata.text(entry, 40);
    require(text.is_ok() && text.value().find('\n') == std::string::npos);
  }
}

void read_tensors(const moepack::GgufModel& model, std::size_t size) {
  std::uint64_t total = 0;
  for (const moepack::GgufTensor& tensor : model.tensors()) {
    require(tensor.info->offset <= size && tensor.info->size <= size - tensor.info->offset);
    require(model.find(tensor.info->name) == &tensor);
    std::vector<std::byte> bytes(tensor.info->size);
    check_message(tensor.read(0, bytes));
    total += tensor.info->size;
  }
  require(total <= size);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const moepack::test::MemoryFile memory({reinterpret_cast<const char*>(data), size});
  const auto file = moepack::GgufFile::open(memory.path());
  if (!file.is_ok()) {
    check_message(file.status());
    return 0;
  }
  ask_for_metadata(file.value().metadata(), size);
  // A part of a split model lacks the others here.
  const auto model = moepack::GgufModel::open(memory.path());
  check_message(model.status());
  if (model.is_ok()) read_tensors(model.value(), size);
  return 0;
}
