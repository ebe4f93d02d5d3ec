#include "runtime/corpus/profile.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "formats/base/bytes.h"
#include "formats/base/elapsed.h"
#include "formats/base/paths.h"
#include "formats/model_dir.h"
#include "runtime/model/available_memory.h"
#include "runtime/model/token_ids.h"

namespace moepack {
namespace {

// Everything that is settled before anything is computed.
struct Job {
  ModelDir model;
  CorpusOptions corpus;
  std::vector<TextWindow> windows;
  std::vector<std::size_t> batch_ends;  // index of the window after each batch
  std::uint64_t tokens = 0;             // of all windows
  ProfileReport report;
};

// Groups the windows into batches of at most `most` tokens; returns the tokens of the largest.
std::uint64_t make_batches(std::uint64_t most, Job& job) {
  std::uint64_t largest = 0;
  std::uint64_t in_batch = 0;
  for (std::size_t i = 0; i < job.windows.size(); ++i) {
    if (in_batch > 0 && in_batch + job.windows[i].count > most) {
      job.batch_ends.push_back(i);
      in_batch = 0;
    }
    in_batch += job.windows[i].count;
    largest = std::max(largest, in_batch);
  }
  job.batch_ends.push_back(job.windows.size());
  return largest;
}

Status plan_memory_of(const ProfileOptions& options, Job& job) {
  const CorpusMemory memory = corpus_memory(job.model, job.corpus);
  const std::uint64_t most = options.ram_bytes / memory.per_token_bytes;
  if (most < job.corpus.context) {
    return invalid_argument("a window of " + std::to_string(job.corpus.context) + " tokens takes " +
                                std::to_string(job.corpus.context * memory.per_token_bytes) +
                                " bytes, " + std::to_string(options.ram_bytes) + " are allowed",
                            "give a larger --ram-mb or a smaller -c");
  }
  job.report.memory_bytes = memory.total_bytes(make_batches(most, job));
  const std::optional<std::uint64_t> available = available_memory_bytes();
  if (!available.has_value()) return Status::ok();
  const std::uint64_t usable = *available - *available / kCorpusReserveDivisor;
  if (job.report.memory_bytes <= usable) return Status::ok();
  return invalid_argument("the profile takes " + std::to_string(job.report.memory_bytes) +
                              " bytes of memory, " + std::to_string(usable) + " can be used",
                          "give a smaller --ram-mb");
}

// Of all layers but the last: what the last adds to the hidden states is not needed.
std::uint64_t record_bytes(const PackManifest& pack) {
  std::uint64_t bytes = 0;
  for (std::uint32_t l = 0; l + 1 < pack.num_layers; ++l) {
    for (std::uint32_t e = 0; e < pack.experts_of(l); ++e)
      bytes += pack.layout_of(l, e).record_bytes;
  }
  return bytes;
}

Result<Job> prepare(const ProfileOptions& options,
                    std::span<const std::vector<std::int32_t>> texts) {
  if (options.context == 0) return invalid_argument("the context must be at least 1");
  Job job;
  std::vector<std::uint64_t> lengths;
  for (const std::vector<std::int32_t>& text : texts) {
    lengths.push_back(text.size());
    job.report.text_tokens += text.size();
  }
  job.windows = choose_text_windows(lengths, options.context, options.max_tokens);
  if (job.windows.empty())
    return invalid_argument("the text is empty", "give -f a text with words");
  MOE_ASSIGN_OR_RETURN(SelectedModel selected, open_selected_model(options));
  job.corpus.kernels = selected.kernels;
  job.model = std::move(selected.dir);
  const ModelConfig& config = job.model.config;
  for (const std::vector<std::int32_t>& text : texts) {
    MOE_RETURN_IF_ERROR(check_tokens(text, config.vocab_size));
  }
  job.corpus.threads = options.threads;
  job.corpus.context = 0;  // of the longest window
  for (const TextWindow& window : job.windows) {
    job.corpus.context = std::max(job.corpus.context, window.count);
    job.tokens += window.count;
  }
  MOE_RETURN_IF_ERROR(plan_memory_of(options, job));
  ProfileReport& report = job.report;
  report.kernels = job.corpus.kernels->name;
  report.windows = job.windows.size();
  report.batches = job.batch_ends.size();
  report.read_bytes = report.batches * record_bytes(job.model.pack);
  ExpertProfile& profile = report.profile;
  profile.model = directory_name(options.model);
  profile.source_fingerprint = job.model.pack.source.fingerprint;
  profile.shape = {config.num_layers, config.num_experts};
  profile.experts_per_token = config.experts_per_token;
  profile.tokens = job.tokens;
  MOE_RETURN_IF_ERROR(check_expert_shape(profile.shape, options.model.string()));
  LayerProfile empty;
  empty.counts.resize(profile.shape.num_experts);
  empty.weight_sums.resize(profile.shape.num_experts);
  empty.weight_square_sums.resize(profile.shape.num_experts);
  profile.layers.assign(profile.shape.num_layers, empty);
  return job;
}

void count(const ExpertInputs& given, LayerProfile& layer) {
  for (const Assignment& use : given.routing) {
    const double weight = use.weight;
    ++layer.counts[use.expert];
    layer.weight_sums[use.expert] += weight;
    layer.weight_square_sums[use.expert] += weight * weight;
  }
}

class Profiler {
 public:
  Profiler(Job& job, CorpusForward& corpus,
           const std::function<void(const ProfileProgress&)>& progress)
      : job_(job), corpus_(corpus), progress_(progress) {
    const ExpertShape& shape = job_.report.profile.shape;
    shown_.tokens_total = job_.tokens * shape.num_layers;
    shown_.layers_total = static_cast<std::uint32_t>(job_.batch_ends.size()) * shape.num_layers;
  }

