/*
 * From exec to RTS with nothing but the kernel's part: no C library, no provider, no search for the
 * device, no check. What is left is the least time that any program takes to get there.
 *
 * The same objects as the twins' bring-up. The commands go by write(), the shortest way in. A test
 * fixture; ground truth: rdma/ib_user_verbs.h and rdma/rdma_user_rxe.h.
 */
#include <linux/fcntl.h>
#include <linux/types.h>
#include <rdma/ib_user_verbs.h>
#include <rdma/rdma_user_rxe.h>
#include <linux/mman.h>
#include <asm/unistd.h>
#include <linux/time.h>
#include <stddef.h>

#define NODE "/dev/infiniband/uverbs0"

enum { PORT = 1, GID_INDEX = 1, DEPTH = 16, PSN = 0x123456, RC = 2, LOCAL_WRITE = 1, REMOTE = 14 };
/* enum ib_qp_attr_mask, and states. */
enum {
	STATE = 1, ACCESS = 1 << 3, PKEY = 1 << 4, IN_PORT = 1 << 5, AV = 1 << 7, MTU = 1 << 8,
	TIMEOUT = 1 << 9, RETRY = 1 << 10, RNR_RETRY = 1 << 11, RQ_PSN = 1 << 12,
	RD_ATOMIC = 1 << 13, RNR_TIMER = 1 << 15, SQ_PSN = 1 << 16, DEST_RD_ATOMIC = 1 << 17,
	DEST_QPN = 1 << 20, INIT = 1, RTR = 2, RTS = 3,
};

static char buffer[4096] __attribute__((aligned(4096)));
static int node;

static long call(long number, long a, long b, long c, long d, long e, long f)
{
	register long r10 __asm__("r10") = d;
	register long r8 __asm__("r8") = e;
	register long r9 __asm__("r9") = f;
	long result;

	__asm__ volatile("syscall"
			 : "=a"(result)
			 : "a"(number), "D"(a), "S"(b), "d"(c), "r"(r10), "r"(r8), "r"(r9)
			 : "rcx", "r11", "memory");
	return result;
}

static void say(const char *text, size_t length)
{
	call(__NR_write, 1, (long)text, (long)length, 0, 0, 0);
}

static _Noreturn void end(int status)
{
	for (;;)
		call(__NR_exit_group, status, 0, 0, 0, 0, 0);
}

static void must(long result, const char *what, size_t length)
{
	if (result >= 0)
		return;
	say("! ", 2);
	say(what, length);
	say("\n", 1);
	end(1);
}
#define MUST(result, what) must(result, what, sizeof(what) - 1)

/* A command with its header, and room for the driver's part of the answer behind the kernel's. */
#define COMMAND(type, answer)                  \
	struct {                               \
		struct ib_uverbs_cmd_hdr hdr;  \
		struct type c;                 \
	} __attribute__((packed, aligned(8))) q = { 0 }; \
	answer r = { 0 };                      \
	q.c.response = (unsigned long)&r

#define RUN(number, what)                                                            \
	do {                                                                         \
		q.hdr.command = (number);                                            \
		q.hdr.in_words = sizeof(q) / 4;                                      \
		q.hdr.out_words = sizeof(r) / 4;                                     \
		MUST(call(__NR_write, node, (long)&q, sizeof(q), 0, 0, 0), what);    \
	} while (0)

static void context(void)
{
	COMMAND(ib_uverbs_get_context, struct ib_uverbs_get_context_resp);
	RUN(IB_USER_VERBS_CMD_GET_CONTEXT, "the context");
}

static __u32 domain(void)
{
	COMMAND(ib_uverbs_alloc_pd, struct ib_uverbs_alloc_pd_resp);
	RUN(IB_USER_VERBS_CMD_ALLOC_PD, "the protection domain");
	return r.pd_handle;
}

static void region(__u32 pd)
{
	COMMAND(ib_uverbs_reg_mr, struct ib_uverbs_reg_mr_resp);
	q.c.start = q.c.hca_va = (unsigned long)buffer;
	q.c.length = sizeof(buffer);
	q.c.pd_handle = pd;
	q.c.access_flags = LOCAL_WRITE;
	RUN(IB_USER_VERBS_CMD_REG_MR, "the region");
}

static void map(struct mminfo *at)
{
	long result = call(__NR_mmap, 0, at->size, PROT_READ | PROT_WRITE, MAP_SHARED, node,
			   (long)at->offset);

	/* Addresses of user space are positive. */
	MUST(result, "a queue's mapping");
}

struct cq_answer {
	struct ib_uverbs_create_cq_resp core;
	struct mminfo queue;
};

static __u32 completions(void)
{
	COMMAND(ib_uverbs_create_cq, struct cq_answer);
	q.c.cqe = DEPTH;
	q.c.comp_channel = -1;
	RUN(IB_USER_VERBS_CMD_CREATE_CQ, "the completion queue");
	map(&r.queue);
	return r.core.cq_handle;
}

