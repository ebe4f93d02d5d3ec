#include "convert/export/gguf/export_gguf.h"

#include <algorithm>
#include <map>
#include <optional>
#include <system_error>

#include "convert/export/gguf/export_gguf_data.h"
#include "convert/export/gguf/export_gguf_metadata.h"
#include "convert/export/gguf/export_gguf_plan.h"
#include "convert/export/gguf/export_gguf_tokenizer.h"
#include "convert/job/parallel.h"
#include "formats/base/elapsed.h"
#include "formats/base/file.h"
#include "formats/base/output_file.h"
#include "formats/base/space.h"

namespace moepack {
namespace {

namespace fs = std::filesystem;

Status check_output(const fs::path& path) {
  const std::string name = path.string();
  std::error_code error;
  if (path.filename().empty()) return invalid_argument("no output file was named");
  if (fs::exists(fs::symlink_status(path, error))) {
    return make_error(StatusCode::kInvalidArgument, Where{.file = name}, "exists already",
                      "remove it or name another file");
  }
  const fs::path parent = fs::absolute(path, error).parent_path();
  if (fs::is_directory(parent, error)) return Status::ok();
  const std::string directory = parent.string();
  return not_found(Where{.file = directory}, "is no directory", "create it or name another place");
}

std::vector<GgufTypeTally> tally(const GgufHead& head) {
  std::map<std::string, GgufTypeTally> by_type;
  for (const GgufOutputTensor& tensor : head.tensors()) {
    GgufTypeTally& type = by_type[ggml_type_name(tensor.type)];
    type.type = ggml_type_name(tensor.type);
    ++type.tensors;
    type.bytes += tensor.size;
  }
  std::vector<GgufTypeTally> types;
  types.reserve(by_type.size());
  for (auto& [name, type] : by_type) types.push_back(std::move(type));
  std::stable_sort(types.begin(), types.end(),
                   [](const auto& a, const auto& b) { return a.bytes > b.bytes; });
  return types;
}

}  // namespace

Result<GgufExportReport> export_gguf(const GgufExportOptions& options,
                                     const ProgressCallback& progress) {
  const auto start = Clock::now();
  MOE_RETURN_IF_ERROR(check_output(options.output));
  MOE_ASSIGN_OR_RETURN(const ModelDir model, open_model_dir(options.model, options.pack));
  GgufHead head;
  GgufExportReport report;
  MOE_ASSIGN_OR_RETURN(GgufPlan plan, plan_gguf(model, head));
  MOE_RETURN_IF_ERROR(add_model_keys(model, *plan.names, head));
  MOE_RETURN_IF_ERROR(add_tokenizer_keys(model.path, model.config, head, report.notes));
  // What a killed export of this name left goes before the free space is asked.
  MOE_RETURN_IF_ERROR(create_output_file(options.output).status());
  MOE_RETURN_IF_ERROR(
      check_space(options.output, "the export", head.file_size(), free_space(options.output)));
  const std::size_t threads = bounded_thread_count(options.threads);
  MOE_RETURN_IF_ERROR(check_gguf_exact(model, plan, threads));

  ProgressCounter counter({.bytes_done = 0,
                           .bytes_total = gguf_source_bytes(model, plan),
                           .layers_done = 0,
                           .layers_total = model.pack.num_layers},
                          progress);
  MOE_ASSIGN_OR_RETURN(GgufOutput output, head.create(options.output));
  MOE_RETURN_IF_ERROR(write_gguf_data(model, plan, head, threads, output, counter));
  MOE_RETURN_IF_ERROR(output.commit());

  report.model = options.model.string();
  report.pack = model.pack_path.filename().string();
  report.architecture = plan.names->gguf_architecture;
  report.file_size = head.file_size();
  report.num_tensors = static_cast<std::uint32_t>(head.tensors().size());
  report.types = tally(head);
  report.blocks = std::move(plan.blocks);
  report.seconds = seconds_since(start);
  return report;
}

}  // namespace moepack
