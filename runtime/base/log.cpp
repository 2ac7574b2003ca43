// SPDX-License-Identifier: Apache-2.0
#include "runtime/base/log.hpp"

#include <spdlog/sinks/stdout_color_sinks.h>

namespace troupe {

spdlog::logger& log() {
  // Leaked on purpose: actors may log while static objects are destroyed.
  static auto* const logger = [] {
    auto* made = new std::shared_ptr<spdlog::logger>(
        std::make_shared<spdlog::logger>("troupe", std::make_shared<spdlog::sinks::stderr_color_sink_mt>()));
    (*made)->set_pattern("%H:%M:%S.%e %^%l%$ %v");
    return made;
  }();
  return **logger;
}

} // namespace troupe
