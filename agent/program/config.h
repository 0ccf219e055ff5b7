// The agent's settings, and where they may stand: flags over environment (FARMEM_AGENT_*) over a TOML file. Every
// setting is one row of a table (config.cc), so that the three sources know the same names.
//
// A mistake (an unknown key, a unit that does not exist, a value out of range) is an fm::error with errc::bad_config
// that names the flag, variable or file and line; the agent then exits with code 2.
#pragma once

#include "agent/service/service.h"
#include "fabric/server/server.h"

#include <functional>
#include <optional>
#include <string>
#include <vector>

namespace fm::agent {

struct config {
  std::vector<std::string> listen;
  store_options store;
  fabric::listen_options fabric;
  std::string admin;              ///< path of the admin socket; empty: none
  bool admin_is_default = false;  ///< nobody asked for it, so doing without is no error
  std::vector<std::string> etcd;  ///< endpoints; empty: an administrator decides about pools
  std::string log_level = "info";
  duration drain_on_term{};  ///< SIGTERM drains the agent first, for so long at most; 0: it ends at once
};

/// One setting: its flag is "--name", its variable FARMEM_AGENT_NAME, its key in the file name with underscores.
struct setting {
  const char* name;   ///< with dashes
  const char* value;  ///< what the value looks like, for --help; empty: a switch
  const char* help;
  bool repeatable;
  /// Applies a value; throws std::string with what is wrong with it.
  std::function<void(config&, const std::string&)> apply;
};

const std::vector<setting>& settings();

/// What the command line said: each flag that was given, with its values.
struct flag_values {
  std::string name;
  std::vector<std::string> values;
};

/// Puts the sources together. `file` may be empty. Throws fm::error (bad_config).
config load_config(const std::vector<flag_values>& flags, const std::string& file, char** environment);
/// Checks what only all settings together can tell, before anything is started. Throws fm::error (bad_config).
void check_config(const config& c);

/// "4GiB", "512MiB", "65536": bytes. Throws std::string.
std::uint64_t parse_bytes(const std::string& text);
/// "15s", "500ms", "2min": milliseconds. Throws std::string.
std::uint32_t parse_milliseconds(const std::string& text, std::uint32_t hours_most = 24);

}  // namespace fm::agent
