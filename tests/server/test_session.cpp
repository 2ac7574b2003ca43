// SPDX-License-Identifier: Apache-2.0
// Sessions and listeners on loopback sockets, with scripted answers. Everything runs on one io_context;
// clients are driven by hand, so that nothing depends on time.
#include "fake_door.hpp"
#include "scripted_engine.hpp"
#include "server/http_protocol.hpp"
#include "server/line_protocol.hpp"
#include "server/listener.hpp"
#include "server/wire_objects.hpp"

#include <boost/asio/io_context.hpp>
#include <boost/asio/read.hpp>
#include <boost/asio/write.hpp>
#include <boost/test/unit_test.hpp>

#include <sys/resource.h>

using namespace troupe;
using namespace troupe::server;
namespace asio = boost::asio;
using asio::ip::tcp;
using boost::system::error_code;

namespace {

struct running_door {
  explicit running_door(bool is_http, door_limits l = {}) :
      limits(l), context{limits, {}, counters, services}, engine(io.get_executor()),
      door(listener::bind(io.get_executor(), "127.0.0.1", 0, "--port").value()) {
    door->start([this, is_http](tcp::socket socket) {
      std::unique_ptr<door_protocol> protocol;
      if (next_protocol)
        protocol = std::move(next_protocol);
      else if (is_http)
        protocol = std::make_unique<http_protocol>(limits.http);
      else
        protocol = std::make_unique<line_protocol>(limits.line_bytes);
      socket.set_option(asio::socket_base::send_buffer_size(16384));
      const std::shared_ptr<const door_context> borrowed(std::shared_ptr<void>(), &context);
      const auto s = std::make_shared<session>(std::move(socket), borrowed, engine, std::move(protocol));
      engine.sessions.insert(s.get());
      s->start();
    });
  }
  ~running_door() {
    door->stop();
    const auto sessions = engine.sessions;
    for (session* s : sessions) s->orphan();
    io.restart();
    io.run();
  }
  tcp::socket connect() {
    tcp::socket client(io);
    client.open(tcp::v4());
    // Fixed before the handshake, so that a client that does not read fills up soon.
    client.set_option(asio::socket_base::receive_buffer_size(16384));
    client.connect(door->endpoint());
    client.set_option(tcp::no_delay(true));
    client.non_blocking(true);
    return client;
  }
  // Runs until `ready` holds; fails the test when nothing is left to do or after far too many events.
  template<class Ready>
  void run_until(Ready ready) {
    io.restart();
    for (int i = 0; i < 1'000'000 && !ready(); ++i)
      if (io.run_one_for(std::chrono::seconds(20)) == 0) break;
    BOOST_REQUIRE(ready());
  }
  // Reads from `client` into `into` until `ready` holds.
  template<class Ready>
  void read_until(tcp::socket& client, std::string& into, Ready ready) {
    char buffer[4096];
    bool over = false;
    std::function<void()> next = [&] {
      client.async_read_some(asio::buffer(buffer), [&](error_code ec, std::size_t n) {
        into.append(buffer, n);
        over = over || ec;
        if (!ec && !ready()) next();
      });
    };
    next();
    run_until([&] { return over || ready(); });
    client.cancel();
    io.poll();
  }

