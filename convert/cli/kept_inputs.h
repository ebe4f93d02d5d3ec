// What a command reads is never what it writes over.
#pragma once

#include <filesystem>
#include <span>
#include <string_view>

#include "formats/base/status.h"

namespace moepack::cli {

// An error where the file `path`, which `option` gave as an output, is one of `inputs` or belongs
// to one: to a model, a checkpoint, a pack or a calibration by its directory, to a split GGUF file
// by any part. Links are followed, as they are when the output is written. Ok where nothing is
// there yet, where other files stand in such a directory, and for stdout; an empty path among the
// inputs stands for none.
Status check_keeps_inputs(std::string_view option, const std::filesystem::path& path,
                          std::span<const std::filesystem::path> inputs);

// The same of a file that must be one: neither stdout nor a place where nothing can be written
// (check_named_file).
Status check_named_output(std::string_view option, const std::filesystem::path& path,
                          std::span<const std::filesystem::path> inputs);

// Whether two paths name one file, also one that is not there yet.
bool is_same_place(const std::filesystem::path& one, const std::filesystem::path& other);

}  // namespace moepack::cli
