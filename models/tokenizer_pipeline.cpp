// SPDX-License-Identifier: Apache-2.0
// The one tokenizer: added tokens are cut out, the rest is normalised, cut into words and given to a model.
#include "models/tokenizer_pipeline.hpp"

#include "models/utf8.hpp"
#include "models/word_cache.hpp"

#include <algorithm>

namespace troupe::models {
namespace {

// A text may grow while it is rewritten: 11-fold by NFKC, once more by a space before every word.
constexpr std::size_t growth_factor = 64;
constexpr std::size_t growth_floor = 64u << 10;

/// Applies `steps` in order; the result is a view of `text` or of one of `s.texts`. `spans` of the text go
/// along.
result<std::string_view> rewrite(
    const std::vector<std::unique_ptr<const normalizer>>& steps, std::string_view text, text_place& place,
    stage_scratch& s, std::vector<text_span>& spans) {
  std::string out;
  s.traces = !spans.empty();
  for (const auto& step : steps) {
    s.edits.clear();
    auto changed = step->apply(text, place, s, out);
    if (!changed) return changed.error();
    if (!*changed) continue;
    follow_edits(s.edits, spans);
    if (auto ok = s.within_bound(out); !ok) return ok.error();
    text = s.texts.emplace_back(std::move(out));
    out.clear();
  }
  return text;
}

class pipeline final : public tokenizer {
 public:
  pipeline(pipeline_parts parts, std::vector<added_token> raw, std::vector<added_token> normalized) :
      tokenizer(std::move(parts.words)), raw_(raw), normalized_(normalized),
      normalizers_(std::move(parts.normalizers)), stages_(std::move(parts.stages)),
      model_(std::move(parts.model)), texts_(std::move(parts.texts)),
      leading_(std::move(parts.leading_texts)), before_(std::move(parts.before)),
      after_(std::move(parts.after)) {
    if (before_.empty() && vocab().bos) before_ = {*vocab().bos};
    if (after_.empty() && vocab().eos) after_ = {*vocab().eos};
  }

  result<std::vector<token_id>> encode(std::string_view text, const encode_options& options) const override;

  std::string_view bytes_of(token_id id) const noexcept override { return look_up(texts_, id); }
  std::string_view leading_bytes_of(token_id id) const noexcept override {
    return look_up(leading_ ? *leading_ : texts_, id);
  }

 private:
  struct encoding; // state of one call

  static std::string_view look_up(const token_texts& texts, token_id id) noexcept {
    if (id < 0 || static_cast<std::size_t>(id) >= texts.size()) return {};
    return texts[static_cast<std::size_t>(id)];
  }

  special_matcher raw_, normalized_; ///< matched before and after normalising
  std::vector<std::unique_ptr<const normalizer>> normalizers_;
  std::vector<std::unique_ptr<const word_stage>> stages_;
  std::unique_ptr<const subword_model> model_;
  token_texts texts_;
  std::optional<token_texts> leading_;
  std::vector<token_id> before_, after_;
};

struct pipeline::encoding {
  const pipeline& self;
  const encode_options& options;
  std::vector<token_id> ids;
  word_cache cache;
  stage_scratch stages;
  subword_scratch scratch;
  word_list list;
  std::vector<text_span> untrusted; ///< of the text that is normalised

  encoding(const pipeline& t, std::size_t text_bytes, const encode_options& o) :
      self(t), options(o), cache(text_bytes) {
    ids.reserve(std::min(text_bytes / 4, o.max_ids) + 4);
    stages.longest = text_bytes * growth_factor + growth_floor;
  }

  result<void> within_limit() const {
    if (ids.size() <= options.max_ids) return {};
    return error{
        errc::context_length_exceeded,
        "the text has more than " + std::to_string(options.max_ids) + " tokens",
        {},
        0};
  }

  void word(std::string_view bytes) {
    word_cache::entry* const known = cache.at(bytes);
    const std::size_t begin = ids.size();
    if (known && known->word == bytes) {
      for (std::uint32_t i = 0; i < known->count; ++i) ids.push_back(ids[known->begin + i]);
      return;
    }
    const std::size_t lost = scratch.lost;
    self.model_->encode(bytes, scratch, ids);
    if (known && scratch.lost == lost) { // what is lost counts each time
      *known = {bytes, static_cast<std::uint32_t>(begin), static_cast<std::uint32_t>(ids.size() - begin)};
    }
  }

  /// Normalised text without added tokens.
  result<void> words(std::string_view text, text_place place) {
    list.text = text;
    list.words.assign(1, {0, text.size()});
    list.place = place;
    for (const auto& stage : self.stages_)
      if (auto ok = stage->apply(list, stages); !ok) return ok;
    for (const text_span& span : list.words) {
      word(list.text.substr(span.begin, span.end - span.begin));
      if (auto ok = within_limit(); !ok) return ok;
    }
    return {};
  }

