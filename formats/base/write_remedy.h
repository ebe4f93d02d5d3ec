// What to do about errors of the operating system that say nothing about the file in hand.
#pragma once

#include <string_view>

namespace moepack {

// About a full disk or quota, a limit of file sizes and one of open files, by the error number of a
// call that opens, creates, writes or renames; `otherwise` for any other error.
std::string_view write_remedy(int error, std::string_view otherwise = {});

}  // namespace moepack
