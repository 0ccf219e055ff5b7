#!/usr/bin/env bash
# The cache as Redis's own programs see it: redis-cli for what each command answers, redis-benchmark for pipelines and several
# clients, raw connections for what is no protocol. A second process reads all values one-sidedly meanwhile and judges them, while
# sizes change, keys go and the pool is compacted. Then: full pools, over both transports.
#
#   cache_server.sh PATH-OF-CACHE_SERVER PATH-OF-FARMEM-AGENT
set -Eeuo pipefail
trap 'echo "failed at line $LINENO: $BASH_COMMAND"' ERR
program=$1 agent=$2
work=$(mktemp -d)
pid=
trap '[ -z "$pid" ] || kill "$pid" 2>/dev/null || true; rm -rf "$work"' EXIT

fail() {
  echo "cache_server.sh: $1"
  [ ! -s "$work/err" ] || cat "$work/err"
  exit 1
}
start() {  # FLAGS...: the server; sets pid and port
  exec 3< <(exec "$program" --port 0 --share "$work/share" --agent "$agent" --region 1MiB --check "$@" 2>"$work/err")
  pid=$!
  port=
  while [ -z "$port" ] && read -r -t 60 -u 3 line; do
    [[ $line != ready:* ]] || port=${line##* }
  done
  [ -n "$port" ] || fail "the server does not start: $*"
}
stop() {  # the server; what it says at the end goes to $out
  kill "$pid"
  wait "$pid" || fail "the server ends with $?: $(cat <&3)"
  pid=
  out=$(cat <&3)
  grep -Eq "^verify: .*: no fault$" <<<"$out" || fail "$out"
}
cli() { redis-cli -p "$port" "$@"; }
is() {  # EXPECTED COMMAND...
  local wanted=$1 got
  shift
  got=$(cli "$@")
  [ "$got" = "$wanted" ] || fail "$*: '$got' instead of '$wanted'"
}
like() {  # PATTERN COMMAND...
  local pattern=$1 got
  shift
  got=$(cli "$@")
  grep -Eq -- "$pattern" <<<"$got" || fail "$*: '$got' is not like '$pattern'"
}
read_keys() { "$program" --reader "$work/share" "$@"; }
info() { cli info | tr -d '\r' | sed -n "s/^$1://p"; }
await() {  # COMMAND...: until it succeeds
  local until=$((SECONDS + 60))
  until "$@"; do [ $SECONDS -lt $until ] || fail "waited too long for $*"; done
}

# ---- what each command answers ----
start --memory 32MiB --keys 2000
is PONG ping
is hello ping hello
is hi echo hi
is OK set a 1
is 1 get a
is "" get nothing
is OK set a 2 ex 1000
like "^(9[0-9][0-9]|1000)$" ttl a
is OK set a 3 keepttl
like "^(9[0-9][0-9]|1000)$" ttl a
is 1 persist a
is -1 ttl a
is -2 ttl nothing
is "" set a 4 nx
is 3 get a
is "" set nothing 4 xx
is OK set a 4 xx
is 4 set a 5 get
is 5 get a
is 6 incr a
is 16 incrby a 10
is 15 decr a
is -1 decrby a 16
is OK mset b 20 c "three words here"
is $'-1\n20\nthree words here' mget a b c
is 2 exists a b nothing
is 16 strlen c
is 3 dbsize
is 1 expire b 1000
like "^(9[0-9][0-9]|1000)$" ttl b
is 1 pexpire b 100000
like "^(9[0-9]{4}|100000)$" pttl b
is 1 expireat b 1
is "" get b
is 2 del a c nothing
is 0 dbsize
is 1 setnx a 7
is 0 setnx a 8
is OK setex a 100 9
is OK select 0
like "^ERR DB index" select 1
is OK flushall
is 0 dbsize
like "^server:farmem cache_server" info
is $'appendonly\nno' config get appendonly
like "^ERR wrong number of arguments for 'get'" get
like "^ERR wrong number of arguments for 'mset'" mset a 1 b
like "^ERR unknown command 'zadd'" zadd a 1 b
like "^ERR syntax error" set a 1 nx xx
like "^ERR syntax error" set a 1 ex
like "^ERR invalid expire time in 'set'" set a 1 ex 0
like "^ERR value is not an integer" set a 1 px soon
like "^ERR invalid expire time in 'expire'" expire a 9223372036854775807
is OK set a text
like "^ERR value is not an integer" incr a
is OK set a 9223372036854775807
like "^ERR increment or decrement would overflow" incr a
is OK set a -1
like "^ERR decrement would overflow" decrby a -9223372036854775808
is -1 get a
is OK quit

# Bytes that are no text, and an empty value.
head -c 3000 /dev/urandom >"$work/bytes"
cli -x set binary <"$work/bytes" >/dev/null
read_keys binary | head -c 3000 | cmp - "$work/bytes" || fail "bytes are not what they were"
is OK set empty ""
is 0 strlen empty

# What expires, expires, for readers as well.
is OK set short lived px 1
await eval '[ "$(cli exists short)" = 0 ]'
[ "$(read_keys short)" = "(nil)" ] || fail "a reader sees what has expired"
is OK set long lived ex 1000
[ "$(read_keys long)" = lived ] || fail "a reader does not see what has not expired"

# ---- what is no protocol, or too much ----
refused() {  # PATTERN BYTES: one line, then the end
  exec 4<>"/dev/tcp/127.0.0.1/$port"
  printf "$2" >&4
  IFS= read -r -t 60 -u 4 line || fail "no answer to $2"
  [[ $line =~ $1 ]] || fail "$2: '$line'"
  ! IFS= read -r -t 60 -u 4 line || fail "the connection goes on after $2"
  exec 4>&-
}
refused "^-ERR Protocol error: expected '\\$', got ':'" '*1\r\n:3\r\n'
refused "^-ERR Protocol error: invalid multibulk length" '*99999999\r\n'
refused "^-ERR Protocol error: invalid multibulk length" '*many\r\n'
refused "^-ERR Protocol error: invalid bulk length" '*1\r\n$-1\r\n'
refused "^-ERR Protocol error: invalid bulk length" '*1\r\n$99999999999\r\n'
refused "^-ERR Protocol error: a word that is longer" '*1\r\n$4\r\nPINGPING\r\n'
refused "^-ERR Protocol error: a line that is too long" "$(head -c 70000 /dev/zero | tr '\0' x)"
exec 4<>"/dev/tcp/127.0.0.1/$port"
printf 'PING\r\n\r\n*0\r\nECHO plain\r\n*2\r\n$4\r\nec' >&4  # as a person types it; and a command in two pieces
printf 'ho\r\n$3\r\nend\r\n' >&4
for wanted in +PONG '$5' plain '$3' end; do
  IFS= read -r -t 60 -u 4 line
  [ "${line%$'\r'}" = "$wanted" ] || fail "'$line' instead of $wanted"
done
exec 4>&-
for bytes in 600000 5000000; do  # more than an object of the pool, more than a command
  head -c $bytes /dev/zero | tr '\0' x >"$work/large"
  (cli -x set large <"$work/large" || true) >"$work/said"
  grep -q "^ERR too_large: " "$work/said" || fail "$bytes bytes: $(cat "$work/said")"
done
is "" get large
is PONG ping

# A client that does not take its replies does not make the server keep them.
head -c 100000 /dev/zero | tr '\0' x | cli -x set big >/dev/null
own_kib() { sed -n 's/^RssAnon:[^0-9]*\([0-9]*\) kB/\1/p' "/proc/$pid/status"; }
before=$(own_kib)
exec 4<>"/dev/tcp/127.0.0.1/$port"
for _ in $(seq 400); do printf 'GET big\r\n'; done >&4
is PONG ping
[ "$(own_kib)" -lt $((before + 8192)) ] || fail "the server keeps replies: $before KiB, then $(own_kib)"
[ "$(head -c $((400 * (9 + 100000 + 2))) <&4 | tr -d x | sort -u | tr -d '\r\n')" = '$100000' ] || fail "the replies are wrong"
exec 4>&-

# ---- redis-benchmark, a reader beside it, and compaction ----
out=$(redis-benchmark -p "$port" -t ping_inline,ping_mbulk,set,get,incr,mset -n 2000 -P 16 -c 8 -r 500 --csv 2>&1) || fail "redis-benchmark: $out"
[ "$(grep -c '^"' <<<"$out")" -eq 7 ] && ! grep -Eq "ERR|OOM|WARN|[Ee]rror" <<<"$out" || fail "redis-benchmark: $out"
is OK flushall
keys=() values=
for i in $(seq 200); do
  keys+=("known:$i")
  values+="the value of $i, which nobody changes, $((i * i))"$'\n'
done
printf '%s' "$values" >"$work/values"
i=0
while read -r value; do printf '*3\r\n$3\r\nSET\r\n$%d\r\n%s\r\n$%d\r\n%s\r\n' ${#keys[i]} "${keys[i]}" ${#value} "$value"; i=$((i + 1)); done \
  <"$work/values" | cli --pipe >/dev/null
"$program" --reader "$work/share" --seconds 5 --threads 2 >"$work/read" 2>&1 &
reader=$!
rounds=0
while kill -0 $reader 2>/dev/null || [ $rounds -lt 4 ]; do
  for bytes in 400 30 1500 90; do
    out=$(redis-benchmark -p "$port" -t set,get -n 1500 -P 8 -c 4 -r 800 -d $bytes --csv 2>&1) || fail "redis-benchmark: $out"
    ! grep -Eq "ERR|OOM|WARN|[Ee]rror" <<<"$out" || fail "redis-benchmark: $out"
    redis-benchmark -p "$port" -n 300 -P 8 -c 2 -r 800 del key:__rand_int__ >/dev/null
    is OK memory purge
  done
  read_keys "${keys[@]}" | cmp - "$work/values" || fail "a reader reads other values than were set"
  rounds=$((rounds + 1))
done
wait $reader || fail "$(cat "$work/read")"
cat "$work/read"
grep -q "^check: every value was its key's, whole, and never older than before$" "$work/read" || fail "$(cat "$work/read")"
grep -Eq "^[1-9][0-9]+ values read in" "$work/read" || fail "$(cat "$work/read")"
[ "$(info pool_merges)" -gt 0 ] && [ "$(info pool_objects_moved)" -gt 0 ] || fail "nothing was compacted: $(cli info)"
[ "$(info evicted_keys)" -eq 0 ] || fail "keys were evicted though there is room"
cli mget "${keys[@]}" | cmp - "$work/values" || fail "the server has other values than were set"
stop

# ---- full pools ----
fill() { redis-benchmark -p "$port" -n 800 -P 4 -c 4 -r 100000 -d 10000 -t set --csv 2>&1; }
start --memory 4MiB --keys 500 --when-full refuse --transport tcp
is OK set first value
! out=$(fill) || fail "a full pool takes everything: $out"
like "^OOM command not allowed: the pool is full" set another "$(head -c 10000 /dev/zero | tr '\0' x)"
is value get first
[ "$(info evicted_keys)" -eq 0 ] || fail "a server that is to refuse evicts"
is OK flushall
is OK set another "$(head -c 10000 /dev/zero | tr '\0' x)"
[ "$(read_keys another | wc -c)" -eq 10001 ] || fail "a reader over tcp://"
stop

start --memory 4MiB --keys 500 --clients 4
out=$(redis-benchmark -p "$port" -n 800 -P 4 -c 3 -r 100000 -d 10000 -t set --csv 2>&1) || fail "redis-benchmark: $out"
! grep -Eq "ERR|OOM|WARN|[Ee]rror" <<<"$out" || fail "redis-benchmark: $out"
[ "$(info evicted_keys)" -gt 0 ] || fail "nothing was evicted"
is OK set large "$(head -c 120000 /dev/zero | tr '\0' y)"
is 120000 strlen large
await eval '[ "$(info connected_clients)" = 1 ]'
exec 4<>"/dev/tcp/127.0.0.1/$port" 5<>"/dev/tcp/127.0.0.1/$port" 6<>"/dev/tcp/127.0.0.1/$port" 7<>"/dev/tcp/127.0.0.1/$port"
for fd in 4 5 6 7; do
  printf 'PING\r\n' >&$fd
  read -r -t 60 -u $fd line
done
exec 8<>"/dev/tcp/127.0.0.1/$port"
read -r -t 60 -u 8 line
[[ $line = "-ERR max number of clients reached"* ]] || fail "one client too many: $line"
exec 4>&- 5>&- 6>&- 7>&- 8>&-
stop

# ---- mistakes ----
mistake() {  # STATUS PATTERN FLAGS...
  local status=0 wanted=$1 pattern=$2
  shift 2
  "$program" --agent "$agent" "$@" >"$work/out" 2>"$work/err" || status=$?
  [ "$status" -eq "$wanted" ] && grep -Eq -- "$pattern" "$work/err" || fail "cache_server $*: $status"
}
mistake 1 "not_found: no file $work/absent" --reader "$work/absent" key
printf 'cache_server 1\nagent local:\nnonsense\n' >"$work/bad"
mistake 1 "invalid_argument: $work/bad:3: what is 'nonsense'" --reader "$work/bad" key
mistake 2 "--when-full" --when-full panic
mistake 2 "KEYS" key
