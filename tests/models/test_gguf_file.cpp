// SPDX-License-Identifier: Apache-2.0
#include "models/gguf_file.hpp"

#include "tests/models/allocation_meter.hpp"
#include "tests/models/gguf_samples.hpp"
#include "tests/models/shared_files.hpp"

#include <boost/test/unit_test.hpp>

#include <sys/stat.h>

#include <filesystem>
#include <fstream>

using namespace troupe::models;
using namespace troupe::models::test;
using troupe::errc;

BOOST_AUTO_TEST_SUITE(gguf_file_suite)

BOOST_AUTO_TEST_CASE(values_and_tensors_of_a_well_formed_file_are_found) {
  for (const std::uint32_t version : {2u, 3u}) {
    gguf_builder b = sample();
    b.version = version;
    const std::string bytes = b.bytes();
    const gguf_file file = parsed(bytes);
    BOOST_TEST(file.version() == version);
    BOOST_TEST(file.alignment() == 32u);
    BOOST_TEST(file.file_bytes() == bytes.size());
    BOOST_TEST(file.get<std::string_view>("general.architecture").value() == "llama");
    BOOST_TEST(file.get<std::uint32_t>("llama.block_count").value() == 2u);
    BOOST_TEST(file.get<std::uint32_t>("a.u8").value() == 200u);
    BOOST_TEST(file.get<std::int32_t>("a.i8").value() == -5);
    BOOST_TEST(file.get<std::int32_t>("a.u16").value() == 65535);
    BOOST_TEST(file.get<std::int64_t>("a.i16").value() == -300);
    BOOST_TEST(file.get<std::int32_t>("a.i32").value() == -70000);
    BOOST_TEST(file.get<float>("a.f32").value() == 1.5F);
    BOOST_TEST(file.get<double>("a.f32").value() == 1.5);
    BOOST_TEST(file.get<bool>("a.bool").value());
    BOOST_TEST(file.get<std::uint64_t>("a.u64").value() == std::uint64_t{1} << 40);
    BOOST_TEST(file.get<std::int64_t>("a.i64").value() == -(std::int64_t{1} << 40));
    BOOST_TEST(file.get<float>("a.f64").value() == 0.25F);
    BOOST_TEST(
        (file.get_array<std::string_view>("tokens").value() ==
         std::vector<std::string_view>{"<s>", "", "a\nb"}));
    BOOST_TEST((file.get_array<float>("scores").value() == std::vector<float>{0.5F, -1.0F}));
    BOOST_TEST((file.get_array<std::int64_t>("ids").value() == std::vector<std::int64_t>{1, -2, 3}));
    BOOST_TEST((file.get_array<bool>("flags").value() == std::vector<bool>{true, false}));
    BOOST_TEST(file.get_array<std::string_view>("nothing").value().empty());

    BOOST_TEST(file.tensors().size() == 3u);
    const gguf_tensor* q8 = file.tensor("q8").value();
    BOOST_TEST((q8->type == ggml_type::q8_0));
    BOOST_TEST(q8->rank == 2u);
    BOOST_TEST((q8->ne == std::array<std::uint64_t, 4>{32, 2, 1, 1}));
    BOOST_TEST(q8->data.size() == 68u);
    BOOST_TEST((q8->data.front() == std::byte{'x'} && q8->data.back() == std::byte{'x'}));
    BOOST_TEST(describe(*q8) == "Q8_0 [32, 2]");
    BOOST_TEST(file.find_tensor("cube")->elements == 24u);
    BOOST_TEST(file.find_tensor("q9") == nullptr);
    BOOST_TEST(message_of(file.tensor("q9")) == "test.gguf: tensor 'q9' is missing");
  }
}

