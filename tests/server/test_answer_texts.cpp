// SPDX-License-Identifier: Apache-2.0
// Text, tokens and offsets of one answer, from a SentencePiece tokenizer through the request to the JSON.
#include "actors/request_core.hpp"
#include "models/folder_tokenizer.hpp"
#include "server/openai_answers.hpp"

#include <boost/json/parse.hpp>
#include <boost/json/serialize.hpp>
#include <boost/test/unit_test.hpp>

using namespace troupe;
using namespace troupe::server;
namespace json = boost::json;

namespace {

using ids_t = std::vector<std::int32_t>;

const models::tokenizer& spm() {
  static const auto t =
      models::make_tokenizer_from_json(TROUPE_TEST_DATA "/tokenizers_tiny/spm_bpe.json").value();
  return *t;
}

ids_t encode(std::string_view text, bool bos = false) {
  models::encode_options how;
  how.parse_special = true;
  how.add_bos = bos;
  return spm().encode(text, how).value();
}

struct wish {
  std::optional<std::string> text; ///< the prompt, else `ids`
  ids_t ids, answer;
  bool echo = false, logprobs = true, ends = false;
  std::vector<std::string> stop = {};
};

/// The one choice of an answer that a scheduler gave, in one piece and put together from a stream.
struct both {
  json::value whole;
  std::string text;
  json::array tokens, values, offsets;
};

both answered(const wish& w) {
  request asked;
  asked.echo = w.echo;
  asked.logprobs = w.logprobs;
  asked.top_logprobs = w.logprobs ? 1 : 0;
  const actors::request_id id{1, 1, 1};
  const auto prompt = std::make_shared<const ids_t>(w.text ? encode(*w.text, true) : w.ids);
  actors::text_options how;
  how.stops = w.stop;
  how.continues = true;
  if (w.text) how.given = std::make_shared<const std::string>(*w.text);
  actors::request_core core(
      actors::make_request_options(id, asked, 1, 256), actors::make_token_text(spm(), how));
  actors::request_effects out;
  const actors::time_point now{std::chrono::seconds(1)};
  core.begin(now, out);
  core.on(actors::admitted{id}, now, out);
  core.on(actors::prompt_ready{id, prompt}, now, out);
  core.on(actors::started{id}, now, out);
  const auto scored = static_cast<std::uint32_t>(w.echo && w.logprobs ? prompt->size() - 1 : 0);
  for (std::uint32_t i = 1; i <= scored; ++i)
    core.on(actors::prompt_scored{id, i, {{-1.0F, {{(*prompt)[i], -1.0F}}}}}, now, out);
  for (std::size_t i = 0; i < w.answer.size(); ++i) {
    actors::token_ready drawn;
    drawn.id = id;
    drawn.token = w.answer[i];
    drawn.ends = w.ends && i + 1 == w.answer.size();
    drawn.logprob = -2.0F;
    drawn.top = {{w.answer[i], -2.0F}, {1, -3.0F}};
    core.on(std::move(drawn), now, out);
  }
  core.on(
      actors::sequence_finished{
          id, finish_reason::length, std::nullopt, 0, static_cast<std::uint32_t>(w.answer.size()), scored},
      now, out);

  completion whole;
  openai_stream_writer writer({});
  std::string sse;
  for (actors::request_effect& effect : out) {
    auto* emitted = std::get_if<actors::emit_event>(&effect);
    if (!emitted) continue;
    if (auto* token = std::get_if<token_event>(&emitted->event)) {
      sse += writer.token(*token);
      whole.take(std::move(*token));
    } else if (auto* done = std::get_if<done_event>(&emitted->event)) {
      sse += writer.end(*done);
      whole.take(std::move(*done));
    }
  }
  both got;
  got.whole = json::parse(openai_completion({}, whole)).at("choices").at(0);
  for (std::size_t at = sse.find("data: {"); at != std::string::npos; at = sse.find("data: {", at + 1)) {
    const auto choice = json::parse(sse.substr(at + 6, sse.find("\n", at) - at - 6)).at("choices").at(0);
    got.text += choice.at("text").as_string().c_str();
    if (choice.at("logprobs").is_null()) continue;
    const auto append = [&](json::array& to, const char* name) {
      const json::array& from = choice.at("logprobs").at(name).as_array();
      to.insert(to.end(), from.begin(), from.end());
    };
    append(got.tokens, "tokens");
    append(got.values, "token_logprobs");
    append(got.offsets, "text_offset");
  }
  BOOST_TEST(got.text == got.whole.at("text").as_string().c_str());
  if (w.logprobs) {
    BOOST_TEST(got.tokens == got.whole.at("logprobs").at("tokens").as_array());
    BOOST_TEST(got.values == got.whole.at("logprobs").at("token_logprobs").as_array());
    BOOST_TEST(got.offsets == got.whole.at("logprobs").at("text_offset").as_array());
  }
  return got;
}

/// Every token stands in the text where its offset says; ASCII only, so that a character is a byte.
void expect_in_place(const both& got, std::size_t hidden = 0) {
  std::size_t end = 0;
  for (std::size_t i = 0; i < got.tokens.size(); ++i) {
    const std::string token(got.tokens[i].as_string());
    const auto at = static_cast<std::size_t>(got.offsets[i].to_number<std::int64_t>());
    BOOST_TEST(at == end);
    if (i < hidden) continue;
    BOOST_TEST(got.text.substr(at, token.size()) == token);
    end = at + token.size();
  }
  BOOST_TEST(end == got.text.size());
}

} // namespace

