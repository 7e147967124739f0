/* SPDX-License-Identifier: MIT */
/*
 * Process 1 of a lab: starts the commands one after the other, passes on what they print, and ends them: all when one has
 * failed, the services when the others have ended, all when the user says so. The way to end is SIGTERM to every process
 * of the lab, and a while later its end, which the kernel makes that of all.
 */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "tools/lab.h"
#include "tools/tools.h"

#define SECOND 1000000000ULL

/* How long processes have to end after SIGTERM. */
#define GRACE_NS (3 * SECOND)

/* There is no event for a socket that begins to listen. */
#define LOOK_NS 10000000ULL

/* What a host's command, perhaps not yet started, is at. */
struct command {
	pid_t pid; /* 0: not started */
	uint64_t started;
	bool ended;
	struct output outputs[2]; /* stdout, stderr */
};

struct run {
	struct lab *lab;
	struct command *commands; /* per host */
	unsigned started;	  /* hosts whose command was started */
	pid_t switch_pid;
	struct switch_counts *counts;
	int signals; /* signalfd */
	bool ending;
	uint64_t end_by;
	int status;
};

static uint64_t clock_ns(void)
{
	struct timespec time;

	clock_gettime(CLOCK_MONOTONIC, &time);
	return (uint64_t)time.tv_sec * SECOND + (uint64_t)time.tv_nsec;
}

/* The first cause decides the status. */
static void end_all(struct run *run, int status)
{
	if (run->ending)
		return;
	run->ending = true;
	run->end_by = clock_ns() + GRACE_NS;
	run->status = status;
	/* The switch takes no notice: the others may want to say goodbye to each other. */
	kill(-1, SIGTERM);
	kill(-1, SIGCONT);
}

