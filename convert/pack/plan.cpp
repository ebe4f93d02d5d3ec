#include "convert/pack/plan.h"

#include <algorithm>
#include <array>
#include <bit>
#include <optional>
#include <set>
#include <system_error>
#include <utility>

#include <nlohmann/json.hpp>

#include "convert/pack/engine_config.h"
#include "convert/pack/layout_table.h"
#include "convert/pack/prediction.h"
#include "convert/pack/resident_plan.h"
#include "convert/pack/target_format.h"
#include "formats/base/bytes.h"
#include "formats/weights/row_order.h"

namespace moepack {
namespace {

Status check_options(const ConvertOptions& options) {
  for (const auto& [format, what] : {std::pair{options.expert_format, "experts"},
                                     std::pair{options.resident_format, "resident tensors"}}) {
    if (!format.has_value() || *format == QFormatId::kBf16 || *format == QFormatId::kF32) continue;
    if (qformat_info(*format).kind == QKind::kAffine) continue;
    return invalid_argument(std::string(what) + " cannot be converted to " +
                            std::string(qformat_info(*format).name));
  }
  if (!is_valid_group_size(options.group_size)) {
    return invalid_argument(
        "a group size of " + std::to_string(options.group_size) + " does not exist",
        "use 32, 64 or 128");
  }
  return check_page_size(options.page_size);
}

struct Classified {
  std::vector<ExpertTensor> experts;
  std::vector<ResidentSource> residents;
  bool keeps_prediction = false;
  std::vector<SourceTensor> predicting;  // where they are kept; else skipped
  std::vector<std::string> skipped;
};

// A block that is left out must be one that predicts: then it joins an embedding and a state.
Status check_skipped(const GgufModel& gguf, const TensorName& name, const GgufTensor& tensor) {
  const std::string block = "blk." + std::to_string(name.layer) + ".";
  if (name.role != TensorRole::kPredicts) return Status::ok();
  if (gguf.find(block + "nextn.eh_proj.weight") != nullptr) return Status::ok();
  return corrupt(tensor.where(), "is of a block beyond the layers that the metadata count, and " +
                                     block + "nextn.eh_proj.weight is missing");
}

Status classify(TensorName name, const SourceTensor& tensor, const ModelSource& source,
                Classified& sorted) {
  switch (name.role) {
    case TensorRole::kExpert:
      sorted.experts.push_back({std::move(name), tensor});
      return Status::ok();
    case TensorRole::kResident:
      sorted.residents.push_back({std::move(name), tensor});
      return Status::ok();
    case TensorRole::kFused:
      for (TensorName& part : split_fused(source.names(), name)) {
        sorted.residents.push_back({std::move(part), tensor});
      }
      return Status::ok();
    case TensorRole::kSkipped:
      sorted.skipped.push_back(tensor.name());
      return Status::ok();
    case TensorRole::kPredicts:
      if (sorted.keeps_prediction) {
        sorted.predicting.push_back(tensor);
      } else {
        sorted.skipped.push_back(tensor.name());
      }
      return Status::ok();
    case TensorRole::kUnused:
      return Status::ok();
    default:
      return unsupported(tensor.where(),
                         "is not a tensor of model type " + source.config().model.model_type +
                             " that is known here",
                         "leaving it out could change the model's answers");
  }
}

Result<Classified> classify(const ModelSource& source, bool keeps_prediction) {
  const Architecture& names = source.names();
  Classified sorted;
  sorted.keeps_prediction = keeps_prediction;
  if (const GgufModel* gguf = source.gguf(); gguf != nullptr) {
    const std::uint32_t layers = source.config().model.num_layers;
    for (const GgufTensor& tensor : gguf->tensors()) {
      MOE_RETURN_IF_ERROR(tensor.check_readable());
      TensorName name = classify_gguf_tensor(names, tensor.info->name, layers);
      MOE_RETURN_IF_ERROR(check_skipped(*gguf, name, tensor));
      MOE_RETURN_IF_ERROR(classify(std::move(name), SourceTensor(tensor), source, sorted));
    }
    return sorted;
  }
  for (const TensorRef& tensor : source.checkpoint()->tensors()) {
    TensorName name = classify_tensor(names, tensor.info->name, source.config().model);
    MOE_RETURN_IF_ERROR(classify(std::move(name), SourceTensor(tensor), source, sorted));
  }
  return sorted;
}

// llama.cpp's converter adds the 1 to norms, stores -exp(A_log) and, for some models, brings V
// heads into tiled order (its conversion/qwen.py). All of it is kept as it is: the columns of
// linear_attn.out_proj could not be put back where a block spans several heads.
std::optional<ResidentConventions> conventions_of(const ModelSource& source) {
  if (source.gguf() == nullptr) return std::nullopt;
  return ResidentConventions{.norm = ResidentConventions::Norm::kPlain,
                             .v_heads = source.names().gguf_tiles_v_heads
                                            ? ResidentConventions::VHeads::kTiled
                                            : ResidentConventions::VHeads::kGrouped,
                             .a_log = ResidentConventions::ALog::kNegExp,
                             .conv1d = ResidentConventions::Conv1d::kC1T};
}

SourceForm form_of(const SourceMatrix& matrix) {
  return {.format = matrix.format, .is_decoded = matrix.is_decoded()};
}

Result<ExpertLayout> expert_layout(const ExpertSource& source, const ModelConfig& config,
                                   const ConvertOptions& options, std::uint32_t layer,
                                   std::uint32_t expert) {
  std::array<WeightFormat, kProjections> formats;
  for (Projection p : kAllProjections) {
    formats[static_cast<std::size_t>(p)] =
        in_order(expert_target(form_of(source.of(layer, expert, p)), options), options.row_order);
  }
  const auto layout = make_expert_layout(config.hidden_size, config.expert_width, formats);
  if (layout.has_value()) return *layout;
  for (Projection p : kAllProjections) {
    const SourceMatrix& matrix = source.of(layer, expert, p);
    const WeightFormat& format = formats[static_cast<std::size_t>(p)];
    if (matrix_bytes(format, matrix.rows, matrix.cols).has_value()) continue;
    return make_error(StatusCode::kInvalidArgument, matrix.slices.codes().tensor.where(),
                      "its " + std::to_string(matrix.cols) + " inputs are no whole number of " +
                          to_string(format) + " groups",
                      "group sizes that fit all experts: " + fitting_groups(config));
  }
  return make_error(StatusCode::kInvalidArgument, {}, "an expert is too large");
}

// How the codes of the pack came about; read by verify (convert/verify/verify_source.cpp).
std::string method_of(const ConvertPlan& plan, const ConvertOptions& options) {
  bool copied = true;
  bool decoded = false;
  bool encoded = false;
  for (std::uint32_t layer = 0; layer < plan.pack.num_layers; ++layer) {
    for (std::uint32_t e = 0; e < plan.pack.experts_of(layer); ++e) {
      for (Projection p : kAllProjections) {
        const SourceMatrix& matrix = plan.experts.of(layer, e, p);
        const WeightFormat& stored = plan.pack.layout_of(layer, e).of(p).format;
        copied = copied && matrix.format == in_order(stored, RowOrder::kRows);
        encoded = encoded || matrix.encoded != nullptr;
        decoded = decoded || matrix.is_decoded();
      }
    }
  }
  if (copied) return decoded ? "decode" : (encoded ? "repack" : "copy");
  const QFormatId target = options.expert_format.value_or(QFormatId::kBf16);
  return is_affine({.id = target}) ? "mlx-affine" : std::string(qformat_info(target).name);
}

// What happens to experts that the source holds rounded.
class FormatChanges {
 public:
  void add(const SourceMatrix& from, const WeightFormat& stored) {
    const WeightFormat to = in_order(stored, RowOrder::kRows);
    const std::string name = from.encoded != nullptr ? std::string(from.encoded->encoding->name)
                                                     : to_string(from.format);
    const bool is_encoded = from.encoded != nullptr && !from.encoded->encoding->only_moves;
    const bool is_rounded = is_encoded || !is_plain(from.format);
    if (!is_rounded || from.format == to || to.id == QFormatId::kF32) return;
    (is_plain(to) ? widened_ : rounded_twice_).insert(name + " to " + to_string(to));
  }
  void note(std::vector<std::string>& notes) const {
    for (const std::string& change : rounded_twice_) {
      notes.push_back("experts that were rounded before are changed again, " + change +
                      ": start from the unquantized checkpoint where there is one");
    }
    for (const std::string& change : widened_) {
      notes.push_back("experts are decoded, " + change +
                      ", each weight to the nearest: --expert-format f32 keeps every bit");
    }
  }

