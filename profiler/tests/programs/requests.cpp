// API of leeward_profile.h, and requests by name: `handle` (label, id), `serve::work` (counted id).
#include "leeward_profile.h"

#include <cstdio>
#include <stdexcept>
#include <unistd.h>

static int queue;

static int handle(const char *text, long id) {
  usleep(500);
  if (id == 1003)
    throw std::runtime_error(text);
  return int(id);
}
namespace serve {
static void work() { usleep(500); }
} // namespace serve

static const uint8_t trace[16] = {1, 2, 3, 4, 5, 6, 7, 8, 0, 0, 0, 0, 0, 0, 0, 9};

int main() {
  leeward_req_start(17, &queue);
  leeward_req_start(18);
  leeward_req_label(17, "GET");
  leeward_req_trace(17, trace, 21, 20);
  leeward_req_call(17, 22, "store");
  leeward_req_call(17, 23, nullptr);
  leeward_req_answer(17, 22);
  leeward_req_block(18, &queue);
  leeward_req_end(17);
  leeward_req_start(18, &queue);
  leeward_req_end_all();
  int wrong = 0;
  for (long id = 1000; id < 1005; id++)
    try {
      wrong += handle("thrown", id) != id;
    } catch (const std::runtime_error &) {
      wrong += id != 1003;
    }
  serve::work();
  serve::work();
  std::puts(wrong ? "wrong" : "right");
  return wrong;
}
