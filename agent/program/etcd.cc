// Transactions of etcd by libcurl; see etcd.h.
#include "etcd.h"

#include <fmt/format.h>

#if FARMEM_ETCD
#include "base/log.h"
#include <curl/curl.h>
#include <nlohmann/json.hpp>

#include <cstdio>
#endif

namespace fm::agent {

#if FARMEM_ETCD

namespace {

using nlohmann::json;

constexpr long within_ms = 500;            ///< of one endpoint; what is decided late is decided by nobody
constexpr std::size_t answer_max = 65536;  ///< one key's value and heads

constexpr char digits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

std::string to_base64(const std::string& s) {
  std::string out;
  for (std::size_t i = 0; i < s.size(); i += 3) {
    std::uint32_t v = 0;
    for (std::size_t k = 0; k < 3; ++k) v = v << 8 | (i + k < s.size() ? static_cast<std::uint8_t>(s[i + k]) : 0u);
    for (std::size_t k = 0; k < 4; ++k) out += i + k <= s.size() ? digits[v >> (18 - 6 * k) & 63] : '=';
  }
  return out;
}

std::string from_base64(const std::string& s) {
  std::string out;
  std::uint32_t v = 0;
  int bits = 0;
  for (const char c : s) {
    const auto at = std::string_view(digits).find(c);
    if (at == std::string_view::npos) break;
    v = v << 6 | static_cast<std::uint32_t>(at);
    if ((bits += 6) < 8) continue;
    bits -= 8;
    out += static_cast<char>(v >> bits & 0xff);
  }
  return out;
}

std::string text_of(const pair_record& r) { return fmt::format("{} {:016x} {:016x}", r.term, r.primary, r.backup); }

bool parse(const std::string& text, pair_record& r) {
  unsigned long term = 0, primary = 0, backup = 0;
  if (std::sscanf(text.c_str(), "%lu %lx %lx", &term, &primary, &backup) != 3) return false;
  r = {term, primary, backup};
  return true;
}

std::size_t take(char* data, std::size_t size, std::size_t count, void* to) {
  auto& out = *static_cast<std::string*>(to);
  if (out.size() + size * count > answer_max) return 0;
  out.append(data, size * count);
  return size * count;
}

class etcd_arbiter final : public pool_arbiter {
 public:
  explicit etcd_arbiter(const std::vector<std::string>& endpoints) : endpoints_(endpoints) {
    static const CURLcode ready = curl_global_init(CURL_GLOBAL_DEFAULT);
    if (ready != CURLE_OK) throw error(errc::unsupported, "libcurl does not start");
  }

  errc change(const std::string& name, const pair_record& before, const pair_record& next,
              pair_record& now) noexcept override {
    try {
      const std::string key = to_base64(name);
      json compare{{"key", key}, {"result", "EQUAL"}};
      if (before == pair_record{}) {
        compare["target"] = "VERSION";
        compare["version"] = "0";
      } else {
        compare["target"] = "VALUE";
        compare["value"] = to_base64(text_of(before));
      }
      const json ask{{"compare", json::array({compare})},
                     {"success", json::array({{{"request_put", {{"key", key}, {"value", to_base64(text_of(next))}}}}})},
                     {"failure", json::array({{{"request_range", {{"key", key}}}}})}};
      json said;
      if (!post("/v3/kv/txn", ask, said)) return errc::unreachable;
      if (said.value("succeeded", false)) {
        now = next;
        return errc::ok;
      }
      now = {};
      const json kvs = said.at("responses").at(0).at("response_range").value("kvs", json::array());
      if (!kvs.empty() && !parse(from_base64(kvs.at(0).at("value").get<std::string>()), now)) return errc::conflict;
      if (now == next) return errc::ok;
      return now == before ? errc::unreachable : errc::conflict;
    } catch (const std::exception& e) {
      log::warn("etcd: {}", e.what());
      return errc::unreachable;
    }
  }

  void forget(const std::string& name, const pair_record& last) noexcept override {
    try {
      const std::string key = to_base64(name);
      const json compare{{"key", key}, {"result", "EQUAL"}, {"target", "VALUE"}, {"value", to_base64(text_of(last))}};
      json said;
      (void)post(
          "/v3/kv/txn",
          {{"compare", json::array({compare})}, {"success", json::array({{{"request_delete_range", {{"key", key}}}}})}},
          said);
    } catch (const std::exception& e) {
      log::warn("etcd: {}", e.what());
    }
  }

 private:
  bool post(const char* path, const json& body, json& said) const {
    const std::string text = body.dump();
    for (const std::string& endpoint : endpoints_) {
      const std::unique_ptr<CURL, void (*)(CURL*)> c(curl_easy_init(), curl_easy_cleanup);
      if (c == nullptr) return false;
      std::string answer;
      curl_easy_setopt(c.get(), CURLOPT_URL, (endpoint + path).c_str());
      curl_easy_setopt(c.get(), CURLOPT_POSTFIELDS, text.c_str());
      curl_easy_setopt(c.get(), CURLOPT_POSTFIELDSIZE, static_cast<long>(text.size()));
      curl_easy_setopt(c.get(), CURLOPT_TIMEOUT_MS, within_ms);
      curl_easy_setopt(c.get(), CURLOPT_NOSIGNAL, 1L);
      curl_easy_setopt(c.get(), CURLOPT_WRITEFUNCTION, take);
      curl_easy_setopt(c.get(), CURLOPT_WRITEDATA, &answer);
      long status = 0;
      if (curl_easy_perform(c.get()) != CURLE_OK) continue;
      curl_easy_getinfo(c.get(), CURLINFO_RESPONSE_CODE, &status);
      if (status != 200) continue;
      said = json::parse(answer);
      return true;
    }
    return false;
  }

  const std::vector<std::string> endpoints_;
};

}  // namespace

std::shared_ptr<pool_arbiter> make_etcd_arbiter(const std::vector<std::string>& endpoints) {
  for (const std::string& e : endpoints)
    if (!e.starts_with("http://") && !e.starts_with("https://"))
      throw error(errc::invalid_argument, fmt::format("'{}' is no address of etcd, like http://127.0.0.1:2379", e));
  return std::make_shared<etcd_arbiter>(endpoints);
}

#else

std::shared_ptr<pool_arbiter> make_etcd_arbiter(const std::vector<std::string>&) {
  throw error(errc::unsupported, "this agent was built without libcurl, and cannot ask etcd");
}

#endif

}  // namespace fm::agent
