// SPDX-License-Identifier: Apache-2.0
// Paged attention over vectors: which queries meet which tile when. Templates only, see vector_avx2.hpp.
//
// A query is one (row, head) pair; queries of the group's heads and of neighbouring rows go through a tile
// together, so that a key is widened once for all of them. For one query the operations never depend on its
// neighbours:
//   scores   one chain over head_dim, lane = position; then the soft cap, if there is one;
//   peak     the larger of the old and of the tile's; sums and total are scaled by exp(old - new);
//   outputs  one chain over the tile's positions from the start of the query's window up to its own.
// A tile that lies wholly before a query's window is as if it were not there.
#pragma once

#include "kernels/attention.hpp"
#include "kernels/cpu/vector_exp.hpp"

#include <cstddef>
#include <cstdint>

namespace troupe::kernels {

/// The element types of the cache: how a vector of them is read and written.
template<class Machine>
struct f32_cache {
  using stored = float;
  static typename Machine::vec load(const float* p) { return Machine::load(p); }
  static typename Machine::vec load_part(const float* p, std::uint32_t n) { return Machine::load_part(p, n); }
  static void store_part(float* p, typename Machine::vec x, std::uint32_t n) {
    Machine::store_f32_part(p, x, n);
  }
};

template<class Machine>
struct f16_cache {
  using stored = std::uint16_t;
  static typename Machine::vec load(const stored* p) { return Machine::load_f16(p); }
  static typename Machine::vec load_part(const stored* p, std::uint32_t n) {
    return Machine::load_f16_part(p, n);
  }
  static void store_part(stored* p, typename Machine::vec x, std::uint32_t n) {
    Machine::store_f16_part(p, x, n);
  }
};

template<class Machine>
struct bf16_cache {
  using stored = std::uint16_t;
  static typename Machine::vec load(const stored* p) { return Machine::load_bf16(p); }
  static typename Machine::vec load_part(const stored* p, std::uint32_t n) {
    return Machine::load_bf16_part(p, n);
  }
  static void store_part(stored* p, typename Machine::vec x, std::uint32_t n) {
    Machine::store_bf16_part(p, x, n);
  }
};

/// `Queries`: how many go through a tile side by side; `Values`: vectors of outputs per query in one pass
/// over it.
template<class Machine, class Cache, int Queries, int Values>
struct attention_driver {
  using m = Machine;
  using vec = typename Machine::vec;
  using stored = typename Cache::stored;
  using widened = f32_cache<Machine>;
  static constexpr std::uint32_t width = Machine::width;
  static constexpr std::uint32_t tile = kv_tile_tokens;
  static constexpr int key_vectors = static_cast<int>(tile / width);

  /// The parts of the scratch.
  struct workspace {
    float* keys;    // [head_dim][32], one tile widened
    float* values;  // [32][padded]
    float* queries; // [chunks][head_dim][Queries], scaled
    float* sums;    // [queries][padded]
    float* peaks;   // [queries]
    float* totals;  // [queries]
    float* weights; // [Queries][32]
    std::uint32_t padded;

    explicit workspace(const attention_call& call) : padded((call.head_dim + 15) / 16 * 16) {
      const std::size_t chunks = (std::size_t{call.rows} * call.group + Queries - 1) / Queries;
      keys = static_cast<float*>(call.scratch);
      values = keys + std::size_t{tile} * padded;
      weights = values + std::size_t{tile} * padded;
      queries = weights + std::size_t{Queries} * tile;
      sums = queries + chunks * Queries * padded;
      peaks = sums + chunks * Queries * padded;
      totals = peaks + chunks * Queries;
    }
  };

  static void attend(const attention_call& call) {
    const workspace work(call);
    const std::uint32_t queries = call.rows * call.group;
    pack_queries(call, work, queries);
    const std::uint32_t last = call.first_position + call.rows - 1;
    const std::uint32_t first = first_read(call.first_position, call.window) / tile * tile;
    for (std::uint32_t start = first; start <= last; start += tile) {
      const std::byte* at = tile_at(call, start / tile);
      const auto* keys = reinterpret_cast<const stored*>(at);
      const auto* values = keys + std::size_t{tile} * call.head_dim;
      const std::uint32_t first_row = start > call.first_position ? start - call.first_position : 0;
      const std::uint32_t first_chunk = first_row * call.group / Queries;
      const std::uint32_t readers = rows_reaching(call, start) * call.group;
      if (readers - first_chunk * Queries > Queries) {
        // Several chunks: widening the tile once is cheaper than in each.
        const std::uint32_t seen = last - start + 1 < tile ? last - start + 1 : tile;
        widen(keys, values, call.head_dim, seen, work);
        for (std::uint32_t q = first_chunk * Queries; q < readers; q += Queries)
          chunk<widened, false>(call, work, start, q, readers, work.keys, work.values, work.padded, at);
      } else {
        // Of the memory that comes next only its owner knows the address: the processor cannot foresee it.
        const std::byte* next = call.after != nullptr ? call.after : at;
        if (start + tile <= last) next = tile_at(call, start / tile + 1);
        chunk<Cache, true>(
            call, work, start, first_chunk * Queries, readers, keys, values, call.head_dim, next);
      }
    }
    write_out(call, work, queries);
  }

