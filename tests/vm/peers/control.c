/* Objects come and go: bring-up, rates of making and unmaking, many of them, and their events. */
#define _GNU_SOURCE
#include "twin.h"

#include <errno.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

enum { SAMPLES = 2048 };
static uint64_t making[SAMPLES], unmaking[SAMPLES];

/* From the list of devices to a queue pair in RTS that is its own peer; all of it stays. */
static void to_rts(const char *device)
{
	struct ibv_context *context = open_device(device);
	struct ibv_pd *pd = ibv_alloc_pd(context);
	void *buffer = NULL;
	struct ibv_cq *cq;
	struct ibv_qp *qp;

	if (!pd || posix_memalign(&buffer, 4096, 4096) ||
	    !ibv_reg_mr(pd, buffer, 4096, IBV_ACCESS_LOCAL_WRITE))
		die("ibv_reg_mr");
	cq = ibv_create_cq(context, 16, NULL, NULL, 0);
	if (!cq)
		die("ibv_create_cq");
	qp = create_qp(pd, cq, NULL, 16, 16, 0);
	connect_qp(qp, context, qp, context);
}

/* bring-up: to RTS, then the landmark, and once more. Then the times: the clock when it was reached, how
 * long it took since the devices were listed, and how long the second time. */
int bring_up(int argc, char **argv)
{
	const char *device = argc > 2 ? argv[2] : "rxe0";
	uint64_t start = now(), end, again;

	to_rts(device);
	getppid();
	end = now();
	to_rts(device);
	again = now() - end;
	printf("rts %lu %lu %lu\n", (unsigned long)end, (unsigned long)(end - start),
	       (unsigned long)again);
	return 0;
}

static void print(const char *name, const uint64_t *all, unsigned count)
{
	printf("%s", name);
	for (unsigned i = 0; i < count; i++)
		printf(" %lu", (unsigned long)all[i]);
	printf("\n");
}

/* The clock, or under the counter two regions for each object: making it, and unmaking it. */
static uint64_t begin(int marks)
{
	if (!marks)
		return now();
	mark();
	return 0;
}

/* Made, and not unmade. */
static uint64_t between(int marks)
{
	if (marks)
		mark();
	return begin(marks);
}

/* make pd|mr|cq|qp COUNT [BYTES]; with `marks`, for the counter. */
void make(char **args, int marks)
{
	struct end *a = shared_end(0);
	unsigned count = (unsigned)number(args, 2, 100);
	size_t size = number(args, 3, 4096);
	const char *what = args[1] ? args[1] : "";
	char *memory = NULL;

	if (count > SAMPLES)
		count = SAMPLES;
	if (!strcmp(what, "mr")) {
		memory = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1,
			      0);
		if (memory == MAP_FAILED)
			die("mmap");
		memset(memory, 1, size);
	}
	for (unsigned i = 0; i < count; i++) {
		uint64_t t0 = begin(marks), t1;

		if (!strcmp(what, "pd")) {
			struct ibv_pd *pd = ibv_alloc_pd(a->context);

			t1 = between(marks);
			must(pd ? ibv_dealloc_pd(pd) : -1, "pd");
		} else if (!strcmp(what, "mr")) {
			struct ibv_mr *mr = ibv_reg_mr(a->pd, memory, size, IBV_ACCESS_LOCAL_WRITE);

			t1 = between(marks);
			must(mr ? ibv_dereg_mr(mr) : -1, "mr");
		} else if (!strcmp(what, "cq")) {
			struct ibv_cq *cq = ibv_create_cq(a->context, 64, NULL, NULL, 0);

			t1 = between(marks);
			must(cq ? ibv_destroy_cq(cq) : -1, "cq");
		} else {
			struct ibv_qp *qp = create_qp(a->pd, a->cq, NULL, 16, 16, 0);

			t1 = between(marks);
			must(ibv_destroy_qp(qp), "qp");
		}
		making[i] = t1 - t0;
		unmaking[i] = begin(marks) - t1;
	}
	if (memory)
		munmap(memory, size);
	print("create", making, count);
	print("destroy", unmaking, count);
}

void command_make(char **args)
{
	make(args, 0);
}

static unsigned long resident_kib(void)
{
	char line[256];
	unsigned long kib = 0;
	FILE *status = fopen("/proc/self/status", "r");

	if (!status)
		die("/proc/self/status");
	while (fgets(line, sizeof(line), status))
		if (sscanf(line, "VmRSS: %lu", &kib) == 1)
			break;
	fclose(status);
	return kib;
}

