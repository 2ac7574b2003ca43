// SPDX-License-Identifier: Apache-2.0
// One compiled PCRE2 pattern over UTF-8, with limits.
#pragma once

#include "models/text_span.hpp"
#include "runtime/base/error.hpp"

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

struct pcre2_real_code_8;
struct pcre2_real_match_context_8;
struct pcre2_real_match_data_8;

namespace troupe::models {

/// What a search writes to, for any pattern. Thread: one at a time per object.
class regex_scratch {
 public:
  regex_scratch();
  regex_scratch(regex_scratch&&) noexcept;
  regex_scratch& operator=(regex_scratch&&) noexcept;
  ~regex_scratch();

 private:
  friend class regex;
  struct release {
    void operator()(pcre2_real_match_data_8* data) const noexcept;
  };
  std::unique_ptr<pcre2_real_match_data_8, release> data_;
};

/// Immutable. Thread: any, concurrently, each search with its own scratch. Unicode 14 (PCRE2 10.42); `$` and
/// `^` match at line ends too when compiled with `multiline`.
class regex {
 public:
  /// `match_limit` bounds the work from one place of a text. Errors: unsupported naming the pattern and the
  /// place; no_memory.
  static result<regex>
  compile(std::string_view pattern, bool multiline = false, std::uint32_t match_limit = 1u << 28);

  /// The first match in `text` (well-formed UTF-8) at or after `from`, which begins a character. Returns 1
  /// and sets `found`, 0 when there is none, or a negative code for `fault`.
  int find(std::string_view text, std::size_t from, regex_scratch& scratch, text_span& found) const noexcept;

  /// Whether a match begins at `from`.
  bool matches_at(std::string_view text, std::size_t from, regex_scratch& scratch) const noexcept;

  /// Calls `visit(text_span)` for every match, in order, until it returns an error. An empty match right
  /// behind the one before it does not count (Oniguruma's iteration). Errors: those of `visit`, and of
  /// `fault` when a limit is hit.
  template<class Visit>
  result<void> each(std::string_view text, regex_scratch& scratch, Visit visit) const {
    text_span found;
    std::size_t at = 0, last = std::string_view::npos;
    while (at <= text.size()) {
      const int code = find(text, at, scratch, found);
      if (code == 0) break;
      if (code < 0) return fault(code);
      if (found.begin == found.end && found.end == last) {
        do ++at;
        while (at < text.size() && (static_cast<unsigned char>(text[at]) & 0xC0) == 0x80);
        continue;
      }
      if (auto ok = visit(found); !ok) return ok;
      at = last = found.end;
    }
    return {};
  }

  /// The error behind a negative code of `find`: bad_request, the pattern needs more than its limits for this
  /// text.
  error fault(int code) const;

 private:
  regex() = default;
  int search(
      std::string_view text, std::size_t from, std::uint32_t options, regex_scratch& scratch) const noexcept;

  struct release {
    void operator()(pcre2_real_code_8* code) const noexcept;
    void operator()(pcre2_real_match_context_8* context) const noexcept;
  };
  std::unique_ptr<pcre2_real_code_8, release> code_;
  std::unique_ptr<pcre2_real_match_context_8, release> context_;
  std::string shown_; ///< the pattern's beginning, for messages
};

} // namespace troupe::models
