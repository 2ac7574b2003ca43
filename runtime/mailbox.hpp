// SPDX-License-Identifier: Apache-2.0
// A bounded intrusive queue, many producers to one consumer, with the idle/scheduled/running flag that makes
// its drain task mutually exclusive on any executor, without a strand.
#pragma once

#include "runtime/protocol.hpp"

#include <algorithm>
#include <atomic>
#include <cassert>
#include <memory>
#include <new>
#include <optional>
#include <utility>
#include <vector>

namespace troupe::runtime {

inline constexpr std::uint32_t most_mailbox_messages = 1U << 19;

struct class_limit {
  std::uint32_t messages = 0; // at most most_mailbox_messages
  std::uint64_t bytes = 0;    // at most 2^43
};

/// Bounds of one mailbox; node memory for all of them is taken when it is made, so that no send allocates.
struct mailbox_limits {
  class_limit control{64, 64 << 10};
  class_limit admission{256, 16 << 20};
  class_limit stream{256, 4 << 20};
  class_limit query{16, 64 << 10};
  std::uint32_t control_burst = 16; // control messages handled in a row while other mail waits

  const class_limit& of(message_class kind) const noexcept;
};

/// What travels with a message besides itself.
struct envelope {
  std::uint32_t sender = 0;   // actor id; 0 is a caller outside the actors
  std::uint32_t sequence = 0; // the sender's count of sent messages, pairs a send with its receipt in traces
  std::int64_t sent_ns = 0;   // clock time of the send
};

/// The part of a queued message that does not depend on its type. Owned by the mailbox, by the queue it is
/// linked into, or by the consumer between `next` and `recycle`.
struct mailbox_node {
  envelope sent;
  std::uint64_t request = 0; // request the message belongs to, 0 = none
  std::uint64_t timer = 0;   // serial of the actor timer that delivers it, 0 = not from a timer
  std::uint64_t charged_bytes = 0;
  message_class kind = message_class::control; // class it is charged to
  std::uint16_t type = 0;                      // index in the protocol's list
  bool from_heap = false;                      // a state message beyond the recycled nodes
  bool kept = false;                           // its control slot lives on as a reservation, see actor::renew
  mailbox_node* next = nullptr;                // link in an inbox
  std::atomic<std::uint32_t> next_free{0};     // link in the free list: index + 1, 0 = end
  std::uint32_t index = 0;                     // position in the pool
};

namespace detail {

/// Messages and bytes of one class, charged and released as one word so that a bound is never overshot.
class load_gauge {
 public:
  void set_limit(class_limit limit) noexcept;
  bool try_add(std::uint32_t messages, std::uint64_t bytes) noexcept;
  void add_bytes(std::uint64_t bytes) noexcept; // beyond the bound, for control that must not be dropped
  void remove(std::uint32_t messages, std::uint64_t bytes) noexcept;
  class_limit load() const noexcept;

 private:
  std::atomic<std::uint64_t> word_{0}; // messages in the upper 20 bits, bytes in the lower 44
  class_limit limit_;
};

/// Lock-free free list over indices; the tag in the upper half of the head defeats ABA.
class node_pool {
 public:
  void add(mailbox_node* node); // before the first use only
  mailbox_node* take() noexcept;
  void give(mailbox_node* node) noexcept;

 private:
  std::vector<mailbox_node*> nodes_;
  std::atomic<std::uint64_t> head_{0};
};

/// Lock-free stack of arrivals, turned round by the consumer: first in, first out per producer and overall.
class inbox {
 public:
  bool push(mailbox_node* node) noexcept; // any thread; false once closed
  mailbox_node* pop() noexcept;           // consumer
  bool arrived() const noexcept; // any thread; what the consumer has already taken over is not counted
  bool empty() const noexcept { return ready_ == nullptr && !arrived(); } // consumer
  mailbox_node* close() noexcept; // consumer; returns what was left, oldest first, linked by `next`
  bool closed() const noexcept;

 private:
  void collect(mailbox_node* newest) noexcept;
  std::atomic<mailbox_node*> head_{nullptr};
  mailbox_node* ready_ = nullptr; // consumer's own, oldest first
  mailbox_node* ready_end_ = nullptr;
};

} // namespace detail

/// Everything about a mailbox that does not depend on the message types.
/// The consumer is whoever holds the `running` state; all other members are Thread: any.
class mailbox_core {
 public:
  enum class run_state : std::uint8_t { idle, scheduled, running };

  explicit mailbox_core(const mailbox_limits& limits, std::size_t state_types);

  /// After a send, or after any other reason to run: true when the caller must post exactly one drain task.
  bool signal() noexcept;
  /// First act of the drain task.
  void begin_run() noexcept;
  /// Last act of the drain task. `more` tells whether the consumer wants another turn at once; arrivals up to
  /// this point are re-checked unless `ignore_mail`. True when the caller must post again (the state is then
  /// `scheduled`).
  bool end_run(bool more, bool ignore_mail = false) noexcept;
  run_state current_run_state() const noexcept { return state_.load(std::memory_order_seq_cst); }

