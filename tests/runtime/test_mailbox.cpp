// SPDX-License-Identifier: Apache-2.0
#include "runtime/base/error.hpp"
#include "runtime/mailbox.hpp"

#include <boost/test/unit_test.hpp>

#include <string>
#include <vector>

using namespace troupe::runtime;

namespace {

struct cancel {
  std::uint64_t request = 0;
};
struct submit {
  std::uint64_t request = 0;
  std::unique_ptr<std::vector<int>> prompt; // move-only, as real payloads are
  std::size_t payload_bytes() const noexcept { return prompt ? prompt->size() * sizeof(int) : 0; }
};
struct token {
  int value = 0;
};
struct level {
  int percent = 0;
};
struct epoch {
  int number = 0;
};
struct ask {
  int what = 0;
};

struct test_protocol
    : protocol<control<cancel>, admission<submit>, stream<token>, state<level>, state<epoch>, query<ask>> {};
using box = mailbox<test_protocol>;

mailbox_limits small() {
  mailbox_limits limits;
  limits.control = {4, 1024};
  limits.admission = {3, 4096};
  limits.stream = {8, 1024};
  limits.query = {2, 1024};
  limits.control_burst = 2;
  return limits;
}

template<class M>
std::optional<M> take(box& from) {
  auto* node = from.next();
  if (node == nullptr) return std::nullopt;
  auto* held = std::get_if<M>(&*node->message);
  std::optional<M> out;
  if (held != nullptr) out = std::move(*held);
  from.recycle(node);
  return out;
}

// One word per message, in the order of delivery.
std::string drain_kinds(box& from) {
  std::string kinds;
  while (auto* node = from.next()) {
    kinds += class_name(test_protocol::kinds[node->type])[0];
    from.recycle(node);
  }
  return kinds;
}

} // namespace

BOOST_AUTO_TEST_SUITE(mailbox_rules)

BOOST_AUTO_TEST_CASE(names_and_request_ids_come_from_the_message_types) {
  BOOST_TEST(type_name<submit>() == "submit");
  BOOST_TEST(type_name<std::vector<int>>().substr(0, 6) == "vector");
  BOOST_TEST(message_request(cancel{17}) == 17U);
  BOOST_TEST(message_request(token{3}) == 0U);
}

BOOST_AUTO_TEST_CASE(mail_of_one_class_arrives_in_order) {
  box b(small());
  for (int i = 0; i < 5; ++i) BOOST_TEST((b.push(token{i}, {}) == enqueue_result::ok));
  for (int i = 0; i < 5; ++i) BOOST_TEST(take<token>(b)->value == i);
  BOOST_TEST(b.next() == nullptr);
  BOOST_TEST(b.depth() == 0U);
}

BOOST_AUTO_TEST_CASE(each_class_is_bounded_by_count_on_its_own) {
  box b(small());
  for (int i = 0; i < 3; ++i) BOOST_TEST((b.push(submit{}, {}) == enqueue_result::ok));
  submit fourth{99, std::make_unique<std::vector<int>>(3)};
  BOOST_TEST((b.push(std::move(fourth), {}) == enqueue_result::full));
  BOOST_TEST(fourth.prompt->size() == 3U); // a refused message stays with its sender
  BOOST_TEST((b.push(token{1}, {}) == enqueue_result::ok));
  BOOST_TEST((b.push(ask{}, {}) == enqueue_result::ok));
  BOOST_TEST((b.push(ask{}, {}) == enqueue_result::ok));
  BOOST_TEST((b.push(ask{}, {}) == enqueue_result::full));
  auto* node = b.next();
  BOOST_TEST((b.push(submit{}, {}) == enqueue_result::full)); // in hand still counts
  b.recycle(node);
  BOOST_TEST((b.push(submit{}, {}) == enqueue_result::ok));
}

BOOST_AUTO_TEST_CASE(payload_bytes_bound_a_class_whatever_its_count) {
  box b(small());
  BOOST_TEST((b.push(submit{1, std::make_unique<std::vector<int>>(900)}, {}) == enqueue_result::ok));
  BOOST_TEST(b.load(message_class::admission).bytes == sizeof(submit) + 3600);
  BOOST_TEST((b.push(submit{2, std::make_unique<std::vector<int>>(900)}, {}) == enqueue_result::full));
  BOOST_TEST((b.push(submit{3, std::make_unique<std::vector<int>>(100)}, {}) == enqueue_result::ok));
  BOOST_TEST((b.push(submit{4, std::make_unique<std::vector<int>>(2000)}, {}) == enqueue_result::full));
  BOOST_TEST(take<submit>(b)->request == 1U);
  BOOST_TEST((b.push(submit{5, std::make_unique<std::vector<int>>(800)}, {}) == enqueue_result::ok));
  BOOST_TEST(drain_kinds(b) == "aa");
  BOOST_TEST(b.load(message_class::admission).bytes == 0U);
}

BOOST_AUTO_TEST_CASE(reserved_control_is_never_refused) {
  box b(small());
  BOOST_TEST(b.reserve(3, sizeof(cancel)));
  BOOST_TEST((b.push(cancel{1}, {}) == enqueue_result::ok)); // the one slot left
  BOOST_TEST((b.push(cancel{2}, {}) == enqueue_result::full));
  BOOST_TEST(!b.reserve(1, sizeof(cancel)));
  for (std::uint64_t i = 10; i < 13; ++i)
    BOOST_TEST((b.push_reserved(cancel{i}, sizeof(cancel), {}) == enqueue_result::ok));
  BOOST_TEST(b.load(message_class::control).messages == 4U);
  BOOST_TEST(take<cancel>(b)->request == 1U);
  for (std::uint64_t i = 10; i < 13; ++i) BOOST_TEST(take<cancel>(b)->request == i);
  BOOST_TEST(b.load(message_class::control).messages == 0U);
  BOOST_TEST(b.load(message_class::control).bytes == 0U);
  BOOST_TEST(b.reserve(4, sizeof(cancel)));
  b.release(4, sizeof(cancel));
  BOOST_TEST(b.load(message_class::control).messages == 0U);
  BOOST_TEST(!b.reserve(0xffffffff, ~std::uint64_t{0}));
}

