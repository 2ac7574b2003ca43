// SPDX-License-Identifier: Apache-2.0
// Pre-tokenizer families as PCRE2 patterns.
#include "models/pretokenizer.hpp"

#include <algorithm>
#include <array>

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
constexpr std::string_view minicpm5_words = TROUPE_LLAMA3("\\p{N}+"); // behind numbers of three

// Llama 3 with runs of white space cut into powers of two. Within such a run no line end follows, or it would
// have been taken; the look-behind keeps every word of it from looking for one.
constexpr std::string_view jais2 =
    "(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|\\p{N}{1,3}| ?[^" TROUPE_SPACE
    "\\p{L}\\p{N}]+[\\r\\n]*|(?:(?<![" TROUPE_SPACE "])|(?<=[\\r\\n]))[" TROUPE_SPACE "]*[\\r\\n]+"
    "|[" TROUPE_SPACE "]{512}(?![^" TROUPE_SPACE "])|[" TROUPE_SPACE "]{256}(?![^" TROUPE_SPACE "])"
    "|[" TROUPE_SPACE "]{128}(?![^" TROUPE_SPACE "])|[" TROUPE_SPACE "]{64}(?![^" TROUPE_SPACE "])"
    "|[" TROUPE_SPACE "]{32}(?![^" TROUPE_SPACE "])|[" TROUPE_SPACE "]{16}(?![^" TROUPE_SPACE "])"
    "|[" TROUPE_SPACE "]{8}(?![^" TROUPE_SPACE "])|[" TROUPE_SPACE "]{4}(?![^" TROUPE_SPACE "])"
    "|[" TROUPE_SPACE "]{1,2}(?![^" TROUPE_SPACE "])|[" TROUPE_SPACE "]";

// Qwen 2 without the English contractions.
constexpr std::string_view ufakzeka =
    "[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|\\p{N}| ?[^" TROUPE_SPACE "\\p{L}\\p{N}]+[\\r\\n]*"
    "|[" TROUPE_SPACE "]*[\\r\\n]+|[" TROUPE_SPACE "]+(?![^" TROUPE_SPACE "])|[" TROUPE_SPACE "]+";

// Words with their marks, several of them with single spaces between. Possessive: nothing follows that could
// take a part back.
constexpr std::string_view exaone_moe =
    "(?i:'s|'t|'re|'ve|'m|'ll|'d)"
    "|[^\\r\\n\\p{L}\\p{N}]?(?:\\p{L}\\p{M}*+(?: \\p{L}\\p{M}*+)*+)++|\\p{N}| ?[^" TROUPE_SPACE
    "\\p{L}\\p{N}]+[\\r\\n/]?|[" TROUPE_SPACE "]*[\\r\\n]|[" TROUPE_SPACE "]+(?![^" TROUPE_SPACE
    "])|[" TROUPE_SPACE "]+";

// Runs of decimal digits in threes from the right: 1234567 is 1, 234 and 567. `end` is what must hold behind
// a run, or it is left alone. Where a search begins within a run, the group before it stood right: looking
// for the run's end only once keeps the time linear.
#define TROUPE_THREES(end) "\\G(?<=\\p{Nd})\\p{Nd}{3}|(?<!\\p{Nd})\\p{Nd}{1,3}(?=(?:\\p{Nd}{3})*+" end ")"

// A word boundary behind: no character of Oniguruma's words follows (models/oniguruma_pattern.cpp).
constexpr std::string_view tiny_aya_digits =
    TROUPE_THREES("(?![\\p{Alphabetic}\\p{M}\\p{Nd}\\p{Pc}\\x{B2}\\x{B3}\\x{B9}\\x{BC}-\\x{BE}])");
constexpr std::string_view afmoe_digits = TROUPE_THREES("(?!\\p{Nd})");

// Ideographs and kana; Thai; Lao; Khmer; Burmese; Hangul.
constexpr std::string_view afmoe_scripts =
    "[\\x{4E00}-\\x{9FFF}\\x{3040}-\\x{30FF}\\x{3400}-\\x{4DBF}\\x{F900}-\\x{FAFF}\\x{FF65}-\\x{FF9F}"
    "\\x{2F00}-\\x{2FDF}]+|[\\x{E00}-\\x{E7F}]+|[\\x{E80}-\\x{EFF}]+|[\\x{1780}-\\x{17FF}]+"
    "|[\\x{1000}-\\x{109F}\\x{AA60}-\\x{AA7F}\\x{A9E0}-\\x{A9FF}]+|[\\x{AC00}-\\x{D7AF}\\x{1100}-\\x{11FF}]+";

