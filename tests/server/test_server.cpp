// SPDX-License-Identifier: Apache-2.0
// The server with a real engine and the tiny model: clients on blocking sockets, the server on a thread of
// its own.
#include "server/server.hpp"
#include "server/websocket_codec.hpp"
#include "server/wire_objects.hpp"

#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/use_future.hpp>
#include <boost/asio/write.hpp>
#include <boost/json/parse.hpp>
#include <boost/json/serialize.hpp>
#include <boost/json/value.hpp>
#include <boost/test/unit_test.hpp>

#include <sys/socket.h>

#include <future>
#include <thread>

using namespace troupe;
using namespace troupe::server;
namespace asio = boost::asio;
namespace json = boost::json;
using asio::ip::tcp;
using boost::system::error_code;

namespace {

class client {
 public:
  explicit client(std::uint16_t port) : socket_(io_) {
    socket_.connect({asio::ip::make_address("127.0.0.1"), port});
    const timeval limit{90, 0}; // less than the suite has, so that a hang is told by its test
    ::setsockopt(socket_.native_handle(), SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit);
  }
  void send(std::string_view bytes) { asio::write(socket_, asio::buffer(bytes.data(), bytes.size())); }
  // Reads until `ready(everything so far)` or the end; false at the end.
  template<class Ready>
  bool read_until(Ready ready) {
    while (!ready(got)) {
      char buffer[4096];
      const auto n = ::recv(socket_.native_handle(), buffer, sizeof buffer, 0);
      if (n <= 0) return false;
      got.append(buffer, static_cast<std::size_t>(n));
    }
    return true;
  }
  void leave() { socket_.close(); }
  std::string got;

 private:
  asio::io_context io_;
  tcp::socket socket_;
};

std::string http_post(std::string_view body) {
  return "POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Length: " +
         std::to_string(body.size()) + "\r\n\r\n" + std::string(body);
}

// The body of a response with Content-Length, empty while it is incomplete.
std::string body_of(const std::string& got) {
  const std::size_t head = got.find("\r\n\r\n");
  const std::size_t field = got.find("Content-Length: ");
  if (head == std::string::npos || field > head) return {};
  const std::size_t size = std::stoul(got.substr(field + 16));
  return got.size() < head + 4 + size ? std::string() : got.substr(head + 4, size);
}

int status_of_answer(const std::string& got) {
  return got.size() > 12 ? std::stoi(got.substr(9, 3)) : 0;
}

std::string ids_text(const json::value& ids) {
  std::string out;
  for (const json::value& id : ids.as_array()) out += std::to_string(id.as_int64()) + ' ';
  return out;
}

std::string request_body(int i, int max_tokens, bool stream = false) {
  std::string prompt;
  for (int n = 0; n <= i * 3 % 50; ++n) prompt += "the river and the " + std::to_string(n * i) + " ";
  return R"({"prompt":")" + prompt +
         R"(","temperature":0,"ignore_eos":true,"return_token_ids":true,"max_tokens":)" +
         std::to_string(max_tokens) + (stream ? R"(,"stream":true})" : "}");
}

