// SPDX-License-Identifier: Apache-2.0
// Sends many streamed completions to an OpenAI-compatible server and measures the answers.
#pragma once

#include <chrono>
#include <cstdint>
#include <map>
#include <string>
#include <vector>

namespace troupe::cli {

struct load_options {
  std::string host, port, prefix;   ///< from the URL; prefix without a slash at its end
  bool tls = false;                 ///< from the URL
  bool unchecked = false;           ///< take whatever certificate the server has
  std::vector<std::string> headers; ///< further lines of a request's head, "NAME: VALUE"
  std::string model;                ///< empty: the first one of /v1/models
  bool chat = false;                ///< /v1/chat/completions instead of /v1/completions
  std::uint32_t clients = 1;        ///< closed loop: requests in flight
  double rate = 0; ///< open loop: requests per second, arrivals a Poisson process; 0 = closed loop
  std::uint32_t requests = 1;
  std::uint32_t words_least = 90, words_most = 90; ///< of a prompt, drawn evenly
  std::uint32_t max_tokens = 64;
  bool ignore_eos = true;
  double temperature = 0;
  std::uint64_t seed = 0;                   ///< of prompt lengths and arrivals
  std::vector<std::string> words;           ///< that prompts are cut from, each request elsewhere
  std::chrono::seconds timeout{600};        ///< of one request
  std::map<std::string, std::string> extra; ///< further body fields, values as JSON
};

/// One request, times in seconds.
struct load_sample {
  int status = 0;      ///< HTTP status; 0 = there was none
  std::string problem; ///< empty: a whole answer with status 200
  std::uint32_t tokens = 0, prompt_tokens = 0;
  double first = 0;       ///< from when the request was due to its first token
  double whole = 0;       ///< to its end
  double per_token = 0;   ///< mean time between tokens after the first; 0 with fewer than two
  double longest_gap = 0; ///< between two arrivals of tokens
};

struct load_result {
  std::string model; ///< asked for
  std::vector<load_sample> samples;
  double wall_s = 0; ///< first request due to last answer
  double cpu_s = 0;  ///< of this program meanwhile
};

/// Blocks until all answers are in. Throws `failure` when the host cannot be resolved or the server not be
/// reached.
load_result run_load(const load_options& options);

} // namespace troupe::cli
