#!/bin/sh
# SPDX-License-Identifier: MIT
#
# What uroce says of failures. $HERE/mistakes makes a mistake and prints its own numbers.
. "$(dirname "$0")/../tools/common.sh"

table=$(realpath "$(dirname "$0")")/mistakes.table
english="env LC_ALL=C.UTF-8 LANGUAGE=en"
chinese="env LC_ALL=C.UTF-8 LANGUAGE=zh_CN"

# field NUMBER MISTAKE: of its line in the table.
field() {
	sed -n "s/^$2 | //p" "$table" | awk -F ' [|] ' "{ print \$$(($1 - 1)) }"
}

# fill PATTERN: puts the program's numbers, from out, into it.
fill() {
	pattern=$1
	grep -v vendor_err out >numbers
	while IFS='=' read -r name value; do
		pattern=$(printf '%s\n' "$pattern" | sed "s/{$name}/$value/g")
	done <numbers
	printf '%s\n' "$pattern"
}

# says CODE PATTERN FILE: a paragraph of this code has it in its sentence.
says() {
	grep -A 1 "[,:0-9] $1 (" "$3" | grep -Eq -- "$2" || fail "no $1 with '$2' in: $(cat "$3")"
}

# The sentence names the true cause and the program's own numbers, in both languages; it happened once.
mistake_is_told() {
	code=$(field 2 "$1")
	[ "$code" ] || fail "$1 is not in the table"
	export UROCE_EXPLAIN=stderr UROCE_DEVICES=one,two
	[ "$1" != answer_too_short ] || export UROCE_TRANSPORT=roce UROCE_DEVICES=one
	status 0 $english "$uroce" run -- "$HERE/mistakes" "$1"
	says "$code" "$(fill "$(field 3 "$1")")" err
	grep -q 'What to do: ' err || fail "no remedy in: $(cat err)"
	status 0 $chinese "$uroce" run -- "$HERE/mistakes" "$1"
	says "$code" "$(fill "$(field 4 "$1")")" err
	grep -q '怎么办：' err || fail "no remedy in: $(cat err)"
}

# Packets say only NAK. Where both ends are seen, it is told once what the responder knows, as of the request.
mistake_is_told_over_the_wire() {
	code=$(field 2 "$1")
	[ "$code" ] || fail "$1 is not in the table"
	export UROCE_TRANSPORT=roce UROCE_DEVICES=one,two
	status 0 $english "$uroce" explain -- "$HERE/mistakes" "$1"
	says "$code" "$(fill "$(field 3 "$1")")" err
	same "causes" 1 "$(grep -c '(cause [0-9]*)' err)"
	status 0 $chinese "$uroce" explain -- "$HERE/mistakes" "$1"
	says "$code" "$(fill "$(field 4 "$1")")" err
}

# RETRY_EXC again, and here it is the MTU: both are said.
packets_longer_than_the_way_are_told() {
	reason=$("$uroce" lab 1 -- true 2>&1) || skip "$reason"
	status 0 "$uroce" lab --mtu=1500 1 -- env UROCE_EXPLAIN=stderr LC_ALL=C.UTF-8 LANGUAGE=en "$HERE/mistakes" retry_packets_too_long
	cat out err | sed 's/^host1: //' >all
	mv all err
	sed -n '/=0x/p' err >out
	says WIRE_MTU "$(fill 'QP {a}, IBV_WR_SEND with wr_id 5 .*path_mtu is 4096 bytes, and with all headers they have to fit into 1500 bytes; .*2 attempts')" err
	status 0 "$uroce" lab --mtu=1500 1 -- env UROCE_EXPLAIN=stderr LC_ALL=C.UTF-8 LANGUAGE=zh_CN "$HERE/mistakes" retry_packets_too_long
	cat out err | sed 's/^host1: //' >all
	mv all err
	sed -n '/=0x/p' err >out
	says WIRE_MTU "$(fill 'QP {a}，IBV_WR_SEND，wr_id 5.*path_mtu 为 4096 字节，连同所有包头必须不超过 1500 字节')" err
}

