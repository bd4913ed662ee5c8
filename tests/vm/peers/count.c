/* Calls between two marks, for the counter. */
#define _GNU_SOURCE
#include "twin.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

/* Long enough for completions to be there before the queue is looked at. */
static void settle(void)
{
	usleep(30000);
}

static void chain(struct ibv_send_wr *wr, struct ibv_sge *sge, unsigned count, unsigned size)
{
	for (unsigned i = 0; i < count; i++) {
		fill(&wr[i], &sge[i], WRITE, size, shared_end(0), shared_end(1));
		wr[i].next = i + 1 < count ? &wr[i + 1] : NULL;
	}
}

/* As the Rust peers have it, one of which sends messages and nothing else. */
static void count_message(unsigned repeats)
{
	struct end *a = shared_end(0), *b = shared_end(1);

	for (unsigned r = 0; r < repeats; r++) {
		struct ibv_send_wr wr, *bad;
		struct ibv_sge sge;
		int failed;

		post_receives(b, 1, 64);
		fill(&wr, &sge, SEND, 64, a, b);
		mark();
		failed = ibv_post_send(a->qp, &wr, &bad);
		mark();
		must(failed, "ibv_post_send");
		drain(a->cq, 1);
		drain(b->cq, 1);
	}
}

static void count_send(unsigned repeats, unsigned batch, unsigned size, unsigned flags)
{
	struct end *a = shared_end(0);

	for (unsigned r = 0; r < repeats; r++) {
		struct ibv_send_wr wr[BATCH], *bad;
		struct ibv_sge sge[BATCH];
		int failed;

		chain(wr, sge, batch, size);
		for (unsigned i = 0; i < batch; i++)
			wr[i].send_flags |= flags;
		mark();
		failed = ibv_post_send(a->qp, wr, &bad);
		mark();
		must(failed, "ibv_post_send");
		drain(a->cq, batch);
	}
}

static void count_recv(unsigned repeats, unsigned batch)
{
	struct end *b = shared_end(1);

	for (unsigned r = 0; r < repeats; r++) {
		struct ibv_recv_wr wr[BATCH], *bad;
		struct ibv_sge sge[BATCH];
		int failed;

		for (unsigned i = 0; i < batch; i++) {
			sge[i] = (struct ibv_sge){ (uintptr_t)b->buffer, 64, b->mr->lkey };
			wr[i] = (struct ibv_recv_wr){ i, i + 1 < batch ? &wr[i + 1] : NULL,
						      &sge[i], 1 };
		}
		mark();
		failed = ibv_post_recv(b->qp, wr, &bad);
		mark();
		must(failed, "ibv_post_recv");
	}
	/* Taken by messages, so that the queue does not fill up. */
	for (unsigned left = repeats * batch; left > 0;) {
		struct end *a = shared_end(0);
		struct ibv_send_wr wr;
		struct ibv_sge sge;

		fill(&wr, &sge, SEND, 64, a, b);
		post(a->qp, &wr);
		drain(a->cq, 1);
		drain(b->cq, 1);
		left--;
	}
}

/* Says of each repetition how many completions the call gave; the controller drops the odd ones. */
static void count_poll(unsigned repeats, unsigned posted, unsigned room)
{
	struct end *a = shared_end(0);

	printf("got");
	for (unsigned r = 0; r < repeats; r++) {
		struct ibv_send_wr wr[BATCH];
		struct ibv_sge sge[BATCH];
		struct ibv_wc wc[BATCH];
		int got;

		if (posted > 0) {
			chain(wr, sge, posted, 64);
			post(a->qp, wr);
			settle();
		}
		mark();
		got = ibv_poll_cq(a->cq, (int)room, wc);
		mark();
		if (got < 0)
			die("ibv_poll_cq");
		drain(a->cq, posted - (unsigned)got);
		printf(" %d", got);
	}
	printf("\n");
}

static void bare_drain(struct bare *q, unsigned count)
{
	struct ibv_wc wc[BATCH];

	for (unsigned got = 0; got < count;) {
		unsigned n = (unsigned)bare_poll(q, BATCH, wc);

		for (unsigned i = 0; i < n; i++)
			if (wc[i].status != IBV_WC_SUCCESS) {
				errno = 0;
				die("a completion of the bare queue");
			}
		got += n;
	}
}

