// Exceptions through instrumented frames: destructors run, values are right, calls are recorded.
#include <chrono>
#include <cstdio>
#include <stdexcept>
#include <thread>

static int destroyed;
struct Guard {
  ~Guard() { destroyed++; }
};

[[gnu::noinline]] void left_by_throw(int n) {
  std::this_thread::sleep_for(std::chrono::milliseconds(2));
  if (n >= 0)
    throw std::runtime_error("out");
}
[[gnu::noinline]] int middle(int n) {
  Guard guard;
  left_by_throw(n);
  return n;
}
[[gnu::noinline]] int catches(int n) {
  try {
    return middle(n);
  } catch (const std::runtime_error &) {
    return -n;
  }
}
[[gnu::noinline]] int rethrows(int n) {
  try {
    return middle(n);
  } catch (...) {
    throw;
  }
}
[[gnu::noinline]] double keeps_doubles(double x) {
  try {
    left_by_throw(1);
  } catch (...) {
    x *= 2;
  }
  return x;
}

int main() {
  int sum = 0;
  for (int i = 0; i < 20; i++)
    sum += catches(i);
  int caught = 0;
  for (int i = 0; i < 20; i++)
    try {
      rethrows(i);
    } catch (const std::exception &e) {
      caught += e.what()[0] == 'o';
    }
  bool right = sum == -190 && caught == 20 && destroyed == 40 && keeps_doubles(1.5) == 3.0;
  std::puts(right ? "right" : "wrong");
  return !right;
}
