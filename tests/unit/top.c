/* SPDX-License-Identifier: MIT */
/* What `uroce stat` and `uroce top` read of a segment, and how they show it. */
#include "unit.h"

#include <errno.h>
#include <locale.h>
#include <stdio.h>

#include "nic/mr.h"
#include "nic/responder.h"
#include "tools/render.h"
#include "tools/top.h"
#include "tools/width.h"

/* ---- Of a segment ---- */

static void see(struct nic *nic, struct process_shot *process)
{
	memset(process, 0, sizeof(*process));
	assert_true(process_shot_read(process, nic->seg_fd));
}

static void post_receives(struct nic_srq *srq, int count)
{
	struct ibv_recv_wr wr = { .wr_id = 1 }, *bad;

	for (int i = 0; i < count; i++)
		assert_int_equal(nic_srq_post(srq, &wr, &bad), 0);
}

/* As an initiator would. */
static void publish(struct nic *nic, struct nic_srq *srq, struct nic_cq *cq)
{
	struct rq_taken taken;

	assert_int_equal(rq_take(nic->seg, &srq->shared->rq, 0, 77, 0, false, &taken), RQ_TAKEN);
	cq_publish(nic->seg, cq->index,
		   cq_reference(NIC_REF_SRQ, srq->index, taken.slot, (uint64_t)IBV_WC_RECV << 56 | 77ull << 32 | 5), false);
}

static const struct cq_shot *cq_of(struct nic *nic, struct process_shot *process, const struct nic_cq *cq)
{
	process_shot_free(process);
	see(nic, process);
	for (uint32_t i = 0; i < process->cq_count; i++) {
		if (process->cqs[i].index == cq->index)
			return &process->cqs[i];
	}
	return NULL;
}

static void fill_of_a_cq_is_what_is_published_and_not_polled(void **state)
{
	struct nic *nic = *state;
	struct process_shot process = { 0 };
	struct nic_srq srq;
	struct nic_cq cq;
	struct ibv_wc wc[8];
	uint64_t published = 0, waiting = 0, high = 0;

	assert_int_equal(nic_cq_create(nic, 15, NULL, &cq), 0);
	assert_int_equal(nic_srq_create(nic, UNIT_PD, 32, 1, &srq), 0);
	/* Several laps, with 0 to 15 waiting. */
	for (unsigned round = 0; round < 60; round++) {
		unsigned more = round * 7 % 11, less = round * 5 % 8;

		for (unsigned i = 0; i < more && waiting < 15; i++, published++, waiting++) {
			post_receives(&srq, 1);
			publish(nic, &srq, &cq);
		}
		high = waiting > high ? waiting : high;
		const struct cq_shot *shot = cq_of(nic, &process, &cq);

		assert_non_null(shot);
		assert_int_equal(shot->values[CQ_fill], waiting);
		assert_int_equal(shot->values[CQ_completions], published);
		assert_int_equal(shot->values[CQ_size], 15);
		assert_int_equal(shot->values[CQ_high_water], high);
		waiting -= (uint64_t)nic_cq_poll(&cq, (int)less, wc);
	}
	assert_int_equal(high, 15);
	process_shot_free(&process);
	assert_int_equal(nic_srq_destroy(&srq), 0);
	assert_int_equal(nic_cq_destroy(&cq), 0);
}

