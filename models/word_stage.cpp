// SPDX-License-Identifier: Apache-2.0
// The steps that cut text into the words a model sees.
#include "models/byte_alphabet.hpp"
#include "models/oniguruma_pattern.hpp"
#include "models/pretokenizer.hpp"
#include "models/text_stage.hpp"
#include "models/utf8.hpp"

#include <algorithm>

namespace troupe::models {
namespace {

/// Ends one stage: `words` are the new ranges of the same text.
void take_words(word_list& list, std::vector<text_span>& words) {
  if (words.empty() || words.front().begin != list.words.front().begin) list.place = {false, 0, false};
  list.words.swap(words);
}

/// Collects words from the parts of one word by `behavior`.
class part_joiner {
 public:
  part_joiner(split_behavior behavior, std::vector<text_span>& words) noexcept :
      behavior_(behavior), words_(words) {}

  void join(const std::vector<found_part>& parts) {
    first_ = words_.size();
    if (behavior_ == split_behavior::merged_with_next)
      join_backwards(parts);
    else
      for (const found_part& part : parts) add(part);
    // Parts may be empty, words may not.
    const auto is_empty = [](const text_span& w) { return w.begin == w.end; };
    words_.erase(
        std::remove_if(words_.begin() + static_cast<std::ptrdiff_t>(first_), words_.end(), is_empty),
        words_.end());
  }

 private:
  void add(const found_part& part) {
    bool joins = false;
    if (behavior_ == split_behavior::merged_with_previous) joins = part.match && !previous_;
    if (behavior_ == split_behavior::contiguous) joins = part.match == previous_;
    previous_ = part.match;
    if (behavior_ == split_behavior::removed && part.match) return;
    if (joins && words_.size() > first_)
      words_.back().end = part.range.end;
    else
      words_.push_back(part.range);
  }

  void join_backwards(const std::vector<found_part>& parts) {
    for (auto part = parts.rbegin(); part != parts.rend(); ++part) {
      if (part->match && !previous_ && words_.size() > first_)
        words_.back().begin = part->range.begin;
      else
        words_.push_back(part->range);
      previous_ = part->match;
    }
    std::reverse(words_.begin() + static_cast<std::ptrdiff_t>(first_), words_.end());
  }

  split_behavior behavior_;
  std::vector<text_span>& words_;
  std::size_t first_ = 0;
  bool previous_ = false;
};

class family_stage final : public word_stage {
 public:
  explicit family_stage(pretokenizer families) : families_(std::move(families)) {}

  result<void> apply(word_list& list, stage_scratch& s) const override {
    s.words.clear();
    for (const text_span& word : list.words) {
      s.ends.clear();
      const std::string_view text = list.text.substr(word.begin, word.end - word.begin);
      if (auto ok = families_.split(text, s.search, s.ends); !ok) return ok;
      std::size_t begin = word.begin;
      for (const std::size_t end : s.ends) {
        s.words.push_back({begin, word.begin + end});
        begin = word.begin + end;
      }
    }
    take_words(list, s.words);
    return {};
  }

 private:
  pretokenizer families_;
};

class regex_stage final : public word_stage {
 public:
  regex_stage(regex pattern, split_behavior behavior, bool invert) noexcept :
      pattern_(std::move(pattern)), behavior_(behavior), invert_(invert) {}

  result<void> apply(word_list& list, stage_scratch& s) const override {
    s.words.clear();
    for (const text_span& word : list.words) {
      if (auto ok = find_parts(list.text.substr(word.begin, word.end - word.begin), word.begin, s); !ok)
        return ok;
      part_joiner(behavior_, s.words).join(s.parts);
    }
    take_words(list, s.words);
    return {};
  }

 private:
  result<void> find_parts(std::string_view text, std::size_t offset, stage_scratch& s) const {
    s.parts.clear();
    std::size_t end = 0;
    auto ok = pattern_.each(text, s.search, [&](text_span found) -> result<void> {
      if (found.begin > end) s.parts.push_back({{offset + end, offset + found.begin}, invert_});
      s.parts.push_back({{offset + found.begin, offset + found.end}, !invert_});
      end = found.end;
      return {};
    });
    if (!ok) return ok;
    if (end < text.size()) s.parts.push_back({{offset + end, offset + text.size()}, invert_});
    return {};
  }

  regex pattern_;
  split_behavior behavior_;
  bool invert_;
};

/// The parts of a word: every character that `found` likes, and what lies between.
template<class Test>
void find_characters(std::string_view text, text_span word, Test found, std::vector<found_part>& parts) {
  parts.clear();
  std::size_t begin = word.begin;
  for (std::size_t at = word.begin; at < word.end;) {
    const utf8_step step = decode_utf8(text, at);
    const std::size_t end = at + step.length;
    if (found(step.code)) {
      if (begin < at) parts.push_back({{begin, at}, false});
      parts.push_back({{at, end}, true});
      begin = end;
    }
    at = end;
  }
  if (begin < word.end) parts.push_back({{begin, word.end}, false});
}

class character_stage final : public word_stage {
 public:
  character_stage(character_test found, split_behavior behavior) noexcept :
      found_(found), behavior_(behavior) {}

  result<void> apply(word_list& list, stage_scratch& s) const override {
    s.words.clear();
    for (const text_span& word : list.words) {
      find_characters(list.text, word, found_, s.parts);
      part_joiner(behavior_, s.words).join(s.parts);
    }
    take_words(list, s.words);
    return {};
  }

