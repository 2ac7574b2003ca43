// SPDX-License-Identifier: Apache-2.0
#include "models/safetensors_folder.hpp"

#include "kernels/half.hpp"
#include "models/float8.hpp"
#include "tests/models/gguf_builder.hpp"
#include "tests/models/safetensors_builder.hpp"
#include "tests/models/shared_files.hpp"

#include <boost/test/unit_test.hpp>

#include <cmath>
#include <filesystem>
#include <fstream>
#include <functional>
#include <unistd.h>

using namespace troupe;
using namespace troupe::models;
using namespace troupe::models::test;

namespace {

namespace fs = std::filesystem;

/// The error of a wrong file, which must be one line and start with the file's name.
std::string wrong(const safetensors_builder& builder, errc code = errc::bad_file) {
  const std::string bytes = builder.bytes();
  const auto file = safetensors_file::parse(as_bytes(bytes), "t.safetensors");
  BOOST_REQUIRE(!file);
  BOOST_TEST((file.error().code == code), file.error().message);
  BOOST_TEST(file.error().message.starts_with("t.safetensors: "), file.error().message);
  BOOST_TEST(file.error().message.find('\n') == std::string::npos);
  return file.error().message;
}

bool says(const std::string& message, std::string_view what) {
  const bool found = message.find(what) != std::string::npos;
  if (!found) BOOST_TEST_MESSAGE("'" << message << "' does not say '" << what << "'");
  return found;
}

safetensors_builder headed(std::string header, std::string data = {}) {
  safetensors_builder b;
  b.header = std::move(header);
  b.data = std::move(data);
  return b;
}

struct joined {
  std::string bytes;
  result<safetensors_folder> folder;
};

/// A folder of one file; the bytes live beside it.
std::unique_ptr<joined> join(const safetensors_builder& builder, const folder_format& format = {}) {
  auto made = std::make_unique<joined>(joined{builder.bytes(), error{}});
  auto file = safetensors_file::parse(as_bytes(made->bytes), "t.safetensors");
  BOOST_REQUIRE_MESSAGE(file, file.error().message);
  std::vector<safetensors_file> files;
  files.push_back(std::move(*file));
  made->folder = safetensors_folder::join(std::move(files), "folder", format);
  return made;
}

std::vector<float> decoded(const model_tensor& tensor) {
  BOOST_REQUIRE(tensor.codec != nullptr);
  std::vector<std::byte> bytes(loaded_bytes(tensor));
  tensor.codec->decode(tensor, bytes.data());
  std::vector<float> numbers(tensor.elements);
  for (std::size_t i = 0; i < numbers.size(); ++i) {
    if (tensor.type == ggml_type::f32) {
      std::memcpy(&numbers[i], bytes.data() + i * 4, 4);
      continue;
    }
    std::uint16_t bits;
    std::memcpy(&bits, bytes.data() + i * 2, 2);
    numbers[i] =
        tensor.type == ggml_type::f16 ? kernels::half_to_float(bits) : kernels::bfloat_to_float(bits);
  }
  return numbers;
}

std::string floats(const std::vector<float>& numbers) {
  std::string bytes;
  for (const float x : numbers) bytes += raw(x);
  return bytes;
}

/// A folder on disk, gone with the object.
struct disk_folder {
  fs::path path = fs::temp_directory_path() / ("troupe_safetensors_" + std::to_string(::getpid()));
  disk_folder() {
    fs::remove_all(path);
    fs::create_directories(path);
  }
  ~disk_folder() { fs::remove_all(path); }
  void write(const std::string& name, const std::string& text) const {
    std::ofstream(path / name, std::ios::binary) << text;
  }
};

} // namespace

BOOST_AUTO_TEST_SUITE(safetensors)

BOOST_AUTO_TEST_CASE(a_file_gives_its_tensors) {
  safetensors_builder b;
  b.add("b", "F32", "2,3", floats({1, 2, 3, 4, 5, 6}));
  b.add("a", "BF16", "2", std::string("\x80\x3f\x00\x40", 4));
  b.add("empty", "I64", "0,4", "");
  b.add("scalar", "F32", "", floats({7}));
  b.entries.insert(b.entries.begin(), "\"__metadata__\":{\"format\":\"pt\"}");
  const std::string bytes = b.bytes();
  const auto file = safetensors_file::parse(as_bytes(bytes), "t.safetensors");
  BOOST_REQUIRE_MESSAGE(file, file.error().message);
  BOOST_TEST(file->entries().size() == 4U);
  const auto* found = file->find("b");
  BOOST_REQUIRE(found != nullptr);
  BOOST_TEST(describe(*found) == "F32 [2, 3]");
  BOOST_TEST(found->elements == 6U);
  BOOST_TEST(found->data.size() == 24U);
  BOOST_TEST(file->find("scalar")->elements == 1U);
  BOOST_TEST(file->find("empty")->data.empty());
  BOOST_TEST(file->find("c") == nullptr);
}

