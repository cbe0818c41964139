/* What kernels use beside OpenCL's own functions. Halves are 16-bit integers, so that devices
 * without cl_khr_fp16 can do with them; vload_half is in every device. */

#define lw_barrier() barrier(CLK_LOCAL_MEM_FENCE | CLK_GLOBAL_MEM_FENCE)

/* Wide copies; both places are aligned to the whole vector. */
#define lw_move2(to, from) vstore2(vload2(0, from), 0, to)
#define lw_move4(to, from) vstore4(vload4(0, from), 0, to)
#define lw_move8(to, from) vstore8(vload8(0, from), 0, to)
#define lw_move16(to, from) vstore16(vload16(0, from), 0, to)

float lw_of_float16(ushort bits) { return vload_half(0, (const half *)&bits); }

ushort lw_to_float16(float x) {
  ushort bits;
  vstore_half_rte(x, 0, (half *)&bits);
  return bits;
}

float lw_of_bfloat16(ushort bits) { return as_float((uint)bits << 16); }

ushort lw_to_bfloat16(float x) {
  uint bits = as_uint(x);
  if ((bits & 0x7fffffff) > 0x7f800000) return 0x7fc0; /* NaN */
  return (ushort)((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}

/* x to the power y modulo 2^64. */
ulong lw_power(ulong x, ulong y) {
  ulong result = 1;
  for (; y; y >>= 1, x *= x) result *= y & 1 ? x : 1;
  return result;
}

/* ---- tiles of 16x16 elements, held together by the 32 lanes of a warp ----
 *
 * A lane holds eight accumulators: rows g and g+8, columns 2t, 2t+1, 2t+8, 2t+9, where g is
 * lane / 4 and t is lane % 4. Of the factors it holds all that these need, two rows and four
 * columns, so that lanes need nothing of each other, and so no barrier. */

#define LW_ROW(i, lane) ((lane) / 4 + (i) / 2 % 2 * 8)
#define LW_COLUMN(i, lane) ((lane) % 4 * 2 + (i) % 2 + (i) / 4 * 8)

int lw_lane(void) { return (int)get_local_id(0) % 32; }

void lw_matrix_fill(float *tile, float value) {
  for (int i = 0; i < 8; ++i) tile[i] = value;
}

#define LW_MATRIX_LOADS(NAME, SPACE)                                                         \
  void lw_matrix_a_##NAME(ushort *tile, const SPACE ushort *from, int row, int column) {     \
    for (int i = 0; i < 2; ++i)                                                     \
      for (int k = 0; k < 16; ++k)                                                           \
        tile[i * 16 + k] = from[(lw_lane() / 4 + i * 8) * row + k * column];           \
  }                                                                                          \
  void lw_matrix_b_##NAME(ushort *tile, const SPACE ushort *from, int row, int column) {     \
    for (int i = 0; i < 4; ++i)                                                              \
      for (int k = 0; k < 16; ++k)                                                           \
        tile[i * 16 + k] = from[k * row + (lw_lane() % 4 * 2 + i % 2 + i / 2 * 8) * column]; \
  }
LW_MATRIX_LOADS(global, __global)
LW_MATRIX_LOADS(shared, __local)

#define LW_MATRIX_MULTIPLY(TYPE)                                                             \
  void lw_matrix_multiply_##TYPE(float *tile, const ushort *a, const ushort *b) {            \
    for (int i = 0; i < 8; ++i) {                                                            \
      float sum = tile[i];                                                                   \
      for (int k = 0; k < 16; ++k)                                                           \
        sum += lw_of_##TYPE(a[i / 2 % 2 * 16 + k]) * lw_of_##TYPE(b[(i / 4 * 2 + i % 2) * 16 + k]); \
      tile[i] = sum;                                                                         \
    }                                                                                        \
  }
LW_MATRIX_MULTIPLY(float16)
LW_MATRIX_MULTIPLY(bfloat16)

#define LW_MATRIX_STORE(NAME, SPACE, TYPE, STORED, CONVERT)                                  \
  void lw_matrix_store_##TYPE##_##NAME(SPACE STORED *to, const float *tile, int row,         \
                                       int column) {                                         \
    for (int i = 0; i < 8; ++i)                                                              \
      to[LW_ROW(i, lw_lane()) * row + LW_COLUMN(i, lw_lane()) * column] = CONVERT(tile[i]);  \
  }
LW_MATRIX_STORE(global, __global, float32, float, )
LW_MATRIX_STORE(shared, __local, float32, float, )
LW_MATRIX_STORE(global, __global, float16, ushort, lw_to_float16)
LW_MATRIX_STORE(shared, __local, float16, ushort, lw_to_float16)
LW_MATRIX_STORE(global, __global, bfloat16, ushort, lw_to_bfloat16)
LW_MATRIX_STORE(shared, __local, bfloat16, ushort, lw_to_bfloat16)
