// The file that a user names for a result: which paths can be one, and how it appears whole.
#pragma once

#include <filesystem>
#include <string_view>

#include "formats/base/file.h"

namespace moepack {

// Begins the file `target`; commit() makes it appear there in one step, replacing a regular file of
// that name. Until then it has a name of its own beside the target, TARGET.moepack-HOST-HEX.tmp, so
// any number of runs may write one target at once: each succeeds, and the last to commit stays,
// whole.
//
// What a killed run left under such a name is removed by the next one with the same target. Whether
// a run lives is told by a lock, and on some network mounts locks are seen by the processes of one
// kernel alone; so HOST stands for the running kernel, and names of others are left alone: those of
// other machines, and those from before a reboot.
//
// A symbolic link is followed, also one to a file that does not exist yet: the file that it leads
// to is replaced, the link stays. Where the target is there and is no regular file (a directory, a
// device, a pipe, a socket), it would be replaced and not written to: kInvalidArgument.
Result<AtomicFile> create_output_file(const std::filesystem::path& target);

// Writes a whole small file through create_output_file().
Status write_output_text(const std::filesystem::path& target, std::string_view text);

}  // namespace moepack
