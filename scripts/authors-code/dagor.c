/*
 * Histories of DAGOR's server, with the decisions of the authors' code: `dg_server.c`.
 *
 *   P target_us decrease increase period_us requests   parameters, once
 *   H                                                  a new server
 *   T now delay_us threshold                           a sample of the delay, and the threshold
 *   C priority dropped                                 a request
 */
#include "runtime.h"

#include "dg_server.c"
#include "util.c"

static struct sdg_session *opened;
static int thread_spawn(thread_fn_t body, void *arg)
{
	if (body == srpc_sender)
		opened = arg;
	return 0;
}

int main(int count, char **values)
{
	uint64_t histories = read_arguments(count, values);

	printf("P %d %.17g %.17g %d %d\n", DAGOR_OVERLOAD_THRESH, 1.0 - DAGOR_ALPHA, DAGOR_BETA, DAGOR_PRIO_UPDATE_INT,
	       DAGOR_PRIO_UPDATE_REQS);
	RUN(srpc_server(&connection));
	while (histories--) {
		now_us = 0;
		dagor_delay = 0;
		RUN(srpc_listener(NULL));
		puts("H");
		int events = 10 + random_below(100);
		uint64_t delay = random_below(120), calm = random_below(2);
		while (events--) {
			uint64_t kind = random_below(10);
			if (kind < 2)
				delay = random_below(calm ? 90 : 1000);
			if (kind < 7) {
				now_us += random_below(5) ? 10 : random_below(2000);
				queue_us = delay;
				sleeps = 0;
				RUN(dagor_prio_update(NULL));
				printf("T %lu %lu %d\n", now_us, delay, atomic_read(&dagor_prio_thresh));
			}
			int requests = kind == 9 && !random_below(200) ? 2000 : random_below(3);
			while (requests--) {
				struct cdg_hdr header = { .magic = DG_REQ_MAGIC, .op = DG_OP_CALL, .len = 0, .prio = random_below(DG_MAX_PRIO) };
				/* A payload of one byte: an empty one ends the authors' connection. */
				char message[sizeof(header) + 1] = { 0 };
				header.len = 1;
				memcpy(message, &header, sizeof(header));
				receive(message, sizeof(message));
				RUN(srpc_recv_one(opened));
				int slot = __builtin_ffsl(~opened->avail_slots[0]) - 1;
				printf("C %d %d\n", header.prio, opened->slots[slot]->drop);
				opened->completed_slots[0] = 0;
				srpc_put_slot(opened, slot);
			}
		}
	}
	return 0;
}