BOOST_AUTO_TEST_SUITE(answer_texts)

BOOST_AUTO_TEST_CASE(tokens_and_offsets_of_an_echo_fit_its_text) {
  const ids_t answer = encode("and the river");
  const both text = answered({"to the market", {}, answer, true});
  BOOST_TEST(text.text == "to the market and the river");
  BOOST_TEST(text.tokens.at(0) == "<s>"); // put before by the tokenizer: a token, and no part of the text
  expect_in_place(text, 1);
  ids_t prompt = encode("to the market");
  const both bare = answered({std::nullopt, prompt, answer, true});
  BOOST_TEST(bare.text == "to the market and the river");
  expect_in_place(bare);
  prompt.insert(prompt.begin(), 1);
  const both with_bos = answered({std::nullopt, prompt, answer, true});
  BOOST_TEST(with_bos.text == "<s> to the market and the river");
  expect_in_place(with_bos);
}

BOOST_AUTO_TEST_CASE(the_alternatives_at_a_token_are_named_as_it_is) {
  const both got = answered({"to the market", {}, encode("and"), true});
  const auto& l = got.whole.at("logprobs");
  for (std::size_t i = 1; i < got.tokens.size(); ++i)
    BOOST_TEST(l.at("top_logprobs").at(i).as_object().contains(got.tokens[i].as_string()));
  BOOST_TEST(l.at("top_logprobs").at(1).as_object().size() == 1U); // the drawn one is not there a second time
}

BOOST_AUTO_TEST_CASE(an_echo_without_log_probabilities_is_the_prompt_to_the_byte) {
  for (const std::string prompt : {"to  the</s> market", "<s>to", " a"}) {
    const both got = answered({prompt, {}, encode("and"), true, false});
    BOOST_TEST(got.text == prompt + " and");
  }
}

BOOST_AUTO_TEST_CASE(tokens_of_a_stop_string_stay_in_the_lists_with_offsets_beyond_the_text) {
  // "END" as three tokens, and a word before it.
  const ids_t before = encode("the river");
  ids_t answer = before;
  for (const char* letter : {"E", "N", "D"}) answer.push_back(encode(letter).back());
  BOOST_REQUIRE_EQUAL(answer.size(), before.size() + 3);
  const both got = answered({std::nullopt, {304}, answer, false, true, false, {"END"}});
  BOOST_TEST(got.text == " the river");
  BOOST_TEST(got.whole.at("finish_reason") == "stop");
  BOOST_REQUIRE_EQUAL(got.tokens.size(), answer.size());
  for (std::size_t i = 0; i < answer.size(); ++i)
    BOOST_TEST((got.offsets[i].to_number<std::size_t>() >= got.text.size()) == (i >= before.size()));
  BOOST_TEST(got.offsets.back().to_number<std::size_t>() == got.text.size() + 2);
}

BOOST_AUTO_TEST_CASE(the_token_that_ends_an_answer_has_a_name_and_no_place) {
  ids_t answer = encode("the river");
  answer.push_back(2);
  const both got = answered({std::nullopt, {304}, answer, false, true, true});
  BOOST_TEST(got.text == " the river");
  BOOST_TEST(got.tokens.back() == "</s>");
  BOOST_TEST(got.offsets.back().to_number<std::size_t>() == got.text.size());
}

BOOST_AUTO_TEST_SUITE_END()
