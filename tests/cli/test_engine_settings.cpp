// SPDX-License-Identifier: Apache-2.0
// An embedder's engine and the program's behave alike by default.
#include "cli/engine_settings.hpp"
#include "config/settings.hpp"

#include <boost/test/unit_test.hpp>

#include <tuple>

using namespace troupe;

namespace {

auto all_of(const engine_options& o) {
  return std::tie(
      o.isa, o.reference, o.threads, o.kv_memory_bytes, o.max_batch, o.max_step_tokens, o.max_wait_ms,
      o.max_queue, o.max_context, o.stream_credit, o.slow_consumer_ms, o.queue_timeout_ms,
      o.kv_high_watermark, o.kv_low_watermark, o.compute_low_watermark, o.max_queue_bytes, o.tpot_goals_ms,
      o.ttft_goal_ms, o.tenant_max_live, o.tenant_requests_per_second, o.tenant_tokens_per_second,
      o.tenant_request_burst, o.tenant_token_burst, o.prefix_cache, o.preempt_every, o.park_ram_bytes,
      o.park_disk_bytes, o.park_folder, o.park_always, o.trace_dir, o.memory_interval_ms,
      o.memory_high_watermark, o.memory_low_watermark);
}

} // namespace

BOOST_AUTO_TEST_SUITE(engine_settings)

BOOST_AUTO_TEST_CASE(the_defaults_of_engine_options_are_those_of_the_table) {
  engine_options from_table;
  from_table.max_batch = 1; // so that a member that is not copied is seen
  from_table.max_queue = 1;
  cli::copy_engine_settings(config::settings{}, from_table);
  BOOST_TEST((all_of(from_table) == all_of(engine_options{})));
}

BOOST_AUTO_TEST_SUITE_END()