static void high_water_outlasts_polling_and_resizing(void **state)
{
	struct nic *nic = *state;
	struct process_shot process = { 0 };
	const struct cq_shot *shot;
	struct nic_srq srq;
	struct nic_cq cq;
	struct ibv_wc wc[8];

	assert_int_equal(nic_cq_create(nic, 15, NULL, &cq), 0);
	assert_int_equal(nic_srq_create(nic, UNIT_PD, 32, 1, &srq), 0);
	post_receives(&srq, 12);
	for (int i = 0; i < 9; i++)
		publish(nic, &srq, &cq);
	assert_int_equal(nic_cq_poll(&cq, 1, wc), 1);
	assert_int_equal(nic_cq_poll(&cq, 8, wc), 8);
	assert_int_equal(atomic_load(&cq.shared->high), 9);
	assert_int_equal(nic_cq_resize(&cq, 63), 0);
	for (int i = 0; i < 3; i++)
		publish(nic, &srq, &cq);
	shot = cq_of(nic, &process, &cq);
	assert_int_equal(shot->values[CQ_fill], 3);
	assert_int_equal(shot->values[CQ_completions], 12);
	assert_int_equal(shot->values[CQ_high_water], 9);
	assert_int_equal(shot->values[CQ_size], 63);
	assert_int_equal(shot->values[CQ_overflows], 0);
	process_shot_free(&process);
	assert_int_equal(nic_cq_poll(&cq, 8, wc), 3);
	assert_int_equal(atomic_load(&cq.shared->high), 9);
	assert_int_equal(nic_srq_destroy(&srq), 0);
	assert_int_equal(nic_cq_destroy(&cq), 0);
}

/* The mark that ends the old ring is no completion. */
static void high_water_counts_what_waits_across_a_resize(void **state)
{
	struct nic *nic = *state;
	struct nic_srq srq;
	struct nic_cq cq;
	struct ibv_wc wc[8];

	assert_int_equal(nic_cq_create(nic, 15, NULL, &cq), 0);
	assert_int_equal(nic_srq_create(nic, UNIT_PD, 32, 1, &srq), 0);
	post_receives(&srq, 10);
	for (int i = 0; i < 3; i++)
		publish(nic, &srq, &cq);
	assert_int_equal(nic_cq_resize(&cq, 31), 0);
	assert_int_equal(nic_cq_poll(&cq, 1, wc), 1);
	assert_int_equal(atomic_load(&cq.shared->high), 3);
	for (int i = 0; i < 4; i++)
		publish(nic, &srq, &cq);
	assert_int_equal(nic_cq_poll(&cq, 8, wc), 6);
	assert_int_equal(atomic_load(&cq.shared->high), 6);
	assert_int_equal(nic_srq_destroy(&srq), 0);
	assert_int_equal(nic_cq_destroy(&cq), 0);
}

static void counters_of_a_qp_that_goes_stay_with_the_device(void **state)
{
	struct nic *nic = *state;
	struct process_shot before, with, after;
	struct nic_cq cq;
	struct nic_qp qp;

	see(nic, &before);
	assert_int_equal(nic_cq_create(nic, 15, NULL, &cq), 0);
	make_qp(nic, IBV_QPT_RC, &cq, NULL, 4, &qp);
	responder_count(qp.shared, IBV_WR_RDMA_WRITE, 100);
	responder_count(qp.shared, IBV_WR_RDMA_READ, 10);
	responder_count_empty(nic->seg, qp.shared);
	see(nic, &with);
	assert_int_equal(with.qp_count, 1);
	assert_int_equal(with.qps[0].qpn, qp.qpn);
	assert_int_equal(with.qps[0].values[QP_rx_write_requests], 1);
	assert_int_equal(with.qps[0].values[QP_rx_read_requests], 1);
	assert_int_equal(with.qps[0].values[QP_resp_bytes], 110);
	assert_int_equal(with.qps[0].values[QP_out_of_buffer], 1);
	assert_int_equal(with.qps[0].values[QP_sq_size], 4);
	nic_qp_destroy(&qp);
	see(nic, &after);
	assert_int_equal(after.qp_count, 0);
	assert_int_equal(after.values[DEVICE_resp_bytes] - before.values[DEVICE_resp_bytes], 110);
	assert_memory_equal(with.values, after.values, sizeof(with.values));
	process_shot_free(&before);
	process_shot_free(&with);
	process_shot_free(&after);
	assert_int_equal(nic_cq_destroy(&cq), 0);
}

