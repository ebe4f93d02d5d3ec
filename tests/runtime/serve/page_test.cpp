#include "runtime/serve/page.h"

#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>

#include <gtest/gtest.h>

#include "runtime/serve/expert_map_json.h"

namespace moepack::page_test {
namespace {

std::string value_of(const HttpReply& reply, const char* name) {
  const std::string* value = find_header(reply.headers, name);
  return value == nullptr ? "" : *value;
}

TEST(Page, IsOneFileWithoutForeignAddresses) {
  const std::string html(page_html());
  EXPECT_TRUE(html.starts_with("<!doctype html>"));
  EXPECT_TRUE(html.ends_with("</html>\n"));
  EXPECT_EQ(html.find("@PAGE_"), std::string::npos);
  for (const char* part : {" src=", "@import", "url(", "<link rel=\"stylesheet\""}) {
    EXPECT_EQ(html.find(part), std::string::npos) << part;
  }
  // One script and one style, or the policy's two hashes would not cover them.
  for (const std::string tag : {"script>", "style>"}) {
    const std::size_t first = html.find("<" + tag);
    ASSERT_NE(first, std::string::npos);
    EXPECT_EQ(html.find("<" + tag, first + 1), std::string::npos) << tag;
    EXPECT_EQ(html.find("</" + tag), html.rfind("</" + tag)) << tag;
  }
}

TEST(Page, RepliesWithPolicyAndTag) {
  const HttpReply reply = page_reply({});
  EXPECT_EQ(reply.status, 200);
  EXPECT_EQ(reply.body, page_html());
  EXPECT_EQ(value_of(reply, "Content-Type"), "text/html; charset=utf-8");
  EXPECT_EQ(value_of(reply, "ETag"), page_etag());
  EXPECT_EQ(value_of(reply, "X-Content-Type-Options"), "nosniff");
  const std::string policy = value_of(reply, "Content-Security-Policy");
  EXPECT_TRUE(policy.starts_with("default-src 'none'; script-src 'sha256-"));
  EXPECT_EQ(policy.find("unsafe"), std::string::npos);
}

TEST(Page, KnownTagNeedsNoBody) {
  const std::string tag(page_etag());
  for (const std::string& known : {tag, "W/" + tag, "\"other\", " + tag, std::string("*")}) {
    const HttpReply reply = page_reply({{"if-none-match", known}});
    EXPECT_EQ(reply.status, 304) << known;
    EXPECT_TRUE(reply.body.empty());
    EXPECT_EQ(value_of(reply, "ETag"), tag);
  }
  EXPECT_EQ(page_reply({{"If-None-Match", "\"other\""}}).status, 200);
}

// The vectors of RFC 4648, section 10.
TEST(ExpertMapJson, Base64) {
  const std::pair<std::string, std::string> vectors[] = {{"", ""},
                                                         {"f", "Zg=="},
                                                         {"fo", "Zm8="},
                                                         {"foo", "Zm9v"},
                                                         {"foob", "Zm9vYg=="},
                                                         {"fooba", "Zm9vYmE="},
                                                         {"foobar", "Zm9vYmFy"},
                                                         {"\xff\xfe", "//4="}};
  for (const auto& [text, encoded] : vectors) {
    EXPECT_EQ(base64_text({reinterpret_cast<const std::uint8_t*>(text.data()), text.size()}),
              encoded);
  }
}

TEST(ExpertMapJson, HasBytesAndBits) {
  ExpertMap map;
  map.layers = 2;
  map.experts = 5;
  map.warmth = {0, 1, 2, 3, 4, 5, 6, 7, 8, 255};
  map.is_resident = {true, false, false, false, false, false, false, false, true, true};
  ServiceStats stats;
  stats.expert_hits = 7;
  stats.expert_misses = 3;
  stats.expert_bytes_read = 1ULL << 40;
  stats.read_seconds = 0.5;
  stats.decode_tokens = 30;
  stats.decode_seconds = 4;
  const OrderedJson json = expert_map_json(map, stats);
  EXPECT_EQ(json["layers"], 2);
  EXPECT_EQ(json["experts"], 5);
  EXPECT_EQ(json["warmth"], "AAECAwQFBgcI/w==");
  EXPECT_EQ(json["resident"], "AQM=");  // 0x01 0x03
  EXPECT_EQ(json["hits"], 7);
  EXPECT_EQ(json["misses"], 3);
  EXPECT_EQ(json["bytes_read"], 1ULL << 40);
  EXPECT_EQ(json["read_seconds"], 0.5);
  EXPECT_EQ(json["tokens_per_second"], 7.5);
}

TEST(ExpertMapJson, ShortMapsAreFilledWithCold) {
  ExpertMap map;
  map.layers = 1;
  map.experts = 3;
  const OrderedJson json = expert_map_json(map, {});
  EXPECT_EQ(json["warmth"], "AAAA");
  EXPECT_EQ(json["resident"], "AA==");
  EXPECT_EQ(json["tokens_per_second"], 0.0);
}

}  // namespace
}  // namespace moepack::page_test
