#include "convert/cli/row_order_flag.h"

namespace moepack::cli {

void add_row_order(CLI::App& command, std::string& name) {
  command
      .add_option("--row-order", name,
                  "Order of the rows of the experts' matrices; panels16: 16 side by side, which "
                  "8-bit activations read faster and no other engine reads")
      ->check(CLI::IsMember({"rows", "panels16"}))
      ->capture_default_str();
}

RowOrder row_order_of(const std::string& name) {
  return row_order_from_name(name).value_or(RowOrder::kRows);
}

}  // namespace moepack::cli