static void refused_access_is_counted_for_the_region_it_names(void **state)
{
	static uint8_t memory[4096] __attribute__((aligned(4096)));
	struct nic *nic = *state;
	struct process_shot process;
	struct nic_mr mr;
	struct piece piece;
	struct cause c = { 0 };
	uint64_t start = (uintptr_t)memory;

	assert_int_equal(nic_mr_register(nic, UNIT_PD, start, sizeof(memory), start, IBV_ACCESS_LOCAL_WRITE, &mr), 0);
	assert_int_equal(mr_check(nic->seg, false, mr.lkey, start, 8, 0, UNIT_PD, 0, &piece, &c), CAUSE_NONE);
	c = (struct cause){ 0 };
	assert_int_equal(mr_check(nic->seg, false, mr.lkey, start + 4095, 2, 0, UNIT_PD, 0, &piece, &c), CAUSE_LKEY_BOUNDS);
	c = (struct cause){ 0 };
	assert_int_equal(mr_check(nic->seg, true, mr.rkey, start, 8, IBV_ACCESS_REMOTE_READ, UNIT_PD, 0, &piece, &c),
			 CAUSE_RKEY_ACCESS);
	see(nic, &process);
	assert_int_equal(process.mr_count, 1);
	assert_int_equal(process.mrs[0].lkey, mr.lkey);
	assert_int_equal(process.mrs[0].rkey, mr.rkey);
	assert_int_equal(process.mrs[0].values[MR_length], sizeof(memory));
	assert_int_equal(process.mrs[0].values[MR_refused], 2);
	process_shot_free(&process);
	assert_int_equal(nic_mr_deregister(&mr), 0);
}

/* ---- As text ---- */

static void counts_fit_their_width(void **state)
{
	static const struct {
		unsigned width;
		double number;
		const char *text;
	} cases[] = {
		{ 6, 0, "0" },	     { 6, 999999, "999999" }, { 6, 1234567, "1.2M" },
		{ 6, 1e12, "1.0T" }, { 5, 123456, "123k" },   { 5, 99999, "99999" },
		{ 4, 12345, "12k" }, { 4, 9999, "9999" },     { 7, 18446744073709551615.0, "18.4E" },
	};

	(void)state;
	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		char text[16];

		format_count(text, cases[i].width, cases[i].number);
		assert_true(strlen(text) <= cases[i].width);
		assert_string_equal(text, cases[i].text);
	}
	for (unsigned width = 4; width < 10; width++) {
		for (double number = 0.4; number < 1e19; number *= 1.7) {
			char text[16];

			format_count(text, width, number);
			assert_true(strlen(text) <= width);
		}
	}
}

/* Two looks at a process, a second apart. */
struct looks {
	struct snapshot before, now;
	struct process_shot processes[2][2];
	struct qp_shot qps[2][3];
	struct cq_shot cqs[2][1];
	struct srq_shot srqs[2][1];
};

static void make_looks(struct looks *looks)
{
	memset(looks, 0, sizeof(*looks));
	for (int i = 0; i < 2; i++) {
		struct snapshot *snapshot = i ? &looks->now : &looks->before;
		struct process_shot *process = &looks->processes[i][0];

		*process = (struct process_shot){ .pid = 4000000,
						  .uid = 1000,
						  .state = 'S',
						  .command = "a-\"long\\one",
						  .seen = true,
						  .devices = "uroce0",
						  .instance = 99,
						  .at = 1000000000ull * (unsigned)(5 + i),
						  .qps = looks->qps[i],
						  .qp_count = 3,
						  .cqs = looks->cqs[i],
						  .cq_count = 1,
						  .srqs = looks->srqs[i],
						  .srq_count = 1 };
		for (uint32_t j = 0; j < 3; j++) {
			struct qp_shot *qp = &looks->qps[i][j];

			*qp = (struct qp_shot){ .qpn = 0xffc000 + j,
						.index = j,
						.type = IBV_QPT_RC,
						.state = IBV_QPS_RTS,
						.peer_qpn = 0xabc000,
						.srq = -1,
						.mtu = 4096 };
			qp->values[QP_rdma_writes] = 1000 + (unsigned)i * 500 * (j + 1);
			qp->values[QP_req_bytes] = (unsigned)i * 250000000ull * j;
			qp->values[QP_sq_size] = 32768;
			qp->values[QP_sq_depth] = 32767;
			qp->values[QP_rq_size] = 16;
			qp->values[QP_sq_pending] = j == 2;
			qp->executed = 7;
			process->values[DEVICE_rdma_writes] += qp->values[QP_rdma_writes];
		}
		looks->cqs[i][0] = (struct cq_shot){ .index = 3, .polls_known = true, .polls = 1 };
		looks->cqs[i][0].values[CQ_completions] = 10 + (unsigned)i * 77;
		looks->processes[i][1] = (struct process_shot){
			.pid = 12, .state = 'T', .command = "other", .reason = "it is of another user, or so", .at = process->at
		};
		snapshot->processes = looks->processes[i];
		snapshot->count = 2;
	}
	snapshot_carry(&looks->before, &(struct snapshot){ 0 });
	snapshot_carry(&looks->now, &looks->before);
}

