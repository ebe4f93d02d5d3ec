#include "convert/cli/command_names.h"

#include <algorithm>
#include <string>
#include <vector>

namespace moepack::cli {
namespace {

// The least number of letters to insert, drop or change to make `b` of `a` (Levenshtein's
// distance).
std::size_t edit_distance(std::string_view a, std::string_view b) {
  std::vector<std::size_t> row(b.size() + 1);
  for (std::size_t j = 0; j < row.size(); ++j) row[j] = j;
  for (std::size_t i = 0; i < a.size(); ++i) {
    std::size_t diagonal = row[0];
    row[0] = i + 1;
    for (std::size_t j = 0; j < b.size(); ++j) {
      const std::size_t change = diagonal + (a[i] == b[j] ? 0 : 1);
      diagonal = row[j + 1];
      row[j + 1] = std::min({row[j + 1] + 1, row[j] + 1, change});
    }
  }
  return row.back();
}

}  // namespace

Status check_command_name(const CLI::App& app, std::string_view word) {
  constexpr std::size_t kMaxWord = 64;
  std::string all;
  std::string nearest;
  std::size_t least = std::min<std::size_t>(3, word.size());  // farther ones are no misspellings
  for (const CLI::App* command : app.get_subcommands([](const CLI::App*) { return true; })) {
    const std::string& name = command->get_name();
    if (name == word) return Status::ok();
    all += (all.empty() ? "" : ", ") + name;
    const std::size_t distance = word.size() > kMaxWord ? least : edit_distance(word, name);
    if (distance >= least) continue;
    least = distance;
    nearest = name;
  }
  const std::string what =
      word.empty() ? "no command was given" : "there is no command " + printable(word, kMaxWord);
  const std::string asked = nearest.empty() ? "" : "did you mean " + nearest + "? ";
  return invalid_argument(what, asked + "commands: " + all + "; see moepack --help");
}

}  // namespace moepack::cli
