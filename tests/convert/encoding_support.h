// Modules of a checkpoint in some encoding, read as converters read them.
#pragma once

#include <gtest/gtest.h>

#include <cstring>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "convert/source/source_encoding.h"
#include "convert/source/source_matrix.h"
#include "formats/checkpoint/checkpoint.h"
#include "formats/weights/qcodec.h"
#include "tests/support/safetensors_writer.h"
#include "tests/support/status_matchers.h"
#include "tests/support/temp_dir.h"

namespace moepack::test {

// The tensors of a checkpoint that have the name of a module and a suffix, by module.
inline std::map<std::string, SourceModule> modules_of(const Checkpoint& checkpoint) {
  std::map<std::string, SourceModule> modules;
  for (const TensorRef& tensor : checkpoint.tensors()) {
    std::string_view name = tensor.info->name;
    const auto suffix = take_source_suffix(name);
    if (!suffix.has_value() || !suffix->component.has_value()) continue;
    EXPECT_OK(modules[std::string(name)].add(*suffix->component, SourceTensor(tensor)));
  }
  return modules;
}

// A module of one file.
class LoneModule {
 public:
  explicit LoneModule(const std::vector<WriterTensor>& tensors) {
    write_safetensors(dir_ / "model.safetensors", tensors);
    checkpoint_.emplace(Checkpoint::open_tensors(dir_ / "model.safetensors").value());
    const auto modules = modules_of(*checkpoint_);
    EXPECT_EQ(modules.size(), 1U);
    if (!modules.empty()) module_ = modules.begin()->second;
  }
  Result<ModuleForm> recognise(std::span<const std::uint64_t> shape,
                               const SourceQuantization& declared) const {
    return recognise_module(module_, shape, declared);
  }

 private:
  TempDir dir_;
  std::optional<Checkpoint> checkpoint_;
  SourceModule module_;
};

// All weights of matrix `index`, through the format in which the form's rows are read.
inline Result<std::vector<float>> weights_of_form(const ModuleForm& form, std::uint64_t index) {
  const SourceMatrix matrix =
      slice_matrix(std::make_shared<const ModuleForm>(form), index, 0, form.rows);
  Components<std::vector<std::byte>> parts;
  QMatrixView view{.format = form.format, .rows = form.rows, .cols = form.cols};
  for (Component c : stored_components(form.format)) {
    parts[c].resize(matrix.row_bytes(c) * form.rows);
    MOE_RETURN_IF_ERROR(matrix.read_rows(c, 0, form.rows, parts[c]));
    view.data[c] = parts[c].data();
  }
  std::vector<float> values(form.rows * form.cols);
  for (std::uint64_t row = 0; row < form.rows; ++row) {
    decode_row(view, row, std::span(values).subspan(row * form.cols, form.cols));
  }
  return values;
}

// The form with rows that are decoded.
inline ModuleForm decoded_form(ModuleForm form) {
  if (form.encoding->read_rows != nullptr) form.format = {.id = QFormatId::kF32};
  return form;
}

}  // namespace moepack::test
