// SPDX-License-Identifier: Apache-2.0
#include "engine/trace_file.hpp"

#include <boost/test/unit_test.hpp>

#include <cstdlib>
#include <filesystem>

using namespace troupe;

namespace {

detail::request_trace example() {
  detail::request_trace t;
  t.model_path = "m.gguf";
  t.system_fingerprint = "p1-avx512";
  t.isa = "avx2";
  t.reference = true;
  t.context = 512;
  t.asked.prompt = std::vector<std::int32_t>{1, 2, 3};
  t.asked.sampling.temperature = 0.7F;
  t.asked.sampling.seed = 0xffffffffffffffffULL;
  t.asked.sampling.typical_p = 0.75F;
  t.asked.sampling.logit_bias = {{5, -100}, {6, 1.5F}};
  t.asked.max_tokens = 9;
  t.asked.stop = {"\n\n", "\"end\""};
  t.asked.ignore_eos = true;
  t.plans = {{0, 1, false}, {17, 2, true}};
  t.token_ids = {7, 8};
  t.reason = finish_reason::length;
  t.text = "ab\xc3\xa9";
  return t;
}

} // namespace

BOOST_AUTO_TEST_SUITE(trace_file)

BOOST_AUTO_TEST_CASE(a_printed_trace_reads_back_equal) {
  const std::string text = detail::print_trace(example());
  const auto back = detail::parse_trace(text, "t.json");
  BOOST_REQUIRE(back.has_value());
  BOOST_TEST(detail::print_trace(*back) == text);
  BOOST_TEST(*back->asked.sampling.seed == 0xffffffffffffffffULL);
  BOOST_TEST(back->asked.sampling.temperature == 0.7F);
  BOOST_TEST(back->asked.sampling.typical_p == 0.75F);
  BOOST_TEST(back->isa == "avx2");
  BOOST_TEST(back->reference);
  BOOST_TEST(back->context == 512U);
  BOOST_TEST(!back->chat);
  BOOST_REQUIRE_EQUAL(back->asked.sampling.logit_bias.size(), 2U);
  BOOST_TEST(back->asked.sampling.logit_bias[1].bias == 1.5F);
}

BOOST_AUTO_TEST_CASE(a_trace_from_before_the_newer_fields_reads_as_without_them) {
  std::string text = detail::print_trace(example());
  for (const std::string field :
       {R"("typical_p":)", R"("logit_bias":)", R"("isa":)", R"("reference":)", R"("context":)",
        R"("chat":)"}) {
    const auto at = text.find(field);
    BOOST_REQUIRE(at != std::string::npos);
    const auto end = text.find(",\"", at);
    text.erase(at, end + 1 - at);
  }
  const auto back = detail::parse_trace(text, "t.json");
  BOOST_REQUIRE(back.has_value());
  BOOST_TEST(back->asked.sampling.typical_p == 1.0F);
  BOOST_TEST(back->asked.sampling.logit_bias.empty());
  BOOST_TEST(back->isa.empty());
  BOOST_TEST(!back->reference);
  BOOST_TEST(back->context == 0U);
  BOOST_TEST(back->chat);
  text.insert(text.find("\"seed\""), R"("logit_bias":[[1]],)");
  BOOST_TEST(!detail::parse_trace(text, "t.json"));
}

BOOST_AUTO_TEST_CASE(no_limit_and_a_limit_of_no_tokens_are_told_apart) {
  for (const std::optional<std::uint32_t> limit : {std::optional<std::uint32_t>(), std::optional(0U)}) {
    auto trace = example();
    trace.asked.max_tokens = limit;
    const auto back = detail::parse_trace(detail::print_trace(trace), "t.json");
    BOOST_REQUIRE(back.has_value());
    BOOST_TEST((back->asked.max_tokens == limit));
  }
  // Version 1 wrote 0 for none.
  auto trace = example();
  trace.asked.max_tokens = 0;
  std::string text = detail::print_trace(trace);
  text.replace(text.find("\"troupe_trace\":2"), 16, "\"troupe_trace\":1");
  const auto back = detail::parse_trace(text, "t.json");
  BOOST_REQUIRE(back.has_value());
  BOOST_TEST(!back->asked.max_tokens);
}