BOOST_AUTO_TEST_CASE(getters_name_the_key_what_it_is_and_what_is_needed) {
  const std::string bytes = sample().bytes();
  const gguf_file file = parsed(bytes);
  BOOST_TEST(
      message_of(file.get<std::uint32_t>("llama.head_count")) ==
      "test.gguf: key 'llama.head_count' is missing; an integer is needed");
  BOOST_TEST(
      message_of(file.get<std::uint32_t>("general.architecture")) ==
      "test.gguf: key 'general.architecture' is of type string; an integer is needed");
  BOOST_TEST(
      message_of(file.get<float>("llama.block_count")) ==
      "test.gguf: key 'llama.block_count' is of type u32; a float is needed");
  BOOST_TEST(message_of(file.get<bool>("a.u8")) == "test.gguf: key 'a.u8' is of type u8; a bool is needed");
  BOOST_TEST(
      message_of(file.get<std::uint32_t>("a.i8")) ==
      "test.gguf: key 'a.i8' is -5; the allowed range is 0..4294967295");
  BOOST_TEST(
      message_of(file.get<std::int32_t>("a.u64")) ==
      "test.gguf: key 'a.u64' is 1099511627776; the allowed range is -2147483648..2147483647");
  BOOST_TEST(
      message_of(file.get<std::string_view>("tokens")) ==
      "test.gguf: key 'tokens' is an array of string; a string is needed");
  BOOST_TEST(mentions(message_of(file.get_array<float>("tokens")), "each element a float"));
  BOOST_TEST(mentions(message_of(file.get_array<std::uint32_t>("ids")), "element 1 is -2"));
  BOOST_TEST(mentions(message_of(file.get_array<std::uint32_t>("a.u8")), "is of type u8; an array"));
  BOOST_TEST(mentions(message_of(file.get_array<float>("absent")), "'absent' is missing"));

  BOOST_TEST(!file.find<std::uint32_t>("absent").value().has_value());
  BOOST_TEST(file.find<std::uint32_t>("a.u8").value().value() == 200u);
  BOOST_TEST(!file.find<std::uint32_t>("tokens"));
  BOOST_TEST(!file.find_array<float>("absent").value().has_value());
  BOOST_TEST(file.find_array<float>("scores").value()->size() == 2u);
  BOOST_TEST(!file.find_array<float>("ids"));
}

BOOST_AUTO_TEST_CASE(descriptions_are_one_short_printable_line) {
  gguf_builder b = sample();
  b.text("long", std::string(300, 'z')).text("odd", "a\x01\x7f\n");
  b.array("many", 4, 20, [] {
    std::string all;
    for (std::uint32_t i = 0; i < 20; ++i) all += raw(i);
    return all;
  }());
  const std::string bytes = b.bytes();
  const gguf_file file = parsed(bytes);
  const auto line = [&](std::string_view key) { return describe(*file.find_value(key)); };
  BOOST_TEST(line("a.i16") == "-300");
  BOOST_TEST(line("a.bool") == "true");
  BOOST_TEST(line("tokens") == R"(["<s>", "", "a\nb"])");
  BOOST_TEST(line("nothing") == "[]");
  BOOST_TEST(line("odd") == R"("a\x01\x7f\n")");
  BOOST_TEST(line("long") == "\"" + std::string(80, 'z') + "... (300 bytes)\"");
  BOOST_TEST(line("many") == "[0, 1, 2, 3, 4, 5, 6, 7, ... (20)]");
}

BOOST_AUTO_TEST_CASE(values_are_described_exactly_and_as_well_formed_text) {
  gguf_builder b;
  b.value("small", 6, raw(1e-5F)).value("third", 12, raw(1.0 / 3)).value("tenth", 6, raw(0.1F));
  b.text("quoted", R"(say "hi" \ there)").text("cut", std::string(79, 'z') + "é" + std::string(10, 'z'));
  const std::string bytes = b.bytes();
  const gguf_file file = parsed(bytes);
  const auto line = [&](std::string_view key) { return describe(*file.find_value(key)); };
  BOOST_TEST(line("small") == "1e-05");
  BOOST_TEST(line("third") == "0.3333333333333333");
  BOOST_TEST(line("tenth") == "0.1");
  BOOST_TEST(line("quoted") == R"("say \"hi\" \\ there")");
  BOOST_TEST(line("cut") == "\"" + std::string(79, 'z') + "... (91 bytes)\"");
}

BOOST_AUTO_TEST_CASE(a_file_written_by_the_gguf_package_is_read) {
  const auto file = gguf_file::open(TROUPE_TEST_DATA "/gguf_blocks.gguf").value();
  BOOST_TEST(file.tensors().size() == 10u);
  BOOST_TEST(describe(*file.tensor("q5_1").value()) == "Q5_1 [64, 3]");
  BOOST_TEST(describe(*file.tensor("q5_1.expected").value()) == "F32 [64, 3]");
  BOOST_TEST(touch_everything(file) > 0u);
}

BOOST_AUTO_TEST_CASE(files_with_a_vocabulary_only_are_read) {
  for (const auto& [name, tokens] :
       {std::pair{"gpt-2", 50257u}, std::pair{"llama-spm", 32000u}, std::pair{"deepseek-llm", 102400u}}) {
    const auto path = shared_file("data/vocab/ggml-vocab-" + std::string(name) + ".gguf");
    if (!path) return;
    const auto file = gguf_file::open(path->string()).value();
    BOOST_TEST(file.tensors().empty());
    BOOST_TEST(file.get_array<std::string_view>("tokenizer.ggml.tokens").value().size() == tokens);
    BOOST_TEST(touch_everything(file) > 0u);
  }
}