BOOST_AUTO_TEST_CASE(padding_of_the_header_is_fine) {
  const auto b = headed("{\"x\":{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[0,1]}}    ", "z");
  const std::string bytes = b.bytes();
  BOOST_TEST(safetensors_file::parse(as_bytes(bytes), "t").has_value());
}

BOOST_AUTO_TEST_CASE(headers_that_lie_are_refused) {
  safetensors_builder b;
  for (const std::uint64_t length :
       {std::uint64_t{100}, std::uint64_t{100'000'001}, std::uint64_t{1} << 63, UINT64_MAX}) {
    b.header_length = length;
    BOOST_TEST(says(wrong(b), "states a header of " + std::to_string(length)));
  }
  const auto none = safetensors_file::parse(as_bytes(std::string("abc")), "t.safetensors");
  BOOST_REQUIRE(!none);
  BOOST_TEST(says(none.error().message, "only 3 bytes"));
  BOOST_TEST(says(wrong(headed("[]")), "no JSON object"));
  BOOST_TEST(says(wrong(headed("{\"x\":")), "not valid JSON at byte"));
  BOOST_TEST(says(wrong(headed("{} {}")), "not valid JSON"));
  BOOST_TEST(says(wrong(headed("{\"x\":\"\xff\"}")), "not valid JSON"));
  std::string deep = "{\"x\":";
  for (int i = 0; i < 100; ++i) deep += '[';
  BOOST_TEST(says(wrong(headed(deep)), "nested deeper"));
  b = {};
  b.state("x", "U8", "1", 0, 1).state("x", "U8", "1", 0, 1);
  b.data = "z";
  BOOST_TEST(says(wrong(b), "key 'x' stands twice"));
}

BOOST_AUTO_TEST_CASE(entries_that_make_no_sense_are_refused_by_name) {
  const auto entry = [](const std::string& fields) { return wrong(headed("{\"w\":" + fields + "}", "zz")); };
  BOOST_TEST(says(entry("5"), "tensor 'w'"));
  BOOST_TEST(says(entry("{\"shape\":[2],\"data_offsets\":[0,2]}"), "'dtype'"));
  BOOST_TEST(says(entry("{\"dtype\":\"U8\",\"data_offsets\":[0,2]}"), "'shape'"));
  BOOST_TEST(says(entry("{\"dtype\":\"U8\",\"shape\":[2]}"), "'data_offsets'"));
  BOOST_TEST(
      says(entry("{\"dtype\":\"U8\",\"shape\":[2],\"data_offsets\":[0,2],\"x\":1}"), "'x' is unknown"));
  BOOST_TEST(says(entry("{\"dtype\":\"U8\",\"shape\":[-2],\"data_offsets\":[0,2]}"), "whole number"));
  BOOST_TEST(says(entry("{\"dtype\":\"U8\",\"shape\":[2.0],\"data_offsets\":[0,2]}"), "whole number"));
  BOOST_TEST(says(entry("{\"dtype\":\"U8\",\"shape\":[\"2\"],\"data_offsets\":[0,2]}"), "whole number"));
  BOOST_TEST(says(entry("{\"dtype\":\"U8\",\"shape\":[2],\"data_offsets\":[0,2,3]}"), "two whole numbers"));
  BOOST_TEST(says(entry("{\"dtype\":\"U8\",\"shape\":[2],\"data_offsets\":[2,0]}"), "are not in the file"));
  BOOST_TEST(says(entry("{\"dtype\":\"U8\",\"shape\":[3],\"data_offsets\":[0,3]}"), "are not in the file"));
  BOOST_TEST(says(entry("{\"dtype\":\"U8\",\"shape\":[3],\"data_offsets\":[0,2]}"), "has 2 bytes"));
  BOOST_TEST(
      says(entry("{\"dtype\":\"F32\",\"shape\":[4611686018427387904,4],\"data_offsets\":[0,2]}"), "2^64"));
  BOOST_TEST(says(
      entry("{\"dtype\":\"F32\",\"shape\":[4611686018427387904],\"data_offsets\":[0,2]}"), "has 2 bytes"));
  BOOST_TEST(
      says(entry("{\"dtype\":\"U8\",\"shape\":[1,1,1,1,1,1,1,1,2],\"data_offsets\":[0,2]}"), "dimensions"));
  BOOST_TEST(says(
      wrong(
          headed("{\"w\":{\"dtype\":\"Q4_0\",\"shape\":[2],\"data_offsets\":[0,2]}}", "zz"),
          errc::unsupported),
      "dtype 'Q4_0'"));
  BOOST_TEST(says(wrong(headed("{\"a\\nb\":{}}")), "printable"));
  BOOST_TEST(says(wrong(headed("{\"\":{}}")), "printable"));
}

