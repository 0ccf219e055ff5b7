#include <functional>
#include <map>
#include <memory>
#include <random>
#include <unordered_map>

#include "containers/failures.h"
#include "containers/transports.h"

using namespace fm::test;

namespace {
struct named {
  int id = 0;
  fm::ref<fm::string> name;
};

/// Strings in fields, some of them null, beside what they must hold.
class strings_oracle {
 public:
  strings_oracle(fm::heap& h, std::uint64_t seed, std::size_t n) : heap_(h), rng_(seed), oracle_(n) {
    for (std::size_t i = 0; i < n; ++i) all_.push_back(nullptr);
  }

  void step() {
    const std::size_t i = rng_() % oracle_.size(), k = rng_() % oracle_.size();
    if (rng_() % 4 == 0) {
      const fm::string moved = all_[i];  // between, this handle alone keeps it
      all_.set(i, nullptr);
      all_.set(k, moved);
      oracle_[k] = std::exchange(oracle_[i], std::nullopt);
      check(k);
    } else if (!oracle_[i] || !oracle_[k] || oracle_[i]->size() > 3'000) {
      set(i, text());
    } else if (const fm::string a = all_[i], b = all_[k]; rng_() % 2 == 0) {
      REQUIRE(((a <=> b) == (*oracle_[i] <=> *oracle_[k]) && (a == b) == (*oracle_[i] == *oracle_[k])));
      REQUIRE((a.hash() == fm::string::hash_of(*oracle_[i]) && a.size() == oracle_[i]->size()));
    } else {
      fm::string_builder parts;
      parts.append(a).append('/').append(b);
      all_.set(i, parts.build(heap_));
      oracle_[i] = *oracle_[i] + '/' + *oracle_[k];
    }
    check(i);
    if (rng_() % 500 == 0) REQUIRE(heap_.evict_all() == fm::errc::ok);
  }
  void check(std::size_t i) {
    const fm::string s = all_[i];
    REQUIRE(bool(s) == oracle_[i].has_value());
    if (!s) return;
    const fm::scope in;
    REQUIRE(s.view(in) == *oracle_[i]);
  }
  void check() {
    for (std::size_t i = 0; i < oracle_.size(); ++i) check(i);
  }

