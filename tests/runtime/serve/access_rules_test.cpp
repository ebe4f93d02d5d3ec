// Keys, hosts, origins and paths.
#include <string>

#include <gtest/gtest.h>

#include "runtime/serve/access_rules.h"
#include "runtime/serve/router.h"
#include "runtime/serve/server_metrics.h"

namespace moepack::access_rules_test {
namespace {

TEST(AccessRules, KeysAreComparedWhole) {
  const AccessRules rules{.api_keys = {"secret", "other"}, .hosts = {}, .cors_origins = {}};
  const auto has = [&](const char* name, const std::string& value) {
    return has_valid_key(rules, {{name, value}});
  };
  EXPECT_TRUE(has("Authorization", "Bearer secret"));
  EXPECT_TRUE(has("authorization", "bearer other"));
  EXPECT_TRUE(has("X-API-Key", "secret"));
  for (const char* wrong :
       {"", "s", "secre", "secrets", "secretsecret", "Secret", "Bearer secret"}) {
    EXPECT_FALSE(has("X-Api-Key", wrong)) << wrong;
  }
  EXPECT_FALSE(has("Authorization", "secret"));
  EXPECT_FALSE(has_valid_key(rules, {}));
  EXPECT_TRUE(has_valid_key({}, {}));
}

TEST(AccessRules, HostsOfOthersAreRefused) {
  const AccessRules rules{.api_keys = {}, .hosts = {"My.Name"}, .cors_origins = {}};
  for (const char* known : {"localhost", "localhost:80", "127.0.0.1:1", "[::1]:80", "[fe80::1]",
                            "10.0.0.7", "my.name:8080", "MY.NAME"}) {
    EXPECT_TRUE(is_known_host(rules, {{"Host", known}})) << known;
  }
  for (const char* other : {"", "evil.example", "localhost.evil.example", "127.0.0.1.evil.example",
                            "1.2.3", "1.2.3.4.5", "my.name.evil.example"}) {
    EXPECT_FALSE(is_known_host(rules, {{"Host", other}})) << other;
  }
}

TEST(AccessRules, OriginsOfOthersAreRefused) {
  const AccessRules rules{
      .api_keys = {}, .hosts = {}, .cors_origins = {"https://a.example", "localhost"}};
  const auto is_known = [&](const std::string& origin) {
    return is_known_origin(rules, {{"Host", "127.0.0.1:8080"}, {"Origin", origin}});
  };
  for (const char* known :
       {"http://127.0.0.1:8080", "https://a.example", "http://localhost:3000"}) {
    EXPECT_TRUE(is_known(known)) << known;
  }
  for (const char* other : {"null", "http://a.example", "https://a.example.evil",
                            "http://localhost.evil", "file://localhost", ""}) {
    EXPECT_FALSE(is_known(other)) << other;
  }
  EXPECT_TRUE(is_known_origin({}, {{"Host", "h"}}));
  EXPECT_TRUE(cors_headers(rules, {{"Origin", "https://b.example"}}).empty());
  EXPECT_EQ(cors_headers(rules, {{"Origin", "https://a.example"}})[0].value, "https://a.example");
}

TEST(Router, TakesTargetsApart) {
  const TargetParts parts = split_target("/v1/models/a%2Fb%20c/?x=1&y=%26&z&x=2");
  EXPECT_EQ(parts.path, "/models/a/b c");
  EXPECT_EQ(parts.query.at("x"), "1");
  EXPECT_EQ(parts.query.at("y"), "&");
  EXPECT_EQ(parts.query.at("z"), "");
  EXPECT_EQ(split_target("http://host:80/v1/health").path, "/health");
  EXPECT_EQ(split_target("http://host").path, "/");
  EXPECT_EQ(split_target("/v1").path, "/v1");
  EXPECT_EQ(split_target("/%zz%4").path, "/%zz%4");
  EXPECT_EQ(split_target("").path, "");
  EXPECT_EQ(split_target("///").path, "/");
}

TEST(Router, FindsRoutesAndNamesMethods) {
  RouteTable table;
  const PlainHandler none = [](const RouteCall&) { return HttpReply{}; };
  table.add({.method = "GET", .path = "/models", .handler = none});
  table.add({.method = "GET", .path = "/models/*", .handler = none});
  table.add({.method = "DELETE", .path = "/models/*", .handler = none});
  EXPECT_EQ(find_route(table, "HEAD", "/models").route, &table.routes()[0]);
  EXPECT_EQ(find_route(table, "GET", "/models/a/b").rest, "a/b");
  EXPECT_EQ(find_route(table, "DELETE", "/models/a").route, &table.routes()[2]);
  EXPECT_EQ(find_route(table, "POST", "/models/a").allowed, "GET, HEAD, DELETE");
  EXPECT_EQ(find_route(table, "GET", "/models/").route, nullptr);
  EXPECT_EQ(find_route(table, "GET", "/").allowed, "");
}

TEST(ServerMetrics, EveryLineIsOneThatPrometheusReads) {
  ServerMetrics metrics;
  metrics.add_first_token(0.3);
  metrics.add_first_token(1e9);
  metrics.add_answer(2, AnswerEndReason::kToolCalls);
  metrics.add_reply(404);
  ServiceStats stats;
  stats.expert_hits = 3;
  const std::string text = metrics.text(stats, {});
  EXPECT_NE(text.find("moepack:expert_cache_hits_total 3\n"), std::string::npos);
  EXPECT_NE(text.find("time_to_first_token_seconds_bucket{le=\"0.5\"} 1\n"), std::string::npos);
  EXPECT_NE(text.find("time_to_first_token_seconds_bucket{le=\"+Inf\"} 2\n"), std::string::npos);
  EXPECT_NE(text.find("request_success_total{finished_reason=\"tool_calls\"} 1\n"),
            std::string::npos);
  EXPECT_EQ(text.find("nan"), std::string::npos);
  std::size_t begin = 0;
  for (std::size_t end = text.find('\n'); end != std::string::npos; end = text.find('\n', begin)) {
    const std::string line = text.substr(begin, end - begin);
    EXPECT_TRUE(line.starts_with("# HELP moepack:") || line.starts_with("# TYPE moepack:") ||
                line.starts_with("moepack:"))
        << line;
    begin = end + 1;
  }
  EXPECT_EQ(begin, text.size());
}

TEST(AccessRules, OriginsHaveASchemeAndAHostAndNothingBehind) {
  for (const char* origin : {"*", "localhost", "null", "https://a.example", "http://[::1]:8080",
                             "app://obsidian.md", "chrome-extension://abcdef"}) {
    EXPECT_TRUE(is_cors_origin(origin)) << origin;
  }
  for (const char* other : {"", "foo", "foo bar", "https://", "https://a.example/", "://a.example",
                            "https://a.example b", "http s://a.example", "a.example:8080",
                            "https://user@a.example", "https://\xc3\xa4.example"}) {
    EXPECT_FALSE(is_cors_origin(other)) << other;
  }
}

}  // namespace
}  // namespace moepack::access_rules_test
