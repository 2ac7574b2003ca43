// SPDX-License-Identifier: Apache-2.0
// A small GGUF file, and what the tests of reading one have in common.
#pragma once

#include "models/gguf_file.hpp"
#include "tests/models/gguf_builder.hpp"

#include <boost/test/unit_test.hpp>

#include <algorithm>
#include <stdexcept>
#include <string>
#include <string_view>

namespace troupe::models::test {

/// Every getter on every key, every byte of every tensor: what a loader could ever touch.
inline std::uint64_t touch_everything(const gguf_file& file) {
  std::uint64_t sum = file.alignment() + file.version();
  for (const gguf_value& value : file.metadata()) {
    sum += describe(value).size() + value_type_name(value.type).size();
    if (file.find_value(value.key) != &value) throw std::logic_error("a key does not lead to its value");
    if (const auto v = file.get<bool>(value.key)) sum += *v;
    if (const auto v = file.get<std::int32_t>(value.key)) sum += static_cast<std::uint64_t>(*v);
    if (const auto v = file.get<std::uint64_t>(value.key)) sum += *v;
    if (const auto v = file.get<double>(value.key)) sum += *v > 0;
    if (const auto v = file.get<std::string_view>(value.key)) sum += std::count(v->begin(), v->end(), 'a');
    if (const auto v = file.get_array<bool>(value.key)) sum += v->size();
    if (const auto v = file.get_array<std::int64_t>(value.key)) sum += v->size();
    if (const auto v = file.get_array<float>(value.key)) sum += v->size();
    if (const auto v = file.get_array<std::string_view>(value.key))
      for (const std::string_view s : *v) sum += std::count(s.begin(), s.end(), 'a');
  }
  for (const gguf_tensor& tensor : file.tensors()) {
    sum += describe(tensor).size();
    if (file.find_tensor(tensor.name) != &tensor)
      throw std::logic_error("a name does not lead to its tensor");
    for (const std::byte b : tensor.data) sum += static_cast<std::uint64_t>(b);
  }
  return sum;
}

/// A small well-formed file with every kind of value and three tensors.
inline gguf_builder sample() {
  gguf_builder b;
  b.text("general.architecture", "llama")
      .u32("llama.block_count", 2)
      .value("a.u8", 0, raw<std::uint8_t>(200));
  b.value("a.i8", 1, raw<std::int8_t>(-5)).value("a.u16", 2, raw<std::uint16_t>(65535));
  b.value("a.i16", 3, raw<std::int16_t>(-300)).value("a.i32", 5, raw<std::int32_t>(-70000));
  b.value("a.f32", 6, raw(1.5F)).value("a.bool", 7, raw<std::uint8_t>(1));
  b.value("a.u64", 10, raw(std::uint64_t{1} << 40)).value("a.i64", 11, raw(std::int64_t{-1} << 40));
  b.value("a.f64", 12, raw(0.25));
  b.array("tokens", 8, 3, raw_string("<s>") + raw_string("") + raw_string("a\nb"));
  b.array("scores", 6, 2, raw(0.5F) + raw(-1.0F)).array("ids", 5, 3, raw(1) + raw(-2) + raw(3));
  b.array("flags", 7, 2, std::string("\1\0", 2)).array("nothing", 4, 0, "");
  b.add("norm", {4}, ggml_type::f32, raw(1.0F) + raw(2.0F) + raw(3.0F) + raw(4.0F));
  b.add("q8", {32, 2}, ggml_type::q8_0, std::string(68, 'x'));
  b.add("cube", {2, 3, 4, 1}, ggml_type::f16, std::string(48, 'y'));
  return b;
}

inline gguf_file parsed(const std::string& bytes) {
  return gguf_file::parse(as_bytes(bytes), "test.gguf").value();
}

inline std::string refusal(const gguf_builder& builder, errc code = errc::bad_file) {
  const std::string bytes = builder.bytes();
  const auto file = gguf_file::parse(as_bytes(bytes), "test.gguf");
  BOOST_REQUIRE_MESSAGE(!file, "the file was accepted");
  BOOST_TEST((file.error().code == code));
  const std::string& message = file.error().message;
  BOOST_TEST(message.starts_with("test.gguf: "), message);
  BOOST_TEST(message.find('\n') == std::string::npos);
  return message;
}

template<class T>
std::string message_of(const result<T>& r) {
  BOOST_REQUIRE(!r);
  return r.error().message;
}

inline bool mentions(const std::string& text, std::string_view what) {
  return text.find(what) != std::string::npos;
}

#define CHECK_REFUSED(builder, what)                                                                         \
  do {                                                                                                       \
    const std::string said = refusal(builder);                                                               \
    BOOST_TEST(mentions(said, what), said);                                                                  \
  } while (false)

} // namespace troupe::models::test
