// `moepack bench`: tokens a second of prompts and of decoding, as llama-bench measures and tells
// them.
#pragma once

#include <string>
#include <vector>

#include "convert/cli/command.h"

namespace moepack::cli {

void register_bench(CLI::App& app, Action& action);

// The command line as CLI::App::parse takes it, last word first. The parser knows no names of two
// letters after one dash, so bench's -pg, which is llama-bench's, becomes --pg.
std::vector<std::string> bench_words(int argc, char** argv);

}  // namespace moepack::cli
