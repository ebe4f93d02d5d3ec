#include "runtime/model/model_size.h"

#include <algorithm>
#include <map>
#include <vector>

namespace moepack {
namespace {

std::uint64_t bytes_of(const WeightFormat& format, std::uint64_t rows, std::uint64_t cols) {
  return matrix_bytes(format, rows, cols).value_or(MatrixBytes{}).total();
}

// Adds to a size what every token reads whole.
class ResidentSum {
 public:
  explicit ResidentSum(ModelSize& size) : size_(size) {}

  void add(const QMatrixView& w) { add(bytes_of(w.format, w.rows, w.cols), w.rows * w.cols); }
  void add(const std::vector<float>& v) { add(v.size() * sizeof(float), v.size()); }

  void add(const LayerWeights& w) {
    visit_tensors(w, [this](const auto& tensor) { add(tensor); });
  }

 private:
  void add(std::uint64_t bytes, std::uint64_t parameters) {
    size_.bytes += bytes;
    size_.parameters += parameters;
    size_.token_bytes += bytes;
  }

  ModelSize& size_;
};

void add_experts(const ModelConfig& config, const PackManifest& pack, ModelSize& size) {
  std::map<std::string, std::uint64_t> formats;  // bytes
  std::uint64_t all_records = 0;
  std::uint64_t experts = 0;
  for (const LayerEntry& layer : pack.layers) {
    std::uint64_t records = 0;
    for (const ExpertEntry& expert : layer.experts) {
      const ExpertLayout& layout = pack.layouts[expert.layout];
      records += layout.record_bytes;
      for (const ProjectionLayout& p : layout.projections) {
        size.parameters += p.rows * p.cols;
        formats[to_string(p.format)] += p.bytes.total();
      }
    }
    size.bytes += records;
    all_records += records;
    experts += layer.experts.size();
    if (!layer.experts.empty()) {
      size.token_bytes += records * config.experts_per_token / layer.experts.size();
    }
  }
  if (experts != 0) size.record_bytes = all_records / experts;
  const auto most = std::max_element(formats.begin(), formats.end(),
                                     [](auto& a, auto& b) { return a.second < b.second; });
  if (most != formats.end()) size.expert_format = most->first;
}

}  // namespace

ModelSize model_size(const ModelConfig& config, const ModelWeights& weights,
                     const PackManifest& pack) {
  ModelSize size;
  ResidentSum residents(size);
  residents.add(weights.lm_head);
  residents.add(weights.final_norm);
  for (const LayerWeights& layer : weights.layers) residents.add(layer);
  add_experts(config, pack, size);
  const QMatrixView& embedding = weights.embedding;
  size.token_bytes += bytes_of(embedding.format, 1, embedding.cols);
  if (embedding.codes() != weights.lm_head.codes()) {
    size.bytes += bytes_of(embedding.format, embedding.rows, embedding.cols);
    size.parameters += embedding.rows * embedding.cols;
  }
  return size;
}

}  // namespace moepack
