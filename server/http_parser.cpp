// SPDX-License-Identifier: Apache-2.0
#include "server/http_parser.hpp"

#include <algorithm>
#include <charconv>
#include <optional>
#include <utility>

namespace troupe::server {
namespace {

constexpr std::size_t longest_method = 16;
constexpr std::string_view version_prefix = "HTTP/";

bool is_digit(char c) noexcept {
  return c >= '0' && c <= '9';
}
bool is_alpha(char c) noexcept {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
}
bool is_hex(char c) noexcept {
  return is_digit(c) || (c >= 'a' && c <= 'f') || (c >= 'A' && c <= 'F');
}
char lower(char c) noexcept {
  return c >= 'A' && c <= 'Z' ? static_cast<char>(c + 32) : c;
}

bool contains(std::string_view set, char c) noexcept {
  return c != '\0' && set.find(c) != std::string_view::npos;
}

bool is_unreserved_or_sub_delim(char c) noexcept {
  return is_alpha(c) || is_digit(c) || contains("-._~!$&'()*+,;=", c);
}

// Blanks only: a line holds no CR, LF or other control here.
std::string_view trim(std::string_view text) noexcept {
  const std::size_t first = text.find_first_not_of(" \t");
  if (first == std::string_view::npos) return {};
  return text.substr(first, text.find_last_not_of(" \t") - first + 1);
}

bool equal_ignoring_case(std::string_view a, std::string_view b) noexcept {
  return a.size() == b.size() &&
         std::equal(a.begin(), a.end(), b.begin(), [](char x, char y) { return lower(x) == lower(y); });
}

// host[:port] of RFC 9110 7.2: a name, an IPv4 address or a bracketed IPv6 address. Percent-encoding is
// refused.
bool valid_host(std::string_view host) noexcept {
  std::size_t end = 0;
  if (!host.empty() && host.front() == '[') {
    end = host.find(']');
    if (end == std::string_view::npos || end < 3) return false;
    const std::string_view inside = host.substr(1, end - 1);
    if (!std::all_of(inside.begin(), inside.end(), [](char c) { return is_hex(c) || c == ':' || c == '.'; }))
      return false;
    ++end;
  } else {
    end = std::min(host.find(':'), host.size());
    const std::string_view name = host.substr(0, end);
    if (name.empty() || !std::all_of(name.begin(), name.end(), is_unreserved_or_sub_delim)) return false;
  }
  if (end == host.size()) return true;
  const std::string_view port = host.substr(end + 1);
  return host[end] == ':' && !port.empty() && port.size() <= 5 &&
         std::all_of(port.begin(), port.end(), is_digit);
}

bool valid_target_chars(std::string_view text) noexcept {
  for (std::size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    if (c == '%') {
      if (i + 2 >= text.size() || !is_hex(text[i + 1]) || !is_hex(text[i + 2])) return false;
      i += 2;
    } else if (!is_unreserved_or_sub_delim(c) && !contains(":@/?", c)) {
      return false;
    }
  }
  return true;
}

// Digits only, no sign, no list, no overflow.
std::optional<std::uint64_t> parse_length(std::string_view text) noexcept {
  std::uint64_t value = 0;
  const char* end = text.data() + text.size();
  if (text.empty() || !std::all_of(text.begin(), text.end(), is_digit)) return std::nullopt;
  const auto [stop, ec] = std::from_chars(text.data(), end, value);
  if (ec != std::errc() || stop != end) return std::nullopt;
  return value;
}

// `*( BWS ";" BWS name [ BWS "=" BWS ( token / quoted-string ) ] )`, checked although its meaning is ignored:
// a proxy that reads it differently would see another chunk.
bool valid_chunk_extensions(std::string_view text) noexcept {
  std::size_t at = 0;
  const auto blanks = [&] {
    while (at < text.size() && (text[at] == ' ' || text[at] == '\t')) ++at;
  };
  const auto token = [&] {
    const std::size_t from = at;
    while (at < text.size() && is_token_char(text[at])) ++at;
    return at > from;
  };
  const auto quoted = [&] {
    for (++at; at < text.size(); ++at) {
      if (text[at] == '"') return ++at, true;
      if (text[at] == '\\' && ++at == text.size()) return false;
    }
    return false;
  };
  for (blanks(); at < text.size(); blanks()) {
    if (text[at++] != ';') return false;
    blanks();
    if (!token()) return false;
    blanks();
    if (at == text.size() || text[at] != '=') continue;
    ++at;
    blanks();
    if (at < text.size() && text[at] == '"' ? !quoted() : !token()) return false;
  }
  return text.empty() || is_token_char(text.back()) || text.back() == '"';
}

} // namespace

bool is_token_char(char c) noexcept {
  return is_alpha(c) || is_digit(c) || contains("!#$%&'*+-.^_`|~", c);
}

std::string to_lower(std::string_view text) {
  std::string out(text);
  std::transform(out.begin(), out.end(), out.begin(), lower);
  return out;
}

const std::string* http_request::field(std::string_view name) const noexcept {
  const auto it =
      std::find_if(fields.begin(), fields.end(), [&](const http_field& f) { return f.name == name; });
  return it == fields.end() ? nullptr : &it->value;
}

std::size_t http_request::count(std::string_view name) const noexcept {
  return static_cast<std::size_t>(
      std::count_if(fields.begin(), fields.end(), [&](const http_field& f) { return f.name == name; }));
}

std::size_t http_request::bytes() const noexcept {
  std::size_t sum = sizeof *this + method.capacity() + path.capacity() + query.capacity() + host.capacity() +
                    body.capacity() + fields.capacity() * sizeof(http_field);
  for (const http_field& f : fields) sum += f.name.capacity() + f.value.capacity();
  return sum;
}

bool http_request::has_token(std::string_view name, std::string_view token) const noexcept {
  for (const http_field& f : fields) {
    if (f.name != name) continue;
    std::string_view rest = f.value;
    while (true) {
      const std::size_t comma = rest.find(',');
      if (equal_ignoring_case(trim(rest.substr(0, comma)), token)) return true;
      if (comma == std::string_view::npos) break;
      rest.remove_prefix(comma + 1);
    }
  }
  return false;
}

http_phase http_parser::phase() const noexcept {
  switch (state_) {
  case state::start:
  case state::complete:
  case state::failed:
    return http_phase::idle;
  case state::request_line:
  case state::field_line:
    return http_phase::head;
  default:
    return http_phase::body;
  }
}

bool http_parser::fail(int status, std::string message) {
  failure_ = {status, std::move(message)};
  state_ = state::failed;
  line_.clear();
  return false;
}

http_request http_parser::take() {
  state_ = state::start;
  skipped_blank_ = false;
  head_bytes_ = 0;
  line_.clear();
  return std::exchange(request_, {});
}

// Reads up to and including CRLF into line_ (without the CRLF). Every byte is judged as it comes, so that a
// peer that speaks another protocol is refused at its first byte and not after a line end that never arrives.
http_parser::line
http_parser::read_line(std::string_view bytes, std::size_t& at, std::size_t limit, int status_over) {
  while (at < bytes.size()) {
    const char c = bytes[at++];
    if (line_has_cr_) {
      if (c != '\n') return fail(400, "a CR is not followed by LF"), line::bad;
      line_has_cr_ = false;
      return line::whole;
    }
    if (c == '\r') {
      line_has_cr_ = true;
      continue;
    }
    if (c == '\n') return fail(400, "a line ends with LF alone; CRLF is required"), line::bad;
    if ((static_cast<unsigned char>(c) < 0x20 && c != '\t') || c == 0x7f)
      return fail(400, "a control character stands in the request head"), line::bad;
    if (line_.size() >= limit) {
      switch (status_over) {
      case 414:
        fail(414, "the request target is longer than " + std::to_string(limits_.uri_bytes) + " bytes");
        break;
      case 431:
        fail(431, "the header fields are larger than " + std::to_string(limits_.header_bytes) + " bytes");
        break;
      default:
        fail(400, "a chunk header is longer than " + std::to_string(limits_.chunk_header_bytes) + " bytes");
      }
      return line::bad;
    }
    if (state_ == state::request_line && !check_method_prefix(c)) return line::bad;
    line_.push_back(c);
  }
  return line::partial;
}

bool http_parser::check_method_prefix(char c) {
  if (line_.find(' ') != std::string::npos) return true;
  if (c == ' ' ? !line_.empty() : is_token_char(c) && line_.size() < longest_method) return true;
  return fail(400, "the bytes do not begin with an HTTP method; this port speaks plain HTTP/1.1");
}

http_parser::progress http_parser::feed(std::string_view bytes) {
  std::size_t at = 0;
  while (true) {
    switch (state_) {
    case state::failed:
      return {at, http_event::failed};
    case state::complete:
      return {at, http_event::complete};

    case state::start:
      if (at == bytes.size()) return {at, http_event::need_more};
      state_ = state::request_line;
      line_.clear();
      line_has_cr_ = false;
      wants_continue_ = false;
      authority_.clear();
      break;

    case state::request_line: {
      // method SP target SP "HTTP/1.1"
      const line got = read_line(bytes, at, longest_method + limits_.uri_bytes + 11, 414);
      if (got == line::partial) return {at, http_event::need_more};
      if (got == line::whole) on_request_line();
      break;
    }

    case state::field_line: {
      // The line's own end and the blank line that closes the head count too.
      const std::size_t left = limits_.header_bytes - std::min(limits_.header_bytes, head_bytes_ + 4);
      const line got = read_line(bytes, at, left, 431);
      if (got == line::partial) return {at, http_event::need_more};
      if (got == line::bad) break;
      if (!line_.empty()) {
        on_field_line();
      } else if (on_head() && wants_continue_) {
        return {at, http_event::wants_continue};
      }
      break;
    }

    case state::fixed_body: {
      const std::size_t n = std::min<std::uint64_t>(body_left_, bytes.size() - at);
      request_.body.append(bytes.substr(at, n));
      at += n;
      body_left_ -= n;
      if (body_left_ > 0) return {at, http_event::need_more};
      state_ = state::complete;
      break;
    }

    case state::chunk_header: {
      const line got = read_line(bytes, at, limits_.chunk_header_bytes, 400);
      if (got == line::partial) return {at, http_event::need_more};
      if (got == line::whole) on_chunk_header();
      break;
    }

    case state::chunk_data: {
      const std::size_t n = std::min<std::uint64_t>(body_left_, bytes.size() - at);
      request_.body.append(bytes.substr(at, n));
      at += n;
      body_left_ -= n;
      if (body_left_ > 0) return {at, http_event::need_more};
      state_ = state::chunk_end;
      chunk_end_seen_ = 0;
      break;
    }

    case state::chunk_end:
      if (at == bytes.size()) return {at, http_event::need_more};
      if (bytes[at++] != "\r\n"[chunk_end_seen_]) {
        fail(400, "chunk data is not followed by CRLF");
      } else if (++chunk_end_seen_ == 2) {
        state_ = state::chunk_header;
        line_.clear();
      }
      break;

    case state::trailer_line: {
      const std::size_t left = limits_.trailer_bytes - std::min(limits_.trailer_bytes, trailer_bytes_ + 2);
      const line got = read_line(bytes, at, left, 431);
      if (got == line::partial) return {at, http_event::need_more};
      if (got == line::whole) on_trailer_line();
      break;
    }
    }
  }
}

bool http_parser::on_request_line() {
  if (line_.empty()) {
    // One CRLF before a request is tolerated (RFC 9112 2.2): some clients send it after a body.
    if (skipped_blank_) return fail(400, "blank lines stand where a request should begin");
    skipped_blank_ = true;
    state_ = state::start;
    return true;
  }
  const std::size_t first = line_.find(' ');
  const std::size_t last = line_.rfind(' ');
  if (first == std::string::npos || first == last || line_.find(' ', first + 1) != last)
    return fail(400, "the request line is not `METHOD TARGET HTTP/1.1`");
  const std::string_view all = line_;
  const std::string_view version = all.substr(last + 1);
  if (version.size() != 8 || version.substr(0, 5) != version_prefix || !is_digit(version[5]) ||
      version[6] != '.' || !is_digit(version[7]))
    return fail(400, "the request line does not end with an HTTP version");
  if (version[5] != '1' || version[7] > '1') return fail(505, "only HTTP/1.1 and HTTP/1.0 are spoken here");

  request_ = {};
  request_.method = all.substr(0, first);
  request_.minor_version = version[7] - '0';
  constexpr std::string_view known[] = {"GET", "HEAD", "POST", "PUT", "DELETE", "PATCH", "OPTIONS"};
  if (request_.method == "CONNECT" || request_.method == "TRACE")
    return fail(405, "method " + request_.method + " is not served");
  if (std::find(std::begin(known), std::end(known), request_.method) == std::end(known))
    return fail(501, "the request method is not known");
  if (!on_target(all.substr(first + 1, last - first - 1))) return false;
  state_ = state::field_line;
  line_.clear();
  return true;
}

bool http_parser::on_target(std::string_view target) {
  if (target.size() > limits_.uri_bytes)
    return fail(414, "the request target is longer than " + std::to_string(limits_.uri_bytes) + " bytes");
  if (target == "*" && request_.method == "OPTIONS") {
    request_.path = "*";
    return true;
  }
  if (target.empty()) return fail(400, "the request target is empty");
  if (target.front() != '/') return on_absolute_target(target);
  if (!valid_target_chars(target))
    return fail(400, "the request target holds a character that must be encoded");
  const std::size_t question = target.find('?');
  request_.path = target.substr(0, question);
  if (question != std::string_view::npos) request_.query = target.substr(question + 1);
  return true;
}

bool http_parser::on_absolute_target(std::string_view target) {
  constexpr std::string_view scheme = "http://";
  if (!equal_ignoring_case(target.substr(0, scheme.size()), scheme))
    return fail(400, "the request target must begin with `/`");
  target.remove_prefix(scheme.size());
  const std::size_t end = target.find_first_of("/?");
  authority_ = to_lower(target.substr(0, end));
  if (!valid_host(authority_)) return fail(400, "the request target names no valid host");
  if (end == std::string_view::npos || target[end] == '?') {
    request_.path = "/";
    if (end == std::string_view::npos) return true;
    if (!valid_target_chars(target.substr(end)))
      return fail(400, "the request target holds a character that must be encoded");
    request_.query = target.substr(end + 1);
    return true;
  }
  return on_target(target.substr(end));
}

bool http_parser::on_field_line() {
  head_bytes_ += line_.size() + 2;
  if (request_.fields.size() >= limits_.header_fields)
    return fail(431, "there are more than " + std::to_string(limits_.header_fields) + " header fields");
  if (line_.front() == ' ' || line_.front() == '\t')
    return fail(400, "a header field is folded over two lines");
  const std::string_view all = line_;
  const std::size_t colon = all.find(':');
  if (colon == std::string_view::npos) return fail(400, "a header field has no colon");
  const std::string_view name = all.substr(0, colon);
  if (name.empty() || !std::all_of(name.begin(), name.end(), is_token_char))
    return fail(400, "a header field name is empty or holds a character that is not allowed");
  request_.fields.push_back({to_lower(name), std::string(trim(all.substr(colon + 1)))});
  line_.clear();
  return true;
}

bool http_parser::on_trailer_line() {
  trailer_bytes_ += line_.size() + 2;
  if (line_.empty()) {
    state_ = state::complete;
    return true;
  }
  const std::size_t colon = line_.find(':');
  if (colon == 0 || colon == std::string::npos ||
      !std::all_of(line_.begin(), line_.begin() + static_cast<std::ptrdiff_t>(colon), is_token_char))
    return fail(400, "a trailer field is malformed");
  line_.clear();
  return true;
}

bool http_parser::on_head() {
  if (!check_host() || !check_framing() || !check_expectations()) return false;
  const bool asks_close = request_.has_token("connection", "close");
  request_.keep_alive =
      !asks_close && (request_.minor_version == 1 || request_.has_token("connection", "keep-alive"));
  return true;
}

bool http_parser::check_host() {
  const std::size_t hosts = request_.count("host");
  if (hosts > 1) return fail(400, "the Host field is repeated");
  if (hosts == 0) {
    if (request_.minor_version == 1) return fail(400, "the Host field is missing");
    request_.host = authority_;
    return true;
  }
  request_.host = to_lower(*request_.field("host"));
  if (!valid_host(request_.host)) return fail(400, "the Host field is not `name[:port]`");
  if (!authority_.empty() && authority_ != request_.host)
    return fail(400, "the request target names another host than the Host field");
  return true;
}

bool http_parser::check_framing() {
  const std::size_t lengths = request_.count("content-length");
  const std::size_t codings = request_.count("transfer-encoding");
  if (lengths > 0 && codings > 0) return fail(400, "Content-Length and Transfer-Encoding stand together");
  if (codings > 0) {
    if (request_.minor_version == 0) return fail(400, "Transfer-Encoding is not defined for HTTP/1.0");
    if (codings > 1) return fail(400, "the Transfer-Encoding field is repeated");
    if (!equal_ignoring_case(*request_.field("transfer-encoding"), "chunked"))
      return fail(501, "the only transfer coding accepted is `chunked`");
    state_ = state::chunk_header;
    line_.clear();
    return true;
  }
  if (lengths > 1) return fail(400, "the Content-Length field is repeated");
  if (lengths == 1) {
    const auto length = parse_length(*request_.field("content-length"));
    if (!length) return fail(400, "Content-Length is not a plain decimal number below 2^64");
    if (*length > limits_.body_bytes)
      return fail(413, "the body is larger than " + std::to_string(limits_.body_bytes) + " bytes");
    body_left_ = *length;
    // The claim alone reserves little; the rest is allocated as it arrives.
    request_.body.reserve(std::min<std::size_t>(body_left_, 16384));
    state_ = body_left_ > 0 ? state::fixed_body : state::complete;
    return true;
  }
  state_ = state::complete;
  return true;
}

bool http_parser::check_expectations() {
  const bool has_body = state_ != state::complete;
  if (const std::string* coding = request_.field("content-encoding");
      coding && (request_.count("content-encoding") > 1 || !equal_ignoring_case(*coding, "identity")))
    return fail(415, "a compressed body is not accepted; send it with no Content-Encoding");
  if (const std::string* expect = request_.field("expect"); expect && request_.minor_version == 1) {
    if (request_.count("expect") > 1 || !equal_ignoring_case(*expect, "100-continue"))
      return fail(417, "the only expectation understood is `100-continue`");
    wants_continue_ = has_body;
  }
  return true;
}

bool http_parser::on_chunk_header() {
  const std::string_view all = line_;
  std::size_t digits = 0;
  while (digits < all.size() && is_hex(all[digits])) ++digits;
  // 16 digits fill 64 bits; leading zeros beyond that are as suspect as an overflow.
  if (digits == 0 || digits > 16)
    return fail(400, "a chunk size is not a hexadecimal number of 1 to 16 digits");
  std::uint64_t size = 0;
  std::from_chars(all.data(), all.data() + digits, size, 16);
  if (!valid_chunk_extensions(all.substr(digits))) return fail(400, "a chunk extension is malformed");
  line_.clear();
  if (size == 0) {
    trailer_bytes_ = 0;
    state_ = state::trailer_line;
    return true;
  }
  if (size > limits_.body_bytes - request_.body.size())
    return fail(413, "the body is larger than " + std::to_string(limits_.body_bytes) + " bytes");
  body_left_ = size;
  state_ = state::chunk_data;
  return true;
}

} // namespace troupe::server
