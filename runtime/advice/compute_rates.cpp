#include "runtime/advice/compute_rates.h"

#include <algorithm>
#include <cstring>
#include <vector>

#include "formats/base/bytes.h"
#include "formats/base/elapsed.h"
#include "formats/base/file.h"
#include "formats/config/architecture.h"
#include "runtime/model/activations.h"
#include "runtime/model/available_memory.h"
#include "runtime/model/compute.h"
#include "runtime/model/expert_tasks.h"
#include "runtime/speed/read_rate.h"

namespace moepack {
namespace {

constexpr std::uint64_t kMostBytes = std::uint64_t{256} << 20;
constexpr std::uint64_t kMemoryShare = 8;
constexpr std::size_t kAlignment = 4096;
// Every byte of the made-up weights: small numbers in each float type, and codes in all others.
constexpr int kFill = 0x3C;
// Times the time that was asked for.
constexpr double kLongPass = 3;

// A matrix of the residents that every token multiplies with.
struct Matrix {
  WeightFormat format;
  std::uint64_t rows = 0;
  std::uint64_t cols = 0;
  std::uint64_t bytes = 0;
};

std::vector<Matrix> resident_matrices(const ModelDir& dir, std::uint64_t most_bytes) {
  std::vector<Matrix> matrices;
  const auto names = architecture_of(dir.config);
  const ResidentRule* embedding =
      names.is_ok() ? find_rule(*names.value(), ModuleRole::kEmbedding) : nullptr;
  for (const ResidentTensor& tensor : dir.residents.tensors) {
    const bool is_table = embedding != nullptr && tensor.name == embedding->name;
    if (tensor.shape.size() != 2 || (is_table && !dir.config.tie_word_embeddings)) continue;
    Matrix matrix{tensor.format, tensor.rows, tensor.cols, tensor.bytes.total()};
    if (matrix.bytes > most_bytes) {
      const std::uint64_t parts = div_up(matrix.bytes, most_bytes);
      matrix.rows = std::max<std::uint64_t>(1, matrix.rows / parts / kCodeRows * kCodeRows);
      matrix.bytes =
          matrix_bytes(matrix.format, matrix.rows, matrix.cols).value_or(MatrixBytes{}).total();
    }
    if (matrix.bytes != 0 && matrix.bytes <= most_bytes) matrices.push_back(matrix);
  }
  return matrices;
}

QMatrixView view_at(const Matrix& matrix, const std::byte* at) {
  QMatrixView view{.format = matrix.format, .rows = matrix.rows, .cols = matrix.cols};
  const MatrixBytes bytes =
      matrix_bytes(matrix.format, matrix.rows, matrix.cols).value_or(MatrixBytes{});
  for (const Component c : stored_components(matrix.format)) {
    view.data[c] = at;
    at += bytes[c];
  }
  return view;
}

// Places of so many bytes in a buffer, one after the other and again from the start.
class Places {
 public:
  explicit Places(std::span<const std::byte> memory) : memory_(memory) {}

  const std::byte* next(std::uint64_t bytes) {
    if (at_ + bytes > memory_.size()) at_ = 0;
    const std::byte* const place = memory_.data() + at_;
    at_ = align_up(at_ + bytes, kAlignment);
    return place;
  }

 private:
  std::span<const std::byte> memory_;
  std::uint64_t at_ = 0;
};

// Of repeated measurements one that few are above: what else ran on the machine only lowers them.
double rate_of(std::vector<double>& rates) {
  if (rates.empty()) return 0;
  const auto place = rates.begin() + static_cast<std::ptrdiff_t>(rates.size() * 3 / 4);
  std::nth_element(rates.begin(), place, rates.end());
  return *place;
}

class RateMeasurement {
 public:
  RateMeasurement(const ModelDir& dir, const ComputeProbe& probe, Activations scratch,
                  AlignedBuffer weights)
      : dir_(dir),
        probe_(probe),
        scratch_(std::move(scratch)),
        weights_(std::move(weights)),
        compute_(*probe.kernels, probe.threads, scratch_.matmul_scratch, scratch_.input_scratch()) {
    compute_.pool().parallel_for(weights_.size(), std::size_t{1} << 20,
                                 [&](std::size_t begin, std::size_t end, std::size_t) {
                                   std::memset(weights_.data() + begin, kFill, end - begin);
                                 });
  }