BOOST_AUTO_TEST_CASE(data_that_overlaps_or_belongs_to_nobody_is_refused) {
  safetensors_builder b;
  b.data = "1234";
  b.state("a", "U8", "3", 0, 3).state("b", "U8", "2", 2, 4);
  BOOST_TEST(says(wrong(b), "tensor 'b' overlaps"));
  b.entries.clear();
  b.state("a", "U8", "1", 0, 1).state("b", "U8", "2", 2, 4);
  BOOST_TEST(says(wrong(b), "in front of tensor 'b'"));
  b.entries.clear();
  b.state("a", "U8", "3", 0, 3);
  BOOST_TEST(says(wrong(b), "last 1 bytes"));
}

BOOST_AUTO_TEST_CASE(float8_codes_have_the_values_of_their_formats) {
  BOOST_TEST(float8_e4m3[0x00] == 0.0F);
  BOOST_TEST(std::signbit(float8_e4m3[0x80]));
  BOOST_TEST(float8_e4m3[0x01] == 0x1p-9F);
  BOOST_TEST(float8_e4m3[0x08] == 0x1p-6F);
  BOOST_TEST(float8_e4m3[0x38] == 1.0F);
  BOOST_TEST(float8_e4m3[0x7e] == 448.0F);
  BOOST_TEST(float8_e4m3[0xfe] == -448.0F);
  BOOST_TEST(std::isnan(float8_e4m3[0x7f]));
  BOOST_TEST(std::isnan(float8_e4m3[0xff]));
  BOOST_TEST(float8_e5m2[0x01] == 0x1p-16F);
  BOOST_TEST(float8_e5m2[0x3c] == 1.0F);
  BOOST_TEST(float8_e5m2[0x7b] == 57344.0F);
  BOOST_TEST(std::isinf(float8_e5m2[0x7c]));
  BOOST_TEST(float8_e5m2[0xfc] < 0.0F);
  BOOST_TEST(std::isnan(float8_e5m2[0x7d]));
}

BOOST_AUTO_TEST_CASE(eight_bit_weights_are_scaled_and_widened) {
  folder_format format;
  format.quantised = true;
  format.widened = ggml_type::f32;
  format.block_rows = 2;
  format.block_columns = 3;
  // [3, 4] of E4M3 ones; a scale per block of 2 x 3.
  safetensors_builder b;
  b.add("m.weight", "F8_E4M3", "3,4", std::string(12, '\x38'));
  b.add("m.weight_scale_inv", "F32", "2,2", floats({1, 2, 3, 4}));
  b.add("m.input_scale", "F32", "", floats({9}));
  auto made = join(b, format);
  BOOST_REQUIRE_MESSAGE(made->folder, made->folder.error().message);
  BOOST_TEST(made->folder->tensors().size() == 1U);
  const model_tensor& m = *made->folder->find_tensor("m.weight");
  BOOST_TEST((decoded(m) == std::vector<float>{1, 1, 1, 2, 1, 1, 1, 2, 3, 3, 3, 4}));
  // Some of its rows know which scales are theirs.
  BOOST_TEST((decoded(rows_of(m, 0, 1, 2)) == std::vector<float>{1, 1, 1, 2, 3, 3, 3, 4}));

  // One scale per row, in BF16; INT8 codes; widened to F16.
  format.widened = ggml_type::f16;
  safetensors_builder rows;
  rows.add("m.weight", "I8", "2,2", std::string("\x01\xff\x7f\x80", 4));
  rows.add("m.weight_scale", "BF16", "2,1", std::string("\x00\x3f\x00\x40", 4)); // 0.5, 2
  made = join(rows, format);
  BOOST_REQUIRE_MESSAGE(made->folder, made->folder.error().message);
  BOOST_TEST((decoded(*made->folder->find_tensor("m.weight")) == std::vector<float>{0.5F, -0.5F, 254, -256}));

  // One for all; and none at all where nothing says that weights are quantised.
  safetensors_builder one;
  one.add("m.weight", "F8_E5M2", "1,2", "\x3c\xc0").add("m.weight_scale", "F32", "1", floats({0.25F}));
  made = join(one, format);
  BOOST_REQUIRE_MESSAGE(made->folder, made->folder.error().message);
  BOOST_TEST((decoded(*made->folder->find_tensor("m.weight")) == std::vector<float>{0.25F, -0.5F}));
  safetensors_builder plain;
  plain.add("m.weight", "F8_E5M2", "1,2", "\x3c\xc0");
  made = join(plain, {});
  BOOST_REQUIRE_MESSAGE(made->folder, made->folder.error().message);
  BOOST_TEST((decoded(*made->folder->find_tensor("m.weight")) == std::vector<float>{1, -2}));
}

