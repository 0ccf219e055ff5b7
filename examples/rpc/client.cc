// Orders, and what has to come of them; see client.h.
#include "client.h"

#include <fmt/format.h>

#include <algorithm>
#include <deque>
#include <unordered_map>

#include "../support/edges.h"
#include "../support/machine.h"

namespace fm::example {

namespace {

constexpr std::uint64_t lines_max = 4;
constexpr auto answer_within = std::chrono::seconds(60);

/// What the server has no use for.
struct not_a_request {
  std::uint64_t number = 0;
  fm::ref<fm::string> text;
};

struct order {
  std::uint64_t number = 0;
  outcome expected = outcome::ok;
  std::vector<std::pair<std::string, std::uint32_t>> lines;
  fm::time_point sent;
};

/// What an order needs: quantity by part.
class plain_bill {
 public:
  explicit plain_bill(const plain_parts& parts) : parts_(parts) {}
  void add(std::uint64_t part, std::uint64_t count) {
    needed_[part] += count;
    for (const auto& u : parts_[part].made_from) add(u.part, count * u.count);
  }
  [[nodiscard]] std::uint64_t needed(std::uint64_t part) const {
    const auto found = needed_.find(part);
    return found == needed_.end() ? 0 : found->second;
  }
  [[nodiscard]] std::uint64_t cents(std::uint64_t part) const {
    const plain_part p = parts_[part];
    std::uint64_t sum = p.cents;
    for (const auto& u : p.made_from) sum += u.count * cents(u.part);
    return sum;
  }
  [[nodiscard]] std::size_t items() const noexcept { return needed_.size(); }

 private:
  const plain_parts& parts_;
  std::unordered_map<std::uint64_t, std::uint64_t> needed_;
};

std::uint64_t part_number(const std::string& name) {
  return name.size() > 5 ? std::strtoull(name.c_str() + 5, nullptr, 10) : ~std::uint64_t{0};
}

/// Compares the graph of a bill with a plain one; the first difference, or nothing.
class comparison {
 public:
  comparison(const plain_parts& parts, const plain_bill& expected) : parts_(parts), expected_(expected) {}

  std::string of(const order& o, const fm::ptr<response>& r) {
    const auto lines = uses_of(r->bill.root());
    if (lines.size() != o.lines.size()) return fmt::format("{} lines instead of {}", lines.size(), o.lines.size());
    for (std::size_t i = 0; i < lines.size(); ++i) {
      if (lines[i].second != o.lines[i].second) return fmt::format("line {}: another quantity", i);
      if (std::string e = item(lines[i].first, part_number(o.lines[i].first)); !e.empty()) return e;
    }
    if (by_part_.size() != expected_.items() || r->items != expected_.items())
      return fmt::format("{} items instead of {}", by_part_.size(), expected_.items());
    return {};
  }
  [[nodiscard]] std::uint64_t items() const noexcept { return by_part_.size(); }

 private:
  using uses = std::vector<std::pair<fm::ptr<bill_item>, std::uint64_t>>;
  static uses uses_of(const fm::ptr<bill_use[]>& all) {
    uses out;
    if (!all) return out;
    const fm::read_pin list = all.read();
    for (const bill_use& u : *list) out.emplace_back(u.of.root(), u.count);
    return out;
  }
  std::string item(const fm::ptr<bill_item>& i, std::uint64_t part) {
    if (!i) return "an item that is null";
    const auto [known, added] = by_part_.emplace(part, i);
    if (!added) return known->second == i ? std::string() : fmt::format("part {} is two items", part);
    const fm::string name = i->part.root();
    if (!name || !(name == plain_parts::name_of(part))) return fmt::format("part {} has another name", part);
    if (i->needed != expected_.needed(part))
      return fmt::format("part {}: {} instead of {}", part, std::uint64_t{i->needed}, expected_.needed(part));
    if (i->cents != expected_.cents(part)) return fmt::format("part {}: another price", part);
    const plain_part plain = parts_[part];
    const uses from = uses_of(i->made_from.root());
    if (from.size() != plain.made_from.size()) return fmt::format("part {} is made from others", part);
    for (std::size_t u = 0; u < from.size(); ++u) {
      if (from[u].second != plain.made_from[u].count) return fmt::format("part {} is made from another number", part);
      if (std::string e = item(from[u].first, plain.made_from[u].part); !e.empty()) return e;
    }
    return {};
  }

  const plain_parts& parts_;
  const plain_bill& expected_;
  std::unordered_map<std::uint64_t, fm::ptr<bill_item>> by_part_;
};

class conversation {
 public:
  conversation(fm::heap& h, const std::string& url, const plain_parts& parts, const client_options& o)
      : heap_(h), parts_(parts), o_(o), channel_(fm::channel::connect(h, url)), state_(mix(o.seed)) {}

