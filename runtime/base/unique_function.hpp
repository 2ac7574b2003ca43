// SPDX-License-Identifier: Apache-2.0
// A move-only callable with room for small captures, for callbacks that own what they carry.
#pragma once

#include <cstddef>
#include <memory>
#include <new>
#include <type_traits>
#include <utility>

namespace troupe {

template<class Signature>
class unique_function;

/// Like std::function, but holds move-only callables and allocates only when captures exceed `inline_bytes`.
/// Calling an empty one is a programmer's error.
template<class Result, class... Args>
class unique_function<Result(Args...)> {
 public:
  static constexpr std::size_t inline_bytes = 64; // a reference, a message of some words and a node pointer

  unique_function() noexcept = default;
  unique_function(std::nullptr_t) noexcept {} // NOLINT(google-explicit-constructor): as std::function
  template<class F>
  requires(!std::is_same_v<std::remove_cvref_t<F>, unique_function>) &&
      std::is_invocable_r_v<Result, std::remove_cvref_t<F>&, Args...> unique_function(
          F&& f) { // NOLINT(google-explicit-constructor): as std::function
    using Callable = std::remove_cvref_t<F>;
    if constexpr (fits<Callable>) {
      ::new (static_cast<void*>(storage_)) Callable(std::forward<F>(f));
      table_ = &inline_table<Callable>;
    } else {
      ::new (static_cast<void*>(storage_)) Callable*(new Callable(std::forward<F>(f)));
      table_ = &heap_table<Callable>;
    }
  }
  unique_function(unique_function&& other) noexcept { take(other); }
  unique_function& operator=(unique_function&& other) noexcept {
    if (this != &other) {
      reset();
      take(other);
    }
    return *this;
  }
  unique_function(const unique_function&) = delete;
  unique_function& operator=(const unique_function&) = delete;
  ~unique_function() { reset(); }

  explicit operator bool() const noexcept { return table_ != nullptr; }
  Result operator()(Args... args) { return table_->call(storage_, std::forward<Args>(args)...); }

  void reset() noexcept {
    if (table_ == nullptr) return;
    table_->destroy(storage_);
    table_ = nullptr;
  }

 private:
  struct table {
    Result (*call)(std::byte*, Args&&...);
    void (*move)(std::byte* from, std::byte* to) noexcept; // leaves nothing to destroy at `from`
    void (*destroy)(std::byte*) noexcept;
  };
  template<class F>
  static constexpr bool
      fits = sizeof(F) <= inline_bytes &&
             alignof(F) <= alignof(std::max_align_t) && std::is_nothrow_move_constructible_v<F>;
  template<class T>
  static T& as(std::byte* p) noexcept {
    return *std::launder(reinterpret_cast<T*>(p));
  }

  template<class F>
  static constexpr table inline_table{
      [](std::byte* p, Args&&... args) -> Result { return as<F>(p)(std::forward<Args>(args)...); },
      [](std::byte* from, std::byte* to) noexcept {
        ::new (static_cast<void*>(to)) F(std::move(as<F>(from)));
        as<F>(from).~F();
      },
      [](std::byte* p) noexcept { as<F>(p).~F(); }};
  template<class F>
  static constexpr table heap_table{
      [](std::byte* p, Args&&... args) -> Result { return (*as<F*>(p))(std::forward<Args>(args)...); },
      [](std::byte* from, std::byte* to) noexcept { ::new (static_cast<void*>(to)) F*(as<F*>(from)); },
      [](std::byte* p) noexcept { delete as<F*>(p); }};

  void take(unique_function& other) noexcept {
    table_ = std::exchange(other.table_, nullptr);
    if (table_ != nullptr) table_->move(other.storage_, storage_);
  }

  alignas(std::max_align_t) std::byte storage_[inline_bytes];
  const table* table_ = nullptr;
};

} // namespace troupe
