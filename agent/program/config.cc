// The table of settings, and the three places from which they come; see config.h.
// Invariant owned here: a flag, an environment variable and a key of the file mean the same setting, by one row of the
// table.
// Called by main before anything is started.
#include "config.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cstdlib>
#include <cstring>
#define TOML_EXCEPTIONS 1
#include <toml++/toml.h>

namespace fm::agent {

namespace {

struct unit {
  const char* name;
  std::uint64_t factor;
};

constexpr unit byte_units[] = {{"", 1},
                               {"B", 1},
                               {"KiB", 1ull << 10},
                               {"MiB", 1ull << 20},
                               {"GiB", 1ull << 30},
                               {"TiB", 1ull << 40},
                               {"kB", 1000},
                               {"MB", 1000'000},
                               {"GB", 1000'000'000},
                               {"TB", 1000'000'000'000}};
constexpr unit time_units[] = {{"ms", 1}, {"s", 1000}, {"min", 60'000}, {"h", 3600'000}};

template <std::size_t n>
std::uint64_t parse_with_unit(const std::string& text, const unit (&units)[n], const char* example) {
  std::uint64_t number = 0;
  const auto [end, ec] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (ec != std::errc()) throw fmt::format("'{}' is not a number with a unit, like {}", text, example);
  std::string name(end, text.data() + text.size());
  name.erase(0, name.find_first_not_of(' ') == std::string::npos ? name.size() : name.find_first_not_of(' '));
  for (const unit& u : units)
    if (name == u.name) {
      if (number > ~std::uint64_t{0} / u.factor) throw fmt::format("'{}' is too large", text);
      return number * u.factor;
    }
  std::string known;
  for (const unit& u : units)
    if (*u.name) known += (known.empty() ? "" : ", ") + std::string(u.name);
  if (name.empty()) throw fmt::format("'{}' has no unit (one of {})", text, known);
  throw fmt::format("'{}' has the unknown unit '{}' (one of {})", text, name, known);
}

double parse_share(const std::string& text) {
  char* end = nullptr;
  const double v = std::strtod(text.c_str(), &end);
  if (text.empty() || *end != 0) throw fmt::format("'{}' is not a number", text);
  return v;
}

std::uint32_t parse_count(const std::string& text) {
  std::uint32_t v = 0;
  const auto [end, ec] = std::from_chars(text.data(), text.data() + text.size(), v);
  if (ec != std::errc() || end != text.data() + text.size() || v == 0)
    throw fmt::format("'{}' is not a count from 1", text);
  return v;
}

bool parse_switch(const std::string& text) {
  if (text == "true" || text == "1" || text == "yes") return true;
  if (text == "false" || text == "0" || text == "no") return false;
  throw fmt::format("'{}' is neither true nor false", text);
}

std::string dashes_to_underscores(std::string s) {
  std::replace(s.begin(), s.end(), '-', '_');
  return s;
}

const setting* find_setting(const std::string& key) {
  for (const setting& s : settings())
    if (dashes_to_underscores(s.name) == key) return &s;
  return nullptr;
}

/// The known key that looks most like `key`, for the message about a typo; empty when none does.
std::string nearest(const std::string& key) {
  std::string best;
  std::size_t best_distance = 4;
  for (const setting& s : settings()) {
    const std::string candidate = dashes_to_underscores(s.name);
    std::vector<std::size_t> row(candidate.size() + 1);
    for (std::size_t j = 0; j < row.size(); ++j) row[j] = j;
    for (std::size_t i = 0; i < key.size(); ++i) {
      std::size_t diagonal = row[0];
      row[0] = i + 1;
      for (std::size_t j = 0; j < candidate.size(); ++j) {
        const std::size_t changed = diagonal + (key[i] != candidate[j]);
        diagonal = row[j + 1];
        row[j + 1] = std::min({changed, row[j] + 1, diagonal + 1});
      }
    }
    if (row.back() < best_distance) {
      best_distance = row.back();
      best = candidate;
    }
  }
  return best.empty() ? "" : fmt::format("; did you mean '{}'?", best);
}

void apply(config& c, const setting& s, const std::vector<std::string>& values, const std::string& origin) {
  if (!s.repeatable && values.size() != 1)
    throw error(errc::bad_config, fmt::format("{}: one value is needed, not {}", origin, values.size()));
  // A stronger source replaces what a weaker one said.
  if (s.repeatable) (s.name == std::string_view("etcd") ? c.etcd : c.listen).clear();
  for (const std::string& v : values) try {
      s.apply(c, v);
    } catch (const std::string& what) {
      throw error(errc::bad_config, fmt::format("{}: {}", origin, what));
    }
}

/// A TOML value as the text that a flag would have; throws what is wrong with it.
std::string as_text(const toml::node& n) {
  if (const auto* s = n.as_string()) return s->get();
  if (const auto* i = n.as_integer()) return std::to_string(i->get());
  if (const auto* f = n.as_floating_point()) return fmt::format("{}", f->get());
  if (const auto* b = n.as_boolean()) return b->get() ? "true" : "false";
  throw std::string("a string, a number or a boolean is needed");
}

void apply_file(config& c, const std::string& path) {
  toml::table table;
  try {
    table = toml::parse_file(path);
  } catch (const toml::parse_error& e) {
    throw error(errc::bad_config, fmt::format("{}:{}: {}", path, e.source().begin.line, e.description()));
  }
  for (const auto& [k, node] : table) {
    const std::string key(k.str());
    const std::string origin = fmt::format("{}:{}: {}", path, k.source().begin.line, key);
    const setting* s = find_setting(key);
    if (s == nullptr)
      throw error(errc::bad_config,
                  fmt::format("{}:{}: unknown key '{}'{}", path, k.source().begin.line, key, nearest(key)));
    std::vector<std::string> values;
    try {
      if (const auto* array = node.as_array(); array != nullptr && s->repeatable)
        for (const auto& element : *array) values.push_back(as_text(element));
      else
        values.push_back(as_text(node));
    } catch (const std::string& what) {
      throw error(errc::bad_config, fmt::format("{}: {}", origin, what));
    }
    apply(c, *s, values, origin);
  }
}

void apply_environment(config& c, char** environment) {
  constexpr const char* prefix = "FARMEM_AGENT_";
  for (char** e = environment; e != nullptr && *e != nullptr; ++e) {
    const char* equals = std::strchr(*e, '=');
    if (equals == nullptr || std::strncmp(*e, prefix, std::strlen(prefix)) != 0) continue;
    const std::string variable(*e, std::size_t(equals - *e));
    std::string key = variable.substr(std::strlen(prefix));
    std::transform(key.begin(), key.end(), key.begin(), [](unsigned char ch) { return char(std::tolower(ch)); });
    if (key == "config") continue;  // names the file; main has read it
    const setting* s = find_setting(key);
    if (s == nullptr)
      throw error(errc::bad_config,
                  fmt::format("environment variable {}: unknown setting '{}'{}", variable, key, nearest(key)));
    std::vector<std::string> values{""};
    for (const char* p = equals + 1; *p != 0; ++p)  // several addresses are separated by commas
      if (*p == ',' && s->repeatable)
        values.emplace_back();
      else
        values.back() += *p;
    apply(c, *s, values, "environment variable " + variable);
  }
}

}  // namespace

std::uint64_t parse_bytes(const std::string& text) { return parse_with_unit(text, byte_units, "4GiB"); }

std::uint32_t parse_milliseconds(const std::string& text, std::uint32_t hours_most) {
  const std::uint64_t ms = parse_with_unit(text, time_units, "15s");
  if (ms == 0 || ms > std::uint64_t{hours_most} * 3600'000)
    throw fmt::format("'{}' is not between 1ms and {}h", text, hours_most);
  return static_cast<std::uint32_t>(ms);
}

namespace {

// Microseconds; 0 turns polling off.
duration parse_spin(const std::string& text) {
  constexpr unit spin_units[] = {{"us", 1}, {"ms", 1000}};
  const std::uint64_t us = text == "0" ? 0 : parse_with_unit(text, spin_units, "20us");
  if (us > 10'000) throw fmt::format("'{}' is more than 10ms", text);
  return std::chrono::microseconds(us);
}

}  // namespace

const std::vector<setting>& settings() {
  using text = const std::string&;
  static const std::vector<setting> all{
      {"listen", "URL", "address to serve: shm:///path or tcp://127.0.0.1:port (port 0: any); repeatable", true,
       [](config& c, text v) { c.listen.push_back(v); }},
      {"memory", "SIZE", "memory for regions of all heaps, pools and paged ranges (default 1GiB)", false,
       [](config& c, text v) { c.store.memory_bytes = parse_bytes(v); }},
      {"region", "SIZE", "size of a region, a power of two from 64KiB to 32MiB (default 16MiB)", false,
       [](config& c, text v) { c.store.region_bytes = parse_bytes(v); }},
      {"quota", "SIZE", "most that one heap may have (default: all of the memory)", false,
       [](config& c, text v) { c.store.quota_default_bytes = parse_bytes(v); }},
      {"heaps", "N", "most heaps at a time (default 64)", false,
       [](config& c, text v) { c.store.heaps_max = parse_count(v); }},
      {"pools", "N", "most pools at a time (default 64)", false,
       [](config& c, text v) { c.store.pools_max = parse_count(v); }},
      {"pool-clients", "N", "most processes that have one pool open at a time (default 1024)", false,
       [](config& c, text v) { c.store.pool_clients_max = parse_count(v); }},
      {"lease", "TIME", "how long a heap outlives its owner's connection (default 15s)", false,
       [](config& c, text v) {
         c.store.lease_default_ms = parse_milliseconds(v);
         c.store.lease_max_ms = std::max(c.store.lease_max_ms, c.store.lease_default_ms);
       }},
      {"keep-detached", "TIME", "how long a heap that was detached is kept for its next owner at most (default 24h)",
       false, [](config& c, text v) { c.store.keep_max_ms = parse_milliseconds(v, 720); }},
      {"clean-below", "SHARE", "regions with a smaller live share are cleaned when memory is short (default 0.75)",
       false, [](config& c, text v) { c.store.clean_below_live_ratio = parse_share(v); }},
      {"clean-reserve", "SHARE", "share of the memory that only the cleaner may use (default 0.05)", false,
       [](config& c, text v) { c.store.clean_reserve = parse_share(v); }},
      {"connections", "N", "most connections at a time (default 512)", false,
       [](config& c, text v) { c.fabric.connections_max = parse_count(v); }},
      {"io-threads", "N",
       "threads that serve each address: half for messages, half for fetches; over shm:// all for messages (default 2)",
       false, [](config& c, text v) { c.fabric.io_threads = parse_count(v); }},
      {"spin", "TIME", "how long a thread polls for the next request before it blocks, where that pays (default 20us)",
       false, [](config& c, text v) { c.fabric.spin_for = parse_spin(v); }},
      {"on-demand-paging", "",
       "verbs://: the device looks pages of regions up when it needs them, and they are not locked, where it can do "
       "that",
       false, [](config& c, text v) { c.fabric.on_demand_paging = parse_switch(v); }},
      {"huge-pages", "", "shm://: ask the kernel for huge pages for regions; --doctor says whether it gives any", false,
       [](config& c, text v) { c.store.huge_pages = parse_switch(v); }},
      {"trace-threads", "N", "threads that trace for collections (default 1)", false,
       [](config& c, text v) { c.store.trace_threads = parse_count(v); }},
      {"trace-nice", "N", "how far they give way to the threads that serve, 0 to 19 (default 10)", false,
       [](config& c, text v) {
         const std::uint32_t n = v == "0" ? 0 : parse_count(v);
         if (n > 19) throw fmt::format("'{}' is more than 19", v);
         c.store.trace_nice = static_cast<int>(n);
       }},
      {"peers", "YES|NO",
       "while tracing, send references to other agents' objects to those agents, and take theirs; no: only through the "
       "owners (default yes)",
       false, [](config& c, text v) { c.store.peers = parse_switch(v); }},
      {"insecure", "", "allow plaintext TCP with an address that is not loopback, listening and to other agents", false,
       [](config& c, text v) { c.fabric.insecure = parse_switch(v); }},
      {"admin", "PATH",
       "Unix socket for --status; only this user and root may use it (default $XDG_RUNTIME_DIR/farmem-agent.sock)",
       false,
       [](config& c, text v) {
         c.admin = v;
         c.admin_is_default = false;
       }},
      {"zone", "TEXT", "the agent's failure domain: replicas are put on agents of different zones (default none)",
       false, [](config& c, text v) { c.store.zone = v; }},
      {"etcd", "URL",
       "where it is decided which agent of a pool with replicas goes on when they do not hear each other, like "
       "http://127.0.0.1:2379; repeatable (default: an administrator decides, --survive)",
       true, [](config& c, text v) { c.etcd.push_back(v); }},
      {"pool-tenure", "TIME",
       "how long the primary of a pool with replicas serves at most after its backup has answered (default 750ms)",
       false, [](config& c, text v) { c.store.pool_tenure_ms = parse_milliseconds(v); }},
      {"drain-on-term", "TIME",
       "SIGTERM has all heaps leave first, and waits so long; a second signal ends the agent (default: it ends at "
       "once)",
       false, [](config& c, text v) { c.drain_on_term = std::chrono::milliseconds(parse_milliseconds(v)); }},
      {"name", "TEXT", "the agent's name in logs and statistics", false, [](config& c, text v) { c.store.name = v; }},
      {"log-level", "LEVEL", "trace, debug, info, warning, error or off (default info)", false,
       [](config& c, text v) {
         for (const char* known : {"trace", "debug", "info", "warning", "error", "off"})
           if (v == known) {
             c.log_level = v;
             return;
           }
         throw fmt::format("'{}' is no log level (trace, debug, info, warning, error, off)", v);
       }},
  };
  return all;
}

config load_config(const std::vector<flag_values>& flags, const std::string& file, char** environment) {
  config c;
  c.store.name = "agent";
  c.store.log_heaps = true;
  c.fabric.io_threads = 2;
  if (const char* dir = std::getenv("XDG_RUNTIME_DIR"); dir != nullptr && *dir != 0) {
    c.admin = std::string(dir) + "/farmem-agent.sock";
    c.admin_is_default = true;
  }
  if (!file.empty()) apply_file(c, file);
  apply_environment(c, environment);
  for (const flag_values& f : flags) apply(c, *find_setting(dashes_to_underscores(f.name)), f.values, "--" + f.name);
  // It connects to other agents as it lets itself be connected to.
  c.store.peers_beyond_host = c.fabric.insecure;
  std::vector<std::string>& schemes = c.store.peer_schemes;
  schemes.clear();
  for (const std::string& url : c.listen)
    if (const std::string s = url.substr(0, url.find(':'));
        std::find(schemes.begin(), schemes.end(), s) == schemes.end())
      schemes.push_back(s);
  c.store.shared_regions = std::find(schemes.begin(), schemes.end(), "shm") != schemes.end();
  return c;
}

void check_config(const config& c) {
  const auto bad = [](const std::string& text) { throw error(errc::bad_config, text); };
  if (c.listen.empty()) bad("no address to listen on: give --listen, for instance --listen tcp://127.0.0.1:7070");
  for (const std::string& url : c.listen) {
    try {
      fabric::check_listen(url, c.fabric);
    } catch (const error& e) {
      if (e.code() == errc::access_denied)
        bad(fmt::format(
            "listen: {} is not a loopback address, and what it carries is plaintext that everybody there can read "
            "and use: give --insecure (insecure = true) if the network is to be trusted",
            url));
      if (e.code() == errc::unknown_scheme || url.starts_with("local:"))
        bad(fmt::format("listen: '{}': an agent listens on shm://PATH or tcp://HOST:PORT", url));
      bad(fmt::format("listen: {}", e.what()));
    }
  }
  try {
    store_options o = c.store;
    o.hooks.background = false;
    (void)store::create(o);  // reserves address space only
  } catch (const error& e) {
    bad(e.what());
  }
}

}  // namespace fm::agent