BOOST_AUTO_TEST_CASE(the_default_model_is_read) {
  const auto path = default_model();
  if (!path) return;
  const auto file = gguf_file::open(path->string()).value();
  BOOST_TEST(file.tensors().size() == 272u);
  BOOST_TEST(file.get<std::uint32_t>("llama.embedding_length").value() == 576u);
  BOOST_TEST(describe(*file.tensor("token_embd.weight").value()) == "Q8_0 [576, 49152]");
}

BOOST_AUTO_TEST_CASE(what_is_not_a_regular_file_with_bytes_is_refused) {
  const auto folder = std::filesystem::temp_directory_path() / "troupe_test_gguf_file";
  std::filesystem::remove_all(folder);
  std::filesystem::create_directories(folder);
  const auto message = [&](const std::string& path) { return message_of(gguf_file::open(path)); };
  const std::string absent = (folder / "absent").string();
  BOOST_TEST(message(absent) == absent + ": cannot open: No such file or directory");
  BOOST_TEST((gguf_file::open(absent).error().code == errc::not_found));
  BOOST_TEST(message(folder.string()) == folder.string() + ": is not a regular file");
  BOOST_TEST(message("/dev/zero") == "/dev/zero: is not a regular file");
  const std::string fifo = (folder / "fifo").string();
  BOOST_REQUIRE_EQUAL(::mkfifo(fifo.c_str(), 0600), 0);
  BOOST_TEST(message(fifo) == fifo + ": is not a regular file");
  const std::string empty = (folder / "empty").string();
  std::ofstream{empty};
  BOOST_TEST(message(empty) == empty + ": the file is empty");
  std::filesystem::remove_all(folder);
}

BOOST_AUTO_TEST_CASE(other_formats_and_versions_are_told_apart) {
  gguf_builder b = sample();
  b.magic = "ggjt";
  CHECK_REFUSED(b, "is not a GGUF file");
  b = sample();
  for (const std::uint32_t version : {0u, 1u, 4u, 0xffffffffu}) {
    b.version = version;
    const std::string said = refusal(b, errc::unsupported);
    BOOST_TEST(mentions(said, "versions 2 and 3"), said);
  }
  b.version = 0x03000000u;
  BOOST_TEST(mentions(refusal(b, errc::unsupported), "big-endian"));
}

BOOST_AUTO_TEST_CASE(types_that_were_withdrawn_are_named) {
  for (const auto& [number, name] : std::vector<std::pair<std::uint32_t, const char*>>{
           {4, "Q4_2"}, {31, "Q4_0_4_4"}, {33, "Q4_0_8_8"}, {36, "IQ4_NL_4_4"}, {38, "IQ4_NL_8_8"}}) {
    gguf_builder b;
    b.tensor("w", {256}, number, 0);
    b.data = std::string(256, 'x');
    const std::string said = refusal(b, errc::unsupported);
    BOOST_TEST(mentions(said, name), said);
    BOOST_TEST(mentions(said, "withdrawn"), said);
  }
}

