#include "convert/quantize/reusable_packs.h"

#include <algorithm>

#include "convert/pack/copy_record.h"
#include "convert/report/pack_report.h"
#include "formats/model_dir.h"
#include "formats/pack_directory.h"

namespace moepack {
namespace {

namespace fs = std::filesystem;

// Whether a layer of a ledger fits the pack in which it stands, of which the reader of ledgers
// knows nothing.
bool fits(const LayerQuality& layer, const PackManifest& pack, std::size_t methods) {
  if (layer.layer >= pack.num_layers) return false;
  for (const ProjectionQuality& columns : layer.projections) {
    const bool whole = columns.method.size() == pack.num_experts &&
                       columns.before.size() == pack.num_experts &&
                       columns.after.size() == pack.num_experts;
    if (!whole) return false;
    for (const std::uint8_t method : columns.method) {
      if (method >= methods) return false;
    }
  }
  return true;
}

}  // namespace

Result<ReusablePacks> ReusablePacks::open(const Options& options, const ModelConfig& config) {
  ReusablePacks out;
  std::vector<std::string> taken;
  for (const std::string& wanted : options.named) {
    MOE_ASSIGN_OR_RETURN(const std::string name, choose_pack(options.model, wanted));
    taken.push_back(name);
    MOE_RETURN_IF_ERROR(out.add(options, name, true, config));
  }
  if (options.recipe == 0) return out;
  MOE_ASSIGN_OR_RETURN(const std::vector<std::string> names, list_packs(options.model));
  for (const std::string& name : names) {
    const bool skip = name == options.not_this.filename().string() ||
                      std::find(taken.begin(), taken.end(), name) != taken.end();
    if (skip) continue;
    const auto report = read_pack_report(options.model / name);
    if (!report.is_ok() || report.value().recipe != options.recipe) continue;
    // Nobody asked for this pack, and it would only save time, so an error is noted and no more.
    const Status added = out.add(options, name, false, config);
    if (!added.is_ok()) out.notes_.push_back("records cannot be taken over: " + added.message());
  }
  return out;
}

Status ReusablePacks::add(const Options& options, const std::string& name, bool is_named,
                          const ModelConfig& config) {
  const fs::path directory = options.model / name;
  auto pack = std::make_unique<Pack>();
  pack->name = name;
  pack->is_named = is_named;
  MOE_ASSIGN_OR_RETURN(pack->manifest, read_pack_directory(directory, pack_dimensions(config)));
  MOE_RETURN_IF_ERROR(check_pack_fits(config, pack->manifest, directory));
  const std::uint64_t fingerprint = pack->manifest.source.fingerprint;
  if (fingerprint != 0 && options.fingerprint != 0 && fingerprint != options.fingerprint) {
    const std::string path = directory.string();
    return make_error(StatusCode::kInvalidArgument, Where{.file = path},
                      "was made from another model (" + printable(pack->manifest.source.name) + ")",
                      "take records from packs of this model");
  }
  pack->directory = directory;
  MOE_ASSIGN_OR_RETURN(PackReport report, read_pack_report(directory));
  if (report.ledger.has_value()) {
    pack->has_ledger = true;
    pack->ledger = std::move(*report.ledger);
    std::erase_if(pack->ledger.layers, [&](const LayerQuality& layer) {
      return !fits(layer, pack->manifest, pack->ledger.methods.size());
    });
  }
  // A named pack that has the recipe is treated like the other packs of the recipe.
  if (report.recipe != 0 && report.recipe == options.recipe) pack->is_named = false;
  packs_.push_back(std::move(pack));
  return Status::ok();
}

bool ReusablePacks::find(std::uint32_t layer, std::uint32_t expert, const ExpertLayout& layout,
                         Record& record) const {
  for (std::uint32_t i = 0; i < packs_.size(); ++i) {
    const ExpertLayout& there = packs_[i]->manifest.layout_of(layer, expert);
    if (!(in_order(there, RowOrder::kRows) == in_order(layout, RowOrder::kRows))) continue;
    record = {.pack = i, .expert = expert, .layer = layer};
    return true;
  }
  return false;
}

Status ReusablePacks::copy(const Record& record, const ExpertLayout& to, RecordStream& out) const {
  const Pack& pack = *packs_[record.pack];
  MOE_ASSIGN_OR_RETURN(const File file,
                       File::open(pack.directory / pack.manifest.layers[record.layer].file));
  return copy_record(pack.manifest, record.layer, record.expert, file, to, out);
}

const QualityLedger* ReusablePacks::ledger(const Record& record) const {
  const Pack& pack = *packs_[record.pack];
  return pack.has_ledger ? &pack.ledger : nullptr;
}

const LayerQuality* ReusablePacks::quality(const Record& record) const {
  const QualityLedger* ledger = this->ledger(record);
  if (ledger == nullptr) return nullptr;
  for (const LayerQuality& layer : ledger->layers) {
    if (layer.layer == record.layer) return &layer;
  }
  return nullptr;
}

std::string ReusablePacks::named_text() const {
  std::string text;
  for (const auto& pack : packs_) {
    if (pack->is_named) text += pack_manifest_text(pack->manifest);
  }
  return text;
}

}  // namespace moepack
