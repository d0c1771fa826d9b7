/*
 * Histories of one of DAGOR's clients, with the decisions of the authors' code: `dg_client.c`.
 *
 *   H threshold             a new client with this threshold
 *   R threshold             a response that carries the server's threshold
 *   S priority accepted     a request: 1 if the client takes it
 */
#include "runtime.h"

#include "dg_client.c"
#include "util.c"

static int thread_spawn(thread_fn_t body, void *arg) { (void)body, (void)arg; return 0; }

int main(int count, char **values)
{
	uint64_t histories = read_arguments(count, values);
	char payload[8] = { 0 };
	struct netaddr server = { .ip = 0, .port = SRPC_PORT };
	struct crpc_session *opened;

	if (cdg_open(server, &opened, 1))
		return 1;
	struct cdg_session *session = (struct cdg_session *)opened;
	while (histories--) {
		session->local_prio = random_below(DG_MAX_PRIO);
		printf("H %d\n", session->local_prio);
		int events = 5 + random_below(30);
		while (events--) {
			if (random_below(4)) {
				int priority = random_below(DG_MAX_PRIO);
				uint64_t before = session->req_dropped_;
				cdg_send_one(opened, payload, sizeof(payload), priority);
				printf("S %d %d\n", priority, session->req_dropped_ == before);
				session->head = session->tail = 0;
			} else {
				struct sdg_hdr header = { .magic = DG_RESP_MAGIC, .op = DG_OP_CALL, .prio = 1 + random_below(DG_MAX_PRIO - 1) };
				receive(&header, sizeof(header));
				RUN(cdg_recv_one(opened, payload, sizeof(payload), NULL));
				printf("R %d\n", header.prio);
			}
		}
	}
	return 0;
}
