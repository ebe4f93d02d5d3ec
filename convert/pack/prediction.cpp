#include "convert/pack/prediction.h"

#include <algorithm>
#include <system_error>

#include "convert/job/parallel.h"
#include "formats/base/checksum.h"
#include "formats/base/file.h"
#include "formats/base/file_blocks.h"
#include "formats/weights/format_json.h"

namespace moepack {
namespace {

constexpr std::uint64_t kCopiedBytes = std::uint64_t{1} << 20;

// The most bytes up to kCopiedBytes that are whole elements or blocks.
std::uint64_t block_bytes(const SourceTensor& tensor) {
  const std::optional<WeightFormat> format = tensor.format();
  if (!format.has_value() || !is_block(*format)) return kCopiedBytes;
  const std::uint64_t unit = qformat_info(format->id).block_bytes;
  return kCopiedBytes / unit * unit;
}

std::string quantization_of(const ParsedConfig& config) {
  return config.quantization.has_value() ? "mlx" : config.source_quantization.method;
}

Status copy_tensor(const SourceTensor& source, PredictionTensor& tensor,
                   std::vector<std::byte>& buffer, AtomicFile& file, ProgressCounter& progress) {
  ChecksumStream sum;
  const std::uint64_t block = block_bytes(source);
  buffer.resize(std::min(block, tensor.size));
  for (std::uint64_t at = 0; at < tensor.size; at += block) {
    const std::span<std::byte> part = std::span(buffer).first(std::min(block, tensor.size - at));
    MOE_RETURN_IF_ERROR(source.read(at, part));
    sum.add(part);
    MOE_RETURN_IF_ERROR(file.write_at(tensor.offset + at, part));
    file.start_writeback(tensor.offset + at, part.size());
    progress.add_bytes(part.size());
  }
  tensor.checksum = sum.finish();
  return Status::ok();
}

}  // namespace

Status plan_prediction(const ModelSource& source, std::vector<SourceTensor> tensors,
                       ConvertPlan& plan) {
  PredictionManifest& manifest = plan.prediction;
  manifest.container =
      source.gguf() != nullptr ? TensorContainer::kGguf : TensorContainer::kSafetensors;
  manifest.source = source.name();
  manifest.fingerprint = source.fingerprint();
  manifest.quantization = quantization_of(source.config());
  std::sort(tensors.begin(), tensors.end(),
            [](const SourceTensor& a, const SourceTensor& b) { return a.name() < b.name(); });
  for (const SourceTensor& tensor : tensors) {
    const std::span<const std::uint64_t> shape = tensor.shape();
    PredictionTensor entry{
        .name = tensor.name(), .type = tensor.type_name(), .shape = {shape.begin(), shape.end()}};
    if (!append_prediction(std::move(entry), manifest) ||
        manifest.tensors.back().size != tensor.size()) {
      return unsupported(tensor.where(),
                         tensor.type_name() + " " + shape_text(shape) + " cannot be kept",
                         "leave --keep-prediction out");
    }
  }
  if (tensors.empty()) {
    plan.notes.emplace_back(
        "the source has no tensors that predict further tokens: --keep-prediction keeps nothing");
  }
  plan.prediction_sources = std::move(tensors);
  return Status::ok();
}

Status write_prediction_data(std::span<const SourceTensor> sources,
                             const std::filesystem::path& directory, std::size_t threads,
                             PredictionManifest& manifest, ProgressCounter& progress) {
  MOE_ASSIGN_OR_RETURN(AtomicFile file, AtomicFile::create(directory / kPredictionDataName));
  // Sets the padding between tensors to zero.
  MOE_RETURN_IF_ERROR(file.resize(manifest.data_size));
  std::vector<std::vector<std::byte>> buffers(threads);
  const auto copy = [&](std::size_t item, std::size_t worker) {
    return copy_tensor(sources[item], manifest.tensors[item], buffers[worker], file, progress);
  };
  MOE_RETURN_IF_ERROR(parallel_items(sources.size(), threads, copy));
  return file.commit();
}

Status read_prediction_back(const std::filesystem::path& directory,
                            const PredictionManifest& manifest, std::size_t threads) {
  MOE_ASSIGN_OR_RETURN(const File file, File::open(directory / kPredictionDataName));
  file.drop_cache();
  std::vector<std::vector<std::byte>> buffers(threads);
  const auto check = [&](std::size_t item, std::size_t worker) -> Status {
    const PredictionTensor& tensor = manifest.tensors[item];
    MOE_ASSIGN_OR_RETURN(
        const std::uint64_t sum,
        checksum_of_range(file, tensor.offset, tensor.offset + tensor.size, buffers[worker]));
    if (sum == tensor.checksum) return Status::ok();
    return make_error(StatusCode::kIo,
                      Where{.file = file.path(), .tensor = tensor.name, .offset = tensor.offset},
                      "reads back with checksum " + checksum_text(sum) + ", " +
                          checksum_text(tensor.checksum) + " was written",
                      "the disk does not keep what is written to it");
  };
  return parallel_items(manifest.tensors.size(), threads, check);
}

bool take_prediction_data(const std::filesystem::path& directory, PredictionManifest& manifest,
                          const std::vector<std::uint64_t>& sums, std::size_t threads) {
  std::error_code error;
  if (sums.size() != manifest.tensors.size() ||
      std::filesystem::file_size(directory / kPredictionDataName, error) != manifest.data_size ||
      error) {
    return false;
  }
  for (std::size_t i = 0; i < sums.size(); ++i) manifest.tensors[i].checksum = sums[i];
  return read_prediction_back(directory, manifest, threads).is_ok();
}

}  // namespace moepack
