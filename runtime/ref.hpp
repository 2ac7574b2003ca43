// SPDX-License-Identifier: Apache-2.0
// Weak references to actors, and reservations of control slots in their mailboxes.
#pragma once

#include "runtime/actor_cell.hpp"
#include "runtime/actor_system.hpp"

#include <algorithm>
#include <array>
#include <concepts>
#include <type_traits>
#include <utility>

namespace troupe::runtime {

template<class Protocol>
class reservation;

namespace detail {

template<class Actor, class Factory>
class typed_cell;

template<class Protocol>
const protocol_info& info_of() {
  static constexpr auto messages = []<std::size_t... I>(std::index_sequence<I...>) {
    return std::array<message_info, sizeof...(I)>{[] {
      constexpr auto name = type_name<std::variant_alternative_t<I, typename Protocol::variant>>();
      return message_info{name, message_id(name), Protocol::kinds[I]};
    }()...};
  }
  (std::make_index_sequence<Protocol::size>{});
  static const protocol_info info = [] {
    for (const auto& m : messages) register_message_name(m.name);
    return protocol_info{Protocol::name, messages};
  }();
  return info;
}

template<class Protocol>
struct mailbox_holder {
  mailbox<Protocol> typed;
};

/// An actor's run and the mailbox of its protocol: what a reference relies on without knowing the actor's
/// type. The mailbox is a base so that it exists before the run refers to it.
template<class Protocol>
class protocol_cell : private mailbox_holder<Protocol>, public actor_cell {
 public:
  protocol_cell(
      std::shared_ptr<system_core> system, const boost::asio::any_io_executor& executor,
      spawn_options&& options) :
      mailbox_holder<Protocol>{mailbox<Protocol>(options.mailbox)},
      actor_cell(std::move(system), executor, info_of<Protocol>(), this->typed, std::move(options)) {}

  using mailbox_holder<Protocol>::typed;

 private:
  using node = typename mailbox<Protocol>::node;
  mailbox_node* take() noexcept final { return typed.next(); }
  void give_back(mailbox_node* n) noexcept final { typed.recycle(static_cast<node*>(n)); }
  bool enqueue_prepared(mailbox_node* n, const envelope& sent) noexcept final {
    return typed.push_prepared(static_cast<node*>(n), sent) == enqueue_result::ok;
  }
  void close_mailbox() noexcept final {
    typed.close([this](node& left) { bury(left.type, left.request, dead_reason::stopped); });
  }
};

template<class Protocol>
mailbox<Protocol>& typed_box(actor_cell& cell) noexcept {
  return static_cast<protocol_cell<Protocol>&>(cell).typed;
}

constexpr dead_reason refusal(enqueue_result r) noexcept {
  return r == enqueue_result::full       ? dead_reason::full
         : r == enqueue_result::draining ? dead_reason::draining
                                         : dead_reason::closed;
}

/// The one way into a mailbox. `sender` is null for callers outside the actors; `slots` null for an
/// unreserved send.
template<class Protocol, class Message>
requires(Protocol::template accepts<Message>) enqueue_result
    deliver(actor_cell* sender, const actor_address& to, Message&& message, reservation<Protocol>* slots)
noexcept {
  constexpr auto type = static_cast<std::uint16_t>(Protocol::template index_of<Message>());
  constexpr auto kind = Protocol::template kind_of<Message>;
  constexpr auto message_hash = message_id(type_name<Message>());
  const std::uint64_t request = message_request(message);
  envelope sent;
  if (sender != nullptr)
    sent = {sender->id(), sender->next_sequence(), sender->now().time_since_epoch().count()};

  auto result = enqueue_result::closed;
  std::uint32_t receiver = 0;
  if (const pinned_cell cell(to); cell) {
    receiver = cell->id();
    auto& box = typed_box<Protocol>(*cell);
    if (sender == nullptr) sent.sent_ns = cell->system().clock.now().time_since_epoch().count();
    if constexpr (kind == message_class::control) {
      if (slots == nullptr)
        result = box.push(std::move(message), sent);
      else if (const auto bytes_each = slots->spend(); bytes_each != 0)
        result = box.push_reserved(std::move(message), bytes_each, sent);
      else
        result = enqueue_result::full; // an empty reservation guarantees nothing
    } else {
      result = box.push(std::move(message), sent);
    }
    if (result == enqueue_result::ok)
      cell->wake();
    else
      cell->bury(type, request, refusal(result));
  }
  if (sender != nullptr)
    sender->trace(
        {sent.sent_ns, request, sent.sequence, receiver, message_hash,
         result == enqueue_result::ok ? trace_event::sent : trace_event::refused, kind,
         static_cast<std::uint16_t>(result)});
  return result;
}

} // namespace detail

/// Names an actor without keeping it alive. Plain data: copy it freely, keep it as long as you like; once the
/// actor is gone every send answers `closed`. The default value names nobody. Thread: any.
template<class Protocol>
class ref {
 public:
  ref() noexcept = default;
  explicit ref(const actor_address& address) noexcept : address_(address) {}

