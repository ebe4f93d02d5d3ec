// Looks after stdin, stdout and stderr as the program found them, and after what it printed.
#pragma once

namespace moepack::cli {

// Takes those of the descriptors 0, 1 and 2 that are closed, so that no file that is opened later
// becomes one of them and is read as input or written over by messages. What is read from or
// written to a closed one fails as before. Call first of all.
void hold_standard_descriptors();

// Makes a file that grows beyond the limit of sizes (ulimit -f) a failed write, which is told, and
// not the end of the program without a word.
void take_size_limit_as_error();

// Writes out what stdout still holds. Returns `exit_code`, or kExitError after a message where
// anything that was printed on stdout is lost.
int finish_stdout(int exit_code);

}  // namespace moepack::cli
