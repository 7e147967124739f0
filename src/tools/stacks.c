/* SPDX-License-Identifier: MIT */
/* Call stacks with functions and lines. See stacks.h. */
#include "tools/stacks.h"

#include <dwarf.h>
#include <elfutils/libdwfl.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/types.h>
#include <unistd.h>

#include "observe/watch.h"

struct stacks {
	Dwfl *dwfl; /* NULL: not even names are known */
	struct watch watch;
};

static const Dwfl_Callbacks callbacks = {
	.find_elf = dwfl_build_id_find_elf,
	.find_debuginfo = dwfl_standard_find_debuginfo,
	.section_address = dwfl_offline_section_address,
};

/* Files that are gone, or are no ELF files, have addresses only. */
static Dwfl *open_files(const struct watch *watch)
{
	Dwfl *dwfl = dwfl_begin(&callbacks);

	if (!dwfl)
		return NULL;
	dwfl_report_begin(dwfl);
	for (unsigned i = 0; i < WATCH_MODULES; i++) {
		const struct watch_module *module = &watch->modules[i];

		if (module->ready && strnlen(module->path, WATCH_PATH) < WATCH_PATH)
			dwfl_report_elf(dwfl, module->path, module->path, -1, module->bias, true);
	}
	dwfl_report_end(dwfl, NULL, NULL);
	return dwfl;
}

struct stacks *stacks_read(int segment, uint64_t watch)
{
	struct stacks *stacks = watch ? malloc(sizeof(*stacks)) : NULL;

	if (!stacks)
		return NULL;
	if (pread(segment, &stacks->watch, sizeof(stacks->watch), (off_t)watch) !=
	    sizeof(stacks->watch)) {
		free(stacks);
		return NULL;
	}
	stacks->dwfl = open_files(&stacks->watch);
	return stacks;
}

const struct watch *stacks_watch(const struct stacks *stacks)
{
	return &stacks->watch;
}

void stacks_free(struct stacks *stacks)
{
	if (!stacks)
		return;
	if (stacks->dwfl)
		dwfl_end(stacks->dwfl);
	free(stacks);
}

/* One line of a stack. */
struct printer {
	FILE *to;
	unsigned place;
	bool done; /* main was printed */
};

/* The verbs' headers are a part of the verbs: what calls them is behind it. */
static bool is_header(const char *source)
{
	return strstr(source, "/infiniband/verbs.h") || strstr(source, "/rdma/rdma_");
}

static void print_line(struct printer *printer, const char *function, const char *source, int line)
{
	if (!printer->place && is_header(source))
		return;
	fprintf(printer->to, "      #%u %s at %s:%d\n", printer->place++, function, source, line);
	printer->done = !strcmp(function, "main");
}

static const char *source_of_call(Dwarf_Die *unit, Dwarf_Die *inlined, int *line)
{
	Dwarf_Attribute attribute;
	Dwarf_Word file = 0, number = 0;
	Dwarf_Files *files;
	size_t count;

	if (dwarf_formudata(dwarf_attr(inlined, DW_AT_call_file, &attribute), &file) ||
	    dwarf_formudata(dwarf_attr(inlined, DW_AT_call_line, &attribute), &number) ||
	    dwarf_getsrcfiles(unit, &files, &count) || file >= count)
		return NULL;
	*line = (int)number;
	return dwarf_filesrc(files, file, NULL, NULL);
}

/* A frame may be several functions, of which all but the last were inlined. False if it is not known which. */
static bool print_functions(struct printer *printer, Dwfl_Module *module, uint64_t pc,
			    const char *source, int line)
{
	Dwarf_Die *scopes = NULL, *parents = NULL, *unit;
	Dwarf_Addr bias = 0;
	bool printed = false;
	int count;

	unit = dwfl_module_addrdie(module, pc, &bias);
	if (!unit || dwarf_getscopes(unit, pc - bias, &scopes) <= 0)
		return false;
	count = dwarf_getscopes_die(&scopes[0], &parents);
	for (int i = 0; i < count && source && !printer->done; i++) {
		int tag = dwarf_tag(&parents[i]);
		const char *name = dwarf_diename(&parents[i]);

		if (tag != DW_TAG_inlined_subroutine && tag != DW_TAG_subprogram)
			continue;
		print_line(printer, name ? name : "?", source, line);
		printed = true;
		if (tag == DW_TAG_subprogram)
			break;
		source = source_of_call(unit, &parents[i], &line);
	}
	free(parents);
	free(scopes);
	return printed;
}

/* "main at program.c:12"; without debug information "main+0x1c (/usr/bin/program+0x4711)". */
static void print_frame(struct printer *printer, const struct stacks *stacks, uint64_t address)
{
	/* What is known of a call is known of its last byte: behind it another line may begin. */
	uint64_t pc = address - 1;
	const struct watch_module *file = watch_module_of(&stacks->watch, pc);
	Dwfl_Module *module = stacks->dwfl ? dwfl_addrmodule(stacks->dwfl, pc) : NULL;
	Dwfl_Line *line = module ? dwfl_module_getsrc(module, pc) : NULL;
	const char *function = NULL, *source;
	GElf_Off offset = 0;
	GElf_Sym symbol;
	int number = 0;

	source = line ? dwfl_lineinfo(line, NULL, &number, NULL, NULL, NULL) : NULL;
	if (source && print_functions(printer, module, pc, source, number))
		return;
	if (module)
		function = dwfl_module_addrinfo(module, pc, &offset, &symbol, NULL, NULL, NULL);
	fprintf(printer->to, "      #%u ", printer->place++);
	if (function)
		fprintf(printer->to, "%s+0x%llx (", function, (unsigned long long)offset + 1);
	if (file)
		fprintf(printer->to, "%s+0x%llx", file->path,
			(unsigned long long)(address - file->bias));
	else
		fprintf(printer->to, "0x%llx", (unsigned long long)address);
	fprintf(printer->to, function ? ")\n" : "\n");
	printer->done = function && !strcmp(function, "main");
}

/* librdmacm.so.1 beside our library: what called the verb is behind it. */
static bool is_ours(const struct stacks *stacks, uint64_t address)
{
	const struct watch_module *file = watch_module_of(&stacks->watch, address - 1);
	const char *name = file ? strrchr(file->path, '/') : NULL;

	return name && !strcmp(name, "/librdmacm.so.1");
}

void stacks_print(FILE *to, struct stacks *stacks, uint32_t number, const char *title)
{
	const struct watch_stack *stack = watch_get(&stacks->watch, number);
	unsigned count = stack ? stack->count : 0, first = 0;
	struct printer printer = { .to = to };

	if (!count || count > WATCH_FRAMES)
		return;
	while (first < count - 1 && is_ours(stacks, stack->frames[first]))
		first++;
	fprintf(to, "    %s\n", title);
	for (unsigned i = first; i < count && !printer.done; i++)
		print_frame(&printer, stacks, stack->frames[i]);
}
