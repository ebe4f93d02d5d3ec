// A reference to something that can be called: two pointers, no allocation. The callable outlives
// the call that takes the reference; nobody keeps one longer.
#pragma once

#include <memory>
#include <type_traits>
#include <utility>

namespace moepack {

template <typename Signature>
class FunctionRef;

template <typename Result, typename... Args>
class FunctionRef<Result(Args...)> {
 public:
  template <typename F>
  requires(!std::is_same_v<std::remove_cvref_t<F>, FunctionRef> &&
           std::is_invocable_r_v<Result, F&, Args...>)
      // NOLINTNEXTLINE(google-explicit-constructor,bugprone-forwarding-reference-overload)
      FunctionRef(F&& callable)  // a lambda is passed as it is
      : callable_(const_cast<void*>(static_cast<const void*>(std::addressof(callable)))),
        call_([](void* f, Args... args) -> Result {
          return (*static_cast<std::remove_reference_t<F>*>(f))(std::forward<Args>(args)...);
        }) {}

  Result operator()(Args... args) const { return call_(callable_, std::forward<Args>(args)...); }

 private:
  void* callable_;
  Result (*call_)(void*, Args...);
};

}  // namespace moepack
