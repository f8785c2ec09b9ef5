// A client that is attached in good order and from then on does whatever may hurt, by chance.
//
// One thread. Nothing it does is expected to succeed; it counts what it was told, so that a test
// can see that it gets anywhere. The engine must be another process.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "tests/fuzz/dice.h"
#include "tests/support/raw_client.h"

namespace wherry::fuzz {

// How often each was seen: codes of replies ("reply STALE") and of completions ("completion OK"),
// reasons of the engine's for ending the session ("end ...").
using Findings = std::map<std::string, uint64_t>;

class HostileClient {
 public:
  // Attaches as (`name`, 0) and looks at what instance "good" has published.
  HostileClient(const std::string& socket_path, const std::string& name, uint64_t seed,
                Findings* findings);

  // One thing by chance.
  void act();
  // Takes in what the engine has said meanwhile.
  void listen();
  bool ended() const { return ended_; }

 private:
  // What lies in the rings: hostile_rings.cc.
  void act_on_rings();
  void ring();
  shm::SubmitHead likely_head();
  void publish(shm::SubmitHead head);
  void publish_mutated();
  void scribble();
  void rewrite_published();
  void move_cursors();
  void hoard();
  void cancel();
  void reap();
  void play_with_futexes();
  void punch_holes();
  shm::ClientWords* words();

  // What goes over the socket: hostile_messages.cc.
  void act_on_socket();
  test::json likely_message();
  test::json odd_value();
  void send_mutated();
  void send_packet(const std::string& packet, const test::Descriptors& descriptors);
  void send_long();
  void connect_once_more();
  test::Descriptors odd_descriptors(uint64_t most);

  // What both sides hold a descriptor of: hostile_descriptors.cc.
  void act_on_descriptors();
  void open_odd_channel();

  const std::string path_;
  Dice dice_;
  Findings* findings_;
  test::RawClient client_;
  std::unique_ptr<test::RawRings> rings_;
  bool reckless_;  // breaks the contract of the rings, which ends it soon
  bool ended_ = false;
  int patience_ = 0;                   // how often it may still wait for the engine in this act
  std::vector<shm::UniqueFd> memory_;  // small, large, and with huge pages where there are any
  std::vector<uint64_t> memory_bytes_;
  test::Descriptors hoard_;        // of huge pages
  std::vector<uint64_t> handles_;  // of everything it may name, and of things that are none
  std::vector<uint64_t> large_;    // layouts of one large block
  std::vector<uint64_t> published_;
  test::Descriptors shared_;  // of channels: with the engine at the other end
};

}  // namespace wherry::fuzz
