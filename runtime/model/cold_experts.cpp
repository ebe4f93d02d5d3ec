#include "runtime/model/cold_experts.h"

#include <array>
#include <utility>

#include "formats/base/status.h"

namespace moepack {
namespace {

constexpr std::array<std::pair<ColdExperts, std::string_view>, 3> kColdExpertsNames{
    {{ColdExperts::kFetch, "fetch"}, {ColdExperts::kCpu, "cpu"}, {ColdExperts::kAuto, "auto"}}};

}  // namespace

std::string_view cold_experts_name(ColdExperts way) {
  for (const auto& [known, name] : kColdExpertsNames) {
    if (known == way) return name;
  }
  return "";
}

Result<ColdExperts> parse_cold_experts(std::string_view text) {
  for (const auto& [way, name] : kColdExpertsNames) {
    if (name == text) return way;
  }
  return invalid_argument("--cold-experts " + printable(text) + " is not known",
                          "known are fetch, cpu and auto");
}

ColdExpertsChoice choose_cold_experts(ColdExperts wanted, bool shares_memory) {
  if (wanted != ColdExperts::kAuto) return {.way = wanted, .reason = ""};
  if (shares_memory) {
    return {.way = ColdExperts::kFetch, .reason = "the device's memory is the machine's own"};
  }
  return {.way = ColdExperts::kCpu,
          .reason =
              "the device has memory of its own, behind a bus that is slower than the "
              "processor's memory"};
}

}  // namespace moepack
