// SPDX-License-Identifier: Apache-2.0
// The model's detokeniser followed by the stop strings.
#include "actors/token_text.hpp"

#include "models/detokenizer.hpp"
#include "models/stop_matcher.hpp"
#include "models/utf8.hpp"

#include <utility>

namespace troupe::actors {
namespace {

/// The BOS that the tokenizer put before a given text has no place in it, as the text itself has not.
bool adds_bos(const models::tokenizer& t, const std::string* given) {
  const models::vocabulary& words = t.vocab();
  return given != nullptr && words.add_bos && words.bos && !given->starts_with(t.bytes_of(*words.bos));
}

class model_text final : public token_text {
 public:
  model_text(const models::tokenizer& t, const text_options& o) :
      tokenizer_(t), characters_(t, o.show_special, o.continues), echoed_(t, true), stops_(o.stops),
      has_stops_(!o.stops.empty()), show_special_(o.show_special), given_(o.given),
      bos_due_(adds_bos(t, o.given.get())) {}

  piece push(std::int32_t token, bool may_stop) override {
    return through_stops(characters_.push(token), may_stop_ = may_stop);
  }

  piece flush() override {
    piece last = through_stops(characters_.flush(), may_stop_);
    if (has_stops_ && !last.stopped) last.text += stops_.flush();
    return last;
  }

  token_name name_of(std::int32_t token) const override {
    return {characters_.next_bytes(token), show_special_ || !tokenizer_.is_special(token)};
  }

  std::string echo(std::span<const std::int32_t> prompt) override {
    if (given_ && models::is_valid_utf8(*given_)) return *given_;
    std::string text;
    for (std::size_t i = 0; i < prompt.size(); ++i) text += echo_next(prompt[i], i + 1 == prompt.size());
    return text;
  }

  std::string echo_next(std::int32_t token, bool last) override {
    const bool shown = echo_name_of(token).shown;
    bos_due_ = false;
    std::string text = shown ? echoed_.push(token) : std::string();
    if (last) text += echoed_.flush();
    return text;
  }

  token_name echo_name_of(std::int32_t token) const override {
    return {echoed_.next_bytes(token), !(bos_due_ && token == tokenizer_.vocab().bos)};
  }

 private:
  piece through_stops(std::string text, bool may_stop) {
    if (!has_stops_) return {std::move(text), false};
    auto step = stops_.push(text, may_stop);
    return {std::move(step.text), step.matched.has_value()};
  }

  const models::tokenizer& tokenizer_;
  models::detokenizer characters_, echoed_; ///< of the answer, of the prompt
  models::stop_matcher stops_;
  bool has_stops_;
  bool show_special_;
  bool may_stop_ = true; ///< of the last token, whose last bytes `flush` may give
  std::shared_ptr<const std::string> given_;
  bool bos_due_; ///< the prompt's first token may be one that its text does not hold
};

} // namespace

std::unique_ptr<token_text> make_token_text(const models::tokenizer& t, const text_options& options) {
  return std::make_unique<model_text>(t, options);
}

} // namespace troupe::actors