  /// Sends from outside the actors (inside one use `send`). Never blocks, never throws. On any result but
  /// `ok` the message is untouched. Control sent this way takes an unreserved slot; see `reserve`.
  template<class Message>
  requires(Protocol::template accepts<Message>) enqueue_result tell(Message&& message)
  const noexcept { return detail::deliver<Protocol>(nullptr, address_, std::move(message), nullptr); }

  /// Takes `units` slots in the control class for messages of up to `bytes_each`, so that these can never be
  /// refused. Empty when the actor is gone or the class has not that much left.
  reservation<Protocol>
  reserve(std::uint32_t units, std::uint64_t bytes_each = largest_control()) const noexcept {
    if (const pinned_cell cell(address_);
        cell && units != 0 && bytes_each != 0 && cell->box().reserve(units, bytes_each))
      return reservation<Protocol>(address_, units, bytes_each);
    return {};
  }

  bool alive() const noexcept {
    const pinned_cell cell(address_);
    return cell && !cell->box().closed();
  }
  /// Asks the actor to stop; what is queued becomes dead letters.
  void stop() const noexcept {
    if (const pinned_cell cell(address_); cell) cell->tell_command(actor_cell::stop);
  }
  /// From now on the actor's mailbox refuses admission messages with `draining`.
  void drain() const noexcept {
    if (const pinned_cell cell(address_); cell) cell->box().drain();
  }
  /// Messages and bytes held in one class; zeros when gone.
  class_limit load(message_class kind) const noexcept {
    if (const pinned_cell cell(address_); cell) return cell->box().load(kind);
    return {};
  }

  explicit operator bool() const noexcept { return address_.slot != nullptr; }
  const actor_address& address() const noexcept { return address_; }
  friend bool operator==(const ref&, const ref&) = default;

 private:
  static constexpr std::uint64_t largest_control() noexcept {
    return []<std::size_t... I>(std::index_sequence<I...>) {
      std::uint64_t largest = 1;
      ((Protocol::kinds[I] == message_class::control
            ? (largest = std::max<std::uint64_t>(
                   largest, sizeof(std::variant_alternative_t<I, typename Protocol::variant>)))
            : 0),
       ...);
      return largest;
    }
    (std::make_index_sequence<Protocol::size>{});
  }

  actor_address address_;
};

/// A number of control slots in one actor's mailbox. Each send spends one; what is left returns on
/// destruction. Move-only. Thread: one at a time.
template<class Protocol>
class [[nodiscard]] reservation {
 public:
  reservation() noexcept = default;
  reservation(const actor_address& address, std::uint32_t units, std::uint64_t bytes_each) noexcept :
      address_(address), units_(units), bytes_each_(bytes_each) {}
  reservation(reservation&& other) noexcept :
      address_(other.address_), units_(std::exchange(other.units_, 0)), bytes_each_(other.bytes_each_) {}
  reservation& operator=(reservation&& other) noexcept {
    if (this == &other) return *this;
    release();
    address_ = other.address_;
    units_ = std::exchange(other.units_, 0);
    bytes_each_ = other.bytes_each_;
    return *this;
  }
  ~reservation() { release(); }

  /// Sends control from outside the actors on one of the slots: `ok`, or `closed` when the receiver is gone.
  template<class Message>
  requires(
      Protocol::template accepts<Message>&& Protocol::template kind_of<Message> ==
      message_class::control) enqueue_result tell(Message&& message)
  noexcept { return detail::deliver<Protocol>(nullptr, address_, std::move(message), this); }
  /// Splits off up to `units` slots.
  reservation split(std::uint32_t units) noexcept {
    const auto given = std::min(units, units_);
    units_ -= given;
    return reservation(address_, given, bytes_each_);
  }
  void release() noexcept {
    if (units_ == 0) return;
    if (const pinned_cell cell(address_); cell) cell->box().release(units_, bytes_each_);
    units_ = 0;
  }
  /// Takes one slot without sending: the bytes it was reserved with, 0 when there is none left.
  std::uint64_t spend() noexcept {
    if (units_ == 0) return 0;
    --units_;
    return bytes_each_;
  }
  std::uint32_t units() const noexcept { return units_; }
  explicit operator bool() const noexcept { return units_ != 0; }
  const actor_address& address() const noexcept { return address_; }
  ref<Protocol> to() const noexcept { return ref<Protocol>(address_); }

 private:
  actor_address address_;
  std::uint32_t units_ = 0;
  std::uint64_t bytes_each_ = 0;
};

} // namespace troupe::runtime
