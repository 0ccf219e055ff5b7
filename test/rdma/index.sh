# The index example on a small tree, in a lab machine, over verbs://; --check compares with a plain scan.
set -e
mkdir -p /tmp/tree
awk 'BEGIN {
  srand(7)
  for (f = 0; f < 30; ++f) {
    file = "/tmp/tree/file" f ".h"
    for (l = 0; l < 25; ++l) {
      line = ""
      for (w = 0; w < 6; ++w) line = line " word" int(rand() * rand() * rand() * 3000) "_Part" int(rand() * 1000)
      print line > file
    }
    close(file)
  }
}'
index /tmp/tree --agent /lab/farmem-agent --transport verbs --address "$LAB_ADDRESS" --cache 2MiB --check --no-interactive --query "word1 part2" >/tmp/index.out 2>&1 || { cat /tmp/index.out; exit 1; }
grep "^check: 200 random words .*: no difference$" /tmp/index.out || { cat /tmp/index.out; exit 1; }
grep "hit ratio" /tmp/index.out
