/* SPDX-License-Identifier: MIT */
/* A doubly linked list with a head node, as in the kernel. The caller locks. */
#ifndef UROCE_NIC_LIST_H
#define UROCE_NIC_LIST_H

#include <stdbool.h>
#include <stddef.h>

struct list {
	struct list *next, *prev;
};

static inline void list_init(struct list *head)
{
	head->next = head->prev = head;
}

static inline bool list_empty(const struct list *head)
{
	return head->next == head;
}

static inline void list_add_tail(struct list *head, struct list *node)
{
	node->prev = head->prev;
	node->next = head;
	head->prev->next = node;
	head->prev = node;
}

/* Leaves the node initialised, so that removing it again does nothing. */
static inline void list_del(struct list *node)
{
	node->prev->next = node->next;
	node->next->prev = node->prev;
	list_init(node);
}

#define list_entry(node, type, member) ((type *)((char *)(node)-offsetof(type, member)))
#define list_for_each(node, head) \
	for (struct list *node = (head)->next; node != (head); node = node->next)
#define list_for_each_safe(node, tmp, head)                                       \
	for (struct list *node = (head)->next, *tmp = node->next; node != (head); \
	     node = tmp, tmp = node->next)

#endif
