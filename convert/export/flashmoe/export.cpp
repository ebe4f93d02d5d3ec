#include "convert/export/flashmoe/export.h"

#include <array>
#include <optional>
#include <system_error>

#include "convert/export/flashmoe/export_config.h"
#include "convert/export/flashmoe/export_experts.h"
#include "convert/export/flashmoe/export_weights.h"
#include "convert/job/export_directory.h"
#include "convert/job/parallel.h"
#include "formats/base/elapsed.h"
#include "formats/base/file.h"
#include "formats/base/space.h"
#include "formats/config/companion_files.h"
#include "formats/flashmoe/engine_files.h"

namespace moepack {
namespace {

namespace fs = std::filesystem;

// Everything that is decided before anything is written.
struct Plan {
  std::optional<ModelDir> model;
  ExportPlan weights;
  ExpertExport experts;
  std::string config_text;
  std::string tokenizer_bytes;
  VocabFile vocab;
};

Status plan_tokenizer(const ExportOptions& options, Plan& plan, ExportReport& report) {
  const fs::path path = options.model / kTokenizerName;
  const std::string file = path.string();
  std::error_code ignored;
  if (options.without_tokenizer) {
    report.notes.emplace_back("the engines need tokenizer.bin and vocab.bin of another model");
    return Status::ok();
  }
  if (!fs::exists(path, ignored)) {
    return not_found(Where{.file = file}, "is missing; tokenizer.bin and vocab.bin come from it",
                     options.tokenizer_only ? "name a directory that has it"
                                            : "add it, or go on without with --no-tokenizer");
  }
  MOE_ASSIGN_OR_RETURN(const TokenizerSpec spec, load_tokenizer_json(path));
  MOE_ASSIGN_OR_RETURN(plan.tokenizer_bytes, tokenizer_bin(spec, file));
  MOE_ASSIGN_OR_RETURN(plan.vocab, vocab_bin(spec, options.vocab_bytes, file));
  report.has_tokenizer = true;
  report.vocab_tokens = spec.vocab.size();
  report.merges = spec.merges.size();
  report.added_tokens = spec.added_tokens.size();
  report.vocab_entries = plan.vocab.entries;
  report.vocab_gaps = plan.vocab.gaps;
  return Status::ok();
}

// What rounding and folding did to the weights.
void describe_weights(const Plan& plan, ExportReport& report) {
  report.num_tensors = plan.weights.num_components;
  report.weight_files = plan.weights.chunks;
  for (const ExportTensor& tensor : plan.weights.tensors) {
    const WeightFormat& from = tensor.source->format;
    if (tensor.change == ExportChange::kNormPlusOne) report.folded_norms.push_back(tensor.name);
    const bool narrows = tensor.change == ExportChange::kRound ||
                         tensor.change == ExportChange::kNarrow ||
                         (tensor.change == ExportChange::kNormPlusOne && from != tensor.format);
    if (narrows) {
      report.rounded.push_back({tensor.name, to_string(from), to_string(tensor.format)});
    }
  }
}

Status plan_model(const ExportOptions& options, Plan& plan, ExportReport& report) {
  MOE_ASSIGN_OR_RETURN(plan.model, open_model_dir(options.model, options.pack));
  const ModelDir& model = *plan.model;
  MOE_RETURN_IF_ERROR(check_engines_compute(model));
  MOE_ASSIGN_OR_RETURN(plan.experts, plan_expert_export(model));
  MOE_ASSIGN_OR_RETURN(plan.weights, plan_export(model, options.split_bytes, options.split_names));
  MOE_ASSIGN_OR_RETURN(const auto text, read_companion(options.model, kConfigName));
  MOE_ASSIGN_OR_RETURN(
      plan.config_text,
      export_config_text(text.value_or(""), (options.model / kConfigName).string()));
  describe_weights(plan, report);
  report.pack = model.pack_path.filename().string();
  report.expert_directory = plan.experts.directory;
  report.expert_bits = plan.experts.bits;
  report.expert_size = plan.experts.layout.record_bytes;
  report.bytes_read = model.residents.data_size + plan.experts.layout.record_bytes *
                                                      model.pack.num_experts *
                                                      model.pack.num_layers;
  if (plan.experts.bits == 2) {
    report.notes.emplace_back("the engines read packed_experts_2bit with their flag --2bit");
  }
  return Status::ok();
}

std::uint64_t bytes_to_write(const Plan& plan) {
  if (plan.experts.is_plain) return plan.weights.data_size;
  const PackManifest& pack = plan.model->pack;
  return plan.weights.data_size +
         plan.experts.layout.record_bytes * pack.num_experts * pack.num_layers;
}

Status write_companions(const ExportOptions& options, const Plan& plan, ExportDirectory& directory,
                        ExportReport& report) {
  if (report.has_tokenizer) {
    MOE_RETURN_IF_ERROR(
        write_text_file(directory.add_file(kFlashMoeTokenizerName), plan.tokenizer_bytes));
    MOE_RETURN_IF_ERROR(write_text_file(directory.add_file(kFlashMoeVocabName), plan.vocab.bytes));
  }
  if (options.tokenizer_only) return Status::ok();
  MOE_RETURN_IF_ERROR(write_text_file(directory.add_file(kConfigName), plan.config_text));
  for (const CompanionFile& companion : kCompanionFiles) {
    if (companion.name == std::string_view(kConfigName)) continue;  // written above, changed
    MOE_ASSIGN_OR_RETURN(const auto text, read_companion(options.model, companion.name));
    if (!text.has_value()) continue;
    MOE_RETURN_IF_ERROR(write_text_file(directory.add_file(companion.name), *text));
    report.copied_files.emplace_back(companion.name);
  }
  return Status::ok();
}

Status write_all(const ExportOptions& options, const Plan& plan, const ProgressCallback& callback,
                 ExportReport& report) {
  MOE_ASSIGN_OR_RETURN(ExportDirectory directory, ExportDirectory::take(options.output));
  MOE_RETURN_IF_ERROR(write_companions(options, plan, directory, report));
  if (plan.model.has_value()) {
    const ModelDir& model = *plan.model;
    const std::size_t threads = bounded_thread_count(options.threads);
    ProgressCounter progress({.bytes_done = 0,
                              .bytes_total = report.bytes_read,
                              .layers_done = 0,
                              .layers_total = model.pack.num_layers},
                             callback);
    MOE_RETURN_IF_ERROR(check_space(directory.path(), "the export", bytes_to_write(plan),
                                    free_space(directory.path())));
    MOE_RETURN_IF_ERROR(write_export_weights(model, plan.weights, threads, directory, progress));
    MOE_ASSIGN_OR_RETURN(const ExpertFiles files,
                         write_export_experts(model, plan.experts, threads, directory, progress));
    report.linked_layers = files.linked;
    report.written_layers = files.written;
    MOE_RETURN_IF_ERROR(
        write_text_file(directory.add_file(kResidentManifestName), plan.weights.manifest));
  }
  return directory.finish();
}

}  // namespace

Result<ExportReport> export_model(const ExportOptions& options, const ProgressCallback& progress) {
  const auto start = Clock::now();
  ExportReport report;
  report.model = options.model.string();
  if (options.tokenizer_only && options.without_tokenizer) {
    return invalid_argument("--tokenizer-only and --no-tokenizer leave nothing to write");
  }
  Plan plan;
  if (!options.tokenizer_only) MOE_RETURN_IF_ERROR(plan_model(options, plan, report));
  MOE_RETURN_IF_ERROR(plan_tokenizer(options, plan, report));
  MOE_RETURN_IF_ERROR(write_all(options, plan, progress, report));
  report.seconds = seconds_since(start);
  return report;
}

}  // namespace moepack
