// SPDX-License-Identifier: Apache-2.0
// GGUF models in several files.
#include "tests/models/gguf_samples.hpp"

#include <boost/test/unit_test.hpp>

#include <filesystem>
#include <fstream>
#include <vector>

using namespace troupe::models;
using namespace troupe::models::test;
using troupe::errc;

namespace {

/// Part `index` (from 0) of `count`, as llama-gguf-split writes them: the first holds the metadata.
gguf_builder split_part(unsigned index, unsigned count, std::int32_t tensors = 3) {
  gguf_builder b;
  if (index == 0) b.text("general.architecture", "llama").u32("llama.block_count", 2);
  b.value("split.no", 2, raw(static_cast<std::uint16_t>(index)));
  b.value("split.count", 2, raw(static_cast<std::uint16_t>(count)));
  b.value("split.tensors.count", 5, raw(tensors));
  b.add(
      numbered("t", static_cast<int>(index)), {4}, ggml_type::f32,
      std::string(16, static_cast<char>('a' + index)));
  return b;
}

/// The parts one after the other, given as bytes.
troupe::result<gguf_file> joined(const std::vector<std::string>& files) {
  std::vector<gguf_part> parts;
  for (const std::string& bytes : files)
    parts.push_back({as_bytes(bytes), numbered("part", static_cast<int>(parts.size() + 1))});
  return gguf_file::parse(parts);
}

std::string join_refusal(const std::vector<gguf_builder>& builders) {
  std::vector<std::string> files;
  for (const gguf_builder& b : builders) files.push_back(b.bytes());
  const auto file = joined(files);
  BOOST_REQUIRE_MESSAGE(!file, "the parts were accepted");
  BOOST_TEST((file.error().code == errc::bad_file));
  return file.error().message;
}

/// An empty folder of its own, gone at the end.
struct temporary_folder {
  std::filesystem::path path = std::filesystem::temp_directory_path() / "troupe_test_gguf_split";
  temporary_folder() {
    std::filesystem::remove_all(path);
    std::filesystem::create_directories(path);
  }
  ~temporary_folder() { std::filesystem::remove_all(path); }
  std::string write(const std::string& name, const gguf_builder& b) const {
    std::ofstream(path / name, std::ios::binary) << b.bytes();
    return (path / name).string();
  }
};

} // namespace

BOOST_AUTO_TEST_SUITE(gguf_split)

BOOST_AUTO_TEST_CASE(the_parts_of_a_split_model_are_one_file) {
  const std::vector<std::string> files{
      split_part(0, 3).bytes(), split_part(1, 3).bytes(), split_part(2, 3).bytes()};
  auto file = joined(files).value();
  BOOST_TEST(file.name() == "part1");
  BOOST_TEST(file.parts() == 3u);
  BOOST_TEST(file.file_bytes() == files[0].size() + files[1].size() + files[2].size());
  BOOST_TEST(file.get<std::uint32_t>("llama.block_count").value() == 2u);
  BOOST_TEST_REQUIRE(file.tensors().size() == 3u);
  for (unsigned i = 0; i < 3; ++i) {
    const auto* tensor = file.tensor(numbered("t", static_cast<int>(i))).value();
    BOOST_TEST((tensor == &file.tensors()[i]));
    BOOST_TEST((tensor->data.front() == std::byte{static_cast<unsigned char>('a' + i)}));
  }
  BOOST_TEST(touch_everything(file) > 0u);
  // A merged file says that it has no parts, and one part is a whole.
  gguf_builder merged = sample();
  merged.value("split.count", 2, raw<std::uint16_t>(0));
  BOOST_TEST(parsed(merged.bytes()).tensors().size() == 3u);
  gguf_builder single = sample();
  single.value("split.count", 2, raw<std::uint16_t>(1)).value("split.no", 2, raw<std::uint16_t>(0));
  BOOST_TEST(parsed(single.bytes()).tensors().size() == 3u);
}

