/* Latency and rate of each operation. */
#define _GNU_SOURCE
#include "twin.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

enum { SAMPLES = 4096 };

static void by_event(struct end *e)
{
	struct ibv_cq *cq;
	void *context;

	if (ibv_get_cq_event(e->channel, &cq, &context) != 0)
		die("ibv_get_cq_event");
	ibv_ack_cq_events(cq, 1);
}

static void arm(struct end *e)
{
	must(ibv_req_notify_cq(e->cq, 0), "ibv_req_notify_cq");
}

/* Armed before the request is posted, so that exactly one event comes. */
static uint64_t one_by_event(struct end *a, struct end *b, struct ibv_send_wr *wr, int sends,
			     unsigned size)
{
	struct end *told = sends ? b : a;
	uint64_t start;

	if (sends)
		post_receives(b, 1, size);
	arm(told);
	start = now();
	post(a->qp, wr);
	by_event(told);
	drain(told->cq, 1);
	start = now() - start;
	if (sends)
		drain(a->cq, 1);
	return start;
}

static uint64_t one_by_polling(struct end *a, struct end *b, struct ibv_send_wr *wr, int sends,
			       unsigned size)
{
	uint64_t start;

	if (sends)
		post_receives(b, 1, size);
	start = now();
	post(a->qp, wr);
	drain(sends ? b->cq : a->cq, 1);
	start = now() - start;
	if (sends)
		drain(a->cq, 1);
	return start;
}

static uint64_t one_bare(struct bare *q, unsigned size)
{
	struct ibv_wc wc;
	uint64_t start = now();

	bare_write(q, 1, size, 0);
	bare_ring(q);
	while (bare_poll(q, 1, &wc) == 0)
		;
	start = now() - start;
	if (wc.status != IBV_WC_SUCCESS) {
		errno = 0;
		die("a completion of the bare queue");
	}
	return start;
}

/* latency KIND SIZE COUNT MILLISECONDS poll|event FORM */
void command_latency(char **args)
{
	static struct end channel[2];
	static uint64_t samples[SAMPLES];
	enum kind kind = kind_of(args[1] ? args[1] : "");
	unsigned size = (unsigned)number(args, 2, 64);
	unsigned count = (unsigned)number(args, 3, 100), taken = 0;
	uint64_t limit = number(args, 4, 100) * 1000000, start;
	int events = is(args, 5, "event"), bare = is(args, 6, "bare");
	struct end *a = NULL, *b = NULL;
	struct bare *q = NULL;
	struct ibv_send_wr wr;
	struct ibv_sge sge;

	if (bare) {
		q = bare_ends();
	} else if (events) {
		if (!channel[0].context)
			connect_ends(&channel[0], &channel[1], 1);
		a = &channel[0];
		b = &channel[1];
	} else {
		a = shared_end(0);
		b = shared_end(1);
	}
	if (!bare)
		fill(&wr, &sge, kind, size, a, b);
	start = now();
	while (taken < count && taken < SAMPLES && (taken < 1 || now() - start < limit)) {
		samples[taken++] = bare   ? one_bare(q, size) :
				   events ? one_by_event(a, b, &wr, kind == SEND, size) :
					    one_by_polling(a, b, &wr, kind == SEND, size);
	}
	printf("ns");
	for (unsigned i = 0; i < taken; i++)
		printf(" %lu", (unsigned long)samples[i]);
	printf("\n");
}

/* rate|singly KIND SIZE BATCH MILLISECONDS FORM: nanoseconds a request, of each batch, posted by one call
 * or by one each */
void command_rate(char **args)
{
	static uint64_t samples[SAMPLES];
	enum kind kind = kind_of(args[1] ? args[1] : "");
	unsigned size = (unsigned)number(args, 2, 64), taken = 0;
	unsigned batch = (unsigned)number(args, 3, BATCH);
	uint64_t limit = number(args, 4, 100) * 1000000, start = now();
	struct end *a = shared_end(0), *b = shared_end(1);
	struct ibv_send_wr wr[BATCH];
	struct ibv_recv_wr receives[BATCH], *bad;
	struct ibv_sge sge[BATCH], into[BATCH];
	int singly = is(args, 0, "singly");

	if (batch > BATCH)
		batch = BATCH;
	for (unsigned i = 0; i < batch; i++) {
		fill(&wr[i], &sge[i], kind, size, a, b);
		wr[i].next = !singly && i + 1 < batch ? &wr[i + 1] : NULL;
		into[i] = (struct ibv_sge){ (uintptr_t)b->buffer, size, b->mr->lkey };
		receives[i] = (struct ibv_recv_wr){ i, i + 1 < batch ? &receives[i + 1] : NULL,
						    &into[i], 1 };
	}
	while (taken < SAMPLES && (taken < 1 || now() - start < limit)) {
		uint64_t from = now();

		if (kind == SEND)
			must(ibv_post_recv(b->qp, receives, &bad), "ibv_post_recv");
		for (unsigned i = 0; i < (singly ? batch : 1); i++)
			post(a->qp, &wr[i]);
		if (kind == SEND)
			drain(b->cq, batch);
		drain(a->cq, batch);
		samples[taken++] = (now() - from) / batch;
	}
	printf("ns");
	for (unsigned i = 0; i < taken; i++)
		printf(" %lu", (unsigned long)samples[i]);
	printf("\n");
}
