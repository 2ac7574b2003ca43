// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "runtime/base/log.hpp"

#include <memory>
#include <spdlog/sinks/ostream_sink.h>
#include <sstream>
#include <string_view>
#include <vector>

namespace troupe::test {

/// What the log says while the object lives.
class heard_log {
 public:
  heard_log() : kept_(log().sinks()) {
    log().sinks() = {std::make_shared<spdlog::sinks::ostream_sink_mt>(text_)};
  }
  ~heard_log() { log().sinks() = kept_; }
  bool says(std::string_view what) const { return text_.str().find(what) != std::string::npos; }

 private:
  std::ostringstream text_;
  std::vector<spdlog::sink_ptr> kept_;
};

} // namespace troupe::test
