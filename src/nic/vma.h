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

#endif
