// SPDX-License-Identifier: Apache-2.0
// Validation of scheme tables.
#include "plugins/host/scheme_registry.hpp"

#include "kernels/dense_schemes.hpp"
#include "plugins/gguf_blocks/gguf_blocks.h"

#include <algorithm>
#include <cstring>
#include <span>
#include <string>

namespace troupe::plugins {

namespace {

constexpr std::size_t max_id_length = 64;

bool is_id(std::string_view id) {
  const auto allowed = [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '.' || c == '_' || c == '-';
  };
  return !id.empty() && id.size() <= max_id_length && std::all_of(id.begin(), id.end(), allowed);
}

/// The id without trusting it to end.
std::string_view bounded_id(const char* id) {
  return id == nullptr ? std::string_view{} : std::string_view{id, ::strnlen(id, max_id_length + 1)};
}

/// One sentence on what is wrong with a kernel, or empty.
std::string kernel_fault(const troupe_mm_kernel* entry) {
  if (entry == nullptr) return "its pointer is null";
  const troupe_mm_kernel& kernel = *entry;
  if (kernel.struct_size < sizeof kernel) return "its struct_size is shorter than troupe_mm_kernel";
  if (kernel.isa > TROUPE_ISA_AMX)
    return "isa " + std::to_string(kernel.isa) + " is not a TROUPE_ISA_* value";
  if (kernel.m_min == 0 || kernel.m_min > kernel.m_max)
    return "m_min..m_max is not a range of row counts >= 1";
  if (kernel.run == nullptr) return "run is null";
  return {};
}

/// Row counts 1.. must all be served by the reference kernels, so that every machine has a way.
bool reference_serves_all_rows(const troupe_quant_scheme& scheme) {
  std::uint64_t next = 1;
  for (bool grown = true; grown;) {
    grown = false;
    for (std::uint32_t i = 0; i < scheme.mm_count; ++i) {
      const troupe_mm_kernel& kernel = *scheme.mm[i];
      if (kernel.isa != TROUPE_ISA_REF || kernel.m_min > next || kernel.m_max < next) continue;
      next = std::uint64_t{kernel.m_max} + 1;
      grown = true;
    }
  }
  return next > UINT32_MAX;
}

std::string scheme_fault(const troupe_quant_scheme& scheme) {
  if (scheme.k_multiple == 0) return "k_multiple is 0";
  if (scheme.source_block_elements == 0 || scheme.source_block_bytes == 0)
    return "source_block_elements or source_block_bytes is 0";
  if (scheme.k_multiple % scheme.source_block_elements != 0)
    return "k_multiple is not a multiple of source_block_elements";
  if (scheme.check == nullptr || scheme.packed_size == nullptr || scheme.pack == nullptr ||
      scheme.dequantise == nullptr)
    return "check, packed_size, pack or dequantise is null";
  if (scheme.mm == nullptr || scheme.mm_count == 0 || scheme.mm_count > 64)
    return "mm must hold 1..64 kernels";
  for (std::uint32_t i = 0; i < scheme.mm_count; ++i)
    if (auto fault = kernel_fault(scheme.mm[i]); !fault.empty())
      return "kernel " + std::to_string(i) + ": " + fault;
  if (!reference_serves_all_rows(scheme)) return "its TROUPE_ISA_REF kernels do not serve every row count";
  return {};
}

} // namespace

result<void> scheme_registry::add(const troupe_quant_scheme* scheme) {
  if (scheme == nullptr) return error{errc::bad_file, "quantisation scheme: the table is null", {}, 0};
  if (scheme->struct_size < sizeof *scheme)
    return error{
        errc::unsupported,
        "quantisation scheme: its table has " + std::to_string(scheme->struct_size) +
            " bytes, this host needs " + std::to_string(sizeof *scheme) +
            ": build the plugin against this version's headers",
        {},
        0};
  const std::string_view id = bounded_id(scheme->id);
  if (!is_id(id))
    return error{
        errc::bad_file,
        "quantisation scheme: the id must be 1..64 characters of a-z, 0-9, '.', '_', '-'",
        {},
        0};
  if (find(id) != nullptr)
    return error{errc::bad_file, "quantisation scheme '" + std::string(id) + "': the id is taken", {}, 0};
  if (auto fault = scheme_fault(*scheme); !fault.empty())
    return error{errc::bad_file, "quantisation scheme '" + std::string(id) + "': " + fault, {}, 0};
  schemes_.push_back(scheme);
  return {};
}

const troupe_quant_scheme* scheme_registry::find(std::string_view id) const noexcept {
  const auto match = [id](const troupe_quant_scheme* scheme) { return id == scheme->id; };
  const auto found = std::find_if(schemes_.begin(), schemes_.end(), match);
  return found == schemes_.end() ? nullptr : *found;
}

result<void> add_built_in_schemes(scheme_registry& registry) {
  std::uint32_t count = 0;
  const troupe_quant_scheme* const* blocks = troupe_gguf_blocks_schemes(&count);
  for (const auto schemes : {kernels::dense_schemes(), std::span(blocks, count)})
    for (const troupe_quant_scheme* scheme : schemes)
      if (auto added = registry.add(scheme); !added) return added.error();
  return {};
}

} // namespace troupe::plugins
