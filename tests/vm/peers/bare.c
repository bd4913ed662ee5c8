/*
 * rxe's queues with nothing around them: no checks, no locks, no library. It shows what is left of a
 * call when all is taken away that can be, on queues that the kernel really serves.
 *
 * Ground truth: rdma/rdma_user_rxe.h and rdma/ib_user_verbs.h.
 */
#define _GNU_SOURCE
#include "twin.h"

#include <rdma/ib_user_ioctl_cmds.h>
#include <rdma/ib_user_verbs.h>
#include <rdma/rdma_user_ioctl_cmds.h>
#include <rdma/rdma_user_rxe.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>

/* The least that the kernel accepts as the size of a request. */
#define SEND_WR_SIZE 56

struct mapping {
	unsigned long start;
	unsigned long length;
};

/* What is mapped of device nodes, by address. */
static unsigned mappings(struct mapping *out, unsigned room)
{
	char line[512];
	unsigned found = 0;
	FILE *maps = fopen("/proc/self/maps", "r");

	if (!maps)
		die("/proc/self/maps");
	while (fgets(line, sizeof(line), maps)) {
		unsigned long start, end;

		if (!strstr(line, "/dev/infiniband/uverbs"))
			continue;
		if (sscanf(line, "%lx-%lx", &start, &end) == 2 && found < room)
			out[found++] = (struct mapping){ start, end - start };
	}
	fclose(maps);
	return found;
}

/* The queues that are mapped now and were not before. */
static unsigned added(const struct mapping *before, unsigned had, struct rxe_queue_buf **out,
		      unsigned room)
{
	struct mapping after[64];
	unsigned has = mappings(after, 64), found = 0;

	for (unsigned i = 0; i < has; i++) {
		int old = 0;

		for (unsigned j = 0; j < had; j++)
			old |= before[j].start == after[i].start;
		if (!old && found < room)
			out[found++] = (struct rxe_queue_buf *)after[i].start;
	}
	return found;
}

static void frame(unsigned char *out, uint32_t qp)
{
	struct ib_uverbs_cmd_hdr header = { IB_USER_VERBS_CMD_POST_SEND, 8, 1 };
	struct ib_uverbs_post_send request = { .qp_handle = qp, .wqe_size = SEND_WR_SIZE };
	static uint32_t response;

	request.response = (uintptr_t)&response;
	memcpy(out, &header, sizeof(header));
	memcpy(out + sizeof(header), &request, sizeof(request));
}

struct bare *bare_ends(void)
{
	static struct bare q;
	struct mapping before[64];
	struct rxe_queue_buf *found[2];
	struct ibv_qp *own;
	unsigned had;

	if (q.sq)
		return &q;
	connect_ends(&q.a, &q.b, 0);
	/* In place of the queues that have just been made, others whose mappings are known. */
	ibv_destroy_qp(q.a.qp);
	ibv_destroy_cq(q.a.cq);
	had = mappings(before, 64);
	q.a.cq = ibv_create_cq(q.a.context, CQ_DEPTH, NULL, NULL, 0);
	errno = 0;
	if (!q.a.cq || added(before, had, &q.cq, 1) != 1)
		die("the completion queue's mapping");
	had = mappings(before, 64);
	own = create_qp(q.a.pd, q.a.cq, NULL, SEND_DEPTH, RECV_DEPTH, INLINE);
	errno = 0;
	if (added(before, had, found, 2) != 2)
		die("the queue pair's mappings");
	/* The slots of a send queue are the longer ones. */
	if (found[0]->log2_elem_size > found[1]->log2_elem_size) {
		q.sq = found[0];
		q.rq = found[1];
	} else {
		q.sq = found[1];
		q.rq = found[0];
	}
	q.a.qp = own;
	q.send_shift = q.sq->log2_elem_size;
	q.recv_shift = q.rq->log2_elem_size;
	q.cq_shift = q.cq->log2_elem_size;
	ibv_destroy_qp(q.b.qp);
	q.b.qp = create_qp(q.b.pd, q.b.cq, NULL, SEND_DEPTH, RECV_DEPTH, INLINE);
	connect_qp(q.a.qp, q.a.context, q.b.qp, q.b.context);
	connect_qp(q.b.qp, q.b.context, q.a.qp, q.a.context);
	frame(q.doorbell, own->handle);
	return &q;
}

