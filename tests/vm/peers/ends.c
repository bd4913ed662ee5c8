/* Objects: two ends that are connected over the wire, and requests from one to the other. */
#define _GNU_SOURCE
#include "twin.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

struct ibv_context *open_device(const char *name)
{
	int count = 0;
	struct ibv_device **list = ibv_get_device_list(&count);
	struct ibv_context *context = NULL;

	if (!list)
		die("ibv_get_device_list");
	for (int i = 0; i < count; i++)
		if (strcmp(ibv_get_device_name(list[i]), name) == 0)
			context = ibv_open_device(list[i]);
	ibv_free_device_list(list);
	if (!context)
		die("ibv_open_device");
	return context;
}

struct ibv_qp *create_qp(struct ibv_pd *pd, struct ibv_cq *cq, struct ibv_srq *srq, unsigned send,
			 unsigned recv, unsigned inline_bytes)
{
	struct ibv_qp_init_attr init = {
		.send_cq = cq,
		.recv_cq = cq,
		.srq = srq,
		.qp_type = IBV_QPT_RC,
		.cap = { .max_send_wr = send,
			 .max_recv_wr = recv,
			 .max_send_sge = 1,
			 .max_recv_sge = 1,
			 .max_inline_data = inline_bytes },
	};
	struct ibv_qp *qp = ibv_create_qp(pd, &init);

	if (!qp)
		die("ibv_create_qp");
	return qp;
}

void connect_qp(struct ibv_qp *qp, struct ibv_context *own, struct ibv_qp *other,
		struct ibv_context *others)
{
	struct ibv_port_attr port;
	union ibv_gid gid;
	struct ibv_qp_attr attr = {
		.qp_state = IBV_QPS_INIT,
		.port_num = 1,
		.qp_access_flags = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE |
				   IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC,
	};

	must(ibv_query_port(own, 1, &port), "ibv_query_port");
	/* Index 1 is the GID of the IPv4 address. */
	must(ibv_query_gid(others, 1, 1, &gid), "ibv_query_gid");
	must(ibv_modify_qp(qp, &attr,
			   IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS),
	     "to INIT");
	attr = (struct ibv_qp_attr){
		.qp_state = IBV_QPS_RTR,
		.path_mtu = port.active_mtu,
		.dest_qp_num = other->qp_num,
		.max_dest_rd_atomic = 16,
		.min_rnr_timer = 12,
		.ah_attr = { .is_global = 1,
			     .port_num = 1,
			     .grh = { .dgid = gid, .sgid_index = 1, .hop_limit = 64 } },
	};
	must(ibv_modify_qp(qp, &attr,
			   IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN |
				   IBV_QP_RQ_PSN | IBV_QP_MAX_DEST_RD_ATOMIC |
				   IBV_QP_MIN_RNR_TIMER),
	     "to RTR");
	attr = (struct ibv_qp_attr){
		.qp_state = IBV_QPS_RTS,
		.timeout = 18,
		.retry_cnt = 6,
		.rnr_retry = 7,
		.max_rd_atomic = 16,
	};
	must(ibv_modify_qp(qp, &attr,
			   IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY |
				   IBV_QP_SQ_PSN | IBV_QP_MAX_QP_RD_ATOMIC),
	     "to RTS");
}

static void make_end(struct end *e, const char *device, int events)
{
	e->context = open_device(device);
	e->pd = ibv_alloc_pd(e->context);
	if (!e->pd)
		die("ibv_alloc_pd");
	e->channel = events ? ibv_create_comp_channel(e->context) : NULL;
	if (events && !e->channel)
		die("ibv_create_comp_channel");
	e->cq = ibv_create_cq(e->context, CQ_DEPTH, NULL, e->channel, 0);
	if (!e->cq)
		die("ibv_create_cq");
	e->qp = create_qp(e->pd, e->cq, NULL, SEND_DEPTH, RECV_DEPTH, INLINE);
	e->buffer = mmap(NULL, BUFFER, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (e->buffer == MAP_FAILED)
		die("mmap");
	e->mr = ibv_reg_mr(e->pd, e->buffer, BUFFER,
			   IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE |
				   IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC);
	if (!e->mr)
		die("ibv_reg_mr");
}

void connect_ends(struct end *a, struct end *b, int events)
{
	make_end(a, "rxe0", events);
	make_end(b, "rxe1", events);
	connect_qp(a->qp, a->context, b->qp, b->context);
	connect_qp(b->qp, b->context, a->qp, a->context);
}

struct end *shared_end(int which)
{
	static struct end ends[2];

	if (!ends[0].context)
		connect_ends(&ends[0], &ends[1], 0);
	return &ends[which];
}

void drain(struct ibv_cq *cq, unsigned count)
{
	struct ibv_wc wc[BATCH];

	while (count > 0) {
		int got = ibv_poll_cq(cq, count < BATCH ? (int)count : BATCH, wc);

		if (got < 0)
			die("ibv_poll_cq");
		for (int i = 0; i < got; i++)
			if (wc[i].status != IBV_WC_SUCCESS) {
				errno = 0;
				die(ibv_wc_status_str(wc[i].status));
			}
		count -= (unsigned)got;
	}
}

void post(struct ibv_qp *qp, struct ibv_send_wr *wr)
{
	struct ibv_send_wr *bad;

	must(ibv_post_send(qp, wr, &bad), "ibv_post_send");
}

void post_receives(struct end *e, unsigned count, unsigned length)
{
	struct ibv_sge sge[BATCH];
	struct ibv_recv_wr wr[BATCH], *bad;

	for (unsigned i = 0; i < count; i++) {
		sge[i] = (struct ibv_sge){ (uintptr_t)e->buffer, length, e->mr->lkey };
		wr[i] = (struct ibv_recv_wr){ i, i + 1 < count ? &wr[i + 1] : NULL, &sge[i], 1 };
	}
	must(ibv_post_recv(e->qp, wr, &bad), "ibv_post_recv");
}

enum kind kind_of(const char *word)
{
	return !strcmp(word, "send") ? SEND :
	       !strcmp(word, "read") ? READ :
	       !strcmp(word, "atomic") ? ATOMIC :
					 WRITE;
}

void fill(struct ibv_send_wr *wr, struct ibv_sge *sge, enum kind kind, unsigned size,
	  struct end *a, struct end *b)
{
	static const enum ibv_wr_opcode OPCODES[] = { IBV_WR_SEND, IBV_WR_RDMA_WRITE,
						      IBV_WR_RDMA_READ,
						      IBV_WR_ATOMIC_FETCH_AND_ADD };

	*sge = (struct ibv_sge){ (uintptr_t)a->buffer, size, a->mr->lkey };
	*wr = (struct ibv_send_wr){
		.wr_id = 1,
		.sg_list = sge,
		.num_sge = 1,
		.opcode = OPCODES[kind],
		.send_flags = IBV_SEND_SIGNALED,
	};
	if (kind == ATOMIC) {
		wr->wr.atomic.remote_addr = (uintptr_t)b->buffer;
		wr->wr.atomic.compare_add = 1;
		wr->wr.atomic.rkey = b->mr->rkey;
	} else {
		wr->wr.rdma.remote_addr = (uintptr_t)b->buffer;
		wr->wr.rdma.rkey = b->mr->rkey;
	}
}
