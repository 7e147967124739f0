/* SPDX-License-Identifier: MIT */
/*
 * uroce run: starts a program that sees the device. It becomes the program, so that exit status, signals, terminal and
 * process id are the program's own; what the program starts inherits the environment.
 *
 * The loader's path is enough for most. A program that insists on another libibverbs.so.1 or librdmacm.so.1
 * (DT_RPATH, or a path in DT_NEEDED) gets ours preloaded; not everything, because a preload disturbs some (a program built with a sanitizer wants
 * to be first, a loader of another architecture complains). A program that cannot be served is not started: one line says why.
 *
 * Exit status when the program is not started: 125 our own failure, 126 it cannot be served or executed, 127 not found.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "tools/libraries.h"
#include "tools/program.h"
#include "tools/tools.h"
#include "tools/verbs.h"


static const char doc[] =
	"Start PROGRAM so that it, and all that it starts, sees the devices of uroce.\v"
	"The exit status is PROGRAM's, or 125 if uroce itself fails, 126 if PROGRAM cannot be "
	"executed or served, 127 if it is not found.\n"
	"\n"
	"Programs that are statically linked, that gain privileges (setuid, setgid, file "
	"capabilities), that are for another architecture, or that need a newer rdma-core's "
	"libraries cannot be served. Programs that clear the environment (env -i, sudo) hide the "
	"devices from what they start: put uroce run after them.";

static error_t parse(int key, char *arg, struct argp_state *state)
{
	(void)arg;
	switch (key) {
	case ARGP_KEY_INIT:
		state->child_inputs[0] = NULL;
		return 0;
	case ARGP_KEY_ARG:
		/* The rest is the program's. */
		*(int *)state->input = state->next - 1;
		state->next = state->argc;
		return 0;
	case ARGP_KEY_NO_ARGS:
		argp_error(state, "PROGRAM is missing");
		return EINVAL;
	default:
		return ARGP_ERR_UNKNOWN;
	}
}

static int not_found(const char *name, const struct program *program, const char *file, int err)
{
	if (program->image[0] && strcmp(program->image, program->path)) {
		complain(name, "%s: its interpreter %s: %s", file, program->image, strerror(err));
		return STATUS_CANNOT_RUN;
	}
	complain(name, "%s: %s", file, err == ENOENT ? "not found" : strerror(err));
	return err == ENOENT ? STATUS_NOT_FOUND : STATUS_CANNOT_RUN;
}

/* What the first of a wrapper's arguments (of timeout, env, strace, mpirun, ...) that names a program with such a need needs. */
static enum preload preload_of_arguments(char **argv, const struct libraries *libs)
{
	struct loading loading;
	struct program program;

	for (; *argv; argv++)
		if (!program_find(&program, *argv) && program.kind == PROGRAM_DYNAMIC &&
		    !program_loading(program.image, libs, PRELOAD_NOTHING, &loading) && loading.preload)
			return loading.preload;
	return PRELOAD_NOTHING;
}

/* Decides how to serve the program. 0, or the exit status after one line that says why it can't be served. */
static int examine(const char *name, const char *file, const struct program *program,
		   const struct libraries *libs, enum preload *preload)
{
	struct loading loading = { 0 };
	char arch[32];
	int err;

	if (program->kind == PROGRAM_FOREIGN) {
		program_own_arch(arch);
		complain(name,
			 "%s is for another architecture (%s) than uroce's libraries (%s); "
			 "use a build of it for the latter",
			 file, program->arch, arch);
		return STATUS_CANNOT_RUN;
	}
	if (program->kind == PROGRAM_STATIC) {
		complain(name,
			 "%s is statically linked, so it loads no libibverbs.so.1 that uroce "
			 "could stand in for; link it dynamically, or, if it only starts other "
			 "programs, give it the output of 'uroce env'",
			 file);
		return STATUS_CANNOT_RUN;
	}
	if (program_elevates(program)) {
		complain(name,
			 "%s gains privileges when it starts (setuid, setgid or file "
			 "capabilities), so the loader ignores where uroce's libraries are; run a "
			 "copy of it without them, or run uroce as the user that it becomes",
			 file);
		return STATUS_CANNOT_RUN;
	}
	if (program->kind == PROGRAM_OPAQUE)
		return 0;

	err = program_loading(program->image, libs, PRELOAD_NOTHING, &loading);
	if (!err && loading.preload) {
		*preload = loading.preload;
		err = program_loading(program->image, libs, *preload, &loading);
	}
	if (err) {
		complain(name, "cannot ask the loader about %s: %s", file, strerror(err));
		return STATUS_FAILED;
	}
	if (loading.missing[0]) {
		complain(name,
			 "%s needs version %s of %s (for %s), which uroce does "
			 "not have: it is built for another rdma-core; uroce serves clients of "
			 "rdma-core 39 to 56",
			 file, loading.missing, loading.library, loading.needer);
		return STATUS_CANNOT_RUN;
	}
	return 0;
}