BOOST_AUTO_TEST_CASE(bytes_are_whole_numbers_with_scales_and_zero_points) {
  folder_format format;
  format.widened = ggml_type::f32;
  safetensors_builder b;
  b.add("m.weight", "U8", "2,2", std::string("\x01\xff\x7f\x80", 4));
  b.add("m.weight_scale", "F32", "2,1", floats({1, 0.5F}));
  auto made = join(b, format);
  BOOST_REQUIRE_MESSAGE(made->folder, made->folder.error().message);
  BOOST_TEST((decoded(*made->folder->find_tensor("m.weight")) == std::vector<float>{1, 255, 63.5F, 64}));
  b.add("m.weight_zero_point", "U8", "2,1", "\x01\x80");
  made = join(b, format);
  BOOST_REQUIRE_MESSAGE(made->folder, made->folder.error().message);
  BOOST_TEST(made->folder->tensors().size() == 1U);
  BOOST_TEST((decoded(*made->folder->find_tensor("m.weight")) == std::vector<float>{0, 254, -0.5F, 0}));

  safetensors_builder shifted;
  shifted.add("m.weight", "I8", "1,2", "\x01\xff").add("m.weight_scale", "F32", "1", floats({2}));
  shifted.add("m.weight_zero_point", "I8", "1", "\xfe");
  made = join(shifted, format);
  BOOST_REQUIRE_MESSAGE(made->folder, made->folder.error().message);
  BOOST_TEST((decoded(*made->folder->find_tensor("m.weight")) == std::vector<float>{6, 2}));

  for (const auto& [type, shape, bytes] :
       {std::tuple("U8", "1", std::string("1")), {"F32", "2", floats({1, 2})}}) {
    safetensors_builder wrong;
    wrong.add("m.weight", "U8", "2,2", "1234").add("m.weight_scale", "F32", "2,1", floats({1, 2}));
    wrong.add("m.weight_zero_point", type, shape, bytes);
    made = join(wrong, format);
    BOOST_REQUIRE(!made->folder);
    BOOST_TEST(says(made->folder.error().message, "tensor 'm.weight_zero_point' is "));
    BOOST_TEST(says(made->folder.error().message, "each of the 2 scales"));
  }
}

BOOST_AUTO_TEST_CASE(scales_that_are_missing_or_do_not_fit_are_refused_by_name) {
  folder_format format;
  format.quantised = true;
  const auto refusal = [&](const safetensors_builder& b, const folder_format& f) {
    const auto made = join(b, f);
    BOOST_REQUIRE(!made->folder);
    return made->folder.error().message;
  };
  safetensors_builder b;
  b.add("m.weight", "F8_E4M3", "2,2", "1234");
  BOOST_TEST(says(refusal(b, format), "'m.weight_scale_inv'"));
  safetensors_builder whole_numbers;
  whole_numbers.add("m.weight", "I8", "2,2", "1234");
  BOOST_TEST(says(refusal(whole_numbers, {}), "without scales"));
  safetensors_builder shape = b;
  shape.add("m.weight_scale", "F32", "3", floats({1, 2, 3}));
  BOOST_TEST(says(refusal(shape, format), "tensor 'm.weight_scale' is F32 [3]"));
  safetensors_builder type = b;
  type.add("m.weight_scale", "U8", "1", "1");
  BOOST_TEST(says(refusal(type, format), "U8 [1]"));
  safetensors_builder nan = b;
  nan.add("m.weight_scale", "F32", "1", floats({NAN}));
  BOOST_TEST(says(refusal(nan, format), "NaN"));
}

