// SPDX-License-Identifier: Apache-2.0
// A model's chat template: messages to the prompt's text.
#pragma once

#include "models/jinja/template.hpp"
#include "models/jinja/value.hpp"
#include "models/vocabulary.hpp"
#include "runtime/base/error.hpp"

#include <ctime>
#include <string>
#include <string_view>

namespace troupe::models {

/// What one render is given. Values live in a heap that the caller owns (`jinja::from_json` fills it).
struct chat_context {
  jinja::value messages; ///< list of dicts with role and content
  jinja::value tools;    ///< list of dicts; undefined leaves the variable out
  jinja::value extra;    ///< dict of further variables (they win over the ones above), or undefined
  bool add_generation_prompt = true;
  std::string_view bos_token, eos_token;
  std::tm now{}; ///< local time for strftime_now
};

/// Sets what transformers' apply_chat_template gives every template beside the conversation: tools and
/// documents (none unless there are any), bos_token and eos_token, and in `extra` the other special tokens of
/// `v`. `values` and `v` must outlive the context. Source: transformers 5.24, tokenization_utils_base.py.
void set_names(chat_context& context, const vocabulary& v, jinja::heap& values);

/// Immutable. Thread: any, concurrently.
class chat_template {
 public:
  /// Errors: bad_template with line and reason.
  static result<chat_template> compile(std::string_view source);

  /// The prompt, and which bytes of it came from the request: pass them to the tokenizer as
  /// `encode_options::untrusted` with `parse_special`, without adding BOS (the template writes its own).
  /// Errors: bad_template: the template's own exception or a breached bound, with its line.
  result<jinja::rendered_text> render(const chat_context& context, const jinja::limits& bounds = {}) const;

 private:
  explicit chat_template(jinja::compiled_template t) noexcept : template_(std::move(t)) {}
  jinja::compiled_template template_;
};

} // namespace troupe::models
