// SPDX-License-Identifier: Apache-2.0
// One ended request as a file that `troupe replay` can run again: everything its tokens are a function of.
#pragma once

#include "troupe/request.hpp"

#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace troupe::detail {

/// From `position` on the tokens were computed under `plan`.
struct plan_change {
  std::uint32_t position = 0;
  std::uint64_t plan = 0;
  bool refilled = false; ///< the KV before `position` was computed again under this plan
};

/// How a request failed.
struct trace_failure {
  std::string code, message;
};

/// Older traces lack the four fields after the fingerprint: they read as what is said there.
struct request_trace {
  std::string model_path;
  std::string system_fingerprint;
  std::string isa;           ///< of the kernels, as engine_options takes it; empty: not known
  bool reference = false;    ///< the reference path
  std::uint32_t context = 0; ///< positions that a sequence could reach; 0: the model's
  /// The prompt was a chat, whose answer begins its text: a first word has no space before it. As ids the
  /// prompt tells nothing of that. Not known: true.
  bool chat = false;
  request asked; ///< prompt as ids; the seed is always present
  std::vector<plan_change> plans;
  std::vector<std::int32_t> token_ids;
  finish_reason reason = finish_reason::stop;
  std::optional<trace_failure> failed; ///< instead of the reason; tokens and text are those before it
  std::string text;
};

std::string print_trace(const request_trace& trace);

/// Errors: bad_file, naming the field. `source` names the file in messages.
result<request_trace> parse_trace(std::string_view text, std::string_view source);

/// Names one run of an engine in its trace files, "20261130T142442.123456-4711": start in UTC and process id,
/// so that stream ids, which begin anew in each run, overwrite nothing.
std::string trace_run_name();

/// How two system fingerprints differ, for a person: "kernels: avx512, now avx2". Empty when they are equal.
std::string fingerprint_difference(std::string_view recorded, std::string_view now);

/// Writes DIR/<run>-<stream id>.json, complete or not at all. Errors: io.
result<std::string> write_trace(
    const request_trace& trace, const std::string& dir, std::string_view run, std::uint64_t stream_id);

/// Reads a trace of at most 64 MiB. Errors: io, bad_file.
result<request_trace> read_trace(const std::string& path);

} // namespace troupe::detail