  Status run(std::span<const std::vector<std::int32_t>> texts) {
    std::size_t begin = 0;
    for (const std::size_t end : job_.batch_ends) {
      std::vector<std::int32_t> tokens;
      std::vector<TokenWindow> windows;
      for (const TextWindow& window : std::span(job_.windows).subspan(begin, end - begin)) {
        const auto of_text = std::span(texts[window.text]).subspan(window.first, window.count);
        windows.push_back({tokens.size(), window.count});
        tokens.insert(tokens.end(), of_text.begin(), of_text.end());
      }
      MOE_RETURN_IF_ERROR(run_batch(tokens, std::move(windows)));
      begin = end;
    }
    return Status::ok();
  }

 private:
  Status run_batch(std::span<const std::int32_t> tokens, std::vector<TokenWindow> windows) {
    MOE_RETURN_IF_ERROR(corpus_.start(tokens, std::move(windows)));
    ExpertProfile& profile = job_.report.profile;
    for (std::uint32_t l = 0; l < profile.shape.num_layers; ++l) {
      const auto sink = [&](const ExpertInputs& given) {
        count(given, profile.layers[l]);
        return Status::ok();
      };
      MOE_RETURN_IF_ERROR(corpus_.mix(l, sink));
      if (l + 1 < profile.shape.num_layers) MOE_RETURN_IF_ERROR(add_experts(l, tokens.size()));
      shown_.tokens_done = tokens_before_ * profile.shape.num_layers + tokens.size() * (l + 1);
      ++shown_.layers_done;
      if (progress_) progress_(shown_);
    }
    tokens_before_ += tokens.size();
    return Status::ok();
  }

  // Tells on the way how many tokens' worth of the layer is done.
  Status add_experts(std::uint32_t layer, std::uint64_t tokens) {
    const std::uint64_t before = shown_.tokens_done;
    const std::uint32_t top_k = job_.report.profile.experts_per_token;
    std::uint64_t uses = 0;
    return corpus_.add_experts(layer, [&](std::size_t done) {
      uses += done;
      shown_.tokens_done = before + std::min(tokens, uses / top_k);
      if (progress_) progress_(shown_);
    });
  }

  Job& job_;
  CorpusForward& corpus_;
  const std::function<void(const ProfileProgress&)>& progress_;
  ProfileProgress shown_;
  std::uint64_t tokens_before_ = 0;  // of finished batches
};

}  // namespace

std::vector<TextWindow> choose_text_windows(std::span<const std::uint64_t> text_tokens,
                                            std::uint32_t context, std::uint64_t max_tokens) {
  std::vector<TextWindow> all;
  std::vector<TextWindow> whole;
  std::uint64_t tokens = 0;
  for (std::size_t t = 0; t < text_tokens.size(); ++t) {
    for (std::uint64_t first = 0; first < text_tokens[t]; first += context) {
      all.push_back({t, first, std::min<std::uint64_t>(context, text_tokens[t] - first)});
      if (all.back().count == context) whole.push_back(all.back());
    }
    tokens += text_tokens[t];
  }
  if (max_tokens == 0 || tokens <= max_tokens) return all;
  const std::uint64_t wanted = div_up(max_tokens, context);
  const bool spread = wanted < whole.size();
  std::vector<TextWindow> chosen;
  std::uint64_t left = max_tokens;
  for (std::uint64_t i = 0; left > 0; ++i) {
    TextWindow window = spread ? whole[i * whole.size() / wanted] : all[i];
    window.count = std::min(window.count, left);
    left -= window.count;
    chosen.push_back(window);
  }
  return chosen;
}

Result<ProfileReport> plan_profile(const ProfileOptions& options,
                                   std::span<const std::vector<std::int32_t>> texts) {
  MOE_ASSIGN_OR_RETURN(Job job, prepare(options, texts));
  return std::move(job.report);
}

Result<ProfileReport> profile_experts(const ProfileOptions& options,
                                      std::span<const std::vector<std::int32_t>> texts,
                                      const std::function<void(const ProfileProgress&)>& progress) {
  const Clock::time_point start = Clock::now();
  MOE_ASSIGN_OR_RETURN(Job job, prepare(options, texts));
  MOE_ASSIGN_OR_RETURN(const std::unique_ptr<CorpusForward> corpus,
                       CorpusForward::open(job.model, job.corpus));
  MOE_RETURN_IF_ERROR(Profiler(job, *corpus, progress).run(texts));
  job.report.read_bytes = corpus->expert_stats().bytes_read;
  job.report.kernels = corpus->kernels_name();
  job.report.seconds = seconds_since(start);
  return std::move(job.report);
}

}  // namespace moepack
