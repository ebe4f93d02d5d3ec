#include "quant/expert_damage.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <optional>

#include "quant/tile.h"

namespace moepack {
namespace {

// The indices of `count` out of `rows` rows, evenly spread.
std::vector<Eigen::Index> spread_rows(std::size_t rows, std::size_t count) {
  const std::size_t taken = count == 0 ? rows : std::min(rows, count);
  std::vector<Eigen::Index> out(taken);
  for (std::size_t i = 0; i < taken; ++i) {
    out[i] = static_cast<Eigen::Index>((2 * i + 1) * rows / (2 * taken));
  }
  return out;
}

// Rows that stand for others.
struct RowSample {
  std::vector<Eigen::Index> rows;
  std::vector<double> counts;  // how many rows each stands for, itself included
};

// Chooses `count` of the rows. Half of them are those with most energy, because a few may make up
// most of it; each of the others comes from one of equally large classes of similar energy.
RowSample sample_by_energy(const Eigen::VectorXf& energy, std::size_t count) {
  const auto rows = static_cast<std::size_t>(energy.size());
  std::vector<Eigen::Index> order(rows);
  std::iota(order.begin(), order.end(), Eigen::Index{0});
  std::stable_sort(order.begin(), order.end(),
                   [&](Eigen::Index a, Eigen::Index b) { return energy(a) > energy(b); });
  const std::size_t top = count == 0 || count >= rows ? rows : count / 2;
  RowSample out;
  for (std::size_t i = 0; i < top; ++i) {
    out.rows.push_back(order[i]);
    out.counts.push_back(1);
  }
  const std::size_t classes = top == rows ? 0 : count - top;
  for (std::size_t c = 0; c < classes; ++c) {
    const std::size_t begin = top + c * (rows - top) / classes;
    const std::size_t end = top + (c + 1) * (rows - top) / classes;
    out.rows.push_back(order[(begin + end) / 2]);
    out.counts.push_back(static_cast<double>(end - begin));
  }
  return out;
}

// The given rows, padded to whole tiles.
Matrix take_rows(const Matrix& w, const std::vector<Eigen::Index>& rows) {
  Matrix out = Matrix::Zero(static_cast<Eigen::Index>(padded_rows(rows.size())), w.cols());
  for (std::size_t i = 0; i < rows.size(); ++i) {
    out.row(static_cast<Eigen::Index>(i)) = w.row(rows[i]);
  }
  return out;
}

std::optional<GptqFactor> factor_of(const InputStatistics& inputs, QuantMethod method) {
  if (method != QuantMethod::kGptq) return std::nullopt;
  return factor_hessian(inputs.hessian, kGptqDamping);
}

class DamageMeasure {
 public:
  DamageMeasure(const ExpertMatrices& weights, const InputStatistics& inputs,
                const DownProblem& problem, const DamageOptions& options)
      : weights_(weights),
        inputs_(inputs),
        hidden_(problem.inputs),
        options_(options),
        units_(weights.down.colwise().squaredNorm().transpose()),
        sample_(sample_by_energy(hidden_.hessian.diagonal().cwiseProduct(units_), options.rows)) {}

  ExpertDamage run() {
    plain_inputs();
    ExpertDamage out;
    out.output = output();
    // The noise in the hidden units as a share of their energy, where each unit counts by what down
    // makes of it.
    const std::optional<GptqFactor> factor = factor_of(inputs_, options_.method);
    for (const std::uint32_t bits : options_.bits) {
      const double gate = hidden_noise(bits, factor, true);
      const double up = hidden_noise(bits, factor, false);
      const double left = fitted_share(gate + up) * unit_energy();
      out.error[0].push_back(gate * left);
      out.error[1].push_back(up * left);
    }
    down(out);
    return out;
  }

 private:
  // Takes inputs and hidden units of the held-out tokens without their weights, which are applied
  // behind the network because that is not linear. Where there are no held-out tokens, the
  // Hessians' diagonals stand in for them.
  void plain_inputs() {
    x_ = inputs_.held_out;
    weight_ = 0;
    for (Eigen::Index t = 0; t < x_.cols(); ++t) {
      const float weight = inputs_.held_out_weights[static_cast<std::size_t>(t)];
      weight_ += static_cast<double>(weight);
      if (weight > 0) x_.col(t) /= std::sqrt(weight);
    }
    gate_ = outputs(weights_.gate);
    up_ = outputs(weights_.up);
  }

  // The outputs of the sampled rows for all tokens, [padded rows, tokens].
  Matrix outputs(const Matrix& w) const {
    const Matrix part = take_rows(w, sample_.rows);
    Matrix out(part.rows(), x_.cols());
    multiply(part, x_, out);
    return out;
  }

  double output() const {
    const double whole = output_energy(weights_.down, hidden_);
    return hidden_.held_out.cols() > 0 && weight_ > 0 ? whole / weight_ : whole;
  }

