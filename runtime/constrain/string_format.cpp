#include "runtime/constrain/string_format.h"

namespace moepack {
namespace {

// A day of every year, or the 29th of February of those that have it.
std::string date_pattern() {
  const std::string day =
      R"~((0[13578]|1[02])-(0[1-9]|[12]\d|3[01])|(0[469]|11)-(0[1-9]|[12]\d|30))~"
      R"~(|02-(0[1-9]|1\d|2[0-8]))~";
  const std::string leap_year =
      R"~((\d\d(0[48]|[2468][048]|[13579][26])|([02468][048]|[13579][26])00))~";
  return R"~((\d{4}-()~" + day + ")|" + leap_year + "-02-29)";
}

std::string time_pattern() {
  const std::string minutes = R"~(([01]\d|2[0-3]):[0-5]\d)~";
  return minutes + R"~(:[0-5]\d(\.\d{1,9})?(Z|[+-])~" + minutes + ")";
}

std::string ipv4_pattern() {
  const std::string octet = R"~((25[0-5]|2[0-4]\d|1\d\d|[1-9]?\d))~";
  return octet + R"~((\.)~" + octet + "){3}";
}

std::string email_pattern() {
  const std::string atom = "[A-Za-z0-9!#$%&'*+/=?^_`{|}~-]+";
  const std::string label = "[A-Za-z0-9]([A-Za-z0-9-]{0,61}[A-Za-z0-9])?";
  return atom + R"~((\.)~" + atom + ")*@(" + label + R"~(\.)+)~" + label;
}

}  // namespace

std::optional<std::string> format_pattern(std::string_view format) {
  std::string inside;
  if (format == "date") inside = date_pattern();
  if (format == "time") inside = time_pattern();
  if (format == "date-time") inside = date_pattern() + "T" + time_pattern();
  if (format == "uuid") inside = "[0-9a-fA-F]{8}(-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}";
  if (format == "ipv4") inside = ipv4_pattern();
  if (format == "email") inside = email_pattern();
  if (inside.empty()) return std::nullopt;
  return "^" + inside + "$";
}

}  // namespace moepack
