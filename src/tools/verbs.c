/* SPDX-License-Identifier: MIT */
#include "tools/verbs.h"

#include <dlfcn.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "tools/tools.h"

bool verbs_load(struct verbs *verbs, const char *path, const char *name)
{
	void *library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
	const struct {
		void *function;
		const char *symbol, *version;
	} functions[] = {
		{ &verbs->get_device_list, "ibv_get_device_list", "IBVERBS_1.1" },
		{ &verbs->free_device_list, "ibv_free_device_list", "IBVERBS_1.1" },
		{ &verbs->get_device_name, "ibv_get_device_name", "IBVERBS_1.1" },
		{ &verbs->open_device, "ibv_open_device", "IBVERBS_1.1" },
		{ &verbs->close_device, "ibv_close_device", "IBVERBS_1.1" },
		{ &verbs->port_state_str, "ibv_port_state_str", "IBVERBS_1.1" },
		{ &verbs->query_gid_table, "_ibv_query_gid_table", "IBVERBS_1.11" },
	};

	for (size_t i = 0; library && i < sizeof(functions) / sizeof(functions[0]); i++) {
		void *symbol = dlvsym(library, functions[i].symbol, functions[i].version);

		if (!symbol)
			library = NULL;
		else
			memcpy(functions[i].function, &symbol, sizeof(symbol));
	}
	if (!library)
		complain(name, "cannot load uroce's library: %s", dlerror());
	return library;
}

struct ibv_device **verbs_list_devices(const struct verbs *verbs, int *count, const char *name)
{
	struct ibv_device **list;

	errno = 0;
	list = verbs->get_device_list(count);
	if (list && *count)
		return list;
	complain(name, "a program would see no device: %s",
		 errno ? strerror(errno) : "the library's list is empty");
	if (list)
		verbs->free_device_list(list);
	return NULL;
}

int verbs_query_device(struct ibv_context *context, struct ibv_device_attr_ex *attr)
{
	struct verbs_context *verbs = verbs_get_ctx_op(context, query_device_ex);

	memset(attr, 0, sizeof(*attr));
	return verbs ? verbs->query_device_ex(context, NULL, attr, sizeof(*attr)) : EOPNOTSUPP;
}

int verbs_query_port(struct ibv_context *context, uint8_t port, struct ibv_port_attr *attr)
{
	struct verbs_context *verbs = verbs_get_ctx_op(context, query_port);

	memset(attr, 0, sizeof(*attr));
	return verbs ? verbs->query_port(context, port, attr, sizeof(*attr)) : EOPNOTSUPP;
}
