// SPDX-License-Identifier: Apache-2.0
// Actors: a protocol, `on(Message)` handlers checked for completeness at compile time, weak references,
// spawn.
#pragma once

#include "runtime/actor_system.hpp"
#include "runtime/base/error.hpp"
#include "runtime/ref.hpp"

#include <algorithm>
#include <array>
#include <exception>
#include <memory>
#include <optional>
#include <string>
#include <tuple>
#include <type_traits>
#include <utility>

namespace troupe::runtime {

struct supervisor_protocol;

/// What every actor may do during its turn, whatever its protocol. Thread: the actor's run only.
class actor_services {
 public:
  virtual ~actor_services() = default;

 protected:
  /// The first act after spawn and after each restart, on the actor's executor.
  virtual void on_start() {}
  /// The last act of an actor that is stopped; not called after a crash. Must not throw.
  virtual void on_stop() noexcept {}
  /// Request ids this actor is working on, for the crash report beside the crashing message's own.
  virtual void requests_in_hand(std::vector<std::uint64_t>&) const {}
  /// Called instead of building a new behaviour when a supervisor restarts this actor; true = done in place.
  virtual bool restart_in_place() { return false; }

  /// The instant at which this turn began; it does not move during the turn.
  time_point now() const noexcept { return cell_->now(); }
  std::uint32_t id() const noexcept { return cell_->id(); }
  const std::string& name() const noexcept { return cell_->name(); }

  /// Sends a message. On any result but `ok` the message is untouched.
  template<class Protocol, class Message>
  requires(Protocol::template accepts<Message>) enqueue_result
      send(const ref<Protocol>& to, Message&& message)
  noexcept { return detail::deliver<Protocol>(cell_, to.address(), std::move(message), nullptr); }
  /// Sends control on a reserved slot: `ok`, or `closed` when the receiver is gone.
  template<class Protocol, class Message>
  requires(Protocol::template accepts<Message>) enqueue_result
      send(reservation<Protocol>& slots, Message&& message)
  noexcept { return detail::deliver<Protocol>(cell_, slots.address(), std::move(message), &slots); }
  /// Sends control that must not be lost. A receiver that is gone needs it no more; one that has no room was
  /// given too little of it, and this actor crashes (it throws): what hangs on the message is ended by
  /// whoever answers the crash, and does not wait for ever.
  template<class Protocol, class Message>
  requires(
      Protocol::template accepts<Message>&& Protocol::template kind_of<Message> ==
      message_class::control) void must_send(const ref<Protocol>& to, Message&& message) {
    if (send(to, std::move(message)) == enqueue_result::full)
      throw failure(
          errc::internal, std::string(Protocol::name) + " has no room for " +
                              std::string(type_name<std::remove_cvref_t<Message>>()));
  }
  /// Ends this actor after the current turn.
  void stop() noexcept { cell_->request_stop(); }
  /// Writes a note about a request into this actor's trace ring; `label` must be a literal.
  void note(std::string_view label, std::uint64_t request) noexcept;

 private:
  friend class actor_cell;
  template<class>
  friend class actor;
  template<class, class>
  friend class detail::typed_cell;
  actor_cell* cell_ = nullptr;
};

/// Base of every actor. A derived class has one `void on(Message)` (or `on(Message&&)`) per message of
/// `Protocol`.
///   class greeter final : public actor<greeter_protocol> {
///    public:
///     void on(hello&& m);
///     void on(goodbye m);
///   };
/// The object is made by the spawning thread, then lives on the actor's executor; one handler runs at a time.
/// A handler that throws has crashed: see spawn and supervisor.hpp.
template<class Protocol>
class actor : public actor_services {
 public:
  using protocol_type = Protocol;

 protected:
  ref<Protocol> self() const noexcept { return ref<Protocol>(cell_->address()); }

  /// Sends `message` to this actor after `delay`; it cannot be refused then, because its slot is taken now.
  /// Returns a serial for `cancel`, 0 when the control class is full (counted as a dead letter).
  template<class Message>
  [[nodiscard]] std::uint64_t after(duration delay, Message&& message) {
    auto& box = detail::typed_box<Protocol>(*cell_);
    const auto serial = cell_->next_timer_serial();
    const auto request = message_request(message);
    auto* node = box.prepare(std::forward<Message>(message), serial);
    if (node != nullptr) return cell_->start_timer(delay, node, serial);
    constexpr auto type = Protocol::template index_of<std::remove_cvref_t<Message>>();
    cell_->bury(static_cast<std::uint16_t>(type), request, dead_reason::full);
    return 0;
  }
  /// True when the timer's message will not arrive any more; a serial that is unknown or done is a no-op.
  bool cancel(std::uint64_t serial) noexcept { return cell_->cancel_timer(serial); }