  /// Takes `units` control slots of `bytes_each` so that as many control messages can never be refused.
  bool reserve(std::uint32_t units, std::uint64_t bytes_each) noexcept;
  void release(std::uint32_t units, std::uint64_t bytes_each) noexcept;

  /// From now on admission messages are refused with `draining`.
  void drain() noexcept { draining_.store(true, std::memory_order_release); }
  bool draining() const noexcept { return draining_.load(std::memory_order_acquire); }
  bool closed() const noexcept { return control_.closed(); }

  /// Messages and bytes held (queued, in hand, and reserved for control) in a class; state counts filled
  /// slots.
  class_limit load(message_class kind) const noexcept;
  /// Messages queued and not yet taken by the consumer, all classes, without reservations. Approximate while
  /// moving.
  std::uint32_t depth() const noexcept;
  std::uint64_t conflated() const noexcept { return conflated_.load(std::memory_order_relaxed); }
  /// Bytes by which control messages exceeded what was reserved for them; a wrong reservation, never a drop.
  std::uint64_t control_overrun_bytes() const noexcept { return overrun_.load(std::memory_order_relaxed); }

 protected:
  detail::load_gauge& gauge(message_class kind) noexcept { return gauges_[static_cast<std::size_t>(kind)]; }
  enqueue_result link(mailbox_node* node) noexcept;
  enqueue_result put_state(std::size_t slot, mailbox_node* node, mailbox_node*& replaced) noexcept;
  mailbox_node* next() noexcept;
  mailbox_node* close_all() noexcept;
  bool mail_arrived() const noexcept;

  detail::node_pool pool_;       // nodes of the bounded classes
  detail::node_pool state_pool_; // nodes of the state slots
  std::atomic<std::uint64_t> overrun_{0};

 private:
  detail::load_gauge gauges_[message_class_count];
  detail::inbox control_;
  detail::inbox ordinary_; // admission, stream and query in order of arrival
  std::vector<std::atomic<mailbox_node*>> slots_;
  std::uint32_t control_burst_;
  std::uint32_t control_run_ = 0; // consumer's: control messages in a row
  std::size_t next_slot_ = 0;     // consumer's: round robin over the slots
  bool state_turn_ = false;       // consumer's: state and ordinary mail alternate
  std::atomic<run_state> state_{run_state::idle};
  std::atomic<bool> draining_{false};
  std::atomic<std::uint32_t> depth_{0};
  std::atomic<std::uint64_t> conflated_{0};
};

/// The typed mailbox of one protocol.
/// Owns: every node, in one block made at construction; messages are moved in and moved out.
template<class Protocol>
class mailbox : public mailbox_core {
 public:
  using variant = typename Protocol::variant;

  struct node : mailbox_node {
    std::optional<variant> message;
  };

  explicit mailbox(const mailbox_limits& limits) : mailbox_core(limits, state_types) {
    std::size_t count = 0;
    for (const auto kind : bounded_kinds)
      if (kind == message_class::control || Protocol::uses(kind)) count += limits.of(kind).messages;
    block_ = std::make_unique<node[]>(count + state_nodes);
    for (std::size_t i = 0; i < count; ++i) pool_.add(&block_[i]);
    for (std::size_t i = 0; i < state_nodes; ++i) state_pool_.add(&block_[count + i]);
  }
  mailbox(const mailbox&) = delete;
  mailbox& operator=(const mailbox&) = delete;
  ~mailbox() { // heap nodes live outside the block
    for (auto* left = close_all(); left != nullptr;)
      recycle(static_cast<node*>(std::exchange(left, left->next)));
  }

  /// Queues `message` if its class has room. On any result but `ok` the message is untouched. Thread: any.
  /// Control sent this way takes an unreserved slot and may be refused; see `push_reserved`.
  template<class Message>
  requires(Protocol::template accepts<Message>) enqueue_result push(Message&& message, const envelope& sent)
  noexcept {
    constexpr auto kind = Protocol::template kind_of<Message>;
    if (closed()) return enqueue_result::closed;
    if constexpr (kind == message_class::state) {
      return push_state(message, sent);
    } else {
      if (kind == message_class::admission && draining()) return enqueue_result::draining;
      const std::uint64_t bytes = message_bytes(message);
      if (!gauge(kind).try_add(1, bytes)) return enqueue_result::full;
      return push_charged(message, kind, bytes, sent, 0);
    }
  }

  /// Sends control on a slot that `reserve` took with `bytes_each`: only `ok` or `closed` (the slot is then
  /// spent).
  template<class Message>
  requires(
      Protocol::template accepts<Message>&& Protocol::template kind_of<Message> ==
      message_class::control) enqueue_result
      push_reserved(Message&& message, std::uint64_t bytes_each, const envelope& sent)
  noexcept {
    const std::uint64_t bytes = std::max<std::uint64_t>(message_bytes(message), bytes_each);
    if (bytes > bytes_each) { // never dropped: the excess is let in and counted
      gauge(message_class::control).add_bytes(bytes - bytes_each);
      overrun_.fetch_add(bytes - bytes_each, std::memory_order_relaxed);
    }
    return push_charged(message, message_class::control, bytes, sent, 0);
  }

