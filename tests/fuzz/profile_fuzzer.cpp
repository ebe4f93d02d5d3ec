// Profiles of expert use. First byte, modulo 5: 0 our own, 1 a list of hot experts, 2 any JSON of
// other engines, 3 a log with FREQ_DUMP lines, 4 counts-binary. For the log the second byte is the
// size of the pieces it comes in.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "formats/calibration/expert_profile.h"
#include "formats/calibration/foreign_profile.h"
#include "formats/calibration/freq_dump.h"
#include "formats/calibration/hot_experts.h"
#include "tests/fuzz/require.h"

namespace {

using moepack::test::require;

constexpr moepack::ExpertShape kShape{3, 8};

// What a reader accepts must survive being written and read again, and keep its promises.
void check_profile(const moepack::ExpertProfile& profile) {
  require(profile.layers.size() == profile.shape.num_layers);
  const std::string once = moepack::expert_profile_text(profile);
  const auto again = moepack::parse_expert_profile(once, "fuzz");
  require(again.is_ok() && moepack::expert_profile_text(again.value()) == once);
  for (const auto& layer : profile.layers) {
    for (const std::uint32_t id : moepack::used_experts(layer)) {
      require(id < profile.shape.num_experts);
    }
  }
  const auto hot = moepack::select_hot_by_coverage(profile, 0.8);
  require(hot.is_ok() == profile.has_counts());
  if (!hot.is_ok()) return;
  const auto read =
      moepack::parse_hot_experts(moepack::hot_experts_text(hot.value()), "fuzz", profile.shape);
  require(read.is_ok() && read.value().layers == hot.value().layers);
  const auto sum = moepack::add_profiles(profile, profile);
  if (sum.is_ok()) {
    require(
        moepack::parse_expert_profile(moepack::expert_profile_text(sum.value()), "fuzz").is_ok());
  }
}

void check_input(const moepack::Result<moepack::ProfileInput>& input) {
  if (input.is_ok()) check_profile(input.value().profile);
}

void check_hot(std::string_view text) {
  const auto hot = moepack::parse_hot_experts(text, "fuzz", kShape);
  if (!hot.is_ok()) return;
  const std::string once = moepack::hot_experts_text(hot.value());
  const auto again = moepack::parse_hot_experts(once, "fuzz");
  require(again.is_ok() && moepack::hot_experts_text(again.value()) == once);
}

void check_log(std::string_view text) {
  if (text.empty()) return;
  const std::size_t size = 1 + static_cast<unsigned char>(text[0]);
  text.remove_prefix(1);
  const std::string file = "fuzz";
  moepack::FreqDumpReader whole(file);
  moepack::FreqDumpReader pieces(file);
  moepack::Status status = whole.feed(text);
  if (status.is_ok()) status = whole.finish();
  moepack::Status other;
  for (std::size_t at = 0; at < text.size() && other.is_ok(); at += size) {
    other = pieces.feed(text.substr(at, size));
  }
  if (other.is_ok()) other = pieces.finish();
  require(status.message() == other.message());
  if (!status.is_ok()) return;
  require(whole.lines() == pieces.lines());
  const auto profile = whole.counts().profile(kShape, file);
  if (profile.is_ok()) check_profile(profile.value());
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size == 0) return 0;
  const std::string_view rest(reinterpret_cast<const char*>(data) + 1, size - 1);
  switch (data[0] % 5) {
    case 0: {
      const auto profile = moepack::parse_expert_profile(rest, "fuzz");
      if (profile.is_ok()) check_profile(profile.value());
      break;
    }
    case 1:
      check_hot(rest);
      break;
    case 2:
      check_input(moepack::parse_profile_json(rest, "fuzz", kShape));
      break;
    case 3:
      check_log(rest);
      break;
    default:
      check_input(moepack::parse_counts_binary(std::as_bytes(std::span(rest)), "fuzz", {}));
  }
  return 0;
}
