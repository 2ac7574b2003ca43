# SPDX-License-Identifier: Apache-2.0
"""A strict client for the three doors (HTTP, WebSocket, lines of JSON over TCP) and the scaffolding of the drills."""
