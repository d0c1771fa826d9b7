/* libleeward: keeps servers inside their latency objective. Guide: docs/c.md, libleeward(3) */

#ifndef LEEWARD_H
#define LEEWARD_H

/* Written by cbindgen from guard/capi/src: change it there, then `make capi-header`. */

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/socket.h>
#include <sys/types.h>

/* Initializers for locks; the name is a literal. */
#define LW_MUTEX_INIT(name) {0, (name)}
#define LW_RWLOCK_INIT(name) {0, (name)}
#define LW_SEM_INIT(name, permits) {0, (name), (permits)}

/* The function did what was asked. */
#define LW_OK 0

/* `lw_arrive`: the request is admitted. */
#define LW_ADMIT 0

/* `lw_arrive`: the request is rejected; answer it at once. */
#define LW_REJECT 1

/* A pointer is NULL, a value is out of range, or a text is not UTF-8. */
#define LW_E_ARGUMENT -1

/* A structure's `size` is not one that this library knows. */
#define LW_E_SIZE -2

/*
 The permit has ended, the lock is not held, another thread runs the request, or this thread runs
 one of another gate.
 */
#define LW_E_STATE -3

/* The gate was freed. */
#define LW_E_CLOSED -4

/* The lock is held, or the gate has open permits, or an admin port already. */
#define LW_E_BUSY -5

/* A table of fixed size is full. */
#define LW_E_LIMIT -6

/* The gate belongs to the parent process. */
#define LW_E_FORKED -7

/* The lock would take longer than the request's budget. */
#define LW_E_CONGESTED -8

/* The thread already holds the lock. */
#define LW_E_DEADLOCK -9

/* The operating system refused; `errno` or the log has the reason. */
#define LW_E_SYSTEM -10

/* A defect of the library. The log has the message. */
#define LW_E_INTERNAL -11

/* Rejections are enforced. */
#define LW_MODE_ENFORCE 0

/*
 Every request is admitted; the counters show what would be rejected. Not for `none`, `seda` and
 `window`, which decide at clients.
 */
#define LW_MODE_SHADOW 1

/* Rejections are enforced for `share_percent` of the tenants. */
#define LW_MODE_SHARE 2

/* Rejected last. */
#define LW_CLASS_CRITICAL 1

/* The class of a request that names none. */
#define LW_CLASS_NORMAL 4

/* Work that can be done later. */
#define LW_CLASS_BATCH 6

/* Rejected first. */
#define LW_CLASS_SHEDDABLE 8

/* Flag of `lw_arrival`: this thread runs the request from now on, as after `lw_enter`. */
#define LW_ARRIVE_ENTER 1

/* `unparsed` is given. */
#define LW_ARRIVE_UNPARSED 2

/* The request was answered with a result. */
#define LW_DONE 0

/* The request was answered with a failure of the service. */
#define LW_FAILED 1

/* The request was rejected inside the service, by a lock for instance. */
#define LW_REJECTED 2

/* The request ended without an answer. */
#define LW_ABANDONED 3

/* The request had waited so long that it could not meet the objective. */
#define LW_R_LATE 1

/* The request's deadline would have passed before it ended. */
#define LW_R_DEADLINE 2

/* The request was less important than the admission level. */
#define LW_R_LEVEL 3

/* The request's tenant had used up its share. */
#define LW_R_SHARE 4

/* Too many requests were in progress. */
#define LW_R_CONCURRENCY 5

/* A lock would have taken longer than the request's budget. */
#define LW_R_LOCK 6

/* The queueing delay was above the controller's limit. */
#define LW_R_DELAY 7

/* A reason without a number of its own. */
#define LW_R_OTHER 12

/* Level of a log message: a call failed, or a defect of the library. */
#define LW_LOG_ERROR 1

/* Level of a log message: a wrong use by the program, logged once a minute at most. */
#define LW_LOG_WARNING 2

/* Level of a log message: a change of state, such as a new gate. */
#define LW_LOG_INFO 3

/* No limit, as a budget. */
#define LW_UNLIMITED UINT64_MAX

/*
 Admission to the threads behind a queue in order of arrival, such as a pool. A program has one
 for each queue: what overloads one would reject the requests of another.
 */
typedef struct lw_gate lw_gate;

