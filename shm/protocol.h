// The control protocol: every message of the Unix socket, with its fields and descriptors.
//
// Texts are JSON objects {"type", "version", "id", ...}. `id` is chosen by the sender of a request;
// each request is answered exactly once by {"type": "reply", "version", "id", "ok": true, ...} or
// {..., "ok": false, "code": "<CODE NAME>", "message": "<text>"}. Unknown types and keys get such
// an answer too, naming them. Handles, sessions and incarnations are JSON unsigned integers of 64
// bits. Only the names are here; encoding and decoding is where the message is used. Values: kind,
// inner_order, dtype and tier are the numbers of shm/geometry.h; a geometry has the eight members
// of Geometry as keys; a state is the text of engine_state_name; a transport's level is a number.
// Of open_channel, absent slot counts mean the engine's defaults. limits has the keys of
// ClientLimits.
//
// Client to engine: fields [with: descriptors] -> fields of the reply [with: descriptors]
//
// hello: protocol_min, protocol_max, layout_major, layout_minor, features, instance, rank, pid,
//     clock_ns [a pidfd of itself]
//   -> protocol, engine, engine_incarnation, session, incarnation, layout_major, layout_minor,
//     features, state, limits {...}, pollers, clock_offset_ns, default_deadline_ms [a pidfd of the
//     engine]
// open_channel: submission_slots, notification_slots (the first channel only, else 0), descriptor
//     (bool: wake through one)
//   -> channel [c2e, e2c, eventfd; one end of a socket pair if asked for]
// channel_mapped: channel -> nothing, once the engine has sealed c2e and polls it
// close_channel: channel -> nothing, once it has drained
// register_region: offset, length [the memory] -> handle, writable
// free_region: handle -> nothing, after its last use; NOT_PERMITTED while a layout needs it
// register_layout: geometry {...}, parts [[region, offset, length], ...] -> handle
// free_layout: handle -> nothing, after its last use
// publish: layout, tier, rights ("read" | "read_write"), to ("*" or [instance, ...]) -> nothing
// unpublish: layout -> nothing, after the last use by others
// find_layout: instance, rank, tier, timeout_ms (waits that long until it is published)
//   -> handle, geometry {...}, parts [length, ...], rights, incarnation
// find_client: instance, rank -> handle, incarnation
// release_found: handle -> nothing
// transports: -> transports [{name, level, available, reason, info}, ...]
// detach: -> nothing; then the engine hangs up
//
// Administration, instead of hello, by the engine's owner or root
//
// admin: command ("status" | "clients" | "drain" | "stop" | "kill" | "transports"), reason
//   -> what the command says
//
// Engine to client, unasked: {"type": "event", "version", "event": ...}
//
// state: state, reason       the engine's life cycle state changed
// stale: handles [...]       found handles whose owner took them back or is gone
// closing: reason            the session ends for this violation or refusal
#pragma once

#include <cstdint>

namespace wherry::shm::protocol {

inline constexpr uint32_t kVersion = 1;     // newest spoken
inline constexpr uint32_t kMinVersion = 1;  // oldest spoken

inline constexpr uint32_t kMaxInstanceBytes = 64;  // [A-Za-z0-9._-]

inline constexpr uint32_t kMaxChannelsPerClient = 256;  // the most that a configuration may allow

}  // namespace wherry::shm::protocol
