/* SPDX-License-Identifier: MIT */
#include "tools/program.h"

#include <byteswap.h>
#include <elf.h>
#include <errno.h>
#include <fcntl.h>
#include <link.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/wait.h>
#include <sys/xattr.h>
#include <unistd.h>

#include "tools/libraries.h"

#define OWN_IMAGE    "/proc/self/exe"
#define SCRIPT_LINE  256 /* bytes of a script's first line that the kernel looks at */
#define SCRIPT_DEPTH 5	 /* scripts interpreted by scripts: the kernel's limit */
#define HEADER_START 20	 /* e_ident, e_type, e_machine: alike in every class */

/* The header of an ELF file. */
struct header {
	ElfW(Ehdr) elf;		    /* past HEADER_START only if the file is of our architecture */
	char interpreter[PATH_MAX]; /* PT_INTERP, or "" */
};

static bool same_arch(const ElfW(Ehdr) * a, const ElfW(Ehdr) * b)
{
	return a->e_ident[EI_CLASS] == b->e_ident[EI_CLASS] &&
	       a->e_ident[EI_DATA] == b->e_ident[EI_DATA] && a->e_machine == b->e_machine;
}

/* False if the file is not ELF. */
static bool read_elf_header(int fd, ElfW(Ehdr) * elf)
{
	memset(elf, 0, sizeof(*elf));
	return pread(fd, elf, sizeof(*elf), 0) >= HEADER_START &&
	       !memcmp(elf->e_ident, ELFMAG, SELFMAG);
}

/* Fills in the interpreter of a file of our own architecture. */
static void read_interpreter(int fd, struct header *header)
{
	header->interpreter[0] = '\0';
	for (unsigned i = 0; i < header->elf.e_phnum; i++) {
		ElfW(Phdr) segment;
		ssize_t length;

		if (pread(fd, &segment, sizeof(segment),
			  header->elf.e_phoff + (off_t)i * sizeof(segment)) != sizeof(segment))
			return;
		if (segment.p_type != PT_INTERP || segment.p_filesz >= PATH_MAX)
			continue;
		length = pread(fd, header->interpreter, segment.p_filesz, segment.p_offset);
		header->interpreter[length > 0 ? length : 0] = '\0';
		return;
	}
}

static bool read_own_header(struct header *header)
{
	int fd = open(OWN_IMAGE, O_RDONLY | O_CLOEXEC);
	bool found = fd >= 0 && read_elf_header(fd, &header->elf);

	if (found)
		read_interpreter(fd, header);
	if (fd >= 0)
		close(fd);
	return found;
}

static void name_arch(const ElfW(Ehdr) * elf, bool swapped, char arch[32])
{
	static const struct {
		ElfW(Half) machine;
		const char *name;
	} machines[] = {
		{ EM_386, "x86" },	 { EM_X86_64, "x86-64" }, { EM_ARM, "arm" },
		{ EM_AARCH64, "arm64" }, { EM_RISCV, "risc-v" },  { EM_PPC64, "ppc64" },
		{ EM_S390, "s390" },	 { EM_MIPS, "mips" },	  { EM_LOONGARCH, "loongarch" },
	};
	unsigned bits = elf->e_ident[EI_CLASS] == ELFCLASS64 ? 64 : 32;
	ElfW(Half) machine = swapped ? bswap_16(elf->e_machine) : elf->e_machine;

	for (size_t i = 0; i < sizeof(machines) / sizeof(machines[0]); i++) {
		if (machines[i].machine == machine) {
			snprintf(arch, 32, "%s, %u bits", machines[i].name, bits);
			return;
		}
	}
	snprintf(arch, 32, "ELF machine %u, %u bits", machine, bits);
}

void program_own_arch(char arch[32])
{
	struct header own;

	snprintf(arch, 32, "this machine");
	if (read_own_header(&own))
		name_arch(&own.elf, false, arch);
}

static bool same_file(const char *a, const char *b)
{
	struct stat sa, sb;

	return !stat(a, &sa) && !stat(b, &sb) && sa.st_dev == sb.st_dev && sa.st_ino == sb.st_ino;
}

static enum program_kind elf_kind(int fd, struct program *program, struct header *header)
{
	struct header own;

