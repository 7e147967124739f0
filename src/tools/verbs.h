/* SPDX-License-Identifier: MIT */
/*
 * Our libibverbs.so.1 as a program sees it: loaded by its path and called through the versions that programs bind to.
 * The command is not linked to it, so that `env` does not load it.
 */
#ifndef UROCE_TOOLS_VERBS_H
#define UROCE_TOOLS_VERBS_H

#include <stdbool.h>

#include <infiniband/verbs.h>

struct verbs {
	__typeof__(&ibv_get_device_list) get_device_list;
	__typeof__(&ibv_free_device_list) free_device_list;
	__typeof__(&ibv_get_device_name) get_device_name;
	__typeof__(&ibv_open_device) open_device;
	__typeof__(&ibv_close_device) close_device;
	__typeof__(&ibv_port_state_str) port_state_str;
	__typeof__(&_ibv_query_gid_table) query_gid_table;
};

/* Loads the library. False after one line on stderr in the name of the subcommand. */
bool verbs_load(struct verbs *verbs, const char *path, const char *name);

/* The devices that a program would see, to be freed by free_device_list, and how many. NULL after one line on stderr if
 * there is none. */
struct ibv_device **verbs_list_devices(const struct verbs *verbs, int *count, const char *name);

/* ibv_query_device_ex and ibv_query_port as their macros call them: through the context. 0, or errno. */
int verbs_query_device(struct ibv_context *context, struct ibv_device_attr_ex *attr);
int verbs_query_port(struct ibv_context *context, uint8_t port, struct ibv_port_attr *attr);

#endif
