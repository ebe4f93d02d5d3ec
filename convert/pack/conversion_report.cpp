#include "convert/pack/conversion_report.h"

#include <algorithm>
#include <map>

#include "convert/job/parallel.h"
#include "formats/base/bytes.h"
#include "formats/base/space.h"

namespace moepack {
namespace {

// Format names by falling number of bytes.
std::string format_list(const std::map<std::string, std::uint64_t>& bytes) {
  std::vector<std::pair<std::uint64_t, std::string>> order;
  order.reserve(bytes.size());
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

}  // namespace

ConvertReport report_of(const std::string& model_type, const std::string& source,
                        const ConvertPlan& plan, const ConvertOptions& options) {
  ConvertReport report;
  report.source = source;
  report.model_type = model_type;
  report.expert_format = expert_formats(plan.pack);
  report.resident_format = resident_formats(plan.resident);
  report.num_layers = plan.pack.num_layers;
  report.num_experts = plan.pack.num_experts;
  report.expert_size = plan.pack.layouts.front().record_bytes;
  const auto [smallest, largest] = std::minmax_element(
      plan.pack.layouts.begin(), plan.pack.layouts.end(),
      [](const auto& a, const auto& b) { return a.record_bytes < b.record_bytes; });
  if (smallest->record_bytes != largest->record_bytes) {
    report.smallest_expert = smallest->record_bytes;
    report.largest_expert = largest->record_bytes;
  }
  report.page_size = plan.pack.page_size;
  report.expert_stride = align_up(report.expert_size, report.page_size);
  report.expert_bytes = plan.expert_bytes;
  report.resident_bytes = plan.resident_bytes;
  report.prediction_bytes = plan.prediction.data_size;
  report.prediction_tensors = plan.prediction.tensors.size();
  report.total_bytes = plan.total_bytes;
  report.source_bytes = plan.source_bytes;
  report.free_bytes = free_space(options.output);
  report.skipped_tensors = plan.skipped;
  report.kept_tensors = plan.kept;
  report.absent_files = plan.absent_companions;
  report.notes = plan.notes;
  report.threads = bounded_thread_count(options.threads);
  return report;
}

}  // namespace moepack