 private:
  static bool is_plain(const WeightFormat& format) {
    return qformat_info(format.id).kind == QKind::kPlain;
  }
  std::set<std::string> rounded_twice_;
  std::set<std::string> widened_;
};

Status plan_experts(const ModelConfig& config, const ConvertOptions& options, ConvertPlan& plan) {
  set_dimensions(config, options.page_size, plan.pack);
  FormatChanges changes;
  const auto layout_of = [&](std::uint32_t l, std::uint32_t e) -> Result<ExpertLayout> {
    MOE_ASSIGN_OR_RETURN(const ExpertLayout layout,
                         expert_layout(plan.experts, config, options, l, e));
    plan.source_bytes += plan.experts.bytes(l, e);
    for (Projection p : kAllProjections) {
      changes.add(plan.experts.of(l, e, p), layout.of(p).format);
    }
    return layout;
  };
  MOE_ASSIGN_OR_RETURN(plan.expert_bytes, plan_pack_layers(plan.pack, config, layout_of));
  changes.note(plan.notes);
  return check_row_order(plan.pack, options.row_order);
}

void note_decoded_residents(ConvertPlan& plan) {
  std::size_t count = 0;
  const SourceEncoding* encoding = nullptr;
  for (std::size_t i = 0; i < plan.resident_sources.size(); ++i) {
    const SourceMatrix& source = plan.resident_sources[i];
    if (!source.is_decoded() || plan.resident.tensors[i].format == source.format) continue;
    encoding = source.encoded->encoding;
    ++count;
  }
  if (encoding == nullptr) return;
  plan.notes.push_back(std::to_string(count) + " resident matrices are decoded from " +
                       std::string(encoding->name) +
                       " and rounded: --resident f32 keeps every bit");
}

std::string report_json(const ConvertPlan& plan) {
  nlohmann::ordered_json report;
  report["skipped_tensors"] = plan.skipped;
  if (!plan.notes.empty()) report["notes"] = plan.notes;
  return report.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
}

// Whether the small files of one source can be used.
struct CompanionPlan {
  std::filesystem::path source;
  std::uint64_t vocab_size;
  const TokenizerCheck& tokenizer;

