// Reading the directory one-sidedly; see reader.h, and format.h for why it is sound.
#include "reader.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <fstream>
#include <sstream>

namespace fm::example {

namespace {
constexpr auto get_within = std::chrono::seconds(10);
}

void share_file::write(const std::string& path) const {
  std::string text = "cache_server 1\n";
  for (const std::string& url : agents) text += fmt::format("agent {}\n", url);
  text += fmt::format("name {}\ntenant {}\nroot {:016x} {:016x}\n", name, tenant.text(), root.who, root.what);
  const std::string beside = fmt::format("{}.{}", path, ::getpid());
  const int fd = ::open(beside.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
  const bool written = fd >= 0 && ::write(fd, text.data(), text.size()) == ssize_t(text.size());
  const int why = errno;
  if (fd >= 0) ::close(fd);
  if (!written || ::rename(beside.c_str(), path.c_str()) != 0) {
    const int number = written ? errno : why;
    ::unlink(beside.c_str());
    throw error(errc::refused, fmt::format("{}: {}", path, std::strerror(number)));
  }
}

share_file share_file::read(const std::string& path) {
  std::ifstream in(path);
  if (!in) throw error(errc::not_found, fmt::format("no file {}: is the server running?", path));
  share_file s;
  const auto bad = [&](int line, const std::string& what) {
    throw error(errc::invalid_argument, fmt::format("{}:{}: {}", path, line, what));
  };
  int number = 0;
  bool rooted = false;
  for (std::string line; std::getline(in, line);) {
    std::istringstream words(line);
    std::string what, value;
    words >> what >> value;
    if (++number == 1) {
      if (line != "cache_server 1") bad(number, "no file of this version of cache_server");
    } else if (what == "agent") {
      s.agents.push_back(value);
    } else if (what == "name") {
      s.name = value;
    } else if (what == "tenant") {
      s.tenant = pool_tenant::parse(value);
    } else if (what == "root") {
      std::istringstream numbers(line.substr(5));
      rooted = bool(numbers >> std::hex >> s.root.who >> s.root.what);
    } else {
      bad(number, fmt::format("what is '{}'?", what));
    }
  }
  if (s.agents.empty() || s.name.empty() || !rooted) bad(number, "it ends too early");
  return s;
}

directory_reader::directory_reader(fm::pool& p, pool_address root) : pool_(p) {
  pool_ptr<directory_root> at(root);
  const directory_root r = pool_.read(at);
  constexpr std::uint64_t per_page = std::tuple_size_v<decltype(directory_page::buckets)>;
  if (r.magic != directory_root::magic_of_this || r.buckets == 0 || r.buckets > buckets_max ||
      (r.buckets & (r.buckets - 1)) != 0)
    throw error(errc::corrupt, "the root of the directory is none");
  seed_ = r.seed;
  for (std::uint64_t i = 0; i < r.buckets; i += per_page) {
    pool_ptr<directory_page> page_at = r.pages[i / per_page];
    const directory_page page = pool_.read(page_at);
    for (std::uint64_t k = i; k < std::min(i + per_page, r.buckets); ++k) first_.push_back(page.buckets[k - i]);
  }
}

bool directory_reader::read_bucket(pool_ptr<directory_bucket>& at, directory_bucket& b) {
  const auto r = pool_.try_read(at);
  if (!r && r.error().code() != errc::not_found) throw r.error();
  if (r) b = *r;
  return r.has_value();
}

bool directory_reader::read_value(pool_address& at) {
  auto r = pool_.try_read_bytes(at);
  if (!r && r.error().code() != errc::not_found) throw r.error();
  if (r) object_ = std::move(*r);
  return r.has_value();
}

directory_reader::step directory_reader::try_get(std::string_view key, std::uint64_t hash, std::string& value) {
  pool_ptr<directory_bucket>& first = first_[hash & (first_.size() - 1)];
  pool_ptr<directory_bucket> next;
  directory_bucket b;
  for (pool_ptr<directory_bucket>* at = &first; *at; next = b.next, at = &next) {
    if (!read_bucket(*at, b)) return step::overtaken;
    for (directory_entry& e : b.entries) {
      if (e.hash != hash || e.value.is_null()) continue;
      if (!read_value(e.value)) return step::overtaken;
      const auto v = decode_value(object_);
      if (!v) throw error(errc::corrupt, fmt::format("the value of '{}'", key));
      if (v->key != key) continue;  // another key with this hash
      if (v->header.expires_at_ms != 0 && v->header.expires_at_ms <= unix_ms()) return step::absent;
      value.assign(v->value);
      return step::found;
    }
  }
  return step::absent;
}

std::optional<std::string> directory_reader::get(std::string_view key) {
  const std::uint64_t hash = hash_of(key, seed_);
  const time_point until = clock::now() + get_within;
  std::string value;
  for (;;) {
    const step s = try_get(key, hash, value);
    if (s == step::found) return value;
    if (s == step::absent) return std::nullopt;
    ++restarts_;
    if (clock::now() >= until)
      throw error(errc::timed_out, fmt::format("'{}': the directory changed under every attempt", key));
  }
}

void directory_reader::judge(const directory_entry& e, findings& f) {
  const auto v = decode_value(object_);
  if (!v || hash_of(v->key, seed_) != e.hash) {
    ++f.wrong;
    return;
  }
  std::uint64_t& newest = newest_[std::string(v->key)];
  if (v->header.change < newest) ++f.wrong;
  newest = std::max(newest, v->header.change);
  if (v->header.expires_at_ms != 0 && v->header.expires_at_ms <= unix_ms())
    ++f.expired;
  else
    ++f.values;
}

directory_reader::findings directory_reader::check_bucket(std::uint64_t i) {
  findings f;
  pool_ptr<directory_bucket>& first = first_[i & (first_.size() - 1)];
  pool_ptr<directory_bucket> next;
  directory_bucket b;
  for (pool_ptr<directory_bucket>* at = &first; *at; next = b.next, at = &next) {
    if (!read_bucket(*at, b)) {
      ++(at == &first ? f.dangling : f.overtaken);  // the first one of a chain is never freed
      break;
    }
    for (directory_entry& e : b.entries) {
      if (e.value.is_null()) continue;
      if (read_value(e.value)) {
        judge(e, f);
        continue;
      }
      // It is gone, so the bucket has been told before; if the bucket is gone as well, all the more.
      directory_bucket again;
      const bool named =
          read_bucket(*at, again) && std::any_of(again.entries.begin(), again.entries.end(),
                                                 [&](const directory_entry& o) { return o.value == e.value; });
      ++(named ? f.dangling : f.overtaken);
    }
  }
  return f;
}

}  // namespace fm::example
