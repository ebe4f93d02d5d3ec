// Renders templates for scripts that compare them with another program: a JSON object a line on
// standard input, {"template":…,"variables":{…}}, and one on standard output, {"text":…} or
// {"error":…,"code":…}. A variable "__clock" is the time in seconds, as UTC, of strftime_now.
#include <ctime>
#include <iostream>
#include <string>

#include <nlohmann/json.hpp>

#include "runtime/jinja/template.h"

int main() {
  using Json = nlohmann::ordered_json;
  using moepack::jinja::Template;
  std::ios::sync_with_stdio(false);
  for (std::string line; std::getline(std::cin, line);) {
    const Json request = Json::parse(line);
    moepack::jinja::Variables variables;
    variables.user = request.at("variables");
    const std::time_t seconds = request.value("clock", 0);
    gmtime_r(&seconds, &variables.clock);
    Json answer;
    auto made = Template::compile(request.at("template").get<std::string>(), "template");
    auto status = made.status();
    if (status.is_ok()) {
      const auto rendered = made.value().render(variables);
      status = rendered.status();
      if (status.is_ok()) answer["text"] = rendered.value().text;
    }
    if (!status.is_ok()) {
      answer["error"] = status.message();
      answer["code"] = static_cast<int>(status.code());
    }
    std::cout << answer.dump(-1, ' ', false, Json::error_handler_t::replace) << '\n' << std::flush;
  }
  return 0;
}
