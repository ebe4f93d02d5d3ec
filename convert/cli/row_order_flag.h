// --row-order, of every command that writes packs.
#pragma once

#include <CLI/CLI.hpp>
#include <string>

#include "formats/weights/row_order.h"

namespace moepack::cli {

// `name` holds the default.
void add_row_order(CLI::App& command, std::string& name);
// The order of a name that the flag took.
RowOrder row_order_of(const std::string& name);

}  // namespace moepack::cli