# Programs that work here, and not on a card with smaller limits.
limits_of_other_cards_are_told() {
	export UROCE_EXPLAIN=stderr
	for way in "inline_of_few_cards 850 101" "sges_of_few_cards 20 6"; do
		set -- $way
		status 99 $english "$uroce" run --profile=e810 -- "$HERE/mistakes" "$1"
		says CREATE_LIMIT "$2 was asked for, and the device allows $3 at most\." err
		status 99 $chinese "$uroce" run --profile=e810 -- "$HERE/mistakes" "$1"
		says CREATE_LIMIT "$2.*$3" err
		grep -q '怎么办：' err || fail "no remedy in: $(cat err)"
	done
}

# Each of two processes knows what happened; who sees both is told once, by who made the request.
two_ends_tell_one_cause() {
	for transport in auto roce; do
		[ $transport = auto ] || export UROCE_TRANSPORT=$transport
		status 0 $english "$uroce" explain -- "$HERE/mistakes" rkey_deregistered_by_peer
		same "causes" 1 "$(grep -c '(cause [0-9]*)' err)"
		says RKEY_DEREGISTERED "$(fill '{addr} with rkey {key}, whose region .* the other end has deregistered')" err
		grep -q 'what failed here is told by the process at the other end' err || fail "said $(cat err)"
		has_stack 'The call that it comes from:' 'post_wr at ' 'post at ' 'rdma at ' 'rkey_deregistered_by_peer at '
		has_stack 'The region was registered by:' 'open_device at ' 'rkey_deregistered_by_peer at '
		has_stack 'The region was deregistered by:' "rkey_deregistered_by_peer at .*mistakes.c:$(line '		ibv_dereg_mr(remote);')$"
		has_stack 'The queue pair was created by:' 'make_qp at ' 'rkey_deregistered_by_peer at '
		status 0 $english "$uroce" run -e stderr -- "$HERE/mistakes" rkey_deregistered_by_peer
		says RKEY_DEREGISTERED "$(fill 'a message from QP .*{addr} with rkey {key}, whose region .* this end has deregistered')" err
		grep -q PEER_REPORTED err && fail "said $(cat err)"
	done
	:
}

same_status_has_different_sentences() {
	for group in "lkey_unknown lkey_one_byte_out lkey_is_rkey lkey_of_other_pd lkey_deregistered" \
		"rkey_is_lkey rkey_of_other_pd rkey_seven_bytes_before rkey_deregistered rkey_without_right" \
		"retry_peer_in_init retry_wrong_gid retry_wrong_number retry_wrong_psn retry_dead_peer" \
		"rnr_never_posted rnr_ran_dry" \
		"full_of_unsignaled full_never_polled full_too_deep" \
		"mtu_mismatch qp_without_right receive_too_short" \
		"atomic_too_short message_too_long" "read_without_depth address_handle_of_other_pd" \
		"window_without_right window_outside_its_region" \
		"receive_outside_its_region receive_deregistered remote_cq_full"; do
		: >sentences
		for mistake in $group; do
			status 0 $english "$uroce" run -e stderr -- "$HERE/mistakes" "$mistake"
			# Without its numbers, of which some differ from run to run.
			grep -A 1 '(cause' err | grep '^  QP.*index' | head -n 1 |
				sed 's/0x[0-9a-f]*//g; s/[0-9]*//g' >>sentences
		done
		[ "$(sort -u sentences | wc -l)" = "$(echo "$group" | wc -w)" ] || fail "of $group some are told alike: $(cat sentences)"
	done
}

program_without_mistake_is_told_nothing_of() {
	for way in stderr line "$PWD/causes"; do
		status 0 "$uroce" run -e "$way" -- "$HERE/mistakes" none
		[ -s err ] && fail "$way: said $(cat err)"
	done
	[ -s causes ] && fail "wrote $(cat causes)"
	status 0 $english "$uroce" explain -- "$HERE/mistakes" none
	grep -q 'nothing failed' err || fail "said $(cat err)"
	grep -q '(cause' err && fail "said $(cat err)"
	:
}

flushes_are_counted_under_their_cause() {
	status 0 $english "$uroce" run -e stderr -- "$HERE/mistakes" first_of_many_flushes
	same "paragraphs of FLUSHED" 0 "$(grep -c FLUSHED err)"
	grep -A 1 RKEY_IS_LKEY err | grep -q 'After it 99 work requests were flushed' || fail "said $(cat err)"
}

