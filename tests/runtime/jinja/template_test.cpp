// The interpreter against texts that jinja2 made (tests/golden/jinja), its errors, its limits, and
// where it keeps the origin of text.
#include "runtime/jinja/template.h"

#include <ctime>
#include <fstream>
#include <iterator>
#include <string>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

namespace moepack::jinja::template_test {
namespace {

using Json = nlohmann::ordered_json;

Result<Rendered> render(const std::string& source, const Json& user = Json::object(),
                        const Limits& limits = {}) {
  auto made = Template::compile(source, "t", limits);
  if (!made.is_ok()) return made.status();
  Variables variables;
  variables.user = user;
  const std::time_t epoch = 0;
  gmtime_r(&epoch, &variables.clock);
  return made.value().render(variables);
}

std::string text_of(const std::string& source, const Json& user = Json::object()) {
  const auto rendered = render(source, user);
  return rendered.is_ok() ? rendered.value().text : rendered.status().message();
}

TEST(JinjaTemplate, PrintsWhatJinja2Printed) {
  std::ifstream file(MOEPACK_SOURCE_DIR "/tests/golden/jinja/cases.json");
  const Json cases = Json::parse(file);
  ASSERT_GT(cases.size(), 150U);
  for (const Json& entry : cases) {
    const auto source = entry.at("template").get<std::string>();
    const auto rendered = render(source, entry.at("variables"));
    if (entry.at("text").is_null()) {
      EXPECT_FALSE(rendered.is_ok()) << source << "\nprinted " << rendered.value().text;
    } else {
      ASSERT_TRUE(rendered.is_ok()) << source << "\n" << rendered.status().message();
      EXPECT_EQ(rendered.value().text, entry.at("text").get<std::string>()) << source;
    }
  }
}

TEST(JinjaTemplate, RendersConversationsAsJinja2Did) {
  std::ifstream source(MOEPACK_SOURCE_DIR "/tests/golden/demo-moe-mlx-4bit/chat_template.jinja");
  const std::string text{std::istreambuf_iterator<char>(source), {}};
  std::ifstream file(MOEPACK_SOURCE_DIR "/tests/golden/jinja/conversations.json");
  const Json golden = Json::parse(file);
  ASSERT_GE(golden.at("conversations").size(), 40U);
  for (const Json& entry : golden.at("renderings")) {
    const auto name = entry.at("conversation").get<std::string>();
    Json variables = {{"messages", golden.at("conversations").at(name)},
                      {"tools", nullptr},
                      {"add_generation_prompt", true}};
    if (entry.at("with_tools").get<bool>()) variables["tools"] = golden.at("tools");
    const auto rendered = render(text, variables);
    if (entry.at("text").is_null()) {
      EXPECT_FALSE(rendered.is_ok()) << name;
    } else {
      ASSERT_TRUE(rendered.is_ok()) << name << ": " << rendered.status().message();
      EXPECT_EQ(rendered.value().text, entry.at("text").get<std::string>()) << name;
    }
  }
}

TEST(JinjaTemplate, ErrorsNameLineAndColumn) {
  EXPECT_EQ(text_of("a\n  {{ none.x.y }}"), "t: line 2, column 12: 'None' has no attribute 'x'");
  EXPECT_EQ(text_of("{% if x %}"),
            "t: line 1, column 11: the template ends within a block that 'elif' should close");
  EXPECT_EQ(text_of("é{{ raise_exception('no ' ~ x) }}", {{"x", "way"}}),
            "t: line 1, column 20: the template refuses this: no way");
  EXPECT_EQ(render("{{ raise_exception('no') }}").status().code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(render("{% foo %}").status().code(), StatusCode::kCorrupt);
  EXPECT_EQ(render("{% include 'x' %}").status().code(), StatusCode::kUnsupported);
}

TEST(JinjaTemplate, HostileTemplatesMeetLimits) {
  const std::string deep_lists = "{{ " + std::string(5000, '[') + std::string(5000, ']') + " }}";
  std::string deep_ifs;
  for (int i = 0; i < 5000; ++i) deep_ifs += "{% if x %}";
  std::string long_sum = "{{ 1";
  for (int i = 0; i < 5000; ++i) long_sum += "+1";
  long_sum += " }}";
  const std::string hostile[] = {
      deep_lists,
      deep_ifs,
      long_sum,
      "{% for a in range(99999) %}{% for b in range(99999) %}{% endfor %}{% endfor %}",
      "{% set ns = namespace(s='aaaaaaaa') %}{% for i in range(99) %}{% set ns.s = ns.s + ns.s %}"
      "{% endfor %}",
      "{{ 'a' * 99999999999 }}",
      "{{ [0] * 99999999999 }}",
      "{{ range(10 ** 12) }}",
      "{{ 'a'.center(99999999999) }}",
      "{{ '%99999999999d' % 1 }}",
      "{{ '{:99999999999}'.format(1) }}",
      "{{ 10 ** 99999 }}",
      "{% macro m() %}{{ m() }}{% endmacro %}{{ m() }}",
      "{% set l = [] %}{% for i in range(99) %}{% set _ = l.append(l) %}{% endfor %}{{ l }}",
      "{% set ns = namespace(l=[]) %}{% for i in range(99) %}{% set ns.l = [ns.l, ns.l] %}"
      "{% endfor %}{{ ns.l }}",
      "{{ ''.join(['x' * 60000000, 'y' * 60000000]) }}",
      "{{ [1]|batch(99999999999, 0)|list }}",
      "{{ 'x'|indent(99999999999) }}",
  };
  for (const std::string& source : hostile) {
    const auto rendered = render(source);
    ASSERT_FALSE(rendered.is_ok()) << source.substr(0, 80);
    EXPECT_EQ(rendered.status().code(), StatusCode::kUnsupported)
        << source.substr(0, 80) << ": " << rendered.status().message();
  }
}

std::string repeated(const std::string& change, const std::string& begin = "0",
                     const std::string& times = "99999") {
  return "{% set ns = namespace(x=" + begin + ") %}{% for i in range(" + times +
         ") %}{% set ns.x = " + change + " %}{% endfor %}";
}

TEST(JinjaTemplate, ValuesWithinValuesHaveALimit) {
  for (const char* change : {"(ns.x,)", "[ns.x]", "{'a': ns.x}", "ns.x|select", "(ns.x,).count",
                             "{'a': ns.x}.items()", "cycler(ns.x)", "[ns.x]|map('list')"}) {
    EXPECT_EQ(render(repeated(change)).status().code(), StatusCode::kUnsupported) << change;
    EXPECT_TRUE(render(repeated(change, "0", "60")).is_ok()) << change;
  }
}

TEST(JinjaTemplate, LongSearchesTakeLinearTime) {
  const std::string texts = "{% set w = 'a' * 500000 ~ 'b' %}{% set t = 'a' * 900000 %}";
  EXPECT_EQ(text_of(texts + "{{ w in t }}{{ w in t ~ w }}{{ (t ~ w ~ t).find(w) }}"),
            "FalseTrue900000");
  EXPECT_EQ(text_of(texts + "{% set w = 'b' ~ w %}{{ t.rfind(w) }},{{ (w ~ t ~ w ~ t).rfind(w) }}"),
            "-1,1400002");
  EXPECT_EQ(text_of("{% set w = 'ab' * 40 %}{{ ('x' ~ w ~ w ~ 'ab').split(w) }}"
                    "{{ ('x' ~ w ~ w ~ 'ab').rsplit(w, 1)[0]|length }}"
                    "{{ ('x' ~ w ~ w ~ 'ab').count(w) }}{{ (w ~ 'c').replace(w, 'd') }}"),
            "['x', '', 'ab']83"
            "2dc");
}

TEST(JinjaTemplate, RangesOfLargeIntegers) {
  EXPECT_EQ(text_of("{{ -(2 ** 126) * 2 in range(0, -5, -1) }}{{ 2 ** 126 in range(-9, 9, 3) }}"
                    "{{ -3 in range(-9, 9, 3) }}{{ -2 in range(3, -9, -5) }}"
                    "{{ 4 in range(9)[::-2] }}{{ 9 in range(9)[::-2] }}"),
            "FalseFalseTrueTrueTrueFalse");
}

TEST(JinjaTemplate, CirclesAreTakenApart) {
  // Under the address sanitizer a circle that is left is a leak.
  EXPECT_EQ(text_of("{% set ns = namespace() %}{% set ns.me = ns %}{% set l = [] %}"
                    "{% set _ = l.append([l]) %}{% macro m() %}{{ m }}{% endmacro %}"
                    "{% for i in [1] if m %}{{ loop.last }}{% endfor %}ok"),
            "Trueok");
}

// The bytes from the user, the others as dots.
std::string user_bytes(const std::string& source, const Json& user) {
  const auto rendered = render(source, user);
  if (!rendered.is_ok()) return rendered.status().message();
  std::string shown(rendered.value().text.size(), '.');
  for (const ByteRange& range : rendered.value().user) {
    shown.replace(range.begin, range.end - range.begin,
                  rendered.value().text.substr(range.begin, range.end - range.begin));
  }
  return shown;
}

TEST(JinjaTemplate, TextKeepsItsOrigin) {
  const Json user = {{"x", "ab<c"}, {"y", " q,r "}, {"l", {"k", "m"}}, {"d", {{"key", "va\"l"}}}};
  EXPECT_EQ(user_bytes("<{{ x }}>", user), ".ab<c.");
  EXPECT_EQ(user_bytes("{{ '<' + x + '>' ~ x }}", user), ".ab<c.ab<c");
  EXPECT_EQ(user_bytes("[{{ y|trim }}|{{ y.strip() }}]", user), ".q,r.q,r.");
  EXPECT_EQ(user_bytes("{{ y.split(',')|join('--') }}", user), " q..r ");
  EXPECT_EQ(user_bytes("{{ x[1:3] }}{{ x[::-1] }}", user), "b<c<ba");
  EXPECT_EQ(user_bytes("{{ x.replace('b', 'ZZ') }}", user), "a..<c");
  EXPECT_EQ(user_bytes("{{ 'abc'.replace('b', x) }}", user), ".ab<c.");
  EXPECT_EQ(user_bytes("{{ x|upper }}{{ x|title }}{{ 'q'|upper }}", user), "AB<CAb<C.");
  EXPECT_EQ(user_bytes("{{ l|join('+') }}", user), "k.m");
  EXPECT_EQ(user_bytes("{{ d|tojson }}", user), "..key....va\\\"l..");
  EXPECT_EQ(user_bytes("{{ l }}", user), "..k....m..");
  EXPECT_EQ(user_bytes("{{ '%s:%s'|format(x, 1) }}{{ '{}!'.format(x) }}", user), "ab<c..ab<c.");
  EXPECT_EQ(user_bytes("{% set z %}<{{ x }}>{% endset %}{{ z }}{{ z|length }}", user), ".ab<c..");
  EXPECT_EQ(user_bytes("{% macro m(a) %}[{{ a }}]{% endmacro %}{{ m(x) }}", user), ".ab<c.");
  EXPECT_EQ(user_bytes("{{ x|indent(1, true) }}{{ x|e }}{{ x|truncate(3, true, '', 0) }}", user),
            ".ab<cab&lt;cab<");
}

// What stands behind ** brings its names with it.
TEST(JinjaTemplate, NamesOfArgumentsKeepTheirOrigin) {
  const Json user = {{"d", {{"<|a|>", "v"}}}};
  EXPECT_EQ(user_bytes("{% for k in dict(**d) %}{{ k }}{% endfor %}", user), "<|a|>");
  EXPECT_EQ(user_bytes("{% for k in dict({}, **d) %}{{ k }}{% endfor %}", user), "<|a|>");
  EXPECT_EQ(user_bytes("{% macro m() %}{{ kwargs }}{% endmacro %}{{ m(**d) }}", user),
            "..<|a|>....v..");
  EXPECT_EQ(user_bytes("{% set e = {} %}{% set _ = e.update(**d) %}{{ e }}", user),
            "..<|a|>....v..");
  EXPECT_EQ(user_bytes("{{ namespace(**d) }}", user), ".............<|a|>....v...");
}

// Roles and the like: one member, and words of a list.
TEST(JinjaTemplate, WordsOfTheProtocolAreNotTheUsers) {
  const auto compiled = Template::compile("{{ m.role }}{{ m.name }}{{ n.role }}", "words");
  ASSERT_TRUE(compiled.is_ok());
  Variables variables;
  variables.user = {{"m", {{"role", "user"}, {"name", "user"}}}, {"n", {{"role", "else"}}}};
  variables.word_member = "role";
  variables.words = {"user", "tool"};
  const auto rendered = compiled.value().render(variables);
  ASSERT_TRUE(rendered.is_ok());
  EXPECT_EQ(rendered.value().text, "useruserelse");
  ASSERT_EQ(rendered.value().user.size(), 1U);
  EXPECT_EQ(rendered.value().user[0].begin, 4U);
}

TEST(JinjaTemplate, ListsMayBeChangedAndStayThisRenderings) {
  const Json user = {{"l", {1, 2}}};
  const std::string source = "{% set _ = l.append(3) %}{{ l }}{{ l.pop() }}{{ l }}";
  EXPECT_EQ(text_of(source, user), "[1, 2, 3]3[1, 2]");
  EXPECT_EQ(text_of(source, user), "[1, 2, 3]3[1, 2]");
}

}  // namespace
}  // namespace moepack::jinja::template_test
