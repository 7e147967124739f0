/* SPDX-License-Identifier: MIT */
/*
 * A verbs program: prints the file of the libibverbs.so.1 that its calls go to; with RDMACM also that of the librdmacm.so.1.
 */
#include <dlfcn.h>
#include <stdio.h>

void *ibv_get_device_list(int *count);
void ibv_of_the_future(void);
const char *rdma_event_str(int event);

int main(int argc, char **argv)
{
	void *(*volatile call)(int *) = ibv_get_device_list;
	Dl_info info;

	(void)argv;
#ifdef NEWER
	if (argc > 100)
		ibv_of_the_future();
#else
	(void)argc;
#endif
	if (!dladdr((void *)call, &info))
		return 1;
	puts(info.dli_fname);
#ifdef RDMACM
	const char *(*volatile name)(int) = rdma_event_str;

	if (!dladdr((void *)name, &info))
		return 1;
	puts(info.dli_fname);
#endif
	return 0;
}
