/*
 * Histories of one of SEDA's clients, with the decisions of the authors' code: `sd_client.c`.
 *
 *   P target adj_i adj_d min_rate burst   parameters, once
 *   H rate                                a new client with this rate
 *   R now rtt rate                        a response, and the rate after it
 *   S now sent                            a wish to send: 1 if a token was there
 */
#include "runtime.h"

#include "sd_client.c"
#include "util.c"

static int thread_spawn(thread_fn_t body, void *arg) { (void)body, (void)arg; return 0; }

int main(int count, char **values)
{
	uint64_t histories = read_arguments(count, values);
	char payload[8] = { 0 };

	printf("P %d %.17g %.17g %d %d\n", SEDA_TARGET, (double)SEDA_ADJ_I, SEDA_ADJ_D, CSD_TB_MIN_RATE, CSD_TB_MAX_TOKEN);
	while (histories--) {
		struct netaddr server = { .ip = 0, .port = SRPC_PORT };
		struct crpc_session *opened;
		srand(random_below(1u << 31));
		if (csd_open(server, &opened, 1))
			return 1;
		struct csd_session *session = (struct csd_session *)opened;
		printf("H %.17g\n", session->tb_refresh_rate);
		now_us = 1 + random_below(100000);
		/* Short gaps fill the interval by responses, long ones by time. */
		uint64_t longest = random_below(2) ? 30 : 3000, slowest = random_below(2) ? 60 : 200;
		int events = 10 + random_below(300);
		while (events--) {
			now_us += random_below(random_below(20) ? longest : 200000);
			if (random_below(4)) {
				uint64_t rtt = 1 + random_below(slowest);
				struct ssd_hdr header = { .magic = SD_RESP_MAGIC, .op = SD_OP_CALL, .ts = now_us - rtt };
				receive(&header, sizeof(header));
				RUN(csd_recv_one(opened, payload, sizeof(payload), NULL));
				printf("R %lu %lu %.17g\n", now_us, rtt, session->tb_refresh_rate);
			} else {
				uint64_t before = session->req_tx_;
				csd_send_one(opened, payload, sizeof(payload), 0);
				printf("S %lu %d\n", now_us, session->req_tx_ > before);
				session->head = session->tail = 0;
			}
		}
		for (int i = 0; i < CRPC_QLEN; i++)
			sfree(session->qreq[i]);
		sfree(session);
	}
	return 0;
}
