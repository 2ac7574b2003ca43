// SPDX-License-Identifier: Apache-2.0
#include "models/weights.hpp"

#include "kernels/half.hpp"
#include "models/gguf_file.hpp"
#include "plugins/host/scheme_registry.hpp"
#include "tests/models/gguf_builder.hpp"
#include "tests/models/shared_files.hpp"

#include <boost/test/unit_test.hpp>

#include <cmath>
#include <limits>
#include <random>

namespace {

using namespace troupe::models;
using namespace troupe::models::test;
using troupe::errc;
using troupe::packed_weight;

const troupe::plugins::scheme_registry& schemes() {
  static const auto registry = [] {
    troupe::plugins::scheme_registry r;
    BOOST_REQUIRE(troupe::plugins::add_built_in_schemes(r));
    return r;
  }();
  return registry;
}

weight_load_options options() {
  weight_load_options o;
  o.find_scheme = [](std::string_view id) { return schemes().find(id); };
  return o;
}

/// Q8_0 rows with scales of 1 and random codes.
std::string q8_rows(std::uint32_t n, std::uint32_t k, std::uint32_t seed) {
  std::mt19937 random(seed);
  std::string bytes;
  for (std::uint32_t block = 0; block < n * k / 32; ++block) {
    bytes += raw<std::uint16_t>(0x3c00);
    for (int i = 0; i < 32; ++i) bytes += static_cast<char>(random());
  }
  return bytes;
}

std::vector<float> read_back(const packed_weight& w) {
  std::vector<float> numbers(std::size_t{w.shape.n} * w.shape.k);
  BOOST_REQUIRE_EQUAL(
      w.scheme->dequantise(&w.shape, w.data.data(), 0, w.shape.n, numbers.data(), w.shape.k), TROUPE_OK);
  return numbers;
}

template<class T>
std::string refusal(const troupe::result<T>& r, errc code = errc::bad_file) {
  BOOST_REQUIRE(!r);
  BOOST_TEST((r.error().code == code));
  return r.error().message;
}

bool mentions(const std::string& text, std::string_view what) {
  return text.find(what) != std::string::npos;
}

weight_request request(const gguf_file& file, std::initializer_list<const char*> names) {
  weight_request r;
  for (const char* name : names) r.parts.push_back(*file.tensor(name).value());
  return r;
}

} // namespace

BOOST_AUTO_TEST_SUITE(weights)

BOOST_AUTO_TEST_CASE(a_matrix_that_stands_alone_has_an_allocation_of_its_own) {
  gguf_builder b;
  const std::string rows = q8_rows(1100, 2048, 1);
  for (const char* name : {"a", "b", "c", "d"}) b.add(name, {2048, 1100}, ggml_type::q8_0, rows);
  const std::string bytes = b.bytes();
  const auto file = gguf_file::parse(as_bytes(bytes), "test.gguf");
  BOOST_REQUIRE(file);
  std::vector<weight_request> requests{
      request(*file, {"a"}), request(*file, {"b"}), request(*file, {"c"}), request(*file, {"d"})};
  requests[1].alone = requests[3].alone = true;
  const auto loaded = load_weights(*file, requests, options());
  BOOST_REQUIRE_MESSAGE(loaded, loaded.error().message);
  const auto& w = *loaded;
  // An allocation of this size begins at a huge page; a piece of the common block does not, after the first.
  const auto offset = [](const packed_weight& weight) {
    return reinterpret_cast<std::uintptr_t>(weight.data.data()) % troupe::aligned_buffer::huge_page_bytes;
  };
  BOOST_TEST(w[0].data.size() % troupe::aligned_buffer::huge_page_bytes != 0U);
  BOOST_TEST(
      w[2].data.data() - w[0].data.data() == static_cast<std::ptrdiff_t>((w[0].data.size() + 63) / 64 * 64));
  BOOST_TEST(offset(w[1]) == 0U);
  BOOST_TEST(offset(w[3]) == 0U);
  BOOST_TEST((read_back(w[1]) == read_back(w[0])));
}