// A word per three digits from the right of each run; what stands before the first of them or between two
// runs goes with the digits before it. tokenizer.json cuts at empty matches of (?=(\d{3})+(?!\d)); this is
// the text between two of those, with every run looked through once.
#define TROUPE_ODD_DIGITS "\\p{Nd}{1,2}(?=(?:\\p{Nd}{3})*+(?!\\p{Nd}))"
constexpr std::string_view superbpe_threes =
    "(?:(?<!\\p{Nd})" TROUPE_ODD_DIGITS "|\\p{Nd}{3}|\\P{Nd}++(?:" TROUPE_ODD_DIGITS ")?)"
    "(?:\\P{Nd}++(?:" TROUPE_ODD_DIGITS ")?)*+";

// Lines, each with the line ends before it.
constexpr std::string_view laguna_lines = "(?:\\r?\\n)*+(?:(?!\\r?\\n)[\\x00-\\x{10FFFF}])++|(?:\\r?\\n)++";

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

// Words of one case run: upper-case letters, then lower-case ones; letters without case and marks are both.
#define TROUPE_UPPER "[\\p{Lu}\\p{Lt}\\p{Lm}\\p{Lo}\\p{M}]"
#define TROUPE_LOWER "[\\p{Ll}\\p{Lm}\\p{Lo}\\p{M}]"
#define TROUPE_CASED(contraction, numbers)                                                                   \
  "[^\\r\\n\\p{L}\\p{N}]?" TROUPE_UPPER "*" TROUPE_LOWER "+" contraction                                     \
  "|[^\\r\\n\\p{L}\\p{N}]?" TROUPE_UPPER "+" TROUPE_LOWER "*" contraction "|" numbers "| ?[^" TROUPE_SPACE   \
  "\\p{L}\\p{N}]+[\\r\\n/]*|[" TROUPE_SPACE "]*[\\r\\n]+"                                                    \
  "|[" TROUPE_SPACE "]+(?![^" TROUPE_SPACE "])|[" TROUPE_SPACE "]+"

constexpr std::string_view gpt4o = TROUPE_CASED("(?i:'s|'t|'re|'ve|'m|'ll|'d)?", "\\p{N}{1,3}");
constexpr std::string_view tekken = TROUPE_CASED("", "\\p{N}");
constexpr std::string_view youtu_words = TROUPE_CASED("(?i:'s|'t|'re|'ve|'m|'ll|'d)?", "\\p{N}");
// Hangul; wide marks of punctuation; Bopomofo; ideographs and kana.
constexpr std::string_view youtu_scripts =
    "[\\x{AC00}-\\x{D7A3}\\x{3131}-\\x{318E}]+"
    "|[\\x{FF01}\\x{2026}\\x{201C}\\x{201D}\\x{2018}\\x{2019}\\x{2014}\\x{FF1A}\\x{FF1B}\\x{FF0C}"
    "\\x{3001}-\\x{303F}\\x{FE30}-\\x{FE4F}]+"
    "|[\\x{3105}-\\x{312F}]+|[\\x{4E00}-\\x{9FA5}\\x{3040}-\\x{309F}\\x{30A0}-\\x{30FF}]+";

// GPT-4o's words with runs of Han characters apart. (moonshotai/Kimi-K2, tokenization_kimi.py)
#define TROUPE_KIMI_UPPER "(?:(?!\\p{sc:Han})" TROUPE_UPPER ")"
#define TROUPE_KIMI_LOWER "(?:(?!\\p{sc:Han})" TROUPE_LOWER ")"
constexpr std::string_view kimi_k2 =
    "\\p{sc:Han}+|[^\\r\\n\\p{L}\\p{N}]?" TROUPE_KIMI_UPPER "*" TROUPE_KIMI_LOWER
    "+(?i:'s|'t|'re|'ve|'m|'ll|'d)?|[^\\r\\n\\p{L}\\p{N}]?" TROUPE_KIMI_UPPER "+" TROUPE_KIMI_LOWER
    "*(?i:'s|'t|'re|'ve|'m|'ll|'d)?|\\p{N}{1,3}| ?[^" TROUPE_SPACE "\\p{L}\\p{N}]+[\\r\\n]*|[" TROUPE_SPACE
    "]*[\\r\\n]+|[" TROUPE_SPACE "]+(?![^" TROUPE_SPACE "])|[" TROUPE_SPACE "]+";

