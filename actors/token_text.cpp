// SPDX-License-Identifier: Apache-2.0
// The model's detokeniser followed by the stop strings.
#include "actors/token_text.hpp"

#include "models/detokenizer.hpp"
#include "models/stop_matcher.hpp"

#include <utility>

namespace troupe::actors {
namespace {

class model_text final : public token_text {
 public:
  model_text(
      const models::tokenizer& t, std::span<const std::string> stops, bool show_special, bool continues) :
      tokenizer_(t),
      characters_(t, show_special, continues), echoed_(t, show_special), stops_(stops),
      has_stops_(!stops.empty()), show_special_(show_special) {}

  piece push(std::int32_t token, bool may_stop) override {
    std::string text = characters_.push(token);
    may_stop_ = may_stop;
    if (!has_stops_) return {std::move(text), false};
    auto step = stops_.push(text, may_stop);
    return {std::move(step.text), step.matched.has_value()};
  }

  std::string flush() override {
    std::string text = characters_.flush();
    if (!has_stops_) return text;
    auto step = stops_.push(text, may_stop_);
    return step.matched ? std::move(step.text) : std::move(step.text) + stops_.flush();
  }

  std::string echo(std::span<const std::int32_t> tokens, bool last) override {
    std::string text;
    for (const std::int32_t token : tokens) text += echoed_.push(token);
    if (last) text += echoed_.flush();
    return text;
  }
  bool shows(std::int32_t token) const override { return show_special_ || !tokenizer_.is_special(token); }
  std::string_view bytes_of(std::int32_t token) const override { return tokenizer_.bytes_of(token); }

 private:
  const models::tokenizer& tokenizer_;
  models::detokenizer characters_, echoed_; ///< of the answer, of the prompt
  models::stop_matcher stops_;
  bool has_stops_;
  bool show_special_;
  bool may_stop_ = true; ///< of the last token, whose last bytes `flush` may give
};

} // namespace

std::unique_ptr<token_text> make_token_text(
    const models::tokenizer& t, std::span<const std::string> stops, bool show_special, bool continues) {
  return std::make_unique<model_text>(t, stops, show_special, continues);
}

} // namespace troupe::actors
