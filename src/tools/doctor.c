/* SPDX-License-Identifier: MIT */
/*
 * uroce doctor: what of this machine limits uroce, and what to do about it. It tries things rather than guess from
 * versions; each check prints one item.
 *
 *   ok       works as it should
 *   note     works, but slower or for fewer; what would change that
 *   problem  programs will not run until it is mended
 */
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <ifaddrs.h>
#include <linux/membarrier.h>
#include <linux/userfaultfd.h>
#include <net/if.h>
#include <sched.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <sys/un.h>
#include <sys/utsname.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tools/libraries.h"
#include "tools/program.h"
#include "tools/tools.h"
#include "tools/verbs.h"