BOOST_AUTO_TEST_CASE(a_failure_is_kept_with_the_tokens_before_it) {
  auto trace = example();
  trace.failed = detail::trace_failure{"deadline_exceeded", "too \"late\""};
  std::string text = detail::print_trace(trace);
  const auto back = detail::parse_trace(text, "t.json");
  BOOST_REQUIRE(back.has_value());
  BOOST_REQUIRE(back->failed);
  BOOST_TEST(back->failed->code == "deadline_exceeded");
  BOOST_TEST(back->failed->message == "too \"late\"");
  BOOST_TEST(back->token_ids.size() == 2U);
  text.replace(text.find("\"code\""), 6, "\"kode\"");
  const auto damaged = detail::parse_trace(text, "t.json");
  BOOST_REQUIRE(!damaged);
  BOOST_TEST(damaged.error().message.find("\"code\"") != std::string::npos);
}

BOOST_AUTO_TEST_CASE(fingerprints_that_differ_are_told_part_by_part) {
  using detail::fingerprint_difference;
  BOOST_TEST(fingerprint_difference("0a-p1-avx2-f16", "0a-p1-avx2-f16").empty());
  BOOST_TEST(fingerprint_difference("0a-p1-avx512-f16", "0a-p1-avx2-f16") == "kernels: avx512, now avx2");
  BOOST_TEST(
      fingerprint_difference("0a-p1-avx2-f16", "0b-p2-avx2-bf16") ==
      "content of the model: 0a, now 0b; plan: p1, now p2; KV cache: f16, now bf16");
  BOOST_TEST(fingerprint_difference("older", "0b-p2-avx2-bf16") == "fingerprint: older, now 0b-p2-avx2-bf16");
}

BOOST_AUTO_TEST_CASE(a_damaged_trace_names_the_file_and_the_field) {
  std::string text = detail::print_trace(example());
  const auto at = text.find("\"token_ids\":[7");
  BOOST_REQUIRE(at != std::string::npos);
  text.replace(at, 14, "\"token_ids\":[x");
  BOOST_TEST(!detail::parse_trace(text, "t.json"));
  for (const char* broken : {"", "[]", "{}", "{\"troupe_trace\":3}", "{\"troupe_trace\":1,\"request\":3}"}) {
    const auto r = detail::parse_trace(broken, "t.json");
    BOOST_REQUIRE(!r);
    BOOST_TEST((r.error().code == errc::bad_file));
    BOOST_TEST(r.error().message.rfind("t.json", 0) == 0U);
  }
}

BOOST_AUTO_TEST_CASE(a_trace_is_written_whole_or_not_at_all) {
  char dir[] = "/tmp/troupe-trace-XXXXXX";
  BOOST_REQUIRE(mkdtemp(dir) != nullptr);
  const auto path = detail::write_trace(example(), dir, "run", 5);
  BOOST_REQUIRE(path.has_value());
  BOOST_TEST(detail::read_trace(*path).has_value());
  BOOST_TEST(std::distance(std::filesystem::directory_iterator(dir), {}) == 1);
  std::filesystem::remove_all(dir);
  const auto gone = detail::write_trace(example(), dir, "run", 5);
  BOOST_REQUIRE(!gone);
  BOOST_TEST((gone.error().code == errc::io));
}

BOOST_AUTO_TEST_CASE(a_later_run_overwrites_no_trace_of_an_earlier_one) {
  const std::string first = detail::trace_run_name();
  std::string second = first;
  while (second == first) second = detail::trace_run_name(); // until the clock moves on
  char dir[] = "/tmp/troupe-trace-XXXXXX";
  BOOST_REQUIRE(mkdtemp(dir) != nullptr);
  BOOST_TEST(detail::write_trace(example(), dir, first, 1).has_value());
  BOOST_TEST(detail::write_trace(example(), dir, second, 1).has_value());
  BOOST_TEST(std::distance(std::filesystem::directory_iterator(dir), {}) == 2);
  std::filesystem::remove_all(dir);
}

BOOST_AUTO_TEST_SUITE_END()
