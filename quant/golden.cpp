// SPDX-License-Identifier: Apache-2.0
// Golden files: reading and teacher forcing.
#include "quant/golden.hpp"

#include "quant/evaluation.hpp"
#include "runtime/base/bounded_file.hpp"
#include "runtime/base/bounded_json.hpp"

#include <boost/json.hpp>

#include <algorithm>
#include <cmath>
#include <limits>

namespace troupe::quant {

namespace {

namespace json = boost::json;

/// A breach of the file's form, thrown inside this file only.
struct form_error {
  std::string what;
};

const json::value& member(const json::object& object, std::string_view key) {
  const json::value* value = object.if_contains(key);
  if (value == nullptr) throw form_error{"'" + std::string(key) + "' is missing"};
  return *value;
}

template<class T, class F>
std::vector<T> list(const json::value& value, std::string_view key, F read) {
  const json::array* array = value.if_array();
  if (array == nullptr) throw form_error{"'" + std::string(key) + "' is not a list"};
  std::vector<T> items;
  for (const json::value& item : *array) {
    boost::system::error_code failed;
    items.push_back(read(item, failed));
    if (failed) throw form_error{"'" + std::string(key) + "' holds something else than numbers in range"};
  }
  return items;
}

std::vector<std::int32_t> ids(const json::object& object, std::string_view key) {
  return list<std::int32_t>(
      member(object, key), key, [](const json::value& v, boost::system::error_code& failed) {
        return v.to_number<std::int32_t>(failed);
      });
}

std::vector<double> numbers(const json::object& object, std::string_view key) {
  return list<double>(member(object, key), key, [](const json::value& v, boost::system::error_code& failed) {
    return v.to_number<double>(failed);
  });
}

std::string case_name(const json::object& object) {
  for (const char* key : {"text", "rendered"}) {
    const json::value* value = object.if_contains(key);
    if (value == nullptr || !value->is_string()) continue;
    std::string text(value->get_string().subview(0, 40));
    std::replace(text.begin(), text.end(), '\n', ' ');
    return text;
  }
  return "unnamed";
}

golden_case read_case(const json::value& value) {
  const json::object* object = value.if_object();
  if (object == nullptr) throw form_error{"a case is not an object"};
  golden_case one;
  one.name = case_name(*object);
  one.ids = ids(*object, "ids");
  one.greedy = ids(*object, "greedy");
  one.margins = numbers(*object, "margin");
  if (one.ids.empty() || one.greedy.size() != one.margins.size())
    throw form_error{"case '" + one.name + "': empty ids, or not one margin per greedy id"};
  const json::value& first = member(*object, "first");
  if (!first.is_object()) throw form_error{"'first' is not an object"};
  const auto first_ids = ids(first.get_object(), "ids");
  const auto logits = numbers(first.get_object(), "logits");
  if (first_ids.size() != logits.size()) throw form_error{"'first' has not one logit per id"};
  for (std::size_t i = 0; i < logits.size(); ++i) one.first_logits.emplace_back(first_ids[i], logits[i]);
  return one;
}

golden_file read_document(const json::object& root) {
  golden_file golden;
  if (const json::value* model = root.if_contains("model"); model != nullptr && model->is_string())
    golden.model = std::string(model->get_string());
  for (const char* key : {"prompts", "chats"}) {
    const json::value* cases = root.if_contains(key);
    if (cases == nullptr) continue;
    if (!cases->is_array()) throw form_error{"'" + std::string(key) + "' is not a list"};
    for (const json::value& value : cases->get_array()) golden.cases.push_back(read_case(value));
  }
  if (golden.cases.empty()) throw form_error{"neither 'prompts' nor 'chats' has a case"};
  if (const json::value* perplexity = root.if_contains("perplexity"); perplexity && perplexity->is_object()) {
    const json::object& object = perplexity->get_object();
    golden.chunk_nll = numbers(object, "nll_per_chunk");
    golden.perplexity = member(object, "ppl").to_number<double>();
    golden.perplexity_context = member(object, "ctx").to_number<std::uint32_t>();
    golden.perplexity_chunks = static_cast<std::uint32_t>(golden.chunk_nll.size());
  }
  if (const json::value* wiki = root.if_contains("wiki"); wiki && wiki->is_object()) {
    const json::object& object = wiki->get_object();
    golden.wiki_tokens = member(object, "tokens").to_number<std::uint64_t>();
    const json::value& hash = member(object, "sha256_of_ids_u32le");
    if (!hash.is_string()) throw form_error{"the wiki hash is not a string"};
    golden.wiki_ids_sha256 = std::string(hash.get_string());
  }
  return golden;
}

/// The most likely token, of equals the first.
std::int32_t most_likely(std::span<const float> logits) {
  return static_cast<std::int32_t>(std::max_element(logits.begin(), logits.end()) - logits.begin());
}

void compare_step(
    const golden_case& one, std::uint32_t step, std::span<const float> logits, double margin_limit,
    golden_report& report) {
  ++report.steps;
  const double margin = one.margins[step];
  if (margin > margin_limit) ++report.steps_compared;
  const std::int32_t got = most_likely(logits);
  if (got != one.greedy[step]) {
    report.largest_mismatch_margin = std::max(report.largest_mismatch_margin, margin);
    if (margin > margin_limit) report.mismatches.push_back({one.name, step, one.greedy[step], got, margin});
  }
}

// The logits at the end of the prompt.
void compare_first(const golden_case& one, std::span<const float> logits, golden_report& report) {
  for (const auto& [id, expected] : one.first_logits) {
    double difference = std::abs(static_cast<double>(logits[static_cast<std::size_t>(id)]) - expected);
    // A NaN is greater than nothing, so that no bound would ever notice it.
    if (std::isnan(difference)) difference = std::numeric_limits<double>::infinity();
    report.first_logit_difference = std::max(report.first_logit_difference, difference);
    ++report.first_logits;
  }
}

result<void> check_ids(const golden_case& one, std::uint32_t vocab) {
  const auto outside = [&](std::int32_t id) { return id < 0 || static_cast<std::uint32_t>(id) >= vocab; };
  const bool bad = std::any_of(one.ids.begin(), one.ids.end(), outside) ||
                   std::any_of(one.greedy.begin(), one.greedy.end(), outside) ||
                   std::any_of(one.first_logits.begin(), one.first_logits.end(), [&](const auto& logit) {
                     return outside(logit.first);
                   });
  if (!bad) return {};
  return error{
      errc::bad_file,
      "golden case '" + one.name + "' has ids outside the model's vocabulary of " + std::to_string(vocab) +
          ": is it for another model?",
      {},
      0};
}

} // namespace

result<golden_file> read_golden(const std::string& path) {
  constexpr std::uint64_t most = 64U << 20;
  const auto text = read_bounded_file(path, most);
  if (!text) return text.error();
  const auto parsed = parse_bounded_json(*text);
  if (!parsed) return error{errc::bad_file, path + ": " + parsed.error().message, {}, 0};
  const json::value& root = parsed->value;
  if (!root.is_object()) return error{errc::bad_file, path + ": not a JSON object", {}, 0};
  try {
    return read_document(root.get_object());
  } catch (const form_error& wrong) {
    return error{errc::bad_file, path + ": " + wrong.what, {}, 0};
  } catch (const boost::system::system_error& wrong) {
    return error{errc::bad_file, path + ": a number is ill-typed: " + wrong.code().message(), {}, 0};
  }
}

std::uint32_t longest_case(const golden_file& golden) {
  std::size_t longest = 0;
  for (const golden_case& one : golden.cases) longest = std::max(longest, one.ids.size() + one.greedy.size());
  return static_cast<std::uint32_t>(longest);
}

result<golden_report> compare_golden(
    kernels::backend& backend, const std::shared_ptr<const kernels::step_program>& program,
    const golden_file& golden, const golden_options& options) {
  golden_report report;
  evaluated_sequence sequence(backend, program, options.rows_per_step);
  for (const golden_case& one : golden.cases) {
    if (auto fine = check_ids(one, program->vocab); !fine) return fine.error();
    std::vector<std::int32_t> tokens = one.ids;
    if (!one.greedy.empty()) tokens.insert(tokens.end(), one.greedy.begin(), one.greedy.end() - 1);
    const auto first = static_cast<std::uint32_t>(one.ids.size() - 1);
    auto done = sequence.run(tokens, first, [&](std::uint32_t position, std::span<const float> logits) {
      const std::uint32_t step = position - first;
      if (step == 0) compare_first(one, logits, report);
      // A case may give the first logits and no greedy answer.
      if (step < one.greedy.size()) compare_step(one, step, logits, options.margin, report);
    });
    if (!done) return done.error();
    ++report.cases;
    if (options.progress) options.progress(report.cases, static_cast<std::uint32_t>(golden.cases.size()));
  }
  return report;
}

} // namespace troupe::quant
