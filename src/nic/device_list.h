/* SPDX-License-Identifier: MIT */
/*
 * UROCE_DEVICES: a list of name[:interface[+interface...]] separated by commas, as in
 * "uroce0:eth0+eth1,uroce1:lo". The library makes its devices of it, and the command says what is
 * wrong with it; nobody else reads it.
 */
#ifndef UROCE_NIC_DEVICE_LIST_H
#define UROCE_NIC_DEVICE_LIST_H

#include <stddef.h>

struct device_entry {
	const char *name;	 /* one that ibv_device has room for */
	const char **interfaces; /* NULL at the end; NULL: all. They need not exist. */
};

struct device_list {
	unsigned count; /* not 0 */
	struct device_entry *entries;
	char *text; /* the setting, cut into the names above */
};

/* Reads a setting; NULL or "" stands for uroce0 with all interfaces. 0, or ENOMEM, or EINVAL with
 * the part that is wrong named in fault. What succeeds is to be freed by device_list_free. */
int device_list_parse(struct device_list *list, const char *setting, char *fault, size_t size);

void device_list_free(struct device_list *list);

#endif