BOOST_AUTO_TEST_CASE(control_larger_than_its_reservation_is_let_in_and_counted) {
  box b(small());
  BOOST_TEST(b.reserve(1, 4));
  BOOST_TEST((b.push_reserved(cancel{1}, 4, {}) == enqueue_result::ok));
  BOOST_TEST(b.control_overrun_bytes() == sizeof(cancel) - 4);
  BOOST_TEST(take<cancel>(b)->request == 1U);
  BOOST_TEST(b.load(message_class::control).bytes == 0U);
}

BOOST_AUTO_TEST_CASE(control_goes_first_but_only_a_burst_in_a_row) {
  box b(small());
  for (int i = 0; i < 3; ++i) BOOST_TEST((b.push(token{i}, {}) == enqueue_result::ok));
  for (int i = 0; i < 4; ++i) BOOST_TEST((b.push(cancel{}, {}) == enqueue_result::ok));
  BOOST_TEST(drain_kinds(b) == "ccsccss");
  for (int i = 0; i < 4; ++i) BOOST_TEST((b.push(cancel{}, {}) == enqueue_result::ok));
  BOOST_TEST(drain_kinds(b) == "cccc"); // alone it is not held back
}

BOOST_AUTO_TEST_CASE(state_is_conflated_to_the_latest_value_per_type) {
  box b(small());
  for (int i = 0; i < 1000; ++i) BOOST_TEST((b.push(level{i}, {}) == enqueue_result::ok));
  BOOST_TEST((b.push(epoch{7}, {}) == enqueue_result::ok));
  BOOST_TEST(b.conflated() == 999U);
  BOOST_TEST(b.depth() == 2U);
  BOOST_TEST(b.load(message_class::state).messages == 2U);
  BOOST_TEST(take<level>(b)->percent == 999);
  BOOST_TEST(take<epoch>(b)->number == 7);
  BOOST_TEST(b.next() == nullptr);
}

BOOST_AUTO_TEST_CASE(state_and_ordinary_mail_take_turns) {
  box b(small());
  for (int i = 0; i < 3; ++i) BOOST_TEST((b.push(token{i}, {}) == enqueue_result::ok));
  std::string kinds;
  for (int i = 0; i < 6; ++i) { // a state message that is renewed all the time
    BOOST_TEST((b.push(level{i}, {}) == enqueue_result::ok));
    auto* node = b.next();
    kinds += class_name(test_protocol::kinds[node->type]).substr(0, 3);
    b.recycle(node);
  }
  BOOST_TEST(kinds == "stastrstastrstastr");
}

BOOST_AUTO_TEST_CASE(draining_refuses_new_work_and_nothing_else) {
  box b(small());
  b.drain();
  submit s{1, nullptr};
  BOOST_TEST((b.push(std::move(s), {}) == enqueue_result::draining));
  BOOST_TEST((b.push(cancel{}, {}) == enqueue_result::ok));
  BOOST_TEST((b.push(token{}, {}) == enqueue_result::ok));
  BOOST_TEST((b.push(level{}, {}) == enqueue_result::ok));
  BOOST_TEST((b.push(ask{}, {}) == enqueue_result::ok));
}

BOOST_AUTO_TEST_CASE(closing_hands_over_what_is_left_and_refuses_the_rest) {
  box b(small());
  BOOST_TEST((b.push(token{1}, {}) == enqueue_result::ok));
  BOOST_TEST((b.push(level{2}, {}) == enqueue_result::ok));
  BOOST_TEST((b.push(cancel{3}, {}) == enqueue_result::ok));
  int dead = 0;
  b.close([&](box::node& node) {
    BOOST_TEST(node.message.has_value());
    ++dead;
  });
  BOOST_TEST(dead == 3);
  BOOST_TEST(b.depth() == 0U);
  token t{5};
  BOOST_TEST((b.push(std::move(t), {}) == enqueue_result::closed));
  BOOST_TEST((b.push(level{}, {}) == enqueue_result::closed));
  BOOST_TEST((b.push(cancel{}, {}) == enqueue_result::closed));
  BOOST_TEST(b.next() == nullptr);
  b.close([](box::node&) { BOOST_ERROR("nothing may be left"); });
}

BOOST_AUTO_TEST_CASE(a_prepared_message_cannot_be_refused_later) {
  box b(small());
  auto* node = b.prepare(submit{7, nullptr}, 1);
  BOOST_REQUIRE(node != nullptr);
  for (int i = 0; i < 3; ++i) BOOST_TEST((b.push(cancel{}, {}) == enqueue_result::ok));
  BOOST_TEST((b.push(cancel{}, {}) == enqueue_result::full));
  BOOST_TEST(b.prepare(cancel{}, 2) == nullptr);
  BOOST_TEST((b.push_prepared(node, {}) == enqueue_result::ok));
  BOOST_TEST(drain_kinds(b) == "ccca");
}

BOOST_AUTO_TEST_CASE(an_impossible_bound_is_refused_by_name) {
  auto limits = small();
  limits.stream.messages = 1U << 20;
  BOOST_CHECK_EXCEPTION(box{limits}, troupe::failure, [](const troupe::failure& f) {
    return std::string(f.what()).find("stream") != std::string::npos;
  });
}

BOOST_AUTO_TEST_SUITE_END()