  /// Keeps the slot of the control message in hand as a new reservation of one, so that a standing dialogue
  /// (run a step, report it done) never has to ask for capacity again. Empty when the message is not a
  /// control message or its slot was kept before.
  reservation<Protocol> renew() noexcept {
    auto* node = cell_->current();
    if (node == nullptr || node->kind != message_class::control || node->kept) return {};
    node->kept = true;
    return reservation<Protocol>(cell_->address(), 1, node->charged_bytes);
  }
};

namespace detail {

/// The mailbox and behaviour of one actor type.
template<class Actor, class Factory>
class typed_cell final : public protocol_cell<typename Actor::protocol_type> {
  using protocol_type = typename Actor::protocol_type;
  using variant = typename protocol_type::variant;

  template<class Message>
  static constexpr bool handled = requires(Actor& a, Message&& m) {
    a.on(std::move(m));
  };
  template<std::size_t... I>
  static constexpr bool complete(std::index_sequence<I...>) {
    static_assert(
        (handled<std::variant_alternative_t<I, variant>> && ...),
        "the actor lacks a public on(Message) for a message of its protocol");
    return true;
  }
  static_assert(complete(std::make_index_sequence<protocol_type::size>{}));

 public:
  typed_cell(
      std::shared_ptr<system_core> system, const boost::asio::any_io_executor& executor,
      spawn_options&& options, Factory&& factory) :
      protocol_cell<protocol_type>(std::move(system), executor, std::move(options)),
      factory_(std::move(factory)) {}

  void make_behaviour() override {
    behaviour_.reset(); // the old one goes first: it may own what the new one takes
    behaviour_ = factory_();
    behaviour_->cell_ = this;
  }

 private:
  void invoke(mailbox_node* taken) override {
    auto& message = *static_cast<typename mailbox<protocol_type>::node*>(taken)->message;
    std::visit([this](auto& m) { behaviour_->on(std::move(m)); }, message);
  }
  void drop_behaviour() noexcept override { behaviour_.reset(); }
  actor_services* behaviour() noexcept override { return behaviour_.get(); }

  Factory factory_;
  std::unique_ptr<Actor> behaviour_;
};

/// Puts a child under a supervisor; defined in supervisor.cpp.
result<void> adopt(actor_cell& child, const ref<supervisor_protocol>& parent);

template<class Actor, class Factory>
result<ref<typename Actor::protocol_type>> spawn_cell(
    actor_system& system, const boost::asio::any_io_executor& executor, spawn_options&& options,
    Factory&& factory, const ref<supervisor_protocol>* parent) {
  using cell_type = typed_cell<Actor, std::remove_cvref_t<Factory>>;
  try {
    auto made = std::make_unique<cell_type>(
        system.core(), executor, std::move(options),
        std::remove_cvref_t<Factory>(std::forward<Factory>(factory)));
    made->make_behaviour();
    auto* cell = made.release(); // from here on its pins own it
    cell->activate();
    const ref<typename Actor::protocol_type> address(cell->address());
    if (parent != nullptr) {
      if (auto adopted = adopt(*cell, *parent); !adopted) {
        cell->abandon();
        return adopted.error();
      }
    }
    cell->post();
    return address;
  } catch (const std::bad_alloc&) {
    return error{errc::no_memory, "cannot spawn actor " + std::string(Actor::protocol_type::name), {}, 0};
  } catch (const std::exception& e) {
    return error{
        errc::internal,
        "cannot spawn actor " + std::string(Actor::protocol_type::name) + ": " + e.what(),
        {},
        0};
  }
}

} // namespace detail

/// Makes an actor and lets it run on `executor` (any Asio executor; no strand is needed). It lives until it
/// stops itself, is stopped, or crashes. Errors: no_memory, or internal when the constructor threw.
template<class Actor, class... Args>
result<ref<typename Actor::protocol_type>> spawn(
    actor_system& system, const boost::asio::any_io_executor& executor, spawn_options options,
    Args&&... args) {
  auto once = [tuple = std::make_tuple(std::forward<Args>(args)...)]() mutable {
    return std::apply([](auto&&... a) { return std::make_unique<Actor>(std::move(a)...); }, std::move(tuple));
  };
  return detail::spawn_cell<Actor>(system, executor, std::move(options), std::move(once), nullptr);
}

/// The same under a supervisor: after a crash `factory()` (-> std::unique_ptr<Actor>) makes a fresh
/// behaviour. References and queued mail survive; only the crashing message and the actor's timers are gone.
/// Errors: also queue_full when the supervisor has no room for another child.
template<class Actor, class Factory>
result<ref<typename Actor::protocol_type>> spawn_supervised(
    actor_system& system, const boost::asio::any_io_executor& executor, spawn_options options,
    const ref<supervisor_protocol>& parent, Factory&& factory) {
  return detail::spawn_cell<Actor>(
      system, executor, std::move(options), std::forward<Factory>(factory), &parent);
}

} // namespace troupe::runtime
