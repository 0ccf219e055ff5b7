// Letters: graphs that mutators send to the mutators of another heap, or of their own, over channels of the simulated
// network; and what was in each letter when it was sent.
//
// A letter box is one way. Any mutator of the one heap puts letters in, and one mutator of the other takes them out. Of
// its channel one line stands at a time: a connection that breaks is followed by a new one.
//
// The box knows what the API promises and throws disagreement where it is not so: a letter comes once at most, on the
// line that it was sent on; those of one sender come in order; one that was accepted does come.
#pragma once

#include <farmem/channel/channel.h>
#include <farmem/farmem.h>

#include <array>
#include <atomic>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <unordered_map>

#include "commons.h"

namespace fm::sim {

constexpr std::size_t letter_roots = 6;

/// The root of a graph that is sent.
struct letter {
  std::uint64_t number = 0;
  std::array<ref<node>, letter_roots> first;
};

/// The contents of a letter: its nodes with their edges.
struct contents {
  std::array<std::uint64_t, letter_roots> first{};
  std::unordered_map<std::uint64_t, std::array<std::uint64_t, edges>> nodes;
  bool changes = false;  ///< it may have been changed while it was sent: what comes is a mixture, if anything does
  /// The letter, and two for each node.
  [[nodiscard]] std::uint64_t objects() const noexcept { return 1 + 2 * nodes.size(); }
};

struct letter_options {
  std::uint32_t part = 1024, window_parts = 64;
  bool streams = false;          ///< parts go over a stream in each direction, and not as messages
  bool breaks = false;           ///< connections may break
  bool may_lose_agents = false;  ///< operations may fail because an agent is lost
  bool changes = false;          ///< some graphs are changed while they are sent
};

class letter_box {
 public:
  struct line {
    channel out, in;
    std::map<std::uint64_t, std::uint64_t>
        came;  ///< the last letter of each sender; for the mutator that takes them out
  };
  using shared_line = std::shared_ptr<line>;

  letter_box(heap& from, heap& to, const std::string& name, const letter_options& options);

  /// The line that stands, or a new one. Null when none can be made now, or nobody takes letters out any more.
  shared_line stands();
  /// This one does not any more.
  void broke(const shared_line& l);
  [[nodiscard]] bool still_stands(const shared_line& l);
  /// Nobody takes letters out any more.
  void shut() { shut_ = true; }

  /// A letter is about to be sent; its number.
  std::uint64_t sent(std::uint64_t sender, const shared_line& on, contents what);
  void accepted(std::uint64_t number);
  /// It came out; what is in it.
  contents came(std::uint64_t number, const shared_line& on);
  /// Throws disagreement if a letter was accepted that has not come. When all have been taken out.
  void require_all_came();
  /// Throws disagreement if nothing can have led to this error of a send (of what), or of a receive (null).
  void require_expected(const error& e, const contents* what, std::uint64_t objects_max) const;

  struct counters {
    std::atomic<std::uint64_t> lines{0}, sent{0}, accepted{0}, late{0}, failed{0}, came{0}, came_objects{0};
  } counts;

 private:
  struct record {
    std::uint64_t sender;
    std::weak_ptr<line> on;
    contents what;
    bool accepted = false, came = false;
  };
  shared_line connect();

  heap& from_;
  const letter_options options_;
  const channel_options terms_;
  channel_listener listener_;
  std::atomic<bool> shut_{false};
  std::mutex connecting_;  ///< taken before the other
  std::mutex mutex_;       ///< all below
  shared_line stands_;
  std::map<std::uint64_t, record> records_;
  std::uint64_t last_ = 0;
};

}  // namespace fm::sim
