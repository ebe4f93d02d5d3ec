// Tells the formats apart, and reads the binary one. foreign_profile_json.cpp reads those in JSON.
#include "formats/calibration/foreign_profile.h"

#include <algorithm>
#include <array>

#include "formats/base/bytes.h"
#include "formats/base/file.h"
#include "formats/base/file_blocks.h"
#include "formats/calibration/expert_counts.h"
#include "formats/calibration/freq_dump.h"

namespace moepack {
namespace {

constexpr std::uint64_t kHeadBytes = 8;
constexpr std::uint32_t kVulkanExperts = 512;  // what the engine always writes

struct BinaryHead {
  ExpertShape shape;
  std::uint64_t size = 0;  // of a whole file
};

// Reads the head of counts-binary; its shape is 0 where the bytes cannot be one. Text never is one:
// its first four bytes make a number above 2^24.
BinaryHead binary_head(std::span<const std::byte> bytes) {
  BinaryHead head;
  if (bytes.size() < kHeadBytes) return head;
  const ExpertShape shape{load_le<std::uint32_t>(bytes.data()),
                          load_le<std::uint32_t>(bytes.data() + 4)};
  if (!check_expert_shape(shape, "").is_ok()) return head;
  head.shape = shape;
  head.size = kHeadBytes + std::uint64_t{shape.num_layers} * shape.num_experts * 4;
  return head;
}

bool is_counts_binary(const BinaryHead& head, std::uint64_t file_size) {
  if (!head.shape.is_known()) return false;
  return head.size == file_size || head.shape.num_experts == kVulkanExperts;
}

std::string read_note(const FreqDumpReader& dump, std::uint32_t num_layers) {
  std::uint64_t least = dump.lines_of_layers().size() < num_layers ? 0 : dump.lines();
  std::uint64_t most = 0;
  for (const auto& [layer, lines] : dump.lines_of_layers()) {
    least = std::min(least, lines);
    most = std::max(most, lines);
  }
  if (least == most) return {};
  return "its layers have " + std::to_string(least) + " to " + std::to_string(most) +
         " lines of FREQ_DUMP: a dump has one of every layer, the log may be cut";
}

// Reads the dumps in `file`; `dump` has no lines() when there are none.
Status read_dumps(const File& file, FreqDumpReader& dump) {
  std::vector<std::byte> buffer;
  const auto feed = [&](std::uint64_t, std::span<const std::byte> piece) {
    return dump.feed({reinterpret_cast<const char*>(piece.data()), piece.size()});
  };
  MOE_RETURN_IF_ERROR(for_each_block(file, 0, file.size(), buffer, feed));
  return dump.finish();
}

}  // namespace

Status no_profile_error(std::string_view file) {
  return unsupported(Where{.file = file}, "is no profile of experts",
                     "understood are: moepack.profile, a log with FREQ_DUMP lines, freq-json, "
                     "counts by layer and expert as JSON, the hot cache's perf JSON of llama.cpp, "
                     "flash-moe-vulkan's --profile-out");
}

Result<ProfileInput> parse_counts_binary(std::span<const std::byte> bytes, const std::string& file,
                                         const ExpertShape& known) {
  const BinaryHead head = binary_head(bytes);
  if (!head.shape.is_known()) return no_profile_error(file);
  if (head.size != bytes.size()) {
    return corrupt(Where{.file = file},
                   "is " + std::to_string(bytes.size()) + " bytes long, counts of " +
                       to_string(head.shape) + " take " + std::to_string(head.size),
                   "copy the file again");
  }
  MOE_RETURN_IF_ERROR(settle_shape(head.shape, known, file).status());
  ProfileInput input;
  input.format = "counts-binary";
  input.profile.shape = head.shape;
  const std::byte* at = bytes.data() + kHeadBytes;
  for (std::uint32_t l = 0; l < head.shape.num_layers; ++l) {
    LayerProfile& layer = input.profile.layers.emplace_back();
    for (std::uint32_t e = 0; e < head.shape.num_experts; ++e, at += 4) {
      layer.counts.push_back(load_le<std::uint32_t>(at));
    }
  }
  return input;
}

Result<ProfileInput> read_profile_input(const std::filesystem::path& path,
                                        const ExpertShape& known) {
  MOE_ASSIGN_OR_RETURN(const File file, File::open(path));
  std::array<std::byte, kHeadBytes> start{};
  const auto head_bytes = std::span(start).first(std::min(kHeadBytes, file.size()));
  MOE_RETURN_IF_ERROR(file.read_at(0, head_bytes));
  const BinaryHead head = binary_head(head_bytes);
  if (is_counts_binary(head, file.size())) {
    // The file must be as long as its own head says, which is at most 512 KiB; one byte more tells.
    std::vector<std::byte> bytes(std::min(file.size(), head.size + 1));
    MOE_RETURN_IF_ERROR(file.read_at(0, bytes));
    return parse_counts_binary(bytes, file.path(), known);
  }
  FreqDumpReader dump(file.path());
  MOE_RETURN_IF_ERROR(read_dumps(file, dump));
  if (dump.lines() > 0) {
    MOE_ASSIGN_OR_RETURN(const ExpertShape shape, settle_shape({}, known, file.path()));
    ProfileInput input;
    input.format = "FREQ_DUMP";
    MOE_ASSIGN_OR_RETURN(input.profile, dump.counts().profile(shape, file.path()));
    if (dump.lines_of_layers().rbegin()->first >= shape.num_layers) {
      return corrupt(Where{.file = file.path()},
                     "has a FREQ_DUMP line of layer " +
                         std::to_string(dump.lines_of_layers().rbegin()->first) +
                         ", the model has " + std::to_string(shape.num_layers) + " layers",
                     "it is of another model");
    }
    const std::string note = read_note(dump, shape.num_layers);
    if (!note.empty()) input.notes.push_back(note);
    return input;
  }
  if (file.size() > kMaxProfileBytes) return no_profile_error(file.path());
  MOE_ASSIGN_OR_RETURN(const std::string text, read_text_file(path, kMaxProfileBytes));
  return parse_profile_json(text, file.path(), known);
}

}  // namespace moepack
