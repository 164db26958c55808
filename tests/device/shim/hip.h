// What the texts of HIP call: the device libraries' functions, for a processor. For clang, whose
// vectors they use.
#include "lanes.h"

extern "C" {
unsigned long __ockl_get_group_id(unsigned axis) { return (&shim::block_position.x)[axis]; }
unsigned long __ockl_get_local_id(unsigned axis) { return (&shim::thread_position.x)[axis]; }
#define SHIM_MATH(name)                                                                      \
  _Float16 __ocml_##name##_f16(_Float16 x) { return (_Float16)name((double)x); }             \
  float __ocml_##name##_f32(float x) { return name##f(x); }                                  \
  double __ocml_##name##_f64(double x) { return name(x); }
SHIM_MATH(exp) SHIM_MATH(exp2) SHIM_MATH(log2) SHIM_MATH(sin) SHIM_MATH(cos) SHIM_MATH(sqrt)
SHIM_MATH(trunc)
_Float16 __ocml_fmod_f16(_Float16 x, _Float16 y) { return (_Float16)fmod((double)x, (double)y); }
float __ocml_fmod_f32(float x, float y) { return fmodf(x, y); }
double __ocml_fmod_f64(double x, double y) { return fmod(x, y); }
_Float16 __ocml_fma_f16(_Float16 x, _Float16 y, _Float16 z) {
  return (_Float16)fma((double)x, (double)y, (double)z);
}
float __ocml_fma_f32(float x, float y, float z) { return fmaf(x, y, z); }
double __ocml_fma_f64(double x, double y, double z) { return fma(x, y, z); }
}
#define amdgpu_flat_work_group_size(least, most)
#define __builtin_amdgcn_fence(...) ((void)0)
#define __builtin_amdgcn_s_barrier() shim::meet(__LINE__)
#define __hip_atomic_fetch_add(pointer, value, ...) (*(pointer) += (value))
#define __hip_atomic_fetch_max(pointer, value, ...)                                          \
  (*(pointer) = (value) > *(pointer) ? (value) : *(pointer))