static struct sight first_sight(enum view view)
{
	struct sight sight = { .view = view, .interval = 1 };

	for (unsigned i = 0; i < VIEWS; i++)
		sight.sort[i] = view_first_sort((enum view)i);
	return sight;
}

static const char *cell(const struct sheet *sheet, uint32_t row, const char *title)
{
	for (unsigned i = 0; i < sheet->column_count; i++) {
		if (!strcmp(sheet->columns[i].title, title))
			return sheet->rows[row].cells[i].text;
	}
	return NULL;
}

static void rates_are_of_the_time_between_two_looks(void **state)
{
	struct sight sight = first_sight(VIEW_QPS);
	struct looks looks;
	struct sheet sheet;

	(void)state;
	make_looks(&looks);
	assert_true(rows_make(&sheet, &sight, &looks.now, &looks.before, NULL));
	assert_int_equal(sheet.count, 3);
	/* The busiest first. */
	assert_string_equal(cell(&sheet, 0, "QPN"), "ffc002");
	assert_string_equal(cell(&sheet, 0, "OUT/s"), "1500");
	assert_string_equal(cell(&sheet, 0, "MB/s"), "500");
	assert_string_equal(cell(&sheet, 2, "OUT/s"), "500");
	assert_string_equal(cell(&sheet, 2, "MB/s"), "0.0");
	/* Too long for its place. */
	assert_string_equal(cell(&sheet, 0, "SQ"), "99%");
	assert_string_equal(cell(&sheet, 0, "RQ"), "0/16");
	assert_string_equal(cell(&sheet, 0, "STANDS"), "1.0s");
	assert_string_equal(cell(&sheet, 1, "STANDS"), "-");
	rows_free(&sheet);
	sight.up[VIEW_QPS] = true;
	assert_true(rows_make(&sheet, &sight, &looks.now, &looks.before, NULL));
	assert_string_equal(cell(&sheet, 0, "QPN"), "ffc000");
	rows_free(&sheet);

	sight.view = VIEW_PROCESSES;
	assert_true(rows_make(&sheet, &sight, &looks.now, &looks.before, NULL));
	assert_string_equal(cell(&sheet, 0, "OUT/s"), "3000");
	assert_string_equal(cell(&sheet, 1, "COMMAND"), "other");
	assert_string_equal(cell(&sheet, 1, "OUT/s"), "-");
	rows_free(&sheet);

	sight.view = VIEW_CQS;
	assert_true(rows_make(&sheet, &sight, &looks.now, &looks.before, NULL));
	assert_string_equal(cell(&sheet, 0, "CQE/s"), "77");
	assert_string_equal(cell(&sheet, 0, "POLLED"), ">1.0s");
	rows_free(&sheet);
	/* Nothing is known of rates after one look. */
	sight.view = VIEW_QPS;
	assert_true(rows_make(&sheet, &sight, &looks.now, NULL, NULL));
	assert_string_equal(cell(&sheet, 0, "OUT/s"), "0");
	rows_free(&sheet);
}

