// The page in the browser, embedded when the project is built from the files under
// runtime/serve/page. Immutable; any thread.
#pragma once

#include <string>
#include <string_view>

#include "runtime/http/http_message.h"
#include "runtime/serve/route.h"

namespace moepack {

// The whole page in UTF-8: one HTML file that needs nothing else.
std::string_view page_html();
// With its quotes; changes with the bytes of the page.
std::string_view page_etag();
// Lets the page's one script and one style run and nothing else, and connect only to where it came
// from (https://www.w3.org/TR/CSP3/: sources by hash).
std::string page_content_security_policy();

// Answers a GET of the page: 304 without a body where If-None-Match names page_etag().
HttpReply page_reply(const HttpHeaders& request_headers);

// GET / (free of keys, also while the model loads) and GET /expert-map.
void add_page_routes(RouteTable& table);

}  // namespace moepack
