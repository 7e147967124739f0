/* SPDX-License-Identifier: MIT */
/*
 * Connections to other hosts whose process is killed: a kernel would tell the other end. Here another process of the user does, if
 * there is one that uses connections by address: each attaches to a few others (local/attach.h), so that either hears of the
 * other's end, and writes down in its segment what is to be said.
 */
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "cm/engine.h"
#include "local/attach.h"
#include "nic/abstract_name.h"
#include "nic/descriptor.h"
#include "nic/nic.h"
#include "roce/port.h"

/* How many are looked for: one may be of another version, or die with us. */
#define HEIRS 3

static struct seg_wills *more_wills(struct cm *cm)
{
	struct nic_segment *seg = cm->nic->seg;
	uint64_t offset = arena_alloc(&cm->nic->arena, sizeof(struct seg_wills));

	if (!offset)
		return NULL;
	/* In front: what was there follows. */
	atomic_store(&((struct seg_wills *)seg_at(seg, offset))->next, atomic_load(&seg->hdr.wills));
	atomic_store_explicit(&seg->hdr.wills, offset, memory_order_release);
	return seg_at(seg, offset);
}

/* One that is free; blocks are looked at from where the last one was found. */
static struct seg_will *take(struct cm *cm)
{
	struct nic_segment *seg = cm->nic->seg;
	struct seg_wills *block = cm->last_will, *start = block;

	while (block) {
		for (; cm->last_place < NIC_WILLS; cm->last_place++) {
			if (!atomic_load_explicit(&block->will[cm->last_place].state, memory_order_relaxed)) {
				cm->last_will = block;
				return &block->will[cm->last_place++];
			}
		}
		uint64_t next = atomic_load(&block->next) ? atomic_load(&block->next) : atomic_load(&seg->hdr.wills);

		cm->last_place = 0;
		block = seg_at(seg, next);
		if (block == start)
			break;
	}
	cm->last_will = more_wills(cm);
	cm->last_place = 0;
	return cm->last_will ? &cm->last_will->will[cm->last_place++] : NULL;
}

void will_make(struct cm_id *id)
{
	if (!id->cm->nic || !id->wire || id->will)
		return;
	id->will = take(id->cm);
	if (!id->will) /* no memory: then it goes without */
		return;
	id->will->local_id = id->local_id;
	id->will->remote_id = id->remote_id;
	id->will->remote_qpn = id->remote_qpn;
	id->will->sgid = id->sgid;
	id->will->dgid = id->dgid;
	id->will->traffic_class = id->traffic_class;
	id->will->hop_limit = id->hop_limit;
	id->will->port = port_configured();
	atomic_store_explicit(&id->will->state, 1, memory_order_release);
}

void will_end(struct cm_id *id)
{
	if (id->will)
		atomic_store_explicit(&id->will->state, 0, memory_order_release);
	id->will = NULL;
}

void will_seek_heir(struct cm *cm)
{
	struct sockaddr_un to;
	int fd = descriptor_socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0), heirs = 0;

	for (uint32_t i = 1; fd >= 0 && i < NIC_SLOTS && heirs < HEIRS; i++) {
		uint32_t slot = (cm->slot + i) % NIC_SLOTS;
		socklen_t bytes = abstract_name(&to, "uroce/%u/cm", slot);
		enum cause_code why;
		struct peer *peer;

		if (!slot || connect(fd, (struct sockaddr *)&to, bytes))
			continue;
		/* From now on each of the two hears of the other's end. */
		peer = attach_get(cm->nic, slot, 0, &why);
		if (peer)
			attach_put(cm->nic, peer);
		heirs += peer || why == CAUSE_NONE;
	}
	if (fd >= 0)
		descriptor_close(fd);
}

void cm_inherit(struct nic *nic, const struct nic_segment *seg, uint64_t size)
{
	struct cm *cm = nic->cm;
	uint64_t offset = atomic_load_explicit(&seg->hdr.wills, memory_order_acquire);

	pthread_mutex_lock(&cm->lock);
	/* Bounded by the segment's size, whatever it says. */
	for (uint64_t n = 0; offset && offset < size && size - offset >= sizeof(struct seg_wills) && offset % NIC_CACHE_LINE == 0 &&
			     n < size / sizeof(struct seg_wills);
	     n++) {
		struct seg_wills *block = (struct seg_wills *)((const uint8_t *)seg + offset);

		for (unsigned i = 0; i < NIC_WILLS; i++) {
			uint32_t made = 1;

			if (block->will[i].port == port_configured() &&
			    atomic_compare_exchange_strong(&block->will[i].state, &made, 2) && !courier_start(cm))
				conn_inherit(cm, &block->will[i]);
		}
		offset = atomic_load_explicit(&block->next, memory_order_acquire);
	}
	cm_settle(cm);
	pthread_mutex_unlock(&cm->lock);
}
