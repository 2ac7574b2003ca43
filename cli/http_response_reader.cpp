// SPDX-License-Identifier: Apache-2.0
// Incremental response and event-stream parsing.
#include "cli/http_response_reader.hpp"

#include <algorithm>
#include <charconv>

namespace troupe::cli {

namespace {

constexpr std::size_t head_limit = 64U << 10;
constexpr std::size_t event_limit = 16U << 20;

bool same_name(std::string_view a, std::string_view lower) {
  return a.size() == lower.size() && std::equal(a.begin(), a.end(), lower.begin(), [](char x, char y) {
           return (x >= 'A' && x <= 'Z' ? x + ('a' - 'A') : x) == y;
         });
}

std::string_view trimmed(std::string_view text) {
  while (!text.empty() && (text.front() == ' ' || text.front() == '\t')) text.remove_prefix(1);
  while (!text.empty() && (text.back() == ' ' || text.back() == '\t')) text.remove_suffix(1);
  return text;
}

} // namespace

bool http_response_reader::broken() noexcept {
  stage_ = stage::broken;
  return false;
}

// Moves bytes into line_ up to LF; true when a whole line, without its end, is in `line`.
bool http_response_reader::take_line(std::string_view& bytes, std::string& line) {
  const auto end = bytes.find('\n');
  const auto count = std::min(end, bytes.size());
  line_.append(bytes.substr(0, count));
  head_bytes_ += count;
  bytes.remove_prefix(std::min(count + 1, bytes.size()));
  if (end == std::string_view::npos) return false;
  if (!line_.empty() && line_.back() == '\r') line_.pop_back();
  line = std::move(line_);
  line_.clear();
  return true;
}

bool http_response_reader::status_line(std::string_view line) {
  if (!line.starts_with("HTTP/1.") || line.size() < 12) return false;
  const auto code = line.substr(9, 3);
  const auto [end, failed] = std::from_chars(code.data(), code.data() + 3, status_);
  return failed == std::errc{} && end == code.data() + 3 && status_ >= 100;
}

bool http_response_reader::header_line(std::string_view line) {
  const auto colon = line.find(':');
  if (colon == std::string_view::npos) return false;
  const std::string_view name = line.substr(0, colon), value = trimmed(line.substr(colon + 1));
  if (same_name(name, "content-length")) {
    const auto [end, failed] = std::from_chars(value.data(), value.data() + value.size(), left_);
    sized_ = true;
    return failed == std::errc{} && end == value.data() + value.size();
  }
  if (same_name(name, "transfer-encoding")) chunked_ = same_name(value, "chunked");
  if (same_name(name, "retry-after")) retry_after_ = value;
  return true;
}

bool http_response_reader::chunk_line(std::string_view line) {
  const auto digits = trimmed(line.substr(0, line.find(';')));
  const auto [end, failed] = std::from_chars(digits.data(), digits.data() + digits.size(), left_, 16);
  return failed == std::errc{} && end == digits.data() + digits.size();
}

bool http_response_reader::feed(std::string_view bytes, std::string& body) {
  std::string line;
  while (!bytes.empty()) {
    switch (stage_) {
    case stage::head:
      if (!take_line(bytes, line)) return head_bytes_ <= head_limit || broken();
      if (head_bytes_ > head_limit) return broken();
      if (first_line_) {
        if (!status_line(line)) return broken();
        first_line_ = false;
      } else if (!line.empty()) {
        if (!header_line(line)) return broken();
      } else if (status_ < 200) { // an interim response: the real one follows
        first_line_ = true;
      } else {
        stage_ = chunked_ ? stage::chunk_size
                 : sized_ ? (left_ == 0 ? stage::complete : stage::sized)
                          : stage::to_end;
      }
      break;
    case stage::sized:
    case stage::chunk_data: {
      const auto count = static_cast<std::size_t>(std::min<std::uint64_t>(left_, bytes.size()));
      body.append(bytes.substr(0, count));
      bytes.remove_prefix(count);
      left_ -= count;
      if (left_ == 0) stage_ = stage_ == stage::sized ? stage::complete : stage::chunk_end;
      break;
    }
    case stage::to_end:
      body.append(bytes);
      return true;
    case stage::chunk_size:
      head_bytes_ = 0;
      if (!take_line(bytes, line)) return line_.size() <= head_limit || broken();
      if (!chunk_line(line)) return broken();
      stage_ = left_ == 0 ? stage::trailers : stage::chunk_data;
      break;
    case stage::chunk_end:
      if (!take_line(bytes, line)) return line_.size() <= 2 || broken();
      if (!line.empty()) return broken();
      stage_ = stage::chunk_size;
      break;
    case stage::trailers:
      if (!take_line(bytes, line)) return head_bytes_ <= head_limit || broken();
      if (line.empty()) stage_ = stage::complete;
      break;
    case stage::complete: // bytes after the response belong to nobody
      return true;
    case stage::broken:
      return false;
    }
  }
  return stage_ != stage::broken;
}

bool http_response_reader::end_of_stream() noexcept {
  if (stage_ == stage::to_end) stage_ = stage::complete;
  return stage_ == stage::complete;
}

void event_splitter::feed(std::string_view bytes, std::vector<std::string>& events) {
  while (!bytes.empty()) {
    const auto end = bytes.find('\n');
    const auto count = std::min(end, bytes.size());
    if (line_.size() + count <= event_limit) line_.append(bytes.substr(0, count));
    bytes.remove_prefix(std::min(count + 1, bytes.size()));
    if (end == std::string_view::npos) return;
    std::string_view line = line_;
    if (line.ends_with('\r')) line.remove_suffix(1);
    if (line.empty()) {
      if (has_data_) events.push_back(std::move(data_));
      data_.clear();
      has_data_ = false;
    } else if (line.starts_with("data:")) {
      line.remove_prefix(5);
      if (line.starts_with(' ')) line.remove_prefix(1);
      if (has_data_) data_ += '\n';
      data_ += line;
      has_data_ = true;
    }
    line_.clear();
  }
}

} // namespace troupe::cli
