// SPDX-License-Identifier: Apache-2.0
// Every setting of the program with its default, grouped as in the configuration file.
#pragma once

#include <cstdint>
#include <string>

namespace troupe::config {

/// Plain values. Names, bounds, units and help texts stand in config/property_table.cpp.
struct settings {
  struct model_group {
    std::string path = "smollm2-135m-instruct"; // a GGUF file or a name of the catalogue
    std::string name;                           // as clients call it; empty: from the file
  } model;

  struct engine_group {
    std::string isa; // empty: the best the CPU has
    bool reference = false;
    std::uint32_t threads = 0;   // 0: one per core
    std::uint64_t kv_memory = 0; // bytes; 0: chosen from the memory that is free
    std::uint32_t max_batch = 64;
    std::uint32_t max_step_tokens = 256;
    std::uint32_t max_wait_ms = 0;
    std::uint32_t max_queue = 256;
    std::uint32_t max_context = 0; // 0: the model's
    std::uint32_t stream_credit = 256;
    std::uint32_t slow_consumer_ms = 30'000;
    std::uint32_t queue_timeout_ms = 60'000;
    double kv_high_watermark = 0.95;
    double kv_low_watermark = 0.90;
    double compute_low_watermark = 0.90;
    std::uint64_t max_queue_bytes = 64U << 20;
    std::string tpot_goal_ms = "0"; // see parse_by_priority
    std::uint32_t ttft_goal_ms = 2000;
    std::uint32_t tenant_max_live = 0; // of each tenant; 0: no limit
    double tenant_requests_per_second = 0;
    std::uint32_t tenant_request_burst = 8;
    double tenant_tokens_per_second = 0;
    std::uint32_t tenant_token_burst = 16'384;
    std::uint32_t memory_interval_ms = 1000; // 0: memory is not watched
    double memory_high_watermark = 0.97;
    double memory_low_watermark = 0.90;
    bool prefix_cache = true;
    std::uint32_t preempt_every = 0;
    std::uint64_t park_ram_bytes = 0;
    std::uint64_t park_disk_bytes = 0;
    std::string park_folder = "/var/tmp";
    bool park_always = false;
    std::string trace_dir;
  } engine;

  struct server_group {
    std::string host = "127.0.0.1";
    std::uint32_t port = 8080;  // 0: any free one
    std::int32_t tcp_port = -1; // 0: any free one; -1: no raw TCP door
    std::uint32_t max_connections = 1024;
    std::uint32_t max_requests_per_connection = 256;
    std::uint64_t uri_bytes = 2048;
    std::uint64_t header_bytes = 8192;
    std::uint32_t header_fields = 64;
    std::uint64_t body_bytes = 1U << 20;
    std::uint64_t message_bytes = 1U << 20;
    std::uint32_t message_fragments = 128;
    std::uint64_t unsent_bytes = 64U << 10;
    std::uint32_t pipelined_requests = 8;
    std::uint64_t all_buffered_bytes = 256U << 20;
    std::uint32_t header_timeout_ms = 10'000;
    std::uint32_t body_timeout_ms = 30'000;
    std::uint32_t keep_alive_timeout_ms = 75'000;
    std::uint32_t idle_timeout_ms = 300'000;
    std::uint32_t write_timeout_ms = 30'000;
    std::uint32_t ping_interval_ms = 15'000;
    std::uint32_t drain_timeout_ms = 600'000;
    bool ignore_unknown_fields = false;
    std::string allowed_hosts;   // with commas between; empty: see the table
    std::string allowed_origins; // with commas between
  } server;

  struct log_group {
    std::string level = "info";
  } log;
};

} // namespace troupe::config
