/* What C has no operator for, or says otherwise than NumPy: integers that wrap around, divisions
 * that round down, NaN in minima and maxima, halves. */
#ifndef LOOPWRIGHT_ELEMENTS_H_
#define LOOPWRIGHT_ELEMENTS_H_

#include <math.h>
#include <stddef.h>
#include <stdint.h>

/* Before a loop that is to be written out: register tiles stay in registers only then. */
#if defined(__clang__)
#define LW_UNROLL _Pragma("unroll")
#elif defined(__GNUC__) && __GNUC__ >= 8
#define LW_UNROLL _Pragma("GCC unroll 64")
#else
#define LW_UNROLL
#endif

/* ---- vectors of N elements, anywhere in an array ---- */

#define LW_VECTOR(N)                                                                          \
  typedef float lw_f32x##N __attribute__((vector_size(4 * N), aligned(4), may_alias));         \
  typedef double lw_f64x##N __attribute__((vector_size(8 * N), aligned(8), may_alias));        \
  typedef int32_t lw_bits_f32x##N __attribute__((vector_size(4 * N)));                        \
  typedef int64_t lw_bits_f64x##N __attribute__((vector_size(8 * N)));

LW_VECTOR(2)
LW_VECTOR(4)
LW_VECTOR(8)
LW_VECTOR(16)
LW_VECTOR(32)
LW_VECTOR(64)

/* The vector that begins with an element. */
#define LW_AT(KIND, element) (*(lw_##KIND *)&(element))

/* x where a comparison holds, else y. */
#define LW_WHERE(KIND, mask, x, y)                                                            \
  ((lw_##KIND)(((lw_bits_##KIND)(mask) & (lw_bits_##KIND)(x)) |                               \
               (~(lw_bits_##KIND)(mask) & (lw_bits_##KIND)(y))))
#define LW_MIN(KIND, x, y) LW_WHERE(KIND, ((x) < (y)) | ((x) != (x)), x, y)
#define LW_MAX(KIND, x, y) LW_WHERE(KIND, ((x) > (y)) | ((x) != (x)), x, y)

/* ---- integers: T computes in U, which is unsigned and at least 32 bits wide ---- */

#define LW_INTEGER(T, U, NAME)                                                                \
  static inline T lw_add_##NAME(T x, T y) { return (T)((U)x + (U)y); }                        \
  static inline T lw_sub_##NAME(T x, T y) { return (T)((U)x - (U)y); }                        \
  static inline T lw_mul_##NAME(T x, T y) { return (T)((U)x * (U)y); }                        \
  static inline T lw_min_##NAME(T x, T y) { return x < y ? x : y; }                           \
  static inline T lw_max_##NAME(T x, T y) { return x > y ? x : y; }                           \
  static inline T lw_natural_pow_##NAME(T x, U y) {                                           \
    U power = 1, square = (U)x;                                                               \
    for (; y; y >>= 1, square *= square)                                                      \
      if (y & 1) power *= square;                                                             \
    return (T)power;                                                                          \
  }

/* By 0, all are 0; the least number by -1 is itself. */
#define LW_SIGNED(T, U, NAME, BITS)                                                           \
  LW_INTEGER(T, U, NAME)                                                                      \
  static inline T lw_neg_##NAME(T x) { return (T)(0 - (U)x); }                                \
  static inline T lw_abs_##NAME(T x) { return x < 0 ? lw_neg_##NAME(x) : x; }                 \
  static inline T lw_trunc_div_##NAME(T x, T y) {                                             \
    return y == 0 ? 0 : y == -1 ? lw_neg_##NAME(x) : (T)(x / y);                              \
  }                                                                                           \
  static inline T lw_fmod_##NAME(T x, T y) { return y == 0 || y == -1 ? 0 : (T)(x % y); }     \
  static inline T lw_mod_##NAME(T x, T y) {                                                   \
    T rest = lw_fmod_##NAME(x, y);                                                            \
    return rest && (rest < 0) != (y < 0) ? (T)(rest + y) : rest;                              \
  }                                                                                           \
  static inline T lw_floordiv_##NAME(T x, T y) {                                              \
    T rest = lw_fmod_##NAME(x, y);                                                            \
    return (T)(lw_trunc_div_##NAME(x, y) - (rest && (rest < 0) != (y < 0)));                  \
  }                                                                                           \
  static inline T lw_shl_##NAME(T x, T y) {                                                   \
    return y >= 0 && y < BITS ? (T)((U)x << y) : 0;                                           \
  }                                                                                           \
  static inline T lw_shr_##NAME(T x, T y) {                                                   \
    return y >= 0 && y < BITS ? (T)(x >> y) : x < 0 ? -1 : 0;                                 \
  }                                                                                           \
  static inline T lw_pow_##NAME(T x, T y) {                                                   \
    if (y >= 0) return lw_natural_pow_##NAME(x, (U)y);                                        \
    return x == 1 ? 1 : x == -1 ? (y & 1 ? -1 : 1) : 0;                                       \
  }                                                                                           \
  static inline ptrdiff_t lw_place_##NAME(T x, ptrdiff_t size) {                              \
    if (x < 0) return size + x < 0 ? 0 : (ptrdiff_t)(size + x);                               \
    return x < size ? (ptrdiff_t)x : size - 1;                                                \
  }

