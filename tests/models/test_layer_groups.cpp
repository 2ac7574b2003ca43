// SPDX-License-Identifier: Apache-2.0
// How the layers of known models are put into groups.
#include "models/layer_groups.hpp"

#include <boost/test/unit_test.hpp>

#include <set>

using namespace troupe::models;

namespace {

/// `layers` layers, every `period`-th of which sees everything.
model_config with_windows(
    std::uint32_t layers, std::uint32_t period, std::uint32_t window, std::uint32_t context = 32768) {
  model_config config;
  config.layers = layers;
  config.context = context;
  config.layer_kinds.resize(layers);
  for (std::uint32_t i = 0; i < layers; ++i)
    if ((i + 1) % period != 0) config.layer_kinds[i].window = window;
  return config;
}

/// The number of groups, after each layer was found in a place of its own in a group of its window.
std::size_t checked(const model_config& config) {
  const layer_groups made = group_layers(config);
  BOOST_REQUIRE_EQUAL(made.places.size(), config.layers);
  std::set<std::pair<std::uint32_t, std::uint32_t>> taken;
  for (std::uint32_t i = 0; i < config.layers; ++i) {
    const kv_place at = made.places[i];
    BOOST_TEST(taken.emplace(at.group, at.layer).second);
    BOOST_TEST(at.layer < made.layers);
    BOOST_REQUIRE(at.group < made.windows.size());
    const std::uint32_t window = config.layer(i).window;
    BOOST_TEST(made.windows[at.group] == (window < config.context ? window : 0));
  }
  const std::uint64_t places = std::uint64_t{made.layers} * made.windows.size();
  BOOST_TEST((places - config.layers) * 16 <= config.layers);
  return made.windows.size();
}

} // namespace

BOOST_AUTO_TEST_SUITE(layer_groups_)

BOOST_AUTO_TEST_CASE(layers_of_one_kind_are_one_group) {
  BOOST_TEST(checked(with_windows(30, 1, 4096)) == 1U);    // none has a window
  BOOST_TEST(checked(with_windows(32, 1000, 4096)) == 1U); // all have, as in Mistral
  BOOST_TEST(group_layers(with_windows(32, 1000, 4096)).layers == 32U);
  BOOST_TEST(checked(with_windows(26, 2, 4096, 4096)) == 1U); // as long as the context: none
  model_config plain;
  plain.layers = 5;
  plain.context = 100;
  BOOST_TEST(checked(plain) == 1U);
}

BOOST_AUTO_TEST_CASE(groups_are_as_large_as_they_can_be_without_much_waste) {
  BOOST_TEST(checked(with_windows(26, 2, 4096)) == 2U); // Gemma 2 2B: 13 and 13
  BOOST_TEST(checked(with_windows(18, 6, 512)) == 6U);  // Gemma 3 270M: 15 and 3
  BOOST_TEST(checked(with_windows(26, 6, 512)) == 13U); // 1B: 22 and 4
  BOOST_TEST(checked(with_windows(34, 6, 1024)) == 6U); // 4B: 29 and 5, two places of 36 empty
  BOOST_TEST(checked(with_windows(48, 6, 1024)) == 5U); // 12B: 40 and 8, two of 50
  BOOST_TEST(checked(with_windows(62, 6, 1024)) == 5U); // 27B: 52 and 10, three of 65
  for (std::uint32_t layers = 1; layers < 70; ++layers)
    for (const std::uint32_t period : {2U, 3U, 4U, 6U, 7U}) checked(with_windows(layers, period, 16));
}

BOOST_AUTO_TEST_SUITE_END()
