#include "runtime/cpu/code_tuning.h"

namespace moepack {
namespace {

constexpr std::uint32_t kFamilyOfZen5 = 26;

}  // namespace

CodeTuning code_tuning(const CpuidReport& report) {
  CodeTuning tuning;
  if (!is_made_by_amd(report)) return tuning;
  // A Zen 4's units that do not multiply unpack codes meanwhile. An Intel's multipliers unpack,
  // too.
  tuning.most_unpacked = 32;
  if (processor_family(report) >= kFamilyOfZen5) tuning.first_cache_ahead = 256;
  return tuning;
}

const CodeTuning& code_tuning() {
  static const CodeTuning kTuning = code_tuning(read_cpuid());
  return kTuning;
}

}  // namespace moepack
