// What CUDA C++ has beside C++, as far as the texts use it: for a processor.
#include "lanes.h"
#include <stdio.h>

using shim::half;
typedef shim::bfloat __nv_bfloat16;
typedef unsigned char uchar;
typedef unsigned short ushort;
typedef long long longlong;
typedef unsigned long long ulonglong;

#define __global__
#define __device__
#define __launch_bounds__(lanes)
#define __align__(bytes) __attribute__((aligned(bytes)))
#define __shared__ static
#define threadIdx shim::thread_position
#define blockIdx shim::block_position
#define __syncthreads() shim::meet(__LINE__)

#define SHIM_VECTOR(T, V, L)                                                                 \
  struct __align__(2 * sizeof(T)) V##2 { T x, y; };                                          \
  struct V##3 { T x, y, z; };                                                                \
  struct __align__(L) V##4 { T x, y, z, w; };                                                \
  static inline V##2 make_##V##2(T x, T y) { return V##2{x, y}; }                            \
  static inline V##3 make_##V##3(T x, T y, T z) { return V##3{x, y, z}; }                    \
  static inline V##4 make_##V##4(T x, T y, T z, T w) { return V##4{x, y, z, w}; }
SHIM_VECTOR(signed char, char, 4)
SHIM_VECTOR(unsigned char, uchar, 4)
SHIM_VECTOR(short, short, 8)
SHIM_VECTOR(ushort, ushort, 8)
SHIM_VECTOR(int, int, 16)
SHIM_VECTOR(unsigned, uint, 16)
SHIM_VECTOR(longlong, longlong, 16)
SHIM_VECTOR(ulonglong, ulonglong, 16)
SHIM_VECTOR(float, float, 16)
SHIM_VECTOR(double, double, 16)
struct __align__(4) half2 { half x, y; };
static inline half2 make_half2(half x, half y) { return half2{x, y}; }

static inline float __int_as_float(int bits) { float x; memcpy(&x, &bits, 4); return x; }
#define SHIM_SHORT_MATH(name)                                                                \
  static inline half h##name(half x) { return half(name((double)(float)x)); }                \
  static inline __nv_bfloat16 h##name(__nv_bfloat16 x) {                                     \
    return __nv_bfloat16(name((double)(float)x));                                            \
  }
SHIM_SHORT_MATH(exp) SHIM_SHORT_MATH(exp2) SHIM_SHORT_MATH(log2) SHIM_SHORT_MATH(sin)
SHIM_SHORT_MATH(cos) SHIM_SHORT_MATH(sqrt) SHIM_SHORT_MATH(trunc)
template <class T> static inline T __hfma(T a, T b, T c) {
  return T(fma((double)(float)a, (double)(float)b, (double)(float)c));
}
template <class T> static inline void atomicAdd(T *pointer, T value) { *pointer = *pointer + value; }
template <class T> static inline void atomicMax(T *pointer, T value) {
  if (value > *pointer) *pointer = value;
}

// Every lane's value in 32 bits, and what the lane `lane ^ mask` gave.
template <class T> static inline T __shfl_xor_sync(unsigned members, T value, int mask) {
  static T given[1024];
  if (members != 0xffffffffu || sizeof(T) != 4 || mask < 1 || mask > 31) abort();
  given[shim::current] = value;
  shim::meet(-4);
  T found = given[shim::current ^ mask];
  shim::meet(-5);
  return found;
}

