/*
 * Histories of Breakwater's server, with the decisions of the authors' code: `bw_server.c`. After
 * an event the threads that it woke run, in the order of their waking.
 *
 *   P target_us aqm_us alpha beta rtt_us   parameters, once
 *   H cores sessions                       a new server whose sessions have no credit
 *   T delay_us pool s:window ...           a control period: the pool, and the woken sessions
 *   C s demand delay_us -                  a request that was admitted
 *   C s demand delay_us window             a request that was dropped, and the window in its answer
 *   R s window                             a response, and the window in it
 *   D s demand window                      a message that tells demand, and the window after it
 */
#include "runtime.h"

#include "bw_server.c"
#include "util.c"

#define SESSIONS_MAX 12
static struct sbw_session *sessions[SESSIONS_MAX];
static thread_t threads[SESSIONS_MAX];
static int opened;
static int pending[SESSIONS_MAX][SBW_MAX_WINDOW], pending_count[SESSIONS_MAX];

static int thread_spawn(thread_fn_t body, void *arg)
{
	if (body == srpc_sender)
		sessions[opened] = arg;
	return 0;
}

static void run_sender(int index)
{
	running = &threads[index];
	RUN(srpc_sender(sessions[index]));
}

static void run_ready(void)
{
	for (int i = 0; i < ready_count; i++)
		run_sender((thread_t *)ready[i] - threads);
	ready_count = 0;
}

static void message(int index, int op, uint64_t demand)
{
	struct cbw_hdr header = { .magic = BW_REQ_MAGIC, .op = op, .demand = demand };
	char bytes[sizeof(header) + 1] = { 0 };
	header.len = op == BW_OP_CALL;
	memcpy(bytes, &header, sizeof(header));
	receive(bytes, sizeof(header) + header.len);
	RUN(srpc_recv_one(sessions[index]));
}

static void call(int index)
{
	struct sbw_session *s = sessions[index];
	uint64_t demand = random_below(2) ? 0 : random_below(6);
	unsigned long before = s->avail_slots[0];
	message(index, BW_OP_CALL, demand);
	int slot = __builtin_ffsl(before & ~s->avail_slots[0]) - 1;
	printf("C %d %lu %lu ", index, demand, queue_us);
	if (s->slots[slot]->drop) {
		run_ready();
		printf("%d\n", s->win);
	} else {
		pending[index][pending_count[index]++] = slot;
		puts("-");
	}
}

static void respond(int index)
{
	struct sbw_session *s = sessions[index];
	int slot = pending[index][0];
	memmove(pending[index], pending[index] + 1, sizeof(int) * --pending_count[index]);
	srpc_worker(s->slots[slot]);
	run_ready();
	printf("R %d %d\n", index, s->win);
}

static void tell_demand(int index)
{
	struct sbw_session *s = sessions[index];
	uint64_t demand = s->demand ? 0 : 1 + random_below(5);
	message(index, BW_OP_WINUPDATE, demand);
	run_ready();
	printf("D %d %lu %d\n", index, demand, s->win);
}

static void tick(void)
{
	sleeps = 0;
	RUN(srpc_cc_worker(NULL));
	int woken[READY_MAX], count = ready_count;
	for (int i = 0; i < count; i++)
		woken[i] = ready[i] - threads;
	run_ready();
	printf("T %lu %d", queue_us, atomic_read(&srpc_win_avail));
	for (int i = 0; i < count; i++)
		printf(" %d:%d", woken[i], sessions[woken[i]]->win);
	puts("");
}

static void nothing(struct srpc_ctx *context) { (void)context; }

int main(int count, char **values)
{
	uint64_t histories = read_arguments(count, values);

	srpc_handler = nothing;
	printf("P %d %d %.17g %.17g %d\n", SBW_MIN_DELAY_US, SBW_DROP_THRESH, SBW_AI, SBW_MD, SBW_RTT_US);
	while (histories--) {
		int wanted = 1 + random_below(SESSIONS_MAX);
		now_us = 1;
		cores = 1 + random_below(4);
		win_carry = 0.0;
		RUN(srpc_listener(NULL));
		memset(pending_count, 0, sizeof(pending_count));
		for (opened = 0; opened < wanted; opened++) {
			incoming_length = incoming_read = 0;
			RUN(srpc_server(&connection));
			run_sender(opened);
		}
		printf("H %u %d\n", cores, wanted);
		int events = 10 + random_below(300);
		queue_us = 0;
		while (events--) {
			int index = random_below(wanted);
			uint64_t kind = random_below(20);
			now_us += random_below(20);
			if (!random_below(8))
				queue_us = random_below(3) ? random_below(100) : random_below(1000);
			if (kind < 5)
				tick();
			else if (kind < 12 && pending_count[index] < SBW_MAX_WINDOW - 2)
				call(index);
			else if (kind < 18 && pending_count[index])
				respond(index);
			else if (kind >= 18)
				tell_demand(index);
		}
		for (int i = 0; i < wanted; i++) {
			for (int slot = 0; slot < SBW_MAX_WINDOW; slot++)
				sfree(sessions[i]->slots[slot]);
			sfree(sessions[i]);
		}
	}
	return 0;
}
