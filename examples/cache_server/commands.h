// The commands of Redis that the cache understands, and what each does. Bad input is an error reply, as Redis words it; what
// the pool refuses is -ERR with the reason, or -OOM.
#pragma once

#include "cache.h"
#include "resp.h"

namespace fm::example {

class commands {
 public:
  /// The largest reply; MGET of more is refused.
  static constexpr std::size_t reply_bytes_max = 16u << 20;

  struct status {
    std::uint64_t executed = 0, failed = 0;
    std::uint64_t clients = 0, clients_refused = 0;
    std::uint16_t port = 0;
    time_point begin = clock::now();
  };

  commands(cache& c, status& s) : cache_(c), status_(s) {}

  /// One command, whose reply is appended. False: the client wants to go. Throws what ends the server (cache.h).
  bool execute(const std::vector<std::string>& words, std::string& out);

 private:
  using words = const std::vector<std::string>&;
  struct command {
    const char* name;
    std::size_t words_min, words_max;  ///< its name included
    void (commands::*run)(words, reply_writer&);
  };
  static const command* find(std::string_view name);

  void get(words w, reply_writer& r);
  void mget(words w, reply_writer& r);
  void set(words w, reply_writer& r);
  void setex(words w, reply_writer& r);
  void setnx(words w, reply_writer& r);
  void mset(words w, reply_writer& r);
  void del(words w, reply_writer& r);
  void exists(words w, reply_writer& r);
  void strlen(words w, reply_writer& r);
  void expire(words w, reply_writer& r);
  void persist(words w, reply_writer& r);
  void ttl(words w, reply_writer& r);
  void incr(words w, reply_writer& r);
  void dbsize(words w, reply_writer& r);
  void flush(words w, reply_writer& r);
  void ping(words w, reply_writer& r);
  void echo(words w, reply_writer& r);
  void select(words w, reply_writer& r);
  void info(words w, reply_writer& r);
  void config(words w, reply_writer& r);
  void describe(words w, reply_writer& r);
  void memory(words w, reply_writer& r);
  void quit(words w, reply_writer& r);

  cache& cache_;
  status& status_;
};

}  // namespace fm::example
