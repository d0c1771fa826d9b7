// Load for LevelDB: `leveldb_load FOLDER fill|read|mixed KEYS SECONDS SEED`.
//
// - `fill` puts KEYS pairs (keys of 16 bytes, values of 100) under random keys into a new database.
// - `read` gets random keys of an existing database for SECONDS.
// - `mixed` is `read` while a second thread puts WRITES pairs per second, a constant rate.
//
// One thread is measured: the writer in `fill`, otherwise the reader. LevelDB's own thread, which
// compacts, has a clock of its own. All random numbers come from SEED. The reader checks that each
// value is the one that was put under its key.
//
// The program prints `ready` once the database is open, and waits for a line or the end of its
// input. At the end it prints one line: operations; seconds; CPU nanoseconds and context switches
// of the measured thread; CPU nanoseconds of compaction; writes and CPU nanoseconds of the second
// thread.
#include <leveldb/db.h>
#include <leveldb/env.h>

#include <atomic>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <string>
#include <thread>

#include <pthread.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <time.h>

#ifdef WITH_COZ
#include <coz.h>
#define PROGRESS COZ_PROGRESS_NAMED("operations")
#else
#define PROGRESS
#endif

namespace {

constexpr uint64_t WRITES = 20000, BATCH = 20;  // per second; at a time (those of 1 ms)
constexpr size_t KEY = 16, VALUE = 100;

[[noreturn]] void fail(const std::string &what) {
  fprintf(stderr, "leveldb_load: %s\n", what.c_str());
  exit(1);
}

void check(const leveldb::Status &status) {
  if (!status.ok())
    fail(status.ToString());
}

uint64_t clock_of(clockid_t which) {
  timespec t;
  if (clock_gettime(which, &t) != 0)
    fail("a clock can't be read");
  return uint64_t(t.tv_sec) * 1000000000u + uint64_t(t.tv_nsec);
}

uint64_t switches() {
  rusage used;
  getrusage(RUSAGE_THREAD, &used);
  return uint64_t(used.ru_nvcsw) + uint64_t(used.ru_nivcsw);
}

class Random {
public:
  explicit Random(uint64_t seed) : state(seed * 0x9e3779b97f4a7c15u + 1) {}
  uint64_t below(uint64_t limit) {
    state ^= state << 13;
    state ^= state >> 7;
    state ^= state << 17;
    return (state >> 16) % limit;
  }

private:
  uint64_t state;
};

// Key in decimal digits, and value: the same digits, then noise, which hardly compresses.
class Pair {
public:
  explicit Pair(uint64_t seed) {
    Random random(seed);
    for (char &byte : noise)
      byte = char(random.below(256));
  }
  void set(uint64_t number) {
    size_t place = number % (sizeof noise - VALUE);
    for (size_t i = KEY; i-- > 0; number /= 10)
      digits[i] = char('0' + number % 10);
    memcpy(bytes, digits, KEY);
    memcpy(bytes + KEY, noise + place, VALUE - KEY);
  }
  leveldb::Slice key() const { return {digits, KEY}; }
  leveldb::Slice value() const { return {bytes, VALUE}; }

private:
  char digits[KEY], bytes[VALUE], noise[1 << 16];
};

// CPU clock of LevelDB's own thread. A task that the constructor schedules there gets its id.
struct Compaction {
  std::atomic<bool> known{false};
  clockid_t clock;

  Compaction() {
    leveldb::Env::Default()->Schedule(
        [](void *argument) {
          auto *self = static_cast<Compaction *>(argument);
          prctl(PR_SET_NAME, "compaction");
          if (pthread_getcpuclockid(pthread_self(), &self->clock) != 0)
            fail("a thread has no clock");
          self->known.store(true);
        },
        this);
    while (!known.load())
      leveldb::Env::Default()->SleepForMicroseconds(100);
  }
  uint64_t nanoseconds() const { return clock_of(clock); }
};

void read_one(leveldb::DB &db, Pair &pair, uint64_t number, std::string &into) {
  pair.set(number);
  leveldb::Status status = db.Get(leveldb::ReadOptions(), pair.key(), &into);
  if (status.IsNotFound())
    return;
  check(status);
  if (into != pair.value())
    fail("a wrong value was read");
}

void write_one(leveldb::DB &db, Pair &pair, uint64_t number) {
  pair.set(number);
  check(db.Put(leveldb::WriteOptions(), pair.key(), pair.value()));
}

// Second thread, which puts WRITES pairs per second.
struct Writer {
  std::atomic<bool> done{false};
  uint64_t writes = 0, nanoseconds = 0;

