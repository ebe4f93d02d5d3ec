// One block of ggml's types as codes (runtime/cpu/code_rows.h), one function a type, by family.
// Layouts are those described beside the decoders (formats/weights/ggml_*_blocks.cpp).
#pragma once

#include <cstddef>
#include <cstdint>

namespace moepack {

// Where the parts of a block go: as many codes as the block has weights, a scale and a bias for
// each group of its format's CodeShape; biases are not written without them.
struct CodeBlock {
  std::uint8_t* codes = nullptr;
  float* scales = nullptr;
  float* biases = nullptr;
};

namespace ggml {

// runtime/cpu/code_blocks_legacy.cpp
void unpack_q4_0(const std::byte* block, const CodeBlock& out);
void unpack_q4_1(const std::byte* block, const CodeBlock& out);
void unpack_q5_0(const std::byte* block, const CodeBlock& out);
void unpack_q5_1(const std::byte* block, const CodeBlock& out);
void unpack_q8_0(const std::byte* block, const CodeBlock& out);

// runtime/cpu/code_blocks_k.cpp
void unpack_q2_k(const std::byte* block, const CodeBlock& out);
void unpack_q3_k(const std::byte* block, const CodeBlock& out);
void unpack_q4_k(const std::byte* block, const CodeBlock& out);
void unpack_q5_k(const std::byte* block, const CodeBlock& out);
void unpack_q6_k(const std::byte* block, const CodeBlock& out);

// runtime/cpu/code_blocks_iq.cpp
void unpack_iq1_s(const std::byte* block, const CodeBlock& out);
void unpack_iq1_m(const std::byte* block, const CodeBlock& out);
void unpack_iq2_xxs(const std::byte* block, const CodeBlock& out);
void unpack_iq2_xs(const std::byte* block, const CodeBlock& out);
void unpack_iq2_s(const std::byte* block, const CodeBlock& out);
void unpack_iq3_xxs(const std::byte* block, const CodeBlock& out);
void unpack_iq3_s(const std::byte* block, const CodeBlock& out);
void unpack_iq4_nl(const std::byte* block, const CodeBlock& out);
void unpack_iq4_xs(const std::byte* block, const CodeBlock& out);

// runtime/cpu/code_blocks_small.cpp
void unpack_mxfp4(const std::byte* block, const CodeBlock& out);
void unpack_nvfp4(const std::byte* block, const CodeBlock& out);
void unpack_q1_0(const std::byte* block, const CodeBlock& out);
void unpack_q2_0(const std::byte* block, const CodeBlock& out);
void unpack_tq1_0(const std::byte* block, const CodeBlock& out);
void unpack_tq2_0(const std::byte* block, const CodeBlock& out);

}  // namespace ggml

}  // namespace moepack
