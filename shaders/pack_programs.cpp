// Part of the build: packs compiled programs into a C++ header for catalog.cpp.
//   pack_programs OUT FOLDER NAME…   reads FOLDER/NAME.spv of each name, in their order
// Neighbours share frames of zstd, since they have much in common.
#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <fstream>
#include <iterator>
#include <string>
#include <vector>

#include <zstd.h>

namespace {

constexpr std::size_t kFrameBytes = std::size_t{384} << 10;  // of contents, at which a frame ends
constexpr int kLevel = 19;

struct Program {
  std::string name;
  std::size_t frame = 0;
  std::size_t offset = 0;  // in the frame's contents
  std::size_t size = 0;
};

struct Frame {
  std::size_t offset = 0;  // in the packed bytes
  std::size_t size = 0;
  std::size_t contents = 0;
};

struct Pack {
  std::vector<Program> programs;
  std::vector<Frame> frames;
  std::string bytes;
};

bool add_frame(const std::string& contents, Pack& pack) {
  std::string frame(ZSTD_compressBound(contents.size()), '\0');
  const std::size_t size =
      ZSTD_compress(frame.data(), frame.size(), contents.data(), contents.size(), kLevel);
  if (ZSTD_isError(size) != 0) return false;
  pack.frames.push_back({pack.bytes.size(), size, contents.size()});
  pack.bytes.append(frame, 0, size);
  return true;
}

bool pack_all(const std::string& folder, const std::vector<std::string>& names, Pack& pack) {
  std::string contents;
  for (const std::string& name : names) {
    std::ifstream file(folder + "/" + name + ".spv", std::ios::binary);
    const std::string program{std::istreambuf_iterator<char>(file), {}};
    if (program.empty() || program.size() % 4 != 0) {
      std::fprintf(stderr, "pack_programs: %s is no program\n", name.c_str());
      return false;
    }
    if (!contents.empty() && contents.size() + program.size() > kFrameBytes) {
      if (!add_frame(contents, pack)) return false;
      contents.clear();
    }
    pack.programs.push_back({name, pack.frames.size(), contents.size(), program.size()});
    contents += program;
  }
  return contents.empty() || add_frame(contents, pack);
}

void write(const Pack& pack, std::ofstream& out) {
  out << "inline constexpr unsigned char kPacked[] = {\n";
  for (std::size_t i = 0; i < pack.bytes.size(); ++i) {
    out << static_cast<unsigned>(static_cast<unsigned char>(pack.bytes[i]))
        << (i % 32 == 31 ? ",\n" : ",");
  }
  out << "};\ninline constexpr PackedFrame kFrames[] = {\n";
  for (const Frame& f : pack.frames) {
    out << "    {" << f.offset << ", " << f.size << ", " << f.contents << "},\n";
  }
  out << "};\ninline constexpr PackedProgram kPrograms[] = {\n";
  for (const Program& p : pack.programs) {
    out << "    {\"" << p.name << "\", " << p.frame << ", " << p.offset << ", " << p.size << "},\n";
  }
  out << "};\ninline constexpr std::string_view kNames[] = {\n";
  for (const Program& p : pack.programs) out << "    \"" << p.name << "\",\n";
  out << "};\n";
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 4) return 2;
  const std::vector<std::string> names(argv + 3, argv + argc);
  if (!std::is_sorted(names.begin(), names.end())) {
    std::fprintf(stderr, "pack_programs: the names are not sorted\n");
    return 2;
  }
  Pack pack;
  if (!pack_all(argv[2], names, pack)) return 1;
  std::ofstream out(argv[1]);
  write(pack, out);
  return out.flush() ? 0 : 1;
}