/* many COUNT: queue pairs that live at the same time. The time of each of the first and of the last
 * thousand (or tenth), of all, and the memory they take. */
void command_many(char **args)
{
	struct end *a = shared_end(0);
	unsigned count = (unsigned)number(args, 1, 1000);
	unsigned part = count / 10 < SAMPLES ? count / 10 : SAMPLES, made = 0;
	struct ibv_qp **all = calloc(count, sizeof(*all));
	unsigned long before;
	uint64_t start, t;

	if (!all)
		die("memory");
	memset(all, 1, count * sizeof(*all));
	before = resident_kib();
	start = now();
	for (made = 0; made < count; made++) {
		t = now();
		all[made] = create_qp(a->pd, a->cq, NULL, 1, 1, 0);
		if (made < part)
			making[made] = now() - t;
		else if (made >= count - part)
			unmaking[made - (count - part)] = now() - t;
	}
	t = now() - start;
	printf("all %lu\nresident %lu %lu\n", (unsigned long)t, before, resident_kib());
	print("first", making, part);
	print("last", unmaking, part);
	while (made > 0)
		must(ibv_destroy_qp(all[--made]), "ibv_destroy_qp");
	free(all);
}

/* events LIVE COUNT: the limit event of one shared receive queue among LIVE. The time of reading,
 * looking up and acking it; with `marks`, for the counter. */
void events(char **args, int marks)
{
	static struct ibv_srq **all;
	static unsigned live;
	struct end *a = shared_end(0), *b = shared_end(1);
	unsigned want = (unsigned)number(args, 1, 1), count = (unsigned)number(args, 2, 100);
	struct ibv_cq *cq = ibv_create_cq(b->context, 64, NULL, NULL, 0);
	struct ibv_qp *qp, *sender;
	struct ibv_srq *srq;

	if (count > SAMPLES)
		count = SAMPLES;
	all = realloc(all, want * sizeof(*all));
	if (!all || !cq)
		die("memory");
	while (live < want) {
		struct ibv_srq_init_attr init = { .attr = { .max_wr = 4, .max_sge = 1 } };

		all[live] = ibv_create_srq(b->pd, &init);
		if (!all[live++])
			die("ibv_create_srq");
	}
	srq = all[want / 2];
	qp = create_qp(b->pd, cq, srq, 1, 1, 0);
	sender = create_qp(a->pd, a->cq, NULL, 4, 1, INLINE);
	connect_qp(qp, b->context, sender, a->context);
	connect_qp(sender, a->context, qp, b->context);
	for (unsigned i = 0; i < count; i++) {
		struct ibv_sge sge = { (uintptr_t)b->buffer, 64, b->mr->lkey }, out;
		struct ibv_recv_wr recv = { .sg_list = &sge, .num_sge = 1 }, *bad;
		struct ibv_srq_attr attr = { .srq_limit = 1 };
		struct pollfd readable = { .fd = b->context->async_fd, .events = POLLIN };
		struct ibv_send_wr wr;
		struct ibv_async_event event;
		uint64_t start;
		int failed;

		must(ibv_post_srq_recv(srq, &recv, &bad), "ibv_post_srq_recv");
		must(ibv_modify_srq(srq, &attr, IBV_SRQ_LIMIT), "ibv_modify_srq");
		fill(&wr, &out, SEND, 64, a, b);
		post(sender, &wr);
		drain(a->cq, 1);
		drain(cq, 1);
		if (poll(&readable, 1, 10000) != 1)
			die("no event within 10 s");
		if (marks)
			mark();
		start = marks ? 0 : now();
		failed = ibv_get_async_event(b->context, &event);
		if (!failed)
			ibv_ack_async_event(&event);
		if (marks)
			mark();
		else
			start = now() - start;
		must(failed, "ibv_get_async_event");
		errno = 0;
		if (event.event_type != IBV_EVENT_SRQ_LIMIT_REACHED || event.element.srq != srq)
			die("another event");
		making[i] = start;
	}
	must(ibv_destroy_qp(qp), "ibv_destroy_qp");
	must(ibv_destroy_qp(sender), "ibv_destroy_qp");
	must(ibv_destroy_cq(cq), "ibv_destroy_cq");
	print("ns", making, count);
}

void command_events(char **args)
{
	events(args, 0);
}
