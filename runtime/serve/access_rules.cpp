#include "runtime/serve/access_rules.h"

#include <algorithm>
#include <cctype>
#include <cstddef>

namespace moepack {
namespace {

std::string access_lower(std::string_view text) {
  std::string lower(text);
  std::transform(lower.begin(), lower.end(), lower.begin(), [](char c) {
    return c >= 'A' && c <= 'Z' ? static_cast<char>(c + ('a' - 'A')) : c;
  });
  return lower;
}

bool is_same_key(std::string_view given, std::string_view key) {
  unsigned difference = given.size() == key.size() ? 0 : 1;
  for (std::size_t i = 0; i < given.size(); ++i) {
    const char other = key.empty() ? '\0' : key[i % key.size()];
    difference |= static_cast<unsigned>(given[i] ^ other);
  }
  return difference == 0 && !key.empty();
}

bool is_any_key(const AccessRules& rules, std::string_view given) {
  bool is_valid = false;
  for (const std::string& key : rules.api_keys) is_valid = is_same_key(given, key) || is_valid;
  return is_valid;
}

// "name" of "name:port", in lower case; an address of version 6 keeps its brackets.
std::string host_name(std::string_view host) {
  if (host.starts_with('[')) return access_lower(host.substr(0, host.find(']') + 1));
  return access_lower(host.substr(0, host.find(':')));
}

bool is_address(const std::string& name) {
  if (name.starts_with('[')) return name.ends_with(']');
  const bool has_digits_alone = std::all_of(name.begin(), name.end(), [](char c) {
    return c == '.' || std::isdigit(static_cast<unsigned char>(c)) != 0;
  });
  return has_digits_alone && std::count(name.begin(), name.end(), '.') == 3;
}

bool is_local_name(const std::string& name) {
  return name == "localhost" || name == "127.0.0.1" || name == "[::1]";
}

// What follows "http://" or "https://"; empty for other schemes.
std::string_view origin_host(std::string_view origin) {
  for (const std::string_view scheme : {"http://", "https://"}) {
    if (origin.starts_with(scheme)) return origin.substr(scheme.size());
  }
  return {};
}

bool is_no_scheme_letter(char c) {
  return std::isalnum(static_cast<unsigned char>(c)) == 0 && c != '+' && c != '-' && c != '.';
}

// Of a host and a port; names in other letters are sent as "xn--".
bool is_no_host_letter(char c) {
  const auto letter = static_cast<unsigned char>(c);
  return letter <= 0x20 || letter >= 0x7f || c == '/' || c == '?' || c == '#' || c == '@';
}

bool is_allowed_origin(const AccessRules& rules, const std::string& origin) {
  return std::any_of(rules.cors_origins.begin(), rules.cors_origins.end(),
                     [&](const std::string& allowed) {
                       if (allowed == "*") return true;
                       if (allowed != "localhost") return access_lower(allowed) == origin;
                       return is_local_name(host_name(origin_host(origin)));
                     });
}

}  // namespace

bool is_cors_origin(std::string_view text) {
  if (text == "*" || text == "localhost" || text == "null") return true;
  const std::size_t colon = text.find("://");
  if (colon == std::string_view::npos || colon == 0) return false;
  const std::string_view host = text.substr(colon + 3);
  return !host.empty() && std::none_of(text.begin(), text.begin() + colon, is_no_scheme_letter) &&
         std::none_of(host.begin(), host.end(), is_no_host_letter);
}

bool has_valid_key(const AccessRules& rules, const HttpHeaders& headers) {
  if (rules.api_keys.empty()) return true;
  constexpr std::string_view kBearer = "bearer ";
  if (const std::string* given = find_header(headers, "Authorization")) {
    const bool is_bearer = access_lower(given->substr(0, kBearer.size())) == kBearer;
    if (is_bearer && is_any_key(rules, given->substr(kBearer.size()))) return true;
  }
  const std::string* given = find_header(headers, "X-Api-Key");
  return given != nullptr && is_any_key(rules, *given);
}

bool is_known_host(const AccessRules& rules, const HttpHeaders& headers) {
  const std::string* host = find_header(headers, "Host");
  if (host == nullptr) return true;
  const std::string name = host_name(*host);
  if (is_local_name(name) || is_address(name)) return true;
  return std::any_of(rules.hosts.begin(), rules.hosts.end(), [&](const std::string& known) {
    return known == "*" || access_lower(known) == name;
  });
}

bool is_known_origin(const AccessRules& rules, const HttpHeaders& headers) {
  const std::string* origin = find_header(headers, "Origin");
  if (origin == nullptr) return true;
  const std::string lower = access_lower(*origin);
  const std::string* host = find_header(headers, "Host");
  if (host != nullptr && origin_host(lower) == access_lower(*host)) return true;
  return is_allowed_origin(rules, lower);
}

HttpHeaders cors_headers(const AccessRules& rules, const HttpHeaders& request) {
  const std::string* origin = find_header(request, "Origin");
  if (origin == nullptr || !is_allowed_origin(rules, access_lower(*origin))) return {};
  return {{"Access-Control-Allow-Origin", *origin},
          {"Access-Control-Expose-Headers", "x-request-id, request-id"},
          {"Vary", "Origin"}};
}

}  // namespace moepack