  double residents() {
    const std::vector<Matrix> matrices = resident_matrices(dir_, weights_.size());
    if (matrices.empty()) return 0;
    std::uint64_t most_rows = 0;
    std::uint64_t most_cols = 0;
    for (const Matrix& matrix : matrices) {
      most_rows = std::max(most_rows, matrix.rows);
      most_cols = std::max(most_cols, matrix.cols);
    }
    const std::vector<float> x(most_cols, 1.0F);
    std::vector<float> y(most_rows);
    Places places(weights_.span());
    std::vector<double> rates;
    for (double spent = 0; rates.empty() || spent * 1000 < probe_.milliseconds;) {
      double seconds = 0;
      double bytes = 0;
      for (const Matrix& matrix : matrices) {
        const QMatrixView view = view_at(matrix, places.next(matrix.bytes));
        const Clock::time_point start = Clock::now();
        compute_.matmul(view, x.data(), 1, y.data());
        seconds += seconds_since(start);
        bytes += static_cast<double>(matrix.bytes);
        // Of a very large model a part of a pass will do.
        if (seconds * 1000 > kLongPass * probe_.milliseconds) break;
      }
      spent += seconds;
      if (seconds > 0) rates.push_back(bytes / seconds);
    }
    return rate_of(rates);
  }

  double experts() {
    const std::size_t used = dir_.config.experts_per_token;
    const ExpertLayout& layout = dir_.pack.layouts.front();
    const std::vector<float> u(dir_.config.hidden_size, 1.0F);
    Places places(weights_.span());
    ExpertTasks tasks;
    std::vector<double> rates;
    for (double spent = 0; rates.size() < 3 || spent * 1000 < probe_.milliseconds;) {
      const Clock::time_point start = Clock::now();
      const RowInputs x =
          compute_.has_blocks() ? compute_.quantize(u.data(), u.size(), 1) : RowInputs{u.data()};
      tasks.clear();
      for (std::size_t k = 0; k < used; ++k) {
        tasks.add(work_of(layout, places.next(layout.record_bytes), k, x));
      }
      tasks.activate(compute_);
      tasks.project_together(compute_, [](std::size_t, std::size_t) {});
      const double seconds = seconds_since(start);
      spent += seconds;
      const auto bytes = static_cast<double>(used * layout.record_bytes);
      if (seconds > 0) rates.push_back(bytes / seconds);
    }
    return rate_of(rates);
  }

 private:
  ExpertWork work_of(const ExpertLayout& layout, const std::byte* record, std::size_t k,
                     const RowInputs& x) {
    const std::size_t hidden = dir_.config.hidden_size;
    const std::size_t width = dir_.config.expert_width;
    ExpertWork work{.gate = layout.view(Projection::kGate, record),
                    .up = layout.view(Projection::kUp, record),
                    .down = layout.view(Projection::kDown, record),
                    .tokens = 1,
                    .x = x,
                    .activated = scratch_.gate.data() + k * width,
                    .raised = scratch_.up.data() + k * width,
                    .result = scratch_.results.data() + k * hidden};
    if (x.blocks != nullptr) {
      work.activated_blocks = scratch_.expert_blocks.data() + k * compute_.token_stride(width);
      work.activated_rows = scratch_.expert_rows.data() + k;
    }
    return work;
  }

  const ModelDir& dir_;
  const ComputeProbe& probe_;
  Activations scratch_;
  AlignedBuffer weights_;
  Compute compute_;
};

std::uint64_t buffer_bytes(const ModelDir& dir) {
  std::uint64_t bytes = kMostBytes;
  if (const auto available = available_memory_bytes(); available.has_value()) {
    bytes = std::min(bytes, *available / kMemoryShare);
  }
  std::uint64_t record = 0;
  for (const ExpertLayout& layout : dir.pack.layouts) {
    record = std::max(record, align_up(layout.record_bytes, kAlignment));
  }
  return align_up(std::max(bytes, record * dir.config.experts_per_token), kAlignment);
}

}  // namespace

Result<ComputeRates> measure_compute_rates(const ModelDir& dir, const ComputeProbe& probe) {
  ComputeRates rates;
  MOE_ASSIGN_OR_RETURN(rates.memory, measure_read_rate(probe.threads));
  MOE_ASSIGN_OR_RETURN(AlignedBuffer weights,
                       AlignedBuffer::allocate(buffer_bytes(dir), kAlignment));
  MOE_ASSIGN_OR_RETURN(
      Activations scratch,
      Activations::create(
          dir.config,
          {.tokens = 1, .threads = probe.threads, .context = 1, .activations = probe.activations}));
  RateMeasurement running(dir, probe, std::move(scratch), std::move(weights));
  rates.residents = running.residents();
  rates.experts = running.experts();
  return rates;
}

}  // namespace moepack