static void bare_send_row(unsigned repeats, unsigned batch, unsigned size, int inline_data)
{
	struct bare *q = bare_ends();

	for (unsigned r = 0; r < repeats; r++) {
		mark();
		bare_write(q, batch, size, inline_data);
		bare_ring(q);
		mark();
		bare_drain(q, batch);
	}
}

static void bare_recv_row(unsigned repeats, unsigned batch)
{
	struct bare *q = bare_ends();

	for (unsigned r = 0; r < repeats; r++) {
		mark();
		bare_recv(q, batch, 64);
		mark();
	}
	for (unsigned left = repeats * batch; left > 0; left--) {
		struct ibv_send_wr wr;
		struct ibv_sge sge;

		fill(&wr, &sge, SEND, 64, &q->b, &q->a);
		post(q->b.qp, &wr);
		drain(q->b.cq, 1);
		bare_drain(q, 1);
	}
}

static void bare_poll_row(unsigned repeats, unsigned posted, unsigned room)
{
	struct bare *q = bare_ends();

	printf("got");
	for (unsigned r = 0; r < repeats; r++) {
		struct ibv_wc wc[BATCH];
		int got;

		if (posted > 0) {
			bare_write(q, posted, 64, 0);
			bare_ring(q);
			settle();
		}
		mark();
		got = bare_poll(q, room, wc);
		mark();
		bare_drain(q, posted - (unsigned)got);
		printf(" %d", got);
	}
	printf("\n");
}

static void count_bare(const char *row, unsigned repeats)
{
	if (!strcmp(row, "post_send_write_64")) {
		bare_send_row(repeats, 1, 64, 0);
	} else if (!strcmp(row, "post_send_inline_32")) {
		bare_send_row(repeats, 1, 32, 1);
	} else if (!strcmp(row, "post_send_batch16")) {
		bare_send_row(repeats, BATCH, 64, 0);
	} else if (!strcmp(row, "post_recv_1")) {
		bare_recv_row(repeats, 1);
	} else if (!strcmp(row, "post_recv_batch16")) {
		bare_recv_row(repeats, BATCH);
	} else if (!strcmp(row, "poll_1")) {
		bare_poll_row(repeats, 1, 1);
	} else if (!strcmp(row, "poll_16")) {
		bare_poll_row(repeats, BATCH, BATCH);
	} else if (!strcmp(row, "poll_empty")) {
		bare_poll_row(repeats, 0, 1);
	} else {
		errno = EINVAL;
		die(row);
	}
}

static void count_doorbell(unsigned repeats, void (*ring)(struct bare *))
{
	struct bare *q = bare_ends();

	for (unsigned r = 0; r < repeats; r++) {
		mark();
		ring(q);
		mark();
	}
}

/* count ROW REPEATS FORM */
void command_count(char **args)
{
	const char *row = args[1] ? args[1] : "";
	unsigned repeats = (unsigned)number(args, 2, 5);

	if (!strcmp(row, "doorbell_write")) {
		count_doorbell(repeats, bare_ring);
	} else if (!strcmp(row, "doorbell_ioctl")) {
		count_doorbell(repeats, bare_ring_ioctl);
	} else if (is(args, 3, "bare")) {
		count_bare(row, repeats);
	} else if (!strcmp(row, "post_send_write_64")) {
		count_send(repeats, 1, 64, 0);
	} else if (!strcmp(row, "post_send_send_64")) {
		count_message(repeats);
	} else if (!strcmp(row, "post_send_inline_32")) {
		count_send(repeats, 1, 32, IBV_SEND_INLINE);
	} else if (!strcmp(row, "post_send_batch16")) {
		count_send(repeats, BATCH, 64, 0);
	} else if (!strcmp(row, "post_recv_1")) {
		count_recv(repeats, 1);
	} else if (!strcmp(row, "post_recv_batch16")) {
		count_recv(repeats, BATCH);
	} else if (!strcmp(row, "poll_1")) {
		count_poll(repeats, 1, 1);
	} else if (!strcmp(row, "poll_16")) {
		count_poll(repeats, BATCH, BATCH);
	} else if (!strcmp(row, "poll_empty")) {
		count_poll(repeats, 0, 1);
	} else {
		errno = EINVAL;
		die(row);
	}
}