#define LW_UNSIGNED(T, U, NAME, BITS)                                                         \
  LW_INTEGER(T, U, NAME)                                                                      \
  static inline T lw_neg_##NAME(T x) { return (T)(0 - (U)x); }                                \
  static inline T lw_abs_##NAME(T x) { return x; }                                            \
  static inline T lw_trunc_div_##NAME(T x, T y) { return y ? (T)(x / y) : 0; }                \
  static inline T lw_fmod_##NAME(T x, T y) { return y ? (T)(x % y) : 0; }                     \
  static inline T lw_mod_##NAME(T x, T y) { return y ? (T)(x % y) : 0; }                      \
  static inline T lw_floordiv_##NAME(T x, T y) { return y ? (T)(x / y) : 0; }                 \
  static inline T lw_shl_##NAME(T x, T y) { return y < BITS ? (T)((U)x << y) : 0; }           \
  static inline T lw_shr_##NAME(T x, T y) { return y < BITS ? (T)(x >> y) : 0; }              \
  static inline T lw_pow_##NAME(T x, T y) { return lw_natural_pow_##NAME(x, (U)y); }          \
  static inline ptrdiff_t lw_place_##NAME(T x, ptrdiff_t size) {                              \
    return (uint64_t)x < (uint64_t)size ? (ptrdiff_t)x : size - 1;                            \
  }

LW_SIGNED(int8_t, uint32_t, i8, 8)
LW_SIGNED(int16_t, uint32_t, i16, 16)
LW_SIGNED(int32_t, uint32_t, i32, 32)
LW_SIGNED(int64_t, uint64_t, i64, 64)
LW_UNSIGNED(uint8_t, uint32_t, u8, 8)
LW_UNSIGNED(uint16_t, uint32_t, u16, 16)
LW_UNSIGNED(uint32_t, uint32_t, u32, 32)
LW_UNSIGNED(uint64_t, uint64_t, u64, 64)

/* ---- subscripts ---- */

static inline ptrdiff_t lw_least(ptrdiff_t x, ptrdiff_t y) { return x < y ? x : y; }
static inline ptrdiff_t lw_greatest(ptrdiff_t x, ptrdiff_t y) { return x > y ? x : y; }

/* ⌊x / y⌋ for y > 0, and what remains. */
static inline ptrdiff_t lw_quotient(ptrdiff_t x, ptrdiff_t y) {
  return x / y - (x % y < 0);
}
static inline ptrdiff_t lw_remainder(ptrdiff_t x, ptrdiff_t y) {
  return x % y < 0 ? x % y + y : x % y;
}

/* ---- floats: NaN comes through minima and maxima from either side ---- */

#define LW_FLOAT(T, NAME, F)                                                                  \
  static inline T lw_min_##NAME(T x, T y) { return x < y || x != x ? x : y; }                 \
  static inline T lw_max_##NAME(T x, T y) { return x > y || x != x ? x : y; }                 \
  static inline T lw_rsqrt_##NAME(T x) { return 1 / sqrt##F(x); }                             \
  static inline T lw_sigmoid_##NAME(T x) { return 1 / (1 + exp##F(-x)); }                     \
  static inline T lw_mod_##NAME(T x, T y) {                                                   \
    T rest = fmod##F(x, y);                                                                   \
    if (rest == 0) return y < 0 ? -(T)0 : (T)0;                                               \
    return (rest < 0 && y > 0) || (rest > 0 && y < 0) ? rest + y : rest;                      \
  }                                                                                           \
  static inline T lw_floordiv_##NAME(T x, T y) {                                              \
    if (y == 0) return x / y;                                                                 \
    T rest = fmod##F(x, y), quotient = (x - rest) / y;                                        \
    if ((rest < 0 && y > 0) || (rest > 0 && y < 0)) quotient -= 1;                            \
    T whole = floor##F(quotient);                                                             \
    return quotient - whole > (T)0.5 ? whole + 1 : whole;                                     \
  }

LW_FLOAT(float, f32, f)
LW_FLOAT(double, f64, )

/* ---- halves, as their bits ---- */

static inline float lw_float_of(uint32_t bits) {
  return ((union { uint32_t bits; float value; }){bits}).value;
}
static inline uint32_t lw_bits_of(float value) {
  return ((union { float value; uint32_t bits; }){value}).bits;
}

static inline float lw_of_bfloat16(uint16_t half) { return lw_float_of((uint32_t)half << 16); }

static inline uint16_t lw_to_bfloat16(float x) {
  uint32_t bits = lw_bits_of(x);
  if (x != x) return 0x7fc0;
  return (uint16_t)((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}

static inline float lw_of_float16(uint16_t half) {
  uint32_t sign = (uint32_t)(half & 0x8000) << 16, rest = half & 0x7fff;
  if (rest >= 0x7c00) return lw_float_of(sign | 0x7f800000 | rest << 13); /* infinity, NaN */
  return lw_float_of(sign | lw_bits_of(lw_float_of(rest << 13) * 0x1p112f));
}

static inline uint16_t lw_to_float16(float x) {
  uint32_t bits = lw_bits_of(x), sign = bits >> 16 & 0x8000, rest = bits & 0x7fffffff;
  if (rest > 0x7f800000) return (uint16_t)(sign | 0x7e00);
  if (rest >= 0x477ff000) return (uint16_t)(sign | 0x7c00); /* 65520 rounds to infinity */
  if (rest < 0x38800000) /* below 2^-14, where halves are 2^-24 apart, as floats from 0.5 on */
    return (uint16_t)(sign | (lw_bits_of(lw_float_of(rest) + 0.5f) - 0x3f000000));
  return (uint16_t)(sign | (rest + 0xfff + (rest >> 13 & 1) - (112u << 23)) >> 13);
}

static inline float lw_round_float16(float x) { return lw_of_float16(lw_to_float16(x)); }
static inline float lw_round_bfloat16(float x) { return lw_of_bfloat16(lw_to_bfloat16(x)); }

#endif