// Qwen 2 with marks among the letters.
constexpr std::string_view qwen35 =
    "(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\\r\\n\\p{L}\\p{N}]?[\\p{L}\\p{M}]+|\\p{N}"
    "| ?[^" TROUPE_SPACE "\\p{L}\\p{M}\\p{N}]+[\\r\\n]*|[" TROUPE_SPACE "]*[\\r\\n]+"
    "|[" TROUPE_SPACE "]+(?![^" TROUPE_SPACE "])|[" TROUPE_SPACE "]+";

constexpr std::string_view bailing =
    "'(?i:[sdmt]|ll|ve|re)|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|\\p{N}| ?[^" TROUPE_SPACE
    "\\p{L}\\p{N}]+[\\r\\n]*|[" TROUPE_SPACE "]*[\\r\\n]|[" TROUPE_SPACE "]+(?![^" TROUPE_SPACE
    "])|[" TROUPE_SPACE "]+";

constexpr std::string_view seed_coder =
    "(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|\\p{N}| ?[^" TROUPE_SPACE
    "\\p{L}\\p{N}\\r\\n]+|[" TROUPE_SPACE "]*[\\r\\n]+|[" TROUPE_SPACE "]+(?![^" TROUPE_SPACE
    "])|[" TROUPE_SPACE "]+";

// Everything between white space and common marks of punctuation, of several scripts.
constexpr std::string_view bloom =
    " ?[^(" TROUPE_SPACE "|.,!?\\x{2026}\\x{3002}\\x{FF0C}\\x{3001}\\x{964}\\x{6D4}\\x{60C})]+";

// Kana as well as the unified ideographs that DeepSeek lists.
constexpr std::string_view deepseek3_ideographs =
    "[\\x{4E00}-\\x{9FA5}\\x{3040}-\\x{309F}\\x{30A0}-\\x{30FF}]+";
constexpr std::string_view deepseek3_words =
    "[!\"#$%&'()*+,\\-./:;<=>?@\\[\\\\\\]^_`{|}~][A-Za-z]+|[^\\r\\n\\p{L}\\p{P}\\p{S}]?[\\p{L}\\p{M}]+"
    "| ?[\\p{P}\\p{S}]+[\\r\\n]*|[" TROUPE_SPACE "]*[\\r\\n]+|[" TROUPE_SPACE "]+(?![^" TROUPE_SPACE
    "])|[" TROUPE_SPACE "]+";
// DeepSeek 3's with every line end alone.
constexpr std::string_view spark_words =
    "[!\"#$%&'()*+,\\-./:;<=>?@\\[\\\\\\]^_`{|}~][A-Za-z]+|[^\\r\\n\\p{L}\\p{P}\\p{S}]?[\\p{L}\\p{M}]+"
    "| ?[\\p{P}\\p{S}]+|[\\r\\n]|[" TROUPE_SPACE "]+(?![^" TROUPE_SPACE "])|[" TROUPE_SPACE "]+";
constexpr std::string_view deepseek_ideographs =
    "[\\x{4E00}-\\x{9FA5}\\x{800}-\\x{4E00}\\x{AC00}-\\x{D7FF}]+";

using pattern_list = std::array<std::string_view, 6>; // applied in order, empty ones unused
constexpr pattern_list deepseek3 = {"\\p{N}{1,3}", deepseek3_ideographs, deepseek3_words};

/// What holds for a family beside its patterns; `none` unless said.
enum family_trait : unsigned {
  none = 0,
  whole_words = 1, ///< a word that is a token is taken without merging
  with_bos = 2,    ///< BOS is put before a text unless the file says otherwise
  to_nfc = 4,      ///< text is brought to NFC first
};

struct family {
  std::string_view name;
  unsigned traits;
  pattern_list patterns;
};

