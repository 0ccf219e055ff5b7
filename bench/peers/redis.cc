#include "redis.h"

#include "base/base.h"
#include <sys/socket.h>
#include <unistd.h>

#include "../support/cpu.h"

namespace fm::bench {
namespace {

constexpr const char* program_path = "/usr/bin/redis-server";

void append_part(std::string& to, const std::string& part) {
  to += '$';
  to += std::to_string(part.size());
  to += "\r\n";
  to += part;
  to += "\r\n";
}

}  // namespace

redis::redis(int core) {
  if (access(program_path, X_OK) != 0) throw error(errc::unsupported, "redis-server is not installed");
  port_ = stream_acceptor(socket_kind::tcp).port();  // one that was free a moment ago
  spawn_options o;
  o.argv = {program_path,   "--port", std::to_string(port_), "--bind", "127.0.0.1",  "--save",  "",
            "--appendonly", "no",     "--daemonize",         "no",     "--loglevel", "warning", "--logfile",
            "/dev/null"};
  o.core = core;
  server_ = child(o);
  const std::uint64_t until = now_ns() + 20'000'000'000;
  for (;;) {
    try {
      stream_ = stream::connect(socket_kind::tcp, port_);
      return;
    } catch (const error&) {
      if (now_ns() > until) throw;
      sched_yield();
    }
  }
}

std::string redis::line() {
  for (;;) {
    if (const auto end = buffer_.find("\r\n", at_); end != std::string::npos) {
      std::string l = buffer_.substr(at_, end - at_);
      at_ = end + 2;
      return l;
    }
    char some[16384];
    const ssize_t n = recv(stream_.fd(), some, sizeof some, 0);
    if (n <= 0) throw error(errc::disconnected, "redis-server");
    buffer_.append(some, std::size_t(n));
  }
}

void redis::set(const std::string& key, const std::string& value) {
  command_ = "*3\r\n$3\r\nSET\r\n";
  append_part(command_, key);
  append_part(command_, value);
  buffer_.clear();
  at_ = 0;
  if (!stream_.send(command_.data(), command_.size()) || line() != "+OK") throw error(errc::disconnected, "redis SET");
}

std::size_t redis::get(const std::string& key) {
  command_ = "*2\r\n$3\r\nGET\r\n";
  append_part(command_, key);
  buffer_.clear();
  at_ = 0;
  if (!stream_.send(command_.data(), command_.size())) throw error(errc::disconnected, "redis GET");
  const std::string head = line();
  if (head.empty() || head[0] != '$' || head == "$-1") throw error(errc::not_found, "redis GET " + key + ": " + head);
  const std::size_t bytes = std::stoull(head.substr(1));
  while (buffer_.size() < at_ + bytes + 2) {
    char some[16384];
    const ssize_t n = recv(stream_.fd(), some, sizeof some, 0);
    if (n <= 0) throw error(errc::disconnected, "redis-server");
    buffer_.append(some, std::size_t(n));
  }
  return bytes;
}

}  // namespace fm::bench
