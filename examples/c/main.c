/* Calls a matrix product that Loopwright made. With matmul.so and matmul.h here, exported from
 * Python by
 *
 *     import loopwright as lw
 *     i, j, k = lw.indices("i j k")
 *     A, W = lw.tensor("A", (24, 12)), lw.tensor("W", (12, 16), constant=True)
 *     C = lw.tensor("C")
 *     C[i, j] += A[i, k] * W[k, j]
 *     lw.build(lw.workload(C)).export("matmul.so")
 *
 * compile and run it:
 *
 *     cc main.c ./matmul.so -o main -Wl,-rpath,'$ORIGIN' && ./main
 *
 * The shapes must be those that the library was built for; they are in matmul.h. This program is
 * for C[M][N] = A[M][K] W[K][N] in float32, where W is a weight that the kernel lays out anew.
 */
#include <stdio.h>
#include <stdlib.h>

#include "matmul.h"

#ifndef M
#define M 24
#define N 16
#define K 12
#endif

static float *array(size_t elements) {
  float *values = malloc(elements * sizeof *values);
  if (!values) exit(1);
  for (size_t i = 0; i < elements; i++) values[i] = (float)(i * 7 % 11) - 5.0f;
  return values;
}

static int check(int status) {
  if (status) fprintf(stderr, "matmul: %s\n", matmul_error(status));
  return status;
}

static double worst_error(const float *A, const float *W, const float *C) {
  double worst = 0;
  for (int i = 0; i < M; i++)
    for (int j = 0; j < N; j++) {
      double sum = 0, error;
      for (int k = 0; k < K; k++) sum += (double)A[i * K + k] * W[k * N + j];
      error = sum > C[i * N + j] ? sum - C[i * N + j] : C[i * N + j] - sum;
      if (!(error <= worst)) worst = error;
    }
  return worst;
}

int main(void) {
  float *A = array(M * K), *W = array(K * N), *C = array(M * N), *D = array(M * N);
  void *prepared = malloc(matmul_prepared_bytes());
  if (!prepared || check(matmul_set_threads(2))) return 1;

  /* In one go. */
  if (check(matmul(A, W, C))) return 1;

  /* The weights once, then as many products as you like. */
  if (check(matmul_prepare(W, prepared))) return 1;
  for (int i = 0; i < 100; i++)
    if (check(matmul_run(A, prepared, D))) return 1;

  printf("%d threads, worst error %g and %g\n", matmul_threads(), worst_error(A, W, C),
         worst_error(A, W, D));
  int bad = worst_error(A, W, C) > 1e-3 || worst_error(A, W, D) > 1e-3;

  /* A mistake is a status with a text, not a crash. */
  printf("null: %s\n", matmul_error(matmul(NULL, W, C)));
  printf("misaligned: %s\n", matmul_error(matmul(A, W, (float *)((char *)C + 1))));

  free(A), free(W), free(C), free(D), free(prepared);
  return bad;
}