  static void write_key(const float* x, std::uint32_t head_dim, std::uint32_t slot, std::byte* to) {
    auto* k = reinterpret_cast<stored*>(to) + slot;
    for (std::uint32_t i = 0; i < head_dim; i += width) {
      const std::uint32_t lanes = head_dim - i < width ? head_dim - i : width;
      stored narrow[width];
      Cache::store_part(narrow, lanes == width ? m::load(x + i) : m::load_part(x + i, lanes), lanes);
      for (std::uint32_t lane = 0; lane < lanes; ++lane) k[std::size_t{i + lane} * tile] = narrow[lane];
    }
  }

  static void write_value(const float* x, std::uint32_t head_dim, std::uint32_t slot, std::byte* to) {
    auto* v = reinterpret_cast<stored*>(to) + std::size_t{tile + slot} * head_dim;
    for (std::uint32_t i = 0; i < head_dim; i += width) {
      const std::uint32_t lanes = head_dim - i < width ? head_dim - i : width;
      Cache::store_part(v + i, lanes == width ? m::load(x + i) : m::load_part(x + i, lanes), lanes);
    }
  }

 private:
  static void pack_queries(const attention_call& call, const workspace& work, std::uint32_t queries) {
    for (std::uint32_t q = 0; q < queries; ++q) {
      const float* from =
          call.q + q / call.group * call.q_stride + std::size_t{q % call.group} * call.head_dim;
      float* to = work.queries + std::size_t{q / Queries} * Queries * call.head_dim + q % Queries;
      for (std::uint32_t i = 0; i < call.head_dim; ++i) to[std::size_t{i} * Queries] = from[i] * call.scale;
      float* sums = work.sums + std::size_t{q} * work.padded;
      for (std::uint32_t i = 0; i < work.padded; i += width) m::store(sums + i, m::zero());
      work.peaks[q] = -__builtin_inff();
      work.totals[q] = 0;
    }
  }

  static void widen(
      const stored* keys, const stored* values, std::uint32_t head_dim, std::uint32_t positions,
      const workspace& work) {
    for (std::uint32_t i = 0; i < head_dim * tile; i += width) m::store(work.keys + i, Cache::load(keys + i));
    for (std::uint32_t p = 0; p < positions; ++p) {
      for (std::uint32_t i = 0; i < head_dim; i += width) {
        const stored* from = values + std::size_t{p} * head_dim + i;
        const std::uint32_t left = head_dim - i;
        m::store(
            work.values + std::size_t{p} * work.padded + i,
            left >= width ? Cache::load(from) : Cache::load_part(from, left));
      }
    }
  }

  /// How many rows, from the first on, have a window that begins in the tile at `start` or before it.
  static std::uint32_t rows_reaching(const attention_call& call, std::uint32_t start) {
    if (call.window == 0) return call.rows;
    // The window of the last of them begins at the tile's last position.
    const std::uint64_t end = std::uint64_t{start} + tile - 1 + call.window;
    const std::uint64_t rows = end - call.first_position;
    return rows < call.rows ? static_cast<std::uint32_t>(rows) : call.rows;
  }