struct running_server {
  explicit running_server(engine_options e = {}, server_options o = {}) {
    e.model_path = TROUPE_TEST_DATA "/tiny/tiny_f16.gguf";
    e.threads = 1;
    e.queue_timeout_ms = 3'600'000; // a slow machine changes no answer
    o.port = 0;
    o.tcp_port = 0;
    o.limits.ping_interval = std::chrono::hours(1); // these clients answer no pings, however slow the machine
    the_engine.emplace(io.get_executor(), std::move(e));
    the_server.emplace(*the_engine, std::move(o));
    the_server->listen().value();
    thread = std::thread([this] { io.run(); });
    on_executor([&] { return the_engine->async_start(asio::use_future); }).get().value();
    on_executor([&] { the_server->engine_ready(); });
  }
  ~running_server() {
    if (the_server) stop();
  }
  void stop(std::chrono::milliseconds limit = std::chrono::seconds(30)) {
    auto drained = on_executor([&] { return the_server->async_drain(limit, asio::use_future); });
    on_executor([&] { return the_engine->async_shutdown(limit, asio::use_future); }).get().value();
    drained.get();
    on_executor([&] {
      the_server.reset();
      the_engine.reset();
    });
    work.reset();
    thread.join();
  }
  template<class F>
  std::invoke_result_t<F> on_executor(F f) {
    return asio::post(io, asio::use_future(std::move(f))).get();
  }
  std::uint16_t http() const { return the_server->port(); }
  std::uint16_t raw() const { return the_server->tcp_port(); }
  // One answer in one piece.
  std::string answer(const std::string& body) {
    client c(http());
    c.send(http_post(body));
    c.read_until([](const std::string& got) { return !body_of(got).empty(); });
    return c.got;
  }
  std::string ids_of(const std::string& body) {
    return ids_text(json::parse(body_of(answer(body))).at("choices").at(0).at("token_ids"));
  }
  // The value of a metric, by its whole name.
  std::string metric(const std::string& name) {
    client c(http());
    c.send("GET /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n");
    c.read_until([](const std::string& got) { return !body_of(got).empty(); });
    const std::size_t at = c.got.find("\n" + name + " ");
    if (at == std::string::npos) return "absent";
    const std::size_t from = at + name.size() + 2;
    return c.got.substr(from, c.got.find('\n', from) - from);
  }

  asio::io_context io{1};
  asio::executor_work_guard<asio::io_context::executor_type> work = asio::make_work_guard(io);
  std::optional<engine> the_engine;
  std::optional<troupe::server::server> the_server;
  std::thread thread;
};

// The engine stops serving and the server is not told.
void on_engine_down(running_server& s) {
  s.on_executor([&] { return s.the_engine->async_shutdown(std::chrono::seconds(30), asio::use_future); })
      .get()
      .value();
}

} // namespace

BOOST_AUTO_TEST_SUITE(server_with_an_engine)

