#include "runtime/serve/router.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "formats/base/percent.h"

namespace moepack {
namespace {

std::string_view without_authority(std::string_view target) {
  if (target.starts_with('/')) return target;
  const auto scheme = target.find("://");
  if (scheme == std::string_view::npos) return target;
  const auto path = target.find('/', scheme + 3);
  return path == std::string_view::npos ? std::string_view("/") : target.substr(path);
}

std::map<std::string, std::string> split_query(std::string_view text) {
  std::map<std::string, std::string> query;
  while (!text.empty()) {
    const std::string_view part = text.substr(0, text.find('&'));
    text.remove_prefix(std::min(text.size(), part.size() + 1));
    const auto equals = part.find('=');
    const std::string_view value =
        equals == std::string_view::npos ? std::string_view() : part.substr(equals + 1);
    if (!part.empty())
      query.emplace(percent_decoded(part.substr(0, equals)), percent_decoded(value));
  }
  return query;
}

// What stands for the * of a route's path; nullopt: the route is of another path.
std::optional<std::string> rest_of(const std::string& pattern, const std::string& path) {
  if (!pattern.ends_with("/*")) {
    return pattern == path ? std::optional<std::string>(std::string()) : std::nullopt;
  }
  const std::size_t head = pattern.size() - 1;
  if (path.size() <= head || path.compare(0, head, pattern, 0, head) != 0) return std::nullopt;
  return path.substr(head);
}

}  // namespace

TargetParts split_target(std::string_view target) {
  target = without_authority(target);
  const auto question = target.find('?');
  TargetParts parts;
  parts.path = percent_decoded(target.substr(0, question));
  if (question != std::string_view::npos) parts.query = split_query(target.substr(question + 1));
  if (parts.path.starts_with("/v1/")) parts.path.erase(0, 3);
  while (parts.path.size() > 1 && parts.path.ends_with('/')) parts.path.pop_back();
  return parts;
}

FoundRoute find_route(const RouteTable& table, std::string_view method, const std::string& path) {
  FoundRoute found;
  for (const Route& route : table.routes()) {
    if (path == route.path || path.starts_with(route.path + "/")) found.errors = route.errors;
    std::optional<std::string> rest = rest_of(route.path, path);
    if (!rest.has_value()) continue;
    if (route.method == method || (route.method == "GET" && method == "HEAD")) {
      found.route = &route;
      found.errors = route.errors;
      found.rest = std::move(*rest);
      return found;
    }
    if (!found.allowed.empty()) found.allowed += ", ";
    found.allowed += route.method == "GET" ? "GET, HEAD" : route.method;
  }
  return found;
}

}  // namespace moepack
