// Requests and answers of HTTP/1.1 as handlers see them.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

namespace moepack {

struct HttpHeader {
  std::string name, value;
};
using HttpHeaders = std::vector<HttpHeader>;

// Without regard to the case of letters.
bool equals_header_name(std::string_view a, std::string_view b);

// The first value of a header, without spaces around it; names are compared without regard to case.
// nullptr: the header is absent.
const std::string* find_header(const HttpHeaders& headers, std::string_view name);

struct HttpRequest {
  std::string method;  // "GET"
  std::string target;  // as sent: "/v1/models?x=1"
  HttpHeaders headers;
  std::string body;  // whole, without the framing of chunks
  // Holds the body's place in what HttpOptions::max_all_bodies bounds, until the last copy is gone.
  std::shared_ptr<const void> body_place = {};
};

// An answer that is known as a whole. Content-Length, Date and Connection are added when it is
// sent.
struct HttpReply {
  int status = 200;
  HttpHeaders headers = {};
  std::string body = {};
};

// "Not Found"; "Unknown" for a status that has no name here.
std::string_view http_reason(int status);

}  // namespace moepack