  asio::io_context io{1};
  fake_services services;
  door_counters counters;
  door_limits limits;
  door_context context;
  scripted_engine engine;
  std::unique_ptr<door_protocol> next_protocol; // for the next connection only
  std::shared_ptr<listener> door;
};

std::string completion_request(int tokens, bool stream) {
  const std::string body = R"({"prompt":"hi","max_tokens":)" + std::to_string(tokens) + R"(,"stream":)" +
                           (stream ? "true" : "false") + "}";
  return "POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Length: " +
         std::to_string(body.size()) + "\r\n\r\n" + body;
}

void write(tcp::socket& client, std::string_view bytes) {
  asio::write(client, asio::buffer(bytes.data(), bytes.size()));
}

bool has(std::string_view in, std::string_view what) {
  return in.find(what) != std::string_view::npos;
}

// Runs out of memory when bytes come, when an event comes, when time passes, or when the server drains.
class failing_protocol final : public door_protocol {
 public:
  explicit failing_protocol(char when) : when_(when) {}
  void on_start(session_core&) override {}
  void on_bytes(session_core& s, std::string_view) override {
    if (when_ == 'b') throw std::bad_alloc();
    s.submit({});
  }
  void on_accepted(session_core&, request_key, accepted_event) override {
    if (when_ == 'e') throw std::bad_alloc();
  }
  void on_token(session_core&, request_key, token_event) override {}
  void on_done(session_core&, request_key, done_event) override {}
  void on_failed(session_core&, request_key, error) override {}
  void on_drain(session_core&) override {
    if (when_ == 'd') throw std::bad_alloc();
  }
  void on_overload(session_core&) override {}
  std::size_t buffered_bytes() const override { return 0; }
  void on_time(session_core&) override {
    if (when_ == 't') throw std::bad_alloc();
  }
  std::optional<time_point> deadline(const session_core& s) const override {
    return when_ == 't' ? std::optional(s.now()) : std::nullopt;
  }

 private:
  char when_;
};

} // namespace

BOOST_AUTO_TEST_SUITE(sessions_on_sockets)

BOOST_AUTO_TEST_CASE(row_89_an_exception_ends_its_own_session_only) {
  running_door door(true);
  tcp::socket other = door.connect();
  door.run_until([&] { return door.engine.sessions.size() == 1; });
  for (const char when : {'b', 'e', 't', 'd'}) {
    door.next_protocol = std::make_unique<failing_protocol>(when);
    tcp::socket client = door.connect();
    door.run_until([&] { return !door.next_protocol; });
    if (when == 'd')
      for (session* s : std::set<session*>(door.engine.sessions)) s->drain();
    if (when == 'b' || when == 'e') write(client, "x");
    std::string got;
    door.read_until(client, got, [] { return false; });
    BOOST_TEST(got.empty());
    if (when != 'd') BOOST_TEST(door.engine.sessions.size() == 1U);
  }
  for (const auto& p : door.engine.all) BOOST_TEST(p->destroyed);
}

BOOST_AUTO_TEST_CASE(streams_to_a_client_and_keeps_the_connection) {
  running_door door(true);
  tcp::socket client = door.connect();
  for (int round = 0; round < 2; ++round) {
    write(client, completion_request(500, true));
    std::string got;
    door.read_until(client, got, [&] { return got.ends_with("0\r\n\r\n"); });
    BOOST_TEST(got.starts_with("HTTP/1.1 200 OK\r\n"));
    BOOST_TEST(has(got, "token500 "));
    BOOST_TEST(has(got, "[DONE]"));
  }
  BOOST_TEST(door.engine.all.size() == 2U);
}

BOOST_AUTO_TEST_CASE(an_error_reaches_the_client_before_the_connection_ends) {
  running_door door(true);
  tcp::socket client = door.connect();
  write(client, "GET / HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n" + std::string(100000, 'x'));
  std::string got;
  door.read_until(client, got, [] { return false; });
  BOOST_TEST(got.starts_with("HTTP/1.1 400 "));
  client.close();
  door.run_until([&] { return door.engine.sessions.empty(); });
}

BOOST_AUTO_TEST_CASE(row_90_a_client_that_leaves_frees_its_request) {
  for (const bool reset : {false, true}) {
    running_door door(true);
    tcp::socket client = door.connect();
    write(client, completion_request(1'000'000, true));
    std::string got;
    door.read_until(client, got, [&] { return has(got, "token3 "); });
    BOOST_REQUIRE_EQUAL(door.engine.all.size(), 1U);
    BOOST_TEST(!door.engine.all[0]->destroyed);
    if (reset) client.set_option(asio::socket_base::linger(true, 0));
    client.close();
    door.run_until([&] { return door.engine.all[0]->destroyed && door.engine.sessions.empty(); });
  }
}