# What vendor_err of a flushed request says, and under what it is counted: an error before it, the CQ, the program.
flushes_tell_what_they_come_of() {
	for way in "first_of_many_flushes 60 RKEY_IS_LKEY 99" "flushed_by_program 68 FLUSHED_BY_PROGRAM 5" "flushed_by_cq 69 CQ_OVERFLOW 18"; do
		set -- $way
		status 0 $english "$uroce" run -e stderr -- "$HERE/mistakes" "$1"
		says "$3" "After it $4 work requests were flushed" err
		[ "$1" = flushed_by_cq ] || same "vendor_err of $1" "vendor_err=$(printf 0x%x "$2")" "$(tail -n 1 out)"
		status 0 $english "$uroce" explain "$2"
		cat out >>documented
	done
	same "documented" 3 "$(grep -c '^  FLUSHED' documented)"
	# Giving up a connection is no failure.
	status 0 "$uroce" run -- "$HERE/mistakes" flushed_by_program
	[ -s err ] && fail "said $(cat err)"
	:
}

what_repeats_is_summed_up() {
	status 0 $english "$uroce" run -e stderr -- "$HERE/mistakes" many_times
	same "sentences" 1 "$(grep -c 'do not go together' err)"
	grep -q 'happened 1000 times in all' err || fail "said $(cat err)"
}

# Whatever comes later.
first_of_each_kind_is_kept() {
	mkdir -m 700 runtime
	UROCE_RUNTIME_DIR=$PWD/runtime
	export UROCE_RUNTIME_DIR
	status 0 $english "$uroce" explain -- "$HERE/mistakes" first_cause_of_many
	says RKEY_IS_LKEY "$(fill 'QP {a}, IBV_WR_RDMA_WRITE with wr_id 5 .*which is the lkey of')" err
	says SQ_FULL "$(fill 'QP {c}, IBV_WR_SEND with wr_id 16 ')" err
	grep -q 'SQ_FULL (cause 104), 6000 times' err || fail "said $(cat err)"
	status 0 $english "$uroce" explain --last
	says RKEY_IS_LKEY 'which is the lkey of' out
	status 0 $english "$uroce" trace -o traced.html -- "$HERE/mistakes" first_cause_of_many
	grep -q 'which is the lkey of' traced.html || fail "the trace has no sentence of the first cause"
	status 0 $english "$uroce" explain -- "$HERE/mistakes" one_cause_many_times
	grep -q 'POST_SGES (cause 102), 6000 times' err || fail "said $(cat err)"
	status 0 $english "$uroce" explain --last
	says POST_SGES 'with wr_id 0 ' out
}

different_mistakes_of_one_code_are_told_apart() {
	for way in explain 'run -e stderr'; do
		status 0 $english "$uroce" $way -- "$HERE/mistakes" several_limits
		same "paragraphs" 3 "$(grep -c 'CREATE_LIMIT (cause' err)"
		says CREATE_LIMIT 'cap.max_send_sge of ibv_create_qp: 1000 was asked for' err
		says CREATE_LIMIT 'cap.max_inline_data of ibv_create_qp: 100000 was asked for' err
		says CREATE_LIMIT 'cqe of ibv_create_cq: 0 was asked for' err
	done
}

one_mistake_of_many_queue_pairs_is_bounded() {
	status 0 $english "$uroce" explain -- "$HERE/mistakes" one_cause_of_many_qps
	same "paragraphs" 8 "$(grep -c 'POST_STATE (cause 100)$' err)"
	grep -q 'POST_STATE (cause 100): 12 more, of other objects' err || fail "said $(cat err)"
	status 0 $english "$uroce" run -e stderr -- "$HERE/mistakes" one_cause_of_many_qps
	same "paragraphs" 8 "$(grep -c 'POST_STATE (cause 100)$' err)"
	grep -q '12 more causes were recorded' err || fail "said $(cat err)"
}

forked_child_has_its_causes() {
	for way in explain 'run -e stderr'; do
		status 0 $english "$uroce" $way -- "$HERE/mistakes" child_uses_what_it_inherited
		says FORKED 'process [0-9]+ inherited the object over fork' err
	done
	status 0 $chinese "$uroce" explain -- "$HERE/mistakes" child_uses_what_it_inherited
	says FORKED '进程 [0-9]+ 经 fork 继承了该对象' err
}

