// The storage types that a GGUF file can name, by ggml's own numbers. Source: ggml's enum ggml_type
// (ggml.h); block formats and their sizes are rows of formats/weights/qformat.h, 64 apart.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "formats/base/dtype.h"
#include "formats/weights/qformat.h"

namespace moepack {

struct GgmlType {
  std::uint32_t id = 0;
  std::uint32_t block_values = 1;   // elements in a block; 1: no blocks
  std::uint32_t block_bytes = 0;    // of a block, or of one element
  std::optional<QFormatId> format;  // of a weight format: what decode_row takes
  DType storage = DType::kU8;       // how safetensors would call the bytes; blocks: U8
  friend bool operator==(const GgmlType&, const GgmlType&) = default;
};

// nullopt for a number that stands for nothing: beyond the table, or a type that was removed.
std::optional<GgmlType> find_ggml_type(std::uint32_t id);
// The type whose weights are in `format`; nullopt for affine formats.
std::optional<GgmlType> ggml_type_of(QFormatId format);
// As ggml prints it: "Q4_K", "BF16".
std::string ggml_type_name(const GgmlType& type);
// nullopt for a name that ggml_type_name does not give, or only to what activations are rounded to.
std::optional<GgmlType> ggml_type_from_name(std::string_view name);
// What is known of a number that find_ggml_type does not know ("was removed from ggml", "is
// ik_llama.cpp's IQ4_KS"), for messages.
std::string describe_unknown_ggml_type(std::uint32_t id);

// Turns whole blocks (or elements) of a big-endian file into what little-endian files hold, in
// place. Swapped are the fields that ggml's structs declare as wider than a byte; bytes stay.
// False, with nothing changed, for the types of which that leaves the order open: those that read
// words through byte arrays (Q5_0, Q5_1, IQ1_M, IQ2_XXS, IQ3_XXS) have no defined big-endian form,
// and ggml's own conversion knows none. Activation types too are left alone.
bool ggml_big_to_little_endian(const GgmlType& type, std::byte* data, std::uint64_t bytes);
// Whether the function above can.
bool has_big_endian_form(const GgmlType& type);

}  // namespace moepack