BOOST_AUTO_TEST_CASE(all_doors_give_the_tokens_of_the_same_request_alone) {
  running_server s;
  constexpr int requests = 16;
  std::vector<std::string> alone;
  for (int i = 0; i < requests; ++i) alone.push_back(s.ids_of(request_body(i, 24)));

  // HTTP: each on its own connection, all at once.
  std::vector<std::unique_ptr<client>> clients;
  for (int i = 0; i < requests; ++i) {
    clients.push_back(std::make_unique<client>(s.http()));
    clients.back()->send(http_post(request_body(i, 24)));
  }
  // TCP and WebSocket: all on one connection.
  client raw(s.raw());
  client ws(s.http());
  ws.send("GET /v1/stream HTTP/1.1\r\nHost: localhost\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
          "Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n");
  for (int i = 0; i < requests; ++i) {
    const std::string object = submit_object(std::to_string(i), openai_api::completions, request_body(i, 24));
    raw.send(object + "\n");
    std::string frame{static_cast<char>(0x81)};
    frame.push_back(static_cast<char>(0x80 | 126));
    frame.push_back(static_cast<char>(object.size() >> 8));
    frame.push_back(static_cast<char>(object.size()));
    ws.send(frame.append(4, '\0').append(object));
  }
  for (int i = 0; i < requests; ++i) {
    BOOST_REQUIRE(clients[i]->read_until([](const std::string& got) { return !body_of(got).empty(); }));
    BOOST_TEST(
        ids_text(json::parse(body_of(clients[i]->got)).at("choices").at(0).at("token_ids")) == alone[i]);
  }
  const auto collect = [&](std::vector<std::string> objects) {
    std::map<std::string, std::string> ids;
    std::map<std::string, int> ends;
    for (const std::string& text : objects) {
      const server_object o = parse_server_object(text).value();
      BOOST_TEST((o.kind != server_kind::error), text);
      if (o.kind == server_kind::token)
        for (const std::int32_t id : o.token_ids) ids[o.id] += std::to_string(id) + ' ';
      if (o.kind == server_kind::done) ++ends[o.id];
    }
    for (int i = 0; i < requests; ++i) {
      BOOST_TEST(ids[std::to_string(i)] == alone[i]);
      BOOST_TEST(ends[std::to_string(i)] == 1);
    }
  };
  const auto dones = [](const std::string& got) {
    int n = 0;
    for (std::size_t at = got.find("\"done\""); at != std::string::npos; at = got.find("\"done\"", at + 1))
      ++n;
    return n;
  };
  BOOST_REQUIRE(
      raw.read_until([&](const std::string& got) { return dones(got) == requests && got.ends_with("\n"); }));
  std::vector<std::string> objects;
  for (std::size_t at = 0; at < raw.got.size();) {
    const std::size_t end = raw.got.find('\n', at);
    objects.push_back(raw.got.substr(at, end - at));
    at = end + 1;
  }
  collect(objects);
  BOOST_REQUIRE(
      ws.read_until([&](const std::string& got) { return dones(got) == requests && got.ends_with("}"); }));
  objects.clear();
  for (std::size_t at = ws.got.find("\r\n\r\n") + 4; at < ws.got.size();) {
    const auto byte = [&](std::size_t i) {
      return static_cast<std::size_t>(static_cast<unsigned char>(ws.got[at + i]));
    };
    BOOST_REQUIRE_EQUAL(byte(0), 0x81U);
    const std::size_t head = byte(1) == 126 ? 4 : 2;
    const std::size_t size = head == 4 ? byte(2) << 8 | byte(3) : byte(1);
    objects.push_back(ws.got.substr(at + head, size));
    at += head + size;
  }
  collect(objects);
  BOOST_TEST(std::stoi(s.metric("troupe_step_sequences_max")) >= 16);
  BOOST_TEST(s.metric("troupe_kv_blocks_used") == "0");
}

BOOST_AUTO_TEST_CASE(the_prompts_log_probabilities_are_those_of_the_same_tokens_drawn) {
  engine_options e;
  e.max_step_tokens = 7; // prompts in pieces
  running_server s(e);
  const auto completion_of = [&](const std::string& fields) {
    const std::string body = body_of(s.answer("{" + fields + "}"));
    BOOST_TEST_REQUIRE(json::parse(body).as_object().contains("choices"), body);
    return json::parse(body).at("choices").as_array();
  };
  const auto drawn = completion_of(
      R"("prompt":"the river and the","temperature":0,"max_tokens":12,"ignore_eos":true,"logprobs":3,)"
      R"("return_token_ids":true)")[0];
  json::array ids = drawn.at("prompt_token_ids").as_array();
  const std::size_t prompt = ids.size();
  for (const json::value& id : drawn.at("token_ids").as_array()) ids.push_back(id);
  // As lm-eval asks: ids, several prompts at once; and the same without the one new token.
  const std::string both = json::serialize(json::array{json::array{ids[0], ids[1], ids[2]}, ids});
  for (const int tokens : {1, 0}) {
    const auto choices = completion_of(
        R"("prompt":)" + both + R"(,"temperature":0,"echo":true,"logprobs":3,"max_tokens":)" +
        std::to_string(tokens));
    BOOST_REQUIRE_EQUAL(choices.size(), 2U);
    BOOST_TEST(choices[0].at("logprobs").at("tokens").as_array().size() == 3U + tokens);
    const json::value& all = choices[1].at("logprobs");
    BOOST_REQUIRE_EQUAL(all.at("tokens").as_array().size(), ids.size() + tokens);
    BOOST_TEST(all.at("token_logprobs").at(0).is_null());
    BOOST_TEST(choices[1].at("finish_reason") == "length");
    std::string text;
    for (std::size_t i = 0; i < all.at("tokens").as_array().size(); ++i) {
      if (i > 0) BOOST_TEST(all.at("token_logprobs").at(i).to_number<double>() <= 0);
      text += all.at("tokens").at(i).as_string().c_str();
    }
    BOOST_TEST(choices[1].at("text").as_string().size() <= text.size());
    for (std::size_t i = prompt; i < ids.size(); ++i) {
      const std::size_t was = i - prompt;
      BOOST_TEST(all.at("tokens").at(i) == drawn.at("logprobs").at("tokens").at(was));
      BOOST_TEST(all.at("token_logprobs").at(i) == drawn.at("logprobs").at("token_logprobs").at(was));
      BOOST_TEST(all.at("top_logprobs").at(i) == drawn.at("logprobs").at("top_logprobs").at(was));
    }
  }
  BOOST_TEST(s.metric("troupe_kv_blocks_used") == "0");
}