signal_that_ended_it_is_told() {
	status 137 $english "$uroce" explain -- "$HERE/mistakes" killed
	grep -q 'mistakes: ended by signal 9 (SIGKILL' err || fail "said $(cat err)"
	status 137 $chinese "$uroce" explain -- "$HERE/mistakes" killed
	grep -q '被信号 9 (SIGKILL' err || fail "said $(cat err)"
}

cq_has_the_stack_of_its_creation() {
	status 0 $english "$uroce" explain -- "$HERE/mistakes" cq_overflow
	has_stack 'The completion queue was created by:' 'open_device at ' 'connect_both at ' 'cq_overflow at '
}

file_is_appended_to() {
	echo before >causes
	status 0 "$uroce" run -e causes -- "$HERE/mistakes" rnr_never_posted
	[ -s err ] && fail "said $(cat err)"
	status 0 "$uroce" run -e causes -- sh -c "cd / && exec '$HERE/mistakes' rnr_ran_dry"
	same "first line" before "$(head -n 1 causes)"
	same "causes" 2 "$(grep -c 'RNR (cause 34)' causes)"
}

run_ends_with_one_line() {
	status 0 $english "$uroce" run -- "$HERE/mistakes" many_times
	same "lines" 1 "$(wc -l <err)"
	grep -q '1000 causes of failure .*IBV_ACCESS_REMOTE_WRITE.*uroce explain' err || fail "said $(cat err)"
	status 0 "$uroce" run -e off -- "$HERE/mistakes" many_times
	[ -s err ] && fail "said $(cat err)"
	UROCE_EXPLAIN=off status 0 "$uroce" run -- "$HERE/mistakes" many_times
	[ -s err ] && fail "said $(cat err)"
	:
}

nothing_is_said_unasked() {
	LD_LIBRARY_PATH=$BUILD/lib status 0 "$HERE/mistakes" rnr_never_posted
	[ -s err ] && fail "said $(cat err)"
	:
}

wrong_file_leaves_no_device_and_is_logged() {
	export LD_LIBRARY_PATH="$BUILD/lib" UROCE_EXPLAIN=/nowhere/causes VERBS_LOG_LEVEL=1
	status 99 "$HERE/mistakes" none
	grep -q "UROCE_EXPLAIN: '/nowhere/causes' cannot be appended to: " err || fail "logged: $(cat err)"
}

full_disk_does_not_matter() {
	[ -c /dev/full ] || skip "no /dev/full here"
	"$uroce" run -e stderr -- "$HERE/mistakes" rnr_never_posted >out 2>/dev/full || fail "status $?"
	status 0 "$uroce" run -e /dev/full -- "$HERE/mistakes" rnr_never_posted
	# A limit that would be a signal.
	status 0 sh -c "ulimit -f 0; '$uroce' run -e stderr -- '$HERE/mistakes' many_times 2>/dev/null || exit 0"
}

closed_stderr_does_not_matter() {
	"$uroce" run -e stderr -- "$HERE/mistakes" rnr_never_posted >out 2>&- || fail "status $?"
	# Its number is another file's by then.
	for way in stderr line; do
		status 0 "$uroce" run -e $way -- "$HERE/mistakes" closed_stderr
		[ -s mine ] && fail "wrote into the program's file: $(cat mine)"
	done
	:
}

pipe_that_nobody_reads_does_not_matter() {
	# Its reader is gone.
	{ "$uroce" run -e stderr -- "$HERE/mistakes" rnr_never_posted 2>&1 >out; echo $? >found; } | true
	same "status without a reader" 0 "$(cat found)"
	# Its reader sleeps, and it is full.
	mkfifo pipe
	sleep 60 <pipe &
	sleeper=$!
	timeout 30 sh -c "exec 2>pipe; head -c 65536 /dev/zero >&2; '$uroce' run -e stderr -- '$HERE/mistakes' rnr_never_posted >out" ||
		fail "status $? with a full pipe"
	kill $sleeper
}

forked_child_says_nothing_again() {
	status 0 $english "$uroce" run -- "$HERE/mistakes" mistake_before_fork
	same "lines" 1 "$(wc -l <err)"
	status 0 $english "$uroce" run -e stderr -- "$HERE/mistakes" mistake_before_fork
	same "causes" 1 "$(grep -c '(cause' err)"
}

