// Orders to bills; see service.h.
#include "service.h"

#include <fmt/format.h>

#include <unordered_map>

#include "../support/machine.h"

namespace fm::example {

namespace {

constexpr auto look_every = std::chrono::milliseconds(100);    // whether to stop
constexpr auto answer_read_within = std::chrono::seconds(30);  // that a client reads
constexpr std::uint64_t items_max = 100'000;                   // of a bill
constexpr std::uint64_t within_us_max = 60'000'000;            // that a client may ask for

struct refusal {
  outcome what;
  std::string text;
};

std::string text_of(const fm::string& s) {
  if (!s) return {};
  const fm::scope in;
  return std::string(s.view(in));
}

/// Makes a bill. A part that was met is one item, however often it is met again.
class billing {
 public:
  billing(fm::heap& h, fm::time_point deadline) : heap_(h), deadline_(deadline) {}

  fm::ptr<bill_item> item_of(const fm::ptr<part>& p, std::uint64_t needed) {
    const auto item = item_of(p);
    order_.push_back({item, needed});
    return item;
  }
  /// How many of each item: along every way that leads to it. Items are looked at after all that they are a part of.
  void count() {
    for (const auto& [item, needed] : order_) item.write()->needed += needed;
    for (auto i = done_.rbegin(); i != done_.rend(); ++i) {
      const fm::ptr<bill_use[]> uses = (*i)->made_from;
      if (!uses) continue;
      const std::uint64_t needed = (*i)->needed;
      const fm::read_pin list = uses.read();
      for (const bill_use& u : *list) u.of.root().write()->needed += needed * u.count;
    }
  }
  [[nodiscard]] std::uint64_t items() const noexcept { return done_.size(); }

 private:
  fm::ptr<bill_item> item_of(const fm::ptr<part>& p) {
    if (const auto known = items_.find(p.slot()); known != items_.end()) return known->second;
    if (fm::clock::now() >= deadline_) throw refusal{outcome::deadline_exceeded, "the time was over before the bill"};
    if (items_.size() == items_max)
      throw refusal{outcome::too_large, fmt::format("a bill of more than {} items", items_max)};
    const auto item = heap_.make<bill_item>({.part = heap_.str(text_of(fm::string(p->name)))});
    items_.emplace(p.slot(), item);
    std::uint64_t cents = p->cents;
    const auto from = uses_of(p);
    if (!from.empty()) {
      for (const auto& u : from) fm::prefetch(u.first);
      const auto uses = heap_.array<bill_use>(from.size());
      for (std::size_t i = 0; i < from.size(); ++i) {
        const auto of = item_of(from[i].first);
        cents += from[i].second * of->cents;
        const fm::write_pin list = uses.write();
        (*list)[i].count = from[i].second;
        (*list)[i].of = of;
      }
      item.write()->made_from = uses;
    }
    item.write()->cents = cents;
    done_.push_back(item);
    return item;
  }
  static std::vector<std::pair<fm::ptr<part>, std::uint64_t>> uses_of(const fm::ptr<part>& p) {
    std::vector<std::pair<fm::ptr<part>, std::uint64_t>> out;
    const fm::ptr<part_use[]> uses = p->made_from;
    if (!uses) return out;
    const fm::read_pin list = uses.read();
    for (const part_use& u : *list) out.emplace_back(u.of.root(), u.count);
    return out;
  }

  fm::heap& heap_;
  const fm::time_point deadline_;
  std::unordered_map<std::uint64_t, fm::ptr<bill_item>> items_;
  std::vector<fm::ptr<bill_item>> done_;  ///< each after what it is made from
  std::vector<std::pair<fm::ptr<bill_item>, std::uint64_t>> order_;
};

}  // namespace

service::service(fm::heap& h, const plain_parts& parts) : heap_(h), by_name_(h) {
  const fm::vector<fm::ref<part>> by_number(h);
  for (std::uint64_t i = 0; i < parts.count() && !stop_requested; ++i) {
    const plain_part p = parts[i];
    const auto name = h.str(plain_parts::name_of(i));
    const auto made = h.make<part>({.cents = p.cents, .name = name});
    if (!p.made_from.empty()) {
      const auto uses = h.array<part_use>(p.made_from.size());
      for (std::size_t u = 0; u < p.made_from.size(); ++u) {
        const fm::ptr<part> of = by_number[p.made_from[u].part];
        const fm::write_pin list = uses.write();
        (*list)[u].count = p.made_from[u].count;
        (*list)[u].of = of;
      }
      made.write()->made_from = uses;
    }
    by_number.push_back(made);
    by_name_.insert_or_assign(plain_parts::name_of(i), made);
  }
}

fm::ptr<response> service::answer(const fm::ptr<request>& r) {
  const std::uint64_t number = r->number;
  const fm::time_point deadline =
      fm::clock::now() + std::chrono::microseconds(std::min(std::uint64_t{r->within_us}, within_us_max));
  try {
    std::vector<std::pair<fm::string, std::uint32_t>> lines;
    if (const fm::ptr<order_line[]> all = r->lines) {
      const fm::read_pin list = all.read();
      for (const order_line& l : *list) lines.emplace_back(l.part, l.quantity);
    }
    billing b(heap_, deadline);
    const auto bill = heap_.array<bill_use>(lines.size());
    for (std::size_t i = 0; i < lines.size(); ++i) {
      const std::string name = text_of(lines[i].first);
      if (lines[i].second == 0)
        throw refusal{outcome::bad_quantity, fmt::format("line {} orders none of '{}'", i, name)};
      const fm::ptr<part> p = by_name_.find(name);
      if (!p) throw refusal{outcome::unknown_part, fmt::format("line {}: no part '{}'", i, name)};
      const auto item = b.item_of(p, lines[i].second);
      const fm::write_pin list = bill.write();
      (*list)[i].count = lines[i].second;
      (*list)[i].of = item;
    }
    b.count();
    items_ += b.items();
    return heap_.make<response>({.number = number, .items = b.items(), .bill = bill});
  } catch (const refusal& e) {
    return heap_.make<response>({.number = number, .what = std::uint32_t(e.what), .text = heap_.str(e.text)});
  }
}

void service::serve(fm::channel client) {
  while (!stop_requested) {
    try {
      if (!client.readable(look_every)) continue;
      const auto r = client.recv<request>();
      const auto a = answer(r);
      ++answered_;
      client.send(a, {.until = fm::delivery::sent, .within = answer_read_within});
    } catch (const fm::error& e) {
      switch (e.code()) {
        case fm::errc::layout_mismatch:
        case fm::errc::too_large: ++refused_; break;  // the client has heard the same
        case fm::errc::disconnected: return;
        default: throw;
      }
    }
  }
}

}  // namespace fm::example