BOOST_AUTO_TEST_CASE(parts_that_do_not_belong_together_are_refused) {
  const auto part = [](unsigned index, unsigned count = 3) { return split_part(index, count); };
  BOOST_TEST(join_refusal({part(0)}) == "part1: is one of 3 parts of a split model, of which 1 are here");
  BOOST_TEST(mentions(join_refusal({part(0), part(1)}), "of which 2 are here"));
  BOOST_TEST(
      join_refusal({part(1), part(0), part(2)}) == "part1: is part 2 of 3 of a split model: open its first "
                                                   "part, whose name ends in '-00001-of-00003.gguf'");
  BOOST_TEST(join_refusal({part(0), part(2), part(1)}) == "part2: is part 3 of 3 where part 2 is expected");
  BOOST_TEST(mentions(join_refusal({part(0), part(0), part(2)}), "part2: is part 1 of 3"));
  BOOST_TEST(
      join_refusal({part(0), part(1, 4), part(2)}) ==
      "part2: belongs to a model of 4 parts, but 'part1' to one of 3");
  BOOST_TEST(mentions(join_refusal({part(0), sample()}), "part2: belongs to a model of 1 parts"));
  BOOST_TEST(mentions(join_refusal({part(0), part(1), part(2), part(2)}), "part4: is part 3 of 3"));
  BOOST_TEST(
      join_refusal({split_part(0, 2, 5), split_part(1, 2, 5)}) ==
      "part1: the 2 parts hold 2 tensors, key 'split.tensors.count' is 5");
  BOOST_TEST(
      join_refusal({split_part(0, 2, 5), split_part(1, 2, 6)}) ==
      "part2: key 'split.tensors.count' differs from that of 'part1'");
  gguf_builder again = split_part(1, 2);
  again.add("t0", {4}, ggml_type::f32, std::string(16, 'z'));
  BOOST_TEST(join_refusal({split_part(0, 2), again}) == "part1: tensor 't0' occurs twice");
  gguf_builder cut = split_part(1, 2, 2);
  cut.data.resize(8);
  BOOST_TEST(mentions(join_refusal({split_part(0, 2, 2), cut}), "part2: tensor 't1': needs 16 bytes"));

  const auto with = [](std::uint64_t index, std::uint64_t count) {
    gguf_builder b = sample();
    b.value("split.no", 10, raw(index)).value("split.count", 10, raw(count));
    return b;
  };
  CHECK_REFUSED(with(3, 3), "'split.no' is 3; a model of 3 parts numbers them from 0");
  CHECK_REFUSED(with(~std::uint64_t{0}, 3), "numbers them from 0");
  CHECK_REFUSED(with(0, 100'000), "'split.count' is 100000; at most 99999");
  CHECK_REFUSED(with(5, ~std::uint64_t{0}), "at most 99999 parts");
  gguf_builder unnumbered = sample();
  unnumbered.value("split.count", 2, raw<std::uint16_t>(4));
  CHECK_REFUSED(unnumbered, "key 'split.no' is missing");
}

BOOST_AUTO_TEST_CASE(parts_are_found_beside_the_first) {
  const temporary_folder folder;
  const std::string first = folder.write("m-00001-of-00003.gguf", split_part(0, 3));
  const std::string second = folder.write("m-00002-of-00003.gguf", split_part(1, 3));
  BOOST_TEST(
      message_of(gguf_file::open(first)) ==
      first + ": part 3 of 3 is missing: " + (folder.path / "m-00003-of-00003.gguf").string() +
          ": cannot open: No such file or directory");
  BOOST_TEST((gguf_file::open(first).error().code == errc::not_found));
  folder.write("m-00003-of-00003.gguf", split_part(2, 3));
  {
    auto file = gguf_file::open(first).value();
    const gguf_file moved = std::move(file);
    BOOST_TEST(moved.tensors().size() == 3u);
    BOOST_TEST((moved.tensor("t2").value()->data.front() == std::byte{'c'}));
    BOOST_TEST(touch_everything(moved) > 0u);
  }
  BOOST_TEST(
      mentions(message_of(gguf_file::open(second)), "is part 2 of 3 of a split model: open its first"));
  const std::string renamed = folder.write("model.gguf", split_part(0, 3));
  BOOST_TEST(
      message_of(gguf_file::open(renamed)) ==
      renamed + ": is the first of 3 parts of a split model; its name must end in '-00001-of-00003.gguf', so "
                "that the others are found");
  gguf_builder big_endian = split_part(1, 3);
  big_endian.version = 0x03000000u;
  folder.write("m-00002-of-00003.gguf", big_endian);
  BOOST_TEST(message_of(gguf_file::open(first)).starts_with(second + ": is a big-endian GGUF file"));
}

BOOST_AUTO_TEST_CASE(a_split_model_with_any_bit_flipped_is_refused_or_stays_within_its_bytes) {
  const std::vector<std::string> whole{split_part(0, 2, 2).bytes(), split_part(1, 2, 2).bytes()};
  for (std::size_t part = 0; part < 2; ++part)
    for (std::size_t bit = 0; bit < whole[part].size() * 8; ++bit) {
      auto flipped = whole;
      flipped[part][bit / 8] = static_cast<char>(flipped[part][bit / 8] ^ (1 << bit % 8));
      if (const auto file = joined(flipped)) touch_everything(*file);
    }
}

BOOST_AUTO_TEST_SUITE_END()