struct qp_answer {
	struct ib_uverbs_create_qp_resp core;
	struct mminfo receive, send;
};

static struct ib_uverbs_create_qp_resp pair(__u32 pd, __u32 cq)
{
	COMMAND(ib_uverbs_create_qp, struct qp_answer);
	q.c.pd_handle = pd;
	q.c.send_cq_handle = q.c.recv_cq_handle = cq;
	q.c.max_send_wr = q.c.max_recv_wr = DEPTH;
	q.c.max_send_sge = q.c.max_recv_sge = 1;
	q.c.qp_type = RC;
	RUN(IB_USER_VERBS_CMD_CREATE_QP, "the queue pair");
	map(&r.receive);
	map(&r.send);
	return r.core;
}

/* The own GID that the twins take: the one of the interface's IPv4 address. */
static void address(__u8 *gid)
{
	static const char PATH[] = "/sys/class/infiniband/rxe0/ports/1/gids/1";
	char text[40] = { 0 };
	int file = (int)call(__NR_open, (long)PATH, O_RDONLY, 0, 0, 0, 0);
	unsigned digits = 0;

	MUST(call(__NR_read, file, (long)text, sizeof(text) - 1, 0, 0, 0), "the address");
	for (const char *at = text; *at && digits < 32; at++) {
		unsigned digit = (unsigned)*at - (*at >= 'a' ? 'a' - 10u : '0');

		if (*at == ':')
			continue;
		gid[digits / 2] = (__u8)(gid[digits / 2] << 4 | digit);
		digits++;
	}
	call(__NR_close, file, 0, 0, 0, 0, 0);
}

static void modify(__u32 qp, __u32 number, __u8 state, __u32 mask, const __u8 *gid)
{
	struct {
		struct ib_uverbs_cmd_hdr hdr;
		struct ib_uverbs_modify_qp c;
	} __attribute__((packed, aligned(8))) q = { 0 };

	q.hdr.command = IB_USER_VERBS_CMD_MODIFY_QP;
	q.hdr.in_words = sizeof(q) / 4;
	q.c.qp_handle = qp;
	q.c.attr_mask = mask | STATE;
	q.c.qp_state = state;
	q.c.port_num = PORT;
	q.c.qp_access_flags = LOCAL_WRITE | REMOTE;
	q.c.path_mtu = 3; /* 1,024 bytes */
	q.c.dest_qp_num = number;
	q.c.rq_psn = q.c.sq_psn = PSN;
	q.c.max_rd_atomic = q.c.max_dest_rd_atomic = 16;
	q.c.min_rnr_timer = 12;
	q.c.timeout = 14;
	q.c.retry_cnt = 6;
	q.c.rnr_retry = 7;
	q.c.dest.is_global = 1;
	q.c.dest.port_num = PORT;
	q.c.dest.sgid_index = GID_INDEX;
	q.c.dest.hop_limit = 64;
	__builtin_memcpy(q.c.dest.dgid, gid, 16);
	MUST(call(__NR_write, node, (long)&q, sizeof(q), 0, 0, 0), "a transition");
}

static unsigned long now(void)
{
	struct timespec t;

	call(__NR_clock_gettime, 1, (long)&t, 0, 0, 0, 0);
	return (unsigned long)t.tv_sec * 1000000000 + (unsigned long)t.tv_nsec;
}

static void number(unsigned long value)
{
	char digits[24];
	unsigned at = sizeof(digits);

	do
		digits[--at] = (char)('0' + value % 10);
	while (value /= 10);
	digits[--at] = ' ';
	say(digits + at, sizeof(digits) - at);
}

static void to_rts(void)
{
	__u8 gid[16] = { 0 };
	struct ib_uverbs_create_qp_resp qp;
	__u32 pd;

	node = (int)call(__NR_open, (long)NODE, O_RDWR | O_CLOEXEC, 0, 0, 0, 0);
	MUST(node, NODE);
	context();
	pd = domain();
	region(pd);
	qp = pair(pd, completions());
	address(gid);
	modify(qp.qp_handle, qp.qpn, INIT, PKEY | IN_PORT | ACCESS, gid);
	modify(qp.qp_handle, qp.qpn, RTR,
	       AV | MTU | DEST_QPN | RQ_PSN | DEST_RD_ATOMIC | RNR_TIMER, gid);
	modify(qp.qp_handle, qp.qpn, RTS, TIMEOUT | RETRY | RNR_RETRY | SQ_PSN | RD_ATOMIC, gid);
}

__attribute__((force_align_arg_pointer)) _Noreturn void _start(void)
{
	unsigned long from = now(), to, again;

	to_rts();
	call(__NR_getppid, 0, 0, 0, 0, 0, 0);
	to = now();
	to_rts();
	again = now() - to;
	say("rts", 3);
	number(to);
	number(to - from);
	number(again);
	say("\n", 1);
	end(0);
}