  client_totals run() {
    for (std::uint64_t i = 0; i < o_.requests && !stop_requested; ++i) {
      while (on_their_way_.size() >= o_.in_flight) take();
      if (i == o_.requests / 2) send_nonsense();
      send(next_order(i));
    }
    while (!on_their_way_.empty()) take();
    const fm::channel_stats s = channel_.stats();
    sum_.bytes_out = s.wire_bytes_sent;
    sum_.bytes_in = s.wire_bytes_received;
    return std::move(sum_);
  }

 private:
  std::uint64_t below(std::uint64_t limit) { return mix(state_++) % limit; }

  order next_order(std::uint64_t number) {
    order o{.number = number};
    for (std::uint64_t n = 1 + below(lines_max); n > 0; --n)
      o.lines.emplace_back(plain_parts::name_of(below(parts_.count())), std::uint32_t(1 + below(9)));
    switch (number % 16) {  // now and then a mistake
      case 5:
        o.expected = outcome::unknown_part;
        o.lines.back().first = "part-of-nothing";
        break;
      case 9:
        o.expected = outcome::bad_quantity;
        o.lines.front().second = 0;
        break;
      case 13: o.expected = outcome::deadline_exceeded; break;
      default: break;
    }
    return o;
  }

  void send(order o) {
    const auto lines = heap_.array<order_line>(o.lines.size());
    std::unordered_map<std::string, fm::string> names;  // a name that comes twice is sent once
    for (std::size_t i = 0; i < o.lines.size(); ++i) {
      fm::string& name = names[o.lines[i].first];
      if (!name) name = heap_.str(o.lines[i].first);
      const fm::write_pin list = lines.write();
      (*list)[i].part = name;
      (*list)[i].quantity = o.lines[i].second;
    }
    const auto r = heap_.make<request>(
        {.number = o.number, .within_us = o.expected == outcome::deadline_exceeded ? 0 : o_.within_us, .lines = lines});
    o.sent = fm::clock::now();
    channel_.send(r, {.until = fm::delivery::sent, .within = answer_within});
    on_their_way_.push_back(std::move(o));
  }

  // The receiver's refusal is thrown here, with both layouts, and what is on its way is not touched by it.
  void send_nonsense() {
    try {
      channel_.send(heap_.make<not_a_request>({.number = 7, .text = heap_.str("hello")}), {.within = answer_within});
      note("a graph that is no request was taken");
    } catch (const fm::error& e) {
      if (e.code() != fm::errc::layout_mismatch) throw;
      ++sum_.not_requests;
    }
  }

  void take() {
    const auto r = channel_.recv<response>({.within = answer_within});
    const order o = std::move(on_their_way_.front());
    on_their_way_.pop_front();
    sum_.latencies_us.push_back(
        std::uint32_t(std::chrono::duration_cast<std::chrono::microseconds>(fm::clock::now() - o.sent).count()));
    const auto what = static_cast<outcome>(std::uint32_t{r->what});
    if (r->number != o.number || what != o.expected) {
      const fm::string text = r->text.root();
      const fm::scope s;
      return note(fmt::format("request {}: {} instead of {}: {}", o.number, name_of(what), name_of(o.expected),
                              text ? std::string(text.view(s)) : "no text"));
    }
    ++sum_.outcomes[std::size_t(what)];
    if (what != outcome::ok) {
      if (r->bill || !r->text) note(fmt::format("request {}: an error without a text, or with a bill", o.number));
      return;
    }
    plain_bill expected(parts_);
    for (const auto& [name, quantity] : o.lines) expected.add(part_number(name), quantity);
    comparison c(parts_, expected);
    if (const std::string e = c.of(o, r); !e.empty()) note(fmt::format("request {}: {}", o.number, e));
    sum_.items += c.items();
  }

  void note(std::string message) {
    ++sum_.wrong;
    if (sum_.messages.size() < 5) sum_.messages.push_back(std::move(message));
  }

  fm::heap& heap_;
  const plain_parts& parts_;
  const client_options o_;
  fm::channel channel_;
  std::uint64_t state_;
  std::deque<order> on_their_way_;
  client_totals sum_;
};

}  // namespace

void client_totals::add(const client_totals& o) {
  for (std::size_t i = 0; i < outcomes.size(); ++i) outcomes[i] += o.outcomes[i];
  items += o.items;
  not_requests += o.not_requests;
  wrong += o.wrong;
  messages.insert(messages.end(), o.messages.begin(), o.messages.end());
  latencies_us.insert(latencies_us.end(), o.latencies_us.begin(), o.latencies_us.end());
  bytes_out += o.bytes_out;
  bytes_in += o.bytes_in;
}

client_totals run_client(fm::heap& h, const std::string& url, const plain_parts& parts, const client_options& o) {
  return conversation(h, url, parts, o).run();
}

}  // namespace fm::example
