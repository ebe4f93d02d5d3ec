// Who may ask: keys, hosts and origins. Pure functions.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "runtime/http/http_message.h"

namespace moepack {

struct AccessRules {
  std::vector<std::string> api_keys;      // empty: everybody may
  std::vector<std::string> hosts;         // names of this server besides localhost and addresses
  std::vector<std::string> cors_origins;  // "https://example.org", "localhost" (its pages at every
                                          // port) or "*"; empty: the server's own page alone
};

// "Authorization: Bearer KEY" or "X-Api-Key: KEY". Takes the same time wherever keys differ.
bool has_valid_key(const AccessRules& rules, const HttpHeaders& headers);

// Whether a page of another site that has made its own name point here is kept out: the name in
// Host is an address, localhost or one of `hosts`. A request without Host comes from no browser.
bool is_known_host(const AccessRules& rules, const HttpHeaders& headers);

// Whether a browser may send this: it has no Origin, its page is this server's, or is allowed.
bool is_known_origin(const AccessRules& rules, const HttpHeaders& headers);

// Whether `text` can stand in cors_origins: "*", "localhost", "null" (what browsers say of pages
// from files), or a scheme, a host and perhaps a port, without a path. Source: RFC 6454,
// section 6.1.
bool is_cors_origin(std::string_view text);

// The headers that let the page of another site read an answer; none for others.
HttpHeaders cors_headers(const AccessRules& rules, const HttpHeaders& request);

}  // namespace moepack