// mma.sync, by the layouts of the PTX ISA (section on matrix fragments): in lane 4g+t,
//   a   element i: row g + 8 * (i/2 % 2), column 2t + i%2 + 8 * (i/4)
//   b   element i: row 2t + i%2 + 8 * (i/2), column g
//   c   element i: row g + 8 * (i/2), column 2t + i%2
namespace shim {
static unsigned exchanged[1024][3][4];

static double short_value(unsigned word, int index, bool is_bfloat) {
  unsigned short bits = word >> 16 * (index % 2);
  half h;
  bfloat b;
  h.bits = b.bits = bits;
  return is_bfloat ? (float)b : (float)h;
}

// `text`: the instruction, then its operands by constraint; a and b are what they are called there.
static void mma(const char *text, int *ra, int *rb, void *rc) {
  int m, n, k, numbers[16], used = 0, group = 0;
  char to[8], left[8];
  const char *shape = strstr(text, ".m16");
  if (!shape || sscanf(shape, ".m%dn%dk%d.row.col.%7[^.].%7[^.].", &m, &n, &k, to, left) != 5) abort();
  bool is_bfloat = !strcmp(left, "bf16"), is_half_sum = !strcmp(to, "f16");
  // Which register of ra, rb, rc each %number is.
  const char *at = strchr(text, ':');
  for (; at && (at = strstr(at, "(r")); at += 2) numbers[used++] = (at[2] - 'a') << 4 | (at[4] - '0');
  int *from[3] = {ra, rb, (int *)rc}, mine[3][4], outputs[4], expected[3] = {1, 2, 0};
  const char *digits = strchr(text, '{');
  int sums = 0;
  for (int list = 0; list < 4; list++) {
    const char *end = strchr(digits, '}');
    int count = 0;
    for (const char *p = strchr(digits, '%'); p && p < end; p = strchr(p + 1, '%')) {
      int found = numbers[atoi(p + 1)], operand = found >> 4;
      if (operand != (list % 3 == 0 ? 2 : list - 1)) abort();
      if (list == 0) outputs[count] = found & 15, sums = count + 1;
      else mine[list - 1][count] = from[operand][found & 15];
      count++;
    }
    digits = strchr(end, '{');
  }
  memcpy(exchanged[current], mine, sizeof mine);
  meet(-2);
  int lane = current % 32, first = current - lane, g = lane / 4, t = lane % 4;
  double result[4];
  for (int i = 0; i < 4; i++) {
    int row = g + 8 * (i / 2), column = 2 * t + i % 2;
    unsigned *c = exchanged[current][2];
    float old;
    if (is_half_sum) old = short_value(c[i / 2], i, false);
    else memcpy(&old, &c[i], 4);
    result[i] = old;
    for (int j = 0; j < k; j++) {
      int pair = j / 2 % 4, ia = j % 2 + 2 * (row / 8) + 4 * (j / 8), ib = j % 2 + 2 * (j / 8);
      unsigned *a = exchanged[first + row % 8 * 4 + pair][0];
      unsigned *b = exchanged[first + column * 4 + pair][1];
      result[i] += short_value(a[ia / 2], ia, is_bfloat) * short_value(b[ib / 2], ib, is_bfloat);
    }
  }
  meet(-3);
  for (int i = 0; i < 4; i++) {
    if (is_half_sum) ((unsigned short *)&((int *)rc)[outputs[i / 2]])[i % 2] = half(result[i]).bits;
    else ((float *)rc)[outputs[i]] = (float)result[i];
  }
}

// ldmatrix: lane 8m+i of a warp gives row i of matrix m, 16 bytes; lane 4g+t gets the elements 2t and
// 2t+1 of row g of each, or of column g with .trans.
static const void *rows[1024];

static void instruction(const char *text, unsigned, const void *row, unsigned *rc) {
  int count = 0;
  const char *shape = strstr(text, "ldmatrix.sync.aligned.m8n8.x");
  if (!shape || sscanf(shape, "ldmatrix.sync.aligned.m8n8.x%d", &count) != 1) abort();
  if ((size_t)row % 16) abort();
  rows[current] = row;
  meet(-6);
  int lane = current % 32, first = current - lane, g = lane / 4, t = lane % 4;
  for (int m = 0; m < count; m++)
    for (int i = 0; i < 2; i++) {
      bool is_column = strstr(text, ".trans");
      int from = is_column ? 2 * t + i : g, at = is_column ? g : 2 * t + i;
      const unsigned short *elements = (const unsigned short *)rows[first + 8 * m + from];
      ((unsigned short *)&rc[m])[i] = elements[at];
    }
  meet(-7);
}

// cp.async: what a lane copies arrives when it waits, and no sooner.
struct Copy { void *to; char bytes[16]; int size; int closed; };
static Copy copies[1024][256];
static int waiting[1024];

static void instruction(const char *text, int bytes, const void *from, void *to) {
  int size = 0;
  const char *sizes = strstr(text, "[%1], ");
  if (!strstr(text, "cp.async.") || !sizes || sscanf(sizes, "[%%1], %d", &size) != 1) abort();
  if ((bytes && bytes != size) || (size_t)to % size || (bytes && (size_t)from % size)) abort();
  if (waiting[current] == 256) abort();
  Copy &made = copies[current][waiting[current]++];
  made.to = to, made.size = size, made.closed = 0;
  memset(made.bytes, 0, sizeof made.bytes);
  memcpy(made.bytes, from, bytes);
}

static void instruction(const char *text, int *ra, int *rb, void *rc) {
  // All copies, or those before the latest groups, the last of which is closed here.
  int but = -1, left = 0;
  const char *group = strstr(text, "cp.async.commit_group; cp.async.wait_group ");
  if (group && sscanf(group, "cp.async.commit_group; cp.async.wait_group %d", &but) != 1) abort();
  if (!group && !strstr(text, "cp.async.wait_all")) return mma(text, ra, rb, rc);
  for (int i = 0; i < waiting[current]; i++) {
    Copy &made = copies[current][i];
    made.closed++;
    if (made.closed > but)
      memcpy(made.to, made.bytes, made.size);
    else
      copies[current][left++] = made;
  }
  waiting[current] = left;
}
}  // namespace shim

// What an instruction without operands finds.
static int *ra, *rb;
static void *rc;
#define __cvta_generic_to_shared(pointer) 0
#define asm
#define volatile(...) shim::instruction(#__VA_ARGS__, ra, rb, rc)
