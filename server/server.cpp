// SPDX-License-Identifier: Apache-2.0
#include "server/server.hpp"

#include "runtime/base/log.hpp"
#include "server/http_protocol.hpp"
#include "server/line_protocol.hpp"
#include "server/listener.hpp"
#include "server/metrics.hpp"
#include "server/session.hpp"

#include <boost/asio/associated_executor.hpp>
#include <boost/asio/dispatch.hpp>
#include <boost/asio/post.hpp>

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>

#include <array>
#include <ctime>
#include <optional>
#include <random>
#include <unordered_set>

namespace troupe::server {
namespace asio = boost::asio;
using asio::ip::tcp;
using boost::system::error_code;
using namespace std::string_literals;

namespace {

constexpr auto drain_grace = std::chrono::seconds(3);
constexpr int most_graces = 20; // while the engine still ends requests: a step may take long

// A request of the engine behind the interface of the sessions.
class engine_stream final : public door_stream {
 public:
  explicit engine_stream(stream s) : stream_(std::move(s)) {}
  void read(unique_function<void(stream_event)> done) override {
    stream_.async_read([done = std::move(done)](error_code ec, stream_event event) mutable {
      if (ec == asio::error::eof) return; // the failure comes, or came, by the watch
      if (ec) event = failed_event{{errc::internal, "the request's stream ended without a result", {}, 0}};
      done(std::move(event));
    });
  }
  void watch(unique_function<void(stream_event)> failed) override {
    stream_.async_wait_failure([failed = std::move(failed)](error_code ec, stream_event event) mutable {
      if (!ec) failed(std::move(event));
    });
  }
  void cancel() override { stream_.cancel(); }

 private:
  stream stream_;
};

// Small writes leave at once, dead peers are noticed, and the kernel holds little of what a slow peer does
// not read.
void tune(tcp::socket& socket, std::uint32_t send_buffer_bytes) {
  error_code ignored;
  socket.set_option(tcp::no_delay(true), ignored);
  socket.set_option(asio::socket_base::keep_alive(true), ignored);
  socket.set_option(asio::socket_base::send_buffer_size(static_cast<int>(send_buffer_bytes)), ignored);
  const int idle_s = 60, interval_s = 15, probes = 4;
  ::setsockopt(socket.native_handle(), IPPROTO_TCP, TCP_KEEPIDLE, &idle_s, sizeof idle_s);
  ::setsockopt(socket.native_handle(), IPPROTO_TCP, TCP_KEEPINTVL, &interval_s, sizeof interval_s);
  ::setsockopt(socket.native_handle(), IPPROTO_TCP, TCP_KEEPCNT, &probes, sizeof probes);
}

std::string url(std::string_view scheme, const tcp::endpoint& at) {
  const std::string address = at.address().to_string();
  return std::string(scheme) + "://" + (at.address().is_v6() ? "[" + address + "]" : address) + ":" +
         std::to_string(at.port());
}

} // namespace

struct server::state final : door_services, session_owner, std::enable_shared_from_this<state> {
  state(engine& e, server_options o) :
      options(std::move(o)), the_engine(e), context{options.limits, options.policy, counters, *this},
      drain_timer(e.get_executor()) {}

  // door_services
  door_health health() const override {
    return now == door_health::ready && !the_engine.stats().ready ? door_health::failed : now;
  }
  const openai_rules& rules() const override { return the_rules; }
  std::uint32_t context_tokens() const override { return context_length; }
  std::string system_fingerprint() const override { return the_engine.model().system_fingerprint; }
  std::int64_t started_unix_seconds() const override { return started; }
  std::int64_t unix_seconds() const override { return std::time(nullptr); }
  std::string metrics_text() const override {
    return troupe::server::metrics_text(
        loaded ? the_engine.stats() : engine_stats{}, counters, the_rules.model_name);
  }
  std::uint64_t random() override { return std::uint64_t{entropy()} << 32 | entropy(); }

