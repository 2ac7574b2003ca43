// SPDX-License-Identifier: Apache-2.0
// `troupe tokenize` and `troupe detokenize`.
#include "cli/arguments.hpp"
#include "cli/command.hpp"
#include "cli/sha256.hpp"
#include "cli/text.hpp"
#include "cli/text_model.hpp"
#include "models/detokenizer.hpp"

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
      throw failure(
          errc::bad_config, "\"" + std::string(word) +
                                "\" is not a token id of this model; they go from 0 to " +
                                std::to_string(vocabulary - 1));
    ids.push_back(id);
    at = end;
  }
  return ids;
}

} // namespace

int tokenize_command(const std::vector<std::string>& words) {
  std::vector<std::string> text_words;
  std::string model = config::settings{}.model.path, file;
  bool special = false, bos = false, pieces = false, count = false, hash = false;
  arguments options("tokenize", "Prints the token ids of a text.");
  options.positional("TEXT", text_words, "the text; without it and --file standard input is read", false);
  options.option("-m,--model", model, "GGUF file or catalogue name");
  options.option("-f,--file", file, "read the text from this file");
  options.flag("--special", special, "texts of special tokens become those tokens");
  options.flag("--bos", bos, "begin with the model's BOS token");
  options.flag("--pieces", pieces, "one token per line: id and text");
  options.flag("--count", count, "print the number of tokens instead");
  options.flag("--sha256", hash, "print the SHA-256 of the ids as little-endian 32-bit numbers instead");
  if (!options.parse(words)) return 0;
  const text_model opened = open_text_model(model);
  const std::string text = !file.empty()        ? read_text_file(file)
                           : text_words.empty() ? read_standard_input()
                                                : join(text_words);
  models::encode_options encoding;
  encoding.parse_special = special;
  encoding.add_bos = bos;
  const auto ids = opened.tokenizer->encode(text, encoding).value();
  if (count || hash) {
    if (count) std::printf("%zu\n", ids.size());
    if (hash) std::printf("%s\n", sha256_of_bytes(little_endian(ids)).c_str());
    return 0;
  }
  for (std::size_t i = 0; i < ids.size(); ++i) {
    if (pieces)
      std::printf("%6d  %s\n", ids[i], one_line(opened.tokenizer->bytes_of(ids[i])).c_str());
    else
      std::printf(i == 0 ? "%d" : " %d", ids[i]);
  }
  if (!pieces) std::putchar('\n');
  return 0;
}

int detokenize_command(const std::vector<std::string>& words) {
  std::vector<std::string> id_words;
  std::string model = config::settings{}.model.path;
  bool skip_special = false;
  arguments options("detokenize", "Prints the text of token ids.");
  options.positional("ID", id_words, "the ids; without any standard input is read", false);
  options.option("-m,--model", model, "GGUF file or catalogue name");
  options.flag("--skip-special", skip_special, "leave special tokens out");
  if (!options.parse(words)) return 0;
  const text_model opened = open_text_model(model);
  const auto ids =
      parse_ids(id_words.empty() ? read_standard_input() : join(id_words), opened.tokenizer->size());
  std::string text = models::detokenize(*opened.tokenizer, ids, !skip_special);
  // A prompt of the shell wants a line of its own; a pipe or a file gets the text and nothing else.
  if (isatty(STDOUT_FILENO) == 1) text += '\n';
  std::fwrite(text.data(), 1, text.size(), stdout);
  return 0;
}

} // namespace troupe::cli