BOOST_AUTO_TEST_CASE(choices_are_the_same_in_one_piece_streamed_and_over_tcp) {
  running_server s;
  const std::string fields =
      R"({"prompt":["the river","a stone and"],"n":3,"seed":7,"temperature":1.2,"max_tokens":10,"echo":true,)"
      R"("logprobs":2)";
  const auto whole = json::parse(body_of(s.answer(fields + "}")));
  std::map<std::int64_t, std::string> texts, streamed, raw_texts;
  constexpr const char* lists[] = {"tokens", "token_logprobs", "top_logprobs", "text_offset"};
  const auto append = [](json::array& to, const json::array& from) {
    to.insert(to.end(), from.begin(), from.end());
  };
  std::map<std::int64_t, std::map<std::string, json::array>> listed, streamed_lists;
  std::map<std::int64_t, json::array> raw_scores;
  for (const json::value& choice : whole.at("choices").as_array()) {
    const std::int64_t index = choice.at("index").as_int64();
    texts[index] = choice.at("text").as_string().c_str();
    for (const char* list : lists) listed[index][list] = choice.at("logprobs").at(list).as_array();
    BOOST_TEST(listed[index]["tokens"].size() > 2U);
  }
  BOOST_REQUIRE_EQUAL(texts.size(), 6U);
  BOOST_TEST(texts[0] != texts[1]);
  BOOST_TEST(texts[1] != texts[2]);
  BOOST_TEST(texts[0].starts_with("the river"));
  BOOST_TEST(texts[5].starts_with("a stone and"));
  BOOST_TEST(whole.at("usage").at("completion_tokens").as_int64() <= 60);

  client c(s.http());
  c.send(http_post(fields + R"(,"stream":true})"));
  BOOST_REQUIRE(c.read_until([](const std::string& got) { return got.find("[DONE]") != std::string::npos; }));
  std::map<std::int64_t, int> ends;
  for (std::size_t at = c.got.find("data: {"); at != std::string::npos; at = c.got.find("data: {", at + 1)) {
    const auto event = json::parse(c.got.substr(at + 6, c.got.find("\n", at) - at - 6));
    const auto& choice = event.at("choices").at(0);
    streamed[choice.at("index").as_int64()] += choice.at("text").as_string().c_str();
    if (!choice.at("logprobs").is_null())
      for (const char* list : lists)
        append(
            streamed_lists[choice.at("index").as_int64()][list], choice.at("logprobs").at(list).as_array());
    if (!choice.at("finish_reason").is_null()) ++ends[choice.at("index").as_int64()];
  }
  BOOST_TEST((streamed == texts));
  BOOST_TEST((streamed_lists == listed));
  BOOST_TEST(ends.size() == 6U);
  for (const auto& [index, n] : ends) BOOST_TEST(n == 1);

  client raw(s.raw());
  raw.send(submit_object("a", openai_api::completions, fields + "}") + "\n");
  BOOST_REQUIRE(raw.read_until([](const std::string& got) {
    return got.find("\"done\"") != std::string::npos && got.ends_with("\n");
  }));
  std::size_t accepted = 0, done = 0;
  for (std::size_t at = 0; at < raw.got.size();) {
    const std::size_t end = raw.got.find('\n', at);
    const server_object o = parse_server_object(raw.got.substr(at, end - at)).value();
    if (o.kind == server_kind::token) {
      raw_texts[o.index] += o.text;
      const json::value object = json::parse(raw.got.substr(at, end - at));
      for (const json::value& one : object.at("logprobs").as_array())
        raw_scores[o.index].push_back(one.at("logprob"));
    }
    accepted += o.kind == server_kind::accepted ? 1U : 0U;
    done += o.kind == server_kind::done ? 1U : 0U;
    if (o.kind == server_kind::done)
      BOOST_TEST(json::parse(raw.got.substr(at, end - at)).at("choices").as_array().size() == 6U);
    at = end + 1;
  }
  BOOST_TEST((raw_texts == texts));
  for (auto& [index, lists_of] : listed) BOOST_TEST(raw_scores[index] == lists_of["token_logprobs"]);
  BOOST_TEST(accepted == 1U);
  BOOST_TEST(done == 1U);

  client leaver(s.http());
  leaver.send(http_post(
      R"({"prompt":["the river","a stone"],"n":8,"ignore_eos":true,"max_tokens":400,"stream":true})"));
  BOOST_REQUIRE(
      leaver.read_until([](const std::string& got) { return got.find("data:") != std::string::npos; }));
  leaver.leave();
  std::string used = s.metric("troupe_kv_blocks_used");
  for (int i = 0; i < 2000 && used != "0"; ++i) used = s.metric("troupe_kv_blocks_used");
  BOOST_TEST(used == "0");
}

