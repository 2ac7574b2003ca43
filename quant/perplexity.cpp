// SPDX-License-Identifier: Apache-2.0
// Chunked perplexity, as the usual tools measure it.
#include "quant/perplexity.hpp"

#include "quant/evaluation.hpp"

#include <algorithm>
#include <cmath>
#include <string>

namespace troupe::quant {

double negative_log_likelihood(std::span<const float> logits, std::int32_t token) {
  const double peak = static_cast<double>(*std::max_element(logits.begin(), logits.end()));
  double sum = 0;
  for (const float x : logits) sum += std::exp(static_cast<double>(x) - peak);
  return peak + std::log(sum) - static_cast<double>(logits[static_cast<std::size_t>(token)]);
}

result<perplexity_result> measure_perplexity(
    kernels::backend& backend, const std::shared_ptr<const kernels::step_program>& program,
    std::span<const std::int32_t> tokens, const perplexity_options& options) {
  const std::uint32_t context = options.context;
  if (context < 4 || tokens.size() < context)
    return error{
        errc::bad_request,
        "perplexity needs at least one chunk of " + std::to_string(std::max(context, 4U)) +
            " tokens; the text has " + std::to_string(tokens.size()),
        "ctx", 0};
  auto chunks = static_cast<std::uint32_t>(std::min<std::size_t>(tokens.size() / context, UINT32_MAX));
  if (options.chunks != 0) chunks = std::min(chunks, options.chunks);

  perplexity_result answer;
  evaluated_sequence sequence(backend, program);
  double total = 0, squares = 0;
  for (std::uint32_t c = 0; c < chunks; ++c) {
    const auto source = tokens.subspan(std::size_t{c} * context, context);
    std::vector<std::int32_t> chunk(source.begin(), source.end());
    if (options.bos) chunk.front() = *options.bos;
    double nll = 0;
    // The last token is only scored, never an input.
    const auto inputs = std::span<const std::int32_t>(chunk).first(context - 1);
    auto done = sequence.run(inputs, context / 2, [&](std::uint32_t position, std::span<const float> logits) {
      const double one = negative_log_likelihood(logits, chunk[position + 1]);
      nll += one;
      squares += one * one;
      ++answer.tokens;
    });
    if (!done) return done.error();
    answer.chunk_nll.push_back(nll);
    total += nll;
    const double mean = total / static_cast<double>(answer.tokens);
    answer.perplexity = std::exp(mean);
    const double variance = std::max(squares / static_cast<double>(answer.tokens) - mean * mean, 0.0);
    answer.standard_error = answer.perplexity * std::sqrt(variance / static_cast<double>(answer.tokens));
    if (options.progress) options.progress(c + 1, chunks, answer.perplexity);
  }
  return answer;
}

} // namespace troupe::quant