BOOST_AUTO_TEST_CASE(tensors_are_merged_along_the_output_channels) {
  gguf_builder b;
  const std::string q = q8_rows(49, 64, 1), k = q8_rows(17, 64, 2), v = q8_rows(300, 64, 3);
  b.add("q", {64, 49}, ggml_type::q8_0, q).add("k", {64, 17}, ggml_type::q8_0, k);
  b.add("v", {64, 300}, ggml_type::q8_0, v);
  const std::string bytes = b.bytes();
  const auto file = gguf_file::parse(as_bytes(bytes), "m.gguf").value();

  const std::vector<weight_request> requests{
      request(file, {"q", "k", "v"}), request(file, {"v"}), request(file, {"k", "q"})};
  std::vector<std::pair<std::uint64_t, std::uint64_t>> seen;
  auto o = options();
  o.progress = [&](std::uint64_t done, std::uint64_t total) { seen.emplace_back(done, total); };
  const auto weights = load_weights(file, requests, o).value();

  BOOST_TEST_REQUIRE(weights.size() == 3u);
  BOOST_TEST(std::string_view(weights[0].scheme->id) == "gguf.q8_0");
  BOOST_TEST(weights[0].shape.n == 366u);
  BOOST_TEST(weights[0].shape.k == 64u);
  for (const packed_weight& w : weights)
    BOOST_TEST(reinterpret_cast<std::uintptr_t>(w.data.data()) % 64 == 0u);
  const auto expect = [](const std::string& rows) {
    std::vector<float> numbers;
    for (std::size_t at = 0; at < rows.size(); at += 34)
      for (int i = 2; i < 34; ++i) numbers.push_back(static_cast<signed char>(rows[at + i]));
    return numbers;
  };
  BOOST_TEST((read_back(weights[0]) == expect(q + k + v)));
  BOOST_TEST((read_back(weights[1]) == expect(v)));
  BOOST_TEST((read_back(weights[2]) == expect(k + q)));

  BOOST_TEST(seen.size() == 3u);
  const std::uint64_t total = 2 * (q.size() + k.size() + v.size());
  for (std::size_t i = 0; i < seen.size(); ++i) {
    BOOST_TEST(seen[i].second == total);
    BOOST_TEST((i == 0 || seen[i].first > seen[i - 1].first));
  }
  BOOST_TEST(seen.back().first == total);
}

BOOST_AUTO_TEST_CASE(one_weight_outlives_the_others_of_its_file) {
  gguf_builder b;
  b.add("a", {64, 40}, ggml_type::q8_0, q8_rows(40, 64, 1))
      .add("b", {64, 40}, ggml_type::q8_0, q8_rows(40, 64, 2));
  const std::string bytes = b.bytes();
  const auto file = gguf_file::parse(as_bytes(bytes), "m.gguf").value();
  const std::vector<weight_request> requests{request(file, {"a"}), request(file, {"b"})};
  auto all = load_weights(file, requests, options()).value();
  const auto expected = read_back(all[1]);
  const packed_weight kept = std::move(all[1]);
  all.clear();
  BOOST_TEST((read_back(kept) == expected));
}

BOOST_AUTO_TEST_CASE(one_thread_and_many_give_the_same_bytes) {
  gguf_builder b;
  for (int i = 0; i < 12; ++i)
    b.add(numbered("w", i), {96, 600}, ggml_type::q8_0, q8_rows(600, 96, static_cast<std::uint32_t>(i)));
  const std::string bytes = b.bytes();
  const auto file = gguf_file::parse(as_bytes(bytes), "m.gguf").value();
  std::vector<weight_request> requests;
  for (const gguf_tensor& tensor : file.tensors()) requests.push_back({{tensor}});
  auto o = options();
  o.threads = 1;
  const auto alone = load_weights(file, requests, o).value();
  o.threads = 4;
  const auto many = load_weights(file, requests, o).value();
  for (std::size_t i = 0; i < requests.size(); ++i) {
    BOOST_TEST_REQUIRE(alone[i].data.size() == many[i].data.size());
    BOOST_TEST(std::memcmp(alone[i].data.data(), many[i].data.data(), many[i].data.size()) == 0);
  }
}

BOOST_AUTO_TEST_CASE(scales_that_are_not_finite_name_the_tensor_and_its_channel) {
  gguf_builder b;
  std::string k = q8_rows(17, 64, 2);
  k.replace((5 * 2 + 1) * 34, 2, raw<std::uint16_t>(0x7c00));
  b.add("q", {64, 49}, ggml_type::q8_0, q8_rows(49, 64, 1)).add("k", {64, 17}, ggml_type::q8_0, k);
  const std::string bytes = b.bytes();
  const auto file = gguf_file::parse(as_bytes(bytes), "m.gguf").value();
  const std::vector<weight_request> merged{request(file, {"q"}), request(file, {"q", "k"})};
  BOOST_TEST(
      refusal(load_weights(file, merged, options())) ==
      "m.gguf: tensor 'k': gguf.q8_0 refuses it: channel 5, inputs 32..63: the block's scale is NaN or "
      "infinite");
  const std::vector<weight_request> alone{request(file, {"k"})};
  BOOST_TEST(
      mentions(refusal(load_weights(file, alone, options())), "tensor 'k': gguf.q8_0 refuses it: channel 5"));
}