BOOST_AUTO_TEST_CASE(too_many_requests_end_with_200_or_429_and_nothing_else) {
  engine_options e;
  e.max_queue = 4;
  e.max_batch = 2;
  running_server s(e);
  std::vector<std::unique_ptr<client>> clients;
  for (int i = 0; i < 60; ++i) {
    clients.push_back(std::make_unique<client>(s.http()));
    clients.back()->send(http_post(request_body(i, 40)));
  }
  int served = 0, refused = 0;
  for (const auto& c : clients) {
    BOOST_REQUIRE(c->read_until([](const std::string& got) { return !body_of(got).empty(); }));
    const int status = status_of_answer(c->got);
    if (status == 200) ++served;
    if (status != 429) continue;
    ++refused;
    BOOST_TEST(c->got.find("Retry-After: ") != std::string::npos);
    BOOST_TEST(json::parse(body_of(c->got)).at("error").at("code") == "queue_full");
  }
  BOOST_TEST(served + refused == 60);
  BOOST_TEST(served >= 2);
  BOOST_TEST(refused >= 1);
  BOOST_TEST(s.metric("troupe_kv_blocks_used") == "0");
}

BOOST_AUTO_TEST_CASE(clients_that_leave_mid_stream_leave_no_block_behind) {
  running_server s;
  std::vector<std::unique_ptr<client>> clients;
  for (int i = 0; i < 10; ++i) {
    clients.push_back(std::make_unique<client>(s.http()));
    clients.back()->send(http_post(request_body(i, 150, true)));
  }
  for (const auto& c : clients) {
    BOOST_REQUIRE(
        c->read_until([](const std::string& got) { return got.find("data: ") != std::string::npos; }));
    c->leave();
  }
  // Each look takes a round trip, so that steps go by; what was left behind would stay for ever.
  std::string used;
  for (int i = 0; i < 2000 && used != "0"; ++i) used = s.metric("troupe_kv_blocks_used");
  BOOST_TEST(used == "0");
  BOOST_TEST(s.metric("troupe_requests_running") == "0");
}

