#!/usr/bin/env bash
# check_guards.sh LIBRARY...: the local statics of the library that are made on first use, under a guard of the compiler. If
# one thread makes such an object while another one forks, the child waits for ever for the first to end. So each of
# them is named here, and is made while the library is loaded (os::at_load) or by what a fork_guard calls before a fork.
# Guards of thread_local objects make nobody wait. Prints what is not named; the exit status says whether there was one.
set -uo pipefail

known='fm::detail::\(anonymous namespace\)::locals\(\)::l'              # fork_guard, src/channel/listener.cc
known+='|fm::detail::\(anonymous namespace\)::shared\(\)::s'            # fork_guard, src/collector/roots/satb_log.cc
known+='|fm::detail::roots::\(anonymous namespace\)::shared\(\)::s'     # fork_guard, src/collector/roots/roots.cc
known+='|fm::detail::roots::.*hand_over_at_thread_end\(\)::told'        # at_load, src/collector/roots/roots.cc
known+='|fm::detail::\(anonymous namespace\)::global\(\)::r'            # fork_guard, src/object/registry.cc
known+='|fm::detail::epochs::\(anonymous namespace\)::threads\(\)::r'   # fork_guard, src/table/epoch.cc
known+='|fm::detail::epochs::.*end_key\(\)::key'                        # fork_guard, src/table/epoch.cc
known+='|fm::fabric::\(anonymous namespace\)::names\(\)::all'           # fork_guard, src/fabric/socket/socket.cc
known+='|fm::os::.*registered\(\)::done'                                # at_load, src/os/sync.cc
known+='|fm::fabric::verbs::\(anonymous namespace\)::devices\(\)::d'    # the parent's heaps over verbs are nobody's in a child
known+='|.*thread_number\(\)::mine|.*stripe\(\)::mine|.*buffer\(unsigned long\)::b|.*pool_blocks::store_object.*::lines'  # thread_local

found=$(nm -C "$@" 2>/dev/null | sed -n 's/^[0-9a-f]* [a-zA-Z] guard variable for //p' | sort -u)
[ -n "$found" ] || { echo "no guard was found in $*: is it the library?"; exit 1; }
unknown=$(grep -vxE "$known" <<<"$found")
[ -z "$unknown" ] && exit 0
echo "made on first use, which a fork may interrupt (see os::at_load in src/os/fork.h), and not named in $0:"
echo "$unknown"
exit 1