static bool start_switch(struct run *run)
{
	run->counts = mmap(NULL, sizeof(*run->counts), PROT_READ | PROT_WRITE,
			   MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	run->switch_pid = run->counts == MAP_FAILED ? -1 : fork();
	if (!run->switch_pid)
		switch_run(run->lab, run->counts);
	for (unsigned i = 0; i < run->lab->count && run->switch_pid > 0; i++)
		close(run->lab->hosts[i].tap);
	if (run->switch_pid < 0)
		complain(run->lab->name, "cannot start the switch: %s", strerror(errno));
	return run->switch_pid > 0;
}

/* In the child: becomes the command. */
_Noreturn static void become(const struct lab *lab, const struct host *host, int out, int error)
{
	int input = lab->input == host->number ? STDIN_FILENO : open("/dev/null", O_RDONLY);

	if (dup2(input, STDIN_FILENO) < 0 || dup2(out, STDOUT_FILENO) < 0 ||
	    dup2(error, STDERR_FILENO) < 0)
		_exit(LAB_FAILED);
	if (input > STDERR_FILENO)
		close(input);
	if (!namespaces_enter_host(lab, host))
		_exit(LAB_FAILED);
	sigprocmask(SIG_SETMASK, &lab->mask, NULL);
	_exit(run_program(lab->name, host->command, true));
}

static bool start_command(struct run *run)
{
	const struct lab *lab = run->lab;
	const struct host *host = &lab->hosts[run->started];
	struct command *command = &run->commands[run->started];
	int out[2] = { -1, STDOUT_FILENO }, error[2] = { -1, STDERR_FILENO };

	if (!lab->raw && (pipe2(out, O_CLOEXEC) || pipe2(error, O_CLOEXEC))) {
		complain(lab->name, "cannot make a pipe: %s", strerror(errno));
		return false;
	}
	command->pid = fork();
	if (!command->pid)
		become(lab, host, out[1], error[1]);
	if (command->pid < 0) {
		complain(lab->name, "cannot start the command of %s: %s", host->name,
			 strerror(errno));
		return false;
	}
	if (!lab->raw) {
		close(out[1]);
		close(error[1]);
	}
	command->outputs[0] = (struct output){ .from = out[0], .host = host->name };
	command->outputs[1] =
		(struct output){ .from = error[0], .error = true, .host = host->name };
	command->started = clock_ns();
	run->started++;
	return true;
}

/* A line of a table of TCP sockets: is it in the state LISTEN? */
static bool is_tcp_listener(const char *line)
{
	unsigned state = 0;

	return sscanf(line, " %*u: %*s %*s %x", &state) == 1 && state == 0x0a;
}

/* A line of the table of unix sockets: is it a port of rdma_cm that a program has asked for? Blocks are for who only connects. */
static bool is_cm_port(const char *line)
{
	return strstr(line, " @uroce/cm/") && !strstr(line, "/block");
}

/* Has the table a socket of the kind? */
static bool table_has(int table, bool (*is_it)(const char *line))
{
	char line[256];
	FILE *file;
	bool found = false;

	if (table < 0 || lseek(table, 0, SEEK_SET) < 0)
		return false;
	file = fdopen(fcntl(table, F_DUPFD_CLOEXEC, 0), "r");
	while (file && !found && fgets(line, sizeof(line), file))
		found = is_it(line);
	if (file)
		fclose(file);
	return found;
}

/* May the next host's command start? If not, *look is at most when to ask again. */
static bool may_start(const struct run *run, uint64_t *look)
{
	const struct lab *lab = run->lab;
	const struct command *last;
	const struct host *host;
	uint64_t now, due;

	if (run->ending || run->started == lab->count)
		return false;
	if (!run->started || (lab->wait == WAIT_DEFAULT && !lab->different))
		return true;
	host = &lab->hosts[run->started - 1];
	last = &run->commands[run->started - 1];
	now = clock_ns();
	if (lab->wait != WAIT_TIME) {
		if (last->ended || table_has(host->tcp[0], is_tcp_listener) ||
		    table_has(host->tcp[1], is_tcp_listener) || table_has(host->local, is_cm_port))
			return true;
		if (now + LOOK_NS < *look)
			*look = now + LOOK_NS;
	}
	if (lab->wait == WAIT_LISTEN)
		return false;
	due = last->started + (lab->wait == WAIT_TIME ? lab->wait_ns : SECOND);
	if (due < *look)
		*look = due;
	return due <= now;
}

static bool can_be_read(const struct output *output)
{
	struct pollfd pipe = { .fd = output->from, .events = POLLIN };

	return poll(&pipe, 1, 0) > 0;
}

static void command_ended(struct run *run, unsigned index, int status)
{
	const struct lab *lab = run->lab;
	const struct host *host = &lab->hosts[index];
	int code = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
	bool failed = code && !run->ending;

	run->commands[index].ended = true;
	if (!failed)
		return;
	/* What it has said comes first. */
	for (int i = 0; i < 2; i++)
		while (can_be_read(&run->commands[index].outputs[i]) &&
		       output_pass(&run->commands[index].outputs[i]))
			;
	if (WIFSIGNALED(status))
		complain(lab->name, "%s: %s was ended by signal %d (%s)", host->name,
			 host->command[0], WTERMSIG(status), strsignal(WTERMSIG(status)));
	else
		complain(lab->name, "%s: %s failed with status %d", host->name, host->command[0],
			 code);
	end_all(run, code);
}

static void reap(struct run *run)
{
	int status;
	pid_t pid;

	while ((pid = waitpid(-1, &status, WNOHANG)) > 0) {
		if (pid == run->switch_pid) {
			run->switch_pid = 0;
			if (!run->ending)
				complain(run->lab->name, "the switch has ended");
			end_all(run, LAB_FAILED);
		}
		for (unsigned i = 0; i < run->started; i++)
			if (pid == run->commands[i].pid)
				command_ended(run, i, status);
	}
}

/* Have all commands ended that are to end of themselves? */
static bool is_done(const struct run *run)
{
	const struct lab *lab = run->lab;

	if (run->started < lab->count)
		return false;
	for (unsigned i = lab->services; i < lab->count; i++)
		if (!run->commands[i].ended)
			return false;
	return true;
}

/* Are there processes in the lab beside this one and the switch? */
static bool is_populated(const struct run *run)
{
	DIR *dir = opendir("/proc");
	struct dirent *entry;
	bool found = false;

	while (dir && !found && (entry = readdir(dir))) {
		long pid = strtol(entry->d_name, NULL, 10);

		found = pid > 1 && pid != run->switch_pid;
	}
	if (dir)
		closedir(dir);
	return found;
}

static bool read_signals(struct run *run)
{
	struct signalfd_siginfo info;
	bool child = false;

	while (read(run->signals, &info, sizeof(info)) == sizeof(info)) {
		if (info.ssi_signo == SIGCHLD)
			child = true;
		else
			end_all(run, 128 + (int)info.ssi_signo);
	}
	return child;
}

/* Waits for signals, output, or the time. */
static void wait_for_events(struct run *run, uint64_t until)
{
	struct pollfd polls[1 + 2 * LAB_MAX_HOSTS] = { { .fd = run->signals, .events = POLLIN } };
	struct output *outputs[1 + 2 * LAB_MAX_HOSTS];
	struct timespec timeout = { 0 };
	uint64_t now = clock_ns();
	nfds_t used = 1;

	for (unsigned i = 0; i < run->started; i++)
		for (int j = 0; j < 2; j++) {
			outputs[used] = &run->commands[i].outputs[j];
			polls[used] =
				(struct pollfd){ .fd = outputs[used]->from, .events = POLLIN };
			used += outputs[used]->from >= 0;
		}
	if (until > now) {
		timeout.tv_sec = (time_t)((until - now) / SECOND);
		timeout.tv_nsec = (long)((until - now) % SECOND);
	}
	if (ppoll(polls, used, until == UINT64_MAX ? NULL : &timeout, NULL) <= 0)
		return;
	for (nfds_t i = 1; i < used; i++) {
		if (!polls[i].revents || output_pass(outputs[i]))
			continue;
		if (!run->ending)
			complain(run->lab->name, "cannot write the output: %s", strerror(errno));
		end_all(run, LAB_FAILED);
	}
	if (polls[0].revents && read_signals(run))
		reap(run);
}

/* Everybody but us and the switch has gone: what they have said is in the pipes, and nobody adds to it. */
static void drain(struct run *run)
{
	for (unsigned i = 0; i < run->started; i++)
		for (int j = 0; j < 2; j++)
			while (run->commands[i].outputs[j].from >= 0 &&
			       output_pass(&run->commands[i].outputs[j]))
				;
}

/* The commands have ended: what has happened to their frames. */
static void report(const struct run *run)
{
	const struct trouble *trouble = &run->lab->trouble;
	const struct switch_counts *counts = run->counts;
	uint64_t overruns = 0;

	if (!trouble->asked || !counts)
		return;
	for (unsigned i = 0; i < run->lab->count; i++)
		overruns += network_overruns(&run->lab->hosts[i]);
	fprintf(stderr,
		"%s: %" PRIu64 " frames delivered, %" PRIu64 " lost, %" PRIu64
		" duplicated, %" PRIu64 " corrupted, %" PRIu64 " reordered",
		run->lab->name, counts->carried, counts->lost, counts->duplicated,
		counts->corrupted, counts->reordered);
	if (trouble->rate)
		fprintf(stderr, ", %" PRIu64 " too many for the queue", counts->overflowed);
	if (overruns)
		fprintf(stderr, ", %" PRIu64 " too many for the switch", overruns);
	if (counts->unkept)
		fprintf(stderr, ", %" PRIu64 " too many for the memory", counts->unkept);
	fprintf(stderr, " (--seed=%" PRIu64 ")\n", trouble->seed);
}

static bool set_up(struct run *run)
{
	struct lab *lab = run->lab;
	struct pollfd alive = { .fd = lab->alive };
	sigset_t wanted;

	/* The user's process may have gone before we asked to go with it. */
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	if (poll(&alive, 1, 0))
		return false;
	prctl(PR_SET_NAME, "lab init");

	sigemptyset(&wanted);
	sigaddset(&wanted, SIGCHLD);
	sigaddset(&wanted, SIGTERM);
	sigaddset(&wanted, SIGINT);
	sigaddset(&wanted, SIGQUIT);
	sigaddset(&wanted, SIGHUP);
	sigprocmask(SIG_BLOCK, &wanted, NULL);
	run->signals = signalfd(-1, &wanted, SFD_CLOEXEC | SFD_NONBLOCK);
	run->commands = calloc(lab->count, sizeof(*run->commands));
	if (run->signals < 0 || !run->commands) {
		complain(lab->name, "cannot start: %s", strerror(errno));
		return false;
	}
	return namespaces_enter(lab) && network_make(lab) && (!lab->switched || start_switch(run));
}

int hosts_run(struct lab *lab)
{
	struct run run = { .lab = lab };

	if (!set_up(&run))
		return LAB_FAILED;
	while (!run.ending || is_populated(&run)) {
		uint64_t until = run.ending ? run.end_by : UINT64_MAX;

		while (may_start(&run, &until))
			if (!start_command(&run))
				end_all(&run, LAB_FAILED);
		wait_for_events(&run, until);
		if (is_done(&run))
			end_all(&run, 0);
		if (run.ending && clock_ns() >= run.end_by) {
			kill(-1, SIGKILL);
			run.end_by = clock_ns() + LOOK_NS;
		}
	}
	reap(&run);
	drain(&run);
	report(&run);
	return run.status;
}
