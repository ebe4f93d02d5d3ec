#include "bench/checkpoint_writer.h"

#include <algorithm>

#include "convert/job/parallel.h"
#include "formats/base/bytes.h"
#include "formats/base/file.h"
#include "formats/base/json_fields.h"
#include "formats/checkpoint/safetensors.h"

namespace moepack::bench {
namespace {

std::string padded_number(std::size_t number) {
  const std::string digits = std::to_string(number);
  return std::string(5 - std::min<std::size_t>(5, digits.size()), '0') + digits;
}

Status pad_header(const ShardOptions& options, bool is_first, std::string& header) {
  const std::uint64_t wanted = is_first ? options.header_bytes : 0;
  if (wanted > 0 && wanted < header.size()) {
    return invalid_argument("the first header needs " + std::to_string(header.size()) + " bytes",
                            "raise --header-mb");
  }
  header.resize(std::max<std::uint64_t>(header.size(), wanted), ' ');
  const std::uint64_t rest = options.odd_offsets ? 1 : 0;
  while ((8 + header.size()) % 8 != rest) header += ' ';
  if (header.size() <= kMaxSafetensorsHeader) return Status::ok();
  return invalid_argument("a header of " + std::to_string(header.size()) + " bytes is too long",
                          "safetensors allows 100000000: lower --shard-gb or --header-mb");
}

struct Block {
  std::size_t tensor;
  std::uint64_t number;
  std::uint64_t offset;  // in the file
  std::uint64_t bytes;
};

std::vector<Block> blocks_of(std::span<const TensorSpec> tensors, std::uint64_t offset) {
  std::vector<Block> blocks;
  for (std::size_t t = 0; t < tensors.size(); ++t) {
    const std::uint64_t size = tensors[t].bytes();
    for (std::uint64_t at = 0; at < size; at += kBlockBytes) {
      blocks.push_back({t, at / kBlockBytes, offset + at, std::min(kBlockBytes, size - at)});
    }
    offset += size;
  }
  return blocks;
}

Status write_shard(std::span<const TensorSpec> tensors, const std::string& header,
                   const RandomValues& values, const std::filesystem::path& path,
                   std::size_t threads) {
  MOE_ASSIGN_OR_RETURN(AtomicFile file, AtomicFile::create(path));
  std::string start(8, '\0');
  store_le(start.data(), static_cast<std::uint64_t>(header.size()));
  start += header;
  MOE_RETURN_IF_ERROR(file.write_at(0, std::as_bytes(std::span(start))));
  const std::vector<Block> blocks = blocks_of(tensors, start.size());
  std::vector<std::vector<std::byte>> buffers(threads);
  const auto write_block = [&](std::size_t item, std::size_t worker) -> Status {
    const Block& block = blocks[item];
    buffers[worker].resize(kBlockBytes);
    const std::span<std::byte> bytes = std::span(buffers[worker]).first(block.bytes);
    values.fill(tensors[block.tensor], block.number, bytes);
    return file.write_at(block.offset, bytes);
  };
  MOE_RETURN_IF_ERROR(parallel_items(blocks.size(), threads, write_block));
  return file.commit();
}

std::string index_text(std::span<const TensorSpec> tensors, std::span<const Shard> shards) {
  std::uint64_t total = 0;
  for (const Shard& shard : shards) total += shard.data_bytes;
  std::string text =
      "{\n\"metadata\": {\"total_size\": " + std::to_string(total) + "},\n\"weight_map\": {";
  const char* comma = "\n";
  for (const Shard& shard : shards) {
    for (const TensorSpec& tensor : tensors.subspan(shard.first, shard.count)) {
      text += comma + json_quote(tensor.name) + ": " + json_quote(shard.file);
      comma = ",\n";
    }
  }
  return text + "\n}\n}\n";
}

}  // namespace

std::vector<Shard> plan_shards(std::span<const TensorSpec> tensors, const ShardOptions& options) {
  std::vector<Shard> shards;
  for (std::size_t t = 0; t < tensors.size(); ++t) {
    const std::uint64_t size = tensors[t].bytes();
    if (shards.empty() || shards.back().data_bytes + size > options.shard_bytes) {
      shards.push_back({{}, t, 0, 0});
    }
    ++shards.back().count;
    shards.back().data_bytes += size;
  }
  for (std::size_t s = 0; s < shards.size(); ++s) {
    shards[s].file = shards.size() == 1 ? "model.safetensors"
                                        : "model-" + padded_number(s + 1) + "-of-" +
                                              padded_number(shards.size()) + ".safetensors";
  }
  return shards;
}

std::string shard_header(std::span<const TensorSpec> tensors) {
  std::string header = R"({"__metadata__":{"format":"pt"})";
  std::uint64_t at = 0;
  for (const TensorSpec& tensor : tensors) {
    header += "," + json_quote(tensor.name) + R"(:{"dtype":")";
    header += dtype_name(tensor.dtype);
    header += R"(","shape":[)";
    const char* comma = "";
    for (std::uint64_t dimension : tensor.shape) {
      header += comma + std::to_string(dimension);
      comma = ",";
    }
    const std::uint64_t end = at + tensor.bytes();
    header += "],\"data_offsets\":[" + std::to_string(at) + "," + std::to_string(end) + "]}";
    at = end;
  }
  return header + "}";
}

Status write_shards(std::span<const TensorSpec> tensors, std::span<const Shard> shards,
                    const RandomValues& values, const std::filesystem::path& directory,
                    const ShardOptions& options, const ShardCallback& done) {
  for (const Shard& shard : shards) {
    const auto part = tensors.subspan(shard.first, shard.count);
    std::string header = shard_header(part);
    MOE_RETURN_IF_ERROR(pad_header(options, shard.first == 0, header));
    MOE_RETURN_IF_ERROR(write_shard(part, header, values, directory / shard.file, options.threads));
    if (done) done(shard);
  }
  return write_text_file(directory / "model.safetensors.index.json", index_text(tensors, shards));
}

}  // namespace moepack::bench
