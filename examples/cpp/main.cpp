// Calls a matrix product that Loopwright made. With matmul.so, matmul.h and matmul.hpp here, exported
// from Python by
//
//     import loopwright as lw
//     i, j, k = lw.indices("i j k")
//     A, W = lw.tensor("A", (24, 12)), lw.tensor("W", (12, 16), constant=True)
//     C = lw.tensor("C")
//     C[i, j] += A[i, k] * W[k, j]
//     lw.build(lw.workload(C)).export("matmul.so", extras=["c++", "pkg-config"])
//
// compile and run it:
//
//     c++ -std=c++17 main.cpp -o main $(PKG_CONFIG_PATH=. pkg-config --cflags --libs matmul) && ./main
#include "matmul.hpp"

#include <cstdio>
#include <vector>

namespace mm = loopwright::matmul;

int main() {
  std::vector<float> a(24 * 12, 1.0f), w(12 * 16, 2.0f), c(24 * 16), d(24 * 16);
  mm::view<float, 2> A(a, {24, 12}), W(w, {12, 16}), C(c, {24, 16}), D(d, {24, 16});

  // In one go.
  mm::run(A, W, C);

  // The weights once, then as many products as you like.
  const mm::weights weights(W);
  weights.run(A, D);
  std::printf("%g %g\n", c.front(), d.back());
  if (c.front() != 24.0f || d.back() != 24.0f) return 1;

  // A mistake is an exception.
  try {
    mm::run(W, W, C);
    return 1;
  } catch (const mm::shape_error &mistake) {
    std::printf("shape: %s\n", mistake.what());
  }
  try {
    mm::run(A, W, mm::view<float, 2>(a.data(), {24, 16}));
    return 1;
  } catch (const mm::error &mistake) {
    std::printf("overlap: %d, %s\n", mistake.status(), mistake.what());
  }
  return 0;
}