  /// Calls `plain(text, at)` for what lies between added tokens, and writes their ids.
  template<class Plain>
  result<void>
  between(const special_matcher& added, std::string_view text, const encode_options& how, Plain plain) {
    special_matcher::cursor c;
    while (true) {
      const special_matcher::match found = added.next(text, how, c);
      const std::size_t end = found.id >= 0 ? found.begin : text.size();
      if (c.taken < end)
        if (auto ok = plain(text.substr(c.taken, end - c.taken), c.taken); !ok) return ok;
      if (found.id < 0) return {};
      ids.push_back(found.id);
      c.taken = found.end;
      if (auto ok = within_limit(); !ok) return ok;
    }
  }

  /// Well-formed text between the added tokens that are matched as they stand; it begins at `offset` of the
  /// whole.
  result<void> well_formed(std::string_view text, std::size_t offset, text_place place) {
    find_untrusted(offset, offset + text.size());
    auto rewritten = rewrite(self.normalizers_, text, place, stages, untrusted);
    if (!rewritten) return rewritten.error();
    if (rewritten->empty()) return {};
    if (self.normalized_.empty()) return words(*rewritten, place);
    encode_options how;
    how.parse_special = options.parse_special;
    how.untrusted = untrusted;
    return between(self.normalized_, *rewritten, how, [&](std::string_view part, std::size_t at) {
      return words(part, at == 0 ? place : text_place{false, 0, false});
    });
  }

  /// Sets `untrusted` to the user's bytes in [begin, end), counted from `begin`. Only what is matched behind
  /// the normalisers asks for them.
  void find_untrusted(std::size_t begin, std::size_t end) {
    untrusted.clear();
    if (self.normalized_.empty()) return;
    auto next = std::upper_bound(
        options.untrusted.begin(), options.untrusted.end(), begin,
        [](std::size_t at, const text_span& span) { return at < span.end; });
    for (; next != options.untrusted.end() && next->begin < end; ++next)
      untrusted.push_back({std::max(next->begin, begin) - begin, std::min(next->end, end) - begin});
  }

  /// Any bytes between the added tokens that are matched as they stand.
  result<void> plain(std::string_view text, std::size_t offset) {
    text_place place{offset == 0, 0, false};
    while (!text.empty()) {
      const std::size_t valid = valid_utf8_prefix(text);
      if (valid > 0) {
        if (auto ok = well_formed(text.substr(0, valid), offset, place); !ok) return ok;
      }
      std::size_t bad = valid;
      while (bad < text.size()) {
        const utf8_step step = decode_utf8(text, bad);
        if (step.state == utf8_state::valid) break;
        bad += step.length;
      }
      if (bad > valid) self.model_->encode_ill_formed(text.substr(valid, bad - valid), scratch, ids);
      if (auto ok = within_limit(); !ok) return ok;
      text.remove_prefix(bad);
      offset += bad;
      place = {false, 0, true};
    }
    return {};
  }
};

result<std::vector<token_id>> pipeline::encode(std::string_view text, const encode_options& options) const
    try {
  if (text.size() > max_text_bytes) {
    return error{
        errc::bad_request,
        "text of " + std::to_string(text.size()) + " bytes is longer than " + std::to_string(max_text_bytes),
        {},
        0};
  }
  encoding e(*this, text.size(), options);
  auto ok = e.between(
      raw_, text, options, [&](std::string_view part, std::size_t at) { return e.plain(part, at); });
  if (!ok) return ok.error();
  if (options.add_bos && !before_.empty() && (e.ids.empty() || e.ids.front() != before_.front()))
    e.ids.insert(e.ids.begin(), before_.begin(), before_.end());
  if (options.add_eos && !after_.empty() && (e.ids.empty() || e.ids.back() != after_.back()))
    e.ids.insert(e.ids.end(), after_.begin(), after_.end());
  if (ok = e.within_limit(); !ok) return ok.error();
  if (options.lost != nullptr) *options.lost = e.scratch.lost;
  return std::move(e.ids);
} catch (const std::bad_alloc&) {
  return error{errc::no_memory, "no memory to tokenise " + std::to_string(text.size()) + " bytes", {}, 0};
}

} // namespace

result<std::unique_ptr<const tokenizer>> make_pipeline(pipeline_parts parts) {
  guard_turn_marks(parts.added, parts.words);
  std::vector<added_token> raw, normalized;
  std::vector<text_span> no_spans;
  stage_scratch s;
  s.longest = max_token_bytes * growth_factor;
  for (const added_token& token : parts.added) {
    if (!token.normalized) {
      raw.push_back(token);
      continue;
    }
    text_place place;
    auto text = rewrite(parts.normalizers, token.text, place, s, no_spans);
    if (!text) return error{errc::bad_file, "tokenizer: added token: " + text.error().message, {}, 0};
    normalized.push_back(token);
    normalized.back().text = *text;
    s.texts.clear();
  }
  return std::unique_ptr<const tokenizer>(
      std::make_unique<pipeline>(std::move(parts), std::move(raw), std::move(normalized)));
}

} // namespace troupe::models
