#include "convert/source/model_source.h"

#include <algorithm>
#include <system_error>

#include "convert/source/gguf_config.h"
#include "convert/source/gguf_tokenizer.h"
#include "convert/source/path_kind.h"
#include "convert/source/tiktoken_tokenizer.h"
#include "formats/base/paths.h"
#include "formats/config/companion_files.h"

namespace moepack {
namespace {

namespace fs = std::filesystem;

// In HuggingFace's cache the directory's own name is a commit, and the model's stands two levels
// up.
std::string checkpoint_name(const fs::path& directory) {
  fs::path path = without_trailing_slash(directory);
  if (path.filename() == "." || path.filename() == "..") {
    std::error_code error;
    const auto absolute = fs::canonical(path, error);
    if (!error) path = absolute;
  }
  if (path.parent_path().filename() != "snapshots") return path.filename().string();
  std::string name = path.parent_path().parent_path().filename().string();
  constexpr std::string_view kPrefix = "models--";
  if (name.starts_with(kPrefix)) name.erase(0, kPrefix.size());
  return name;
}

}  // namespace

Result<ModelSource> ModelSource::of(GgufModel model) {
  ModelSource source;
  source.gguf_ = std::make_unique<GgufModel>(std::move(model));
  MOE_ASSIGN_OR_RETURN(source.names_, gguf_architecture(*source.gguf_));
  MOE_ASSIGN_OR_RETURN(source.config_text_, gguf_config_text(*source.gguf_, *source.names_));
  MOE_ASSIGN_OR_RETURN(source.config_,
                       parse_model_config(source.config_text_, source.path().string()));
  return source;
}

Status ModelSource::open_checkpoint(const fs::path& path, const fs::path& saved_headers) {
  MOE_ASSIGN_OR_RETURN(Checkpoint checkpoint, Checkpoint::open(path, saved_headers));
  checkpoint_ = std::make_unique<Checkpoint>(std::move(checkpoint));
  config_ = checkpoint_->config();
  names_ = find_architecture(config_.model.model_type);
  if (names_ != nullptr) return Status::ok();
  return unsupported(
      Where{.file = this->path().string()},
      "model type " + printable(config_.model.model_type) + " cannot be converted yet");
}

Result<ModelSource> ModelSource::open(const fs::path& path, const fs::path& saved_headers) {
  if (has_gguf_name(path)) {
    MOE_ASSIGN_OR_RETURN(GgufModel model, GgufModel::open(path));
    return of(std::move(model));
  }
  ModelSource source;
  MOE_RETURN_IF_ERROR(source.open_checkpoint(path, saved_headers));
  return source;
}

SourceNaming ModelSource::naming() const { return {path().string(), gguf_ != nullptr, *names_}; }

fs::path ModelSource::path() const {
  return gguf_ != nullptr ? fs::path(gguf_->parts().front().file().path())
                          : checkpoint_->directory();
}

std::string ModelSource::name() const {
  return gguf_ != nullptr ? path().filename().string() : checkpoint_name(path());
}

std::uint64_t ModelSource::fingerprint() const {
  return gguf_ != nullptr ? gguf_->fingerprint() : checkpoint_->fingerprint();
}

Status ModelSource::check_usable_in_place() const {
  if (gguf_ == nullptr) return Status::ok();
  for (const GgufFile& part : gguf_->parts()) {
    if (!part.is_big_endian()) continue;
    return unsupported(
        Where{.file = part.file().path()},
        "is a big-endian file: convert reads it, and extract by the file's own names",
        "convert it and use the model directory");
  }
  return Status::ok();
}

Status ModelSource::check_family(std::string_view model_type, std::string_view remedy) const {
  if (find_architecture(model_type) == names_) return Status::ok();
  const std::string file = path().string();
  return make_error(StatusCode::kInvalidArgument, Where{.file = file},
                    "is of model type " + printable(config_.model.model_type) + ", the model of " +
                        printable(model_type),
                    remedy);
}

Result<std::vector<Companion>> ModelSource::companions(std::vector<std::string>& absent,
                                                       std::vector<std::string>& notes) const {
  if (gguf_ != nullptr) return rebuilt_companions(absent, notes);
  std::vector<Companion> found;
  for (const CompanionFile& companion : kCompanionFiles) {
    MOE_ASSIGN_OR_RETURN(const bool there, has_companion(path(), companion.name));
    if (there) {
      found.push_back({.name = companion.name, .file = path() / companion.name, .text = {}});
      continue;
    }
    std::optional<std::string> made;
    if (companion.name == std::string_view(kTokenizerName)) {
      MOE_ASSIGN_OR_RETURN(made,
                           tokenizer_from_other_files(path(), config_.model.vocab_size, notes));
    }
    if (made.has_value()) {
      found.push_back({.name = companion.name, .file = {}, .text = *std::move(made)});
    } else {
      absent.emplace_back(companion.name);
    }
  }
  return found;
}

Result<std::vector<Companion>> ModelSource::rebuilt_companions(
    std::vector<std::string>& absent, std::vector<std::string>& notes) const {
  std::vector<Companion> found;
  found.push_back({.name = "config.json", .file = {}, .text = config_text_});
  MOE_ASSIGN_OR_RETURN(std::vector<NamedText> texts, gguf_tokenizer_files(*gguf_));
  std::size_t other_templates = 0;
  for (NamedText& text : texts) {
    if (text.name.find('/') != std::string::npos) {
      ++other_templates;  // a model directory has one chat template
      continue;
    }
    found.push_back({.name = std::move(text.name), .file = {}, .text = std::move(text.text)});
  }
  for (const CompanionFile& known : kCompanionFiles) {
    const auto is_it = [&](const Companion& companion) { return companion.name == known.name; };
    if (std::none_of(found.begin(), found.end(), is_it)) absent.emplace_back(known.name);
  }
  if (other_templates > 0) {
    notes.push_back("chat templates with names of their own are left out: " +
                    std::to_string(other_templates));
  }
  return found;
}

}  // namespace moepack
