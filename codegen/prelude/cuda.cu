/* What kernels use beside CUDA's own functions. No header is included, so that nvrtc needs none.
 * Halves are 16-bit integers. */

#define uint unsigned int
#define uchar unsigned char
#define ushort unsigned short
#define int64_t long long
#define CUDART_INF_F __int_as_float(0x7f800000)
#define CUDART_NAN_F __int_as_float(0x7fffffff)
#define CUDART_INF __longlong_as_double(0x7ff0000000000000ll)
#define CUDART_NAN __longlong_as_double(0x7ff8000000000000ll)

#define lw_barrier() __syncthreads()
#define LW_DEVICE static __device__ __forceinline__

LW_DEVICE float lw_of_float16(ushort bits) {
  float x;
  asm("cvt.f32.f16 %0, %1;" : "=f"(x) : "h"(bits));
  return x;
}

LW_DEVICE ushort lw_to_float16(float x) {
  ushort bits;
  asm("cvt.rn.f16.f32 %0, %1;" : "=h"(bits) : "f"(x));
  return bits;
}

LW_DEVICE float lw_of_bfloat16(ushort bits) { return __uint_as_float((uint)bits << 16); }

LW_DEVICE ushort lw_to_bfloat16(float x) {
#if __CUDA_ARCH__ >= 800
  ushort half;
  asm("cvt.rn.bf16.f32 %0, %1;" : "=h"(half) : "f"(x));
  return half;
#else
  uint bits = __float_as_uint(x);
  if ((bits & 0x7fffffff) > 0x7f800000) return 0x7fff; /* NaN, as the instruction gives it */
  return (ushort)((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
#endif
}

/* ---- copies that run beside other work, where there are such ---- */

template <int BYTES>
LW_DEVICE void lw_async_copy(void *to, const void *from) {
#if __CUDA_ARCH__ >= 800
  uint at = (uint)__cvta_generic_to_shared(to);
  if (BYTES == 16) /* past L1: what is copied so is read from shared memory */
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(at), "l"(from) : "memory");
  else
    asm volatile("cp.async.ca.shared.global [%0], [%1], %2;" ::"r"(at), "l"(from), "n"(BYTES)
                 : "memory");
#else
  for (int i = 0; i < BYTES / 4; ++i) ((uint *)to)[i] = ((const uint *)from)[i];
#endif
}

LW_DEVICE void lw_async_commit() {
#if __CUDA_ARCH__ >= 800
  asm volatile("cp.async.commit_group;" ::: "memory");
#endif
}

template <int PENDING>
LW_DEVICE void lw_async_wait() {
#if __CUDA_ARCH__ >= 800
  asm volatile("cp.async.wait_group %0;" ::"n"(PENDING) : "memory");
#endif
}

/* ---- tiles of 16x16 elements, held together by the 32 lanes of a warp ----
 *
 * As the instruction mma.m16n8k16 has them (PTX ISA, "Matrix Fragments for mma.m16n8k16"): a lane
 * holds eight accumulators, rows g and g+8, columns 2t, 2t+1, 2t+8, 2t+9, where g is lane / 4 and
 * t is lane % 4; and four words, of two elements each, of a factor. */

LW_DEVICE int lw_lane() { return threadIdx.x % 32; }

LW_DEVICE void lw_matrix_fill(float *tile, float value) {
#pragma unroll
  for (int i = 0; i < 8; ++i) tile[i] = value;
}

LW_DEVICE uint lw_pair(const ushort *from, int step) {
  return from[0] | (uint)from[step] << 16;
}

/* A factor from anywhere; `row` and `column` are the steps in elements along both axes. */
LW_DEVICE void lw_matrix_a_global(uint *tile, const ushort *from, int row, int column) {
  int g = lw_lane() / 4, t = lw_lane() % 4;
#pragma unroll
  for (int i = 0; i < 4; ++i)
    tile[i] = lw_pair(from + (g + i % 2 * 8) * row + (t * 2 + i / 2 * 8) * column, column);
}

LW_DEVICE void lw_matrix_b_global(uint *tile, const ushort *from, int row, int column) {
  int g = lw_lane() / 4, t = lw_lane() % 4;
#pragma unroll
  for (int i = 0; i < 4; ++i)
    tile[i] = lw_pair(from + (t * 2 + i % 2 * 8) * row + (g + i / 2 * 8) * column, row);
}

/* A factor from rows in shared memory, `step` elements apart, each aligned to 16 bytes: four
 * matrices of 8x8, the rows of which the lanes point at. */
LW_DEVICE void lw_ldmatrix(uint *tile, const ushort *row) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(tile[0]), "=r"(tile[1]), "=r"(tile[2]), "=r"(tile[3])
               : "r"((uint)__cvta_generic_to_shared(row))
               : "memory");
}

