// An exception of what others wrote (a listener, a filter), as a status.
#pragma once

#include <exception>
#include <new>
#include <string>

#include "formats/base/status.h"

namespace moepack {

// ok() when `work` returns. One text must not end the thread that serves all.
template <typename Work>
Status caught(Work&& work) {
  try {
    work();
    return Status::ok();
  } catch (const std::bad_alloc&) {
    return {StatusCode::kIo, "out of memory"};  // short: no allocation
  } catch (const std::exception& error) {
    return {StatusCode::kIo, error.what()};
  } catch (...) {
    return {StatusCode::kIo, "unknown exception"};
  }
}

}  // namespace moepack
