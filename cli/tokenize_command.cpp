// SPDX-License-Identifier: Apache-2.0
// `troupe tokenize` and `troupe detokenize`.
#include "cli/arguments.hpp"
#include "cli/command.hpp"
#include "cli/sha256.hpp"
#include "cli/text.hpp"
#include "cli/text_model.hpp"
#include "models/detokenizer.hpp"
#include "runtime/base/bounded_json.hpp"

#include <boost/json.hpp>

#include <algorithm>
#include <charconv>
#include <cstdio>
#include <unistd.h>

namespace troupe::cli {

namespace {

std::string join(const std::vector<std::string>& words) {
  std::string text;
  for (const std::string& word : words) (text += text.empty() ? "" : " ") += word;
  return text;
}

// The bytes that the hash of golden/model_smol.json and the like is made of.
std::string little_endian(const std::vector<models::token_id>& ids) {
  std::string bytes;
  bytes.reserve(ids.size() * 4);
  for (const models::token_id id : ids)
    for (int shift = 0; shift < 32; shift += 8)
      bytes += static_cast<char>(static_cast<std::uint32_t>(id) >> shift);
  return bytes;
}

std::string not_an_id(std::string_view word, std::size_t vocabulary) {
  return std::string(word) + " is not a token id of this model; they go from 0 to " +
         std::to_string(vocabulary - 1);
}

std::vector<models::token_id> parse_ids(std::string_view text, std::size_t vocabulary) {
  std::vector<models::token_id> ids;
  std::size_t at = 0;
  while ((at = text.find_first_not_of(" \t\r\n,[]", at)) != std::string_view::npos) {
    const auto end = std::min(text.find_first_of(" \t\r\n,[]", at), text.size());
    const std::string_view word = text.substr(at, end - at);
    models::token_id id = 0;
    const auto [stop, code] = std::from_chars(word.data(), word.data() + word.size(), id);
    if (code != std::errc{} || stop != word.data() + word.size() || id < 0 ||
        static_cast<std::size_t>(id) >= vocabulary)
      throw failure(errc::bad_config, not_an_id('"' + std::string(word) + '"', vocabulary));
    ids.push_back(id);
    at = end;
  }
  return ids;
}

namespace json = boost::json;

void print_ids(const std::vector<models::token_id>& ids, std::string_view between) {
  for (std::size_t i = 0; i < ids.size(); ++i)
    std::printf("%.*s%d", i == 0 ? 0 : static_cast<int>(between.size()), between.data(), ids[i]);
}

void print_json(const std::vector<models::token_id>& ids) {
  std::putchar('[');
  print_ids(ids, ",");
  std::fputs("]\n", stdout);
}

/// Calls `act` with every line of standard input, parsed as JSON; it says what is wrong with one, or nothing.
/// Throws `failure` naming the line.
template<class Act>
void for_each_json_line(Act act) {
  const std::string input = read_standard_input(most_text);
  std::size_t number = 0;
  for (std::size_t at = 0; at < input.size();) {
    const std::size_t end = std::min(input.find('\n', at), input.size());
    ++number;
    const auto line = parse_bounded_json({input.data() + at, end - at});
    const std::string wrong = line ? act(line->value) : line.error().message;
    if (!wrong.empty())
      throw failure(errc::bad_request, "standard input, line " + std::to_string(number) + ": " + wrong);
    require_output();
    at = end + 1;
  }
}

void tokenize_lines(const models::tokenizer& tokenizer, const models::encode_options& how) {
  std::size_t number = 0;
  for_each_json_line([&](const json::value& line) -> std::string {
    ++number;
    if (!line.is_string()) return "is no JSON string";
    const std::string name = "the text of line " + std::to_string(number);
    print_json(encode_aloud("tokenize", tokenizer, std::string_view(line.get_string()), how, name));
    return {};
  });
}

void detokenize_lines(const models::tokenizer& tokenizer, bool show_special) {
  for_each_json_line([&](const json::value& line) -> std::string {
    if (!line.is_array()) return "is no JSON array";
    std::vector<models::token_id> ids;
    for (const json::value& id : line.get_array()) {
      boost::system::error_code failed;
      ids.push_back(id.to_number<models::token_id>(failed));
      if (failed || ids.back() < 0 || static_cast<std::size_t>(ids.back()) >= tokenizer.size())
        return not_an_id(json::serialize(id).substr(0, 40), tokenizer.size());
    }
    std::puts(json::serialize(json::string(models::detokenize(tokenizer, ids, show_special))).c_str());
    return {};
  });
}

} // namespace

int tokenize_command(const std::vector<std::string>& words) {
  std::vector<std::string> text_words;
  std::string model = config::settings{}.model.path, tokenizer_json, file;
  bool special = false, bos = false, show = false, as_json = false, lines = false, count = false,
       hash = false;
  arguments options("tokenize", "Prints the token ids of a text.");
  options.positional("TEXT", text_words, "the text; without it and --file standard input is read", false);
  options.option("-m,--model", model, "GGUF file, Hugging Face folder or catalogue name");
  options.option("--tokenizer", tokenizer_json, "use this tokenizer.json instead of a model's");
  options.option("-f,--file", file, "read the text from this file");
  options.flag("--special", special, "texts of special tokens become those tokens");
  options.flag("--bos", bos, "begin with the model's BOS token");
  options.flag("--json", as_json, "print one JSON array of ids");
  options.flag("--show,--pieces", show, "one token per line: id and text");
  options.flag(
      "--lines", lines, "standard input holds one JSON string a line; print one JSON array for each");
  options.flag("--count", count, "print the number of tokens instead");
  options.flag("--sha256", hash, "print the SHA-256 of the ids as little-endian 32-bit numbers instead");
  options.exclusive({"--model", "--tokenizer"});
  options.exclusive({"TEXT", "--file", "--lines"});
  options.exclusive({"--json", "--show", "--count"});
  options.exclusive({"--json", "--show", "--sha256"});
  options.exclusive({"--lines", "--show"});
  options.exclusive({"--lines", "--count"});
  options.exclusive({"--lines", "--sha256"});
  if (!options.parse(words)) return 0;
  const auto tokenizer = open_tokenizer(model, tokenizer_json);
  if (models::encode_options only_bos; bos) {
    only_bos.add_bos = true;
    if (tokenizer->encode({}, only_bos).value().empty())
      std::fputs("troupe tokenize: the tokenizer has no BOS token: --bos adds nothing\n", stderr);
  }
  models::encode_options encoding;
  encoding.parse_special = special;
  encoding.add_bos = bos;
  if (lines) {
    tokenize_lines(*tokenizer, encoding);
    return 0;
  }
  const std::string text = !file.empty()        ? read_text_file(file, "--file", most_text)
                           : text_words.empty() ? read_standard_input(most_text)
                                                : join(text_words);
  const auto ids = encode_aloud("tokenize", *tokenizer, text, encoding, "the text");
  if (count) std::printf("%zu\n", ids.size());
  if (hash) std::printf("%s\n", sha256_of_bytes(little_endian(ids)).c_str());
  if (count || hash) return 0;
  if (as_json) {
    print_json(ids);
  } else if (show) {
    for (const models::token_id id : ids)
      std::printf("%6d  %s\n", id, escaped(tokenizer->bytes_of(id)).c_str());
  } else {
    print_ids(ids, " ");
    std::putchar('\n');
  }
  return 0;
}

int detokenize_command(const std::vector<std::string>& words) {
  std::vector<std::string> id_words;
  std::string model = config::settings{}.model.path, tokenizer_json;
  bool skip_special = false, lines = false;
  arguments options("detokenize", "Prints the text of token ids.");
  options.positional(
      "ID", id_words, "the ids; without any standard input is read, and the text has no newline at its end",
      false);
  options.option("-m,--model", model, "GGUF file, Hugging Face folder or catalogue name");
  options.option("--tokenizer", tokenizer_json, "use this tokenizer.json instead of a model's");
  options.flag("--skip-special", skip_special, "leave special tokens out");
  options.flag(
      "--lines", lines, "standard input holds one JSON array a line; print one JSON string for each");
  options.exclusive({"--model", "--tokenizer"});
  options.exclusive({"ID", "--lines"});
  if (!options.parse(words)) return 0;
  const auto tokenizer = open_tokenizer(model, tokenizer_json);
  if (lines) {
    detokenize_lines(*tokenizer, !skip_special);
    return 0;
  }
  const auto ids =
      parse_ids(id_words.empty() ? read_standard_input(most_text) : join(id_words), tokenizer->size());
  std::string text = models::detokenize(*tokenizer, ids, !skip_special);
  // A prompt of the shell wants a line of its own; a pipe or a file gets the text and nothing else.
  if (isatty(STDOUT_FILENO) == 1) text += '\n';
  std::fwrite(text.data(), 1, text.size(), stdout);
  return 0;
}

} // namespace troupe::cli