  /// Queries [q, q + Queries) against one tile; with `Ahead` the tile at `next` is fetched meanwhile.
  template<class Source, bool Ahead>
  static void chunk(
      const attention_call& call, const workspace& work, std::uint32_t start, std::uint32_t q,
      std::uint32_t queries, const typename Source::stored* keys, const typename Source::stored* values,
      std::uint32_t value_stride, const std::byte* next) {
    const std::uint32_t count = queries - q < Queries ? queries - q : Queries;
    const float* packed = work.queries + std::size_t{q} * call.head_dim;
    with_count(count, [&](auto n) {
      scores<Source, n.value, Ahead>(packed, keys, call.head_dim, work.weights, next);
    });

    if (call.softcap > 0)
      for (std::uint32_t at = 0; at < count * tile; at += width)
        m::store(
            work.weights + at,
            vector_softcap<m>(m::load(work.weights + at), call.softcap, 1.0F / call.softcap));

    // Rows at different positions see different parts of the first and the last tile: equal neighbours go on
    // together.
    for (std::uint32_t i = 0; i < count;) {
      const std::uint32_t row = (q + i) / call.group;
      const std::uint32_t end_of_row = (row + 1) * call.group - q;
      std::uint32_t seen = seen_of(call, start, row), end = end_of_row < count ? end_of_row : count;
      const std::uint32_t hidden = hidden_of(call, start, row);
      // Later rows see at least as much of the tile's end, and the last one least of its beginning.
      if (seen == tile && (call.window == 0 || hidden_of(call, start, (q + count - 1) / call.group) == 0))
        end = count;
      if (seen > hidden) {
        float scale[Queries];
        for (std::uint32_t j = i; j < end; ++j)
          scale[j - i] =
              softmax(work.weights + j * tile, hidden, seen, work.peaks[q + j], work.totals[q + j]);
        with_count(end - i, [&](auto n) {
          add_values<Source, n.value>(
              work.weights + i * tile + hidden, seen - hidden, scale,
              values + std::size_t{hidden} * value_stride, value_stride, call.head_dim,
              work.sums + std::size_t{q + i} * work.padded, work.padded);
        });
      }
      i = end;
    }
  }

  /// Positions of the tile at `start` that lie before the row's window.
  static std::uint32_t hidden_of(const attention_call& call, std::uint32_t start, std::uint32_t row) {
    if (call.window == 0) return 0;
    const std::uint32_t first = first_read(call.first_position + row, call.window);
    return first <= start ? 0 : first - start;
  }

  /// Positions of the tile at `start` up to the row's own, 0..32.
  static std::uint32_t seen_of(const attention_call& call, std::uint32_t start, std::uint32_t row) {
    const std::uint32_t end = call.first_position + row + 1;
    return end <= start ? 0 : end - start < tile ? end - start : tile;
  }

  template<int N>
  struct count_of {
    static constexpr int value = N;
  };
  template<class F>
  static void with_count(std::uint32_t count, F f) {
    static_assert(Queries <= 6);
    switch (count) {
    case 1:
      return f(count_of<1>{});
    case 2:
      return f(count_of<(Queries < 2 ? Queries : 2)>{});
    case 3:
      return f(count_of<(Queries < 3 ? Queries : 3)>{});
    case 4:
      return f(count_of<(Queries < 4 ? Queries : 4)>{});
    case 5:
      return f(count_of<(Queries < 5 ? Queries : 5)>{});
    default:
      return f(count_of<Queries>{});
    }
  }

  /// out [Count][32] = queries . keys, queries [head_dim][Queries].
  template<class Source, int Count, bool Ahead>
  static void scores(
      const float* queries, const typename Source::stored* keys, std::uint32_t head_dim, float* out,
      const std::byte* next) {
    vec acc[Count][key_vectors];
#pragma GCC unroll 8
    for (int q = 0; q < Count; ++q)
#pragma GCC unroll 8
      for (int v = 0; v < key_vectors; ++v) acc[q][v] = m::zero();
    for (std::uint32_t i = 0; i < head_dim; ++i, keys += tile, queries += Queries) {
      if constexpr (Ahead) {
        // A key and a value row of the next tile, so that all of it is asked for in head_dim rounds.
        for (std::size_t line = 0; line < 2 * tile * sizeof(stored); line += 64)
          __builtin_prefetch(next + line);
        next += 2 * tile * sizeof(stored);
      }
      vec key[key_vectors];
#pragma GCC unroll 8
      for (int v = 0; v < key_vectors; ++v) key[v] = Source::load(keys + v * width);
#pragma GCC unroll 8
      for (int q = 0; q < Count; ++q) {
        const vec x = m::all(queries[q]);
#pragma GCC unroll 8
        for (int v = 0; v < key_vectors; ++v) acc[q][v] = m::fma(x, key[v], acc[q][v]);
      }
    }
#pragma GCC unroll 8
    for (int q = 0; q < Count; ++q)
#pragma GCC unroll 8
      for (int v = 0; v < key_vectors; ++v) m::store(out + q * tile + v * width, acc[q][v]);
  }

