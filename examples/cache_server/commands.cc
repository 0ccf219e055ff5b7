// The table of commands and what they do; see commands.h.
#include "commands.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <limits>

namespace fm::example {

namespace {

constexpr std::size_t any = 1'000'000;
constexpr std::string_view not_an_integer = "ERR value is not an integer or out of range";

bool equal(std::string_view text, std::string_view lower) {
  return text.size() == lower.size() && std::equal(text.begin(), text.end(), lower.begin(), [](char a, char b) {
           return (a >= 'A' && a <= 'Z' ? char(a - 'A' + 'a') : a) == b;
         });
}

std::string lower_case(std::string text) {
  for (char& c : text) c = c >= 'A' && c <= 'Z' ? char(c - 'A' + 'a') : c;
  return text;
}

/// A point in time from a number of seconds or milliseconds, from now or from 1970. False: no time that there is.
bool expiry_of(std::int64_t n, bool seconds, bool from_now, std::int64_t& at_ms) {
  constexpr std::int64_t limit = std::numeric_limits<std::int64_t>::max() / 4;
  if (seconds && (n > limit / 1000 || n < -limit / 1000)) return false;
  if (n > limit || n < -limit) return false;
  at_ms = (seconds ? n * 1000 : n) + (from_now ? unix_ms() : 0);
  return true;
}

}  // namespace

const commands::command* commands::find(std::string_view name) {
  static constexpr std::array<command, 33> all{{
      {"get", 2, 2, &commands::get},
      {"set", 3, 9, &commands::set},
      {"mget", 2, any, &commands::mget},
      {"mset", 3, any, &commands::mset},
      {"setex", 4, 4, &commands::setex},
      {"psetex", 4, 4, &commands::setex},
      {"setnx", 3, 3, &commands::setnx},
      {"del", 2, any, &commands::del},
      {"unlink", 2, any, &commands::del},
      {"exists", 2, any, &commands::exists},
      {"strlen", 2, 2, &commands::strlen},
      {"expire", 3, 3, &commands::expire},
      {"pexpire", 3, 3, &commands::expire},
      {"expireat", 3, 3, &commands::expire},
      {"pexpireat", 3, 3, &commands::expire},
      {"persist", 2, 2, &commands::persist},
      {"ttl", 2, 2, &commands::ttl},
      {"pttl", 2, 2, &commands::ttl},
      {"incr", 2, 2, &commands::incr},
      {"decr", 2, 2, &commands::incr},
      {"incrby", 3, 3, &commands::incr},
      {"decrby", 3, 3, &commands::incr},
      {"dbsize", 1, 1, &commands::dbsize},
      {"flushall", 1, 2, &commands::flush},
      {"flushdb", 1, 2, &commands::flush},
      {"ping", 1, 2, &commands::ping},
      {"echo", 2, 2, &commands::echo},
      {"select", 2, 2, &commands::select},
      {"info", 1, any, &commands::info},
      {"config", 2, any, &commands::config},
      {"command", 1, any, &commands::describe},
      {"memory", 2, any, &commands::memory},
      {"quit", 1, 1, &commands::quit},
  }};
  for (const command& c : all)
    if (equal(name, c.name)) return &c;
  return nullptr;
}

bool commands::execute(words w, std::string& out) {
  reply_writer r(out);
  ++status_.executed;
  const std::size_t before = out.size();
  const command* const c = find(w[0]);
  if (c == nullptr) {
    r.error(fmt::format("ERR unknown command '{:.64}'", w[0]));
  } else if (w.size() < c->words_min || w.size() > c->words_max) {
    r.error(fmt::format("ERR wrong number of arguments for '{}' command", c->name));
  } else {
    try {
      (this->*c->run)(w, r);
    } catch (const error& e) {
      out.resize(before);
      if (e.code() == errc::quota_exceeded || e.code() == errc::agent_full)
        r.error(fmt::format("OOM command not allowed: the pool is full ({})", e.what()));
      else if (e.code() == errc::too_large)
        r.error(fmt::format("ERR {}", e.what()));
      else
        throw;
    }
  }
  status_.failed += out.size() > before && out[before] == '-';
  return c == nullptr || c->run != &commands::quit;
}

// ---- values ----

void commands::get(words w, reply_writer& r) {
  if (const auto v = cache_.get(w[1]))
    r.bulk(*v);
  else
    r.null();
}

void commands::mget(words w, reply_writer& r) {
  const std::size_t before = r.out().size();
  r.array(w.size() - 1);
  for (std::size_t i = 1; i < w.size(); ++i) {
    if (const auto v = cache_.get(w[i]))
      r.bulk(*v);
    else
      r.null();
    if (r.out().size() - before > reply_bytes_max)
      throw error(errc::too_large, fmt::format("a reply of more than {} bytes", reply_bytes_max));
  }
}

void commands::set(words w, reply_writer& r) {
  std::int64_t expires_at_ms = 0;
  bool timed = false, if_absent = false, if_present = false, before = false;
  for (std::size_t i = 3; i < w.size(); ++i) {
    const std::string option = lower_case(w[i]);
    const bool time = option == "ex" || option == "px" || option == "exat" || option == "pxat";
    if (time && i + 1 < w.size() && !timed) {
      std::int64_t n = 0;
      if (!parse_integer(w[++i], n)) return r.error(not_an_integer);
      if (n <= 0 || !expiry_of(n, option[0] == 'e', option.size() == 2, expires_at_ms))
        return r.error("ERR invalid expire time in 'set' command");
      timed = true;
    } else if (option == "keepttl" && !timed) {
      expires_at_ms = cache::keep_expiry;
      timed = true;
    } else if (option == "nx" && !if_present) {
      if_absent = true;
    } else if (option == "xx" && !if_absent) {
      if_present = true;
    } else if (option == "get") {
      before = true;
    } else {
      return r.error("ERR syntax error");
    }
  }
  const bool present = cache_.contains(w[1]);
  const bool stores = !(if_absent && present) && !(if_present && !present);
  if (before) get(w, r);  // what was there is the reply
  if (stores) cache_.set(w[1], w[2], expires_at_ms);
  if (before) return;
  if (stores)
    r.simple("OK");
  else
    r.null();
}

void commands::setex(words w, reply_writer& r) {
  std::int64_t n = 0, at_ms = 0;
  if (!parse_integer(w[2], n)) return r.error(not_an_integer);
  if (n <= 0 || !expiry_of(n, equal(w[0], "setex"), true, at_ms))
    return r.error(fmt::format("ERR invalid expire time in '{}' command", lower_case(w[0])));
  cache_.set(w[1], w[3], at_ms);
  r.simple("OK");
}

void commands::setnx(words w, reply_writer& r) {
  const bool absent = !cache_.contains(w[1]);
  if (absent) cache_.set(w[1], w[2], 0);
  r.integer(absent ? 1 : 0);
}

void commands::mset(words w, reply_writer& r) {
  if (w.size() % 2 == 0) return r.error("ERR wrong number of arguments for 'mset' command");
  for (std::size_t i = 1; i < w.size(); i += 2) cache_.set(w[i], w[i + 1], 0);
  r.simple("OK");
}

void commands::incr(words w, reply_writer& r) {
  const bool down = equal(w[0].substr(0, 4), "decr");
  std::int64_t by = 1, n = 0;
  if (w.size() == 3 && !parse_integer(w[2], by)) return r.error(not_an_integer);
  // Redis negates it, and refuses what has no opposite even where the difference would be a number.
  if (down && by == std::numeric_limits<std::int64_t>::min()) return r.error("ERR decrement would overflow");
  if (const auto v = cache_.get(w[1]); v && !parse_integer(*v, n)) return r.error(not_an_integer);
  if (down ? __builtin_sub_overflow(n, by, &n) : __builtin_add_overflow(n, by, &n))
    return r.error("ERR increment or decrement would overflow");
  cache_.set(w[1], fmt::to_string(n), cache::keep_expiry);
  r.integer(n);
}

void commands::strlen(words w, reply_writer& r) {
  const auto v = cache_.get(w[1]);
  r.integer(v ? std::int64_t(v->size()) : 0);
}

// ---- keys ----

void commands::del(words w, reply_writer& r) {
  r.integer(std::count_if(w.begin() + 1, w.end(), [&](const std::string& key) { return cache_.erase(key); }));
}

void commands::exists(words w, reply_writer& r) {
  r.integer(std::count_if(w.begin() + 1, w.end(), [&](const std::string& key) { return cache_.contains(key); }));
}

void commands::expire(words w, reply_writer& r) {
  const std::string name = lower_case(w[0]);
  std::int64_t n = 0, at_ms = 0;
  if (!parse_integer(w[2], n)) return r.error(not_an_integer);
  if (!expiry_of(n, name[0] == 'e', !name.ends_with("at"), at_ms))
    return r.error(fmt::format("ERR invalid expire time in '{}' command", name));
  const bool done = at_ms <= unix_ms() ? cache_.erase(w[1]) : cache_.expire(w[1], at_ms);
  r.integer(done ? 1 : 0);
}

void commands::persist(words w, reply_writer& r) {
  const auto at = cache_.expiry(w[1]);
  r.integer(at.value_or(0) != 0 && cache_.expire(w[1], 0) ? 1 : 0);
}

void commands::ttl(words w, reply_writer& r) {
  const auto at = cache_.expiry(w[1]);
  if (!at || *at == 0) return r.integer(at ? -1 : -2);
  const std::int64_t left = std::max<std::int64_t>(*at - unix_ms(), 0);
  r.integer(equal(w[0], "ttl") ? (left + 500) / 1000 : left);
}

void commands::dbsize(words, reply_writer& r) { r.integer(std::int64_t(cache_.size())); }

void commands::flush(words w, reply_writer& r) {
  if (w.size() == 2 && !equal(w[1], "sync") && !equal(w[1], "async")) return r.error("ERR syntax error");
  cache_.clear();
  r.simple("OK");
}

// ---- the connection and the server ----

void commands::ping(words w, reply_writer& r) {
  if (w.size() == 2)
    r.bulk(w[1]);
  else
    r.simple("PONG");
}

void commands::echo(words w, reply_writer& r) { r.bulk(w[1]); }
void commands::quit(words, reply_writer& r) { r.simple("OK"); }

void commands::select(words w, reply_writer& r) {
  std::int64_t n = 0;
  if (!parse_integer(w[1], n)) return r.error("ERR invalid DB index");
  if (n != 0) return r.error("ERR DB index is out of range: there is database 0");
  r.simple("OK");
}

/// What redis-benchmark asks before it begins; there is nothing to configure.
void commands::config(words w, reply_writer& r) {
  if (!equal(w[1], "get")) return r.error("ERR only CONFIG GET is here: settings are flags of the program");
  if (w.size() < 3) return r.error("ERR wrong number of arguments for 'config|get' command");
  if (!equal(w[2], "save") && !equal(w[2], "appendonly")) return r.array(0);
  r.array(2);
  r.bulk(lower_case(w[2]));
  r.bulk(equal(w[2], "save") ? "" : "no");
}

/// redis-cli wants to know the commands' help; it does without.
void commands::describe(words, reply_writer& r) { r.array(0); }

void commands::memory(words w, reply_writer& r) {
  if (!equal(w[1], "purge") || w.size() != 2) return r.error("ERR only MEMORY PURGE is here: it compacts the pool");
  (void)cache_.pool().compact();
  r.simple("OK");
}

void commands::info(words, reply_writer& r) {
  const pool_stats s = cache_.pool().stats();
  std::uint64_t frames = 0, waiting = 0, quota = 0, payload = 0, objects = 0, slots = 0, merges = 0, moved = 0;
  for (const pool_agent_stats& a : s.agents) {
    frames += a.frame_bytes;
    waiting += a.waiting_bytes;
    quota += a.quota_bytes;
    for (const pool_class_stats& c : a.classes) {
      payload += c.payload_bytes;
      objects += c.objects;
      slots += c.slots;
      merges += c.merges_made;
      moved += c.objects_moved;
    }
  }
  std::string t;
  const auto line = [&](const char* name, auto value) {
    fmt::format_to(std::back_inserter(t), "{}:{}\r\n", name, value);
  };
  t += "# Server\r\n";
  line("server", "farmem cache_server");
  line("process_id", ::getpid());
  line("tcp_port", status_.port);
  line("uptime_in_seconds", std::chrono::duration_cast<std::chrono::seconds>(clock::now() - status_.begin).count());
  t += "\r\n# Clients\r\n";
  line("connected_clients", status_.clients);
  line("rejected_connections", status_.clients_refused);
  t += "\r\n# Memory\r\n";
  line("used_memory", frames);
  line("maxmemory", quota);
  line("payload_bytes", payload);
  line("waiting_bytes", waiting);
  t += "\r\n# Stats\r\n";
  line("total_commands_processed", status_.executed);
  line("total_error_replies", status_.failed);
  line("keyspace_hits", cache_.count().hits);
  line("keyspace_misses", cache_.count().misses);
  line("expired_keys", cache_.count().expired);
  line("evicted_keys", cache_.count().evicted);
  t += "\r\n# Pool\r\n";
  line("pool_agents", s.agents.size());
  line("pool_objects", objects);
  line("pool_slots", slots);
  line("pool_merges", merges);
  line("pool_objects_moved", moved);
  line("pool_direct_reads", s.direct_reads);
  line("pool_corrected_reads", s.corrected_reads);
  line("pool_rpc_reads", s.rpc_reads);
  t += "\r\n# Keyspace\r\n";
  if (cache_.size() != 0) line("db0", fmt::format("keys={},expires={},avg_ttl=0", cache_.size(), cache_.expiring()));
  r.bulk(t);
}

}  // namespace fm::example
