// SPDX-License-Identifier: Apache-2.0
#include "runtime/mailbox.hpp"

#include "runtime/base/error.hpp"

#include <string>

namespace troupe::runtime {

namespace {
constexpr unsigned byte_bits = 44;
constexpr std::uint64_t byte_mask = (std::uint64_t{1} << byte_bits) - 1;
constexpr std::uint32_t max_messages = most_mailbox_messages;
constexpr std::uint64_t max_bytes = std::uint64_t{1}
                                    << 43; // half the field: an overrun cannot spill into the count

constexpr std::uint64_t pack(std::uint32_t messages, std::uint64_t bytes) noexcept {
  return std::uint64_t{messages} << byte_bits | (bytes & byte_mask);
}

// Marks an inbox or a slot that takes nothing any more. Never read as a node.
mailbox_node closed_node;
mailbox_node* const closed_mark = &closed_node;
} // namespace

const class_limit& mailbox_limits::of(message_class kind) const noexcept {
  static constexpr class_limit none{};
  switch (kind) {
  case message_class::control:
    return control;
  case message_class::admission:
    return admission;
  case message_class::stream:
    return stream;
  case message_class::query:
    return query;
  case message_class::state:
    break;
  }
  return none;
}

namespace detail {

void load_gauge::set_limit(class_limit limit) noexcept {
  limit_ = limit;
}

bool load_gauge::try_add(std::uint32_t messages, std::uint64_t bytes) noexcept {
  std::uint64_t held = word_.load(std::memory_order_relaxed);
  do {
    const auto held_messages = static_cast<std::uint32_t>(held >> byte_bits);
    const std::uint64_t held_bytes = held & byte_mask;
    if (messages > limit_.messages || held_messages > limit_.messages - messages) return false;
    if (bytes > limit_.bytes || held_bytes > limit_.bytes - bytes) return false;
    // Acquire pairs with the release in `remove`: the node given back before it is visible to this caller.
  } while (!word_.compare_exchange_weak(
      held, held + pack(messages, bytes), std::memory_order_acquire, std::memory_order_relaxed));
  return true;
}

void load_gauge::add_bytes(std::uint64_t bytes) noexcept {
  word_.fetch_add(bytes & byte_mask, std::memory_order_relaxed);
}

void load_gauge::remove(std::uint32_t messages, std::uint64_t bytes) noexcept {
  word_.fetch_sub(pack(messages, bytes), std::memory_order_release);
}

class_limit load_gauge::load() const noexcept {
  const std::uint64_t held = word_.load(std::memory_order_relaxed);
  return {static_cast<std::uint32_t>(held >> byte_bits), held & byte_mask};
}

void node_pool::add(mailbox_node* node) {
  node->index = static_cast<std::uint32_t>(nodes_.size());
  nodes_.push_back(node);
  give(node);
}

mailbox_node* node_pool::take() noexcept {
  std::uint64_t head = head_.load(std::memory_order_acquire);
  for (;;) {
    const auto top = static_cast<std::uint32_t>(head);
    if (top == 0) return nullptr;
    mailbox_node* const node = nodes_[top - 1];
    // May read the link of a node that another thread has just taken; the tag then makes the exchange fail.
    const std::uint64_t below = node->next_free.load(std::memory_order_relaxed);
    const std::uint64_t taken = ((head >> 32) + 1) << 32 | below;
    if (head_.compare_exchange_weak(head, taken, std::memory_order_acquire, std::memory_order_acquire))
      return node;
  }
}

void node_pool::give(mailbox_node* node) noexcept {
  std::uint64_t head = head_.load(std::memory_order_relaxed);
  std::uint64_t with = 0;
  do {
    node->next_free.store(static_cast<std::uint32_t>(head), std::memory_order_relaxed);
    with = ((head >> 32) + 1) << 32 | (node->index + 1);
  } while (!head_.compare_exchange_weak(head, with, std::memory_order_release, std::memory_order_relaxed));
}

bool inbox::push(mailbox_node* node) noexcept {
  mailbox_node* head = head_.load(std::memory_order_relaxed);
  do {
    if (head == closed_mark) return false;
    node->next = head;
    // Sequentially consistent against the state flag: see mailbox_core::end_run.
  } while (!head_.compare_exchange_weak(head, node, std::memory_order_seq_cst, std::memory_order_relaxed));
  return true;
}

void inbox::collect(mailbox_node* newest) noexcept {
  if (newest == nullptr) return;
  mailbox_node* oldest = nullptr;
  for (mailbox_node* n = newest; n != nullptr;) {
    mailbox_node* const older = n->next;
    n->next = oldest;
    oldest = n;
    n = older;
  }
  if (ready_ == nullptr)
    ready_ = oldest;
  else
    ready_end_->next = oldest;
  ready_end_ = newest;
}

mailbox_node* inbox::pop() noexcept {
  if (ready_ == nullptr && arrived()) collect(head_.exchange(nullptr, std::memory_order_acquire));
  mailbox_node* const first = ready_;
  if (first != nullptr) ready_ = first->next;
  return first;
}

bool inbox::arrived() const noexcept {
  const mailbox_node* head = head_.load(std::memory_order_seq_cst);
  return head != nullptr && head != closed_mark;
}

bool inbox::closed() const noexcept {
  return head_.load(std::memory_order_acquire) == closed_mark;
}

mailbox_node* inbox::close() noexcept {
  mailbox_node* const last = head_.exchange(closed_mark, std::memory_order_acq_rel);
  if (last != closed_mark) collect(last);
  return std::exchange(ready_, nullptr);
}

} // namespace detail

mailbox_core::mailbox_core(const mailbox_limits& limits, std::size_t state_types) :
    slots_(state_types), control_burst_(std::max(limits.control_burst, 1U)) {
  for (const auto kind :
       {message_class::control, message_class::admission, message_class::stream, message_class::query}) {
    const auto& limit = limits.of(kind);
    if (limit.messages > max_messages || limit.bytes > max_bytes)
      throw failure(
          errc::bad_config,
          "mailbox bound of class " + std::string(class_name(kind)) + " exceeds 524288 messages or 8 TiB");
    gauge(kind).set_limit(limit);
  }
}

// Two facts make wake-ups safe: a sender first links its message and then tries idle -> scheduled; the
// consumer first stores idle and then looks at the inboxes again. All four accesses are sequentially
// consistent, so at least one side sees the other, and the compare-and-swap lets exactly one of them post.
bool mailbox_core::signal() noexcept {
  auto expected = run_state::idle;
  return state_.compare_exchange_strong(expected, run_state::scheduled, std::memory_order_seq_cst);
}

void mailbox_core::begin_run() noexcept {
  [[maybe_unused]] const auto before = state_.exchange(run_state::running, std::memory_order_seq_cst);
  assert(before == run_state::scheduled);
}

bool mailbox_core::end_run(bool more, bool ignore_mail) noexcept {
  if (more || (!ignore_mail && (!control_.empty() || !ordinary_.empty()))) {
    state_.store(run_state::scheduled, std::memory_order_seq_cst);
    return true;
  }
  state_.store(run_state::idle, std::memory_order_seq_cst);
  // From here on another thread may already be the consumer: only atomics may be looked at.
  return !ignore_mail && mail_arrived() && signal();
}

bool mailbox_core::mail_arrived() const noexcept {
  if (control_.arrived() || ordinary_.arrived()) return true;
  for (const auto& slot : slots_) {
    const auto* held = slot.load(std::memory_order_seq_cst);
    if (held != nullptr && held != closed_mark) return true;
  }
  return false;
}

bool mailbox_core::reserve(std::uint32_t units, std::uint64_t bytes_each) noexcept {
  if (units > max_messages || bytes_each > max_bytes) return false; // so that the product below fits
  return !closed() && gauge(message_class::control).try_add(units, units * bytes_each);
}

void mailbox_core::release(std::uint32_t units, std::uint64_t bytes_each) noexcept {
  gauge(message_class::control).remove(units, units * bytes_each);
}

enqueue_result mailbox_core::link(mailbox_node* node) noexcept {
  depth_.fetch_add(1, std::memory_order_relaxed);
  auto& queue = node->kind == message_class::control ? control_ : ordinary_;
  if (queue.push(node)) return enqueue_result::ok;
  depth_.fetch_sub(1, std::memory_order_relaxed);
  return enqueue_result::closed;
}

enqueue_result
mailbox_core::put_state(std::size_t slot, mailbox_node* node, mailbox_node*& replaced) noexcept {
  depth_.fetch_add(1, std::memory_order_relaxed);
  mailbox_node* held = slots_[slot].load(std::memory_order_relaxed);
  do {
    if (held == closed_mark) {
      depth_.fetch_sub(1, std::memory_order_relaxed);
      return enqueue_result::closed;
    }
  } while (
      !slots_[slot].compare_exchange_weak(held, node, std::memory_order_seq_cst, std::memory_order_relaxed));
  replaced = held; // the exchange also acquired it: this thread destroys what another has written
  if (held != nullptr) {
    depth_.fetch_sub(1, std::memory_order_relaxed);
    conflated_.fetch_add(1, std::memory_order_relaxed);
  }
  return enqueue_result::ok;
}

mailbox_node* mailbox_core::next() noexcept {
  const auto taken = [this](mailbox_node* node) {
    depth_.fetch_sub(1, std::memory_order_relaxed);
    return node;
  };
  if (control_run_ < control_burst_) {
    if (auto* node = control_.pop()) {
      ++control_run_;
      return taken(node);
    }
  }
  control_run_ = 0;
  for (int attempt = 0; attempt < 2; ++attempt) {
    state_turn_ = !state_turn_;
    if (!state_turn_) {
      if (auto* node = ordinary_.pop()) return taken(node);
      continue;
    }
    for (std::size_t i = 0; i < slots_.size(); ++i) {
      auto& slot = slots_[next_slot_];
      next_slot_ = next_slot_ + 1 == slots_.size() ? 0 : next_slot_ + 1;
      const auto* held = slot.load(std::memory_order_relaxed);
      if (held == nullptr || held == closed_mark) continue;
      return taken(slot.exchange(nullptr, std::memory_order_acquire));
    }
  }
  auto* node = control_.pop();
  if (node == nullptr) return nullptr;
  control_run_ = 1;
  return taken(node);
}

mailbox_node* mailbox_core::close_all() noexcept {
  mailbox_node* all = nullptr;
  mailbox_node** end = &all;
  const auto append = [&](mailbox_node* list) {
    *end = list;
    for (; *end != nullptr; end = &(*end)->next) depth_.fetch_sub(1, std::memory_order_relaxed);
  };
  // The control inbox last: `closed()` reads it, and must not be true while another inbox still accepts.
  append(ordinary_.close());
  for (auto& slot : slots_) {
    auto* held = slot.exchange(closed_mark, std::memory_order_acq_rel);
    if (held == nullptr || held == closed_mark) continue;
    held->next = nullptr;
    append(held);
  }
  append(control_.close());
  return all;
}

class_limit mailbox_core::load(message_class kind) const noexcept {
  if (kind != message_class::state) return gauges_[static_cast<std::size_t>(kind)].load();
  class_limit filled;
  for (const auto& slot : slots_) {
    const auto* held = slot.load(std::memory_order_relaxed);
    if (held != nullptr && held != closed_mark) ++filled.messages;
  }
  return filled;
}

std::uint32_t mailbox_core::depth() const noexcept {
  return depth_.load(std::memory_order_relaxed);
}

} // namespace troupe::runtime
