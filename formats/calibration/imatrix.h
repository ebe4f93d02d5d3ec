// Importance matrices of llama.cpp: the mean square of every input of a weight matrix over a text.
//
// Sources: llama.cpp's tools/imatrix and tools/quantize. Two forms:
//   GGUF   general.type "imatrix"; per weight NAME (blk.3.ffn_down_exps.weight) the F32 tensors
//          NAME.in_sum2 [matrices, inputs], sums of squares, and NAME.counts [matrices, 1], tokens
//   .dat   i32 entries; per entry i32 length, NAME, i32 calls, i32 values, f32 values[]: mean
//          squares times `calls`; then i32 chunks, i32 length, name of the text, which may be
//          missing
// `matrices` is 1, or the number of experts of stacked weights.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "formats/base/status.h"
#include "formats/gguf/gguf_model.h"

namespace moepack {

class Imatrix {
 public:
  // Reads the heads, that is names and places of all entries; the first bytes tell the form.
  // kCorrupt names file, entry and offset. Memory: the names, and about 100 bytes an entry.
  static Result<Imatrix> open(const std::filesystem::path& path);

  bool has(std::string_view weight) const { return entries_.find(weight) != entries_.end(); }
  std::vector<std::string> weights() const;  // all names, sorted
  // How many numbers an entry has, which must be there: matrices * inputs.
  std::uint64_t values(std::string_view weight) const;
  // True where the file says how many tokens each matrix has seen.
  bool has_counts() const { return gguf_ != nullptr; }
  // XXH3-64 of the file; reads it whole, a block at a time.
  Result<std::uint64_t> digest() const;
  const std::string& path() const { return file_->path(); }

  struct Importance {
    // [inputs], finite and >= 0. Empty: the matrix was never used, nothing is known.
    std::vector<float> mean_square;
    std::uint64_t tokens = 0;  // 0 where !has_counts()
  };
  // Reads matrix `index` of the `matrices` of a weight that is there, each with `inputs` inputs.
  // kCorrupt when the entry has other dimensions, or values that no squares have. May be called
  // from any number of threads.
  Result<Importance> read(std::string_view weight, std::uint64_t index, std::uint64_t matrices,
                          std::uint64_t inputs) const;

 private:
  struct Entry {
    std::uint64_t offset = 0;  // of the first value; .dat
    std::uint64_t values = 0;
    std::int32_t calls = 1;              // .dat
    const GgufTensor* sums = nullptr;    // GGUF
    const GgufTensor* counts = nullptr;  // GGUF
  };
  Status open_gguf(const std::filesystem::path& path);
  Status open_dat();
  Status add(std::string name, const Entry& entry);
  Result<double> count_of(const Entry& entry, std::uint64_t index, std::uint64_t matrices) const;

  std::shared_ptr<const File> file_;  // of GGUF: of the first part
  std::shared_ptr<const GgufModel> gguf_;
  std::map<std::string, Entry, std::less<>> entries_;
};

}  // namespace moepack