status_and_signal_are_the_programs() {
	status 139 "$uroce" run -- sh -c "exec '$HERE/mistakes' crash"
	status 139 "$uroce" explain -- "$HERE/mistakes" crash
	status 98 "$uroce" explain -- "$HERE/mistakes"
	status 127 "$uroce" explain -- no-such-program
	"$uroce" explain -- sleep 60 2>err &
	child=$!
	until grep -qx sleep /proc/[0-9]*/task/$child/children 2>/dev/null || [ "$(cat /proc/$child/task/$child/children)" ]; do :; done
	grandchild=$(cat /proc/$child/task/$child/children)
	until [ "$(cat /proc/${grandchild% }/comm)" = sleep ]; do :; done
	kill -TERM $child
	found=0
	wait $child || found=$?
	same "status after SIGTERM from outside" 143 $found
}

explain_tells_causes_and_stories() {
	status 0 $english "$uroce" explain -- "$HERE/mistakes" first_of_many_flushes
	says RKEY_IS_LKEY "$(fill 'QP {a}, IBV_WR_RDMA_WRITE with wr_id 5 .*which is the lkey of')" err
	grep -Eq "$(fill 'QP {a} \(RC\): created, INIT \+[0-9.]+ ms, RTR \+[0-9.]+ ms \(-> QP {b}\), RTS .*, ERR .*, not destroyed')" err ||
		fail "no story in: $(cat err)"
	grep -q 'requests carried out: 1 (8 bytes).*flushed: 99' err || fail "no counts in: $(cat err)"
	status 0 $chinese "$uroce" explain -- "$HERE/mistakes" first_of_many_flushes
	grep -q '被冲刷：99' err || fail "no counts in: $(cat err)"
	# All processes that it starts.
	status 0 $english "$uroce" explain -- sh -c "'$HERE/mistakes' none; '$HERE/mistakes' rnr_never_posted"
	same "processes" 2 "$(grep -c '^mistakes (process' err)"
}

crashed_program_leaves_its_causes() {
	mkdir -m 700 runtime
	UROCE_RUNTIME_DIR=$PWD/runtime
	export UROCE_RUNTIME_DIR
	refused 1 'nothing is left behind' $english "$uroce" explain --last
	for how in run explain; do
		rm -f runtime/last-*
		status 139 "$uroce" $how -- "$HERE/mistakes" crash
		status 0 $english "$uroce" explain --last
		says RNR 'never posted one' out
		grep -q '^mistakes (process' out || fail "whose: $(cat out)"
	done
	# The newest is told.
	status 0 "$uroce" run -- "$HERE/mistakes" lkey_is_rkey
	status 0 $english "$uroce" explain --last
	says LKEY_IS_RKEY 'which is the rkey of' out
}

# line WORDS: the number of the line of mistakes.c that has them, the first.
line() {
	grep -nF "$1" "$SOURCE/tests/explain/mistakes.c" | head -n 1 | cut -d : -f 1
}

# has_stack TITLE FRAMES...: each of the frames, in this order, and main is the last.
has_stack() {
	title=$1
	shift
	sed -n "/^    $title/,/ main at /p" err >stack
	at=0
	for frame in "$@"; do
		grep -q "^ *#$at $frame" stack || fail "$title: no frame $at '$frame' in: $(cat err)"
		at=$((at + 1))
	done
	grep -q "^ *#$at main at .*mistakes.c:[0-9]" stack || fail "$title: frame $at is not main in: $(cat err)"
}

call_stacks_are_shown() {
	status 0 $english "$uroce" explain -- "$HERE/mistakes" lkey_deregistered
	has_stack 'The call that it comes from:' "post_wr at .*mistakes.c:$(line 'return ibv_post_send(a, &wr, &bad);')$" \
		'post at .*mistakes.c:' 'local at ' 'lkey_deregistered at '
	has_stack 'The region was registered by:' "open_device at .*mistakes.c:$(line 'mr = ibv_reg_mr(pd, memory, LENGTH, ALL)')$" 'connect_both at ' \
		'lkey_deregistered at '
	has_stack 'The region was deregistered by:' "lkey_deregistered at .*mistakes.c:$(line 'ibv_dereg_mr(mr); /* too early */')$"
	has_stack 'The queue pair was created by:' 'make_qp at ' 'connect_both at ' 'lkey_deregistered at '
	# A verb that refuses.
	status 0 $english "$uroce" explain -- "$HERE/mistakes" remote_without_local_write
	has_stack 'The call that it comes from:' 'remote_without_local_write at '
	# The receive, not the send that it met.
	status 0 $english "$uroce" explain -- "$HERE/mistakes" receive_outside_its_region
	has_stack 'The call that it comes from:' 'post_receive at ' 'receive_outside_its_region at '
	status 0 $chinese "$uroce" explain -- "$HERE/mistakes" lkey_deregistered
	grep -q '该区域的注销：' err || fail "said $(cat err)"
}