  Status check(const Companion& companion, std::string_view text, ConvertPlan& plan) const {
    const bool is_made = companion.file.empty();
    const std::string file =
        is_made ? source.string() + ": " + companion.name : companion.file.string();
    Status status = check_companion(companion.name, text, file, vocab_size, tokenizer);
    if (status.is_ok()) return status;
    if (status.code() == StatusCode::kUnsupported) {
      plan.notes.push_back(status.message() + "; moepack cannot run texts with it");
      return Status::ok();
    }
    return make_error(status.code(), Where{}, status.message(),
                      is_made ? "download the file again"
                              : "download it again, or take it away: it can be added later");
  }

  Status add(const Companion& companion, ConvertPlan& plan) const {
    if (companion.file.empty()) {
      plan.total_bytes += companion.text.size();
      return check(companion, companion.text, plan);
    }
    MOE_ASSIGN_OR_RETURN(const auto text,
                         read_companion(companion.file.parent_path(), companion.name));
    plan.total_bytes += text.value_or("").size();
    return check(companion, text.value_or(""), plan);
  }
};

}  // namespace

Status check_page_size(std::uint64_t page_size) {
  if (std::has_single_bit(page_size) && page_size <= kMaxPageSize) return Status::ok();
  return invalid_argument(
      "a page size of " + std::to_string(page_size) + " bytes does not work",
      "use a power of two up to " + std::to_string(kMaxPageSize) + ", 1 for no padding");
}

Status check_layer_exists(std::uint32_t layer, std::uint32_t num_layers) {
  if (layer < num_layers) return Status::ok();
  return invalid_argument("there is no layer " + std::to_string(layer) + ", the model has " +
                              std::to_string(num_layers),
                          "number them from 0");
}

Status check_row_order(const PackManifest& pack, RowOrder order) {
  const bool is_possible = order == RowOrder::kRows ||
                           std::any_of(pack.layouts.begin(), pack.layouts.end(), is_in_panels);
  if (is_possible) return Status::ok();
  return invalid_argument("experts in " +
                              to_string(pack.layouts.front().of(Projection::kGate).format) +
                              " have no panels",
                          "leave --row-order out, or give the experts a format of 2 to 8 bits");
}

Result<ConvertPlan> make_plan(const ModelSource& source, const ConvertOptions& options) {
  MOE_RETURN_IF_ERROR(check_options(options));
  const ModelConfig& config = source.config().model;
  const SourceNaming naming = source.naming();
  MOE_RETURN_IF_ERROR(check_expert_count(config, naming));
  MOE_ASSIGN_OR_RETURN(Classified tensors, classify(source, options.keep_prediction));
  const DeclaredFormats declared(source.names(), source.config());
  ConvertPlan plan;
  MOE_ASSIGN_OR_RETURN(plan.experts,
                       ExpertSource::build(config, declared, tensors.experts, naming));
  MOE_ASSIGN_OR_RETURN(ResidentPlan residents,
                       plan_residents(source.names(), config, declared, tensors.residents, options,
                                      naming, conventions_of(source)));
  plan.skipped = std::move(tensors.skipped);
  if (options.keep_prediction) {
    MOE_RETURN_IF_ERROR(plan_prediction(source, std::move(tensors.predicting), plan));
  }
  plan.kept = std::move(residents.kept);
  plan.resident = std::move(residents.manifest);
  plan.resident_sources = std::move(residents.sources);
  MOE_RETURN_IF_ERROR(plan_experts(config, options, plan));

  for (const SourceMatrix& matrix : plan.resident_sources) plan.source_bytes += matrix.bytes();
  for (const SourceTensor& tensor : plan.prediction_sources) plan.source_bytes += tensor.size();
  note_decoded_residents(plan);
  plan.resident_bytes = plan.resident.data_size;
  plan.resident.model = source.name();
  plan.resident.config_json = engine_config_json(config);
  plan.pack.source = {.name = plan.resident.model,
                      .fingerprint = source.fingerprint(),
                      .method = method_of(plan, options)};
  plan.pack.report_json = report_json(plan);
  plan.total_bytes = plan.expert_bytes + plan.resident_bytes;
  plan.total_bytes +=
      pack_manifest_text(plan.pack).size() + resident_manifest_text(plan.resident).size();
  if (!plan.prediction.is_empty()) {
    plan.total_bytes +=
        plan.prediction.data_size + prediction_manifest_text(plan.prediction).size();
  }
  return plan;
}

Status add_companions(const ModelSource& source, const TokenizerCheck& tokenizer,
                      ConvertPlan& plan) {
  MOE_ASSIGN_OR_RETURN(plan.companions, source.companions(plan.absent_companions, plan.notes));
  const CompanionPlan checks{source.path(), source.config().model.vocab_size, tokenizer};
  for (const Companion& companion : plan.companions) {
    MOE_RETURN_IF_ERROR(checks.add(companion, plan));
  }
  return Status::ok();
}

}  // namespace moepack
