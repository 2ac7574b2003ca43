// SPDX-License-Identifier: Apache-2.0
// The workloads that come with the program, in the form that files have.
#include "sim/load_workload.hpp"

namespace troupe::sim {

const std::vector<named_workload>& named_workloads() {
  // Lengths as chats have them: many short ones, a long tail.
  static const std::vector<named_workload> all{
      {"chat", R"(
about = people who chat: each sends, reads, thinks for ten seconds and sends again
axis = clients
loads = 1 10 30 100 300 1000 3000 10000
[crowd people]
arrivals = closed exponential 10
tries = 1000000
prompt = lognormal 120 0.9 4 4000
output = lognormal 80 0.8 1 1000
)"},
      {"poisson", R"(
about = requests that come whatever becomes of them
loads = 0.5 1 2 3 4 6 8 16
[crowd requests]
prompt = lognormal 120 0.9 4 4000
output = lognormal 80 0.8 1 1000
)"},
      {"bursts", R"(
about = the same in bursts of two seconds, ten seconds apart
loads = 0.5 1 2 3 4 6
[crowd requests]
arrivals = bursts 2 10
prompt = lognormal 120 0.9 4 4000
output = lognormal 80 0.8 1 1000
)"},
      {"heavy_tails", R"(
about = prompts and answers by a law without a variance: a few are very long
loads = 0.5 1 2 3 4
[crowd requests]
prompt = pareto 40 1.2 40 7000
output = pareto 20 1.4 20 1000
)"},
      {"shared_prefix", R"(
about = four system prompts of 1,000 tokens, and short questions behind them
axis = clients
loads = 1 4 16 64 256
[crowd people]
arrivals = closed exponential 5
tries = 1000000
prompt = lognormal 1060 0.05 1001 1400
prefix = 1000 4
output = lognormal 60 0.6 1 400
)"},
      {"adversaries", R"(
about = honest clients beside some who cancel, stop reading, flood a low priority and fill the cache with prefixes
axis = rate
loads = 1 2 4
[crowd honest]
arrivals = closed exponential 5
fixed_load = 8
tries = 1000000
prompt = lognormal 120 0.9 4 4000
output = lognormal 80 0.8 1 1000
[crowd cancel]
load = 0.3
cancels = 0.9
cancel_after = exponential 2
prompt = lognormal 200 0.9 4 4000
output = lognormal 300 0.8 1 1000
[crowd stall]
load = 0.1
stalls = 1
credit = 16
output = fixed 200
[crowd flood]
load = 1
priority = 7 9
tries = 3
output = lognormal 150 0.8 1 1000
[crowd prefixes]
load = 0.2
tenants = 1
prompt = lognormal 700 0.3 513 2000
prefix = 512 100
output = fixed 8
)"},
      {"low_flood", R"(
about = three times what the machine can do, of low priority, beside a few of the highest
axis = capacity
loads = 3
seconds = 240
max_batch = 32
max_queue = 128
kv_blocks = 4096
[crowd high]
load = 0.033
priority = 0
prompt = lognormal 120 0.9 4 1000
output = lognormal 80 0.8 1 200
max_tokens = 200
[crowd low]
load = 1
priority = 7 9
prompt = lognormal 120 0.9 4 1000
output = lognormal 80 0.8 1 200
max_tokens = 200
)"},
      {"two_tenants", R"(
about = two tenants who always want more: one has eight times as many clients, the other's requests are longer
axis = clients
loads = 90
seconds = 600
fair_window_s = 60
max_batch = 8
max_queue = 1000
queue_timeout_ms = 3600000
[crowd many]
arrivals = closed fixed 0.1
load = 0.889
tenants = 1
prompt = lognormal 60 0.5 4 400
output = lognormal 30 0.5 1 100
max_tokens = 100
[crowd few]
arrivals = closed fixed 0.1
load = 0.111
tenants = 1
prompt = lognormal 200 0.5 4 800
output = lognormal 80 0.5 1 200
max_tokens = 200
)"},
  };
  return all;
}

} // namespace troupe::sim