void bare_write(struct bare *q, unsigned count, unsigned size, int inline_data)
{
	uint32_t next = q->send_next, mask = q->sq->index_mask;

	for (unsigned i = 0; i < count; i++) {
		struct rxe_send_wqe *w =
			(struct rxe_send_wqe *)(q->sq->data + ((size_t)next << q->send_shift));

		w->wr.wr_id = 1;
		w->wr.opcode = IB_UVERBS_WR_RDMA_WRITE;
		w->wr.send_flags =
			IBV_SEND_SIGNALED | (inline_data ? IBV_SEND_INLINE : 0);
		w->wr.wr.rdma.remote_addr = (uintptr_t)q->b.buffer;
		w->wr.wr.rdma.rkey = q->b.mr->rkey;
		w->iova = (uintptr_t)q->b.buffer;
		w->status = 0;
		w->state = 0;
		w->mask = 0;
		w->first_psn = 0;
		w->last_psn = 0;
		w->ack_length = 0;
		w->has_rd_atomic = 0;
		w->dma.length = size;
		w->dma.resid = size;
		w->dma.cur_sge = 0;
		w->dma.sge_offset = 0;
		if (inline_data) {
			w->dma.num_sge = 0;
			memcpy(w->dma.inline_data, q->a.buffer, 32);
		} else {
			w->dma.num_sge = 1;
			w->dma.sge[0].addr = (uintptr_t)q->a.buffer;
			w->dma.sge[0].length = size;
			w->dma.sge[0].lkey = q->a.mr->lkey;
		}
		next = (next + 1) & mask;
	}
	q->send_next = next;
	/* The kernel's load of the index is an acquire. */
	__atomic_store_n(&q->sq->producer_index, next, __ATOMIC_RELEASE);
}

void bare_ring(struct bare *q)
{
	if (write(q->a.context->cmd_fd, q->doorbell, sizeof(q->doorbell)) < 0)
		die("the doorbell by write()");
}

void bare_ring_ioctl(struct bare *q)
{
	uint64_t command = IB_USER_VERBS_CMD_POST_SEND;
	uint32_t response = 0;
	struct {
		struct ib_uverbs_ioctl_hdr header;
		struct ib_uverbs_attr attrs[3];
	} c = {
		.header = { .length = sizeof(c),
			    .object_id = UVERBS_OBJECT_DEVICE,
			    .method_id = UVERBS_METHOD_INVOKE_WRITE,
			    .num_attrs = 3,
			    .driver_id = RDMA_DRIVER_RXE },
		.attrs = { { .attr_id = UVERBS_ATTR_CORE_IN,
			     .len = sizeof(struct ib_uverbs_post_send),
			     .flags = UVERBS_ATTR_F_MANDATORY,
			     .data = (uintptr_t)(q->doorbell + sizeof(struct ib_uverbs_cmd_hdr)) },
			   { .attr_id = UVERBS_ATTR_CORE_OUT,
			     .len = sizeof(response),
			     .flags = UVERBS_ATTR_F_MANDATORY,
			     .data = (uintptr_t)&response },
			   { .attr_id = UVERBS_ATTR_WRITE_CMD,
			     .len = sizeof(command),
			     .flags = UVERBS_ATTR_F_MANDATORY,
			     .data = command } },
	};

	if (ioctl(q->a.context->cmd_fd, RDMA_VERBS_IOCTL, &c) != 0)
		die("the doorbell by ioctl");
}

void bare_recv(struct bare *q, unsigned count, unsigned size)
{
	uint32_t next = q->recv_next, mask = q->rq->index_mask;

	for (unsigned i = 0; i < count; i++) {
		struct rxe_recv_wqe *w =
			(struct rxe_recv_wqe *)(q->rq->data + ((size_t)next << q->recv_shift));

		w->wr_id = 1;
		w->dma.length = size;
		w->dma.resid = size;
		w->dma.cur_sge = 0;
		w->dma.num_sge = 1;
		w->dma.sge_offset = 0;
		w->dma.sge[0].addr = (uintptr_t)q->a.buffer;
		w->dma.sge[0].length = size;
		w->dma.sge[0].lkey = q->a.mr->lkey;
		next = (next + 1) & mask;
	}
	q->recv_next = next;
	/* The kernel's load of the index is an acquire. */
	__atomic_store_n(&q->rq->producer_index, next, __ATOMIC_RELEASE);
}

int bare_poll(struct bare *q, unsigned count, struct ibv_wc *out)
{
	uint32_t next = q->poll_next, mask = q->cq->index_mask;
	/* The kernel's store of the index is a release. */
	uint32_t there = __atomic_load_n(&q->cq->producer_index, __ATOMIC_ACQUIRE);
	unsigned got = 0;

	while (got < count && next != there) {
		/* Up to its last fields the kernel's record is what the library gives out. */
		memcpy(&out[got++], q->cq->data + ((size_t)next << q->cq_shift),
		       sizeof(struct ib_uverbs_wc));
		next = (next + 1) & mask;
	}
	if (got > 0) {
		q->poll_next = next;
		__atomic_store_n(&q->cq->consumer_index, next, __ATOMIC_RELEASE);
	}
	return (int)got;
}