/* Settings of a gate. Members that are 0 or NULL have their default. */
typedef struct lw_options {
    /* `sizeof(lw_options)`. */
    uint32_t size;
    /* Threads that execute requests, at most 128. Default: the CPUs of this process. */
    uint32_t threads;
    /* Objective: nanoseconds from a request's arrival at this machine to its answer: 1us to 1h */
    uint64_t slo_ns;
    /*
     Limit of admitted requests in progress. Default: 65,536 for each of `threads`
     shares; a thread that calls `lw_arrive` has one of them.
     */
    uint32_t max_in_flight;
    /* `LW_MODE_…`. */
    uint32_t mode;
    /* Percentage of tenants in `LW_MODE_SHARE`. */
    uint32_t share_percent;
    /* 0. */
    uint32_t reserved;
    /* Name of the controller. Default: `edge`. */
    const char *controller;
    /* Parameters of the controller: `name=value`, separated by spaces. */
    const char *params;
} lw_options;

/* A mutex. `LW_MUTEX_INIT("name")` initializes it. Mutexes of one name share their statistics. */
typedef struct lw_mutex {
    /* The library's. */
    void *lock;
    /* Name in metrics and rejections, which is read at the first use. */
    const char *name;
} lw_mutex;

/*
 When the kernel received a connection's bytes. One for each connection, zero at its beginning;
 the members are the library's.
 */
typedef struct lw_stamp {
    /* Receipt of the last byte that was read, in nanoseconds since 1970; 0: unknown. */
    uint64_t received_ns;
    /* Time of the last read. */
    uint64_t read_ns;
    /* Time at which the socket was empty, or its reader had nothing to do: no byte is older. */
    uint64_t since_ns;
    /* Requests that arrived since the last read. */
    uint32_t requests;
    /* Bytes that were read for them; 0: unknown. */
    uint32_t bytes;
    /* Bytes of a request, as learnt; 0: unknown. */
    uint32_t size;
    /*
     Not 0 if the last read filled its buffer; 2 if `received_ns` is then estimated by what it
     left in the socket.
     */
    uint16_t filled;
    /* Not 0 if a read has brought several requests lately. */
    uint16_t pipelines;
} lw_stamp;

/* A request that arrives. Members that are 0 are unknown. */
typedef struct lw_arrival {
    /* `sizeof(lw_arrival)`. */
    uint32_t size;
    /* `LW_ARRIVE_…`, joined by `|`, or 0. */
    uint32_t flags;
    /* Stamp of the request's connection, or NULL. */
    struct lw_stamp *stamp;
    /* Wait in a queue of the program's own, in nanoseconds, if there is no stamp. */
    uint64_t waited_ns;
    /* Time that the client still allows, in nanoseconds from the kernel's receipt. */
    uint64_t left_ns;
    /* Number of the user. Among users of a class, the order of rejection changes every hour. */
    uint64_t user;
    /* Tenant that is charged for the request. */
    uint32_t tenant;
    /* `LW_CLASS_…`, 1 to 8: the smaller, the more important. Metrics count from 0. */
    uint8_t klass;
    /* Kind of request; the gate learns the cost of each. */
    uint8_t route;
    /* Number of earlier attempts of this request. */
    uint8_t attempt;
    /* 0. */
    uint8_t reserved;
    /*
     Bytes that the program has read from the connection and that follow the request, with
     `LW_ARRIVE_UNPARSED`.
     */
    uint32_t unparsed;
    /* 0. */
    uint32_t reserved2;
} lw_arrival;

/* A decision about a request; the name of an admitted one until it ends. Copies name the same. */
typedef struct lw_permit {
    /* Number of the permit; 0 after a rejection. */
    uint64_t id;
    /* Number of a rejection, for `lw_explain`. */
    uint64_t decision;
    /* After a rejection: delay before the client should try again, in nanoseconds. */
    uint64_t retry_after_ns;
    /* The gate. */
    uint32_t gate;
    /* `LW_R_…` after a rejection, else 0. */
    uint32_t reason;
} lw_permit;

/*
 A read-write lock. `LW_RWLOCK_INIT("name")` initializes it. Waiters are served in order of
 arrival, so a thread that reads must not read again before it unlocks.
 */
typedef struct lw_rwlock {
    /* The library's. */
    void *lock;
    /* Name in metrics and rejections, which is read at the first use. */
    const char *name;
} lw_rwlock;

/* A semaphore. `LW_SEM_INIT("name", permits)` initializes it. */
typedef struct lw_sem {
    /* The library's. */
    void *lock;
    /* Name in metrics and rejections, which is read at the first use. */
    const char *name;
    /* Number of permits, at least 1, which is read at the first use. */
    uint32_t permits;
} lw_sem;