BOOST_AUTO_TEST_CASE(tensors_that_cannot_be_multiplied_are_told_when_they_are_asked_for) {
  safetensors_builder b;
  b.add("ids", "I64", "1", std::string(8, '\0')).add("w", "U8", "1,1", "z");
  const auto made = join(b);
  BOOST_REQUIRE(made->folder);
  BOOST_TEST(made->folder->tensors().empty());
  BOOST_TEST(made->folder->unreadable().size() == 2U);
  const auto asked = made->folder->tensor("w");
  BOOST_REQUIRE(!asked);
  BOOST_TEST((asked.error().code == errc::unsupported));
  BOOST_TEST(says(asked.error().message, "tensor 'w' is U8 [1, 1]: bytes without scales"));
  BOOST_TEST(says(asked.error().message, "pack quantised weights"));
  BOOST_TEST(says(asked.error().message, "or a GGUF file"));
  BOOST_TEST(says(made->folder->tensor("ids").error().message, "tensor 'ids' is I64 [1]; F32,"));
  BOOST_TEST(says(made->folder->tensor("x").error().message, "'x' is missing"));
}

BOOST_AUTO_TEST_CASE(shards_must_fit_their_index) {
  const disk_folder disk;
  const auto refusal = [&](errc code = errc::bad_file) {
    const auto folder = safetensors_folder::open(disk.path.string(), {});
    BOOST_REQUIRE(!folder);
    BOOST_TEST((folder.error().code == code), folder.error().message);
    return folder.error().message;
  };
  const std::string index = "model.safetensors.index.json";
  BOOST_TEST(says(refusal(errc::not_found), "neither model.safetensors nor"));
  disk.write("one.safetensors", safetensors_builder{}.add("a", "F32", "1", floats({1})).bytes());
  disk.write("two.safetensors", safetensors_builder{}.add("b", "F32", "1", floats({2})).bytes());
  disk.write(index, "{\"weight_map\":{\"a\":\"one.safetensors\",\"b\":\"two.safetensors\"}}");
  const auto folder = safetensors_folder::open(disk.path.string(), {});
  BOOST_REQUIRE_MESSAGE(folder, folder.error().message);
  BOOST_TEST(folder->tensors().size() == 2U);

  disk.write(index, "{\"weight_map\":{\"a\":\"one.safetensors\",\"b\":\"three.safetensors\"}}");
  BOOST_TEST(says(
      refusal(errc::not_found), "index.json: lists 2 files, of which 1 is not there: three.safetensors"));
  disk.write(
      index, R"({"weight_map":{"a":"one.safetensors","b":"three.safetensors","c":"four.safetensors"}})");
  BOOST_TEST(
      says(refusal(errc::not_found), "lists 3 files, of which 2 are not there: four.safetensors, ..."));
  disk.write(index, "{\"weight_map\":{\"a\":\"one.safetensors\",\"c\":\"two.safetensors\"}}");
  BOOST_TEST(says(refusal(), "tensor 'b' is not in the index"));
  disk.write(index, "{\"weight_map\":{\"a\":\"one.safetensors\",\"c\":\"one.safetensors\"}}");
  BOOST_TEST(says(refusal(), "lists tensor 'c' in one.safetensors"));
  disk.write(index, "{\"weight_map\":{\"a\":\"two.safetensors\",\"b\":\"one.safetensors\"}}");
  BOOST_TEST(says(refusal(), "belongs in"));
  for (const char* name : {"../one.safetensors", "/etc/passwd", "sub/one.safetensors", "one.bin", ""}) {
    disk.write(index, "{\"weight_map\":{\"a\":\"" + std::string(name) + "\"}}");
    BOOST_TEST(says(refusal(), "is not the name of a .safetensors file"));
  }
  disk.write(index, "{\"weight_map\":{\"a\":1}}");
  BOOST_TEST(says(refusal(), "must be a string"));
  disk.write(index, "{\"weight_map\":{}}");
  BOOST_TEST(says(refusal(), "lists no tensors"));
  disk.write(index, "{}");
  BOOST_TEST(says(refusal(), "weight_map"));
  disk.write("two.safetensors", safetensors_builder{}.add("a", "F32", "1", floats({2})).bytes());
  disk.write(index, "{\"weight_map\":{\"a\":\"one.safetensors\",\"b\":\"two.safetensors\"}}");
  BOOST_TEST(says(refusal(), "belongs in one.safetensors"));
}

BOOST_AUTO_TEST_SUITE_END()
