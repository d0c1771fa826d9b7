#define _GNU_SOURCE
#include "handlers.h"
#include "http.h"
#include <arpa/inet.h>
#include <fcntl.h>
#include <netdb.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

static const char *mode;
static double cost_ms;
static pthread_mutex_t stock = PTHREAD_MUTEX_INITIALIZER;
static pthread_rwlock_t world;
static int files[64];
static volatile unsigned long sink;

double setting(const char *name, double otherwise)
{
	const char *text = getenv(name);
	return text ? atof(text) : otherwise;
}

static double thread_cpu_ms(void)
{
	struct timespec t;
	clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
	return t.tv_sec * 1e3 + t.tv_nsec / 1e6;
}

static void hash_a_little(void)
{
	unsigned long h = sink;
	for (int i = 0; i < 30000; i++)
		h = (h ^ i) * 1099511628211ul;
	sink = h;
}

/* By the thread's own CPU clock: the cost is the same on a busy machine. */
void burn(double ms)
{
	double end = thread_cpu_ms() + ms;
	while (thread_cpu_ms() < end)
		hash_a_little();
}

static void sleep_ms(double ms)
{
	struct timespec t = {.tv_sec = ms / 1000, .tv_nsec = (long)(ms * 1e6) % 1000000000};
	nanosleep(&t, NULL);
}

/* A write that is only answered when it is on the disk. */
static void append_to_journal(void)
{
	static unsigned next;
	unsigned slot = __sync_fetch_and_add(&next, 1) % 64;
	char page[4096];

	memset(page, 'a' + slot % 26, sizeof(page));
	if (pwrite(files[slot], page, sizeof(page), 0) < 0 || fdatasync(files[slot]) < 0)
		perror("journal");
}

static void ask_backend(void)
{
	char address[64], answer[512];
	snprintf(address, sizeof(address), "%s", getenv("BACKEND"));
	char *port = strchr(address, ':');
	*port++ = 0;
	struct sockaddr_in to = {.sin_family = AF_INET, .sin_port = htons(atoi(port))};
	inet_pton(AF_INET, address, &to.sin_addr);

	const char *question = "GET /price HTTP/1.1\r\nHost: backend\r\nConnection: close\r\n\r\n";
	int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
	if (connect(fd, (struct sockaddr *)&to, sizeof(to)) == 0 &&
	    send(fd, question, strlen(question), MSG_NOSIGNAL) > 0)
		while (recv(fd, answer, sizeof(answer), 0) > 0)
			;
	close(fd);
}

static void resolve(void)
{
	struct addrinfo hints = {.ai_family = AF_INET, .ai_socktype = SOCK_STREAM}, *found = NULL;
	if (getaddrinfo(getenv("NAME"), "80", &hints, &found) == 0)
		freeaddrinfo(found);
}

/* Walks 256 MiB under the world lock, as a hand-written collector would, again and again. */
static void *collect(void *unused)
{
	size_t words = 256ul << 17;
	unsigned long *heap = malloc(words * sizeof(*heap));
	for (size_t i = 0; i < words; i++)
		heap[i] = i * 2654435761ul % words;
	for (;;) {
		pthread_rwlock_wrlock(&world);
		double end = thread_cpu_ms() + setting("PAUSE_MS", 400);
		while (thread_cpu_ms() < end)
			for (size_t i = 0, at = sink % words; i < 20000; i++)
				sink = at = heap[at];
		pthread_rwlock_unlock(&world);
		sleep_ms(setting("BETWEEN_MS", 400));
	}
	return unused;
}

/* Compaction, statistics, re-indexing: work that may take whatever the requests leave. */
static void *background(void *unused)
{
	setpriority(PRIO_PROCESS, syscall(SYS_gettid), 19);
	for (;;)
		hash_a_little();
	return unused;
}

static void *park(void *unused)
{
	static pthread_mutex_t jobs = PTHREAD_MUTEX_INITIALIZER;
	static pthread_cond_t some = PTHREAD_COND_INITIALIZER;
	pthread_mutex_lock(&jobs);
	for (;;)
		pthread_cond_wait(&some, &jobs);
	return unused;
}

/* A long poll as threads do it: wait for news, answer without any after 30 s. */
static void wait_for_news(void)
{
	static pthread_mutex_t news = PTHREAD_MUTEX_INITIALIZER;
	static pthread_cond_t some = PTHREAD_COND_INITIALIZER;
	struct timespec until;
	clock_gettime(CLOCK_REALTIME, &until);
	until.tv_sec += 30;
	pthread_mutex_lock(&news);
	pthread_cond_timedwait(&some, &news, &until);
	pthread_mutex_unlock(&news);
}

static void start(void *(*run)(void *))
{
	pthread_t thread;
	pthread_attr_t attr;
	pthread_attr_init(&attr);
	pthread_attr_setstacksize(&attr, 256 << 10);
	pthread_create(&thread, &attr, run, NULL);
}

void prepare(const char *name)
{
	pthread_rwlockattr_t attr;

	mode = name;
	cost_ms = setting("COST_MS", 1);
	/* Without this the handlers' read locks starve the collector. */
	pthread_rwlockattr_init(&attr);
	pthread_rwlockattr_setkind_np(&attr, PTHREAD_RWLOCK_PREFER_WRITER_NONRECURSIVE_NP);
	pthread_rwlock_init(&world, &attr);
	if (!strcmp(mode, "disk"))
		for (int i = 0; i < 64; i++) {
			char path[512];
			snprintf(path, sizeof(path), "%s/journal-%d", getenv("DATA"), i);
			files[i] = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
		}
	if (!strcmp(mode, "background"))
		start(background);
	if (!strcmp(mode, "idle-threads"))
		for (int i = 0; i < 100; i++)
			start(park);
}

int handle(int fd, const char *path)
{
	static char large[4 << 20];
	static volatile int collecting;
	char body[256];

	if (!strcmp(path, "/large")) {
		memset(large, 'x', sizeof(large));
		return write_answer(fd, large, sizeof(large));
	}
	if (!strcmp(path, "/collect") && !__sync_lock_test_and_set(&collecting, 1))
		start(collect);
	if (!strcmp(path, "/poll"))
		wait_for_news();

	if (!strcmp(mode, "lock") || !strcmp(mode, "lock-busy")) {
		pthread_mutex_lock(&stock);
		if (mode[4])
			burn(cost_ms);
		else
			sleep_ms(cost_ms);
		pthread_mutex_unlock(&stock);
	} else if (!strcmp(mode, "disk")) {
		append_to_journal();
	} else if (!strcmp(mode, "downstream")) {
		ask_backend();
		burn(setting("BURN_MS", 0.1));
	} else if (!strcmp(mode, "dns")) {
		resolve();
	} else if (!strcmp(mode, "pauses")) {
		pthread_rwlock_rdlock(&world);
		burn(cost_ms);
		pthread_rwlock_unlock(&world);
	} else {
		burn(cost_ms);
	}
	int n = snprintf(body, sizeof(body), "{\"path\": \"%.100s\", \"hash\": %lu}\n", path, sink);
	return write_answer(fd, body, n);
}