	if (!read_own_header(&own))
		return PROGRAM_OPAQUE;
	if (!same_arch(&header->elf, &own.elf)) {
		name_arch(&header->elf, header->elf.e_ident[EI_DATA] != own.elf.e_ident[EI_DATA],
			  program->arch);
		return PROGRAM_FOREIGN;
	}
	if (header->elf.e_type != ET_EXEC && header->elf.e_type != ET_DYN)
		return PROGRAM_OPAQUE;
	read_interpreter(fd, header);
	if (header->interpreter[0])
		return PROGRAM_DYNAMIC;
	/* The loader, called by hand to start a program, has no loader of its own. */
	return same_file(program->image, own.interpreter) ? PROGRAM_OPAQUE : PROGRAM_STATIC;
}

/* If `line`, the start of a file, is a script's, leaves the interpreter that it names in path. */
static bool script_interpreter(char *line, char path[PATH_MAX])
{
	char *start;

	if (strncmp(line, "#!", 2))
		return false;
	start = line + 2 + strspn(line + 2, " \t");
	start[strcspn(start, " \t\n")] = '\0';
	strcpy(path, start);
	return *start;
}

/* Can the file be executed? 0, or ENOENT or EACCES. */
static int executable(const char *path)
{
	struct stat st;

	if (stat(path, &st))
		return errno == EACCES ? EACCES : ENOENT;
	if (!S_ISREG(st.st_mode) || faccessat(AT_FDCWD, path, X_OK, AT_EACCESS))
		return EACCES;
	return 0;
}

/* Follows scripts from program->path to the image, and says of what kind that is. */
static int find_image(struct program *program)
{
	strcpy(program->image, program->path);
	for (int depth = 0; depth <= SCRIPT_DEPTH; depth++) {
		char line[SCRIPT_LINE + 1] = "";
		struct header header;
		int fd = open(program->image, O_RDONLY | O_CLOEXEC);
		int err;

		program->kind = PROGRAM_OPAQUE;
		if (fd < 0)
			return 0;
		if (read_elf_header(fd, &header.elf)) {
			program->kind = elf_kind(fd, program, &header);
			close(fd);
			return 0;
		}
		if (pread(fd, line, SCRIPT_LINE, 0) < 0)
			line[0] = '\0';
		close(fd);
		if (!script_interpreter(line, program->image))
			return 0;
		err = executable(program->image);
		if (err)
			return err;
	}
	return 0;
}

int program_find(struct program *program, const char *name)
{
	const char *search = getenv("PATH");
	int result = ENOENT;

	program->arch[0] = '\0';
	program->image[0] = '\0';
	if (!*name || strlen(name) >= PATH_MAX)
		return ENOENT;
	if (strchr(name, '/')) {
		strcpy(program->path, name);
		result = executable(name);
		return result ? result : find_image(program);
	}

	for (const char *dir = search ? search : "/bin:/usr/bin";; dir++) {
		size_t length = strcspn(dir, ":");
		int err = ENOENT;

		/* An empty element is the working directory. */
		if (snprintf(program->path, PATH_MAX, "%.*s/%s", length ? (int)length : 1,
			     length ? dir : ".", name) < PATH_MAX)
			err = executable(program->path);
		if (!err)
			return find_image(program);
		/* A directory that may not even be searched says nothing of the program. */
		if (err == EACCES && !access(program->path, F_OK))
			result = EACCES;
		dir += length;
		if (!*dir)
			return result;
	}
}

bool program_elevates(const struct program *program)
{
	struct statvfs fs;
	struct stat st;
	uid_t uid = geteuid();
	gid_t gid = getegid();
	bool honoured;

	if (stat(program->image, &st) || statvfs(program->image, &fs))
		return false;
	honoured = !(fs.f_flag & ST_NOSUID);
	if (honoured && prctl(PR_GET_NO_NEW_PRIVS, 0, 0, 0, 0) != 1) {
		if (st.st_mode & S_ISUID)
			uid = st.st_uid;
		if ((st.st_mode & (S_ISGID | S_IXGRP)) == (S_ISGID | S_IXGRP))
			gid = st.st_gid;
	}
	/* The kernel tells the loader so (AT_SECURE) when the ids in force are not the real ones. */
	if (uid != getuid() || gid != getgid())
		return true;
	/* To root a file's capabilities add nothing. */
	return getuid() && honoured && getxattr(program->image, "security.capability", NULL, 0) > 0;
}

