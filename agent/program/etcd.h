// The arbiter of pools with replicas in etcd: one key for each, changed by a transaction that compares its value
// (v3 API, JSON gateway). Every call makes a connection of its own and has a deadline; endpoints are tried in turn.
//
// Names of keys tell nothing of tenants' secrets (pool_keeper::record_name). Values are text: term, primary, backup.
#pragma once

#include "agent/base/arbiter.h"

#include <memory>
#include <vector>

namespace fm::agent {

/// Endpoints like http://127.0.0.1:2379. Throws fm::error (unsupported) if this agent was built without libcurl, and
/// invalid_argument for what is no such address.
std::shared_ptr<pool_arbiter> make_etcd_arbiter(const std::vector<std::string>& endpoints);

}  // namespace fm::agent
