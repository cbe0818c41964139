"""Words of OpenCL, C and CUDA that keep their names when a source is normalized."""

from __future__ import annotations

_C = """
auto break case char const continue default do double else enum extern float for goto if inline
int long register restrict return short signed sizeof static struct switch typedef union unsigned
void volatile while bool size_t int8_t int16_t int32_t int64_t uint8_t uint16_t uint32_t uint64_t
"""
_MATH = """
abs acos asin atan atan2 ceil cos cosh erf exp exp2 fabs floor fma fmax fmin fmod hypot ldexp log
log10 log2 max min pow round rsqrt sin sinh sqrt tan tanh trunc
"""
_OPENCL = """
__kernel kernel __global global __local local __constant constant __private private __read_only
__write_only __attribute__ half uchar ushort uint ulong image2d_t sampler_t barrier mem_fence
CLK_LOCAL_MEM_FENCE CLK_GLOBAL_MEM_FENCE get_global_id get_global_size get_group_id get_local_id
get_local_size get_num_groups get_work_dim clamp mad mad24 mul24 mix select dot native_cos
native_divide native_exp native_log native_recip native_rsqrt native_sin native_sqrt as_int as_uint
as_float atomic_add atomic_inc atomic_max atomic_min atom_add atom_inc convert_float4 vload4
vstore4 read_imagef write_imagef
"""
_CUDA = """
__global__ __device__ __shared__ __constant__ __restrict__ __launch_bounds__ __syncthreads
__syncwarp __shfl_down_sync __ldg threadIdx blockIdx blockDim gridDim half __half uint3 dim3
atomicAdd atomicMax atomicMin expf logf sqrtf fmaxf fminf
"""
_VECTORS = {
    "opencl": ("char", "uchar", "short", "ushort", "int", "uint", "long", "float", "double"),
    "cuda": ("char", "int", "uint", "float", "double"),
    "c": (),
}
_WIDTHS = {"opencl": (2, 3, 4, 8, 16), "cuda": (2, 3, 4), "c": ()}
_OWN = {"opencl": _OPENCL, "c": "", "cuda": _CUDA}


def reserved(language: str) -> frozenset[str]:
    """Keywords, types and built-in functions of "opencl", "c" or "cuda"."""
    vectors = {f"{t}{w}" for t in _VECTORS[language] for w in _WIDTHS[language]}
    return frozenset(f"{_C} {_MATH} {_OWN[language]}".split()) | vectors


LANGUAGES = tuple(_OWN)
"""The languages that can be read."""
