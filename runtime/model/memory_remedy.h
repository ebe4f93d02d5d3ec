// What a user can change so that a run fits the memory there is.
#pragma once

#include <functional>
#include <string>

#include "runtime/model/memory_plan.h"

namespace moepack {

// What a run takes, whether it fits or not.
using PlanOf = std::function<MemoryPlan(const MemoryRequest&)>;

// Whether the cache is large enough and everything together is available.
bool fits_memory(const MemoryPlan& plan, const MemoryRequest& request);

// The remedy of a request that does not fit: flags with values with which it does, each value the
// largest that helps; several ways are joined by ", or ". Where no flag helps, it says how many
// bytes are missing.
std::string memory_remedy(const MemoryRequest& request, const PlanOf& plan_of);

// The ways through --chunk and -c alone, "give … or less"; empty where there are none, or where the
// request fits as it is.
std::string smaller_request_remedy(const MemoryRequest& request, const PlanOf& plan_of);

}  // namespace moepack
