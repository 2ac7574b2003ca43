// SPDX-License-Identifier: Apache-2.0
// Pre-tokenizer families as PCRE2 patterns.
#include "models/pretokenizer.hpp"

#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>

#include <algorithm>
#include <array>
#include <cstdint>

namespace troupe::models {
namespace {

// Unicode White_Space; PCRE2's own \s also holds U+180E, which left that property in Unicode 6.3.
#define TROUPE_SPACE                                                                                         \
  "\\t-\\r\\x20\\x{85}\\x{A0}\\x{1680}\\x{2000}-\\x{200A}\\x{2028}\\x{2029}\\x{202F}\\x{205F}\\x{3000}"

constexpr std::string_view gpt2 =
    "'s|'t|'re|'ve|'m|'ll|'d| ?\\p{L}+| ?\\p{N}+| ?[^" TROUPE_SPACE "\\p{L}\\p{N}]+"
    "|[" TROUPE_SPACE "]+(?![^" TROUPE_SPACE "])|[" TROUPE_SPACE "]+";

// Every number character alone, then GPT-2's words between them. One pattern: the look-ahead takes a number
// for the end of the piece.
constexpr std::string_view digits_gpt2 =
    "\\p{N}|'s|'t|'re|'ve|'m|'ll|'d| ?\\p{L}+| ?[^" TROUPE_SPACE "\\p{L}\\p{N}]+"
    "|[" TROUPE_SPACE "]+(?![^" TROUPE_SPACE "\\p{N}])|[" TROUPE_SPACE "]+";

#define TROUPE_LLAMA3(numbers)                                                                               \
  "(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|" numbers "| ?[^" TROUPE_SPACE                 \
  "\\p{L}\\p{N}]+[\\r\\n]*"                                                                                  \
  "|[" TROUPE_SPACE "]*[\\r\\n]+|[" TROUPE_SPACE "]+(?![^" TROUPE_SPACE "])|[" TROUPE_SPACE "]+"

constexpr std::string_view llama3 = TROUPE_LLAMA3("\\p{N}{1,3}");
constexpr std::string_view qwen2 = TROUPE_LLAMA3("\\p{N}");

// Upper- and lower-case letters of the scripts that have case, as deepseek-llm's tokenizer.json lists them.
constexpr std::string_view deepseek_letters =
    "[" TROUPE_SPACE "]?["
    "A-Za-z\\x{B5}\\x{C0}-\\x{D6}\\x{D8}-\\x{F6}\\x{F8}-\\x{1BA}\\x{1BC}-\\x{1BF}\\x{1C4}-\\x{293}"
    "\\x{295}-\\x{2AF}\\x{370}-\\x{373}\\x{376}\\x{377}\\x{37B}-\\x{37D}\\x{37F}\\x{386}"
    "\\x{388}-\\x{38A}\\x{38C}\\x{38E}-\\x{3A1}\\x{3A3}-\\x{3F5}\\x{3F7}-\\x{481}\\x{48A}-\\x{52F}"
    "\\x{531}-\\x{556}\\x{10A0}-\\x{10C5}\\x{13A0}-\\x{13F5}\\x{13F8}-\\x{13FD}\\x{1C90}-\\x{1CBA}"
    "\\x{1CBD}-\\x{1CBF}\\x{1D00}-\\x{1D2B}\\x{1D6B}-\\x{1D77}\\x{1D79}-\\x{1D9A}\\x{1E00}-\\x{1F15}"
    "\\x{1F18}-\\x{1F1D}\\x{1F20}-\\x{1F45}\\x{1F48}-\\x{1F4D}\\x{1F50}-\\x{1F57}\\x{1F59}\\x{1F5B}"
    "\\x{1F5D}\\x{1F5F}-\\x{1F7D}\\x{1F80}-\\x{1FB4}\\x{1FB6}-\\x{1FBC}\\x{1FBE}\\x{1FC2}-\\x{1FC4}"
    "\\x{1FC6}-\\x{1FCC}\\x{1FD0}-\\x{1FD3}\\x{1FD6}-\\x{1FDB}\\x{1FE0}-\\x{1FEC}\\x{1FF2}-\\x{1FF4}"
    "\\x{1FF6}-\\x{1FFC}\\x{2102}\\x{2107}\\x{210A}-\\x{2113}\\x{2115}\\x{2119}-\\x{211D}\\x{2124}"
    "\\x{2126}\\x{2128}\\x{212A}-\\x{212D}\\x{212F}-\\x{2134}\\x{2139}\\x{213C}-\\x{213F}"
    "\\x{2145}-\\x{2149}\\x{214E}\\x{2183}\\x{2184}\\x{2C00}-\\x{2C7B}\\x{2C7E}-\\x{2CE4}"
    "\\x{2CEB}-\\x{2CEE}\\x{2CF2}\\x{2CF3}\\x{A640}-\\x{A66D}\\x{A680}-\\x{A69B}\\x{A722}-\\x{A76F}"
    "\\x{A771}-\\x{A787}\\x{A78B}-\\x{A78E}\\x{AB70}-\\x{ABBF}\\x{FB00}-\\x{FB06}\\x{FB13}-\\x{FB17}"
    "\\x{FF21}-\\x{FF3A}\\x{FF41}-\\x{FF5A}\\x{10400}-\\x{1044F}\\x{104B0}-\\x{104D3}"
    "\\x{104D8}-\\x{104FB}\\x{10C80}-\\x{10CB2}\\x{10CC0}-\\x{10CF2}\\x{118A0}-\\x{118DF}"
    "\\x{1E900}-\\x{1E943}]+";

struct family {
  std::string_view name;
  bool ignore_merges;
  std::array<std::string_view, 6> patterns; // applied in order, empty ones unused
};

// A pattern of a later stage sees one piece of the stage before it, as if that were the whole text.
constexpr family families[] = {
    {"command-r", false, {digits_gpt2}},
    {"deepseek-llm",
     false,
     {"[\\r\\n]", deepseek_letters,
      "[" TROUPE_SPACE
      "]?[!-/:-~\\x{FF01}-\\x{FF0F}\\x{FF1A}-\\x{FF5E}\\x{2018}-\\x{201F}\\x{3000}-\\x{3002}]+",
      // Trailing space of the piece; the look-behind keeps the search linear.
      "(?<![" TROUPE_SPACE "])[" TROUPE_SPACE "]++\\z",
      "[\\x{4E00}-\\x{9FA5}\\x{800}-\\x{4E00}\\x{AC00}-\\x{D7FF}]+", "\\p{N}+"}},
    {"deepseek-r1-qwen", false, {qwen2}},
    {"default", false, {"[\\p{P}$+<=>^~|]+", gpt2, "\\p{N}+", "[0-9][0-9][0-9]"}},
    {"falcon3", true, {llama3}},
    {"gpt-2", false, {gpt2}},
    {"llama-bpe", true, {llama3}},
    {"llama-v3", true, {llama3}},
    {"llama3", true, {llama3}},
    {"mpt", false, {gpt2}},
    {"olmo", false, {gpt2}},
    {"phi-2", false, {gpt2}},
    {"qwen2", false, {qwen2}},
    {"refact", false, {digits_gpt2}},
    {"smollm", false, {digits_gpt2}},
    {"stablelm2", false, {qwen2}},
    {"starcoder", false, {digits_gpt2}},
};

// Far above what a linear pattern needs per match start, low enough that a mistake shows as an error, not a
// stall.
constexpr std::uint32_t match_limit = 1u << 28;

} // namespace

struct pretokenizer::stage {
  pcre2_code* code = nullptr;
  pcre2_match_context* context = nullptr;

