/* Instructions that CUDA C has no operators for. No header is included, so that nvrtc needs none.
 * Halves are 16-bit integers. */

#define uint unsigned int
#define uchar unsigned char
#define ushort unsigned short
#define int64_t long long
#define uint64_t unsigned long long
#define CUDART_INF_F __int_as_float(0x7f800000)
#define CUDART_NAN_F __int_as_float(0x7fffffff)
#define CUDART_INF __longlong_as_double(0x7ff0000000000000ll)
#define CUDART_NAN __longlong_as_double(0x7ff8000000000000ll)

#define lw_barrier() __syncthreads()
#define LW_ALIGNED(pointer, bytes) /* checked where the code is tested without a GPU */
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

/* ---- matrices, by the lanes of a warp together ----
 *
 * Four matrices of 8×8, to the rows of which the lanes point. */

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

/* d += a · b, 16×8 and 16×16 times 16×8: half of a tile. */
#define LW_MMA(TYPE, NAME)                                                                    \
  LW_DEVICE void lw_mma_##NAME(float *d, const uint *a, const uint *b) {                      \
    asm volatile("mma.sync.aligned.m16n8k16.row.col.f32." TYPE "." TYPE ".f32 "               \
                 "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"            \
                 : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])                             \
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));         \
  }
LW_MMA("f16", float16)
LW_MMA("bf16", bfloat16)
