// SPDX-License-Identifier: Apache-2.0
#include "server/door_context.hpp"
#include "server/metrics.hpp"
#include "troupe/engine.hpp"

#include <boost/test/unit_test.hpp>

using namespace troupe;
using namespace troupe::server;

namespace {
bool has_line(const std::string& text, const std::string& line) {
  return text.find("\n" + line + "\n") != std::string::npos;
}
} // namespace

BOOST_AUTO_TEST_SUITE(metrics)

BOOST_AUTO_TEST_CASE(writes_the_snapshot_under_both_families_of_names) {
  engine_stats e;
  e.kv_total = 100;
  e.kv_free = 60;
  e.kv_leased = 20;
  e.kv_limbo = 5;
  e.kv_cached = 15;
  e.running = 3;
  e.step_sequences_max = 17;
  e.decode_tokens = 42;
  e.failed = {{errc::kv_cache_full, 6}};
  e.dead_letters = {{"control", "full", 0}, {"stream", "closed", 4}};
  e.time_to_first_token.counts[0] = 2;
  e.time_to_first_token.counts[14] = 1;
  e.time_to_first_token.sum = 99.5;
  e.memory.level = "batch";
  e.memory.resident = 5000;
  e.memory.batch_shrinks = 2;
  door_counters d;
  d.http_responses = {{200, 4}, {429, 6}};
  const std::string text = metrics_text(e, d, "m \"1\"\n");
  for (const char* line :
       {"troupe_kv_blocks{state=\"limbo\"} 5", "troupe_kv_blocks_used 25", "troupe_kv_usage_ratio 0.25",
        "troupe_step_sequences_max 17", "troupe_memory_resident_bytes 5000",
        "troupe_memory_level{level=\"batch\"} 1", "troupe_memory_level{level=\"normal\"} 0",
        "troupe_memory_changes_total{change=\"batch_shrunk\"} 2", "troupe_tokens_total{kind=\"decode\"} 42",
        "troupe_requests_failed_total{code=\"kv_cache_full\"} 6",
        "troupe_http_responses_total{status=\"429\"} 6",
        "troupe_dead_letters_total{class=\"control\",reason=\"full\"} 0",
        "troupe_dead_letters_total{class=\"stream\",reason=\"closed\"} 4",
        "troupe_time_to_first_token_seconds_bucket{le=\"0.001\"} 2",
        "troupe_time_to_first_token_seconds_bucket{le=\"60\"} 2",
        "troupe_time_to_first_token_seconds_bucket{le=\"+Inf\"} 3",
        "troupe_time_to_first_token_seconds_sum 99.5",
        "vllm:num_requests_running{model_name=\"m \\\"1\\\"\\n\"} 3",
        "# TYPE troupe_time_to_first_token_seconds histogram"})
    BOOST_TEST(has_line(text, line), line << "\nis missing from\n" << text);
}

BOOST_AUTO_TEST_CASE(an_empty_engine_gives_zeroes) {
  const std::string text = metrics_text({}, {}, "m");
  BOOST_TEST(has_line(text, "troupe_kv_blocks_used 0"));
  BOOST_TEST(has_line(text, "troupe_kv_usage_ratio 0"));
}

BOOST_AUTO_TEST_SUITE_END()