// The patterns and normal forms are those of each model's tokenizer.json; docs/tokenizers.md says where they
// were seen. Which name stands for which pattern, takes whole words and begins with BOS is a fact of the
// format (llama.cpp, src/llama-vocab.cpp, which does not normalise). A pattern of a later stage sees one
// piece of the stage before it, as if that were the whole text.
constexpr family families[] = {
    {"a.x-4.0", none, {gpt2}},
    {"afmoe", none, {afmoe_digits, afmoe_scripts, deepseek3_words}},
    {"bailingmoe", none, {bailing}},
    {"bailingmoe2", none, {bailing}},
    {"bloom", none, {bloom}},
    {"chameleon",
     with_bos,
     {"<sentinel:[0-9]+>", "IMGIMG[A-I]{1,4}Z", "[\\t\\n]|    |  ", "\\p{N}", "[\\p{P}!-/:-@\\[-`{-~]",
      gpt2}},
    {"chatglm-bpe", none, {llama3}},
    {"codeshell", none, {digits_gpt2}},
    {"cohere2moe", to_nfc, {tiny_aya_digits, gpt4o}},
    {"command-r", to_nfc, {digits_gpt2}},
    {"dbrx", none, {llama3}},
    {"deepseek-coder",
     none,
     {"[\\r\\n]", "[" TROUPE_SPACE "]?\\p{L}+", "[" TROUPE_SPACE "]?\\p{P}+", deepseek_ideographs, "\\p{N}"}},
    {"deepseek-llm",
     none,
     {"[\\r\\n]", deepseek_letters,
      "[" TROUPE_SPACE
      "]?[!-/:-~\\x{FF01}-\\x{FF0F}\\x{FF1A}-\\x{FF5E}\\x{2018}-\\x{201F}\\x{3000}-\\x{3002}]+",
      // Trailing space of the piece; the look-behind keeps the search linear.
      "(?<![" TROUPE_SPACE "])[" TROUPE_SPACE "]++\\z", deepseek_ideographs, "\\p{N}+"}},
    {"deepseek-r1-qwen", to_nfc, {qwen2}},
    {"deepseek-v3", none, deepseek3},
    {"default", none, {"[\\p{P}$+<=>^~|]+", gpt2, "\\p{N}+", "[0-9][0-9][0-9]"}},
    {"exaone", none, {digits_gpt2}},
    {"exaone-moe", none, {exaone_moe}},
    {"exaone4", none, {gpt2}},
    {"f2llmv2", to_nfc, {qwen2}},
    {"falcon", none, {"[\\p{P}$+<=>^~|`]+", gpt2, "[0-9][0-9][0-9]"}},
    {"falcon-h1", whole_words | with_bos, {llama3}},
    {"falcon3", whole_words | with_bos, {llama3}},
    {"gigachat", none, {gpt2}},
    {"glm4", whole_words, {llama3}},
    {"glm5", whole_words, {llama3}},
    {"gpt-2", none, {gpt2}},
    {"gpt-4o", none, {gpt4o}},
    {"gpt3-finnish", none, {bloom}},
    {"granite-docling", none, {gpt2}},
    {"granite-embed-multi-97m", whole_words, {gpt4o}},
    {"grok-2", none, {qwen2}},
    {"hunyuan", none, {qwen2}},
    {"hunyuan-dense", none, deepseek3},
    {"hy_v4", none, deepseek3},
    {"jais", none, {gpt2}},
    {"jais-2", none, {jais2}},
    {"jina-de", none, {gpt2}},
    {"jina-es", none, {gpt2}},
    {"jina-v1-en", none, {gpt2}},
    {"jina-v2-code", none, {gpt2}},
    {"jina-v2-de", none, {gpt2}},
    {"jina-v2-es", none, {gpt2}},
    {"jina-v5-nano", whole_words | with_bos, {llama3}},
    {"joyai-llm", none, deepseek3},
    {"kanana2", none, {gpt4o}},
    {"kimi-k2", none, {kimi_k2}},
    {"kormo", none, {qwen2}},
    {"laguna", none, {laguna_lines, qwen2}},
    {"lfm2", whole_words | with_bos, {llama3}},
    {"llada-moe", none, {bailing}},
    {"llama-bpe", whole_words | with_bos, {llama3}},
    {"llama-v3", whole_words | with_bos, {llama3}},
    {"llama3", whole_words | with_bos, {llama3}},
    {"llama4", none, {gpt4o}},
    {"megrez", none, {qwen2}},
    {"mellum", none, {gpt2}},
    {"mellum2", none, {digits_gpt2}},
    {"midm-2.0", whole_words | with_bos, {llama3}},
    {"minerva-7b", none, {digits_gpt2}},
    {"minicpm5", whole_words, {"\\p{N}{1,3}", minicpm5_words}},
    {"minimax-m2", none, {gpt4o}},
    {"modern-bert", to_nfc, {gpt2}},
    {"mpt", to_nfc, {gpt2}},
    {"olmo", to_nfc, {gpt2}},
    {"phi-2", none, {gpt2}},
    {"pixtral", whole_words | with_bos, {llama3}},
    {"poro-chat", none, {bloom}},
    {"qwen2", to_nfc, {qwen2}},
    {"qwen35", to_nfc, {qwen35}},
    {"refact", none, {digits_gpt2}},
    {"roberta-bpe", none, {gpt2}},
    {"seed-coder", none, {seed_coder}},
    {"smaug-bpe", none, {llama3}},
    {"smollm", none, {digits_gpt2}},
    {"solar-open", none, {qwen2}},
    {"spark2_5", none, {"\\p{N}{1,3}", deepseek3_ideographs, spark_words, "\\p{N}"}},
    {"stablelm2", none, {qwen2}},
    {"starcoder", none, {digits_gpt2}},
    {"superbpe", none, {"\\p{N}+", superbpe_threes}},
    {"talkie", none, {gpt4o}},
    {"tekken", whole_words | with_bos, {tekken}},
    {"tiny_aya", to_nfc, {tiny_aya_digits, gpt4o}},
    {"trillion", none, {gpt2}},
    {"ufakzeka", none, {ufakzeka}},
    {"viking", none, {bloom, "\\p{N}"}},
    {"youtu", whole_words, {youtu_scripts, youtu_words}},
};

