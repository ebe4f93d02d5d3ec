#include "convert/cli/cmd_inspect.h"

#include <algorithm>
#include <iostream>
#include <memory>
#include <nlohmann/json.hpp>

#include "convert/cli/number_range.h"
#include "convert/cli/progress.h"
#include "convert/cli/quality_output.h"
#include "convert/inspect/inspect.h"
#include "formats/base/checksum.h"
#include "formats/weights/format_json.h"

namespace moepack::cli {
namespace {

using Json = nlohmann::ordered_json;

struct InspectFlags {
  std::string path;
  std::size_t worst = kDefaultWorst;
  bool tensors = false;
  bool json = false;
};

// ---- JSON ----

std::string dump(const Json& json) {
  return json.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
}

Json formats_json(const std::vector<FormatTally>& tallies) {
  Json list = Json::array();
  for (const FormatTally& t : tallies) {
    list.push_back({{"format", t.format}, {"tensors", t.tensors}, {"bytes", t.bytes}});
  }
  return list;
}

Json layers_json(const std::vector<LayerSummary>& layers, bool with_residents) {
  Json list = Json::array();
  for (const LayerSummary& layer : layers) {
    Json entry;
    if (!layer.attention.empty()) entry["attention"] = layer.attention;
    entry["expert_format"] = layer.expert_formats;
    if (layer.expert_size != 0) entry["expert_size"] = layer.expert_size;
    entry["expert_bytes"] = layer.expert_bytes;
    if (with_residents) entry["resident_bytes"] = layer.resident_bytes;
    list.push_back(std::move(entry));
  }
  return list;
}

Json config_json(const ModelConfig& c) {
  const std::uint32_t full = c.full_attention_layers();
  Json json{
      {"model_type", c.model_type},     {"num_layers", c.num_layers},
      {"full_attention_layers", full},  {"hidden_size", c.hidden_size},
      {"vocab_size", c.vocab_size},     {"max_position_embeddings", c.max_position_embeddings},
      {"num_experts", c.num_experts},   {"experts_per_token", c.experts_per_token},
      {"expert_width", c.expert_width}, {"shared_expert_width", c.shared_expert_width}};
  const std::uint32_t latent = c.layers_of(LayerType::kLatentAttention);
  if (latent != 0) json["latent_attention_layers"] = latent;
  return json;
}

Json checkpoint_json(const CheckpointSummary& c) {
  Json json{{"num_files", c.num_files},
            {"num_tensors", c.num_tensors},
            {"bytes", c.bytes},
            {"fingerprint", checksum_text(c.fingerprint)},
            {"dtypes", formats_json(c.dtypes)}};
  if (!c.problem.empty()) {
    json["problem"] = c.problem;
    return json;
  }
  if (c.layers.empty()) return json;
  json["expert_bytes"] = c.expert_bytes;
  json["expert_formats"] = formats_json(c.expert_formats);
  json["resident_bytes"] = c.resident_bytes;
  json["resident_formats"] = formats_json(c.resident_formats);
  json["skipped_tensors"] = c.skipped_tensors;
  json["layers"] = layers_json(c.layers, true);
  return json;
}

Json pack_json(const PackSummary& p) {
  Json json{{"name", p.name},
            {"num_layers", p.num_layers},
            {"num_experts", p.num_experts},
            {"hidden_size", p.hidden_size},
            {"expert_width", p.expert_width},
            {"page_size", p.page_size},
            {"expert_size", p.expert_size},
            {"expert_stride", p.expert_stride},
            {"num_layouts", p.num_layouts},
            {"bytes", p.bytes},
            {"formats", formats_json(p.formats)},
            {"has_checksums", p.has_checksums},
            {"source", p.source.name},
            {"fingerprint", checksum_text(p.source.fingerprint)},
            {"method", p.source.method},
            {"skipped_tensors", p.skipped_tensors},
            {"notes", p.notes}};
  if (p.quality.has_value()) json["quality"] = quality_json(*p.quality);
  json["layers"] = layers_json(p.layers, false);
  return json;
}

Json gguf_json(const GgufSummary& g) {
  Json json{{"version", g.version},
            {"byte_order", g.is_big_endian ? "big" : "little"},
            {"architecture", g.architecture},
            {"name", g.name},
            {"files", g.files},
            {"num_tensors", g.num_tensors},
            {"bytes", g.bytes},
            {"fingerprint", checksum_text(g.fingerprint)},
            {"types", formats_json(g.types)}};
  if (!g.problem.empty()) json["problem"] = g.problem;
  json["layers"] = Json::array();
  for (const GgufLayerSummary& layer : g.layers) {
    json["layers"].push_back({{"layer", layer.layer},
                              {"num_experts", layer.num_experts},
                              {"expert_format", layer.expert_formats},
                              {"expert_bytes", layer.expert_bytes}});
  }
  json["metadata"] = Json::array();
  for (const GgufKeySummary& key : g.metadata) {
    Json entry{{"key", key.key}, {"type", key.type}};
    if (key.is_array) entry["count"] = key.count;
    entry["value"] = key.value;
    json["metadata"].push_back(std::move(entry));
  }
  return json;
}

Json inspection_json(const Inspection& found) {
  Json json{{"kind", path_kind_name(found.kind)}, {"path", found.path}};
  if (found.kind == PathKind::kModel) json["unfinished"] = found.unfinished;
  if (found.config.has_value()) json["config"] = config_json(*found.config);
  if (found.checkpoint.has_value()) json["checkpoint"] = checkpoint_json(*found.checkpoint);
  if (found.gguf.has_value()) json["gguf"] = gguf_json(*found.gguf);
  if (found.residents.has_value()) {
    const ResidentSummary& r = *found.residents;
    json["residents"] = Json{{"model", r.model},
                             {"num_tensors", r.num_tensors},
                             {"bytes", r.bytes},
                             {"formats", formats_json(r.formats)},
                             {"has_checksum", r.has_checksum}};
  }
  if (found.prediction.has_value()) {
    const PredictionSummary& p = *found.prediction;
    json["prediction"] = Json{{"source", p.source},
                              {"quantization", p.quantization},
                              {"num_tensors", p.num_tensors},
                              {"bytes", p.bytes},
                              {"types", formats_json(p.types)}};
  }
  if (found.kind == PathKind::kModel) {
    json["overlays"] = Json::array();
    for (const OverlaySummary& overlay : found.overlays) {
      json["overlays"].push_back({{"file", overlay.name},
                                  {"group", overlay.group},
                                  {"matrices", overlay.matrices},
                                  {"bytes", overlay.bytes},
                                  {"formats", formats_json(overlay.formats)},
                                  {"source", overlay.source}});
    }
  }
  if (found.kind == PathKind::kModel || found.kind == PathKind::kPack) {
    json["packs"] = Json::array();
    for (const PackSummary& pack : found.packs) json["packs"].push_back(pack_json(pack));
  }
  if (found.kind == PathKind::kModel) json["absent_files"] = found.absent_files;
  json["notes"] = found.notes;
  return json;
}

// The list is written as it is found: it may be longer than memory should hold.
Status print_json(const Inspection& found, bool tensors) {
  std::string text = dump(inspection_json(found));
  if (tensors) {
    text.pop_back();
    std::cout << text << ", \"tensors\": [";
    std::string_view separator = "\n";
    MOE_RETURN_IF_ERROR(list_tensors(found.path, [&](const ListedTensor& t) {
      Json entry{{"name", t.name}, {"dtype", t.dtype}};
      if (!t.format.empty()) entry["format"] = t.format;
      entry["shape"] = t.shape;
      entry["file"] = t.file;
      entry["offset"] = t.offset;
      entry["bytes"] = t.bytes;
      std::cout << separator << dump(entry);
      separator = ",\n";
    }));
    text = "]}";
  }
  std::cout << text << "\n";
  return Status::ok();
}

// ---- for people ----

std::string tally_text(const std::vector<FormatTally>& tallies) {
  std::string text;
  for (const FormatTally& t : tallies) {
    if (!text.empty()) text += "; ";
    text += t.format + ": " + std::to_string(t.tensors) + ", " + format_bytes(t.bytes);
  }
  return text;
}

// One line: how many, and the first few.
void print_names(const char* what, const std::vector<std::string>& names) {
  constexpr std::size_t kShown = 3;
  if (names.empty()) return;
  std::cout << what << names.size() << " (";
  for (std::size_t i = 0; i < std::min(names.size(), kShown); ++i) {
    std::cout << (i == 0 ? "" : ", ") << printable(names[i]);
  }
  std::cout << (names.size() > kShown ? ", ...)\n" : ")\n");
}

// Neighbouring layers that are alike share a line.
void print_layers(const std::vector<LayerSummary>& layers) {
  for (std::size_t first = 0; first < layers.size();) {
    std::size_t last = first;
    while (last + 1 < layers.size() && layers[last + 1] == layers[first]) ++last;
    const LayerSummary& layer = layers[first];
    std::cout << "  layer " << first;
    if (last > first) std::cout << "-" << last;
    std::cout << ": ";
    if (!layer.attention.empty()) std::cout << layer.attention << ", ";
    std::cout << "experts " << layer.expert_formats << ", ";
    if (layer.expert_size != 0) std::cout << layer.expert_size << " bytes each, ";
    std::cout << format_bytes(layer.expert_bytes);
    if (layer.resident_bytes != 0) {
      std::cout << ", residents " << format_bytes(layer.resident_bytes);
    }
    std::cout << (last > first ? " a layer\n" : "\n");
    first = last + 1;
  }
}

void print_config(const ModelConfig& c) {
  const std::uint32_t full = c.full_attention_layers();
  const std::uint32_t latent = c.layers_of(LayerType::kLatentAttention);
  std::cout << "model: " << printable(c.model_type) << ", " << c.num_layers << " layers, "
            << (latent != 0 ? latent : full) << " of them " << (latent != 0 ? "latent" : "full")
            << " attention, hidden size " << c.hidden_size << ", vocabulary " << c.vocab_size
            << "\nexperts: " << c.num_experts << " a layer, " << c.experts_per_token
            << " a token, width " << c.expert_width;
  if (c.shared_expert_width != 0) std::cout << ", shared expert " << c.shared_expert_width;
  std::cout << "\n";
}

void print_checkpoint(const CheckpointSummary& c) {
  std::cout << "tensors: " << c.num_tensors << " in " << c.num_files
            << (c.num_files == 1 ? " file, " : " files, ") << format_bytes(c.bytes) << " ("
            << tally_text(c.dtypes) << ")\nfingerprint: " << checksum_text(c.fingerprint) << "\n";
  if (!c.problem.empty()) std::cout << "cannot be converted: " << c.problem << "\n";
  if (!c.layers.empty()) {
    std::cout << "expert matrices: " << format_bytes(c.expert_bytes) << " ("
              << tally_text(c.expert_formats)
              << ")\nresident tensors: " << format_bytes(c.resident_bytes) << " ("
              << tally_text(c.resident_formats) << ")\n";
  }
  print_names("skipped tensors: ", c.skipped_tensors);
  print_layers(c.layers);
}

void print_gguf(const GgufSummary& g) {
  std::cout << "GGUF version " << g.version << (g.is_big_endian ? ", big-endian" : "") << ", "
            << (g.architecture.empty() ? "architecture unknown" : printable(g.architecture));
  if (!g.name.empty()) std::cout << ", " << printable(g.name);
  std::cout << "\ntensors: " << g.num_tensors << " in " << g.files.size()
            << (g.files.size() == 1 ? " file, " : " files, ") << format_bytes(g.bytes) << " ("
            << tally_text(g.types) << ")\nfingerprint: " << checksum_text(g.fingerprint) << "\n";
  if (!g.problem.empty()) std::cout << "experts: " << g.problem << "\n";
  for (const GgufLayerSummary& layer : g.layers) {
    std::cout << "  layer " << layer.layer << ": " << layer.num_experts << " experts, "
              << layer.expert_formats << ", " << format_bytes(layer.expert_bytes) << "\n";
  }
  std::cout << "metadata:\n";
  for (const GgufKeySummary& key : g.metadata) {
    std::cout << "  " << printable(key.key) << ": " << key.value;
    std::cout << (key.is_array ? "\n" : " (" + key.type + ")\n");
  }
}

void print_pack(const PackSummary& p) {
  std::cout << "pack " << printable(p.name) << ": " << p.num_layers << " layers x " << p.num_experts
            << " experts, hidden size " << p.hidden_size << ", expert width " << p.expert_width
            << ", " << format_bytes(p.bytes) << "\n  matrices: " << tally_text(p.formats)
            << "\n  records: " << p.expert_size << " bytes in " << p.expert_stride << ", page size "
            << p.page_size;
  if (p.num_layouts > 1) std::cout << ", " << p.num_layouts << " layouts";
  std::cout << "\n  checksums: " << (p.has_checksums ? "present" : "none; moepack import adds them")
            << "\n";
  if (!p.source.name.empty()) {
    std::cout << "  source: " << printable(p.source.name) << ", fingerprint "
              << (p.source.fingerprint == 0 ? "unknown" : checksum_text(p.source.fingerprint))
              << ", method " << printable(p.source.method) << "\n";
  }
  print_names("  skipped tensors: ", p.skipped_tensors);
  for (const std::string& note : p.notes) std::cout << "  note: " << printable(note, 1024) << "\n";
  print_layers(p.layers);
  if (p.quality.has_value()) print_quality(*p.quality);
}

Status print_text(const Inspection& found, bool tensors) {
  std::cout << printable(found.path, 4096) << ": " << path_kind_name(found.kind)
            << (found.unfinished
                    ? ", unfinished: " + found.unfinished_by + " has not come to its end\n"
                    : "\n");
  if (found.config.has_value()) print_config(*found.config);
  if (found.checkpoint.has_value()) print_checkpoint(*found.checkpoint);
  if (found.gguf.has_value()) print_gguf(*found.gguf);
  if (found.residents.has_value()) {
    const ResidentSummary& r = *found.residents;
    std::cout << "resident tensors: " << r.num_tensors << ", " << format_bytes(r.bytes) << " ("
              << tally_text(r.formats) << ")"
              << (r.has_checksum ? "\n" : ", no checksum; moepack import adds it\n");
  }
  if (found.prediction.has_value()) {
    const PredictionSummary& p = *found.prediction;
    std::cout << "prediction tensors: " << p.num_tensors << ", " << format_bytes(p.bytes) << " ("
              << tally_text(p.types) << ")"
              << (p.quantization.empty() ? "" : ", " + printable(p.quantization)) << "\n";
  }
  for (const OverlaySummary& overlay : found.overlays) {
    std::cout << "overlay " << overlay.group << ": " << printable(overlay.name) << ", "
              << overlay.matrices << (overlay.matrices == 1 ? " matrix, " : " matrices, ")
              << format_bytes(overlay.bytes) << " (" << tally_text(overlay.formats) << ")"
              << (overlay.source.empty() ? "" : ", from " + printable(overlay.source)) << "\n";
  }
  for (const PackSummary& pack : found.packs) print_pack(pack);
  print_names("absent files: ", found.absent_files);
  for (const std::string& note : found.notes) std::cout << "note: " << note << "\n";
  if (!tensors) return Status::ok();
  return list_tensors(found.path, [](const ListedTensor& t) {
    std::cout << printable(t.name) << "  " << t.dtype << " " << shape_text(t.shape)
              << (t.format.empty() ? "" : "  " + t.format) << "  " << printable(t.file) << " at "
              << t.offset << ", " << t.bytes << " bytes\n";
  });
}

Status run_inspect(const InspectFlags& flags) {
  MOE_ASSIGN_OR_RETURN(const Inspection found, inspect_path(flags.path, flags.worst));
  return flags.json ? print_json(found, flags.tensors) : print_text(found, flags.tensors);
}

}  // namespace

void register_inspect(CLI::App& app, Action& action) {
  auto flags = std::make_shared<InspectFlags>();
  CLI::App* command = app.add_subcommand(
      "inspect", "Say what is in a checkpoint, a GGUF file, a model directory or a pack");
  command
      ->add_option("path", flags->path,
                   "Checkpoint, safetensors or GGUF file, model directory or pack directory")
      ->required();
  command->add_flag("--tensors", flags->tensors,
                    "List every tensor: name, type, shape, file, offset, bytes");
  command
      ->add_option("--worst", flags->worst,
                   "How many of the worst matrices of a pack to list, where it says")
      ->check(whole_number(0, kMaxCount))
      ->capture_default_str();
  command->add_flag("--json", flags->json, "Print one JSON object");
  set_action(*command, action, flags, run_inspect);
}

}  // namespace moepack::cli