BOOST_AUTO_TEST_CASE(counts_that_the_file_has_no_room_for_are_refused_without_allocating) {
  const auto check = [](const gguf_builder& b, std::string_view what) {
    const std::string bytes = b.bytes();
    const std::uint64_t before = troupe::test::allocated_bytes();
    const auto file = gguf_file::parse(as_bytes(bytes), "test.gguf");
    const std::uint64_t used = troupe::test::allocated_bytes() - before;
    BOOST_REQUIRE(!file);
    BOOST_TEST(mentions(file.error().message, what), file.error().message);
    BOOST_TEST(used < 64u * 1024);
  };
  for (const std::uint64_t count : {std::uint64_t{1} << 60, ~std::uint64_t{0}, std::uint64_t{100'000}}) {
    gguf_builder b;
    b.text("k", std::string(100, 'v'));
    b.tensor_count = count;
    check(b, "tensors; a file of");
    b.tensor_count.reset();
    b.value_count = count;
    check(b, "metadata entries; a file of");

    gguf_builder array;
    array.array("k", 4, count, std::string(100, 'v'));
    check(array, "key 'k'");
    gguf_builder strings;
    strings.array("k", 8, count, std::string(100, '\0'));
    check(strings, "key 'k'");
    gguf_builder text;
    text.value("k", 8, raw(count) + std::string(100, 'v'));
    check(text, "key 'k'");
    gguf_builder key;
    key.values.push_back(raw(count) + std::string(100, 'v'));
    check(key, "the key has");
    gguf_builder name;
    name.tensors.push_back(raw(count) + std::string(100, 'v'));
    check(name, "the name has");
  }
  gguf_builder text;
  text.value("k", 8, raw(std::uint64_t{1} << 30) + std::string(100, 'v'));
  check(text, "needs 1073741824 bytes, but only 100 are left");
}

BOOST_AUTO_TEST_CASE(metadata_out_of_format_is_refused) {
  const auto with = [](auto change) {
    gguf_builder b = sample();
    change(b);
    return b;
  };
  CHECK_REFUSED(with([](auto& b) { b.u32("llama.block_count", 3); }), "'llama.block_count' occurs twice");
  CHECK_REFUSED(with([](auto& b) { b.u32("", 3); }), "the key has 0 characters");
  CHECK_REFUSED(with([](auto& b) { b.u32("a\nb", 3); }), "printable ASCII");
  CHECK_REFUSED(with([](auto& b) { b.u32("\xc3\xa9", 3); }), "printable ASCII");
  CHECK_REFUSED(with([](auto& b) { b.value("k", 13, raw(0)); }), "value type 13 is unknown");
  CHECK_REFUSED(with([](auto& b) { b.value("k", 7, raw<std::uint8_t>(2)); }), "must be 0 or 1");
  CHECK_REFUSED(with([](auto& b) { b.array("k", 7, 2, "\1\7"); }), "must be 0 or 1");
  CHECK_REFUSED(with([](auto& b) { b.array("k", 99, 1, raw(0)); }), "value type 99 is unknown");
  gguf_builder nested = sample();
  nested.array("k", 9, 1, raw(4u) + raw(std::uint64_t{1}) + raw(0u));
  BOOST_TEST(mentions(refusal(nested, errc::unsupported), "arrays of arrays"));
  CHECK_REFUSED(
      with([](auto& b) { b.value("split.count", 8, raw_string("2")); }), "'split.count' is of type string");
  CHECK_REFUSED(
      with([](auto& b) { b.u32("split.count", 2).value("split.no", 5, raw(-1)); }), "'split.no' is -1");
}

BOOST_AUTO_TEST_CASE(only_sane_alignments_are_taken) {
  for (const std::uint32_t alignment : {0u, 1u, 3u, 4u, 33u, 1u << 17, 1u << 30, ~0u}) {
    gguf_builder b = sample();
    b.u32("general.alignment", alignment);
    CHECK_REFUSED(b, "powers of two in 8..65536");
  }
  gguf_builder b = sample();
  b.value("general.alignment", 10, raw(std::uint64_t{32}));
  CHECK_REFUSED(b, "must be a u32");
  b = gguf_builder{};
  b.alignment = 256;
  b.u32("general.alignment", 256).add("a", {4}, ggml_type::f32, std::string(16, 'p'));
  b.add("b", {4}, ggml_type::f32, std::string(16, 'q'));
  const std::string bytes = b.bytes();
  const gguf_file file = parsed(bytes);
  BOOST_TEST((file.tensor("b").value()->data.front() == std::byte{'q'}));
}

BOOST_AUTO_TEST_CASE(tensors_out_of_format_are_refused) {
  constexpr std::uint64_t huge = ~std::uint64_t{0};
  const auto with = [](std::string_view name, std::vector<std::uint64_t> ne, std::uint32_t type,
                       std::uint64_t offset) {
    gguf_builder b = sample();
    b.tensor(name, std::move(ne), type, offset);
    b.data.resize(4096, '\0');
    return b;
  };
  CHECK_REFUSED(with("t", {}, 0, 256), "has 0 dimensions; 1..4");
  CHECK_REFUSED(with("t", {1, 1, 1, 1, 1}, 0, 256), "has 5 dimensions; 1..4");
  CHECK_REFUSED(with("t", {0}, 0, 256), "dimension 0 is 0");
  CHECK_REFUSED(with("t", {4, 0}, 0, 256), "dimension 1 is 0");
  CHECK_REFUSED(with("t", {huge}, 0, 256), "below 2^48");
  CHECK_REFUSED(with("t", {huge / 4, 1}, 0, 256), "below 2^48");
  CHECK_REFUSED(with("t", {1ULL << 32, 1ULL << 32}, 0, 256), "below 2^48");
  CHECK_REFUSED(with("t", {32, huge / 32 + 2}, 8, 256), "below 2^48");
  CHECK_REFUSED(with("t", {1ULL << 47}, 0, 256), "the file is truncated or damaged");
  CHECK_REFUSED(with("t", {4}, 99, 256), "type 99 is unknown");
  CHECK_REFUSED(with("t", {4}, ~0u, 256), "type 4294967295 is unknown");
  CHECK_REFUSED(with("t", {33}, 8, 256), "cannot be cut into the 32-element blocks of Q8_0");
  CHECK_REFUSED(with("t", {16, 2}, 3, 256), "cannot be cut into the 32-element blocks of Q4_1");
  CHECK_REFUSED(with("t", {4}, 0, 257), "not a multiple of the alignment 32");
  CHECK_REFUSED(
      with("t", {4}, 0, 4096), "needs 16 bytes at offset 4096 of the tensor data, which has 4096 bytes");
  CHECK_REFUSED(with("t", {9}, 0, 4064), "needs 36 bytes");
  CHECK_REFUSED(with("t", {4}, 0, huge / 32 * 32), "truncated or damaged");
  CHECK_REFUSED(with("t", {4}, 0, 0), "'norm' and 't' overlap");
  CHECK_REFUSED(with("t", {8, 8}, 0, 128), "overlap");
  CHECK_REFUSED(with("norm", {4}, 0, 256), "tensor 'norm' occurs twice");
  CHECK_REFUSED(with("", {4}, 0, 256), "the name has 0 characters");
  CHECK_REFUSED(with(std::string(65, 'n'), {4}, 0, 256), "the name has 65 characters");
  CHECK_REFUSED(with("a\x1b[2J", {4}, 0, 256), "printable ASCII");
  BOOST_TEST(parsed(with(std::string(64, 'n'), {1020, 1, 1, 1}, 1, 256).bytes()).tensors().size() == 4u);
}

BOOST_AUTO_TEST_CASE(a_file_cut_at_any_byte_is_refused) {
  const std::string whole = sample().bytes();
  for (std::size_t length = 0; length < whole.size(); ++length) {
    // A copy of its own, so that the sanitizer sees any read beyond the end.
    const std::string cut = whole.substr(0, length);
    const auto file = gguf_file::parse(as_bytes(cut), "cut.gguf");
    BOOST_TEST(!file, "cut at " << length);
  }
  BOOST_TEST(parsed(whole).tensors().size() == 3u);
}

BOOST_AUTO_TEST_CASE(a_file_with_any_bit_flipped_is_refused_or_stays_within_its_bytes) {
  const std::string whole = sample().bytes();
  std::size_t refused = 0;
  for (std::size_t bit = 0; bit < whole.size() * 8; ++bit) {
    std::string flipped = whole;
    flipped[bit / 8] = static_cast<char>(flipped[bit / 8] ^ (1 << bit % 8));
    const auto file = gguf_file::parse(as_bytes(flipped), "flipped.gguf");
    if (!file) {
      ++refused;
      continue;
    }
    touch_everything(*file);
    const auto all = as_bytes(flipped);
    for (const gguf_tensor& tensor : file->tensors())
      BOOST_REQUIRE(
          (tensor.data.data() >= all.data() &&
           tensor.data.data() + tensor.data.size() <= all.data() + all.size()));
  }
  BOOST_TEST(refused > whole.size());
}

BOOST_AUTO_TEST_CASE(what_a_file_makes_us_allocate_is_a_small_multiple_of_its_size) {
  gguf_builder b;
  for (int i = 0; i < 5000; ++i) b.value(numbered("k", i), 0, "x");
  for (int i = 0; i < 5000; ++i) b.tensor(numbered("t", i), {1}, 24, static_cast<std::uint64_t>(i) * 32);
  b.data.resize(5000 * 32, '\0');
  const std::string bytes = b.bytes();
  const std::uint64_t before = troupe::test::allocated_bytes();
  const gguf_file file = parsed(bytes);
  BOOST_TEST(troupe::test::allocated_bytes() - before < 8 * bytes.size());
  BOOST_TEST(file.tensors().size() == 5000u);
}

BOOST_AUTO_TEST_CASE(a_file_object_can_be_moved) {
  auto first = gguf_file::open(TROUPE_TEST_DATA "/gguf_blocks.gguf").value();
  const gguf_tensor* tensor = first.find_tensor("q4_0");
  const gguf_file second = std::move(first);
  BOOST_TEST(second.find_tensor("q4_0") == tensor);
  BOOST_TEST(touch_everything(second) > 0u);
}

BOOST_AUTO_TEST_SUITE_END()
