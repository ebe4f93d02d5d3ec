#include "convert/quantize/imatrix_calibration.h"

#include <array>
#include <string_view>

#include "formats/base/file.h"
#include "formats/calibration/imatrix.h"
#include "formats/gguf/gguf.h"

namespace moepack {
namespace {

namespace fs = std::filesystem;

std::string weight_name(std::uint32_t layer, std::string_view matrix) {
  return "blk." + std::to_string(layer) + ".ffn_" + std::string(matrix) + "_exps.weight";
}

// Gate and up read the same inputs, so one entry tells of both.
constexpr std::array<std::string_view, 3> kGateUpNames{"gate", "up", "gate_up"};

struct Dimensions {
  std::uint32_t num_layers;
  std::uint32_t num_experts;
  std::uint64_t hidden_size;
  std::uint64_t expert_width;
  std::vector<bool> has_experts;  // [num_layers]
};

class ImatrixLayer : public LayerStatistics {
 public:
  ImatrixLayer(const Imatrix& imatrix, std::string gate_up, std::string down,
               const Dimensions& dims)
      : imatrix_(imatrix), gate_up_(std::move(gate_up)), down_(std::move(down)), dims_(dims) {}

  std::uint64_t samples(std::uint32_t expert) const override {
    const auto found = imatrix_.read(gate_up_, expert, dims_.num_experts, dims_.hidden_size);
    return found.is_ok() ? found.value().tokens : 0;  // the error comes from gate_up()
  }
  Result<InputStatistics> gate_up(std::uint32_t expert) const override {
    return diagonal(gate_up_, expert, dims_.hidden_size);
  }
  Result<DownProblem> down(std::uint32_t expert, const ExpertMatrices& weights,
                           const Matrix& /*stored_gate*/,
                           const Matrix& /*stored_up*/) const override {
    DownProblem problem;
    MOE_ASSIGN_OR_RETURN(problem.inputs, diagonal(down_, expert, dims_.expert_width));
    problem.target = weights.down;
    return problem;
  }

 private:
  Result<InputStatistics> diagonal(const std::string& weight, std::uint32_t expert,
                                   std::uint64_t inputs) const {
    InputStatistics out;
    MOE_ASSIGN_OR_RETURN(const Imatrix::Importance found,
                         imatrix_.read(weight, expert, dims_.num_experts, inputs));
    if (found.mean_square.empty()) return out;
    out.is_known = true;
    out.samples = found.tokens;
    const auto n = static_cast<Eigen::Index>(inputs);
    out.hessian = Matrix::Zero(n, n);
    out.hessian.diagonal() = Eigen::Map<const Eigen::VectorXf>(found.mean_square.data(), n);
    return out;
  }

  const Imatrix& imatrix_;
  std::string gate_up_;
  std::string down_;
  const Dimensions& dims_;
};

class ImatrixCalibration : public CalibrationInput {
 public:
  ImatrixCalibration(Imatrix imatrix, std::uint64_t digest, Dimensions dims)
      : imatrix_(std::move(imatrix)), digest_(digest), dims_(std::move(dims)) {}

  std::string description() const override { return imatrix_.path() + " (importance matrix)"; }
  std::uint64_t digest() const override { return digest_; }
  // The Hessians that two threads hold at a time.
  std::uint64_t layer_bytes() const override {
    const std::uint64_t widest = std::max(dims_.hidden_size, dims_.expert_width);
    return std::uint64_t{2 * 4} * widest * widest;
  }
  std::vector<std::uint64_t> samples(std::uint32_t layer) const override {
    if (!imatrix_.has_counts() || !dims_.has_experts[layer]) return {};
    const ImatrixLayer statistics = open_layer(layer);
    std::vector<std::uint64_t> out;
    for (std::uint32_t e = 0; e < dims_.num_experts; ++e) out.push_back(statistics.samples(e));
    return out;
  }
  std::vector<std::string> notes() const override {
    return {
        "an importance matrix knows how large each input is, not how inputs go together: gptq has "
        "nothing to compensate with, and errors are measured as if inputs were independent"};
  }
  Result<std::unique_ptr<LayerStatistics>> layer(std::uint32_t layer,
                                                 std::size_t /*threads*/) const override {
    return std::unique_ptr<LayerStatistics>(std::make_unique<ImatrixLayer>(open_layer(layer)));
  }

  // Checks that every layer has both entries, with the dimensions of this model.
  Status check() const {
    for (std::uint32_t l = 0; l < dims_.num_layers; ++l) {
      if (!dims_.has_experts[l]) continue;
      const std::string gate_up = gate_up_name(l);
      const std::string down = weight_name(l, "down");
      for (const std::string& name : {gate_up, down}) {
        if (imatrix_.has(name)) continue;
        return not_found(Where{.file = imatrix_.path(), .tensor = name},
                         "is missing in the importance matrix",
                         "make it with this model in GGUF form");
      }
      MOE_RETURN_IF_ERROR(imatrix_.read(gate_up, 0, dims_.num_experts, dims_.hidden_size).status());
      MOE_RETURN_IF_ERROR(imatrix_.read(down, 0, dims_.num_experts, dims_.expert_width).status());
    }
    return Status::ok();
  }

 private:
  std::string gate_up_name(std::uint32_t layer) const {
    for (std::string_view matrix : kGateUpNames) {
      std::string name = weight_name(layer, matrix);
      if (imatrix_.has(name)) return name;
    }
    return weight_name(layer, kGateUpNames.front());
  }
  ImatrixLayer open_layer(std::uint32_t layer) const {
    return {imatrix_, gate_up_name(layer), weight_name(layer, "down"), dims_};
  }

  Imatrix imatrix_;
  std::uint64_t digest_;
  Dimensions dims_;
};

}  // namespace

bool is_imatrix_file(const fs::path& path) {
  std::error_code ignored;
  if (!fs::is_regular_file(path, ignored)) return false;
  if (path.extension() == ".dat" || path.extension() == ".imatrix") return true;
  const auto file = File::open(path);
  return file.is_ok() && has_gguf_magic(file.value());
}

Result<std::unique_ptr<CalibrationInput>> open_imatrix(const fs::path& path,
                                                       const ModelConfig& config) {
  MOE_ASSIGN_OR_RETURN(Imatrix imatrix, Imatrix::open(path));
  MOE_ASSIGN_OR_RETURN(const std::uint64_t digest, imatrix.digest());
  Dimensions dims{.num_layers = config.num_layers,
                  .num_experts = config.num_experts,
                  .hidden_size = config.hidden_size,
                  .expert_width = config.expert_width,
                  .has_experts = {}};
  for (const LayerSpec& layer : config.layers) dims.has_experts.push_back(has_experts(layer));
  auto input = std::make_unique<ImatrixCalibration>(std::move(imatrix), digest, std::move(dims));
  MOE_RETURN_IF_ERROR(input->check());
  return std::unique_ptr<CalibrationInput>(std::move(input));
}

}  // namespace moepack
