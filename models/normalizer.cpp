// SPDX-License-Identifier: Apache-2.0
// The steps that rewrite text before it is cut into words.
#include "models/text_stage.hpp"

#include "models/byte_alphabet.hpp"
#include "models/utf8.hpp"

#include <cstring>
#include <optional>

namespace troupe::models {

result<void> stage_scratch::within_bound(std::string_view text) const {
  if (text.size() <= longest) return {};
  return error{
      errc::bad_request,
      "the tokenizer makes this text longer than " + std::to_string(longest) + " bytes",
      {},
      0};
}

namespace {

class form_normalizer final : public normalizer {
 public:
  explicit form_normalizer(normal_form form) noexcept : form_(form) {}
  result<bool>
  apply(std::string_view text, text_place& place, stage_scratch& s, std::string& out) const override {
    if (!text.empty()) { // what the first character becomes, for steps that take parts of it away
      const std::string_view first = text.substr(0, decode_utf8(text, 0).length);
      place.origin_bytes = normalize(first, form_, out) ? out.size() : first.size();
    }
    return normalize(text, form_, out, s.traces ? &s.edits : nullptr);
  }

 private:
  normal_form form_;
};

class lowercase final : public normalizer {
 public:
  result<bool> apply(std::string_view text, text_place&, stage_scratch& s, std::string& out) const override {
    out.clear();
    for (std::size_t at = 0; at < text.size();) {
      const utf8_step step = decode_utf8(text, at);
      const std::size_t begin = out.size();
      append_lower(out, step.code);
      if (std::string_view(out).substr(begin) != text.substr(at, step.length))
        s.note({at, at + step.length}, {begin, out.size()});
      at += step.length;
    }
    return true;
  }
};

class strip final : public normalizer {
 public:
  strip(bool left, bool right) noexcept : left_(left), right_(right) {}

  result<bool>
  apply(std::string_view text, text_place& place, stage_scratch& s, std::string& out) const override {
    std::size_t begin = 0, end = 0;
    for (std::size_t at = 0; at < text.size();) {
      const utf8_step step = decode_utf8(text, at);
      at += step.length;
      if (!is_white_space(step.code))
        end = at;
      else if (end == 0 && left_)
        begin = at;
    }
    if (!right_) end = text.size();
    if (end < begin) end = begin;
    if (begin > 0) place.at_origin = false;
    if (begin == 0 && end == text.size()) return false;
    out = text.substr(begin, end - begin);
    if (begin > 0) s.note({0, begin}, {0, 0});
    if (end < text.size()) s.note({end, text.size()}, {out.size(), out.size()});
    return true;
  }

 private:
  bool left_, right_;
};

class strip_accents final : public normalizer {
 public:
  result<bool>
  apply(std::string_view text, text_place& place, stage_scratch& s, std::string& out) const override {
    out.clear();
    for (std::size_t at = 0; at < text.size();) {
      const utf8_step step = decode_utf8(text, at);
      const bool mark = is_mark(step.code);
      // A text whose first character is gone as a whole does not begin where it began.
      if (!mark && out.empty() && at > 0 && at >= place.origin_bytes) place.at_origin = false;
      if (mark)
        s.note({at, at + step.length}, {out.size(), out.size()});
      else
        out += text.substr(at, step.length);
      at += step.length;
    }
    return out.size() != text.size();
  }
};

class prepend final : public normalizer {
 public:
  explicit prepend(std::string text) : text_(std::move(text)) {}
  result<bool>
  apply(std::string_view text, text_place& place, stage_scratch& s, std::string& out) const override {
    if (text.empty() || place.continues) return false;
    s.note({0, 0}, {0, text_.size()});
    out = text_;
    out += text;
    return true;
  }

 private:
  std::string text_;
};

class nmt final : public normalizer {
 public:
  result<bool>
  apply(std::string_view text, text_place& place, stage_scratch& s, std::string& out) const override {
    out.clear();
    for (std::size_t at = 0; at < text.size();) {
      const utf8_step step = decode_utf8(text, at);
      const std::size_t begin = out.size();
      if (becomes_space(step.code))
        out += ' ';
      else if (!is_left_out(step.code))
        out += text.substr(at, step.length);
      if (out.size() == begin && begin == 0) place.at_origin = false;
      if (std::string_view(out).substr(begin) != text.substr(at, step.length))
        s.note({at, at + step.length}, {begin, out.size()});
      at += step.length;
    }
    return out != text;
  }

