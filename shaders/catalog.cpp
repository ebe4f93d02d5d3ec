#include "shaders/catalog.h"

#include <algorithm>
#include <iterator>

#include <zstd.h>

namespace moepack {
namespace {

struct PackedFrame {
  std::size_t offset;
  std::size_t size;
  std::size_t contents;
};
struct PackedProgram {
  std::string_view name;
  std::size_t frame;
  std::size_t offset;
  std::size_t size;
};

#include "shaders/programs_spv.h"

const PackedProgram* find_program(std::string_view name) {
  const PackedProgram* found = std::lower_bound(
      std::begin(kPrograms), std::end(kPrograms), name,
      [](const PackedProgram& program, std::string_view wanted) { return program.name < wanted; });
  return found != std::end(kPrograms) && found->name == name ? found : nullptr;
}

}  // namespace

std::vector<std::uint32_t> shader_code(std::string_view name) {
  const PackedProgram* program = find_program(name);
  if (program == nullptr) return {};
  const PackedFrame& frame = kFrames[program->frame];
  std::vector<std::uint32_t> contents(frame.contents / sizeof(std::uint32_t));
  const std::size_t size =
      ZSTD_decompress(contents.data(), frame.contents, kPacked + frame.offset, frame.size);
  if (size != frame.contents) return {};  // not as the build wrote it
  const auto first = contents.begin() + static_cast<std::ptrdiff_t>(program->offset / 4);
  return {first, first + static_cast<std::ptrdiff_t>(program->size / 4)};
}

bool has_shader(std::string_view name) { return find_program(name) != nullptr; }

std::span<const std::string_view> shader_names() { return kNames; }

}  // namespace moepack
