#include "convert/cli/quantizer_flags.h"

namespace moepack::cli {

CLI::Validator known_widths() { return CLI::IsMember({2, 3, 4, 5, 6, 8}); }

void add_from(CLI::App& command, std::string& from) {
  command.add_option("--from", from, "Where the weights come from, as for moepack quantize");
}

void add_method(CLI::App& command, std::string& method, const std::string& description) {
  command.add_option("--method", method, description)
      ->check(CLI::IsMember({"rtn", "clip", "grid", "gptq"}))
      ->capture_default_str();
}

CLI::Option* add_group_size(CLI::App& command, std::uint32_t& group_size,
                            const std::string& description) {
  return command.add_option("--group-size", group_size, description)
      ->check(CLI::IsMember({32, 64, 128}));
}

Status check_group_size(const GivenFlags& given, const std::string& expert_format,
                        const std::string& resident_format) {
  if (expert_format.starts_with('q') || resident_format.starts_with('q')) return Status::ok();
  return given.check_idle({"--group-size"}, "without --expert-format or --resident of q");
}

}  // namespace moepack::cli
