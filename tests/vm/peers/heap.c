/* How often the heap is asked for memory. What is defined here is found before the C library's. */
#define _GNU_SOURCE
#include "twin.h"

#include <stdlib.h>

extern void *__libc_malloc(size_t size);
extern void *__libc_calloc(size_t count, size_t size);
extern void *__libc_realloc(void *old, size_t size);

static unsigned long calls;

void *malloc(size_t size)
{
	__atomic_fetch_add(&calls, 1, __ATOMIC_RELAXED);
	return __libc_malloc(size);
}

void *calloc(size_t count, size_t size)
{
	__atomic_fetch_add(&calls, 1, __ATOMIC_RELAXED);
	return __libc_calloc(count, size);
}

void *realloc(void *old, size_t size)
{
	__atomic_fetch_add(&calls, 1, __ATOMIC_RELAXED);
	return __libc_realloc(old, size);
}

unsigned long heap_calls(void)
{
	return __atomic_load_n(&calls, __ATOMIC_RELAXED);
}

/* heap OPERATIONS: posts and polls so many requests, by batches, and their receives */
void command_heap(char **args)
{
	unsigned long operations = number(args, 1, 16000), done;
	struct end *a = shared_end(0), *b = shared_end(1);
	struct ibv_send_wr wr[BATCH];
	struct ibv_sge sge[BATCH];
	unsigned long before;

	for (unsigned i = 0; i < BATCH; i++) {
		fill(&wr[i], &sge[i], SEND, 2, a, b);
		wr[i].next = i + 1 < BATCH ? &wr[i + 1] : NULL;
	}
	before = heap_calls();
	for (done = 0; done < operations; done += BATCH) {
		post_receives(b, BATCH, 64);
		post(a->qp, wr);
		drain(b->cq, BATCH);
		drain(a->cq, BATCH);
	}
	printf("heap %lu %lu\n", heap_calls() - before, done);
}
