#include "convert/cli/given_flags.h"

#include <cstdlib>

namespace moepack::cli {

bool is_given(const CLI::Option& option) {
  const std::string& variable = option.get_envname();
  return option.count() > 0 && (variable.empty() || std::getenv(variable.c_str()) == nullptr);
}

bool GivenFlags::has(const std::string& name) const {
  return command_ != nullptr && is_given(*command_->get_option(name));
}

Status GivenFlags::check_idle(std::initializer_list<const char*> names,
                              const std::string& here) const {
  for (const char* name : names) {
    if (has(name)) {
      return invalid_argument(std::string(name) + " does nothing " + here, "leave it out");
    }
  }
  return Status::ok();
}

}  // namespace moepack::cli