#ifdef __cplusplus
extern "C" {
#endif // __cplusplus

/*
 Makes a gate with `options` and stores it in `*gate`. On an error, `*gate` is NULL. A gate takes
 about 5 MB, most of it for decisions that `lw_explain` tells of.

 `LW_E_ARGUMENT`: a setting is wrong; the log says which. `LW_E_LIMIT`: there are 64 gates.
 */
int lw_gate_new(struct lw_gate **gate,
                const struct lw_options *options);

/*
 Frees a gate and ends its admin port. `LW_E_BUSY`: permits of it have not ended.

 Calls with a freed gate return `LW_E_CLOSED`, until a new gate takes its place.
 */
int lw_gate_free(struct lw_gate *gate);

/* Queueing delay of requests in front of the service, in nanoseconds; 0 for no gate. */
uint64_t lw_gate_delay_ns(const struct lw_gate *gate);

/*
 Names a route for metrics: its operation, never a text that a client may vary. The first name
 stays; of a long one, 128 characters are kept.

 `LW_E_ARGUMENT`: the name is empty, or not UTF-8; the log says so.
 */
int lw_route_name(struct lw_gate *gate,
                  uint8_t route,
                  const char *name);

/*
 Writes the gate's state as JSON. Returns the bytes of the whole text, which is cut if `length`
 is less than that and one.
 */
int lw_stats_json(const struct lw_gate *gate,
                  char *buffer,
                  size_t length);

/*
 Explains a rejection in sentences, as `lw_stats_json` writes. `LW_E_ARGUMENT`: the gate does not
 keep it any more.
 */
int lw_explain(const struct lw_gate *gate,
               uint64_t decision,
               char *buffer,
               size_t length);

/*
 Serves metrics, a dashboard and explanations by HTTP at `address`, such as `127.0.0.1:9464`,
 from a thread of its own. Stores the port, if `port` is not NULL.

 `LW_E_ARGUMENT`: that is no address; the log says why. `LW_E_BUSY`: the gate has an admin port.
 `LW_E_SYSTEM`: the log says why, and `errno`; 0: the name was not resolved. A program that
 closes descriptors it did not open must do so before.
 */
int lw_admin_listen(struct lw_gate *gate,
                    const char *address,
                    uint16_t *port);

/* Gives messages of the library to `function`, with `user`. NULL: no messages, as at the start. */
int lw_log_set(void (*function)(void *user,
                                int level,
                                const char *message),
               void *user);

/* Version of the library: major × 65536 + minor × 256 + patch. */
uint32_t lw_version(void);

/* Text of a result code. Never NULL. */
const char *lw_strerror(int code);

/* Initializes a mutex, as `LW_MUTEX_INIT` does. */
int lw_mutex_init(struct lw_mutex *of,
                  const char *name);

/* Locks, however long it takes. `LW_E_DEADLOCK`: this thread holds it. */
int lw_mutex_lock(struct lw_mutex *of);

/*
 Locks, unless the lock's oldest waiter has waited for longer than the request that this thread
 runs may still wait, or the request has, once it is its turn (it does not stop waiting before).
 A thread that runs none waits as `lw_mutex_lock` does. `LW_E_CONGESTED`: nothing is locked.
 */
int lw_mutex_lock_within(struct lw_mutex *of);

/* Locks, if the mutex is free. `LW_E_BUSY`: it is not. */
int lw_mutex_trylock(struct lw_mutex *of);

/* Unlocks. `LW_E_STATE`: this thread does not hold it. */
int lw_mutex_unlock(struct lw_mutex *of);

/* Wait of the oldest waiter for the mutex, in nanoseconds; 0 without one. */
uint64_t lw_mutex_delay_ns(struct lw_mutex *of);

/* Ends the mutex, which no thread uses any more. `LW_E_BUSY`: it is held. */
int lw_mutex_destroy(struct lw_mutex *of);

/*
 Asks the kernel to stamp the bytes of a socket. Connections inherit it from their listening
 socket: call it before `listen`.

 `LW_E_SYSTEM`: see `errno`; `EOPNOTSUPP`: not a socket of TCP or UDP. Requests without stamps
 are admitted by `waited_ns` alone.
 */
int lw_stamp_enable(int fd);

/*
 Reads as `recv(2)` does, with its results and `errno`, and updates the connection's stamp.
 Descriptors that a peer passes over a Unix socket are closed, as by `recv(2)`.
 */
ssize_t lw_recv(int fd,
                void *buffer,
                size_t length,
                int flags,
                struct lw_stamp *stamp);

/*
 Updates a connection's stamp after the program's own `recvmsg` with room for control messages.
 `filled`: the read filled its buffers.

 How many bytes came is unknown, unlike for `lw_recv`: each request of a client that does not
 wait for answers then counts as received when the socket was last empty.
 */
int lw_stamp_note(struct lw_stamp *stamp,
                  const struct msghdr *message,
                  bool filled);

/*
 Decides about a request that has arrived: `LW_ADMIT`, `LW_REJECT`, or an error, after which the
 program should serve the request as if there were no gate.

 After `LW_ADMIT`, `lw_finish` must follow. Any thread may call it, once none runs the request.

 A thread runs one request. If it still runs one of this gate, `LW_ARRIVE_ENTER` ends that as
 abandoned; so does the thread's end. The log says so. `LW_E_STATE`: it runs one of another gate.
 `LW_E_LIMIT`: the gate has no place for more permits. `LW_E_CLOSED`, `LW_E_FORKED`: the gate is
 none of this process any more. `LW_E_ARGUMENT`, `LW_E_SIZE`: `arrival` is wrong.
 */
int lw_arrive(struct lw_gate *gate,
              const struct lw_arrival *arrival,
              struct lw_permit *permit);

/*
 This thread runs the request from now on: locks charge its budget, and its time counts as the
 request's cost. The time since `lw_arrive` counts as a queue, the first time. Another request
 that the thread runs ends as for `lw_arrive`.
 `LW_E_STATE`: that is of another gate, or a thread runs this one.
 */
int lw_enter(const struct lw_permit *permit);

/*
 This thread stops running the request, which has not ended; another thread may run or end it.
 `LW_E_STATE`: it did not run it.
 */
int lw_leave(const struct lw_permit *permit);

/*
 Ends an admitted request with `LW_DONE`, `LW_FAILED`, `LW_REJECTED` or `LW_ABANDONED`; leaves it
 if this thread runs it. `LW_E_STATE`: it has ended, or another thread runs it.

 Metrics count `LW_REJECTED` as a rejection by a lock, whatever rejected it.
 */
int lw_finish(const struct lw_permit *permit,
              int outcome);

/*
 Time that the request which this thread runs may still spend in queues, in nanoseconds.
 `LW_UNLIMITED`: it runs none.
 */
uint64_t lw_budget_left_ns(void);

/* Charges the request which this thread runs for a wait in a queue of the program's own. */
void lw_note_wait(uint64_t waited_ns);

/* Name of a reason (`LW_R_…`), as in metrics. Never NULL. */
const char *lw_reason_name(uint32_t reason);

/* Initializes a lock, as `LW_RWLOCK_INIT` does. */
int lw_rwlock_init(struct lw_rwlock *of,
                   const char *name);

/* Locks for reading, however long it takes. */
int lw_rwlock_read(struct lw_rwlock *of);

/* Locks for writing, however long it takes. */
int lw_rwlock_write(struct lw_rwlock *of);

/* Locks for reading, as long as the request's budget lasts (`lw_mutex_lock_within`). */
int lw_rwlock_read_within(struct lw_rwlock *of);

/* Locks for writing, as long as the request's budget lasts (`lw_mutex_lock_within`). */
int lw_rwlock_write_within(struct lw_rwlock *of);

/* Locks for reading, if no writer holds the lock or waits. `LW_E_BUSY`: one does. */
int lw_rwlock_tryread(struct lw_rwlock *of);

/* Locks for writing, if the lock is free. `LW_E_BUSY`: it is not. */
int lw_rwlock_trywrite(struct lw_rwlock *of);

/* Unlocks a reader or the writer. `LW_E_STATE`: no reader holds it, nor this thread as a writer. */
int lw_rwlock_unlock(struct lw_rwlock *of);

/* Wait of the oldest waiter for the lock, in nanoseconds; 0 without one. */
uint64_t lw_rwlock_delay_ns(struct lw_rwlock *of);

/* Ends the lock, which no thread uses any more. `LW_E_BUSY`: it is held. */
int lw_rwlock_destroy(struct lw_rwlock *of);

/* Initializes a semaphore, as `LW_SEM_INIT` does. */
int lw_sem_init(struct lw_sem *of,
                const char *name,
                uint32_t permits);

/* Takes a permit, however long it takes. */
int lw_sem_wait(struct lw_sem *of);

/* Takes a permit, as long as the request's budget lasts (`lw_mutex_lock_within`). */
int lw_sem_wait_within(struct lw_sem *of);

/* Takes a permit, if one is free. `LW_E_BUSY`: none is. */
int lw_sem_trywait(struct lw_sem *of);

/* Returns a permit; any thread may. `LW_E_STATE`: none is out. */
int lw_sem_post(struct lw_sem *of);

/* Wait of the oldest waiter for the semaphore, in nanoseconds; 0 without one. */
uint64_t lw_sem_delay_ns(struct lw_sem *of);

/* Ends the semaphore, which no thread uses any more. `LW_E_BUSY`: it is held. */
int lw_sem_destroy(struct lw_sem *of);

#ifdef __cplusplus
}  // extern "C"
#endif  // __cplusplus

#endif  /* LEEWARD_H */
