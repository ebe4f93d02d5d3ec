#include "formats/base/write_remedy.h"

#include <cerrno>

namespace moepack {

std::string_view write_remedy(int error, std::string_view otherwise) {
  switch (error) {
    case ENOSPC:
      return "free some space and run the same command again";
    case EDQUOT:
      return "free some space of your quota and run the same command again";
    case EFBIG:
      return "raise the limit of file sizes (ulimit -f), or write to a file system that takes "
             "larger files";
    case EMFILE:
      return "raise the limit of open files (ulimit -n)";
    case ENFILE:
      return "end other programs: the system has as many open files as it allows";
    default:
      return otherwise;
  }
}

}  // namespace moepack
