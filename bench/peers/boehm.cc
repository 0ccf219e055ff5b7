// The Boehm-Demers-Weiser collector as it comes: GC_MALLOC, conservative, collections when it thinks fit.
#include "boehm.h"

#include <gc.h>

#include <string>

#include "../support/cpu.h"
#include "../support/trees.h"

namespace fm::bench {
namespace {

struct node {
  node *left, *right;
  std::int64_t i, j;
};

struct boehm_trees {
  using handle = node*;
  static node* make() { return static_cast<node*>(GC_MALLOC(sizeof(node))); }
  static node* make(node* left, node* right) {
    node* const n = make();
    n->left = left;
    n->right = right;
    return n;
  }
  static void set(node* n, node* left, node* right) {
    n->left = left;
    n->right = right;
  }
  static node* left(node* n) { return n->left; }
  static node* right(node* n) { return n->right; }
  static std::uint64_t count(const node* n) { return n->left ? 1 + count(n->left) + count(n->right) : 1; }
  using array = double*;
  static double* make_array(std::size_t n) { return static_cast<double*>(GC_MALLOC_ATOMIC(n * sizeof(double))); }
  static void fill(double* a, std::size_t n) {
    for (std::size_t k = 0; k < n; ++k) a[k] = 1.0 / double(k + 1);
  }
};

void start() {
  static const bool started = [] {
    GC_INIT();
    return true;
  }();
  (void)started;
}

}  // namespace

double boehm_gcbench(int depth) {
  start();
  boehm_trees t;
  return gcbench_ms(t, depth);
}

double boehm_binary_trees(int depth, std::uint64_t& sum) {
  start();
  boehm_trees t;
  return binary_trees_ms(t, depth, sum);
}

const char* boehm_name() {
  static const std::string name = "Boehm GC " + std::to_string(GC_VERSION_MAJOR) + "." +
                                  std::to_string(GC_VERSION_MINOR) + "." + std::to_string(GC_VERSION_MICRO);
  return name.c_str();
}

}  // namespace fm::bench
