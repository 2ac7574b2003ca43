// SPDX-License-Identifier: Apache-2.0
// A compiled Jinja template: the module's door.
#pragma once

#include "models/jinja/evaluation.hpp"
#include "models/jinja/value.hpp"
#include "runtime/base/error.hpp"

#include <cstddef>
#include <ctime>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

namespace troupe::models::jinja {

struct syntax_tree;

inline constexpr std::size_t max_template_bytes = std::size_t{1} << 20;

/// What a template wrote, and which bytes of it came from untrusted variables.
struct rendered_text {
  std::string text;
  std::vector<text_span> untrusted; ///< sorted, disjoint
};

/// The subset of Jinja2 3.1 that chat templates use, with Hugging Face's conventions (trim_blocks,
/// lstrip_blocks, loop controls, `tojson` without escapes, `raise_exception`, `strftime_now`, `generation`
/// blocks). A template reaches no file, no clock, no attribute beyond its own values. Immutable. Thread: any,
/// concurrently.
class compiled_template {
 public:
  /// Errors: bad_template with line and reason; time linear in `source`.
  static result<compiled_template> compile(std::string_view source);

  /// `variables` are readable by name. `now` is what `strftime_now` formats.
  /// Errors: bad_template with line and reason: raised by the template, or a bound of `bounds` was passed.
  result<rendered_text>
  render(const dict_object& variables, const std::tm& now, const limits& bounds = {}) const;

  compiled_template(compiled_template&&) noexcept;
  compiled_template& operator=(compiled_template&&) noexcept;
  ~compiled_template();

 private:
  explicit compiled_template(std::unique_ptr<const syntax_tree> tree) noexcept;
  std::unique_ptr<const syntax_tree> tree_;
};

} // namespace troupe::models::jinja
