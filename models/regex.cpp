// SPDX-License-Identifier: Apache-2.0
// One compiled PCRE2 pattern over UTF-8, with limits.
#include "models/regex.hpp"

#include "models/json_document.hpp"

#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>

#include <array>
#include <string>

namespace troupe::models {
namespace {

constexpr std::uint32_t heap_limit_kib = 256u << 10;
constexpr std::size_t shown_bytes = 200;

error regex_error(errc kind, int code, const std::string& what) {
  std::array<unsigned char, 160> text{};
  pcre2_get_error_message(code, text.data(), text.size());
  return {kind, "regex " + what + ": " + reinterpret_cast<const char*>(text.data()), {}, 0};
}

} // namespace

regex_scratch::regex_scratch() : data_(pcre2_match_data_create(1, nullptr)) {}
regex_scratch::regex_scratch(regex_scratch&&) noexcept = default;
regex_scratch& regex_scratch::operator=(regex_scratch&&) noexcept = default;
regex_scratch::~regex_scratch() = default;

void regex_scratch::release::operator()(pcre2_match_data* data) const noexcept {
  pcre2_match_data_free(data);
}

void regex::release::operator()(pcre2_code* code) const noexcept {
  pcre2_code_free(code);
}

void regex::release::operator()(pcre2_match_context* context) const noexcept {
  pcre2_match_context_free(context);
}

result<regex> regex::compile(std::string_view pattern, bool multiline, std::uint32_t match_limit) {
  regex made;
  made.shown_ = for_message(pattern, shown_bytes);
  int code = 0;
  PCRE2_SIZE at = 0;
  const std::uint32_t options = PCRE2_UTF | PCRE2_UCP | (multiline ? PCRE2_MULTILINE : 0u);
  const std::unique_ptr<pcre2_compile_context, decltype(&pcre2_compile_context_free)> how(
      pcre2_compile_context_create(nullptr), &pcre2_compile_context_free);
  if (how) pcre2_set_newline(how.get(), PCRE2_NEWLINE_LF);
  made.code_.reset(pcre2_compile(
      reinterpret_cast<PCRE2_SPTR>(pattern.data()), pattern.size(), options, &code, &at, how.get()));
  if (!made.code_) {
    return regex_error(errc::unsupported, code, "'" + made.shown_ + "' at byte " + std::to_string(at));
  }
  // Where executable memory is forbidden this fails and the interpreter does the same work slower.
  (void)pcre2_jit_compile(made.code_.get(), PCRE2_JIT_COMPLETE);
  made.context_.reset(pcre2_match_context_create(nullptr));
  if (!made.context_) return error{errc::no_memory, "regex: no memory for a match context", {}, 0};
  pcre2_set_match_limit(made.context_.get(), match_limit);
  pcre2_set_heap_limit(made.context_.get(), heap_limit_kib);
  return made;
}

int regex::search(
    std::string_view text, std::size_t from, std::uint32_t options, regex_scratch& scratch) const noexcept {
  if (!scratch.data_) return PCRE2_ERROR_NOMEMORY;
  return pcre2_match(
      code_.get(), reinterpret_cast<PCRE2_SPTR>(text.data()), text.size(), from, PCRE2_NO_UTF_CHECK | options,
      scratch.data_.get(), context_.get());
}

int regex::find(
    std::string_view text, std::size_t from, regex_scratch& scratch, text_span& found) const noexcept {
  int code = search(text, from, 0, scratch);
  // Compiled code has a small stack; the interpreter keeps its frames on the heap.
  if (code == PCRE2_ERROR_JIT_STACKLIMIT) code = search(text, from, PCRE2_NO_JIT, scratch);
  if (code == PCRE2_ERROR_NOMATCH) return 0;
  if (code < 0) return code;
  const PCRE2_SIZE* range = pcre2_get_ovector_pointer(scratch.data_.get());
  found = {range[0], range[1]};
  // \K in a look-around may put the start behind the end or before `from`: no such range leaves here.
  return found.begin <= found.end && found.begin >= from && found.end <= text.size() ? 1
                                                                                     : PCRE2_ERROR_INTERNAL;
}

bool regex::matches_at(std::string_view text, std::size_t from, regex_scratch& scratch) const noexcept {
  return search(text, from, PCRE2_ANCHORED, scratch) >= 0;
}

error regex::fault(int code) const {
  return regex_error(
      errc::bad_request, code, "'" + shown_ + "' of the tokenizer cannot be matched against this text");
}

} // namespace troupe::models
