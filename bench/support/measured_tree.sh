# Sourced by bench/run, bench/compare and bench/verbs/run. Sets FARMEM_BENCH_COMMIT and FARMEM_BENCH_TREE, which results record: the
# commit, with -dirty when the sources of the library or of the benchmarks are not the commit's, and a hash of the library's
# sources (include, src, agent) as they lie there. Rows of one tree are comparable; bench/report.py marks the others stale.
# Sets neither outside of a git repository. Expects the root of the tree as the working directory.
if git rev-parse --git-dir >/dev/null 2>&1; then
  measured_index=$(mktemp -u)
  FARMEM_BENCH_COMMIT=$(git rev-parse --short=7 HEAD)
  # Results are written while programs run, and the page after it: neither is measured.
  [ -z "$(git status --porcelain -- include src agent bench ':!bench/results' ':!bench/README.md' ':!bench/page.toml')" ] ||
    FARMEM_BENCH_COMMIT+=-dirty
  FARMEM_BENCH_TREE=$(export GIT_INDEX_FILE=$measured_index; git add include src agent && git write-tree | cut -c1-12)
  rm -f "$measured_index"
  export FARMEM_BENCH_COMMIT FARMEM_BENCH_TREE
fi