static void screens_fit_all_sizes(void **state)
{
	struct looks looks;

	(void)state;
	make_looks(&looks);
	for (unsigned view = 0; view < VIEW_LISTS; view++) {
		struct sight sight = first_sight((enum view)view);
		unsigned columns, lines = 3;
		struct sheet sheet;

		assert_true(rows_make(&sheet, &sight, &looks.now, &looks.before, NULL));
		for (columns = 10; columns < LINE_BYTES + 40; columns++, lines = 3 + columns % 60) {
			struct frame frame;

			assert_true(frame_screen(&frame, &sight, &sheet, &looks.now, columns, lines));
			assert_true(frame.count <= (lines > 5 ? lines : 5));
			for (uint32_t i = 0; i < frame.count; i++)
				assert_true(strlen(frame.lines[i].text) <= columns);
			frame_free(&frame);
		}
		rows_free(&sheet);
	}
}

static void all_columns_of_80_are_there_and_none_is_cut(void **state)
{
	static const char *const last[] = {
		[VIEW_PROCESSES] = " ERRS", [VIEW_QPS] = " RETRY", [VIEW_CQS] = " LOST", [VIEW_SRQS] = " NOBUF"
	};
	struct looks looks;

	(void)state;
	make_looks(&looks);
	for (unsigned view = 0; view < VIEW_LISTS; view++) {
		struct sight sight = first_sight((enum view)view);
		struct sheet sheet;
		struct frame frame;
		const char *title = NULL;

		assert_true(rows_make(&sheet, &sight, &looks.now, &looks.before, NULL));
		assert_true(frame_screen(&frame, &sight, &sheet, &looks.now, 80, 24));
		assert_int_equal(frame.count, 24);
		for (uint32_t i = 0; i < frame.count; i++) {
			if (frame.lines[i].look == LOOK_TITLE)
				title = frame.lines[i].text;
		}
		assert_non_null(title);
		assert_string_equal(title + strlen(title) - strlen(last[view]), last[view]);
		frame_free(&frame);
		/* In the widest all of them are. */
		assert_true(frame_screen(&frame, &sight, &sheet, &looks.now, 260, 24));
		for (uint32_t i = 0; i < frame.count; i++) {
			for (unsigned j = 0; frame.lines[i].look == LOOK_TITLE && j < sheet.column_count; j++)
				assert_non_null(strstr(frame.lines[i].text, sheet.columns[j].title));
		}
		frame_free(&frame);
		rows_free(&sheet);
	}
}

static void what_columns_mean_fits_a_line_of_80(void **state)
{
	(void)state;
	for (unsigned view = 0; view < VIEWS; view++) {
		unsigned count;
		const struct column *columns = view_columns((enum view)view, &count);

		for (unsigned i = 0; i < count; i++)
			assert_true(strlen(columns[i].meaning) <= 70);
	}
}

/* Of several processes one is looked at: the others are neither counted nor missed. */
static void head_is_of_the_process_that_is_looked_at(void **state)
{
	struct process_shot processes[] = {
		{ .pid = 11, .seen = true, .qp_count = 2 },
		{ .pid = 12, .command = "other", .reason = "it is another's", .qp_count = 0 },
		{ .pid = 0, .command = "?", .reason = "it did not answer" },
	};
	const struct snapshot now = { .processes = processes, .count = 3 };
	struct sight sight = first_sight(VIEW_PROCESSES);
	struct sheet sheet = { 0 };
	struct frame frame;

	(void)state;
	processes[0].qp_count = 2;
	assert_true(frame_text(&frame, &sight, &sheet, &now, 132));
	assert_non_null(strstr(frame.lines[0].text, " 3 processes, 2 QPs,"));
	assert_non_null(strstr(frame.lines[0].text, "2 not shown"));
	assert_string_equal(frame.lines[1].text, "process 12 (other) is not shown: it is another's");
	assert_string_equal(frame.lines[2].text, "a process is not shown: it did not answer");
	frame_free(&frame);
	sight.pid = 11;
	assert_true(frame_text(&frame, &sight, &sheet, &now, 132));
	assert_non_null(strstr(frame.lines[0].text, " process 11, 2 QPs,"));
	assert_null(strstr(frame.lines[0].text, "not shown"));
	for (uint32_t i = 1; i < frame.count; i++)
		assert_null(strstr(frame.lines[i].text, "not shown"));
	frame_free(&frame);
}

