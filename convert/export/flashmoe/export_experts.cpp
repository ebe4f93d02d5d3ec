#include "convert/export/flashmoe/export_experts.h"

#include <system_error>
#include <vector>

#include "convert/job/parallel.h"
#include "convert/job/record_stream.h"
#include "convert/pack/copy_record.h"
#include "formats/base/file.h"
#include "formats/base/json_fields.h"
#include "formats/flashmoe/engine_files.h"
#include "formats/pack/layout_components.h"
#include "formats/weights/format_json.h"

namespace moepack {
namespace {

namespace fs = std::filesystem;

constexpr std::uint32_t kEngineGroup = 64;

bool is_engine_format(const WeightFormat& format) {
  return (format.id == QFormatId::kQ4 || format.id == QFormatId::kQ2) &&
         format.group_size == kEngineGroup && format.scale_type == DType::kBf16;
}

Status refuse(const ModelDir& model, const std::string& what) {
  const std::string file = (model.pack_path / kPackManifestName).string();
  return unsupported(Where{.file = file}, what,
                     "the flash-moe engines take one affine 4- or 2-bit format with groups of 64 "
                     "and BF16 scales; convert with --expert-format q4");
}

// The only layout in use, with its rows as the engines read them.
Result<ExpertLayout> uniform_layout(const ModelDir& model) {
  const PackManifest& pack = model.pack;
  const ExpertLayout layout = in_order(pack.layout_of(0, 0), RowOrder::kRows);
  for (std::uint32_t l = 0; l < pack.num_layers; ++l) {
    for (std::uint32_t e = 0; e < pack.num_experts; ++e) {
      if (in_order(pack.layout_of(l, e), RowOrder::kRows) == layout) continue;
      return refuse(model, "layer " + std::to_string(l) + ", expert " + std::to_string(e) +
                               " has another format than layer 0, expert 0");
    }
  }
  const WeightFormat& format = layout.of(Projection::kGate).format;
  for (Projection p : kAllProjections) {
    const WeightFormat& found = layout.of(p).format;
    if (found == format && is_engine_format(found)) continue;
    return refuse(model, "experts have " + std::string(projection_name(p)) + " in " +
                             to_string(found) + " with " +
                             std::string(dtype_name(found.scale_type)) + " scales");
  }
  return layout;
}

bool is_plain_layer(const PackManifest& pack, const LayerEntry& layer, std::uint64_t record) {
  for (std::size_t e = 0; e < layer.experts.size(); ++e) {
    if (layer.experts[e].offset != e * record) return false;
    if (is_in_panels(pack.layouts[layer.experts[e].layout])) return false;
  }
  return layer.file_size == layer.experts.size() * record;
}

std::string layout_text(const PackManifest& pack, const ExpertLayout& layout) {
  std::string text = "{\n  \"expert_size\": " + std::to_string(layout.record_bytes) +
                     ",\n  \"num_layers\": " + std::to_string(pack.num_layers) +
                     ",\n  \"num_experts\": " + std::to_string(pack.num_experts) +
                     ",\n  \"components\": [";
  std::string_view separator = "\n    ";
  for (const LayoutComponent& c : layout_components(layout)) {
    text += separator;
    text += "{\"name\": " + json_quote(c.name) + ", \"offset\": " + std::to_string(c.offset) +
            ", \"size\": " + std::to_string(c.size) +
            ", \"dtype\": " + json_quote(dtype_name(c.dtype)) +
            ", \"shape\": " + shape_text(c.shape) + "}";
    separator = ",\n    ";
  }
  return text + "\n  ]\n}\n";
}

Status write_layer(const ModelDir& model, std::uint32_t l, const ExpertLayout& layout,
                   const fs::path& path, std::size_t threads, ProgressCounter& progress) {
  const LayerEntry& layer = model.pack.layers[l];
  MOE_ASSIGN_OR_RETURN(const File source, File::open(model.pack_path / layer.file));
  MOE_ASSIGN_OR_RETURN(AtomicFile file, AtomicFile::create(path));
  std::vector<AlignedBuffer> buffers(threads);
  const auto copy = [&](std::size_t e, std::size_t worker) -> Status {
    RecordStream record(file, e * layout.record_bytes, buffers[worker]);
    MOE_RETURN_IF_ERROR(
        copy_record(model.pack, l, static_cast<std::uint32_t>(e), source, layout, record));
    MOE_RETURN_IF_ERROR(record.finish().status());
    progress.add_bytes(layout.record_bytes);
    return Status::ok();
  };
  MOE_RETURN_IF_ERROR(parallel_items(layer.experts.size(), threads, copy));
  return file.commit();
}

// False where the file system has no hard links between the two places.
bool link_layer(const fs::path& from, const fs::path& to) {
  std::error_code error;
  const fs::path real = fs::canonical(from, error);
  if (error) return false;
  fs::create_hard_link(real, to, error);
  return !error;
}

}  // namespace

Result<ExpertExport> plan_expert_export(const ModelDir& model) {
  ExpertExport plan;
  MOE_ASSIGN_OR_RETURN(plan.layout, uniform_layout(model));
  plan.bits = qformat_info(plan.layout.of(Projection::kGate).format.id).bits;
  plan.directory = plan.bits == 2 ? kTwoBitPackName : kDefaultPackName;
  plan.is_plain = true;
  for (const LayerEntry& layer : model.pack.layers) {
    plan.is_plain = plan.is_plain && is_plain_layer(model.pack, layer, plan.layout.record_bytes);
  }
  return plan;
}

Result<ExpertFiles> write_export_experts(const ModelDir& model, const ExpertExport& plan,
                                         std::size_t threads, ExportDirectory& directory,
                                         ProgressCounter& progress) {
  MOE_ASSIGN_OR_RETURN(const fs::path pack, directory.add_directory(plan.directory));
  ExpertFiles files;
  for (std::uint32_t l = 0; l < model.pack.num_layers; ++l) {
    const LayerEntry& layer = model.pack.layers[l];
    const fs::path path = directory.add_file(fs::path(plan.directory) / layer_file_name(l));
    if (is_plain_layer(model.pack, layer, plan.layout.record_bytes) &&
        link_layer(model.pack_path / layer.file, path)) {
      progress.add_bytes(layer.file_size);
      ++files.linked;
    } else {
      MOE_RETURN_IF_ERROR(write_layer(model, l, plan.layout, path, threads, progress));
      ++files.written;
    }
    progress.layer_done();
  }
  const fs::path manifest = directory.add_file(fs::path(plan.directory) / kPackManifestName);
  MOE_RETURN_IF_ERROR(write_text_file(manifest, layout_text(model.pack, plan.layout)));
  MOE_RETURN_IF_ERROR(sync_directory(pack));
  return files;
}

}  // namespace moepack