call_stacks_of_the_peer_are_shown() {
	status 0 $english "$uroce" explain -- "$HERE/mistakes" rkey_deregistered_by_peer
	has_stack 'The region was registered by:' 'open_device at ' 'rkey_deregistered_by_peer at '
	has_stack 'The region was deregistered by:' "rkey_deregistered_by_peer at .*mistakes.c:$(line '		ibv_dereg_mr(remote);')$"
}

call_stacks_outlive_a_crash() {
	status 139 $english "$uroce" explain -- "$HERE/mistakes" crash
	has_stack 'The call that it comes from:' 'post_wr at ' 'post at ' 'rnr_never_posted at ' 'crash at '
}

call_stacks_are_shown_as_it_happens() {
	status 0 $english "$uroce" run -e stderr -- "$HERE/mistakes" lkey_deregistered
	grep -A 1 'The region was deregistered by:' err | grep -q "#0 .*/mistakes+0x[0-9a-f]*$" || fail "said $(cat err)"
	grep -q 'uroce explain -- PROGRAM shows' err || fail "said $(cat err)"
	# A child has none of its parent's.
	status 0 $english "$uroce" run -e stderr -- "$HERE/mistakes" mistake_before_fork
	same "causes" 1 "$(grep -c '(cause' err)"
	# Nobody is told: nothing is kept.
	status 0 $english "$uroce" run -- "$HERE/mistakes" lkey_deregistered
	same "lines" 1 "$(wc -l <err)"
}