/* A program that sees no device may say just that, or nothing: what hides it is said before. */
static bool sees_a_device(const char *name, const struct libraries *libs)
{
	struct verbs verbs;
	struct ibv_device **list;
	int count;

	if (!verbs_load(&verbs, libs->verbs, name))
		return false;
	list = verbs_list_devices(&verbs, &count, name);
	if (list)
		verbs.free_device_list(list);
	return list;
}

static int set_environment(const char *name, const struct libraries *libs, enum preload preload)
{
	char *path = path_list_with(getenv("LD_LIBRARY_PATH"), libs->dir);
	char *first = path_list_with_preload(getenv("LD_PRELOAD"), libs, preload);
	int status = STATUS_FAILED;

	if (preload && strchr(libs->verbs, ' '))
		complain(name,
			 "this program needs uroce's libraries preloaded, and the loader "
			 "preloads nothing with a blank in its name: %s; install uroce elsewhere",
			 libs->verbs);
	else if (!path || !first || setenv("LD_LIBRARY_PATH", path, 1) ||
		 (preload && setenv("LD_PRELOAD", first, 1)))
		complain(name, "%s", strerror(ENOMEM));
	else
		status = 0;
	free(path);
	free(first);
	return status;
}

int run_program(const char *name, char **argv, bool unserved)
{
	struct libraries libs;
	struct program program;
	enum preload preload = PRELOAD_NOTHING;
	int status, err;

	if (!libraries_find(&libs, name))
		return STATUS_FAILED;
	err = program_find(&program, argv[0]);
	if (err)
		return not_found(name, &program, argv[0], err);
	status = examine(name, argv[0], &program, &libs, &preload);
	if (status && !(unserved && status == STATUS_CANNOT_RUN))
		return status;
	if (status)
		complain(name, "%s is started all the same, and sees no device", argv[0]);
	if (!sees_a_device(name, &libs))
		return STATUS_FAILED;
	settings_warn(name);
	/* At its end one line, if anything failed. */
	if (setenv("UROCE_EXPLAIN", "line", 0)) {
		complain(name, "%s", strerror(errno));
		return STATUS_FAILED;
	}
	if (!preload)
		preload = preload_of_arguments(argv + 1, &libs);
	status = set_environment(name, &libs, preload);
	if (status)
		return status;

	execvp(program.path, argv);
	err = errno;
	complain(name, "%s: cannot be executed: %s", argv[0], strerror(err));
	return err == ENOENT ? STATUS_NOT_FOUND : STATUS_CANNOT_RUN;
}

int cmd_run(int argc, char **argv)
{
	static const struct argp_child children[] = { { .argp = &settings_argp }, { 0 } };
	static const struct argp argp = { .parser = parse,
					  .args_doc = "[--] PROGRAM [ARGUMENTS]",
					  .doc = doc,
					  .children = children };
	int first = 0;

	argp_err_exit_status = STATUS_FAILED;
	if (argp_parse(&argp, argc, argv, ARGP_IN_ORDER, NULL, &first) || !settings_check(argv[0]))
		return STATUS_FAILED;
	return run_program(argv[0], argv + first, false);
}
