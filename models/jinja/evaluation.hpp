// SPDX-License-Identifier: Apache-2.0
// What filters, tests, methods and operators see of a running render: its heap, its bounds, a way to call
// back.
#pragma once

#include "models/jinja/ast.hpp"
#include "models/jinja/value.hpp"

#include <cstdint>
#include <ctime>
#include <initializer_list>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace troupe::models::jinja {

/// Steps for looking at `bytes` of text: memory moves some tens of bytes in the time of one step.
constexpr std::uint64_t scan_steps(std::size_t bytes) noexcept {
  return 1 + bytes / 64;
}

/// Bounds of one render. Beyond any of them it fails with a message that says which.
struct limits {
  std::uint64_t steps = 10'000'000;                  ///< nodes visited, and work in proportion to sizes
  std::size_t memory_bytes = std::size_t{256} << 20; ///< allocated in total, freed or not
  std::size_t output_bytes = std::size_t{64} << 20;
  std::uint32_t depth = 800; ///< of nested evaluation: about 1 KiB of stack each
};

struct arguments {
  std::vector<value> positional;
  std::vector<std::pair<const text_object*, value>> named;
};

struct scope;

/// Something to call: a built-in function, a method with its receiver, a macro with the scope it was
/// defined in, or a block. `context` is what the blocks within see.
struct function_object {
  std::string_view name;
  value (*global)(evaluation&, const arguments&) = nullptr;
  filter_function method = nullptr;
  value receiver;
  const statement* macro = nullptr;
  scope* closure = nullptr;
  const statement* named_block = nullptr;
  scope* context = nullptr;
};

/// State of one render. Thread: one at a time.
class evaluation {
 public:
  evaluation(const limits& bounds, const std::tm& now) :
      bounds_(bounds), now_(now), heap_(bounds.memory_bytes) {}
  virtual ~evaluation() = default;

  heap& memory() noexcept { return heap_; }
  const limits& bounds() const noexcept { return bounds_; }
  const std::tm& now() const noexcept { return now_; }

  /// Counts `n` steps of work. Throws template_failure when the bound is passed.
  void step(std::uint64_t n = 1) {
    if (n > bounds_.steps - steps_) {
      steps_ = bounds_.steps;
      fail("the template runs for more steps than allowed");
    }
    steps_ += n;
  }

  /// Counts the work of looking for `part_bytes` in `text_bytes`: usually linear, at worst their product.
  void step_search(std::size_t text_bytes, std::size_t part_bytes) {
    step(1 + text_bytes / 16 + (text_bytes / 64) * (part_bytes / 64));
  }

  [[noreturn]] void fail(const std::string& message) const { throw template_failure(message); }
  /// Raises the error that using an undefined value is.
  [[noreturn]] void fail_undefined(const value& v) const;

  /// Calls any callable value. Throws template_failure when it is none.
  virtual value call(const value& f, const arguments& a) = 0;

  value text(std::string_view bytes, bool untrusted = false) {
    return value::of(heap_.make_text(bytes, untrusted));
  }
  value text(text_builder&& built, bool markup = false) {
    return value::of(heap_.make_text(std::move(built), markup));
  }
  value list(std::vector<value> items, list_form form = list_form::list) {
    return value::of(heap_.make_list(std::move(items), form));
  }

  /// Counts one level of nested evaluation for its lifetime.
  class nesting {
   public:
    explicit nesting(evaluation& e) : evaluation_(e) {
      if (++e.depth_ > e.bounds_.depth) {
        --e.depth_;
        e.fail("the template nests deeper than allowed");
      }
    }
    ~nesting() { --evaluation_.depth_; }
    nesting(const nesting&) = delete;
    nesting& operator=(const nesting&) = delete;

   private:
    evaluation& evaluation_;
  };

 private:
  const limits bounds_;
  const std::tm now_;
  heap heap_;
  std::uint64_t steps_ = 0;
  std::uint32_t depth_ = 0;
};

/// Arguments matched to the parameter names of a built-in. Throws template_failure for too many, unknown or
/// repeated ones, and for a required one that is missing.
class bound_arguments {
 public:
  bound_arguments(
      evaluation& e, std::string_view function, const arguments& a,
      std::initializer_list<std::string_view> names, std::size_t required = 0);

  /// Null when the caller left it out.
  const value* at(std::size_t i) const { return values_[i]; }
  bool has(std::size_t i) const { return values_[i] != nullptr; }
  bool flag(std::size_t i, bool otherwise) const;
  std::int64_t integer(std::size_t i, std::int64_t otherwise) const;
  /// A text argument. Throws when it is something else.
  const text_object& text(std::size_t i) const;

 private:
  evaluation& evaluation_;
  std::string_view function_;
  std::vector<std::string_view> names_;
  std::vector<const value*> values_;
};

} // namespace troupe::models::jinja
