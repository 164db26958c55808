// Blocks and lanes on one processor thread: a lane is a fiber that runs until it meets the others of
// its block. Included before the text of a kernel; SHIM_ENTRY after it makes the function to call.
#pragma once
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <ucontext.h>

namespace shim {

struct Position { unsigned x, y, z; };
struct Lane { ucontext_t context; long where; };

static Position thread_position, block_position, block_size;
static Lane *lanes;
static ucontext_t scheduler;
static int current;
static void (*body)();

// Where a lane stands that is done; others stand at a line of the text.
enum { DONE = -1 };

static void start() { body(); lanes[current].where = DONE; }

static void place(int lane) {
  current = lane;
  thread_position.x = lane % block_size.x;
  thread_position.y = lane / block_size.x % block_size.y;
  thread_position.z = lane / block_size.x / block_size.y;
}

// Wait for all lanes of the block; they must wait at the same line.
static void meet(long where) {
  int lane = current;
  lanes[lane].where = where;
  swapcontext(&lanes[lane].context, &scheduler);
}

// 0, or the number of the first lane that waits where lane 0 does not, and 1.
static int run_block(char *stacks, size_t stack) {
  int count = block_size.x * block_size.y * block_size.z;
  for (int lane = 0; lane < count; lane++) {
    getcontext(&lanes[lane].context);
    lanes[lane].context.uc_stack.ss_sp = stacks + lane * stack;
    lanes[lane].context.uc_stack.ss_size = stack;
    lanes[lane].context.uc_link = &scheduler;
    makecontext(&lanes[lane].context, start, 0);
  }
  do {
    for (int lane = 0; lane < count; lane++) {
      place(lane);
      swapcontext(&scheduler, &lanes[lane].context);
    }
    for (int lane = 1; lane < count; lane++)
      if (lanes[lane].where != lanes[0].where) return lane + 1;
  } while (lanes[0].where != DONE);
  return 0;
}

static int run(void (*kernel)(), const unsigned *grid, const unsigned *block, int meets) {
  const size_t stack = 64 << 10;
  int count = block[0] * block[1] * block[2], wrong = 0;
  block_size = Position{block[0], block[1], block[2]};
  body = kernel;
  char *stacks = meets ? (char *)malloc(stack * count) : 0;
  lanes = meets ? (Lane *)malloc(sizeof(Lane) * count) : 0;
  for (unsigned z = 0; z < grid[2]; z++)
    for (unsigned y = 0; y < grid[1]; y++)
      for (unsigned x = 0; x < grid[0] && !wrong; x++) {
        block_position = Position{x, y, z};
        if (meets) wrong = run_block(stacks, stack);
        else for (int lane = 0; lane < count; lane++) { place(lane); kernel(); }
      }
  free(stacks);
  free(lanes);
  return wrong;
}

// Calling the kernel with its arguments, each from a pointer: to memory, or to a number.
static void **arguments;
template <class T> struct Argument { static T get(int i) { return *(T *)arguments[i]; } };
template <class T> struct Argument<T *> { static T *get(int i) { return (T *)arguments[i]; } };
template <class T> struct Argument<T &> { static T &get(int i) { return *(T *)arguments[i]; } };
template <int... I> struct Numbers {};
template <int N, int... I> struct Count : Count<N - 1, N - 1, I...> {};
template <int... I> struct Count<0, I...> { typedef Numbers<I...> type; };

template <class... A, int... I> static void call(void (*kernel)(A...), Numbers<I...>) {
  kernel(Argument<A>::get(I)...);
}
template <class... A> static void call(void (*kernel)(A...)) {
  call(kernel, typename Count<sizeof...(A)>::type());
}

// Short floats, rounded to the nearest, ties to even. A double holds every product of two.
static double rounded(double x, int digits, int least) {
  if (x == 0 || x != x || isinf(x)) return x;
  int exponent;
  frexp(x, &exponent);
  if (exponent < least) exponent = least;
  return ldexp(nearbyint(ldexp(x, digits - exponent)), exponent - digits);
}

struct half {
  unsigned short bits;
  half() = default;
  template <class T> half(T value) {
    double x = rounded((double)value, 11, -13), size = fabs(x);
    unsigned sign = signbit(x) ? 0x8000 : 0;
    int exponent;
    double m = frexp(size, &exponent);
    if (x != x) bits = 0x7e00;
    else if (size > 65504) bits = sign | 0x7c00;
    else if (size < ldexp(1, -14)) bits = sign | (unsigned)ldexp(size, 24);
    else bits = sign | (exponent + 14) << 10 | ((unsigned)ldexp(m, 11) & 0x3ff);
  }
  operator float() const {
    int exponent = bits >> 10 & 31, m = bits & 0x3ff;
    double size = exponent == 31 ? (m ? NAN : INFINITY)
                  : exponent ? ldexp(m + 1024, exponent - 25) : ldexp(m, -24);
    return bits >> 15 ? -size : size;
  }
};

struct bfloat {
  unsigned short bits;
  bfloat() = default;
  template <class T> bfloat(T value) {
    float x = rounded((double)value, 8, -125);
    unsigned whole;
    memcpy(&whole, &x, 4);
    bits = x != x ? 0x7fc0 : whole >> 16;
  }
  operator float() const {
    unsigned whole = (unsigned)bits << 16;
    float x;
    memcpy(&x, &whole, 4);
    return x;
  }
};

#define SHIM_SHORT(T)                                                            \
  static inline T operator+(T a, T b) { return T((float)a + (float)b); }         \
  static inline T operator-(T a, T b) { return T((float)a - (float)b); }         \
  static inline T operator*(T a, T b) { return T((float)a * (float)b); }         \
  static inline T operator/(T a, T b) { return T((float)a / (float)b); }         \
  static inline T operator-(T a) { return T(-(float)a); }                        \
  static inline bool operator<(T a, T b) { return (float)a < (float)b; }         \
  static inline bool operator>(T a, T b) { return (float)a > (float)b; }         \
  static inline bool operator==(T a, T b) { return (float)a == (float)b; }       \
  static inline bool operator!=(T a, T b) { return (float)a != (float)b; }
SHIM_SHORT(half)
SHIM_SHORT(bfloat)

}  // namespace shim

#define SHIM_ENTRY(name)                                                                     \
  static void shim_call() { shim::call(name); }                                              \
  extern "C" int shim_run(void **arguments, const unsigned *grid, const unsigned *block,     \
                          int meets) {                                                       \
    shim::arguments = arguments;                                                             \
    return shim::run(shim_call, grid, block, meets);                                         \
  }
