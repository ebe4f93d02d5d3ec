// Writes a Qwen3.5-MoE checkpoint of any size with random weights, so that measurements on models
// larger than memory need no download. The same flags and seed give the same bytes, for any number
// of threads.
#include <CLI/CLI.hpp>
#include <chrono>
#include <iostream>
#include <map>

#include "bench/byte_tokenizer.h"
#include "bench/checkpoint_shape.h"
#include "bench/checkpoint_tensors.h"
#include "bench/checkpoint_writer.h"
#include "convert/job/parallel.h"
#include "formats/base/file.h"

namespace moepack::bench {
namespace {

namespace fs = std::filesystem;

struct Flags {
  std::string output;
  std::string preset{kPresets.front()};
  CheckpointForm form = CheckpointForm::kBf16Fused;
  std::map<std::string, std::uint32_t> overrides;  // by option name; what was given
  double shard_gb = 5;
  double header_mb = 0;
  bool header_tensors = false;
  bool odd_offsets = false;
  bool skipped = false;
  std::uint64_t seed = 1;
  unsigned threads = 0;
  bool dry_run = false;
};

const std::map<std::string, CheckpointForm> kForms{{"bf16", CheckpointForm::kBf16},
                                                   {"bf16-fused", CheckpointForm::kBf16Fused},
                                                   {"mlx-4bit", CheckpointForm::kMlx4Bit}};

struct Dimension {
  const char* option;
  std::uint32_t ModelConfig::*field;
  const char* help;
};
constexpr Dimension kDimensions[] = {
    {"--experts", &ModelConfig::num_experts, "Routed experts of a layer"},
    {"--experts-per-token", &ModelConfig::experts_per_token, "Experts that a token uses"},
    {"--hidden", &ModelConfig::hidden_size, "Hidden size"},
    {"--expert-width", &ModelConfig::expert_width, "Width of a routed expert"},
    {"--shared-width", &ModelConfig::shared_expert_width, "Width of the shared expert"},
    {"--heads", &ModelConfig::num_heads, "Query heads"},
    {"--kv-heads", &ModelConfig::num_kv_heads, "Key and value heads"},
    {"--head-dim", &ModelConfig::head_dim, "Width of an attention head"},
    {"--linear-key-heads", &ModelConfig::linear_key_heads, "Key heads of GatedDeltaNet"},
    {"--linear-value-heads", &ModelConfig::linear_value_heads, "Value heads of GatedDeltaNet"},
    {"--linear-key-dim", &ModelConfig::linear_key_dim, "Width of a GatedDeltaNet key head"},
    {"--linear-value-dim", &ModelConfig::linear_value_dim, "Width of a GatedDeltaNet value head"},
    {"--vocab", &ModelConfig::vocab_size, "Rows of the embedding and of the head"},
};

void add_flags(CLI::App& app, Flags& flags) {
  app.add_option("-o,--output", flags.output, "The directory to write: new or empty")->required();
  app.add_option("--preset", flags.preset, "Shape to start from")
      ->check(CLI::IsMember(std::vector<std::string>(kPresets.begin(), kPresets.end())))
      ->capture_default_str();
  app.add_option("--form", flags.form, "bf16: one tensor per expert; bf16-fused: as on the hub")
      ->transform(CLI::CheckedTransformer(kForms));
  app.add_option("--layers", flags.overrides["--layers"], "Layers; every fourth is full attention")
      ->check(CLI::Range(1, 4096));
  for (const Dimension& dimension : kDimensions) {
    app.add_option(dimension.option, flags.overrides[dimension.option], dimension.help)
        ->check(CLI::Range(1, 1 << 24));
  }
  app.add_option("--shard-gb", flags.shard_gb, "Largest shard in GB (1e9)")
      ->check(CLI::Range(1e-6, 1e6))
      ->capture_default_str();
  app.add_option("--header-mb", flags.header_mb, "Pad the first header to this many MB (1e6)")
      ->check(CLI::Range(0.0, 100.0));
  app.add_flag("--header-tensors", flags.header_tensors,
               "Fill --header-mb with tensors of one element instead of spaces");
  app.add_flag("--odd-offsets", flags.odd_offsets, "Leave headers unpadded: data at odd offsets");
  app.add_flag("--skipped-tensors", flags.skipped, "Add small vision and MTP tensors");
  app.add_option("--seed", flags.seed, "Seed of all values")->capture_default_str();
  app.add_option("-t,--threads", flags.threads, "Threads; 0: one per processor")
      ->check(CLI::Range(0, 1024));
  app.add_flag("--dry-run", flags.dry_run, "Print the sizes; write nothing");
}

ModelConfig shape_of(const Flags& flags) {
  ModelConfig shape = *preset_shape(flags.preset);
  const auto given = [&](const char* option, std::uint32_t& field) {
    if (const std::uint32_t value = flags.overrides.at(option); value != 0) field = value;
  };
  for (const Dimension& dimension : kDimensions) given(dimension.option, shape.*dimension.field);
  std::uint32_t layers = shape.num_layers;
  given("--layers", layers);
  set_layers(layers, shape);
  shape.rotary_dim = std::max(2U, shape.head_dim / 8 * 2);  // a quarter, even
  shape.eos_token_ids = {kEndOfText};
  return shape;
}

// Adds as many fillers as bring the first header close below the size that was asked for.
void add_fillers(const Flags& flags, const ShardOptions& options,
                 std::vector<TensorSpec>& tensors) {
  const std::vector<Shard> shards = plan_shards(tensors, options);
  std::uint64_t size = shard_header(std::span(tensors).first(shards.front().count)).size();
  std::vector<TensorSpec> fillers;
  while (true) {
    TensorSpec filler = filler_tensor(fillers.size(), flags.form);
    // Offsets behind the fillers grow by their digits; 200 bytes are more than any entry.
    const std::uint64_t entry = shard_header({&filler, 1}).size();
    if (size + entry + 200 + 24 * shards.front().count > options.header_bytes) break;
    size += entry;
    fillers.push_back(std::move(filler));
  }
  tensors.insert(tensors.begin(), std::make_move_iterator(fillers.begin()),
                 std::make_move_iterator(fillers.end()));
}

Status prepare_directory(const fs::path& path, std::uint64_t bytes) {
  std::error_code error;
  fs::create_directories(path, error);
  if (!fs::is_directory(path, error) || !fs::is_empty(path, error)) {
    return make_error(StatusCode::kInvalidArgument, Where{.file = path.string()},
                      "is not an empty directory", "name another one");
  }
  const fs::space_info space = fs::space(path, error);
  if (!error && space.available < bytes) {
    return make_error(StatusCode::kIo, Where{.file = path.string()},
                      "has " + std::to_string(space.available) + " bytes free, " +
                          std::to_string(bytes) + " are needed");
  }
  return Status::ok();
}

Status run(const Flags& flags) {
  const ModelConfig shape = shape_of(flags);
  if (shape.vocab_size < kTokens) {
    return invalid_argument("--vocab is below the " + std::to_string(kTokens) +
                            " tokens of the tokenizer");
  }
  MOE_ASSIGN_OR_RETURN(const std::string config, config_json(shape, flags.form));
  MOE_ASSIGN_OR_RETURN(std::vector<TensorSpec> tensors, checkpoint_tensors(shape, flags.form));
  if (flags.skipped) {
    for (TensorSpec& tensor : skipped_tensors(shape, flags.form)) {
      tensors.push_back(std::move(tensor));
    }
  }
  ShardOptions options;
  options.shard_bytes = static_cast<std::uint64_t>(flags.shard_gb * 1e9);
  options.header_bytes = static_cast<std::uint64_t>(flags.header_mb * 1e6);
  options.odd_offsets = flags.odd_offsets;
  options.threads = thread_count(flags.threads);
  if (flags.header_tensors) add_fillers(flags, options, tensors);

  const std::vector<Shard> shards = plan_shards(tensors, options);
  std::uint64_t total = 0;
  for (const Shard& shard : shards) total += shard.data_bytes;
  std::cerr << tensors.size() << " tensors, " << static_cast<double>(total) / 1e9 << " GB in "
            << shards.size() << " shards\n";
  if (flags.dry_run) return Status::ok();
  const fs::path directory = flags.output;
  MOE_RETURN_IF_ERROR(prepare_directory(directory, total));
  MOE_RETURN_IF_ERROR(write_text_file(directory / "config.json", config));
  MOE_RETURN_IF_ERROR(write_byte_tokenizer(directory));
  const RandomValues values(flags.seed, tensors);
  const auto start = std::chrono::steady_clock::now();
  std::uint64_t written = 0;
  return write_shards(tensors, shards, values, directory, options, [&](const Shard& shard) {
    written += shard.data_bytes;
    const std::chrono::duration<double> time = std::chrono::steady_clock::now() - start;
    std::cerr << shard.file << ": " << static_cast<double>(written) / 1e9 << " GB, "
              << static_cast<double>(written) / 1e9 / time.count() << " GB/s\n";
  });
}

}  // namespace
}  // namespace moepack::bench

int main(int argc, char** argv) {
  CLI::App app("Write a Qwen3.5-MoE checkpoint with random weights", "make_checkpoint");
  moepack::bench::Flags flags;
  moepack::bench::add_flags(app, flags);
  CLI11_PARSE(app, argc, argv);
  try {
    const moepack::Status status = moepack::bench::run(flags);
    if (status.is_ok()) return 0;
    std::cerr << "make_checkpoint: " << status.message() << "\n";
  } catch (const std::exception& error) {
    std::cerr << "make_checkpoint: " << error.what() << "\n";
  }
  return 2;
}