  /// Turns the scores [hidden, seen) of a tile into weights and the rest into zeros; returns the factor of
  /// older sums.
  static float softmax(float* weights, std::uint32_t hidden, std::uint32_t seen, float& peak, float& total) {
    const vec lowest = m::all(-__builtin_inff());
    vec x[key_vectors], top = lowest;
#pragma GCC unroll 8
    for (int v = 0; v < key_vectors; ++v) {
      x[v] = m::keep(m::load(weights + v * width), lanes_of(seen, v), lowest);
      if (hidden > 0) x[v] = m::keep(lowest, lanes_of(hidden, v), x[v]);
      top = m::max(top, x[v]);
    }
    const float tile_peak = m::largest(top);
    const float larger = tile_peak > peak ? tile_peak : peak;
    const vec factor = vector_exp<m>(m::all(peak - larger));
    vec sum = m::zero();
#pragma GCC unroll 8
    for (int v = 0; v < key_vectors; ++v) {
      vec e = m::keep(vector_exp<m>(m::sub(x[v], m::all(larger))), lanes_of(seen, v), m::zero());
      if (hidden > 0) e = m::keep(m::zero(), lanes_of(hidden, v), e);
      m::store(weights + v * width, e);
      sum = m::add(sum, e);
    }
    float first[width];
    m::store(first, factor);
    peak = larger;
    total = total * first[0] + m::sum(sum);
    return first[0];
  }

  static std::uint32_t lanes_of(std::uint32_t seen, int v) {
    const std::uint32_t before = static_cast<std::uint32_t>(v) * width;
    return seen <= before ? 0 : seen - before < width ? seen - before : width;
  }

  /// sums [Count][padded] = sums * scale + weights . values.
  template<class Source, int Count>
  static void add_values(
      const float* weights, std::uint32_t seen, const float* scale, const typename Source::stored* values,
      std::uint32_t value_stride, std::uint32_t head_dim, float* sums, std::uint32_t padded) {
    constexpr std::uint32_t step = Values * width;
    std::uint32_t i = 0;
    for (; i + step <= head_dim; i += step)
      add_columns<Source, Count, Values>(
          weights, seen, scale, values + i, value_stride, width, sums + i, padded);
    for (; i < head_dim; i += width) {
      const std::uint32_t lanes = head_dim - i < width ? head_dim - i : width;
      add_columns<Source, Count, 1>(weights, seen, scale, values + i, value_stride, lanes, sums + i, padded);
    }
  }

  template<class Source, int Count, int Vectors>
  static void add_columns(
      const float* weights, std::uint32_t seen, const float* scale, const typename Source::stored* values,
      std::uint32_t value_stride, std::uint32_t lanes, float* sums, std::uint32_t padded) {
    vec acc[Count][Vectors];
#pragma GCC unroll 8
    for (int q = 0; q < Count; ++q)
#pragma GCC unroll 8
      for (int v = 0; v < Vectors; ++v)
        acc[q][v] = m::mul(m::load(sums + q * padded + v * width), m::all(scale[q]));
    for (std::uint32_t p = 0; p < seen; ++p, values += value_stride) {
      vec value[Vectors];
#pragma GCC unroll 8
      for (int v = 0; v < Vectors; ++v)
        value[v] = Vectors > 1 || lanes == width ? Source::load(values + v * width)
                                                 : Source::load_part(values, lanes);
#pragma GCC unroll 8
      for (int q = 0; q < Count; ++q) {
        const vec x = m::all(weights[q * tile + p]);
#pragma GCC unroll 8
        for (int v = 0; v < Vectors; ++v) acc[q][v] = m::fma(x, value[v], acc[q][v]);
      }
    }
#pragma GCC unroll 8
    for (int q = 0; q < Count; ++q)
#pragma GCC unroll 8
      for (int v = 0; v < Vectors; ++v) m::store(sums + q * padded + v * width, acc[q][v]);
  }

  static void write_out(const attention_call& call, const workspace& work, std::uint32_t queries) {
    for (std::uint32_t q = 0; q < queries; ++q) {
      float* out = call.out + q / call.group * call.out_stride + std::size_t{q % call.group} * call.head_dim;
      const float* sums = work.sums + std::size_t{q} * work.padded;
      const vec factor = m::all(1.0F / work.totals[q]);
      for (std::uint32_t i = 0; i < call.head_dim; i += width) {
        const std::uint32_t lanes = call.head_dim - i < width ? call.head_dim - i : width;
        m::store_part(out + i, m::mul(m::load(sums + i), factor), lanes);
      }
    }
  }
};

template<class Driver>
constexpr kv_functions kv_functions_of{Driver::attend, Driver::write_key, Driver::write_value};

} // namespace troupe::kernels