  void run(leveldb::DB &db, uint64_t keys, uint64_t seed) {
    prctl(PR_SET_NAME, "writer");
    Random random(seed);
    auto pair = std::make_unique<Pair>(1);
    uint64_t began = clock_of(CLOCK_MONOTONIC);
    while (!done.load(std::memory_order_relaxed)) {
      for (uint64_t i = 0; i < BATCH; i++)
        write_one(db, *pair, random.below(keys));
      writes += BATCH;
      uint64_t due = began + writes * 1000000000u / WRITES;
      timespec until = {time_t(due / 1000000000u), long(due % 1000000000u)};
      clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &until, nullptr);
    }
    nanoseconds = clock_of(CLOCK_THREAD_CPUTIME_ID);
  }
};

} // namespace

int main(int count, char **arguments) {
  if (count != 6)
    fail("FOLDER fill|read|mixed KEYS SECONDS SEED");
  std::string mode = arguments[2];
  bool fill = mode == "fill", mixed = mode == "mixed";
  uint64_t keys = strtoull(arguments[3], nullptr, 10), seed = strtoull(arguments[5], nullptr, 10);
  double seconds = strtod(arguments[4], nullptr);
  if ((!fill && !mixed && mode != "read") || keys == 0 || !(seconds > 0 || fill))
    fail("FOLDER fill|read|mixed KEYS SECONDS SEED");
  prctl(PR_SET_NAME, fill ? "writer" : "reader");

  leveldb::Options options;
  options.create_if_missing = options.error_if_exists = fill;
  leveldb::DB *opened;
  check(leveldb::DB::Open(options, arguments[1], &opened));
  std::unique_ptr<leveldb::DB> db(opened);
  Compaction compaction;
  Random random(seed);
  auto pair = std::make_unique<Pair>(1);
  std::string into;

  puts("ready");
  fflush(stdout);
  getchar();
  Writer writer;
  std::thread beside;
  if (mixed)
    beside = std::thread([&] { writer.run(*db, keys, seed + 1); });
  uint64_t compacting = compaction.nanoseconds(), switched = switches();
  uint64_t began = clock_of(CLOCK_MONOTONIC), cpu = clock_of(CLOCK_THREAD_CPUTIME_ID);
  uint64_t operations = 0;
  if (fill) {
    for (; operations < keys; operations++) {
      write_one(*db, *pair, random.below(keys));
      PROGRESS;
    }
  } else {
    // One clock read per 64 operations: a read costs more than some of the operations.
    for (uint64_t limit = began + uint64_t(seconds * 1e9); operations % 64 != 0 || clock_of(CLOCK_MONOTONIC) < limit; operations++) {
      read_one(*db, *pair, random.below(keys), into);
      PROGRESS;
    }
  }
  cpu = clock_of(CLOCK_THREAD_CPUTIME_ID) - cpu;
  double took = double(clock_of(CLOCK_MONOTONIC) - began) / 1e9;
  switched = switches() - switched;
  compacting = compaction.nanoseconds() - compacting;
  writer.done.store(true);
  if (beside.joinable())
    beside.join();
  printf("%llu %.6f %llu %llu %llu %llu %llu\n", (unsigned long long)operations, took, (unsigned long long)cpu, (unsigned long long)switched,
         (unsigned long long)compacting, (unsigned long long)writer.writes, (unsigned long long)writer.nanoseconds);
  fflush(stdout);
  return 0;
}
