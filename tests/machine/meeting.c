/* SPDX-License-Identifier: MIT */
/* Memory that is shared already, and two processes of which one writes into the other's. See meeting.h. */
#include "meeting.h"

#include <fcntl.h>
#include <sys/mman.h>

#define ACCESS                                                                       \
	(IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_WRITE | \
	 IBV_ACCESS_REMOTE_ATOMIC)

int make_memfd(size_t bytes, unsigned flags, int seals)
{
	int fd = memfd_create(NAME, MFD_CLOEXEC | MFD_ALLOW_SEALING | flags);

	CHECK(fd >= 0);
	CHECK_EQUAL(ftruncate(fd, (off_t)bytes), 0);
	CHECK_EQUAL(fcntl(fd, F_ADD_SEALS, seals), 0);
	return fd;
}

uint8_t *map(int fd, size_t bytes, int flags)
{
	void *at = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | flags, fd, 0);

	return at == MAP_FAILED ? NULL : at;
}

struct memory sealed_memory(size_t bytes)
{
	int fd = make_memfd(bytes, 0, F_SEAL_SHRINK);
	struct memory memory = { .at = map(fd, bytes, 0), .fd = fd };

	CHECK(memory.at);
	return memory;
}

unsigned count_mappings(void)
{
	FILE *maps = fopen("/proc/self/maps", "re");
	unsigned count = 0;
	char line[512];

	CHECK(maps);
	while (fgets(line, sizeof(line), maps))
		count += strstr(line, "memfd:" NAME) != NULL;
	fclose(maps);
	return count;
}

void wait_for_mappings(unsigned count)
{
	uint64_t end = now_ms() + TIMEOUT_MS;

	while (count_mappings() != count && now_ms() < end)
		usleep(1000);
	CHECK_EQUAL(count_mappings(), count);
}

/* This process's. */
static struct nic_segment *own_segment(void)
{
	static struct nic_segment *found;
	FILE *maps;
	char line[512];

	if (found)
		return found;
	maps = fopen("/proc/self/maps", "re");
	CHECK(maps);
	while (!found && fgets(line, sizeof(line), maps)) {
		unsigned long start, end;

		if (!strstr(line, "/memfd:uroce (") || sscanf(line, "%lx-%lx", &start, &end) != 2 ||
		    end - start < sizeof(*found))
			continue;
		found = (struct nic_segment *)start;
		if (found->hdr.magic != NIC_MAGIC || found->hdr.pid != (uint32_t)getpid())
			found = NULL;
	}
	fclose(maps);
	CHECK(found);
	return found;
}

enum nic_unmapped why_not(const struct ibv_mr *mr)
{
	const struct seg_mr *entry = mr_of_key(own_segment(), mr->lkey);
	bool mapped = entry->file && atomic_load(&entry->mapped_start) == entry->addr &&
		      atomic_load(&entry->mapped_end) == entry->addr + entry->length;

	CHECK_EQUAL(entry->addr, (uintptr_t)mr->addr);
	CHECK_EQUAL(mapped, entry->unmapped == NIC_MAPPED);
	return entry->unmapped;
}

struct copies copies_of(const struct ibv_qp *qp)
{
	struct nic_segment *seg = own_segment();
	struct seg_qp *shared = &seg->qps[qp->qp_num & ((1 << NIC_QPN_INDEX_BITS) - 1)];

	return (struct copies){
		.mapped = atomic_load(&shared->sent.mapped) +
			  atomic_load(&seg->counters.mapped_copies),
		.other = atomic_load(&seg->counters.cma_copies) +
			 atomic_load(&seg->counters.assisted_copies),
	};
}

struct ibv_mr *enroll(struct node *node, void *at, size_t bytes)
{
	struct ibv_mr *mr = ibv_reg_mr(node->pd, at, bytes, ACCESS);

	CHECK(mr);
	return mr;
}

void connect_pair(struct meeting *m, int line)
{
	struct card card;

	m->qp = node_qp(&m->node, IBV_QPT_RC, NULL);
	card = node_card(&m->node, m->qp);
	line_send(line, &card, sizeof(card));
	line_receive(line, &m->other, sizeof(m->other));
	node_connect(m->qp, &m->other, &patient);
	say(line, 1);
	expect(line, 1);
}

void join(struct meeting *m, int line)
{
	node_open(&m->node);
	connect_pair(m, line);
}

void part(struct meeting *m)
{
	CHECK_EQUAL(ibv_destroy_qp(m->qp), 0);
	node_close(&m->node);
}

struct ibv_qp *connect_within(struct meeting *self, const struct meeting *m)
{
	struct ibv_qp *end;

	self->node = m->node;
	self->qp = node_qp(&self->node, IBV_QPT_RC, NULL);
	end = node_qp(&self->node, IBV_QPT_RC, NULL);
	node_connect_pair(&self->node, self->qp, end, &patient);
	self->other = node_card(&self->node, end);
	return end;
}

void offer(int line, const struct ibv_mr *mr)
{
	struct place place = { (uintptr_t)mr->addr, mr->rkey };

	line_send(line, &place, sizeof(place));
}

struct place take_offer(int line)
{
	struct place place;

	line_receive(line, &place, sizeof(place));
	return place;
}

void do_rdma(struct meeting *m, enum ibv_wr_opcode opcode, uint32_t offset, uint32_t length,
	     const struct place *place)
{
	CHECK_EQUAL(node_rdma(&m->node, m->qp, 7, opcode, offset, length, place->addr, place->rkey),
		    0);
	node_expect(m->node.cq, 7, IBV_WC_SUCCESS);
}

void fill(uint8_t *at, uint8_t with)
{
	for (uint32_t i = 0; i < BYTES; i++)
		at[i] = (uint8_t)(i * 7 + i / PAGE + with);
}

bool is_used(const uint8_t *at, uint8_t with)
{
	_Alignas(uint64_t) uint8_t bytes[BYTES];

	fill(bytes, with);
	++*(uint64_t *)bytes;
	return !memcmp(at, bytes, BYTES);
}

void use(struct meeting *m, const struct place *place, uint8_t with)
{
	fill(m->node.buf + SENT, with);
	do_rdma(m, IBV_WR_RDMA_WRITE, SENT, BYTES, place);
	do_rdma(m, IBV_WR_ATOMIC_FETCH_AND_ADD, READ, 8, place);
	CHECK(!memcmp(m->node.buf + READ, m->node.buf + SENT, 8));
	do_rdma(m, IBV_WR_RDMA_READ, READ, BYTES, place);
	CHECK(is_used(m->node.buf + READ, with));
}

void write_from(struct meeting *m, const struct ibv_mr *mr)
{
	struct ibv_sge sge = { (uintptr_t)mr->addr, BYTES, mr->lkey };
	struct ibv_send_wr wr = { .wr_id = 8,
				  .sg_list = &sge,
				  .num_sge = 1,
				  .opcode = IBV_WR_RDMA_WRITE,
				  .wr.rdma = { m->other.addr + SENT, m->other.rkey } },
			   *bad;

	CHECK_EQUAL(ibv_post_send(m->qp, &wr, &bad), 0);
	node_expect(m->node.cq, 8, IBV_WC_SUCCESS);
}
