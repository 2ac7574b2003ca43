// SPDX-License-Identifier: Apache-2.0
// The error values of the runtime are the public ones.
#pragma once

#include "troupe/error.hpp"