  stage() = default;
  stage(const stage&) = delete;
  stage& operator=(const stage&) = delete;
  ~stage() {
    pcre2_match_context_free(context);
    pcre2_code_free(code);
  }

  result<void> split(
      std::string_view piece, std::size_t offset, pcre2_match_data* data,
      std::vector<std::size_t>& ends) const;
};

namespace {

error regex_error(int code, std::string_view what) {
  std::array<unsigned char, 160> text{};
  pcre2_get_error_message(code, text.data(), text.size());
  return {
      errc::internal,
      "pre-tokenizer regex " + std::string(what) + ": " + reinterpret_cast<const char*>(text.data()),
      {},
      0};
}

} // namespace

result<void> pretokenizer::stage::split(
    std::string_view piece, std::size_t offset, pcre2_match_data* data,
    std::vector<std::size_t>& ends) const {
  std::size_t at = 0;
  while (at < piece.size()) {
    const int rc = pcre2_match(
        code, reinterpret_cast<PCRE2_SPTR>(piece.data()), piece.size(), at, PCRE2_NO_UTF_CHECK, data,
        context);
    if (rc == PCRE2_ERROR_NOMATCH) break;
    if (rc < 0) return regex_error(rc, "match");
    const PCRE2_SIZE* range = pcre2_get_ovector_pointer(data);
    if (range[0] > at) ends.push_back(offset + range[0]); // text between matches is a piece of its own
    ends.push_back(offset + range[1]);
    at = range[1];
  }
  if (at < piece.size()) ends.push_back(offset + piece.size());
  return {};
}

pretokenizer::pretokenizer() = default;
pretokenizer::pretokenizer(pretokenizer&&) noexcept = default;
pretokenizer& pretokenizer::operator=(pretokenizer&&) noexcept = default;
pretokenizer::~pretokenizer() = default;

std::vector<std::string_view> pretokenizer::known_families() {
  std::vector<std::string_view> names;
  for (const family& f : families) names.push_back(f.name);
  return names;
}

result<pretokenizer> pretokenizer::make(std::string_view name) {
  const auto found =
      std::find_if(std::begin(families), std::end(families), [&](const family& f) { return f.name == name; });
  if (found == std::end(families)) {
    std::string known;
    for (const family& f : families) known += (known.empty() ? "" : ", ") + std::string(f.name);
    return error{
        errc::unsupported,
        "tokenizer: pre-tokenizer '" + std::string(name) +
            "' (tokenizer.ggml.pre) is not known, known are: " + known,
        {},
        0};
  }
  pretokenizer made;
  made.ignore_merges_ = found->ignore_merges;
  for (const std::string_view pattern : found->patterns) {
    if (pattern.empty()) break;
    auto s = std::make_unique<stage>();
    int code = 0;
    PCRE2_SIZE at = 0;
    s->code = pcre2_compile(
        reinterpret_cast<PCRE2_SPTR>(pattern.data()), pattern.size(), PCRE2_UTF | PCRE2_UCP, &code, &at,
        nullptr);
    if (!s->code) return regex_error(code, "'" + std::string(pattern) + "' at " + std::to_string(at));
    // Where executable memory is forbidden this fails and the interpreter does the same work slower.
    (void)pcre2_jit_compile(s->code, PCRE2_JIT_COMPLETE);
    s->context = pcre2_match_context_create(nullptr);
    if (!s->context) return error{errc::no_memory, "pre-tokenizer: no memory for a match context", {}, 0};
    pcre2_set_match_limit(s->context, match_limit);
    made.stages_.push_back(std::move(s));
  }
  return made;
}

result<void> pretokenizer::split(std::string_view text, std::vector<std::size_t>& ends) const {
  const std::unique_ptr<pcre2_match_data, decltype(&pcre2_match_data_free)> data(
      pcre2_match_data_create(1, nullptr), &pcre2_match_data_free);
  if (!data) return error{errc::no_memory, "pre-tokenizer: no memory for match data", {}, 0};
  if (stages_.size() == 1) return stages_.front()->split(text, 0, data.get(), ends);
  std::vector<std::size_t> pieces{text.size()};
  std::vector<std::size_t> next;
  for (const auto& s : stages_) {
    next.clear();
    std::size_t begin = 0;
    for (const std::size_t end : pieces) {
      if (auto ok = s->split(text.substr(begin, end - begin), begin, data.get(), next); !ok) return ok;
      begin = end;
    }
    pieces.swap(next);
  }
  ends.insert(ends.end(), pieces.begin(), pieces.end());
  return {};
}

} // namespace troupe::models
