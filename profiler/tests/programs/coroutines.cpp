// C++20 coroutines with symmetric transfer, so deep that ordinary calls would overflow the stack.
#include <coroutine>
#include <cstdio>
#include <exception>
#include <unistd.h>
#include <utility>

struct Task {
  struct promise_type {
    int value = 0;
    std::coroutine_handle<> next;
    Task get_return_object() { return Task{std::coroutine_handle<promise_type>::from_promise(*this)}; }
    std::suspend_always initial_suspend() noexcept { return {}; }
    struct Final {
      bool await_ready() noexcept { return false; }
      std::coroutine_handle<> await_suspend(std::coroutine_handle<promise_type> done) noexcept {
        return done.promise().next ? done.promise().next : std::noop_coroutine();
      }
      void await_resume() noexcept {}
    };
    Final final_suspend() noexcept { return {}; }
    void return_value(int v) { value = v; }
    void unhandled_exception() { std::terminate(); }
  };
  std::coroutine_handle<promise_type> handle;
  explicit Task(std::coroutine_handle<promise_type> h) : handle(h) {}
  Task(Task &&other) noexcept : handle(std::exchange(other.handle, {})) {}
  ~Task() {
    if (handle)
      handle.destroy();
  }
  bool await_ready() { return false; }
  std::coroutine_handle<> await_suspend(std::coroutine_handle<> awaiting) {
    handle.promise().next = awaiting;
    return handle;
  }
  int await_resume() { return handle.promise().value; }
};

Task one(int n) {
  if (n % 1000 == 0)
    usleep(2000);
  co_return n;
}
Task sum(int n) {
  int total = 0;
  for (int i = 0; i < n; i++)
    total += co_await one(i);
  co_return total;
}

int main() {
  Task all = sum(2000);
  all.handle.resume();
  bool right = all.handle.promise().value == 1999000;
  std::puts(right ? "right" : "wrong");
  return !right;
}
