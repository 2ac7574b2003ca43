// SPDX-License-Identifier: Apache-2.0
// The list of commands.
#include "cli/command.hpp"

namespace troupe::cli {

std::span<const command> commands() noexcept {
  static constexpr command list[] = {
      {"run", "answer a prompt, or chat in the terminal", run_command},
      {"serve", "serve a model over HTTP, WebSocket and raw TCP", serve_command},
      {"pull", "fetch a model", pull_command},
      {"tokenize", "text to token ids", tokenize_command},
      {"detokenize", "token ids to text", detokenize_command},
      {"template", "a conversation as the model sees it", template_command},
      {"inspect", "what is in a model file", inspect_command},
      {"eval perplexity", "perplexity over a text", eval_perplexity_command,
       "troupe eval perplexity --file text.txt --chunks 16"},
      {"eval logits", "logits and tokens against known ones", eval_logits_command,
       "troupe eval logits --against known.json"},
      {"bench serve", "load a server and measure it", bench_serve_command,
       "troupe bench serve http://127.0.0.1:8080 --clients 4 --requests 16"},
      {"replay", "repeat a recorded request and compare", replay_command},
      {"doctor", "look at this machine", doctor_command},
      {"version", "print the version", version_command},
  };
  return list;
}

} // namespace troupe::cli
