#include "convert/convert.h"

#include <algorithm>
#include <chrono>
#include <map>

#include "convert/output_directory.h"
#include "convert/pack.h"
#include "convert/parallel.h"
#include "convert/plan.h"
#include "convert/resident.h"
#include "formats/bytes.h"
#include "formats/checkpoint.h"
#include "formats/file.h"

namespace moepack {
namespace {

namespace fs = std::filesystem;

// Format names by falling number of bytes.
std::string format_list(const std::map<std::string, std::uint64_t>& bytes) {
  std::vector<std::pair<std::uint64_t, std::string>> order;
  for (const auto& [name, count] : bytes) order.emplace_back(count, name);
  std::sort(order.begin(), order.end(), [](const auto& a, const auto& b) {
    return a.first != b.first ? a.first > b.first : a.second < b.second;
  });
  std::string text;
  for (const auto& [count, name] : order) text += (text.empty() ? "" : ", ") + name;
  return text;
}

std::string expert_formats(const PackManifest& pack) {
  std::map<std::string, std::uint64_t> bytes;
  for (const LayerEntry& layer : pack.layers) {
    for (const ExpertEntry& expert : layer.experts) {
      for (const ProjectionLayout& part : pack.layouts[expert.layout].projections) {
        bytes[to_string(part.format)] += part.bytes.total();
      }
    }
  }
  return format_list(bytes);
}

std::string resident_formats(const ResidentManifest& resident) {
  std::map<std::string, std::uint64_t> bytes;
  for (const ResidentTensor& t : resident.tensors) bytes[to_string(t.format)] += t.bytes.total();
  return format_list(bytes);
}

// Of the file system that holds `path`, whose last parts need not exist; 0 when unknown.
std::uint64_t free_space(const fs::path& path) {
  std::error_code error;
  fs::path at = fs::absolute(path, error);
  while (!fs::exists(at, error) && at.has_relative_path()) at = at.parent_path();
  const fs::space_info space = fs::space(at, error);
  return error ? 0 : space.available;
}

ConvertReport report_of(const Checkpoint& checkpoint, const ConvertPlan& plan,
                        const ConvertOptions& options) {
  ConvertReport report;
  report.source = checkpoint.directory().string();
  report.model_type = checkpoint.config().model.model_type;
  report.expert_format = expert_formats(plan.pack);
  report.resident_format = resident_formats(plan.resident);
  report.num_layers = plan.pack.num_layers;
  report.num_experts = plan.pack.num_experts;
  report.expert_size = plan.pack.layouts.front().record_bytes;
  report.page_size = plan.pack.page_size;
  report.expert_stride = align_up(report.expert_size, report.page_size);
  report.expert_bytes = plan.expert_bytes;
  report.resident_bytes = plan.resident_bytes;
  report.total_bytes = plan.total_bytes;
  report.source_bytes = plan.source_bytes;
  report.free_bytes = free_space(options.output);
  report.skipped_tensors = plan.skipped;
  report.kept_tensors = plan.kept;
  report.absent_files = plan.absent_companions;
  report.notes = plan.notes;
  report.threads = thread_count(options.threads);
  return report;
}

Status copy_companion(const fs::path& from, const fs::path& to) {
  MOE_ASSIGN_OR_RETURN(const File source, File::open(from));
  MOE_ASSIGN_OR_RETURN(AtomicFile copy, AtomicFile::create(to));
  std::vector<std::byte> buffer(std::min<std::uint64_t>(source.size(), 1U << 20));
  for (std::uint64_t at = 0; at < source.size(); at += buffer.size()) {
    const std::span<std::byte> part =
        std::span(buffer).first(std::min<std::uint64_t>(buffer.size(), source.size() - at));
    MOE_RETURN_IF_ERROR(source.read_at(at, part));
    MOE_RETURN_IF_ERROR(copy.write_at(at, part));
  }
  return copy.commit();
}

Status write_everything(const Checkpoint& checkpoint, ConvertPlan& plan, OutputDirectory& output,
                        std::size_t threads, const ProgressCallback& callback) {
  ProgressCounter progress(plan.source_bytes, plan.pack.num_layers, callback);
  MOE_ASSIGN_OR_RETURN(const fs::path pack, output.add_directory(kDefaultPackName));
  for (const std::string& name : plan.companions) {
    MOE_RETURN_IF_ERROR(copy_companion(checkpoint.directory() / name, output.path() / name));
  }
  MOE_RETURN_IF_ERROR(
      write_resident_data(plan.resident_sources, output.path(), threads, plan.resident, progress));
  MOE_RETURN_IF_ERROR(write_layer_files(plan.experts, pack, threads, plan.pack, progress));
  MOE_RETURN_IF_ERROR(write_resident_manifest(output.path(), plan.resident));
  MOE_RETURN_IF_ERROR(write_pack_manifest(pack, plan.pack));
  return output.finish();
}

Status check_space(const ConvertReport& report, const fs::path& output) {
  if (report.free_bytes == 0 || report.total_bytes <= report.free_bytes) return Status::ok();
  return make_error(StatusCode::kIo, Where{.file = output.string()},
                    "the model takes " + std::to_string(report.total_bytes) + " bytes, but only " +
                        std::to_string(report.free_bytes) + " are free there",
                    "free some space or name another output directory");
}

}  // namespace

Result<ConvertReport> plan_conversion(const ConvertOptions& options) {
  MOE_RETURN_IF_ERROR(OutputDirectory::check(options.output));
  MOE_ASSIGN_OR_RETURN(const Checkpoint checkpoint, Checkpoint::open(options.source));
  MOE_ASSIGN_OR_RETURN(const ConvertPlan plan, make_plan(checkpoint, options));
  return report_of(checkpoint, plan, options);
}

Result<ConvertReport> convert_checkpoint(const ConvertOptions& options,
                                         const ProgressCallback& progress) {
  const auto start = std::chrono::steady_clock::now();
  MOE_RETURN_IF_ERROR(OutputDirectory::check(options.output));
  MOE_ASSIGN_OR_RETURN(const Checkpoint checkpoint, Checkpoint::open(options.source));
  MOE_ASSIGN_OR_RETURN(ConvertPlan plan, make_plan(checkpoint, options));
  ConvertReport report = report_of(checkpoint, plan, options);
  MOE_RETURN_IF_ERROR(check_space(report, options.output));
  MOE_ASSIGN_OR_RETURN(OutputDirectory output, OutputDirectory::take(options.output));
  MOE_RETURN_IF_ERROR(write_everything(checkpoint, plan, output, report.threads, progress));
  report.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  return report;
}

}  // namespace moepack