BOOST_AUTO_TEST_CASE(the_error_of_the_earliest_matrix_is_told) {
  gguf_builder b;
  for (int i = 0; i < 20; ++i) {
    std::string rows = q8_rows(64, 64, static_cast<std::uint32_t>(i));
    if (i >= 7) rows[1] = '\x7e';
    b.add(numbered("w", i), {64, 64}, ggml_type::q8_0, rows);
  }
  const std::string bytes = b.bytes();
  const auto file = gguf_file::parse(as_bytes(bytes), "m.gguf").value();
  std::vector<weight_request> requests;
  for (const gguf_tensor& tensor : file.tensors()) requests.push_back({{tensor}});
  for (int i = 0; i < 20; ++i) {
    const std::string said = refusal(load_weights(file, requests, options()));
    BOOST_TEST_REQUIRE(mentions(said, "'w7'"), said);
  }
}

BOOST_AUTO_TEST_CASE(what_cannot_be_one_matrix_or_be_multiplied_is_refused) {
  gguf_builder b;
  b.add("a", {64, 2}, ggml_type::q8_0, std::string(4 * 34, '\0'));
  b.add("b", {32, 2}, ggml_type::q8_0, std::string(2 * 34, '\0'));
  b.add("c", {64, 2}, ggml_type::q4_0, std::string(4 * 18, '\0'));
  b.add("d", {64, 2, 2}, ggml_type::q8_0, std::string(8 * 34, '\0'));
  b.add("e", {256, 1}, static_cast<ggml_type>(15), std::string(292, '\0'));
  b.add("f", {64}, ggml_type::q8_0, std::string(2 * 34, '\0'));
  const std::string bytes = b.bytes();
  const auto file = gguf_file::parse(as_bytes(bytes), "m.gguf").value();
  const auto load = [&](std::initializer_list<const char*> names) {
    const std::vector<weight_request> requests{request(file, names)};
    return load_weights(file, requests, options());
  };
  BOOST_TEST(mentions(refusal(load({"a", "b"})), "a + b differ in type or row length"));
  BOOST_TEST(mentions(refusal(load({"a", "c"})), "a + c differ in type or row length"));
  BOOST_TEST(mentions(refusal(load({"d"})), "'d' is Q8_0 [64, 2, 2]; a matrix is needed"));
  BOOST_TEST(mentions(
      refusal(load({"e"}), errc::unsupported), "'e' has type Q8_K, which this build cannot multiply"));
  BOOST_TEST(mentions(refusal(load({}), errc::internal), "without tensors"));
  BOOST_TEST(load({"f"}).value()[0].shape.n == 1u);
  const weight_request both = request(file, {"a", "b"}), same = request(file, {"a", "f"});
  BOOST_TEST(!can_merge(both.parts));
  BOOST_TEST(can_merge(same.parts));

  auto nothing = options();
  nothing.find_scheme = [](std::string_view) { return nullptr; };
  const std::vector<weight_request> requests{request(file, {"a"})};
  BOOST_TEST(mentions(refusal(load_weights(file, requests, nothing), errc::unsupported), "has type Q8_0"));
}

BOOST_AUTO_TEST_CASE(a_loading_that_is_asked_to_stop_ends_as_shutdown) {
  gguf_builder b;
  b.add("a", {64, 2}, ggml_type::q8_0, std::string(4 * 34, '\0'));
  const std::string bytes = b.bytes();
  const auto file = gguf_file::parse(as_bytes(bytes), "m.gguf").value();
  const std::vector<weight_request> requests{request(file, {"a"})};
  std::stop_source stop;
  auto stopped = options();
  stopped.stop = stop.get_token();
  BOOST_TEST(load_weights(file, requests, stopped).has_value());
  stop.request_stop();
  BOOST_TEST(mentions(refusal(load_weights(file, requests, stopped), errc::shutdown), "stopped"));
}

