/* SPDX-License-Identifier: MIT */
/* What UROCE_DEVICES says. See device_list.h. */
#include "nic/device_list.h"

#include <ctype.h>
#include <errno.h>
#include <net/if.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <infiniband/verbs.h>

#define SHOWN 80 /* bytes of a name that is wrong, at most */

struct parser {
	struct device_list *list; /* count: the entries that are complete */
	char *fault;
	size_t size;
};

/* A name becomes a file's name. */
static bool name_is_valid(const char *name)
{
	if (!*name || *name == '.' || strlen(name) >= IBV_SYSFS_NAME_MAX)
		return false;
	for (; *name; name++)
		if (!isalnum((unsigned char)*name) && !strchr("_-.", *name))
			return false;
	return true;
}

static int parse_name(struct parser *parser, struct device_entry *entry, const char *name)
{
	struct device_list *list = parser->list;

	if (!name_is_valid(name)) {
		snprintf(
			parser->fault, parser->size,
			"'%.*s' is no device's name, which is 1 to %d letters, digits, '_', '-' and "
			"'.', the latter not first",
			SHOWN, name, IBV_SYSFS_NAME_MAX - 1);
		return EINVAL;
	}
	for (unsigned i = 0; i < list->count; i++) {
		if (strcmp(list->entries[i].name, name))
			continue;
		snprintf(parser->fault, parser->size, "device '%s' is named twice", name);
		return EINVAL;
	}
	entry->name = name;
	return 0;
}

/* Cuts "eth0+eth1". */
static int parse_interfaces(struct parser *parser, struct device_entry *entry, char *text)
{
	unsigned count = 0;

	entry->interfaces = calloc(strlen(text) + 2, sizeof(*entry->interfaces));
	if (!entry->interfaces)
		return ENOMEM;
	for (char *name; (name = strsep(&text, "+"));) {
		if (!*name || strlen(name) >= IF_NAMESIZE) {
			snprintf(parser->fault, parser->size,
				 "'%.*s' is no interface's name (of device '%s'), which is 1 to %d "
				 "characters",
				 SHOWN, name, entry->name, IF_NAMESIZE - 1);
			return EINVAL;
		}
		entry->interfaces[count++] = name;
	}
	return 0;
}

static int parse_entry(struct parser *parser, char *text)
{
	struct device_entry *entry = &parser->list->entries[parser->list->count];
	int error = parse_name(parser, entry, strsep(&text, ":"));

	if (!error && text)
		error = parse_interfaces(parser, entry, text);
	if (error)
		free(entry->interfaces);
	else
		parser->list->count++;
	return error;
}

int device_list_parse(struct device_list *list, const char *setting, char *fault, size_t size)
{
	struct parser parser = { .list = list, .fault = fault, .size = size };
	size_t room = 1;
	int error;

	*list = (struct device_list){ .text = strdup(setting && *setting ? setting : "uroce0") };
	for (const char *c = list->text; c && *c; c++)
		room += *c == ',';
	list->entries = calloc(room, sizeof(*list->entries));
	error = list->text && list->entries ? 0 : ENOMEM;
	for (char *rest = list->text; !error && rest;)
		error = parse_entry(&parser, strsep(&rest, ","));
	if (error)
		device_list_free(list);
	return error;
}

void device_list_free(struct device_list *list)
{
	for (unsigned i = 0; i < list->count; i++)
		free(list->entries[i].interfaces);
	free(list->entries);
	free(list->text);
	*list = (struct device_list){ 0 };
}