 private:
  static bool is_left_out(char32_t c) noexcept {
    return (c >= 0x01 && c <= 0x08) || c == 0x0B || (c >= 0x0E && c <= 0x1F) || c == 0x7F || c == 0x8F ||
           c == 0x9F;
  }
  static bool becomes_space(char32_t c) noexcept {
    return c == 0x09 || c == 0x0A || c == 0x0C || c == 0x0D || c == 0x1680 || (c >= 0x200B && c <= 0x200F) ||
           c == 0x2028 || c == 0x2029 || c == 0x2581 || c == 0xFEFF || c == 0xFFFD;
  }
};

class byte_spelling_normalizer final : public normalizer {
 public:
  result<bool> apply(std::string_view text, text_place&, stage_scratch& s, std::string& out) const override {
    out.clear();
    for (std::size_t at = 0; at < text.size(); ++at) {
      const std::size_t begin = out.size();
      append_utf8(out, gpt2_alphabet.code_of[static_cast<unsigned char>(text[at])]);
      if (std::string_view(out).substr(begin) != text.substr(at, 1))
        s.note({at, at + 1}, {begin, out.size()});
    }
    return out != text;
  }
};

class replace_literal final : public normalizer {
 public:
  replace_literal(std::string literal, std::string content) :
      literal_(std::move(literal)), content_(std::move(content)) {}

  result<bool>
  apply(std::string_view text, text_place& place, stage_scratch& s, std::string& out) const override {
    std::size_t found = text.find(literal_);
    if (found == std::string_view::npos) return false;
    if (found == 0 && content_.empty()) place.at_origin = false;
    out.clear();
    std::size_t at = 0;
    for (; found != std::string_view::npos; found = text.find(literal_, at)) {
      out += text.substr(at, found - at);
      at = found + literal_.size();
      s.note({found, at}, {out.size(), out.size() + content_.size()});
      out += content_;
      if (auto ok = s.within_bound(out); !ok) return ok.error();
    }
    out += text.substr(at);
    return true;
  }

 private:
  std::string literal_, content_;
};

class replace_pattern final : public normalizer {
 public:
  replace_pattern(regex pattern, std::string content) :
      pattern_(std::move(pattern)), content_(std::move(content)) {}

  result<bool>
  apply(std::string_view text, text_place& place, stage_scratch& s, std::string& out) const override {
    out.clear();
    std::size_t copied = 0;
    bool changed = false;
    auto ok = pattern_.each(text, s.search, [&](text_span found) -> result<void> {
      if (found.begin == 0 && found.end > 0 && content_.empty()) place.at_origin = false;
      out += text.substr(copied, found.begin - copied);
      s.note(found, {out.size(), out.size() + content_.size()});
      out += content_;
      copied = found.end;
      changed = true;
      return s.within_bound(out);
    });
    if (!ok) return ok.error();
    out += text.substr(copied);
    return changed;
  }

 private:
  regex pattern_;
  std::string content_;
};

/// A double array (darts-clone): units of 32 bits with a label, an offset and a leaf mark.
class charsmap final : public normalizer {
 public:
  charsmap(std::vector<std::uint32_t> units, std::string texts) :
      units_(std::move(units)), texts_(std::move(texts)) {}

  result<bool> apply(std::string_view text, text_place&, stage_scratch& s, std::string& out) const override {
    out.clear();
    bool changed = false;
    const auto take = [&](std::string_view part) {
      const auto mapped = find(part);
      if (mapped) {
        const auto begin = static_cast<std::size_t>(part.data() - text.data());
        s.note({begin, begin + part.size()}, {out.size(), out.size() + mapped->size()});
        out += *mapped;
      }
      changed = changed || mapped.has_value();
      return mapped.has_value();
    };
    for (std::size_t at = 0; at < text.size();) {
      const std::size_t end = grapheme_end(text, at);
      const std::string_view cluster = text.substr(at, end - at);
      at = end;
      if (cluster.size() < longest_cluster && take(cluster)) continue;
      for (std::size_t i = 0; i < cluster.size();) {
        const std::string_view character = cluster.substr(i, decode_utf8(cluster, i).length);
        if (!take(character)) out += character;
        i += character.size();
      }
      if (auto ok = s.within_bound(out); !ok) return ok.error();
    }
    return changed;
  }

