// SPDX-License-Identifier: Apache-2.0
// The one logger: text lines on standard error, level set by `log.level`. Thread: any.
#pragma once

#include <spdlog/spdlog.h>

namespace troupe {

/// Never null. Embedders may replace its sinks or level; the library itself only writes.
spdlog::logger& log();

} // namespace troupe
