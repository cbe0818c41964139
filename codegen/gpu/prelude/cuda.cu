/* What kernels use beside CUDA's own functions and the instructions above. */

/* Wide copies; both places are aligned to the whole vector. */
template <int BYTES> struct lw_vector;
template <> struct lw_vector<2> { using type = ushort; };
template <> struct lw_vector<4> { using type = uint; };
template <> struct lw_vector<8> { using type = uint2; };
template <> struct lw_vector<16> { using type = uint4; };

template <int BYTES>
LW_DEVICE void lw_move(void *to, const void *from) {
  using type = typename lw_vector<BYTES>::type;
  LW_ALIGNED(to, BYTES);
  LW_ALIGNED(from, BYTES);
  *(type *)to = *(const type *)from;
}

/* x to the power y modulo 2^64. */
LW_DEVICE unsigned long long lw_power(unsigned long long x, unsigned long long y) {
  unsigned long long result = 1;
  for (; y; y >>= 1, x *= x) result *= y & 1 ? x : 1;
  return result;
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

/* A factor from rows in shared memory, `step` elements apart, each aligned to 16 bytes: matrix i
 * of the four is what word i of a lane is of, and lanes 8i to 8i+7 point to its rows. */
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

LW_DEVICE void lw_matrix_multiply_float16(float *tile, const uint *a, const uint *b) {
  lw_mma_float16(tile, a, b);
  lw_mma_float16(tile + 4, a, b + 2);
}

LW_DEVICE void lw_matrix_multiply_bfloat16(float *tile, const uint *a, const uint *b) {
  lw_mma_bfloat16(tile, a, b);
  lw_mma_bfloat16(tile + 4, a, b + 2);
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
