// The report of a conversion, as far as its plan tells it.
#pragma once

#include <string>

#include "convert/pack/convert.h"
#include "convert/pack/plan.h"

namespace moepack {

ConvertReport report_of(const std::string& model_type, const std::string& source,
                        const ConvertPlan& plan, const ConvertOptions& options);

}  // namespace moepack