BOOST_AUTO_TEST_CASE(a_server_that_loads_says_so_and_a_drain_refuses_and_finishes) {
  asio::io_context io;
  {
    engine e(io.get_executor(), {});
    server_options o;
    o.port = 0;
    troupe::server::server early(e, o);
    early.listen().value();
    client c(early.port());
    c.send(http_post(request_body(1, 5)) + "GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n");
    while (io.run_one_for(std::chrono::milliseconds(200)) > 0) {
    }
    c.read_until([](const std::string& got) { return got.find("\"loading\"") != std::string::npos; });
    BOOST_TEST(status_of_answer(c.got) == 503);
    BOOST_TEST(c.got.find("\"model_loading\"") != std::string::npos);
  }
  io.run();

  running_server s;
  client busy(s.http());
  busy.send(http_post(request_body(1, 100, true)));
  BOOST_REQUIRE(
      busy.read_until([](const std::string& got) { return got.find("data: ") != std::string::npos; }));
  s.stop();
  s.the_server.reset();
  BOOST_TEST(busy.read_until([](const std::string& got) { return got.ends_with("0\r\n\r\n"); }));
  BOOST_TEST(busy.got.find("[DONE]") != std::string::npos);
}

BOOST_AUTO_TEST_CASE(what_a_drain_cuts_is_told_at_every_door) {
  engine_options e;
  e.reference = true; // slow enough not to end by itself
  e.preempt_every = 4;
  e.max_step_tokens = 16; // but no step outlives the limit of the shutdown, sanitizers and all
  running_server s(e);
  client sse(s.http()), raw(s.raw()), ws(s.http());
  const std::string body = request_body(1, 400, true);
  sse.send(http_post(body));
  const std::string object = submit_object("a", openai_api::completions, request_body(1, 400));
  raw.send(object + "\n");
  ws.send("GET /v1/stream HTTP/1.1\r\nHost: localhost\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
          "Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n");
  std::string frame{static_cast<char>(0x81)};
  frame.push_back(static_cast<char>(0x80 | 126));
  frame.push_back(static_cast<char>(object.size() >> 8));
  frame.push_back(static_cast<char>(object.size()));
  ws.send(frame.append(4, '\0').append(object));
  const auto begun = [](const std::string& got) { return got.find("token_ids") != std::string::npos; };
  for (client* c : {&sse, &raw, &ws}) BOOST_REQUIRE(c->read_until(begun));
  s.stop(std::chrono::milliseconds(1));
  for (client* c : {&sse, &raw, &ws}) {
    c->read_until([](const std::string&) { return false; });
    BOOST_TEST(c->got.find("\"shutdown\"") != std::string::npos, c->got.substr(c->got.size() / 2));
  }
}

BOOST_AUTO_TEST_CASE(readiness_asks_the_engine) {
  running_server s;
  on_engine_down(s);
  for (const char* path : {"/readyz", "/health"}) {
    client c(s.http());
    c.send("GET " + std::string(path) + " HTTP/1.1\r\nHost: localhost\r\n\r\n");
    c.read_until([](const std::string& got) { return !body_of(got).empty(); });
    BOOST_TEST(status_of_answer(c.got) == 503);
  }
}

BOOST_AUTO_TEST_CASE(connections_over_the_cap_are_refused_at_once) {
  server_options o;
  o.max_connections = 3;
  running_server s({}, o);
  std::vector<std::unique_ptr<client>> clients;
  for (int i = 0; i < 3; ++i) {
    clients.push_back(std::make_unique<client>(s.http()));
    clients.back()->send("GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n");
    BOOST_REQUIRE(clients.back()->read_until([](const std::string& got) { return !body_of(got).empty(); }));
  }
  client over(s.http());
  over.read_until([](const std::string&) { return false; });
  BOOST_TEST(status_of_answer(over.got) == 503);
  clients.front()->leave();
  // The place is free again as soon as the server has seen it.
  int status = 503;
  for (int i = 0; i < 1000 && status != 200; ++i) {
    client next(s.http());
    next.send("GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n");
    next.read_until([](const std::string& got) { return !body_of(got).empty(); });
    status = status_of_answer(next.got);
  }
  BOOST_TEST(status == 200);
}

BOOST_AUTO_TEST_SUITE_END()