 private:
  character_test found_;
  split_behavior behavior_;
};

/// Ends a stage that has written the words anew, one after the other, into `s.texts.back()`.
result<void> take_text(word_list& list, stage_scratch& s) {
  list.text = s.texts.back();
  list.words.swap(s.words);
  return s.within_bound(list.text);
}

class space_prefix final : public word_stage {
 public:
  result<void> apply(word_list& list, stage_scratch& s) const override {
    std::string& out = s.texts.emplace_back();
    out.reserve(list.text.size() + 1);
    s.words.clear();
    for (const text_span& word : list.words) {
      const std::size_t begin = out.size();
      const bool continues = s.words.empty() && list.place.continues;
      if (list.text[word.begin] != ' ' && !continues) out += ' ';
      out += list.text.substr(word.begin, word.end - word.begin);
      s.words.push_back({begin, out.size()});
    }
    return take_text(list, s);
  }
};

class byte_spelling final : public word_stage {
 public:
  result<void> apply(word_list& list, stage_scratch& s) const override {
    std::string& out = s.texts.emplace_back();
    s.words.clear();
    for (const text_span& word : list.words) {
      const std::size_t begin = out.size();
      for (std::size_t i = word.begin; i < word.end; ++i)
        append_utf8(out, gpt2_alphabet.code_of[static_cast<unsigned char>(list.text[i])]);
      s.words.push_back({begin, out.size()});
    }
    return take_text(list, s);
  }
};

class metaspace final : public word_stage {
 public:
  metaspace(char32_t replacement, prepend_scheme scheme, bool split) noexcept :
      replacement_(replacement), scheme_(scheme), split_(split) {
    append_utf8(spelled_, replacement);
  }

  result<void> apply(word_list& list, stage_scratch& s) const override {
    std::string& out = s.texts.emplace_back();
    s.words.clear();
    for (const text_span& word : list.words) {
      const std::size_t begin = out.size();
      const std::string_view text = list.text.substr(word.begin, word.end - word.begin);
      if (wants_prefix(text, list.place, s.words.empty())) out += spelled_;
      for (const char c : text) {
        if (c == ' ')
          out += spelled_;
        else
          out += c;
      }
      s.words.push_back({begin, out.size()});
    }
    if (auto ok = take_text(list, s); !ok || !split_) return ok;
    s.words.clear();
    for (const text_span& word : list.words) {
      find_characters(
          list.text, word, [&](char32_t c) { return c == replacement_; }, s.parts);
      part_joiner(split_behavior::merged_with_next, s.words).join(s.parts);
    }
    list.words.swap(s.words);
    return {};
  }

 private:
  bool wants_prefix(std::string_view word, const text_place& place, bool first) const noexcept {
    if (word.front() == ' ' || word.starts_with(spelled_) || (first && place.continues)) return false;
    return scheme_ == prepend_scheme::always ||
           (scheme_ == prepend_scheme::first && first && place.at_origin);
  }

  char32_t replacement_;
  prepend_scheme scheme_;
  bool split_;
  std::string spelled_;
};

class boundary_stage final : public word_stage {
 public:
  boundary_stage(char32_t mark, std::vector<char32_t> joined) : mark_(mark), joined_(std::move(joined)) {
    append_utf8(spelled_, mark);
  }

  result<void> apply(word_list& list, stage_scratch& s) const override {
    s.words.clear();
    for (const text_span& word : list.words) {
      std::size_t begin = word.begin;
      for (std::size_t at = next_mark(list.text, word.begin + 1, word.end); at < word.end;
           at = next_mark(list.text, at + 1, word.end)) {
        if (!parts(list.text, at)) continue;
        s.words.push_back({begin, at});
        begin = at;
      }
      s.words.push_back({begin, word.end});
    }
    take_words(list, s.words);
    return {};
  }

 private:
  std::size_t next_mark(std::string_view text, std::size_t from, std::size_t end) const noexcept {
    return std::min(text.substr(0, end).find(spelled_, from), end);
  }

  /// Whether no token reaches across `at`, where the mark stands.
  bool parts(std::string_view text, std::size_t at) const noexcept {
    std::size_t before = at - 1;
    while (before > 0 && (static_cast<unsigned char>(text[before]) & 0xC0) == 0x80) --before;
    const char32_t code = decode_utf8(text, before).code;
    return code != mark_ && !std::binary_search(joined_.begin(), joined_.end(), code);
  }

  char32_t mark_;
  std::vector<char32_t> joined_;
  std::string spelled_;
};

} // namespace

std::unique_ptr<const word_stage> make_family_stage(pretokenizer families) {
  return std::make_unique<family_stage>(std::move(families));
}

std::unique_ptr<const word_stage> make_regex_stage(regex pattern, split_behavior behavior, bool invert) {
  return std::make_unique<regex_stage>(std::move(pattern), behavior, invert);
}

std::unique_ptr<const word_stage> make_character_stage(character_test found, split_behavior behavior) {
  return std::make_unique<character_stage>(found, behavior);
}

result<std::unique_ptr<const word_stage>> make_whitespace_stage() {
  // Word characters as UTS 18 has them: with the joiners.
  auto pattern = compile_oniguruma("[\\w\\x{200C}\\x{200D}]+|[^\\w\\x{200C}\\x{200D}\\s]+");
  if (!pattern) return pattern.error();
  return make_regex_stage(std::move(*pattern), split_behavior::removed, true);
}

std::unique_ptr<const word_stage> make_space_prefix() {
  return std::make_unique<space_prefix>();
}

std::unique_ptr<const word_stage> make_byte_spelling() {
  return std::make_unique<byte_spelling>();
}

std::unique_ptr<const word_stage> make_metaspace(char32_t replacement, prepend_scheme scheme, bool split) {
  return std::make_unique<metaspace>(replacement, scheme, split);
}

std::unique_ptr<const word_stage> make_boundary_stage(char32_t mark, std::vector<char32_t> joined) {
  return std::make_unique<boundary_stage>(mark, std::move(joined));
}

} // namespace troupe::models
