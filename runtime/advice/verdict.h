// Whether a planned run is worth starting, in one word and one sentence.
#pragma once

#include <string>
#include <string_view>

#include "formats/model_dir.h"
#include "runtime/run_plan.h"

namespace moepack {

enum class Verdict : std::uint8_t {
  kOk,
  kTight,   // it runs, but hardly any expert stays in memory, or hardly any memory is left
  kRefuse,  // opening it is an error
};
// "OK", "TIGHT", "REFUSE".
std::string_view verdict_name(Verdict verdict);

struct Advice {
  Verdict verdict = Verdict::kOk;
  std::string reason = {};  // kRefuse: the error's whole line; kOk: empty
  std::string remedy = {};  // of kTight: the flag to change; empty where no flag helps
};

// A run is tight when its cache has no room for two tokens' experts (below that, what one token has
// read is gone before the next asks for it) or leaves less than kLeftShare of the memory there is.
constexpr double kLeftShare = 1.0 / 32;
Advice advise(const RunPlan& plan, const ModelDir& dir);

}  // namespace moepack