  // session_owner
  std::unique_ptr<door_stream> submit(request what) override {
    return std::make_unique<engine_stream>(the_engine.submit(std::move(what)));
  }
  void session_ended(session& s) override {
    counters.connections_open =
        sessions.erase(&s) > 0 ? counters.connections_open - 1 : counters.connections_open;
    if (sessions.empty()) finish_drain();
  }

  void take(tcp::socket socket, bool http);
  void refuse(tcp::socket socket, bool http);
  void finish_drain();
  void cut_after(std::chrono::milliseconds wait, int graces);
  void stop_listening();
  void add_own_hosts();
  /// What a session is told may end it, which changes the set.
  template<class Tell>
  void tell_all(Tell tell) {
    const std::vector<session*> all(sessions.begin(), sessions.end());
    for (session* one : all)
      if (sessions.contains(one)) tell(*one);
  }

  server_options options;
  engine& the_engine;
  door_counters counters;
  door_context context;
  openai_rules the_rules;
  std::uint32_t context_length = 0;
  std::int64_t started = std::time(nullptr);
  door_health now = door_health::loading;
  bool loaded = false;
  std::random_device entropy;
  std::shared_ptr<listener> http_listener, tcp_listener;
  std::unordered_set<session*> sessions; // each alive by its own coroutines until it has ended
  asio::steady_timer drain_timer;
  // Only ever emplaced: assigning one any_completion_handler to another recurses without end in Boost 1.81.
  std::optional<asio::any_completion_handler<void()>> drained;
};

void server::state::take(tcp::socket socket, bool http) {
  if (now == door_health::draining) return;
  if (sessions.size() >= options.max_connections) {
    ++counters.connections_refused;
    refuse(std::move(socket), http);
    return;
  }
  ++counters.connections_accepted;
  ++counters.connections_open;
  tune(socket, options.send_buffer_bytes);
  std::unique_ptr<door_protocol> protocol;
  if (http)
    protocol = std::make_unique<http_protocol>(options.limits.http);
  else
    protocol = std::make_unique<line_protocol>(options.limits.line_bytes);
  const std::shared_ptr<const door_context> shared(shared_from_this(), &context);
  const auto s = std::make_shared<session>(std::move(socket), shared, *this, std::move(protocol));
  sessions.insert(s.get());
  s->start();
}

// One answer, if the kernel takes it at once, and no more effort than that.
void server::state::refuse(tcp::socket socket, bool http) {
  const error why{errc::queue_full, "the server has as many connections as it takes", {}, 1000};
  http_response_context response;
  response.keep_alive = false;
  response.unix_seconds = unix_seconds();
  const std::string answer =
      http ? http_response(
                 response, 503, "application/json", openai_error_body(503, why.message),
                 {{"Retry-After", "1"}, {"X-Request-Rejected-Reason", std::string(code_name(why.code))}})
           : error_object({}, 503, "too_many_connections", why.message) + "\n";
  error_code ignored;
  socket.non_blocking(true, ignored);
  socket.write_some(asio::buffer(answer), ignored);
  // Input left unread would turn the close into a reset, which may overtake the answer.
  std::array<char, 4096> unread{};
  socket.shutdown(tcp::socket::shutdown_send, ignored);
  socket.read_some(asio::buffer(unread), ignored);
}

void server::state::cut_after(std::chrono::milliseconds wait, int graces) {
  drain_timer.expires_after(wait);
  drain_timer.async_wait([weak = weak_from_this(), graces](error_code ec) {
    const auto self = weak.lock();
    if (ec || !self) return;
    const engine_stats live = self->loaded ? self->the_engine.stats() : engine_stats{};
    if (live.running + live.waiting > 0 && graces > 0) return self->cut_after(drain_grace, graces - 1);
    log().warn("cutting {} connections at the end of the drain", self->sessions.size());
    self->tell_all([](session& one) { one.abort(); });
  });
}

void server::state::finish_drain() {
  if (!drained) return;
  drain_timer.cancel();
  const asio::any_io_executor executor = the_engine.get_executor();
  asio::post(executor, [executor, done = std::move(*drained)]() mutable {
    const auto handler_executor = asio::get_associated_executor(done, executor);
    asio::dispatch(handler_executor, std::move(done));
  });
  drained.reset();
}

/// A server of this machine only is reached by this machine's names; any other name is a page that rebinds
/// its DNS.
void server::state::add_own_hosts() {
  if (!http_listener->endpoint().address().is_loopback()) return;
  for (const std::string& own : {"localhost"s, "127.0.0.1"s, "[::1]"s, to_lower(options.host)})
    context.policy.allowed_hosts.push_back(own);
}

void server::state::stop_listening() {
  for (const auto& l : {http_listener, tcp_listener})
    if (l) l->stop();
}

server::server(engine& e, server_options options) : state_(std::make_shared<state>(e, std::move(options))) {}

server::~server() {
  state_->stop_listening();
  const auto sessions = std::exchange(state_->sessions, {});
  for (session* s : sessions) s->orphan();
  state_->finish_drain();
}

result<void> server::listen() {
  state& s = *state_;
  auto http = listener::bind(s.the_engine.get_executor(), s.options.host, s.options.port, "--port");
  if (!http) return http.error();
  s.http_listener = std::move(*http);
  if (s.options.tcp_port) {
    auto raw = listener::bind(s.the_engine.get_executor(), s.options.host, *s.options.tcp_port, "--tcp-port");
    if (!raw) return raw.error();
    s.tcp_listener = std::move(*raw);
  }
  s.add_own_hosts();
  const auto open = [weak = std::weak_ptr(state_)](bool is_http) {
    return [weak, is_http](tcp::socket socket) {
      if (const auto self = weak.lock()) self->take(std::move(socket), is_http);
    };
  };
  s.http_listener->start(open(true));
  if (s.tcp_listener) s.tcp_listener->start(open(false));
  return {};
}

void server::engine_ready() {
  state& s = *state_;
  const model_info& model = s.the_engine.model();
  s.the_rules = {model.name, model.vocabulary, s.options.ignore_unknown_fields};
  s.context_length = model.context;
  s.loaded = true;
  if (s.now == door_health::loading) s.now = door_health::ready;
}

void server::reconfigure(server_options wanted) {
  state& s = *state_;
  wanted.host = s.options.host;
  wanted.port = s.options.port;
  wanted.tcp_port = s.options.tcp_port;
  s.options = std::move(wanted);
  s.context.limits = s.options.limits;
  s.context.policy = s.options.policy;
  if (s.http_listener) s.add_own_hosts();
  s.the_rules.ignore_unknown_fields = s.options.ignore_unknown_fields;
  s.tell_all([](session& one) { one.limits_changed(); });
}

void server::drain(std::chrono::milliseconds limit, asio::any_completion_handler<void()> done) {
  state& s = *state_;
  s.now = door_health::draining;
  s.stop_listening();
  s.drained.emplace(std::move(done));
  s.tell_all([](session& one) { one.drain(); });
  if (s.sessions.empty()) {
    s.finish_drain();
    return;
  }
  // The engine ends what runs at `limit`, after its running step; what it says then must still reach the
  // clients.
  s.cut_after(limit + drain_grace, most_graces);
}

void server::shorten_drain(std::chrono::milliseconds limit) {
  if (state_->drained) state_->cut_after(limit + drain_grace, most_graces);
}

std::uint16_t server::port() const {
  return state_->http_listener ? state_->http_listener->endpoint().port() : 0;
}
std::uint16_t server::tcp_port() const {
  return state_->tcp_listener ? state_->tcp_listener->endpoint().port() : 0;
}

std::vector<std::string> server::addresses() const {
  std::vector<std::string> out;
  if (state_->http_listener) out.push_back(url("http", state_->http_listener->endpoint()));
  if (state_->tcp_listener) out.push_back(url("tcp", state_->tcp_listener->endpoint()));
  return out;
}

const door_counters& server::counters() const {
  return state_->counters;
}

} // namespace troupe::server