LW_DEVICE void lw_ldmatrix_transposed(uint *tile, const ushort *row) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(tile[0]), "=r"(tile[1]), "=r"(tile[2]), "=r"(tile[3])
               : "r"((uint)__cvta_generic_to_shared(row))
               : "memory");
}

/* Word i of a lane is of matrix i, to whose rows lanes 8i to 8i+7 point. */
LW_DEVICE const ushort *lw_down_first(const ushort *from, int step) {
  return from + lw_lane() % 16 * step + lw_lane() / 16 * 8;
}

LW_DEVICE const ushort *lw_right_first(const ushort *from, int step) {
  return from + (lw_lane() / 16 * 8 + lw_lane() % 8) * step + lw_lane() / 8 % 2 * 8;
}

LW_DEVICE void lw_matrix_a_rows(uint *tile, const ushort *from, int step) {
  lw_ldmatrix(tile, lw_down_first(from, step));
}

LW_DEVICE void lw_matrix_a_columns(uint *tile, const ushort *from, int step) {
  lw_ldmatrix_transposed(tile, lw_right_first(from, step));
}

LW_DEVICE void lw_matrix_b_rows(uint *tile, const ushort *from, int step) {
  lw_ldmatrix_transposed(tile, lw_down_first(from, step));
}

LW_DEVICE void lw_matrix_b_columns(uint *tile, const ushort *from, int step) {
  lw_ldmatrix(tile, lw_right_first(from, step));
}

#define LW_MMA(TYPE, D, B)                                                                       \
  asm volatile("mma.sync.aligned.m16n8k16.row.col.f32." TYPE "." TYPE ".f32 "                    \
               "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"                 \
               : "+f"((D)[0]), "+f"((D)[1]), "+f"((D)[2]), "+f"((D)[3])                          \
               : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"((B)[0]), "r"((B)[1]))

LW_DEVICE void lw_matrix_multiply_float16(float *tile, const uint *a, const uint *b) {
  LW_MMA("f16", tile, b);
  LW_MMA("f16", tile + 4, b + 2);
}

LW_DEVICE void lw_matrix_multiply_bfloat16(float *tile, const uint *a, const uint *b) {
  LW_MMA("bf16", tile, b);
  LW_MMA("bf16", tile + 4, b + 2);
}

#define LW_MATRIX_STORE(TYPE, STORED, CONVERT)                                                   \
  LW_DEVICE void lw_matrix_store_##TYPE(STORED *to, const float *tile, int row, int column) {    \
    int g = lw_lane() / 4, t = lw_lane() % 4;                                                    \
    _Pragma("unroll") for (int i = 0; i < 8; ++i)                                                \
        to[(g + i / 2 % 2 * 8) * row + (t * 2 + i % 2 + i / 4 * 8) * column] = CONVERT(tile[i]); \
  }
LW_MATRIX_STORE(float32, float, )
LW_MATRIX_STORE(float16, ushort, lw_to_float16)
LW_MATRIX_STORE(bfloat16, ushort, lw_to_bfloat16)