  // The sum over hidden units u of E u^2 |column of down|^2.
  double unit_energy() const {
    double sum = 0;
    for (Eigen::Index i = 0; i < hidden_.hessian.rows(); ++i) {
      sum += static_cast<double>(hidden_.hessian(i, i)) * static_cast<double>(units_(i));
    }
    return sum;
  }

  QuantizedMatrix quantized(const Matrix& w, std::size_t rows, std::uint32_t bits,
                            const InputStatistics& inputs,
                            const std::optional<GptqFactor>& factor) const {
    return quantize_matrix(options_.method, w, w, rows,
                           {.bits = bits, .group_size = options_.group_size}, inputs,
                           factor.has_value() ? &*factor : nullptr);
  }

  double hidden_noise(std::uint32_t bits, const std::optional<GptqFactor>& factor, bool of_gate) {
    const Matrix w = take_rows(of_gate ? weights_.gate : weights_.up, sample_.rows);
    const QuantizedMatrix q = quantized(w, sample_.rows.size(), bits, inputs_, factor);
    const auto relative = static_cast<double>(q.after);
    if (x_.cols() == 0) return relative * relative;
    Matrix read;
    stored_minus(q.values, w, read);
    read += w;
    Matrix there(w.rows(), x_.cols());
    multiply(read, x_, there);
    double noise = 0;
    double whole = 0;
    for (Eigen::Index t = 0; t < x_.cols(); ++t) {
      const auto weight =
          static_cast<double>(inputs_.held_out_weights[static_cast<std::size_t>(t)]);
      for (std::size_t i = 0; i < sample_.rows.size(); ++i) {
        const auto r = static_cast<Eigen::Index>(i);
        const float gate = of_gate ? there(r, t) : gate_(r, t);
        const float up = of_gate ? up_(r, t) : there(r, t);
        const auto before =
            static_cast<double>(activated(weights_.activation, gate_(r, t)) * up_(r, t));
        const double off = static_cast<double>(activated(weights_.activation, gate) * up) - before;
        const double counted =
            weight * sample_.counts[i] * static_cast<double>(units_(sample_.rows[i]));
        noise += counted * off * off;
        whole += counted * before * before;
      }
    }
    return whole > 0 ? noise / whole : 0;
  }

  // The share that is left of a noise with `share` of each hidden unit's energy when down is fitted
  // to the noisy units by linear least squares: the error's covariance is then N - N (H + N)^-1 N
  // instead of N.
  double fitted_share(double share) const {
    const Matrix noise = static_cast<float>(share) * hidden_.hessian.diagonal();
    Matrix inverse = hidden_.hessian;
    inverse.diagonal() += noise.col(0);
    const float little = 1e-3F * inverse.diagonal().mean();
    inverse.diagonal().array() += little;
    // C^-1 with H + N = C^T C, so that its inverse is C^-1 C^-T.
    if (!(share > 0) || !invert_cholesky(inverse)) return 1;
    inverse.triangularView<Eigen::StrictlyLower>().setZero();
    const Matrix scaled = weights_.down * noise.col(0).asDiagonal();
    Matrix part(scaled.rows(), scaled.cols());
    multiply(scaled, inverse, part);
    const double gained = static_cast<double>(part.squaredNorm());
    const double whole = static_cast<double>(noise.col(0).dot(units_));
    return whole > 0 ? std::clamp(1 - gained / whole, 0.0, 1.0) : 1;
  }

  void down(ExpertDamage& out) const {
    const std::vector<Eigen::Index> rows =
        spread_rows(static_cast<std::size_t>(inputs_.hessian.rows()), options_.rows);
    const Matrix w = take_rows(weights_.down, rows);
    InputStatistics inputs = hidden_;
    inputs.wanted.resize(0, 0);  // what these rows themselves give
    const std::optional<GptqFactor> factor = factor_of(inputs, options_.method);
    for (const std::uint32_t bits : options_.bits) {
      const QuantizedMatrix q = quantized(w, rows.size(), bits, inputs, factor);
      const auto relative = static_cast<double>(q.after);
      out.error[2].push_back(relative * relative * out.output);
    }
  }

  const ExpertMatrices& weights_;
  const InputStatistics& inputs_;
  const InputStatistics& hidden_;
  const DamageOptions& options_;
  Eigen::VectorXf units_;  // [width]: |column of down|^2
  RowSample sample_;       // of gate and up
  Matrix x_;               // [hidden, tokens]
  Matrix gate_;            // [padded rows, tokens]
  Matrix up_;
  double weight_ = 0;  // of all held-out tokens
};

}  // namespace

ExpertDamage expert_damage(const ExpertMatrices& weights, const InputStatistics& inputs,
                           const DownProblem& problem, const DamageOptions& options) {
  return DamageMeasure(weights, inputs, problem, options).run();
}

}  // namespace moepack