  /// Sets aside a node for a message to be sent later without any chance of refusal (timers), whatever the
  /// message's class; charged as control. Null when control is full; the message is then untouched.
  template<class Message>
  requires(Protocol::template accepts<Message>) node* prepare(
      Message&& message, std::uint64_t timer) noexcept {
    const std::uint64_t bytes = message_bytes(message);
    if (!gauge(message_class::control).try_add(1, bytes)) return nullptr;
    node* made = static_cast<node*>(pool_.take());
    fill(made, message, message_class::control, bytes, {}, timer);
    return made;
  }
  /// Queues a prepared node; when `closed` is returned the node has been recycled.
  enqueue_result push_prepared(node* prepared, const envelope& sent) noexcept {
    prepared->sent = sent;
    const auto result = link(prepared);
    if (result != enqueue_result::ok) recycle(prepared);
    return result;
  }

  /// The next message: control first, at most `control_burst` in a row while other mail waits; then state and
  /// ordinary mail in turn. Null when there is none. Consumer only; give each node back with `recycle`.
  node* next() noexcept { return static_cast<node*>(mailbox_core::next()); }

  /// Destroys the message if it is still there and frees its place. Consumer, or the owner of a prepared
  /// node.
  void recycle(node* done) noexcept {
    done->message.reset();
    const auto kind = done->kind;
    const auto bytes = done->charged_bytes;
    if (done->from_heap) {
      delete done;
      return;
    }
    if (kind == message_class::state) {
      state_pool_.give(done);
      return;
    }
    const bool kept = std::exchange(done->kept, false);
    pool_.give(done); // before the gauge, so that a charge always finds a node
    if (!kept) gauge(kind).remove(1, bytes);
  }

  /// Closes the mailbox for good and hands every message left to `dead(node&)`. Consumer only. A racing
  /// sender either gets its message in before (and `dead` sees it) or is told `closed`.
  template<class Dead>
  void close(Dead&& dead) {
    for (auto* left = close_all(); left != nullptr;) {
      auto* gone = static_cast<node*>(std::exchange(left, left->next));
      dead(*gone);
      recycle(gone);
    }
  }

 private:
  static constexpr message_class bounded_kinds[] = {
      message_class::control, message_class::admission, message_class::stream, message_class::query};
  static constexpr std::size_t state_types = static_cast<std::size_t>(
      std::count(Protocol::kinds.begin(), Protocol::kinds.end(), message_class::state));
  // Per slot: the value waiting, the one in the consumer's hand, and a few producers between take and
  // exchange. More producers at the same instant fall back to the heap.
  static constexpr std::size_t state_nodes = state_types * 6;
  static constexpr std::size_t slot_of(std::size_t type) noexcept {
    std::size_t slot = 0;
    for (std::size_t i = 0; i < type; ++i) slot += Protocol::kinds[i] == message_class::state;
    return slot;
  }

  template<class Message>
  static void fill(
      node* into, Message& message, message_class kind, std::uint64_t bytes, const envelope& sent,
      std::uint64_t timer) noexcept {
    into->sent = sent;
    into->request = message_request(message);
    into->timer = timer;
    into->charged_bytes = bytes;
    into->kind = kind;
    into->type = static_cast<std::uint16_t>(Protocol::template index_of<Message>());
    into->message.emplace(std::in_place_type<Message>, std::move(message));
  }

  template<class Message>
  enqueue_result push_charged(
      Message& message, message_class kind, std::uint64_t bytes, const envelope& sent,
      std::uint64_t timer) noexcept {
    node* made = static_cast<node*>(pool_.take());
    assert(made != nullptr); // charged: there are as many nodes as slots
    fill(made, message, kind, bytes, sent, timer);
    const auto result = link(made);
    if (result == enqueue_result::ok) return result;
    message = std::move(std::get<Message>(*made->message));
    recycle(made);
    return result;
  }

  template<class Message>
  enqueue_result push_state(Message& message, const envelope& sent) noexcept {
    constexpr auto slot = slot_of(Protocol::template index_of<Message>());
    node* made = static_cast<node*>(state_pool_.take());
    const bool from_heap = made == nullptr;
    if (from_heap) made = new (std::nothrow) node;
    if (made == nullptr) return enqueue_result::full;
    made->from_heap = from_heap;
    fill(made, message, message_class::state, message_bytes(message), sent, 0);
    mailbox_node* replaced = nullptr;
    const auto result = put_state(slot, made, replaced);
    if (result != enqueue_result::ok) {
      message = std::move(std::get<Message>(*made->message));
      recycle(made);
    } else if (replaced != nullptr) {
      recycle(static_cast<node*>(replaced));
    }
    return result;
  }

  std::unique_ptr<node[]> block_;
};

} // namespace troupe::runtime
