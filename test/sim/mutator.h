// A thread of the simulated program with its shadow: what it makes, links, cuts, drops and finds again in the heap, it does
// in a model of its own, too, and the two must agree whenever it looks. Objects carry their number, a check of it, and
// an array of data that follows from it; all threads store to and load from one shared array besides.
#pragma once

#include <farmem/farmem.h>

#include <array>
#include <deque>
#include <map>
#include <optional>
#include <random>
#include <set>
#include <stdexcept>
#include <unordered_map>
#include <vector>

#include "commons.h"
#include "letters.h"

namespace fm::sim {

/// What a mutator does in every second step, on average.
enum class favour : std::uint8_t {
  nothing,
  shared,   ///< reaching what the shared array refers to, and overwriting what is reached
  pins,     ///< taking pins, and giving them back
  letters,  ///< sending graphs and receiving them
};

struct mutator_options {
  std::uint64_t number = 0, seed = 0;
  bool may_lose_agents = false;
  std::size_t pins_max = 0;  ///< that live on from step to step: each holds a segment
  bool pins_by_mail = false;
  bool large = false;  ///< some data is larger than a segment
  bool map = false;    ///< it has a hash map
  favour favours = favour::nothing;
  bool obituaries = true;        ///< it asks to be told of deaths
  letter_box* outbox = nullptr;  ///< where it puts letters in
  letter_box* inbox = nullptr;   ///< where it alone takes them out
  bool letters_change = false;   ///< it changes graphs while they are sent
};

/// What the heap answered was wrong. Everything else that is thrown out of a step is the heap's own error.
struct disagreement : std::runtime_error {
  using std::runtime_error::runtime_error;
};

class mutator {
 public:
  mutator(heap& h, commons& shared, const mutator_options& options);

  /// Does something at random. Throws disagreement; and fm::error, where agents may be lost only by their loss.
  void step();
  /// Compares everything that the shadow reaches; `alive` are the nodes afterwards. The mutator keeps its nodes, and gives
  /// pins and its map up.
  void compare_all();
  /// It sends nothing more, and what it sent is over.
  void end_letters();
  /// When nobody sends any more: compares the letters that came, and gives them up.
  void compare_letters();
  std::set<std::uint64_t> alive;
  std::uint64_t locked = 0, gone = 0, failed = 0;

 private:
  struct shadow {
    std::array<std::uint64_t, edges> to{};
  };
  using place = std::pair<ptr<node>, std::uint64_t>;
  /// A letter that was sent by send_async, until that is over.
  struct outgoing {
    letter_box::shared_line line;
    std::uint64_t number;
    contents what;
    send_options how;
    std::optional<channel_operation<void>> operation;
  };
  /// A letter that came.
  struct copy {
    ptr<letter> root;
    std::uint64_t number;
    contents what;
  };

  void act();
  void act_as_favoured();
  std::size_t pick(std::size_t n) { return random_() % n; }
  void require_node(const ptr<node>& p, std::uint64_t id);
  void require_node(const node& n, std::uint64_t id);
  void require_data(const ptr<node>& p);
  void require_data_of(const read_pin<node>& p, std::uint64_t id);
  [[nodiscard]] std::size_t words_of(std::uint64_t id) const;
  /// A node of which the shadow forgets at once that it was made: it is to be another thread's.
  ptr<node> make_to_give_away(std::uint64_t& id);
  ptr<node> make(std::uint64_t& id);
  place walk(std::size_t most);
  void make_root();
  void attach_new();
  void link();
  void cut();
  void swap_edges();
  void drop_root();
  void move_root();
  void use_weak();
  void exchange_shared();
  void make_garbage();
  void prefetch_some();
  void hold_scope();
  void write_data();
  void write_data_of(const ptr<node>& p, std::uint64_t id);
  void forget_some();
  void reach_in_place();
  void overwrite_reached();
  void use_pins();
  void use_mail();
  void run_tasks();
  task<> visit(ptr<node> p, std::uint64_t id);
  void use_map();
  void compare_map();
  void use_letters();
  ptr<letter> write_letter(contents& what);
  place make_bush(contents& what);
  void send_letters();
  void send_some(const letter_box::shared_line& line);
  template <class Wait>
  void settle(const outgoing& o, const Wait& wait);
  void settle_letters(bool all);
  void take_letter(duration within);
  void take_received();
  template <class Receive>
  void open_letter(const Receive& receive);
  void use_copy();
  void require_copy(const copy& c, const ptr<node>& p, std::uint64_t id);
  void change_copy(copy& c);
  void compare_copy(const copy& c);
  void drop_copy(std::size_t i);

  heap& heap_;
  commons& shared_;
  const mutator_options options_;
  std::uint64_t next_id_;
  std::mt19937_64 random_;
  std::vector<ptr<node>> roots_;
  std::vector<std::uint64_t> root_ids_;
  std::unordered_map<std::uint64_t, shadow> shadow_;
  std::vector<std::pair<weak<node>, std::uint64_t>> weak_;
  std::vector<std::pair<read_pin<node>, std::uint64_t>> pins_;  ///< they live on from step to step
  hash_map<std::uint64_t, std::uint64_t> map_;
  std::map<std::uint64_t, std::uint64_t> map_shadow_;
  std::vector<outgoing> under_way_;
  std::deque<channel_operation<ptr<letter>>> receiving_;  ///< from line_in_
  letter_box::shared_line line_in_;                       ///< that it receives from
  std::vector<copy> copies_;
  std::size_t last_size_ = 0;
};

// ---- for the files of mutator ----

inline std::uint64_t check_of(std::uint64_t id) { return id * 0x9e3779b97f4a7c15 ^ 0x5bd1e995; }
/// Word 0 of a node's data counts how often it was written anew; the others follow from it.
inline std::uint64_t word_of(std::uint64_t id, std::size_t i, std::uint64_t version) {
  return check_of(id + i) + version * 0x10001;
}
/// Errors of operations that a lost agent takes with it.
bool is_loss(errc e);
/// Errors of a channel after which it is of no use.
constexpr bool ends_line(errc e) { return e == errc::disconnected || e == errc::bad_frame; }
[[noreturn]] void wrong(const char* what, std::uint64_t id);
[[noreturn]] void wrong_edge(const ptr<node>& at, std::uint64_t id, std::size_t edge, std::uint64_t should_be,
                             const ptr<node>& is);

}  // namespace fm::sim