 private:
  /// What the shortest known beginning of `part` stands for (HF tokenizers takes the shortest).
  std::optional<std::string_view> find(std::string_view part) const noexcept {
    std::size_t at = offset(units_[0]);
    for (const char c : part) {
      if (c == 0) return std::nullopt;
      at ^= static_cast<unsigned char>(c);
      if (at >= units_.size()) return std::nullopt;
      const std::uint32_t unit = units_[at];
      if ((unit & (1u << 31 | 0xFFu)) != static_cast<unsigned char>(c)) return std::nullopt;
      at ^= offset(unit);
      if ((unit >> 8 & 1) == 0) continue;
      if (at >= units_.size()) return std::nullopt;
      const std::size_t begin = units_[at] & 0x7FFFFFFFu;
      if (begin >= texts_.size()) return std::nullopt;
      return std::string_view(texts_).substr(begin, std::strlen(texts_.c_str() + begin));
    }
    return std::nullopt;
  }

  static std::size_t offset(std::uint32_t unit) noexcept {
    return static_cast<std::size_t>(unit >> 10) << ((unit & 1u << 9) >> 6);
  }

  static constexpr std::size_t longest_cluster = 6; // longer ones are mapped character by character
  std::vector<std::uint32_t> units_;
  std::string texts_; ///< each ends with a zero byte
};

} // namespace

std::unique_ptr<const normalizer> make_form_normalizer(normal_form form) {
  return std::make_unique<form_normalizer>(form);
}

std::unique_ptr<const normalizer> make_lowercase() {
  return std::make_unique<lowercase>();
}

std::unique_ptr<const normalizer> make_strip(bool left, bool right) {
  return std::make_unique<strip>(left, right);
}

std::unique_ptr<const normalizer> make_strip_accents() {
  return std::make_unique<strip_accents>();
}

std::unique_ptr<const normalizer> make_prepend(std::string text) {
  return std::make_unique<prepend>(std::move(text));
}

std::unique_ptr<const normalizer> make_nmt() {
  return std::make_unique<nmt>();
}

std::unique_ptr<const normalizer> make_byte_spelling_normalizer() {
  return std::make_unique<byte_spelling_normalizer>();
}

std::unique_ptr<const normalizer> make_replace(regex pattern, std::string content) {
  return std::make_unique<replace_pattern>(std::move(pattern), std::move(content));
}

std::unique_ptr<const normalizer> make_replace(std::string literal, std::string content) {
  return std::make_unique<replace_literal>(std::move(literal), std::move(content));
}

result<std::unique_ptr<const normalizer>> make_charsmap(std::string bytes) {
  const auto bad = [](std::string what) {
    return error{errc::bad_file, "tokenizer: precompiled_charsmap " + std::move(what), {}, 0};
  };
  const auto word = [&](std::size_t at) {
    std::uint32_t value = 0;
    for (int i = 3; i >= 0; --i)
      value = value << 8 | static_cast<unsigned char>(bytes[at + static_cast<std::size_t>(i)]);
    return value;
  };
  if (bytes.size() < 4) return bad("is shorter than its header");
  const std::size_t size = word(0);
  if (size == 0 || size % 4 != 0 || size > bytes.size() - 4)
    return bad(
        "says its array has " + std::to_string(size) + " of " + std::to_string(bytes.size() - 4) + " bytes");
  std::vector<std::uint32_t> units(size / 4);
  for (std::size_t i = 0; i < units.size(); ++i) units[i] = word(4 + 4 * i);
  std::string texts = bytes.substr(4 + size);
  if (!is_valid_utf8(texts)) return bad("holds texts that are not valid UTF-8");
  return std::unique_ptr<const normalizer>(std::make_unique<charsmap>(std::move(units), std::move(texts)));
}

} // namespace troupe::models
