// SPDX-License-Identifier: Apache-2.0
// Stop strings in a stream of text.
#include "models/stop_matcher.hpp"

#include <utility>

namespace troupe::models {
namespace {

constexpr std::size_t at(std::int32_t i) noexcept {
  return static_cast<std::size_t>(i);
}

} // namespace

stop_matcher::stop_matcher(std::span<const std::string> stops) : nodes_(1) {
  for (std::size_t i = 0; i < stops.size(); ++i) {
    lengths_.push_back(stops[i].size());
    if (!stops[i].empty()) insert(stops[i], static_cast<std::int32_t>(i));
  }
  link_failures();
}

std::int32_t stop_matcher::edge(std::int32_t from, unsigned char byte) const noexcept {
  for (std::int32_t e = nodes_[at(from)].first_edge; e >= 0; e = nodes_[at(e)].next_edge) {
    if (nodes_[at(e)].byte == byte) return e;
  }
  return -1;
}

void stop_matcher::insert(std::string_view stop, std::int32_t index) {
  std::int32_t state = 0;
  for (const char c : stop) {
    std::int32_t next = edge(state, static_cast<unsigned char>(c));
    if (next < 0) {
      next = static_cast<std::int32_t>(nodes_.size());
      node n;
      n.depth = nodes_[at(state)].depth + 1;
      n.byte = static_cast<unsigned char>(c);
      n.next_edge = nodes_[at(state)].first_edge;
      nodes_.push_back(n);
      nodes_[at(state)].first_edge = next;
    }
    state = next;
  }
  if (nodes_[at(state)].stop < 0) nodes_[at(state)].stop = index;
}

void stop_matcher::link_failures() {
  std::vector<std::int32_t> queue{0};
  for (std::size_t i = 0; i < queue.size(); ++i) {
    const std::int32_t parent = queue[i];
    for (std::int32_t e = nodes_[at(parent)].first_edge; e >= 0; e = nodes_[at(e)].next_edge) {
      std::int32_t fail = 0;
      if (parent != 0) {
        std::int32_t from = nodes_[at(parent)].fail;
        std::int32_t next = edge(from, nodes_[at(e)].byte);
        while (next < 0 && from != 0) {
          from = nodes_[at(from)].fail;
          next = edge(from, nodes_[at(e)].byte);
        }
        fail = next < 0 ? 0 : next;
      }
      nodes_[at(e)].fail = fail;
      // The node's own string is longer than any that ends at its failure node.
      if (nodes_[at(e)].stop < 0) nodes_[at(e)].stop = nodes_[at(fail)].stop;
      queue.push_back(e);
    }
  }
}

stop_matcher::step stop_matcher::push(std::string_view text, bool may_match) {
  if (done_) return {};
  for (std::size_t i = 0; i < text.size(); ++i) {
    const auto byte = static_cast<unsigned char>(text[i]);
    std::int32_t next = edge(state_, byte);
    while (next < 0 && state_ != 0) {
      state_ = nodes_[at(state_)].fail;
      next = edge(state_, byte);
    }
    state_ = next < 0 ? 0 : next;
    // A whole stop string that was passed on need not be held back: nothing longer begins with it.
    if (!may_match)
      while (state_ != 0 && nodes_[at(state_)].first_edge < 0) state_ = nodes_[at(state_)].fail;
    const std::int32_t stop = nodes_[at(state_)].stop;
    if (stop >= 0 && may_match) {
      held_ += text.substr(0, i + 1);
      held_.resize(held_.size() - lengths_[at(stop)]);
      done_ = true;
      return {std::exchange(held_, {}), at(stop)};
    }
  }
  held_ += text;
  const std::size_t safe = held_.size() - at(nodes_[at(state_)].depth);
  step out{held_.substr(0, safe), std::nullopt};
  held_.erase(0, safe);
  return out;
}

std::string stop_matcher::flush() {
  state_ = 0;
  return std::exchange(held_, {});
}

} // namespace troupe::models
