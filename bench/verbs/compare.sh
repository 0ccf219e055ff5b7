# Runs in a machine that has an RDMA device, in a folder with `transfers`: perftest and farmem in turns, on the same device,
# and their ratios. Environment: LAB_ADDRESS (the device's), DEVICE (rxe0), GID (its index, 1), ROUNDS (5), COUNT (1000).
rounds=${ROUNDS:-5} count=${COUNT:-1000} device=${DEVICE:-rxe0} gid=${GID:-1}
bytes=16777216
./transfers serve "verbs://$LAB_ADDRESS:0" $bytes >url &
server=$!
until [ -s url ] || ! kill -0 $server; do sleep 1; done
url=$(cat url)

perftest() {  # TOOL SIZE COUNT: what it prints last, which is a line of columns
  $1 -d "$device" -x "$gid" -s "$2" -n "$3" -F >/dev/null 2>&1 &
  peer=$!
  tries=0
  until $1 -d "$device" -x "$gid" -s "$2" -n "$3" -F "$LAB_ADDRESS" >out 2>/dev/null; do
    tries=$((tries + 1))
    [ $tries -lt 50 ] || { echo "$1 failed" >&2; return 1; }
    sleep 0.1
  done
  wait $peer
  grep -E '^ *[0-9]+ +[0-9]+ ' out | tail -n 1
}
median() { sort -n | awk '{ a[NR] = $1 } END { print a[int((NR + 1) / 2)] }'; }

compare() {  # NAME PERFTEST-TOOL ITS-COLUMN TRANSFERS-MODE SIZE COUNT [SPIN_US]
  : >theirs; : >ours
  for round in $(seq "$rounds"); do
    perftest "$2" "$5" "$6" | awk -v c="$3" '{ print $c }' >>theirs
    ./transfers "$4" "$url" $bytes "$5" "$6" ${7:-} | awk '{ print $1 }' >>ours
  done
  if [ "$(wc -l <theirs)" -ne "$rounds" ] || [ "$(wc -l <ours)" -ne "$rounds" ]; then
    echo "$1: a round failed"
    failed=1
    return
  fi
  echo "$1 $(median <ours) $(median <theirs)" | awk '{ printf "%-34s farmem %9.2f   perftest %9.2f   ratio %.2f\n", $1, $2, $3, $2 / $3 }'
}
# Column 5 of the latency tools is t_typical, the median; column 4 of the bandwidth tools is the average.
compare read_latency_64_B_us ib_read_lat 5 latency 64 "$count" 1000
compare read_latency_4_KiB_us ib_read_lat 5 latency 4096 "$count" 1000
compare read_latency_64_B_us_as_shipped ib_read_lat 5 latency 64 "$count"
compare reads_4_KiB_MiB/s ib_read_bw 4 read 4096 "$count"
compare reads_64_KiB_MiB/s ib_read_bw 4 read 65536 "$count"
compare writes_4_KiB_MiB/s ib_write_bw 4 write 4096 "$count"
compare writes_64_KiB_MiB/s ib_write_bw 4 write 65536 "$count"
kill $server
exit ${failed:-0}