# Each line of the table for this program, with its own numbers; and nothing else of the kind.
advice_is_given() {
	status 0 $english "$uroce" explain -- "$HERE/mistakes" "$1"
	mv err english
	mv out english.out
	status 0 $chinese "$uroce" explain -- "$HERE/mistakes" "$1"
	mv out chinese.out
	sed -n "s/^$1 | //p" "$(dirname "$table")/advice.table" >wanted
	[ -s wanted ] || fail "$1 is not in the table"
	while IFS= read -r row; do
		cp english.out out
		grep -Eq "$(fill "${row%% | *}")" english || fail "no '${row%% | *}' in: $(cat english)"
		cp chinese.out out
		grep -Eq "$(fill "${row#* | }")" err || fail "no '${row#* | }' in: $(cat err)"
	done <wanted
	same "kinds of advice" "$(wc -l <wanted)" "$(sed '1,/^  Advice/d' english | grep -c '^    ')"
}

who_does_well_gets_no_advice() {
	for program in none lists_with_one_completion buffers_used_again events_waited_for rnr_never_posted; do
		status 0 $english "$uroce" explain -- "$HERE/mistakes" $program
		grep -q 'Advice' err && fail "$program: said $(cat err)"
	done
	:
}

who_polls_first_is_told_nothing_of() {
	for program in none lists_with_one_completion buffers_used_again events_waited_for; do
		status 0 $english "$uroce" explain -- "$HERE/mistakes" $program
		grep -q 'nothing failed' err || fail "$program: said $(cat err)"
	done
}

misuse_has_the_stack_of_its_posting() {
	status 0 $english "$uroce" explain -- "$HERE/mistakes" send_buffer_changed
	has_stack 'The call that it comes from:' 'post_wr at ' 'post at ' 'send_buffer_changed at '
	status 0 $english "$uroce" explain -- "$HERE/mistakes" event_polled_for_in_vain
	says CQ_EVENT_LOST 'it was armed while completions waited in it \(1\), and not polled in the [0-9]{4}' err
}

codes_are_documented() {
	for query in 34 RNR cause_rnr 0x22 'vendor_err 34'; do
		status 0 $english "$uroce" explain $query
		grep -q 'RNR (34): no receive request was posted' out || fail "$query: $(cat out)"
		grep -q 'What to do: Post receives' out || fail "$query: $(cat out)"
	done
	status 0 $chinese "$uroce" explain RNR
	grep -q '怎么办：' out || fail "$(cat out)"
}

what_logs_show_is_understood() {
	for query in IBV_WC_RETRY_EXC_ERR retry_exc_err 12 'status 12' 'transport retry counter exceeded' \
		'Failed status transport retry counter exceeded (12) for wr_id 2'; do
		status 0 $english "$uroce" explain $query
		for code in PEER_ABSENT PEER_GID PEER_QP_STATE PEER_DIED NO_ANSWER WIRE_MTU; do
			grep -q "$code (" out || fail "$query: no $code in $(cat out)"
		done
	done
	for query in 'ibv_post_send: 12' 'ibv_post_send: -12' 'ibv_post_send: Cannot allocate memory' 'ibv_post_send ENOMEM'; do
		status 0 $english "$uroce" explain "$query"
		same "causes of $query" 1 "$(grep -c '^  [A-Z_]* (' out)"
		grep -q 'SQ_FULL' out || fail "$query: $(cat out)"
	done
	status 0 $english "$uroce" explain ibv_modify_qp: Invalid argument
	grep -q MODIFY_TRANSITION out || fail "$(cat out)"
	grep -q POST_INLINE out && fail "$(cat out)"
	status 0 $english "$uroce" explain RDMA_CM_EVENT_REJECTED, status 28
	grep -q rdma_reject out || fail "$(cat out)"
	status 0 $english "$uroce" explain reject 8
	grep -q 'nobody listens' out || fail "$(cat out)"
	for query in 'wc.status=12 vendor_err=129' 'Failed status 12: wr_id 0 syndrom 0x81'; do
		status 0 $english "$uroce" explain "$query"
		grep -q 'PEER_ABSENT (' out || fail "$query: $(cat out)"
		grep -q 'vendor_err 129 (0x81) is none of uroce' out || fail "$query: $(cat out)"
		grep -q GROUP_JOIN out && fail "$query: $(cat out)"
		status 0 $chinese "$uroce" explain "$query"
		grep -q '129 (0x81) 不是 uroce' out || fail "$query: $(cat out)"
	done
	status 0 $english "$uroce" explain 'wc.status=10, vendor_err=20'
	same "causes" 1 "$(grep -c '^  [A-Z_]* (' out)"
	grep -q 'RKEY_UNKNOWN (20)' out || fail "$(cat out)"
	for query in 'CQ error' IBV_EVENT_CQ_ERR 'got event IBV_EVENT_CQ_ERR (0)'; do
		status 0 $english "$uroce" explain "$query"
		grep -q 'CQ_OVERFLOW (61)' out || fail "$query: $(cat out)"
		status 0 $chinese "$uroce" explain "$query"
		grep -q '异步事件 IBV_EVENT_CQ_ERR' out || fail "$query: $(cat out)"
	done
	refused 1 "is no cause" $english "$uroce" explain 'ibv_frobnicate: 12'
	refused 1 "is no cause" $english "$uroce" explain no such thing
	refused 1 "is no cause" $english "$uroce" explain 55555
}

# All have a remedy, in both languages.
every_cause_can_be_explained() {
	sed -n 's/^CAUSE(\([A-Z_]*\), \([0-9]*\),.*/\1 \2/p' "$SOURCE/src/observe/cause_codes.h" >codes
	[ -s codes ] || fail "no codes"
	while read -r name number; do
		status 0 $english "$uroce" explain "$name"
		grep -q "$name ($number): " out || fail "$name: $(cat out)"
		grep -q 'What to do: ' out || fail "$name: $(cat out)"
		status 0 $chinese "$uroce" explain "$name"
		grep -q "$name（$number）：\|$name ($number): " out || fail "$name: $(cat out)"
		grep -q '怎么办：' out || fail "$name: $(cat out)"
	done <codes
}

# Whatever is said of causes has a translation.
translations_are_complete() {
	command -v xgettext msgcmp >/dev/null || skip "no gettext here"
	"$SOURCE/po/update" --check 2>missing || fail "not translated: $(cat missing)"
}

run_case "$@"
