// SPDX-License-Identifier: Apache-2.0
#include "plugins/host/scheme_registry.hpp"

#include "kernels/packed_weight.hpp"

#include <boost/test/unit_test.hpp>

namespace {

using troupe::errc;
using troupe::plugins::scheme_registry;

std::int32_t run_nothing(const troupe_weight_shape*, const troupe_mm_call*) {
  return TROUPE_OK;
}

troupe_mm_kernel kernel(std::uint32_t isa, std::uint32_t m_min, std::uint32_t m_max) {
  return {sizeof(troupe_mm_kernel), isa, m_min, m_max, nullptr, run_nothing};
}

/// A well-formed scheme whose functions are those of a built-in one.
struct sample {
  std::vector<troupe_mm_kernel> kernels{kernel(TROUPE_ISA_REF, 1, UINT32_MAX)};
  std::vector<const troupe_mm_kernel*> pointers;
  troupe_quant_scheme scheme;

  explicit sample(const char* id = "test.sample") {
    scheme_registry built_in;
    BOOST_REQUIRE(troupe::plugins::add_built_in_schemes(built_in));
    scheme = *built_in.find("gguf.q8_0");
    scheme.id = id;
    use_kernels();
  }
  void use_kernels() {
    pointers.clear();
    for (const troupe_mm_kernel& k : kernels) pointers.push_back(&k);
    scheme.mm = pointers.data();
    scheme.mm_count = static_cast<std::uint32_t>(pointers.size());
  }
};

/// The message of the refusal; fails the test when the table is taken.
std::string refusal(const troupe_quant_scheme* scheme) {
  scheme_registry registry;
  const auto added = registry.add(scheme);
  BOOST_REQUIRE(!added);
  BOOST_TEST(registry.all().empty());
  return added.error().message;
}

bool mentions(const std::string& text, std::string_view what) {
  return text.find(what) != std::string::npos;
}

} // namespace

BOOST_AUTO_TEST_SUITE(scheme_registry_suite)

BOOST_AUTO_TEST_CASE(the_built_in_formats_are_entered_through_the_common_door) {
  scheme_registry registry;
  BOOST_TEST_REQUIRE(static_cast<bool>(troupe::plugins::add_built_in_schemes(registry)));
  for (const char* id :
       {"dense.f32", "dense.f16", "dense.bf16", "gguf.q4_0", "gguf.q4_1", "gguf.q5_0", "gguf.q5_1",
        "gguf.q8_0", "gguf.q4_k", "gguf.q6_k", "gguf.iq4_xs", "gguf.nvfp4"}) {
    const troupe_quant_scheme* scheme = registry.find(id);
    BOOST_TEST_REQUIRE(scheme != nullptr);
    BOOST_TEST(std::string_view(scheme->id) == id);
  }
  BOOST_TEST(registry.all().size() == 26);
  BOOST_TEST(registry.find("gguf.q4_2") == nullptr);
  BOOST_TEST(registry.find("") == nullptr);
  const auto again = troupe::plugins::add_built_in_schemes(registry);
  BOOST_TEST_REQUIRE(!again);
  BOOST_TEST(mentions(again.error().message, "'dense.f32': the id is taken"));
}