const family* find_family(std::string_view name) noexcept {
  return std::find_if(
      std::begin(families), std::end(families), [&](const family& f) { return f.name == name; });
}

} // namespace

std::vector<std::string_view> pretokenizer::known_families() {
  std::vector<std::string_view> names;
  for (const family& f : families) names.push_back(f.name);
  return names;
}

bool pretokenizer::adds_bos(std::string_view name) noexcept {
  const auto found = find_family(name);
  return found != std::end(families) && (found->traits & with_bos) != 0;
}

result<pretokenizer> pretokenizer::make(std::string_view name) {
  const auto found = find_family(name);
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
  made.ignore_merges_ = (found->traits & whole_words) != 0;
  if ((found->traits & to_nfc) != 0) made.form_ = normal_form::nfc;
  for (const std::string_view pattern : found->patterns) {
    if (pattern.empty()) break;
    auto compiled = regex::compile(pattern);
    if (!compiled) return compiled.error();
    made.stages_.push_back(std::move(*compiled));
  }
  return made;
}

namespace {

result<void> split_piece(
    const regex& pattern, std::string_view piece, std::size_t offset, regex_scratch& scratch,
    std::vector<std::size_t>& ends) {
  text_span found;
  std::size_t at = 0;
  while (at < piece.size()) {
    const int code = pattern.find(piece, at, scratch, found);
    if (code == 0) break;
    if (code < 0) return pattern.fault(code);
    if (found.begin > at) ends.push_back(offset + found.begin); // text between matches is a piece of its own
    ends.push_back(offset + found.end);
    at = found.end;
  }
  if (at < piece.size()) ends.push_back(offset + piece.size());
  return {};
}

} // namespace

result<void>
pretokenizer::split(std::string_view text, regex_scratch& scratch, std::vector<std::size_t>& ends) const {
  if (stages_.size() == 1) return split_piece(stages_.front(), text, 0, scratch, ends);
  std::vector<std::size_t> pieces{text.size()};
  std::vector<std::size_t> next;
  for (const regex& s : stages_) {
    next.clear();
    std::size_t begin = 0;
    for (const std::size_t end : pieces) {
      if (auto ok = split_piece(s, text.substr(begin, end - begin), begin, scratch, next); !ok) return ok;
      begin = end;
    }
    pieces.swap(next);
  }
  ends.insert(ends.end(), pieces.begin(), pieces.end());
  return {};
}

result<void> pretokenizer::split(std::string_view text, std::vector<std::size_t>& ends) const {
  regex_scratch scratch;
  return split(text, scratch, ends);
}

} // namespace troupe::models
