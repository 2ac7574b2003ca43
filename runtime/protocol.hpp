// SPDX-License-Identifier: Apache-2.0
// Message classes, and how an actor declares what it accepts: one list of (class, message type).
#pragma once

#include <array>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <string_view>
#include <type_traits>
#include <variant>

namespace troupe::runtime {

/// Decides what happens to a message under overload.
enum class message_class : std::uint8_t {
  control, ///< cancel, step_done, free, stop: capacity is reserved at admission, never dropped, drained first
  admission, ///< new work: the newest is refused when full or draining, the sender says why to its client
  stream,    ///< data under the sender's credit window: bounded; `full` means the sender outran its credits
  state,     ///< watermarks, configuration: the latest value wins, one slot per message type
  query,     ///< questions: small bound, refused when full
};
inline constexpr std::size_t message_class_count = 5;
constexpr std::string_view class_name(message_class c) noexcept {
  constexpr std::string_view names[] = {"control", "admission", "stream", "state", "query"};
  return names[static_cast<std::size_t>(c)];
}

/// What became of a message that was told. Ignoring it is a bug: the sender owns a refused message.
enum class [[nodiscard]] enqueue_result : std::uint8_t{
    ok,       ///< queued; it will be handled, or counted as a dead letter if the receiver stops first
    full,     ///< the class is at its bound in messages or bytes
    closed,   ///< the receiver is gone
    draining, ///< the receiver takes no new work any more
};
constexpr std::string_view result_name(enqueue_result r) noexcept {
  constexpr std::string_view names[] = {"ok", "full", "closed", "draining"};
  return names[static_cast<std::size_t>(r)];
}

template<class Message>
struct control {
  using message = Message;
  static constexpr message_class kind = message_class::control;
};
template<class Message>
struct admission {
  using message = Message;
  static constexpr message_class kind = message_class::admission;
};
template<class Message>
struct stream {
  using message = Message;
  static constexpr message_class kind = message_class::stream;
};
template<class Message>
struct state {
  using message = Message;
  static constexpr message_class kind = message_class::state;
};
template<class Message>
struct query {
  using message = Message;
  static constexpr message_class kind = message_class::query;
};

/// An actor's inbox type. Derive from it and add a `name`:
///   struct scheduler_protocol : protocol<admission<submit>, control<cancel>, state<kv_level>> {
///     static constexpr std::string_view name = "scheduler";
///   };
/// Messages are plain structs, nothrow-movable, each type once per protocol.
template<class... Tagged>
struct protocol {
  using variant = std::variant<typename Tagged::message...>;
  static constexpr std::size_t size = sizeof...(Tagged);
  static constexpr std::array<message_class, size> kinds{Tagged::kind...};

  /// Position of `Message` in the list, or `size` when the protocol does not carry it.
  template<class Message>
  static constexpr std::size_t index_of() noexcept {
    constexpr bool same[] = {std::is_same_v<Message, typename Tagged::message>...};
    for (std::size_t i = 0; i < size; ++i)
      if (same[i]) return i;
    return size;
  }
  template<class Message>
  static constexpr bool accepts = index_of<Message>() < size;
  template<class Message>
  requires accepts<Message>
  static constexpr message_class kind_of = kinds[index_of<Message>()];
  static constexpr bool uses(message_class kind) noexcept {
    for (const auto k : kinds)
      if (k == kind) return true;
    return false;
  }
  static_assert(((index_of<typename Tagged::message>() < size) && ...));
  static_assert(
      (std::is_nothrow_move_constructible_v<typename Tagged::message> && ...),
      "messages move without throwing");
  static_assert(
      (std::is_nothrow_move_assignable_v<typename Tagged::message> && ...),
      "a refused message is handed back");
};

/// The unqualified name of a type as written in the source: "submit" for troupe::actors::submit.
template<class T>
constexpr std::string_view type_name() noexcept {
  std::string_view text = __PRETTY_FUNCTION__; // "... type_name() [with T = a::b; std::string_view = ...]"
  const auto begin = text.find("T = ") + 4;
  text = text.substr(begin, text.find_first_of(";]", begin) - begin);
  const auto args = text.find('<'); // leave template arguments alone
  const auto colon = text.substr(0, args).rfind("::");
  return colon == std::string_view::npos ? text : text.substr(colon + 2);
}

/// Bytes a queued message is charged with: its size, plus what `payload_bytes()` says it owns elsewhere.
template<class Message>
std::size_t message_bytes(const Message& m) noexcept {
  if constexpr (requires {
                  { m.payload_bytes() } -> std::convertible_to<std::size_t>;
                })
    return sizeof(Message) + m.payload_bytes();
  else
    return sizeof(Message);
}

/// The request a message belongs to, for traces: an overload `trace_request(const Message&)` found by
/// argument-dependent look-up, else the member `request`, `request_id` or `id` (an integer, an enum, or a
/// struct with `.value`); else 0.
template<class Message>
constexpr std::uint64_t message_request(const Message& m) noexcept {
  constexpr auto number = []<class Id>(const Id& id) -> std::uint64_t {
    if constexpr (std::is_integral_v<Id> || std::is_enum_v<Id>)
      return static_cast<std::uint64_t>(id);
    else if constexpr (requires { static_cast<std::uint64_t>(id.value); })
      return static_cast<std::uint64_t>(id.value);
    else
      return 0;
  };
  if constexpr (requires {
                  { trace_request(m) } -> std::convertible_to<std::uint64_t>;
                })
    return trace_request(m);
  else if constexpr (requires { m.request; })
    return number(m.request);
  else if constexpr (requires { m.request_id; })
    return number(m.request_id);
  else if constexpr (requires { m.id; })
    return number(m.id);
  else
    return 0;
}

} // namespace troupe::runtime