static void selected_row_stays_in_sight(void **state)
{
	struct sight sight = first_sight(VIEW_QPS);
	struct looks looks;
	struct sheet sheet;
	struct frame frame;

	(void)state;
	make_looks(&looks);
	assert_true(rows_make(&sheet, &sight, &looks.now, &looks.before, NULL));
	sight.selected[VIEW_QPS] = 1000; /* there are three */
	assert_true(frame_screen(&frame, &sight, &sheet, &looks.now, 80, 7));
	assert_int_equal(sight.selected[VIEW_QPS], 2);
	assert_int_equal(frame.count, 7);
	assert_int_equal(frame.lines[5].look, LOOK_SELECTED);
	assert_non_null(strstr(frame.lines[5].text, "ffc000"));
	frame_free(&frame);
	rows_free(&sheet);
}

static void chinese_characters_take_two_columns(void **state)
{
	char *text;
	size_t size;
	FILE *out;

	(void)state;
	if (!setlocale(LC_CTYPE, "C.UTF-8"))
		skip();
	assert_int_equal(width_of("a队列"), 5);
	assert_int_equal(width_fit("a队列", 4), 4);
	assert_int_equal(width_fit("a队列", 2), 1);
	assert_int_equal(width_of("\xff\xe9\x98"), 3); /* no characters */
	assert_int_equal(width_lines("", 80), 0);
	assert_int_equal(width_lines("\n", 80), 1);
	assert_int_equal(width_lines("a队列\nb", 5), 2);
	assert_int_equal(width_lines("a队列\nb\n", 4), 3);
	assert_int_equal(width_lines("队列", 1), 2);
	out = open_memstream(&text, &size);
	width_put(out, "队列", 6);
	width_put(out, "队列", -6);
	width_put(out, "队列", 3);
	fclose(out);
	assert_string_equal(text, "队列    队列队 ");
	free(text);
	setlocale(LC_CTYPE, "C");
}

static void labels_are_escaped(void **state)
{
	struct looks looks;
	char *text = NULL;
	size_t size;
	FILE *out = open_memstream(&text, &size);

	(void)state;
	make_looks(&looks);
	render_prometheus(out, &looks.now);
	fclose(out);
	assert_non_null(strstr(text, "uroce_qp_rdma_writes_total{pid=\"4000000\",command=\"a-\\\"long\\\\one\",device=\"uroce0\","
				     "qpn=\"0xffc002\",type=\"RC\"} 2500\n"));
	assert_non_null(strstr(text, "uroce_process_shown{pid=\"12\",command=\"other\"} 0\n"));
	assert_null(strstr(text, "uroce_qp_rdma_writes_total{pid=\"12\""));
	free(text);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(fill_of_a_cq_is_what_is_published_and_not_polled),
		cmocka_unit_test(high_water_outlasts_polling_and_resizing),
		cmocka_unit_test(high_water_counts_what_waits_across_a_resize),
		cmocka_unit_test(counters_of_a_qp_that_goes_stay_with_the_device),
		cmocka_unit_test(refused_access_is_counted_for_the_region_it_names),
		cmocka_unit_test(counts_fit_their_width),
		cmocka_unit_test(rates_are_of_the_time_between_two_looks),
		cmocka_unit_test(screens_fit_all_sizes),
		cmocka_unit_test(all_columns_of_80_are_there_and_none_is_cut),
		cmocka_unit_test(what_columns_mean_fits_a_line_of_80),
		cmocka_unit_test(head_is_of_the_process_that_is_looked_at),
		cmocka_unit_test(selected_row_stays_in_sight),
		cmocka_unit_test(chinese_characters_take_two_columns),
		cmocka_unit_test(labels_are_escaped),
	};

	return cmocka_run_group_tests(tests, open_nic, close_nic);
}
