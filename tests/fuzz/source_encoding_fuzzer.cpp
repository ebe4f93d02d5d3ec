// The input is a whole safetensors file: its tensors are put together into modules, and those that
// an encoding takes are read whole.
#include <array>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "convert/source/source_matrix.h"
#include "formats/checkpoint/checkpoint.h"
#include "tests/fuzz/require.h"
#include "tests/support/memory_file.h"

namespace {

using moepack::test::check_message;
using moepack::test::require;

constexpr std::uint64_t kMostWeights = 1U << 16;

// What configurations may declare.
const std::array<moepack::SourceQuantization, 9>& declarations() {
  static const std::array<moepack::SourceQuantization, 9> kAll{
      {{.method = "fp8", .block_rows = 3, .block_cols = 5},
       {.method = "compressed-tensors", .code_widths = 0xfc, .group_size = 8},
       {.method = "compressed-tensors", .block_rows = 2, .block_cols = 4, .code_widths = 0x10},
       {.method = "gptq", .group_size = 32, .symmetric = true, .zeros_less_one = true},
       {.method = "gptq", .group_size = 8, .any_order = true},
       {.method = "awq", .group_size = 32},
       {.method = "mxfp4"},
       {.method = "modelopt"},
       {}}};
  return kAll;
}

void read_form(moepack::ModuleForm whole, const std::vector<std::uint64_t>& shape,
               std::uint64_t rows) {
  require(whole.cols == shape.back());
  const std::uint64_t count = rows / whole.rows;
  const auto shared = std::make_shared<const moepack::ModuleForm>(std::move(whole));
  const moepack::SourceMatrix last = moepack::slice_matrix(shared, count - 1, 0, shared->rows);
  for (const moepack::Component c : moepack::stored_components(shared->format)) {
    std::vector<std::byte> out(last.row_bytes(c) * last.rows);
    check_message(last.read_rows(c, 0, last.rows, out));
  }
}

void read_module(const moepack::SourceModule& module, const std::vector<std::uint64_t>& shape,
                 const moepack::SourceQuantization& declared) {
  std::uint64_t rows = 1;
  for (std::size_t i = 0; i + 1 < shape.size(); ++i) {
    if (shape[i] == 0 || rows > kMostWeights / shape[i]) return;
    rows *= shape[i];
  }
  if (shape.back() == 0 || rows > kMostWeights / shape.back()) return;
  const auto form = moepack::recognise_module(module, shape, declared);
  check_message(form.status());
  if (!form.is_ok()) return;
  read_form(form.value(), shape, rows);
  if (form.value().encoding->read_rows == nullptr) return;
  moepack::ModuleForm decoded = form.value();
  decoded.format = {.id = moepack::QFormatId::kF32};
  read_form(decoded, shape, rows);
}

void read_all(const moepack::SourceModule& module, const std::vector<std::uint64_t>& shape) {
  for (const moepack::SourceQuantization& declared : declarations()) {
    read_module(module, shape, declared);
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const moepack::test::MemoryFile memory({reinterpret_cast<const char*>(data), size});
  const auto file = moepack::Checkpoint::open_tensors(memory.path());
  if (!file.is_ok()) return 0;  // fuzz_safetensors
  std::map<std::string, moepack::SourceModule> modules;
  for (const moepack::TensorRef& tensor : file.value().tensors()) {
    std::string_view name = tensor.info->name;
    const auto suffix = moepack::take_source_suffix(name);
    if (!suffix.has_value() || !suffix->component.has_value()) continue;
    check_message(
        modules[std::string(name)].add(*suffix->component, moepack::SourceTensor(tensor)));
  }
  for (const auto& [name, module] : modules) {
    if (!module.codes() || module.codes().shape().empty()) continue;
    std::vector<std::uint64_t> shape(module.codes().shape().begin(), module.codes().shape().end());
    const std::uint64_t words = shape.back();
    // As many inputs as a row has elements, or as its words hold codes of 8, 4, 3 and 2 bits.
    for (const std::uint64_t inputs :
         {words, words * 2, words * 4, words * 8, words * 32 / 3, words * 16}) {
      if (words > kMostWeights) break;
      shape.back() = inputs;
      read_all(module, shape);
    }
    if (shape.size() == 2) {  // [inputs, outputs], packed along one of them
      const std::uint64_t first = module.codes().shape()[0];
      if (first > kMostWeights || words > kMostWeights) continue;
      for (const std::uint64_t codes : {4U, 8U, 16U}) {
        read_all(module, {words, first * codes});
        read_all(module, {words * codes, first});
      }
    }
    if (shape.size() > 2) {  // blocks of 32 in a dimension of their own
      shape.pop_back();
      if (shape.back() > kMostWeights) continue;
      shape.back() *= 32;
      read_all(module, shape);
    }
  }
  return 0;
}