 private:
  /// One of few short texts, so that some are equal, or a long one.
  std::string text() {
    if (rng_() % 2 == 0) return std::to_string(rng_() % 50);
    return std::string(rng_() % 1'000, char('a' + rng_() % 26)) + std::to_string(rng_());
  }
  void set(std::size_t i, const std::string& t) {
    all_.set(i, heap_.str(t));
    oracle_[i] = t;
  }

  fm::heap& heap_;
  std::mt19937_64 rng_;
  const fm::vector<fm::ref<fm::string>> all_{heap_};
  std::vector<std::optional<std::string>> oracle_;
};
}  // namespace

TEST_CASE("a managed string keeps its text") {
  fm::heap h(tiny());
  const fm::string a = fm::str(h, "far");
  const fm::string b = h.str("far");
  const fm::string empty = fm::make_string(h, "");
  REQUIRE(a.size() == 3);
  REQUIRE(a.str() == "far");
  REQUIRE(a == "far");
  REQUIRE_FALSE(a == "near");
  REQUIRE(a == b);
  REQUIRE_FALSE(a == empty);
  REQUIRE(empty.empty());
  REQUIRE(empty.str().empty());
  REQUIRE(a.hash() == b.hash());
  REQUIRE(a.hash() == fm::string::hash_of("far"));
  REQUIRE(a.hash() != fm::string::hash_of("faq"));
  REQUIRE(fm::string::hash_of("12345678") != fm::string::hash_of(std::string_view("12345678\0", 9)));
  {
    fm::scope s;
    REQUIRE(b.view(s) == "far");
    REQUIRE(fm::string().view(s).empty());
  }
  REQUIRE(code_of([] { (void)fm::string().size(); }) == fm::errc::null_handle);
  REQUIRE(code_of([&] { fm::string(h, std::string(4_MiB, 'x')); }) == fm::errc::too_large);
  require_sound(h);
}

TEST_CASE("strings are ordered and hashed by their text") {
  fm::heap h(tiny());
  std::map<fm::string, int> ordered;
  std::unordered_map<fm::string, int> hashed;
  const std::vector<std::string> texts{"", "a", "aa", "ab", "b", std::string("b\0", 2), "\x80"};
  for (std::size_t i = texts.size(); i-- > 0;) ordered[h.str(texts[i])] = hashed[h.str(texts[i])] = static_cast<int>(i);
  ordered[fm::string()] = hashed[fm::string()] = -1;
  int next = -1;
  for (const auto& [text, number] : ordered) REQUIRE(number == next++);
  REQUIRE(next == static_cast<int>(texts.size()));
  for (std::size_t i = 0; i < texts.size(); ++i) {
    REQUIRE(hashed.at(h.str(texts[i])) == static_cast<int>(i));
    for (std::size_t k = 0; k < texts.size(); ++k)
      REQUIRE((h.str(texts[i]) <=> std::string_view(texts[k])) == (i <=> k));
  }
  REQUIRE(h.str("a") < h.str("b"));
  REQUIRE(h.str("a") < "b");
  REQUIRE(code_of([] { (void)(fm::string() < "a"); }) == fm::errc::null_handle);
}

TEST_CASE("more text than the cache holds hangs in references") {
  fm::heap h(tiny());
  fm::vector<fm::ref<named>> all(h);
  const auto text = [](int i) { return std::string(std::size_t(i % 700), 'a' + i % 26) + std::to_string(i); };
  for (int i = 0; i < 12'000; ++i) all.push_back(h.make<named>({.id = i, .name = fm::str(h, text(i))}));
  for (int i = 0; i < 12'000; i += 3) {
    const fm::ptr<named> n = all[i];
    REQUIRE(fm::string(n->name) == text(i));
  }
  const fm::ptr<named> first = all[0];
  first.write()->name = fm::str(h, "renamed");
  const fm::string name = first->name;
  REQUIRE(name.str() == "renamed");
  first.write()->name = nullptr;
  REQUIRE_FALSE(first->name);
  require_sound(h);
}

TEST_CASE("a builder makes one string of parts, and stays as it is") {
  fm::heap h(tiny());
  const fm::string far = h.str("far");
  REQUIRE(h.evict_all() == fm::errc::ok);
  fm::string_builder b("<");
  REQUIRE_FALSE(b.empty());
  b.append(far).append("mem").append(std::string_view("!?", 1)).append('>');
  std::fill_n(std::back_inserter(b), 2, '.');
  REQUIRE(b.view() == "<farmem!>..");
  REQUIRE(b.size() == 11);
  const fm::string made = b.build(h);
  REQUIRE(made == "<farmem!>..");
  b.append("more");
  REQUIRE(made == "<farmem!>..");  // it never changes
  REQUIRE(b.build(h) == "<farmem!>..more");
  REQUIRE(code_of([&] { b.append(fm::string()); }) == fm::errc::null_handle);
  REQUIRE(b.view() == "<farmem!>..more");
  b.clear();
  REQUIRE(b.build(h).empty());
  require_sound(h);
}

TEST_CASE("strings hold what std::string does over every transport, under collections without end") {
  heap_over over(GENERATE("local", "tcp", "shm"));
  strings_oracle strings(over.heap, 6, 4'000);
  beside_collections(over.heap, effort(8'000), [&](std::uint64_t) { strings.step(); });
  strings.check();
  require_sound(over.heap);
}

TEST_CASE("strings and builders are as before when any fetch fails") {
  sparing_agent agent;
  fm::heap h(agent.options());
  const std::string one(700, 'a'), other = one + 'b';
  struct texts {
    fm::string a, b;
    std::shared_ptr<fm::string_builder> parts = std::make_shared<fm::string_builder>("so far");
  };
  using operation = std::function<void(const texts&)>;
  for (const operation& op :
       std::vector<operation>{[](const texts& t) { (void)t.a.str(); }, [](const texts& t) { (void)t.a.size(); },
                              [](const texts& t) { (void)t.a.hash(); }, [](const texts& t) { (void)(t.a == t.b); },
                              [](const texts& t) { (void)(t.a <=> t.b); }, [](const texts& t) { (void)(t.a < "a"); },
                              [](const texts& t) {
                                const fm::scope in;
                                (void)t.b.view(in);
                              },
                              [](const texts& t) {
                                t.parts->append(t.a);
                                t.parts->clear();
                              }})
    fail_each_fetch(
        h, agent,
        [&] {
          return texts{h.str(one), h.str(other)};
        },
        op,
        [&](const texts& t, fm::errc result) {
          if (result != fm::errc::ok) REQUIRE(t.parts->view() == "so far");
          REQUIRE((t.a == one && t.b == other && t.a < t.b && t.a.hash() == fm::string::hash_of(one)));
        });
  require_sound(h);
}