/* What the loader lists. */
struct listing {
	bool other, rdmacm; /* a library of one of the names is not ours; there is a librdmacm */
};

/* One line of the loader's list: NAME => PATH (ADDRESS), or PATH (ADDRESS). */
static void read_listed(char *line, const struct libraries *libs, struct listing *listing)
{
	char *path = strstr(line, " => ");
	char *address = NULL, *base;
	bool verbs, rdmacm;

	path = path ? path + 4 : line + strspn(line, "\t ");
	for (char *at = path; (at = strstr(at, " (0x")); at++)
		address = at;
	if (!address)
		return;
	*address = '\0';
	base = strrchr(path, '/');
	verbs = base && !strncmp(base, "/libibverbs.so", 14);
	rdmacm = base && !strncmp(base, "/librdmacm.so", 13);
	if (!verbs && !rdmacm)
		return;
	listing->rdmacm |= rdmacm;
	listing->other |= !same_file(path, verbs ? libs->verbs : libs->rdmacm);
}

/* Does what stands before `end` end in the path? */
static bool ends_in(const char *line, const char *end, const char *path)
{
	size_t length = strlen(path);

	return end - line >= (ptrdiff_t)length && !strncmp(end - length, path, length);
}

/* One of the loader's complaints: PROGRAM: LIBRARY: version `NODE' not found (required by FILE). */
static void read_complaint(const char *line, const struct libraries *libs, struct loading *loading)
{
	const char *node = strstr(line, ": version `");

	if (!node || loading->missing[0])
		return;
	if (ends_in(line, node, libs->verbs))
		loading->library = "libibverbs.so.1";
	else if (ends_in(line, node, libs->rdmacm))
		loading->library = "librdmacm.so.1";
	else
		return;
	sscanf(node, ": version `%255[^']' not found (required by %4095[^)])", loading->missing,
	       loading->needer);
}

/* The child: becomes the loader, which lists what it would load and runs nothing. */
static void __attribute__((noreturn))
ask_loader(const char *loader, const char *image, const struct libraries *libs,
	   enum preload preload, int out)
{
	char *path = path_list_with(getenv("LD_LIBRARY_PATH"), libs->dir);
	char *first = path_list_with_preload(getenv("LD_PRELOAD"), libs, preload);
	int null = open("/dev/null", O_RDONLY);

	unsetenv("LD_DEBUG");
	if (!path || !first || setenv("LD_LIBRARY_PATH", path, 1) ||
	    (preload && setenv("LD_PRELOAD", first, 1)) || null < 0 || dup2(null, 0) < 0 ||
	    dup2(out, 1) < 0 || dup2(out, 2) < 0)
		_exit(1);
	execl(loader, loader, "--list", image, (char *)NULL);
	_exit(1);
}

int program_loading(const char *image, const struct libraries *libs, enum preload preload,
		    struct loading *loading)
{
	struct listing listing = { 0 };
	char real[PATH_MAX];
	struct header own;
	char *line = NULL;
	size_t size = 0;
	int pipe_fds[2];
	FILE *list;
	pid_t child;

	memset(loading, 0, sizeof(*loading));
	/* $ORIGIN counts from the file itself, not from a link to it. And it is our own loader that is asked: the file
	 * may name one that we had better not run. */
	if (!realpath(image, real) || !read_own_header(&own) || pipe2(pipe_fds, O_CLOEXEC))
		return errno;
	child = fork();
	if (!child)
		ask_loader(own.interpreter, real, libs, preload, pipe_fds[1]);
	close(pipe_fds[1]);
	list = child < 0 ? NULL : fdopen(pipe_fds[0], "r");
	if (!list) {
		int err = errno;

		close(pipe_fds[0]);
		return err;
	}
	while (getline(&line, &size, list) > 0) {
		read_complaint(line, libs, loading);
		read_listed(line, libs, &listing);
	}
	if (listing.other)
		loading->preload = listing.rdmacm ? PRELOAD_BOTH : PRELOAD_VERBS;
	free(line);
	fclose(list);
	while (waitpid(child, NULL, 0) < 0 && errno == EINTR)
		;
	return 0;
}
