// SPDX-License-Identifier: Apache-2.0
// For fuzz targets of stream decoders: the outcome must not depend on how the bytes were split.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string>
#include <string_view>

namespace troupe::test {

/// `run(bytes, step)` feeds pieces of `step` bytes and returns all that can be observed; aborts unless the
/// bytes whole, one by one and in pieces whose size they choose themselves give the same.
template<class Run>
void require_same_however_split(const std::uint8_t* data, std::size_t size, Run run) {
  if (size == 0) return;
  const std::string_view bytes(reinterpret_cast<const char*>(data), size);
  const std::string whole = run(bytes, size);
  if (run(bytes, 1) != whole || run(bytes, 1 + data[0] % 17) != whole) std::abort();
}

} // namespace troupe::test