BOOST_AUTO_TEST_CASE(row_26_a_client_that_closes_its_half_reads_on_and_one_that_is_gone_is_noticed) {
  for (const bool is_http : {true, false}) {
    const auto asks = [&](int tokens) {
      return is_http
                 ? completion_request(tokens, true)
                 : R"({"type":"submit","id":"a","api":"completions","body":{"prompt":"hi","max_tokens":)" +
                       std::to_string(tokens) + "}}\n";
    };
    running_door door(is_http);
    tcp::socket half = door.connect();
    write(half, asks(20));
    half.shutdown(tcp::socket::shutdown_send);
    std::string got;
    door.read_until(half, got, [] { return false; });
    BOOST_TEST(has(got, "token20 "));
    BOOST_TEST(has(got, is_http ? "[DONE]" : "\"done\""));
    BOOST_TEST(door.engine.sessions.empty());
  }
  // Gone while an answer in one piece is made, with nothing unread that would make its close a reset.
  running_door door(true);
  tcp::socket gone = door.connect();
  write(gone, completion_request(1'000'000'000, false));
  door.run_until([&] { return door.engine.all.size() == 1; });
  gone.close();
  door.run_until([&] { return door.engine.all[0]->destroyed && door.engine.sessions.empty(); });
}

BOOST_AUTO_TEST_CASE(row_23_a_client_that_does_not_read_is_paused_and_another_is_served) {
  running_door door(true);
  tcp::socket slow = door.connect();
  write(slow, completion_request(1'000'000, true));
  // It comes to rest: no event is read any more, although nothing is cut.
  std::uint64_t last = 0;
  door.run_until([&] {
    if (door.engine.all.empty()) return false;
    door.io.poll();
    return door.engine.all[0]->events_read == std::exchange(last, door.engine.all[0]->events_read) &&
           last > 100;
  });
  tcp::socket fast = door.connect();
  write(fast, completion_request(2000, true));
  std::string got;
  door.read_until(fast, got, [&] { return got.ends_with("0\r\n\r\n"); });
  BOOST_TEST(has(got, "token2000 "));
  BOOST_TEST(door.engine.all[0]->events_read == last);
  BOOST_TEST(!door.engine.all[0]->destroyed);
  // It reads again: it goes on from where it stood, without a gap.
  std::string slow_got;
  door.read_until(slow, slow_got, [&] { return has(slow_got, "token" + std::to_string(last + 500) + " "); });
  std::size_t at = 0;
  for (std::uint64_t n = 1; n <= last + 500; ++n) {
    at = slow_got.find("token" + std::to_string(n) + " ", at);
    BOOST_REQUIRE(at != std::string::npos);
  }
}

BOOST_AUTO_TEST_CASE(a_client_that_never_reads_is_cut_after_the_write_timeout) {
  door_limits limits;
  limits.write_timeout = std::chrono::milliseconds(50);
  running_door door(true, limits);
  tcp::socket slow = door.connect();
  write(slow, completion_request(1'000'000, true));
  door.run_until([&] { return !door.engine.all.empty() && door.engine.all[0]->destroyed; });
  BOOST_TEST(door.counters.slow_consumers == 1U);
  BOOST_TEST(door.engine.sessions.empty());
}

BOOST_AUTO_TEST_CASE(many_requests_share_a_tcp_connection) {
  running_door door(false);
  tcp::socket client = door.connect();
  for (int i = 0; i < 32; ++i) {
    std::string id("r");
    id.append(std::to_string(i));
    write(
        client,
        submit_object(id, openai_api::completions, R"({"prompt":"hi","max_tokens":20})").append("\n"));
  }
  std::string got;
  const auto ends = [&] {
    std::size_t n = 0;
    for (std::size_t at = got.find("\"done\""); at != std::string::npos; at = got.find("\"done\"", at + 1))
      ++n;
    return n;
  };
  door.read_until(client, got, [&] { return ends() == 32 && got.ends_with("\n"); });
  std::map<std::string, std::string> texts;
  for (std::size_t at = 0; at < got.size();) {
    const std::size_t end = got.find('\n', at);
    const server_object o = parse_server_object(std::string_view(got).substr(at, end - at)).value();
    if (o.kind == server_kind::token) texts[o.id] += o.text;
    at = end + 1;
  }
  BOOST_TEST(texts.size() == 32U);
  for (const auto& [id, text] : texts) BOOST_TEST(text == texts["r0"]);
}

BOOST_AUTO_TEST_CASE(a_drain_lets_the_running_request_finish) {
  running_door door(true);
  tcp::socket busy = door.connect(), idle = door.connect();
  write(busy, completion_request(200, false));
  door.run_until([&] { return door.engine.sessions.size() == 2 && !door.engine.all.empty(); });
  const auto sessions = door.engine.sessions;
  for (session* s : sessions) s->drain();
  std::string got;
  door.read_until(busy, got, [] { return false; });
  BOOST_TEST(has(got, "token200 "));
  BOOST_TEST(has(got, "Connection: close\r\n"));
  got.clear();
  door.read_until(idle, got, [] { return false; });
  BOOST_TEST(got.empty());
  busy.close();
  idle.close();
  door.run_until([&] { return door.engine.sessions.empty(); });
}

BOOST_AUTO_TEST_CASE(no_name_at_all_is_this_machine_and_not_every_network) {
  boost::asio::io_context io;
  const auto opened = listener::bind(io.get_executor(), "", 0, "--port");
  BOOST_REQUIRE(opened);
  BOOST_TEST((*opened)->endpoint().address().is_loopback());
}

BOOST_AUTO_TEST_CASE(a_port_in_use_is_told_with_the_way_out) {
  running_door door(true);
  const auto second =
      listener::bind(door.io.get_executor(), "127.0.0.1", door.door->endpoint().port(), "--port");
  BOOST_REQUIRE(!second);
  BOOST_TEST((second.error().code == errc::io));
  BOOST_TEST(has(second.error().message, std::to_string(door.door->endpoint().port())));
  BOOST_TEST(has(second.error().message, "--port"));
  BOOST_TEST(
      (listener::bind(door.io.get_executor(), "no.such.host.invalid", 0, "--port").error().code ==
       errc::bad_config));
}

BOOST_AUTO_TEST_CASE(rows_24_97_the_listener_survives_running_out_of_descriptors) {
  running_door door(true);
  std::vector<tcp::socket> clients;
  clients.reserve(64);
  rlimit before{};
  BOOST_REQUIRE_EQUAL(::getrlimit(RLIMIT_NOFILE, &before), 0);
  // Clients connect through the backlog; the server may open no more than a few descriptors for them.
  for (int i = 0; i < 24; ++i) clients.push_back(door.connect());
  rlimit tight = before;
  tight.rlim_cur = static_cast<rlim_t>(clients.back().native_handle()) + 5;
  BOOST_REQUIRE_EQUAL(::setrlimit(RLIMIT_NOFILE, &tight), 0);
  door.run_until([&] { return door.engine.sessions.size() == 4; });
  for (int i = 0; i < 20; ++i) door.io.run_one_for(std::chrono::milliseconds(10));
  BOOST_TEST(door.engine.sessions.size() == 4U);
  BOOST_REQUIRE_EQUAL(::setrlimit(RLIMIT_NOFILE, &before), 0);
  door.run_until([&] { return door.engine.sessions.size() == 24; });
  write(clients.back(), "GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n");
  std::string got;
  door.read_until(clients.back(), got, [&] { return has(got, "\"ok\""); });
}

BOOST_AUTO_TEST_SUITE_END()
