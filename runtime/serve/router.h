// Finds what answers a request.
#pragma once

#include <map>
#include <string>
#include <string_view>

#include "runtime/serve/route.h"

namespace moepack {

struct TargetParts {
  std::string path;  // percent-decoded, without "/v1" and the slash at the end
  std::map<std::string, std::string> query;
};

// A target as clients send it, "http://host/path?a=b" among them. What is wrongly escaped stays as
// it is.
TargetParts split_target(std::string_view target);

struct FoundRoute {
  const Route* route = nullptr;  // nullptr: `allowed` has the methods that the path knows
  std::string rest;              // RouteCall::rest
  std::string allowed;           // "GET, HEAD"; empty: the path is unknown
  // Of the route, or where there is none of the last one whose path is this one or above it: what
  // asks for /messages/… reads one protocol's errors only.
  ErrorFormat errors = openai_error_body;
};

FoundRoute find_route(const RouteTable& table, std::string_view method, const std::string& path);

}  // namespace moepack
