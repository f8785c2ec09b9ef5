// Connection: one accepted control socket, whoever is behind it.
//
// Owned by the control thread. Sending never blocks and never fails for the caller: a connection
// whose other side is gone, or does not read, is broken, and the control loop closes it.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "engine/control/timers.h"
#include "shm/control_socket.h"
#include "shm/file_descriptor.h"
#include "shm/status.h"

namespace wherry::engine {

class Session;

class Connection {
 public:
  enum class Role : uint8_t { kNew, kClient, kAdmin };

  Connection(uint64_t connection_id, shm::ControlSocket socket, shm::PeerCredentials who)
      : id(connection_id), peer(who), socket_(std::move(socket)) {}

  const uint64_t id;
  const shm::PeerCredentials peer;
  Role role = Role::kNew;
  Timers::Id deadline{};             // kNew: until then it must have said who it is
  std::shared_ptr<Session> session;  // kClient
  bool watches_input = true;         // as the epoll set has it
  bool watches_output = false;
  bool decoding = false;  // a registrar decodes its last message; the next is read after that
  bool behind = false;    // has replies to read before it is listened to again

  void send(std::string text, std::vector<shm::UniqueFd> descriptors = {}) {
    note(socket_.send(std::move(text), std::move(descriptors)));
  }
  void flush() { note(socket_.flush()); }

  shm::ControlSocket& socket() { return socket_; }

  bool broken() const { return !failure_.ok(); }
  const Status& failure() const { return failure_; }
  void break_off(Status why) { note(std::move(why)); }

 private:
  void note(Status status) {
    if (!status.ok() && failure_.ok()) failure_ = std::move(status);
  }

  shm::ControlSocket socket_;
  Status failure_;
};

}  // namespace wherry::engine
