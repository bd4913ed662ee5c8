/* The commands, read line by line from the controller. */
#define _GNU_SOURCE
#include "twin.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ptrace.h>
#include <time.h>

void die(const char *what)
{
	printf("! %s: %s\n", what, errno ? strerror(errno) : "not as it must be");
	fflush(stdout);
	exit(1);
}

void must(int result, const char *what)
{
	if (result == 0)
		return;
	if (result > 0)
		errno = result;
	die(what);
}

uint64_t now(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (uint64_t)t.tv_sec * 1000000000 + (uint64_t)t.tv_nsec;
}

unsigned long number(char **args, int at, unsigned long otherwise)
{
	for (int i = 0; i < at; i++)
		if (!args[i])
			return otherwise;
	return args[at] ? strtoul(args[at], NULL, 10) : otherwise;
}

int is(char **args, int at, const char *word)
{
	for (int i = 0; i < at; i++)
		if (!args[i])
			return 0;
	return args[at] && strcmp(args[at], word) == 0;
}

static const struct {
	const char *name;
	void (*run)(char **args);
} COMMANDS[] = {
	{ "latency", command_latency }, { "rate", command_rate },     { "make", command_make },
	{ "many", command_many },	{ "events", command_events }, { "heap", command_heap },
	{ "singly", command_rate },
};

static void serve(char *line)
{
	char *args[16] = { 0 }, *rest = NULL;
	unsigned n = 0;

	for (char *word = strtok_r(line, " \n", &rest); word && n < 15;
	     word = strtok_r(NULL, " \n", &rest))
		args[n++] = word;
	if (!args[0])
		return;
	for (size_t i = 0; i < sizeof(COMMANDS) / sizeof(*COMMANDS); i++) {
		if (strcmp(COMMANDS[i].name, args[0]) == 0) {
			COMMANDS[i].run(args);
			printf(".\n");
			fflush(stdout);
			return;
		}
	}
	errno = EINVAL;
	die(args[0]);
}

/* One command under the counter; the first region is empty. */
static int counted(char **args)
{
	shared_end(0);
	if (args[0] && strcmp(args[0], "count") == 0 && is(args, 3, "bare"))
		bare_ends();
	if (ptrace(PTRACE_TRACEME, 0, NULL, NULL) != 0)
		die("PTRACE_TRACEME");
	mark();
	mark();
	if (args[0] && strcmp(args[0], "events") == 0)
		events(args, 1);
	else if (args[0] && strcmp(args[0], "make") == 0)
		make(args, 1);
	else
		command_count(args);
	fflush(stdout);
	return 0;
}

int main(int argc, char **argv)
{
	char line[256];

	if (argc > 1 && strcmp(argv[1], "bring-up") == 0)
		return bring_up(argc, argv);
	if (argc > 2 && strcmp(argv[1], "counted") == 0)
		return counted(argv + 2);
	while (fgets(line, sizeof(line), stdin))
		serve(line);
	return 0;
}
