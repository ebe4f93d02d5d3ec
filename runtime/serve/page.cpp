#include "runtime/serve/page.h"

#include "runtime/serve/expert_map_json.h"
#include "runtime/serve/page_bytes.h"  // made by join_page.cmake

namespace moepack {
namespace {

// If-None-Match: a list of tags, each perhaps weak, or "*" (RFC 9110, 13.1.2).
bool names_page_tag(std::string_view list) {
  return list == "*" || list.find(page_etag()) != std::string_view::npos;
}

}  // namespace

std::string_view page_html() {
  return {reinterpret_cast<const char*>(kPageBytes), sizeof kPageBytes};
}

std::string_view page_etag() { return kPageTag; }

std::string page_content_security_policy() {
  return std::string("default-src 'none'; script-src '") + kPageScriptHash + "'; style-src '" +
         kPageStyleHash +
         "'; connect-src 'self'; img-src data:; base-uri 'none'; form-action 'none'; "
         "frame-ancestors 'none'";
}

HttpReply page_reply(const HttpHeaders& request_headers) {
  HttpReply reply;
  reply.headers = {{"ETag", std::string(page_etag())},
                   {"Cache-Control", "no-cache"},
                   {"Content-Security-Policy", page_content_security_policy()},
                   {"X-Content-Type-Options", "nosniff"},
                   {"Referrer-Policy", "no-referrer"}};
  const std::string* known = find_header(request_headers, "If-None-Match");
  if (known != nullptr && names_page_tag(*known)) {
    reply.status = 304;
    return reply;
  }
  reply.headers.push_back({"Content-Type", "text/html; charset=utf-8"});
  reply.body = page_html();
  return reply;
}

void add_page_routes(RouteTable& table) {
  table.add(
      {.method = "GET",
       .path = "/",
       .handler = PlainHandler([](const RouteCall& call) -> std::variant<HttpReply, ApiError> {
         return page_reply(call.http.headers);
       }),
       .is_free = true,
       .works_while_loading = true});
  table.add(
      {.method = "GET",
       .path = "/expert-map",
       .handler = PlainHandler([](const RouteCall& call) -> std::variant<HttpReply, ApiError> {
         return json_reply(expert_map_json(call.service.expert_map(), call.service.stats()));
       })});
}

}  // namespace moepack