BOOST_AUTO_TEST_CASE(a_broken_table_is_refused_with_the_field_at_fault) {
  BOOST_TEST(mentions(refusal(nullptr), "null"));
  sample short_table;
  short_table.scheme.struct_size -= 8;
  BOOST_TEST(mentions(refusal(&short_table.scheme), "headers"));

  const std::string long_id(65, 'a');
  for (const char* id : {"", "Upper", "with space", "new\nline", long_id.c_str()}) {
    const sample bad(id);
    BOOST_TEST(mentions(refusal(&bad.scheme), "id must be"));
  }
  sample no_id;
  no_id.scheme.id = nullptr;
  BOOST_TEST(mentions(refusal(&no_id.scheme), "id must be"));

  const auto broken = [](auto breakage) {
    sample s;
    breakage(s);
    return refusal(&s.scheme);
  };
  BOOST_TEST(mentions(broken([](sample& s) { s.scheme.k_multiple = 0; }), "k_multiple"));
  BOOST_TEST(mentions(broken([](sample& s) { s.scheme.k_multiple = 33; }), "k_multiple"));
  BOOST_TEST(mentions(broken([](sample& s) { s.scheme.source_block_bytes = 0; }), "source_block"));
  BOOST_TEST(mentions(broken([](sample& s) { s.scheme.check = nullptr; }), "check"));
  BOOST_TEST(mentions(broken([](sample& s) { s.scheme.packed_size = nullptr; }), "packed_size"));
  BOOST_TEST(mentions(broken([](sample& s) { s.scheme.pack = nullptr; }), "pack"));
  BOOST_TEST(mentions(broken([](sample& s) { s.scheme.dequantise = nullptr; }), "dequantise"));
  BOOST_TEST(mentions(broken([](sample& s) { s.scheme.mm = nullptr; }), "mm"));
  BOOST_TEST(mentions(broken([](sample& s) { s.scheme.mm_count = 65; }), "1..64"));
  BOOST_TEST(mentions(broken([](sample& s) { s.kernels[0].struct_size = 8; }), "struct_size"));
  BOOST_TEST(mentions(broken([](sample& s) { s.kernels[0].isa = 9; }), "isa 9"));
  BOOST_TEST(mentions(broken([](sample& s) { s.kernels[0].m_min = 0; }), "m_min"));
  BOOST_TEST(mentions(broken([](sample& s) { s.kernels[0].run = nullptr; }), "run"));
  BOOST_TEST(mentions(broken([](sample& s) { s.pointers[0] = nullptr; }), "null"));
}

BOOST_AUTO_TEST_CASE(a_plugin_of_a_later_host_may_have_longer_kernels) {
  struct longer {
    troupe_mm_kernel known;
    std::uint64_t later[3];
  };
  longer kernels[2]{
      {kernel(TROUPE_ISA_REF, 1, UINT32_MAX), {}}, {kernel(TROUPE_ISA_AVX2, 1, UINT32_MAX), {}}};
  sample s;
  s.pointers.clear();
  for (longer& k : kernels) {
    k.known.struct_size = sizeof k;
    s.pointers.push_back(&k.known);
  }
  s.scheme.mm = s.pointers.data();
  s.scheme.mm_count = 2;
  scheme_registry registry;
  BOOST_TEST(static_cast<bool>(registry.add(&s.scheme)));
  BOOST_TEST((troupe::find_mm_kernel(s.scheme, 1, TROUPE_ISA_AVX2) == &kernels[1].known));
}

BOOST_AUTO_TEST_CASE(the_reference_kernels_must_serve_every_row_count) {
  sample gap;
  gap.kernels = {
      kernel(TROUPE_ISA_REF, 1, 4), kernel(TROUPE_ISA_AVX2, 1, UINT32_MAX),
      kernel(TROUPE_ISA_REF, 6, UINT32_MAX)};
  gap.use_kernels();
  BOOST_TEST(mentions(refusal(&gap.scheme), "every row count"));
  gap.kernels.push_back(kernel(TROUPE_ISA_REF, 3, 9));
  gap.use_kernels();
  scheme_registry registry;
  BOOST_TEST(static_cast<bool>(registry.add(&gap.scheme)));
}

BOOST_AUTO_TEST_CASE(the_best_kernel_within_the_machine_and_the_row_count_is_chosen) {
  sample s;
  s.kernels = {
      kernel(TROUPE_ISA_REF, 1, UINT32_MAX), kernel(TROUPE_ISA_AVX512, 1, 8),
      kernel(TROUPE_ISA_AVX2, 1, UINT32_MAX), kernel(TROUPE_ISA_AVX512, 9, 64)};
  s.use_kernels();
  const auto chosen = [&](std::uint32_t m, std::uint32_t isa) {
    return troupe::find_mm_kernel(s.scheme, m, isa) - s.kernels.data();
  };
  BOOST_TEST(chosen(1, TROUPE_ISA_REF) == 0);
  BOOST_TEST(chosen(1, TROUPE_ISA_AVX2) == 2);
  BOOST_TEST(chosen(8, TROUPE_ISA_AVX512) == 1);
  BOOST_TEST(chosen(9, TROUPE_ISA_AMX) == 3);
  BOOST_TEST(chosen(65, TROUPE_ISA_AMX) == 2);
  s.scheme.mm_count = 0;
  BOOST_TEST(troupe::find_mm_kernel(s.scheme, 1, TROUPE_ISA_AMX) == nullptr);
}

BOOST_AUTO_TEST_SUITE_END()
