/*
 * The C half of `cargo vm bench`: the same work as its Rust twin (uverbs-twin of tests/tools), call
 * for call, with libibverbs.
 *
 * A test fixture. It is built by the set-up, is in no crate, and runs in the guest only. It must never
 * do anything between two marks, or between two readings of the clock, that its twin does not do.
 */
#ifndef TWIN_H
#define TWIN_H

#include <infiniband/verbs.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <unistd.h>

/* As the Rust twin has them. */
enum {
	BUFFER = 1 << 20, /* bytes of each end's region */
	SEND_DEPTH = 128,
	RECV_DEPTH = 512,
	CQ_DEPTH = 1024,
	INLINE = 64,
	BATCH = 16,
};

/* One end of the connection from rxe0 to rxe1. */
struct end {
	struct ibv_context *context;
	struct ibv_pd *pd;
	struct ibv_comp_channel *channel; /* null unless it was asked for */
	struct ibv_cq *cq;
	struct ibv_qp *qp;
	struct ibv_mr *mr;
	char *buffer;
};

/* Says what went wrong, as the controller reads it, and ends. */
_Noreturn void die(const char *what);
/* Ends unless the call gave 0. */
void must(int result, const char *what);

/* Nanoseconds of the monotonic clock. */
uint64_t now(void);
/* A number from an argument; `otherwise` if there is none. */
unsigned long number(char **args, int at, unsigned long otherwise);
/* Whether the argument is this word. */
int is(char **args, int at, const char *word);

/* The instructions between two of these are counted by the tracer. */
static inline void mark(void)
{
	raise(SIGUSR1);
}

struct ibv_context *open_device(const char *name);
struct ibv_qp *create_qp(struct ibv_pd *pd, struct ibv_cq *cq, struct ibv_srq *srq, unsigned send,
			 unsigned recv, unsigned inline_bytes);
/* From RESET to RTS; the other end may be the same queue pair. */
void connect_qp(struct ibv_qp *qp, struct ibv_context *own, struct ibv_qp *other,
		struct ibv_context *others);
/* The two ends, connected. With `events`, both completion queues have a channel. */
void connect_ends(struct end *a, struct end *b, int events);
/* The ends that the counts and polled traffic share, made when they are first asked for. */
struct end *shared_end(int which);

/* Waits for `count` completions; any that failed ends the program. */
void drain(struct ibv_cq *cq, unsigned count);
void post(struct ibv_qp *qp, struct ibv_send_wr *wr);
void post_receives(struct end *e, unsigned count, unsigned length);
/* A request of the given kind from a to b, signaled. */
enum kind { SEND, WRITE, READ, ATOMIC };
enum kind kind_of(const char *word);
void fill(struct ibv_send_wr *wr, struct ibv_sge *sge, enum kind kind, unsigned size,
	  struct end *a, struct end *b);

/* The queues as they lie in memory, written with no library and no checks: what bounds a call. */
struct bare {
	struct end a, b;
	struct rxe_queue_buf *sq, *rq, *cq;
	uint32_t send_next, recv_next, poll_next, sequence;
	unsigned send_shift, recv_shift, cq_shift;
	unsigned char doorbell[32];
};

struct bare *bare_ends(void);
void bare_write(struct bare *q, unsigned count, unsigned size, int inline_data);
void bare_ring(struct bare *q);
void bare_ring_ioctl(struct bare *q);
void bare_recv(struct bare *q, unsigned count, unsigned size);
int bare_poll(struct bare *q, unsigned count, struct ibv_wc *out);

/* The commands; each gets its words, the command's own first. */
void command_count(char **args);
void command_latency(char **args);
void command_rate(char **args);
void command_make(char **args);
void make(char **args, int marks);
void command_many(char **args);
void command_events(char **args);
void events(char **args, int marks);
void command_heap(char **args);
int bring_up(int argc, char **argv);

/* Calls of malloc, calloc, realloc and their like so far. */
unsigned long heap_calls(void);

#endif
