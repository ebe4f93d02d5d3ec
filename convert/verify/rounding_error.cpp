#include "convert/verify/rounding_error.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "formats/weights/qcodec.h"

namespace moepack {
namespace {

// FloatRounding to a float type: relative by `unit`, and absolute among its subnormals.
struct FloatRounding {
  double unit;
  double smallest;
};

FloatRounding rounding_to(DType type) {
  switch (type) {
    case DType::kBf16:
      return {.unit = 0x1p-8, .smallest = 0x1p-134};
    case DType::kF16:
      return {.unit = 0x1p-11, .smallest = 0x1p-25};
    default:
      return {.unit = 0x1p-24, .smallest = 0x1p-150};
  }
}

// |stored - source|; infinite when only one of them is finite.
double distance(float stored, float source) {
  if (stored == source || (std::isnan(stored) && std::isnan(source))) return 0;
  const double error = std::fabs(static_cast<double>(stored) - static_cast<double>(source));
  return std::isfinite(error) ? error : std::numeric_limits<double>::infinity();
}

// The limits of one group of affine codes.
class GroupLimit {
 public:
  GroupLimit(const QMatrixView& view, std::uint64_t group)
      : codes_(view.codes()), bits_(qformat_info(view.format.id).bits) {
    const DType type = view.format.scale_type;
    const std::uint64_t at = group * (dtype_bits(type) / 8);
    scale_ = std::fabs(static_cast<double>(load_plain_float(type, view.scales() + at)));
    bias_ = std::fabs(static_cast<double>(load_plain_float(type, view.biases() + at)));
    rounding_ = rounding_to(type);
  }

  double half_step() const { return std::isfinite(scale_) ? 0.5 * scale_ : 0; }
  // Of element `i` of the block, counted in the block.
  double of(std::uint64_t i) const {
    const double highest = static_cast<double>((1U << bits_) - 1U);
    const double code = static_cast<double>(unpack_code(codes_, i, bits_));
    const double half = code < highest ? 0.5 : 1.0;
    const double off = rounding_.unit / (1 - rounding_.unit);
    const double float32 = 0x1p-21 * ((highest + 1) * scale_ + bias_);
    return half * scale_ * (1 + off) + (code * scale_ + bias_) * off +
           (code + 2) * rounding_.smallest + float32;
  }

 private:
  const std::byte* codes_;
  std::uint32_t bits_;
  double scale_;
  double bias_;
  FloatRounding rounding_;
};

class BlockComparison {
 public:
  BlockComparison(std::uint64_t begin, RoundingError& error) : begin_(begin), error_(error) {}

  // `limit` is asked only about errors above `harmless`.
  template <typename Limit>
  void add(std::uint64_t i, float stored, float source, double harmless, const Limit& limit) {
    const double off = distance(stored, source);
    error_.error_squares += off * off;
    error_.source_squares += static_cast<double>(source) * static_cast<double>(source);
    error_.largest = std::max(error_.largest, off);
    ++error_.elements;
    if (off <= harmless) return;
    const double allowed = limit(i, source);
    if (std::isfinite(off) && off <= allowed) return;
    if (error_.beyond++ > 0) return;
    error_.first_element = begin_ + i;
    error_.first_source = source;
    error_.first_stored = stored;
    error_.first_limit = allowed;
  }

 private:
  std::uint64_t begin_;
  RoundingError& error_;
};

}  // namespace

double RoundingError::relative_rms() const {
  if (error_squares == 0) return 0;
  return std::sqrt(error_squares / source_squares);
}

void RoundingError::add(const RoundingError& later) {
  if (beyond == 0 && later.beyond != 0) {
    first_element = later.first_element;
    first_source = later.first_source;
    first_stored = later.first_stored;
    first_limit = later.first_limit;
  }
  elements += later.elements;
  error_squares += later.error_squares;
  source_squares += later.source_squares;
  largest = std::max(largest, later.largest);
  beyond += later.beyond;
}

void add_block(const DecodedBlock& stored, std::uint64_t begin, std::span<const float> source,
               bool limited, RoundingError& error) {
  BlockComparison comparison(begin, error);
  const std::uint64_t count = stored.values.size();
  if (!limited) {
    constexpr double kAny = std::numeric_limits<double>::infinity();
    const auto none = [](std::uint64_t, float) { return kAny; };
    for (std::uint64_t i = 0; i < count; ++i) {
      comparison.add(i, stored.values[i], source[i], kAny, none);
    }
    return;
  }
  if (!is_affine(stored.view.format)) {
    const FloatRounding rounding = rounding_to(qformat_info(stored.view.format.id).storage);
    const auto plain = [&](std::uint64_t, float w) {
      return rounding.unit * std::fabs(static_cast<double>(w)) + rounding.smallest;
    };
    for (std::uint64_t i = 0; i < count; ++i) {
      comparison.add(i, stored.values[i], source[i], 0, plain);
    }
    return;
  }
  const std::uint64_t group_size = stored.view.format.group_size;
  for (std::uint64_t group = 0; group < count / group_size; ++group) {
    const GroupLimit limit(stored.view, group);
    const auto affine = [&](std::uint64_t i, float) { return limit.of(i); };
    for (std::uint64_t i = group * group_size; i < (group + 1) * group_size; ++i) {
      comparison.add(i, stored.values[i], source[i], limit.half_step(), affine);
    }
  }
}

}  // namespace moepack
