/* SPDX-License-Identifier: MIT */
/* What a range of this process's address space allows. */
#ifndef UROCE_NIC_VMA_H
#define UROCE_NIC_VMA_H

#include <stdbool.h>
#include <stdint.h>

enum vma_verdict { VMA_OK, VMA_UNMAPPED, VMA_PROTECTED };

/* Whether every page of [addr, addr + length) is mapped and readable and, with write, writable.
 * Touches no page. Where /proc is not there, only whether it is mapped. */
enum vma_verdict vma_check(uint64_t addr, uint64_t length, bool write);

/* A mapping of this process. */
struct vma {
	uint64_t start, end;
	int prot; /* PROT_READ | … */
	bool shared;
	bool is_stack;	 /* of the first thread */
	uint64_t offset; /* bytes, in the file */
	uint64_t inode;	 /* 0: anonymous */
	uint32_t major, minor;
};

/*
 * Looks at mappings in the order of their addresses. vma_open() gives a descriptor, -1 where there is none to be had;
 * vma_find() the mapping that holds addr or else the next one, false behind the last.
 */
int vma_open(void);
bool vma_find(int maps, uint64_t addr, struct vma *vma);
/* Whether finding costs the same with any number of mappings, and not a reading of all before it. Known after the first. */
bool vma_is_quick(void);
/* How many mappings there are. */
uint64_t vma_count(int maps);

#endif