BOOST_AUTO_TEST_CASE(every_type_that_can_be_multiplied_is_loaded_by_its_scheme) {
  // One row of 32 numbers: 1, 2, .. 32 in the dense types; scale 1 (and minimum 1) under zero codes in the
  // blocks.
  std::string f32, f16, bf16;
  for (int i = 1; i <= 32; ++i) {
    f32 += raw(static_cast<float>(i));
    f16 += raw(troupe::kernels::float_to_half(static_cast<float>(i)));
    bf16 += raw(troupe::kernels::float_to_bfloat(static_cast<float>(i)));
  }
  const std::string one = raw<std::uint16_t>(0x3c00);
  gguf_builder b;
  b.add("F32", {32, 1}, ggml_type::f32, f32).add("F16", {32, 1}, ggml_type::f16, f16);
  b.add("BF16", {32, 1}, ggml_type::bf16, bf16);
  b.add("Q4_0", {32, 1}, ggml_type::q4_0, one + std::string(16, '\0'));
  b.add("Q4_1", {32, 1}, ggml_type::q4_1, one + one + std::string(16, '\0'));
  b.add("Q5_0", {32, 1}, ggml_type::q5_0, one + std::string(20, '\0'));
  b.add("Q5_1", {32, 1}, ggml_type::q5_1, one + one + std::string(20, '\0'));
  b.add("Q8_0", {32, 1}, ggml_type::q8_0, one + std::string(32, '\0'));
  const std::string bytes = b.bytes();
  const auto file = gguf_file::parse(as_bytes(bytes), "m.gguf").value();
  std::vector<weight_request> requests;
  for (const gguf_tensor& tensor : file.tensors()) requests.push_back({{tensor}});
  const auto weights = load_weights(file, requests, options()).value();
  const std::vector<std::pair<std::string_view, std::array<float, 2>>> expected{
      {"dense.f32", {1, 32}}, {"dense.f16", {1, 32}},    {"dense.bf16", {1, 32}}, {"gguf.q4_0", {-8, -8}},
      {"gguf.q4_1", {1, 1}},  {"gguf.q5_0", {-16, -16}}, {"gguf.q5_1", {1, 1}},   {"gguf.q8_0", {0, 0}}};
  BOOST_TEST_REQUIRE(weights.size() == expected.size());
  for (std::size_t i = 0; i < expected.size(); ++i) {
    BOOST_TEST(std::string_view(weights[i].scheme->id) == expected[i].first);
    const auto numbers = read_back(weights[i]);
    BOOST_TEST(numbers.front() == expected[i].second[0]);
    BOOST_TEST(numbers.back() == expected[i].second[1]);
  }
}

BOOST_AUTO_TEST_CASE(vectors_are_widened_from_every_dense_type) {
  gguf_builder b;
  b.add("f32", {3}, ggml_type::f32, raw(1.5F) + raw(-0.0F) + raw(3e38F));
  b.add(
      "f16", {3}, ggml_type::f16,
      raw<std::uint16_t>(0x3e00) + raw<std::uint16_t>(0x8001) + raw<std::uint16_t>(0x7bff));
  b.add("bf16", {2}, ggml_type::bf16, raw<std::uint16_t>(0x3fc0) + raw<std::uint16_t>(0xff7f));
  b.add("nan", {2}, ggml_type::f16, raw<std::uint16_t>(0x3c00) + raw<std::uint16_t>(0x7e00));
  b.add("inf", {1}, ggml_type::f32, raw(std::numeric_limits<float>::infinity()));
  b.add("q8", {32}, ggml_type::q8_0, std::string(34, '\0'));
  b.add("matrix", {2, 2}, ggml_type::f32, std::string(16, '\0'));
  const std::string bytes = b.bytes();
  const auto file = gguf_file::parse(as_bytes(bytes), "m.gguf").value();
  const auto f32 = load_vector(file, "f32", 3).value();
  BOOST_TEST((f32 == std::vector<float>{1.5F, -0.0F, 3e38F} && std::signbit(f32[1])));
  BOOST_TEST((load_vector(file, "f16", 3).value() == std::vector<float>{1.5F, -0x1p-24F, 65504.0F}));
  BOOST_TEST((load_vector(file, "bf16", 2).value() == std::vector<float>{1.5F, -0x1.fep127F}));
  BOOST_TEST(refusal(load_vector(file, "nan", 2)) == "m.gguf: tensor 'nan', element 1 is NaN or infinite");
  BOOST_TEST(mentions(refusal(load_vector(file, "inf", 1)), "element 0 is NaN or infinite"));
  BOOST_TEST(
      refusal(load_vector(file, "f32", 4)) ==
      "m.gguf: tensor 'f32' is F32 [3]; a vector of 4 F32, F16 or BF16 numbers is needed");
  BOOST_TEST(mentions(refusal(load_vector(file, "q8", 32)), "is Q8_0 [32]"));
  BOOST_TEST(mentions(refusal(load_vector(file, "matrix", 4)), "is F32 [2, 2]"));
  BOOST_TEST(refusal(load_vector(file, "absent", 4)) == "m.gguf: tensor 'absent' is missing");
}

BOOST_AUTO_TEST_CASE(the_default_model_is_packed_whole) {
  const auto path = default_model();
  if (!path) return;
  const auto file = gguf_file::open(path->string()).value();
  std::vector<weight_request> requests;
  for (const gguf_tensor& tensor : file.tensors())
    if (tensor.rank == 2) requests.push_back({{tensor}});
  const auto weights = load_weights(file, requests, options()).value();
  std::uint64_t bytes = 0;
  for (const packed_weight& w : weights) bytes += w.data.size();
  // Packing keeps the file's bits: blocks of 34 and 20 bytes stay that size, but for padding of short panels.
  BOOST_TEST(weights.size() == 211u);
  BOOST_TEST(bytes >= 98'000'000u - 2'000'000u);
  BOOST_TEST(bytes <= 98'362'432u);
}

BOOST_AUTO_TEST_SUITE_END()
